//! Starting a keeper and holding its three descriptors, on Unix.
//!
//! The keeper's standard input is a socket: the order goes down, reports come up, and closing it ends everything.
//! Its standard output and error are the step's own, so that no further descriptor has to be handed over.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use nix::errno::Errno;
use nix::sys::socket::{Shutdown, shutdown};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use super::keeper;

/// A keeper that was started, and what the daemon holds of it.
pub(super) struct Spawned {
    pub(super) pid: u32,
    pub(super) process: Process,
    pub(super) link: Link,
    pub(super) stdout: Pipe,
    pub(super) stderr: Pipe,
}

/// Starts `program` as a keeper.
pub(super) fn spawn(program: &Path) -> io::Result<Spawned> {
    let (ours, theirs) = StdUnixStream::pair()?;
    let (stdout, to_stdout) = io::pipe()?;
    let (stderr, to_stderr) = io::pipe()?;
    ours.set_nonblocking(true)?;
    let link = Link(UnixStream::from_std(ours)?);
    let child = Command::new(program)
        .arg0("push")
        .arg(keeper::ARGUMENT)
        .env_clear()
        .current_dir("/")
        .stdin(OwnedFd::from(theirs))
        .stdout(to_stdout)
        .stderr(to_stderr)
        .spawn()?;
    let pid = child.id().ok_or(io::ErrorKind::NotFound)?;
    Ok(Spawned { pid, process: Process(child), link, stdout: Pipe::new(stdout)?, stderr: Pipe::new(stderr)? })
}

/// The program that is running, in a form that still names it after its file was replaced.
pub(super) fn this_program() -> io::Result<PathBuf> {
    let itself = Path::new("/proc/self/exe");
    if cfg!(target_os = "linux") && itself.exists() { Ok(itself.to_owned()) } else { std::env::current_exe() }
}

/// A path from the bytes of an order.
pub(super) fn path(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

/// Makes a directory for its owner alone; one that is there already is none of ours.
pub(super) fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Makes a directory and those above it, for their owner alone.
pub(super) fn private_directories(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(path)
}

/// Lets the owner of a directory do everything with it.
pub(super) fn open_to_owner(path: &Path) -> io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
}

/// The keeper's process.
pub(super) struct Process(Child);

impl Process {
    /// Waits for its end, so that no zombie stays.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.0.wait().await
    }
}

/// The daemon's end of the socket to a keeper.
pub(super) struct Link(UnixStream);

impl Link {
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

    /// Receives what has come; nothing when the keeper has ended.
    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.0.readable().await?;
            match self.0.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    /// Closes our direction, which is the order to end everything; never waits, and may be repeated.
    pub(super) fn close(&self) {
        // It fails only where the keeper has gone already.
        let _gone = shutdown(self.0.as_raw_fd(), Shutdown::Write);
    }
}

/// The daemon's end of one output of a step.
pub(super) struct Pipe(pipe::Receiver);

impl Pipe {
    fn new(reader: io::PipeReader) -> io::Result<Self> {
        pipe::Receiver::from_owned_fd(reader.into()).map(Self)
    }

    /// Waits for output; nothing when every writer is gone.
    pub(super) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).await
    }

    /// Reads what is there; `None` when nothing is.
    ///
    /// It asks the system itself: the runtime may not have heard yet that there is something.
    pub(super) fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
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
