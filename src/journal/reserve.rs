//! The disk reserve: preallocated space, so that runs can be ended and approvals denied when the disk is full.

use std::io;

use super::files::RawFile;

/// A file that only occupies space.
pub(super) struct DiskReserve {
    file: Option<Box<dyn RawFile>>,
    size: u64,
}

impl DiskReserve {
    /// Creates a reserve on an existing file, without changing it.
    pub(super) const fn new(file: Option<Box<dyn RawFile>>, size: u64) -> Self {
        Self { file, size }
    }

    /// Frees half of the remaining reserve; returns whether there was any.
    pub(super) fn release(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let left = file.len().unwrap_or(0);
        left > 0 && file.set_len(if left < RELEASE_ALL_BELOW { 0 } else { left / 2 }).is_ok()
    }

    /// Refills the reserve; fails if there is not enough space.
    pub(super) fn refill(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let length = file.len()?;
        if length == self.size {
            return Ok(());
        }
        self.extend(file.as_ref(), length.min(self.size), self.size)
    }

    /// Checks whether there is free space besides the full reserve.
    pub(super) fn probe(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        self.refill()?;
        let probed = self.extend(file.as_ref(), self.size, self.size.saturating_add(PROBE_BYTES));
        file.set_len(self.size)?;
        probed
    }

    /// Writes real bytes, because a sparse file reserves nothing. Restores the length if there is no space.
    fn extend(&self, file: &dyn RawFile, from: u64, to: u64) -> io::Result<()> {
        let chunk = vec![0; CHUNK];
        let mut at = from;
        while at < to {
            let length = usize::try_from(to - at).unwrap_or(CHUNK).min(CHUNK);
            if let Err(error) = file.write_at(at, &chunk[..length]) {
                let _ = file.set_len(from);
                return Err(error);
            }
            at += length as u64;
        }
        // A file system with delayed allocation reports a full disk only here.
        file.sync().inspect_err(|_| {
            let _ = file.set_len(from);
        })
    }
}

const CHUNK: usize = 64 * 1024;
/// How much space must be free besides the reserve before the disk counts as usable again.
const PROBE_BYTES: u64 = 512 * 1024;
/// Below this size the whole remainder is freed at once.
const RELEASE_ALL_BELOW: u64 = 128 * 1024;
