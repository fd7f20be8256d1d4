//! The journal's own files on the test disk.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::super::super::LOG;
use super::super::super::files::RawFile;
use super::super::super::os;
use super::{Failure, Kind, Op, Shared, name_of};

/// A file that the journal writes itself.
pub(super) struct RecordedFile {
    shared: Arc<Shared>,
    file: usize,
    real: File,
    is_log: bool,
}

/// Opens a file, and creates it if it does not exist.
pub(super) fn open(shared: &Arc<Shared>, path: &Path) -> io::Result<RecordedFile> {
    let _turn = shared.begin_change();
    check(shared, Kind::OwnOpen)?;
    let real = os::private_file(path)?;
    let is_log = name_of(path) == LOG;
    Ok(RecordedFile { shared: Arc::clone(shared), file: shared.file_number(path), real, is_log })
}

impl RawFile for RecordedFile {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        check(&self.shared, Kind::OwnRead)?;
        RawFile::read_at(&self.real, at, into)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let _turn = self.shared.begin_change();
        let failure = self.shared.failure(Kind::OwnWrite);
        let kept = match failure {
            None => bytes,
            Some(Failure::HalfFull) => &bytes[..bytes.len() / 2],
            Some(Failure::Broken | Failure::Full) => &[],
        };
        if !kept.is_empty() {
            RawFile::write_at(&self.real, at, kept)?;
            self.shared.record(Op::Write { file: self.file, at, bytes: kept.to_vec() });
        }
        failure.map_or(Ok(()), |failure| Err(error(failure)))
    }

    fn len(&self) -> io::Result<u64> {
        check(&self.shared, Kind::OwnSize)?;
        RawFile::len(&self.real)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let _turn = self.shared.begin_change();
        check(&self.shared, Kind::OwnLength)?;
        RawFile::set_len(&self.real, len)?;
        self.shared.record(Op::Length { file: self.file, len });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        if self.is_log {
            self.shared.observe();
            self.shared.wait_at_gate();
        }
        let turn = self.shared.begin_change();
        let begun = turn.begun;
        if let Err(error) = check(&self.shared, Kind::OwnSync) {
            self.shared.record_failed_sync(self.file, begun);
            return Err(error);
        }
        RawFile::sync(&self.real)?;
        self.shared.record(Op::Synced { file: self.file, begun });
        Ok(())
    }
}

fn check(shared: &Shared, kind: Kind) -> io::Result<()> {
    shared.failure(kind).map_or(Ok(()), |failure| Err(error(failure)))
}

fn error(failure: Failure) -> io::Error {
    match failure {
        // The error code of a failing device (EIO).
        Failure::Broken => io::Error::from_raw_os_error(5),
        Failure::Full | Failure::HalfFull => io::ErrorKind::StorageFull.into(),
    }
}
