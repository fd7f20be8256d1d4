//! The executor's place on Windows, where steps are refused with a clear answer.
//!
//! Ending a whole tree there takes a job object around the keeper; until that is built, nothing is started which
//! could not be ended.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};

use super::step::Outputs;

/// A keeper that was started; there is none.
pub(super) struct Spawned {
    pub(super) pid: u32,
    pub(super) born: u64,
    pub(super) process: Process,
    pub(super) link: Link,
    pub(super) stdout: Pipe,
    pub(super) stderr: Option<Pipe>,
}

/// Refuses to start keepers.
#[derive(Debug, Default)]
pub(super) struct Spawner;

impl Spawner {
    /// Nothing is inherited here.
    pub(super) const fn adopting_orphans(&self) {}

    /// Refuses to start a keeper.
    pub(super) async fn spawn(&self, _program: &Path, _outputs: Outputs) -> io::Result<Spawned> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "running steps is not supported on Windows yet"))
    }
}

/// The program that is running.
pub(super) fn this_program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// How many bytes a file has; what it takes on the disk is not told without a further call.
pub(super) fn disk_bytes(there: &std::fs::Metadata) -> u64 {
    there.len()
}

/// Tells whether this process may read something; what is asked about is not there on this system.
pub(super) const fn may_read(_path: &Path) -> bool {
    false
}

/// A path from the bytes of an order, of which there is none.
pub(super) fn path(bytes: &[u8]) -> PathBuf {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// Makes a directory; one that is there already is none of ours.
pub(super) fn private_directory(path: &Path) -> io::Result<()> {
    std::fs::create_dir(path)
}

/// Makes a directory and those above it.
pub(super) fn private_directories(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// Refuses: nothing here needs a link.
pub(super) fn symlink(_target: &Path, _link: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Tells whether what was opened still stands under its path: here nothing that is open can be renamed.
pub(super) const fn is_same(_path: &Path, _opened: &std::fs::File) -> bool {
    true
}

/// The keeper's process, which cannot exist.
pub(super) struct Process(Infallible);

impl Process {
    pub(super) async fn wait(&mut self) {
        match self.0 {}
    }

    pub(super) async fn kill(&mut self) {
        match self.0 {}
    }
}

/// The way to a keeper, which cannot exist.
pub(super) struct Link(Infallible);

impl Link {
    pub(super) async fn send(&self, _bytes: &[u8]) -> io::Result<()> {
        match self.0 {}
    }

    pub(super) async fn receive(&self, _buffer: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }

    pub(super) fn close(&self) {
        match self.0 {}
    }
}

/// An output of a step, which cannot exist.
pub(super) struct Pipe(Infallible);

impl Pipe {
    pub(super) async fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }

    pub(super) fn read_now(&mut self, _buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.0 {}
    }
}
