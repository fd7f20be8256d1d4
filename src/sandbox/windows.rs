//! The executor's place on Windows, where steps are refused with a clear answer.
//!
//! Ending a whole tree there takes a job object around the keeper; until that is built, nothing is started which
//! could not be ended.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};

/// A keeper that was started; there is none.
pub(super) struct Spawned {
    pub(super) pid: u32,
    pub(super) process: Process,
    pub(super) link: Link,
    pub(super) stdout: Pipe,
    pub(super) stderr: Pipe,
}

/// Refuses to start a keeper.
pub(super) fn spawn(_program: &Path) -> io::Result<Spawned> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "running steps is not supported on Windows yet"))
}

/// The program that is running.
pub(super) fn this_program() -> io::Result<PathBuf> {
    std::env::current_exe()
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

/// Lets a directory be removed.
pub(super) fn open_to_owner(path: &Path) -> io::Result<()> {
    let mut permissions = std::fs::metadata(path)?.permissions();
    permissions.set_readonly(false);
    std::fs::set_permissions(path, permissions)
}

/// The keeper's process, which cannot exist.
pub(super) struct Process(Infallible);

impl Process {
    pub(super) async fn wait(&mut self) -> io::Result<()> {
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
