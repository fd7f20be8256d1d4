//! The sandbox on Windows, which refuses to run steps.
//!
//! Killing a whole process tree there requires a job object around the supervisor; until that is implemented, no
//! process is started that could not be killed.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};

use super::step::OutputMode;

/// A supervisor that was started; never constructed.
pub(super) struct SpawnedSupervisor {
    pub(super) pid: u32,
    pub(super) start_time: u64,
    pub(super) process: Process,
    pub(super) socket: ControlSocket,
    pub(super) stdout: OutputPipe,
    pub(super) stderr: Option<OutputPipe>,
}

/// Refuses to start supervisors.
#[derive(Debug, Default)]
pub(super) struct Spawner;

impl Spawner {
    /// Does nothing: Windows does not reparent processes.
    pub(super) const fn enable_orphan_adoption(&self) {}

    /// Refuses to start a supervisor.
    pub(super) async fn spawn(&self, _program: &Path, _outputs: OutputMode) -> io::Result<SpawnedSupervisor> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "running steps is not supported on Windows yet"))
    }
}

/// Returns the path of the running program.
pub(super) fn this_program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// Returns false: the files in question do not exist on Windows.
pub(super) const fn is_readable(_path: &Path) -> bool {
    false
}

/// Converts bytes of a request to a path; no request is ever sent on Windows.
pub(super) fn path(bytes: &[u8]) -> PathBuf {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// Creates a directory; fails if it exists.
pub(super) fn create_private_dir(path: &Path) -> io::Result<()> {
    std::fs::create_dir(path)
}

/// Creates a directory and its missing parents.
pub(super) fn create_private_dir_all(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// Refuses: no caller on Windows needs a symlink.
pub(super) fn symlink(_target: &Path, _link: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns whether an open file is still the one at its path: on Windows an open file cannot be renamed.
pub(super) const fn is_same_file(_path: &Path, _opened: &std::fs::File) -> bool {
    true
}

/// A supervisor's process; never constructed.
pub(super) struct Process(Infallible);

impl Process {
    pub(super) async fn wait(&mut self) {
        match self.0 {}
    }

    pub(super) async fn kill(&mut self) {
        match self.0 {}
    }
}

/// The control socket of a supervisor; never constructed.
pub(super) struct ControlSocket(Infallible);

impl ControlSocket {
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

/// An output pipe of a step; never constructed.
pub(super) struct OutputPipe(Infallible);

impl OutputPipe {
    pub(super) async fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }

    pub(super) fn try_read(&mut self, _buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.0 {}
    }
}
