//! Room that is kept from use, so that a run can be ended and a question denied when the disk is full.

use std::io;

use super::files::RawFile;

/// A file whose only use is its size.
pub(super) struct Spare {
    file: Option<Box<dyn RawFile>>,
    whole: u64,
}

impl Spare {
    /// Takes the spare room up as it is.
    pub(super) const fn new(file: Option<Box<dyn RawFile>>, whole: u64) -> Self {
        Self { file, whole }
    }

    /// Gives half of what is left away; returns whether there was any.
    pub(super) fn spend(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let left = file.len().unwrap_or(0);
        left > 0 && file.set_len(if left < LEAST { 0 } else { left / 2 }).is_ok()
    }

    /// Tells whether there is room again, and fills up what was given away.
    pub(super) fn fill(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let had = file.len()?;
        if had == self.whole {
            return Ok(());
        }
        self.extend(file.as_ref(), had.min(self.whole), self.whole)
    }

    /// Tells whether there is room beyond the spare one.
    pub(super) fn probe(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        self.fill()?;
        let probed = self.extend(file.as_ref(), self.whole, self.whole.saturating_add(PROBE));
        file.set_len(self.whole)?;
        probed
    }

    /// Writes real bytes, as room that is only promised is of no use; puts the length back if there is no room.
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
        // A file system that puts allocation off says only here that there is no room.
        file.sync().inspect_err(|_| {
            let _ = file.set_len(from);
        })
    }
}

const CHUNK: usize = 64 * 1024;
/// What must be free beyond the spare room before the disk counts as usable again.
const PROBE: u64 = 512 * 1024;
/// Below this the rest is given away at once.
const LEAST: u64 = 128 * 1024;
