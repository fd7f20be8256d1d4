//! The local socket on Windows: a named pipe whose access control list contains only its owner.
//!
//! The system rejects all other users, remote clients included, so that their connections never reach this process. A
//! client checks the owner of the pipe before it sends anything, because any user can create a pipe with a free name.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::windows::io::AsHandle;
use std::path::{Path, PathBuf};
use std::time::Duration;

use interprocess::ConnectWaitMode;
use interprocess::os::windows::ToWtf16;
use interprocess::os::windows::named_pipe::tokio::{DuplexPipeStream, PipeListener};
use interprocess::os::windows::named_pipe::{PipeListenerOptions, pipe_mode::Bytes};
use interprocess::os::windows::security_descriptor::SecurityDescriptor;
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_NO_SYSTEM_RESOURCES, ERROR_NOT_ENOUGH_MEMORY, ERROR_TOO_MANY_OPEN_FILES,
};

use super::{AcceptError, Address, BindError, Peer, failed};

#[path = "windows_owner.rs"]
mod owner;

pub(super) type Stream = DuplexPipeStream<Bytes>;
pub(super) type ReadHalf = tokio::io::ReadHalf<Stream>;
pub(super) type WriteHalf = tokio::io::WriteHalf<Stream>;

#[derive(Debug)]
pub(super) struct Listener {
    pipe: PipeListener<Bytes, Bytes>,
    pid: PathBuf,
    /// Released when the process ends for any reason.
    _lock: File,
}

impl Listener {
    pub(super) fn bind(at: &Address) -> Result<Self, BindError> {
        for directory in [at.lock.parent(), at.pid.parent()].into_iter().flatten() {
            fs::create_dir_all(directory).map_err(failed("create", directory))?;
        }
        let in_use = || BindError::InUse { path: at.socket.clone() };
        let lock = lock(&at.lock)?.ok_or_else(in_use)?;
        let pipe = listen(&at.socket).map_err(|error| match is(&error, &[ERROR_ACCESS_DENIED]) {
            // Only the first instance of a pipe may set its access control list: the name is taken.
            true => in_use(),
            false => failed("listen at", &at.socket)(error),
        })?;
        write_pid(&at.pid)?;
        Ok(Self { pipe, pid: at.pid.clone(), _lock: lock })
    }

    pub(super) async fn accept(&self) -> Result<(Stream, Peer), AcceptError> {
        let stream = self.pipe.accept().await.map_err(accept_error)?;
        let pid = stream.peer_process_id().ok();
        Ok((stream, Peer { pid, same_owner: true }))
    }

    pub(super) fn close(self) {
        // The lock is still held, so a file that names this process is the one it wrote.
        if fs::read_to_string(&self.pid).is_ok_and(|text| text.trim() == std::process::id().to_string()) {
            let _ = fs::remove_file(&self.pid);
        }
        drop(self.pipe);
    }
}

pub(super) async fn connect(at: &Address) -> io::Result<Stream> {
    let wait = ConnectWaitMode::Timeout(CONNECT_TIMEOUT);
    let stream = Stream::connect_by_path_with_wait_mode(at.socket.as_path(), wait).await?;
    if owner::of_object(stream.as_handle())? != owner::of_this_process()? {
        let text = format!("the pipe {} belongs to another user", at.socket.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(stream)
}

pub(super) fn split(stream: Stream) -> (ReadHalf, WriteHalf) {
    tokio::io::split(stream)
}

fn listen(pipe: &Path) -> io::Result<PipeListener<Bytes, Bytes>> {
    let me = owner::of_this_process()?.to_string();
    // Owned by this user, no inherited entries, full access for this user, none for anybody else.
    let description = std::ffi::OsString::from(format!("O:{me}D:P(A;;GA;;;{me})"));
    let description = description.to_wtf_16().map_err(|error| invalid(&error))?;
    let path = pipe.to_wtf_16().map_err(|error| invalid(&error))?;
    let mut options = PipeListenerOptions::new();
    options.path = path;
    options.accept_remote = false;
    options.security_descriptor = Some(SecurityDescriptor::deserialize(&description)?);
    options.create_tokio_duplex::<Bytes>()
}

fn lock(path: &Path) -> Result<Option<File>, BindError> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).open(path).map_err(failed("open", path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(failed("lock", path)(error)),
    }
}

fn write_pid(path: &Path) -> Result<(), BindError> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let draft = Path::new(&draft);
    fs::write(draft, format!("{}\n", std::process::id())).map_err(failed("write", draft))?;
    fs::rename(draft, path).map_err(failed("replace", path))
}

fn accept_error(source: io::Error) -> AcceptError {
    let exhausted = [ERROR_TOO_MANY_OPEN_FILES, ERROR_NOT_ENOUGH_MEMORY, ERROR_NO_SYSTEM_RESOURCES];
    match is(&source, &exhausted) {
        true => AcceptError::Exhausted { source },
        false => AcceptError::Io { source },
    }
}

fn is(error: &io::Error, codes: &[u32]) -> bool {
    let code = error.raw_os_error().and_then(|code| u32::try_from(code).ok());
    code.is_some_and(|code| codes.contains(&code))
}

fn invalid(error: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
}

/// How long a client waits for a free instance of the daemon's pipe.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Always false: the system cannot tell.
pub(super) const fn peer_has_exited(_stream: &Stream) -> bool {
    false
}
