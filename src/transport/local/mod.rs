//! The local socket, for its owner alone: a Unix socket, or a named pipe on Windows.
//!
//! One daemon at an address: a lock is held for life, a live daemon is never displaced, and what a dead one left is
//! removed only after nobody answered there. Nobody but the owner is let in, and a client talks to nobody but its own
//! daemon; root is somebody else. Files that are not ours are refused and left alone.

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
/// On Unix the three paths are in one directory. That directory is the first defence: it must be a real one, ours, and
/// closed to everybody else; if it is missing it is made so, with its parents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The socket (on Windows the name of the pipe).
    pub socket: PathBuf,
    /// The lock; it is never removed, since removing a lock lets two hold it.
    pub lock: PathBuf,
    /// The process id of the daemon, for programs which look there.
    pub pid: PathBuf,
    /// Whose the directory is to put in order.
    pub directory: Directory,
}

/// Whose the socket's directory is to put in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directory {
    /// Our own run directory: if it is ours and too open, it is closed.
    Default,
    /// A directory somebody chose, which may serve other purposes: too open, it is refused.
    Chosen,
}

/// Why nothing can listen at an address.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A daemon is there.
    #[error("another pushd is running at {}", .path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something else has the socket's name.
    #[error("{} exists and is not a socket", .path.display())]
    NotASocket {
        /// What is in the way.
        path: PathBuf,
    },
    /// Something else has the lock's name.
    #[error("{} exists and is not a plain file", .path.display())]
    NotAFile {
        /// What is in the way.
        path: PathBuf,
    },
    /// The run directory is something else.
    #[error("{} is not a directory", .path.display())]
    NotADirectory {
        /// What is in the way.
        path: PathBuf,
    },
    /// A symbolic link stands where the thing itself has to be.
    #[error("{} is a symbolic link, which is not followed here", .path.display())]
    Linked {
        /// The link.
        path: PathBuf,
    },
    /// Somebody else owns it.
    #[error("{} belongs to another user (uid {uid})", .path.display())]
    Foreign {
        /// What is not ours.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// Other users may look into the directory or change it.
    #[error("{} is open to other users (mode {mode:04o}); the socket needs a directory with mode 0700", .path.display())]
    TooOpen {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The system refused.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a connection did not come in; the listener goes on in every case.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// Another user called; the connection is closed.
    #[error("a process of another user (uid {uid}) was turned away")]
    Stranger {
        /// Who.
        uid: u32,
    },
    /// Nobody can say who called; the connection is closed.
    #[error("a process that cannot be identified was turned away")]
    Unidentified {
        /// What the system said.
        source: io::Error,
    },
    /// Descriptors or memory are used up; the caller waits a little, since trying at once would fail at once.
    #[error("no descriptor or memory left for a connection")]
    Exhausted {
        /// What the system said.
        source: io::Error,
    },
    /// The system refused for another reason.
    #[error("cannot accept a connection")]
    Io {
        /// What the system said.
        #[from]
        source: io::Error,
    },
}

/// Who is at the other end of an accepted connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its process, where the system tells and can see it; fit for a log, not for a decision.
    pub pid: Option<u32>,
    /// Whether it is the daemon's owner; always so on this transport, which turns others away.
    pub same_owner: bool,
}

/// A place where connections come in.
///
/// Dropping it leaves its files behind, as a crash would, and the next daemon clears them; [`retire`](Self::retire)
/// is the orderly end.
#[derive(Debug)]
pub struct Listener(os::Listener);

impl Listener {
    /// Takes the address and listens there; to be called within a tokio runtime.
    ///
    /// When it returns, the socket is there with its final mode and the pid file names this process. It may touch the
    /// disk and takes milliseconds.
    pub fn bind(at: &Address) -> Result<Self, BindError> {
        os::Listener::bind(at).map(Self)
    }

    /// Waits for the owner's next connection.
    ///
    /// May be dropped while it waits. After an error it can be called again.
    pub async fn accept(&self) -> Result<(Stream, Peer), AcceptError> {
        let (stream, peer) = self.0.accept().await?;
        Ok((Stream(stream), peer))
    }

    /// Stops listening and removes socket and pid file, if they are still the ones it made.
    pub fn retire(self) {
        self.0.retire();
    }
}

/// Connects to the daemon at `at`, which must belong to the caller's own user.
///
/// A daemon that is busy is waited for, a few seconds at most. `NotFound` and `ConnectionRefused` mean that none is
/// there; `PermissionDenied` that somebody else is.
pub async fn connect(at: &Address) -> io::Result<Stream> {
    os::connect(at).await.map(Stream)
}

/// A connection, for bytes in both directions.
#[derive(Debug)]
pub struct Stream(os::Stream);

/// The half of a connection that bytes come from.
#[derive(Debug)]
pub struct ReadHalf(os::ReadHalf);

/// The half of a connection that bytes go to; shutting it down tells the peer that no more will come.
#[derive(Debug)]
pub struct WriteHalf(os::WriteHalf);

impl Stream {
    /// Takes the connection apart, so that one task can read while another writes.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        let (read, write) = os::split(self.0);
        (ReadHalf(read), WriteHalf(write))
    }

    /// Tells whether the process that connected has ended, so that its id may be another's; false where the system does not
    /// say.
    pub fn peer_is_gone(&self) -> bool {
        os::peer_is_gone(&self.0)
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, into)
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, into)
    }
}

impl AsyncWrite for Stream {
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

/// Makes a system's refusal say what was being done, and to what.
fn failed(action: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> BindError {
    let path = path.to_owned();
    move |source| BindError::Io { action, path, source }
}
