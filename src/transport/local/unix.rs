//! The local socket on Unix.
//!
//! There are three defences, each sufficient alone: a directory that only its owner can enter, a socket that only its
//! owner can write to, and the credentials of every peer. The mode is set before the socket has a name, so that it is
//! never open to other users.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as BlockingListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use interprocess::ConnectWaitMode;
use interprocess::local_socket::{
    ConnectOptions, GenericFilePath, ListenerNonblockingMode, ListenerOptions, prelude::*,
};
use interprocess::os::unix::local_socket::ListenerOptionsExt;
use interprocess::os::unix::uds_local_socket;
use nix::errno::Errno;
use nix::unistd::geteuid;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::Instant;

use super::{AcceptError, Address, BindError, Peer, failed};

#[path = "unix_files.rs"]
mod files;
#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod platform;
#[cfg(not(target_os = "linux"))]
#[path = "posix.rs"]
mod platform;

use files::FileIdentity;
pub(super) use platform::peer_has_exited;

pub(super) type Stream = UnixStream;
pub(super) type ReadHalf = OwnedReadHalf;
pub(super) type WriteHalf = OwnedWriteHalf;

#[derive(Debug)]
pub(super) struct Listener {
    socket: UnixListener,
    socket_file: OwnedFile,
    pid_file: OwnedFile,
    /// Held open so that its inode number cannot be reused.
    _pid: File,
    /// Released when the process ends for any reason.
    _lock: File,
}

/// A file that this process created, with the identity that distinguishes it from a later file of the same name.
#[derive(Debug)]
struct OwnedFile {
    path: PathBuf,
    identity: FileIdentity,
}

impl Listener {
    pub(super) fn bind(at: &Address) -> Result<Self, BindError> {
        let directory = at.socket.parent().unwrap_or(Path::new("/"));
        files::prepare_directory(directory, at.directory)?;
        let Some(lock) = files::acquire_lock(&at.lock)? else {
            return Err(BindError::InUse { path: at.socket.clone() });
        };
        remove_stale_socket(&at.socket)?;
        let socket = listen(&at.socket).map_err(failed("listen at", &at.socket))?;
        let socket_file = OwnedFile::at(&at.socket).map_err(failed("inspect", &at.socket))?;
        match files::write_pid(&at.pid) {
            Ok(pid) => {
                let identity = FileIdentity::of(&pid.metadata().map_err(failed("inspect", &at.pid))?);
                let pid_file = OwnedFile { path: at.pid.clone(), identity };
                Ok(Self { socket, socket_file, pid_file, _pid: pid, _lock: lock })
            }
            Err(error) => {
                socket_file.remove();
                Err(error)
            }
        }
    }

    pub(super) async fn accept(&self) -> Result<(Stream, Peer), AcceptError> {
        loop {
            match self.socket.accept().await {
                Ok((stream, _)) => return authorize(stream),
                // The peer disconnected while it was queued, or a signal interrupted the call: wait for the next
                // connection.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(accept_error(error)),
            }
        }
    }

    pub(super) fn close(self) {
        // The lock is released last, so that the next holder finds no stale files. The pid file goes first, because a
        // client takes a pid file without a socket for the sign of a crash.
        self.pid_file.remove();
        self.socket_file.remove();
        drop(self.socket);
    }
}

impl OwnedFile {
    fn at(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: FileIdentity::of(&fs::symlink_metadata(path)?) })
    }

    /// Removes the file if it is still the same one. On failure a stale file stays, which the next daemon removes.
    fn remove(&self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|metadata| FileIdentity::of(&metadata) == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

pub(super) async fn connect(at: &Address) -> io::Result<Stream> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let mut pause = Duration::from_millis(1);
    let stream = loop {
        match UnixStream::connect(&at.socket).await {
            // The accept queue is full, and there is no event to wait for.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(50));
            }
            result => break result?,
        }
    };
    let uid = stream.peer_cred()?.uid();
    if uid != geteuid().as_raw() {
        let text = format!("the process at {} belongs to another user (uid {uid})", at.socket.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(stream)
}

pub(super) fn split(stream: Stream) -> (ReadHalf, WriteHalf) {
    stream.into_split()
}

/// Accepts a connection of the owner and rejects all others.
fn authorize(stream: UnixStream) -> Result<(Stream, Peer), AcceptError> {
    let credentials = stream.peer_cred().map_err(|source| AcceptError::Unidentified { source })?;
    if credentials.uid() != geteuid().as_raw() {
        return Err(AcceptError::OtherUser { uid: credentials.uid() });
    }
    // Zero stands for a process in another namespace.
    let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|&pid| pid != 0);
    Ok((stream, Peer { pid, same_owner: true }))
}

fn accept_error(source: io::Error) -> AcceptError {
    match source.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => AcceptError::Exhausted { source },
        _ => AcceptError::Io { source },
    }
}

/// Removes the stale socket of a dead daemon; the caller holds the lock.
fn remove_stale_socket(socket: &Path) -> Result<(), BindError> {
    let metadata = match fs::symlink_metadata(socket) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("inspect", socket)(error)),
    };
    if !metadata.file_type().is_socket() {
        return Err(BindError::NotASocket { path: socket.to_owned() });
    }
    if metadata.uid() != geteuid().as_raw() {
        return Err(BindError::OtherOwner { path: socket.to_owned(), uid: metadata.uid() });
    }
    match is_listening(socket) {
        Ok(true) => Err(BindError::InUse { path: socket.to_owned() }),
        Ok(false) => fs::remove_file(socket).map_err(failed("remove the stale socket", socket)),
        Err(error) => Err(failed("connect to", socket)(error)),
    }
}

fn is_listening(socket: &Path) -> io::Result<bool> {
    let name = socket.to_fs_name::<GenericFilePath>()?;
    // Deferred, because a hanging daemon with a full queue would block this call and is alive nevertheless.
    match ConnectOptions::new().name(name).wait_mode(ConnectWaitMode::Deferred).connect_sync() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) => Err(error),
    }
}

fn listen(socket: &Path) -> io::Result<UnixListener> {
    let listener = match options(socket)?.mode(0o600).create_sync_as::<uds_local_socket::Listener>() {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => listen_in_private_directory(socket)?,
        result => result?.into(),
    };
    UnixListener::from_std(listener)
}

/// Listens on systems that cannot set the mode before the name: the socket is created in a private directory and then
/// moved.
fn listen_in_private_directory(socket: &Path) -> io::Result<BlockingListener> {
    // A short name, because the path of the socket may already be at the length limit.
    let temporary_dir = socket.with_file_name(format!(".{}", std::process::id()));
    let temporary_socket = temporary_dir.join("s");
    let clear_away = || {
        let _ = fs::remove_file(&temporary_socket);
        let _ = fs::remove_dir(&temporary_dir);
    };
    clear_away();
    fs::DirBuilder::new().mode(0o700).create(&temporary_dir)?;
    let listener = options(&temporary_socket).and_then(|options| {
        let listener = options.create_sync_as::<uds_local_socket::Listener>()?;
        fs::set_permissions(&temporary_socket, fs::Permissions::from_mode(0o600))?;
        fs::rename(&temporary_socket, socket)?;
        Ok(listener.into())
    });
    clear_away();
    listener
}

fn options(socket: &Path) -> io::Result<ListenerOptions<'_>> {
    let name = socket.to_fs_name::<GenericFilePath>()?;
    // Otherwise dropping the listener would remove the socket, even that of a successor.
    Ok(ListenerOptions::new().name(name).reclaim_name(false).nonblocking(ListenerNonblockingMode::Accept))
}

/// How long a client waits for a daemon whose accept queue is full.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
#[path = "unix_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "unix_other_user_tests.rs"]
mod other_user_tests;
