//! Non-blocking open, on Unix.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

use super::Links;

pub(super) fn open(path: &Path, links: Links) -> io::Result<File> {
    let mut flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    flags.set(OFlag::O_NOFOLLOW, links == Links::Refused);
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)
}

pub(super) fn special_name(kind: FileType) -> &'static str {
    if kind.is_fifo() {
        "FIFO"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::super::read;

    #[test]
    fn a_fifo_a_socket_and_a_device_are_refused_without_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let (fifo, socket) = (dir.path().join("fifo"), dir.path().join("socket"));
        mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&fifo, &link).unwrap();
        for (path, kind) in
            [(fifo.as_path(), "FIFO"), (&link, "FIFO"), (&socket, "socket"), ("/dev/null".as_ref(), "device")]
        {
            let text = read(path, 10).unwrap_err().to_string();
            assert!(text.contains(&format!("is a {kind}, not a regular file")), "{text}");
        }
    }
}
