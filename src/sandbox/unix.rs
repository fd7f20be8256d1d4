//! Starts a supervisor and owns its three descriptors, on Unix.
//!
//! The supervisor's standard input is a socket: it carries the request to the supervisor and the reports back, and
//! closing it kills all processes of the step. The supervisor's standard output and error are those of the step, so no
//! further descriptor has to be passed.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::AccessFlags;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::step::OutputMode;

#[cfg(target_os = "linux")]
#[path = "spawn/linux.rs"]
mod spawn;
#[cfg(not(target_os = "linux"))]
#[path = "spawn/posix.rs"]
mod spawn;

pub(super) use spawn::{Process, Spawner};

/// A supervisor that was started, with the daemon's ends of its descriptors.
pub(super) struct SpawnedSupervisor {
    pub(super) pid: u32,
    /// When it was started, or 0 if the system does not report it.
    pub(super) start_time: u64,
    pub(super) process: Process,
    pub(super) socket: ControlSocket,
    pub(super) stdout: OutputPipe,
    /// `None` if standard error shares the pipe of standard output.
    pub(super) stderr: Option<OutputPipe>,
}

/// The descriptors of a supervisor, and the daemon's ends of them.
struct Descriptors<'a> {
    socket: StdUnixStream,
    stdout: io::PipeWriter,
    stderr: io::PipeWriter,
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux has a holder that keeps them"))]
    daemon_ends: DaemonEnds<'a>,
}

/// The daemon's ends of the descriptors of a supervisor.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux has a holder that keeps them"))]
struct DaemonEnds<'a> {
    socket: &'a ControlSocket,
    stdout: &'a OutputPipe,
    stderr: Option<&'a OutputPipe>,
}

impl Descriptors<'_> {
    /// Returns the raw descriptors: those of the supervisor in the order of its standard descriptors, then the daemon's
    /// ends.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux sends them"))]
    fn raw_fds(&self) -> Vec<RawFd> {
        let DaemonEnds { socket, stdout, stderr } = &self.daemon_ends;
        let outputs = [Some(*stdout), *stderr].into_iter().flatten().map(|pipe| pipe.0.as_raw_fd());
        [self.socket.as_raw_fd(), self.stdout.as_raw_fd(), self.stderr.as_raw_fd(), socket.0.as_raw_fd()]
            .into_iter()
            .chain(outputs)
            .collect()
    }
}

impl Spawner {
    /// Starts a supervisor by executing `program`.
    pub(super) async fn spawn(&self, program: &Path, outputs: OutputMode) -> io::Result<SpawnedSupervisor> {
        let (ours, theirs) = StdUnixStream::pair()?;
        let (stdout, to_stdout) = io::pipe()?;
        let (stderr, to_stderr) = match outputs {
            OutputMode::Separate => io::pipe().map(|(stderr, to_stderr)| (Some(stderr), to_stderr))?,
            OutputMode::Merged => (None, to_stdout.try_clone()?),
        };
        ours.set_nonblocking(true)?;
        let link = ControlSocket(UnixStream::from_std(ours)?);
        let (stdout, stderr) = (OutputPipe::new(stdout)?, stderr.map(OutputPipe::new).transpose()?);
        let daemon_ends = DaemonEnds { socket: &link, stdout: &stdout, stderr: stderr.as_ref() };
        let descriptors = Descriptors { socket: theirs, stdout: to_stdout, stderr: to_stderr, daemon_ends };
        let process = self.start(program, descriptors).await?;
        Ok(SpawnedSupervisor {
            pid: process.pid()?,
            start_time: process.start_time(),
            process,
            socket: link,
            stdout,
            stderr,
        })
    }
}

/// Returns the path of the running program, in a form that stays valid after its file was replaced.
pub(super) fn this_program() -> io::Result<PathBuf> {
    let itself = Path::new("/proc/self/exe");
    if cfg!(target_os = "linux") && itself.exists() { Ok(itself.to_owned()) } else { std::env::current_exe() }
}

/// Returns whether this process, and every process it starts, may read a file.
pub(super) fn is_readable(path: &Path) -> bool {
    nix::unistd::faccessat(nix::fcntl::AT_FDCWD, path, AccessFlags::R_OK, AtFlags::AT_EACCESS).is_ok()
}

/// Converts bytes of a request to a path.
pub(super) fn path(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

/// Creates a directory that only its owner can access; fails if it exists.
pub(super) fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Creates a directory and its missing parents, accessible only to their owner.
pub(super) fn create_private_dir_all(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(path)
}

/// Creates a symbolic link; an existing link of that name is not followed.
pub(super) fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

/// Returns whether an open file is still the one at `path`.
pub(super) fn is_same_file(path: &Path, opened: &std::fs::File) -> bool {
    let at_path = std::fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()));
    let opened = opened.metadata().map(|opened| (opened.dev(), opened.ino()));
    at_path.is_ok_and(|at_path| opened.is_ok_and(|opened| opened == at_path))
}

/// The daemon's end of the control socket of a supervisor.
pub(super) struct ControlSocket(UnixStream);

impl ControlSocket {
    /// Sends all of `bytes`.
    pub(super) async fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.0.writable().await?;
            match self.0.try_write(bytes) {
                Ok(length) => bytes = &bytes[length..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives available bytes; 0 if the supervisor has ended.
    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.0.readable().await?;
            match self.0.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    /// Closes the daemon's direction, which requests the end of all processes; never waits, and can be repeated.
    pub(super) fn close(&self) {
        // It fails only if the supervisor has ended already.
        let _gone = shutdown(self.0.as_raw_fd(), Shutdown::Write);
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // The holder keeps a duplicate, so closing the descriptor alone does not close the socket.
        self.close();
    }
}

/// The daemon's end of one output pipe of a step.
pub(super) struct OutputPipe(pipe::Receiver);

impl OutputPipe {
    fn new(reader: io::PipeReader) -> io::Result<Self> {
        pipe::Receiver::from_owned_fd(reader.into()).map(Self)
    }

    /// Waits for output; 0 if every writer has closed the pipe.
    pub(super) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).await
    }

    /// Reads what is available; `None` if nothing is.
    ///
    /// It calls `read` directly, because the runtime may not have polled the readiness yet.
    pub(super) fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match nix::unistd::read(&self.0, buffer) {
                Ok(length) => return Ok(Some(length)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}
