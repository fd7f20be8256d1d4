//! Who is at the other end, on Linux: a process as a descriptor, which no later process of the same id can pass for.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Stream;

/// The option by which a socket hands out its peer; newer than the list of the C library.
const SO_PEERPIDFD: libc::c_int = 77;

/// Tells whether the process that connected has ended; kernels before 6.5 do not say.
pub(in super::super) fn peer_is_gone(stream: &Stream) -> bool {
    match peer(stream) {
        Ok(process) => {
            let mut sources = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
            // It becomes readable when it ends.
            poll(&mut sources, PollTimeout::ZERO) != Ok(0)
        }
        Err(Errno::ENOPROTOOPT) => false,
        Err(_) => true,
    }
}

#[expect(unsafe_code, reason = "the option has no wrapper")]
fn peer(stream: &Stream) -> nix::Result<OwnedFd> {
    let mut process: libc::c_int = -1;
    let mut length = size_of_val(&process) as libc::socklen_t;
    // SAFETY: the socket is open, and the number and its length are those that the option takes.
    let asked = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut process).cast(),
            &raw mut length,
        )
    };
    Errno::result(asked)?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(process) })
}
