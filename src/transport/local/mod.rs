//! The local socket, for its owner only: a Unix socket, or a named pipe on Windows.
//!
//! One daemon per address: it holds a lock for its lifetime, a live daemon is never displaced, and a stale socket is
//! removed only after a connection attempt was refused. Only the owner may connect, and a client connects only to a
//! daemon of its own user; root counts as another user. Files of other users are rejected and left alone.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

/// Where a daemon listens, and the files that go with it.
///
/// On Unix the three paths are in one directory, which is the first defence: it must be a real directory, owned by
/// this user, with mode 0700. A missing one is created with that mode, as are its parents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The socket; on Windows the name of the pipe.
    pub socket: PathBuf,
    /// The lock file. It is never removed, because two processes could then both hold the lock.
    pub lock: PathBuf,
    /// The file with the daemon's process id, for other programs.
    pub pid: PathBuf,
    /// How a directory with too wide permissions is treated.
    pub directory: DirectoryKind,
}

/// How a socket directory with too wide permissions is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryKind {
    /// The default run directory: the daemon restricts its mode.
    Default,
    /// A directory from the configuration, which may serve other purposes: the daemon refuses it.
    Custom,
}

/// Why a listener cannot be bound to an address.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another daemon is running there.
    #[error("another pushd is running at {}", .path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The socket's path is occupied by something else.
    #[error("{} exists and is not a socket", .path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The lock's path is occupied by something else.
    #[error("{} exists and is not a plain file", .path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The run directory's path is occupied by something else.
    #[error("{} is not a directory", .path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// A path is a symbolic link, which is not followed.
    #[error("{} is a symbolic link, which is not allowed here", .path.display())]
    SymbolicLink {
        /// The link.
        path: PathBuf,
    },
    /// Another user owns the path.
    #[error("{} belongs to another user (uid {uid})", .path.display())]
    OtherOwner {
        /// The path.
        path: PathBuf,
        /// The owner.
        uid: u32,
    },
    /// Other users can access the directory.
    #[error("{} is open to other users (mode {mode:04o}); the socket needs a directory with mode 0700", .path.display())]
    TooOpen {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A system call failed.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Why a connection was not accepted; the listener continues in every case.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// Another user connected; the connection is closed.
    #[error("a connection of another user (uid {uid}) was rejected")]
    OtherUser {
        /// The user.
        uid: u32,
    },
    /// The peer's credentials cannot be read; the connection is closed.
    #[error("a connection of an unidentified process was rejected")]
    Unidentified {
        /// The error of the system.
        source: io::Error,
    },
    /// File descriptors or memory are exhausted; the caller should wait, because an immediate retry would fail.
    #[error("no file descriptor or memory left for a connection")]
    Exhausted {
        /// The error of the system.
        source: io::Error,
    },
    /// The system call failed for another reason.
    #[error("cannot accept a connection")]
    Io {
        /// The error of the system.
        #[from]
        source: io::Error,
    },
}

/// The peer of an accepted connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its process id, if the system reports one; for logs, not for decisions.
    pub pid: Option<u32>,
    /// Whether it belongs to the daemon's owner; always true here, because others are rejected.
    pub same_owner: bool,
}

/// A listener for connections.
///
/// Dropping it leaves its files behind, as a crash would, and the next daemon removes them; [`close`](Self::close) is
/// the orderly end.
#[derive(Debug)]
pub struct Listener(os::Listener);

impl Listener {
    /// Takes the address and listens there. It must be called within a tokio runtime.
    ///
    /// When it returns, the socket exists with its final mode and the pid file names this process. It may access the
    /// disk and take milliseconds.
    pub fn bind(at: &Address) -> Result<Self, BindError> {
        os::Listener::bind(at).map(Self)
    }

    /// Waits for the owner's next connection.
    ///
    /// Cancel safe. After an error it can be called again.
    pub async fn accept(&self) -> Result<(Stream, Peer), AcceptError> {
        let (stream, peer) = self.0.accept().await?;
        Ok((Stream(stream), peer))
    }

    /// Stops listening, and removes the socket and the pid file if they are still the ones it created.
    pub fn close(self) {
        self.0.close();
    }
}

/// Connects to the daemon at `at`, which must belong to the caller's own user.
///
/// If the daemon is busy, it waits a few seconds at most. `NotFound` and `ConnectionRefused` mean that no daemon is
/// running there; `PermissionDenied` means that another user's process is.
pub async fn connect(at: &Address) -> io::Result<Stream> {
    os::connect(at).await.map(Stream)
}

/// A bidirectional connection; it is split before it is used.
#[derive(Debug)]
pub struct Stream(os::Stream);

/// The reading half of a connection.
#[derive(Debug)]
pub struct ReadHalf(os::ReadHalf);

/// The writing half of a connection; shutting it down signals the end of the stream to the peer.
#[derive(Debug)]
pub struct WriteHalf(os::WriteHalf);

impl Stream {
    /// Splits the connection, so that one task can read while another writes.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        let (read, write) = os::split(self.0);
        (ReadHalf(read), WriteHalf(write))
    }

    /// Returns whether the connecting process has exited, so that its process id may have been reused; false if the
    /// system cannot tell.
    pub fn peer_has_exited(&self) -> bool {
        os::peer_has_exited(&self.0)
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, into)
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}

/// Adds the attempted action and the path to a system error.
fn failed(action: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> BindError {
    let path = path.to_owned();
    move |source| BindError::Io { action, path, source }
}
