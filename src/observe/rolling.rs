//! A log of bounded size: `pushd.log` is the current file, and `pushd.1.log`, `pushd.2.log` … are full ones, newest
//! first.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::os;

/// A log file that rotates when it is full.
pub(super) struct RollingLog {
    directory: PathBuf,
    file: File,
    written: u64,
    limit: u64,
    full_files_max: usize,
}

impl RollingLog {
    /// Opens the log in `directory`, which is created if necessary; records are appended to an existing file.
    pub(super) fn open(directory: &Path, limit: u64, kept: usize) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let file = open(&current_path(directory))?;
        let written = file.metadata()?.len();
        Ok(Self { directory: directory.to_path_buf(), file, written, limit, full_files_max: kept })
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..=self.full_files_max).rev() {
            let from = match number {
                1 => current_path(&self.directory),
                _ => full_path(&self.directory, number - 1),
            };
            // The oldest file is overwritten; a missing file leaves a gap in the numbering.
            match fs::rename(from, full_path(&self.directory, number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        self.file = open(&current_path(&self.directory))?;
        self.written = 0;
        Ok(())
    }
}

impl Write for RollingLog {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        if self.written > 0 && self.written + record.len() as u64 > self.limit {
            self.rotate()?;
        }
        self.file.write_all(record)?;
        self.written += record.len() as u64;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn open(path: &Path) -> io::Result<File> {
    os::owner_only(OpenOptions::new().create(true).append(true)).open(path)
}

fn current_path(directory: &Path) -> PathBuf {
    directory.join("pushd.log")
}

fn full_path(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("pushd.{number}.log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_stays_within_its_size_limits() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = RollingLog::open(directory.path(), 100, 2).unwrap();
        for number in 0..100 {
            log.write_all(format!("record number {number:03}\n").as_bytes()).unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .inspect(|entry| assert!(entry.metadata().unwrap().len() <= 100))
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["pushd.1.log", "pushd.2.log", "pushd.log"]);
        let newest = fs::read_to_string(current_path(directory.path())).unwrap();
        assert!(newest.ends_with("record number 099\n"), "{newest}");
    }

    #[test]
    fn a_restarted_daemon_appends_to_the_same_file() {
        let directory = tempfile::tempdir().unwrap();
        RollingLog::open(directory.path(), 100, 2).unwrap().write_all(b"first\n").unwrap();
        RollingLog::open(directory.path(), 100, 2).unwrap().write_all(b"second\n").unwrap();
        assert_eq!(fs::read_to_string(current_path(directory.path())).unwrap(), "first\nsecond\n");
    }
}
