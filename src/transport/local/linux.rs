//! The peer process on Linux, as a pidfd, which a later process with the same id cannot impersonate.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Stream;

/// The socket option that returns a pidfd of the peer; the libc crate does not define it yet.
const SO_PEERPIDFD: libc::c_int = 77;

/// Returns whether the connecting process has exited; kernels before 6.5 cannot tell.
pub(in super::super) fn peer_has_exited(stream: &Stream) -> bool {
    match peer_pidfd(stream) {
        Ok(process) => {
            let mut sources = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
            // A pidfd becomes readable when its process exits.
            poll(&mut sources, PollTimeout::ZERO) != Ok(0)
        }
        Err(Errno::ENOPROTOOPT) => false,
        Err(_) => true,
    }
}

#[expect(unsafe_code, reason = "the option has no wrapper")]
fn peer_pidfd(stream: &Stream) -> nix::Result<OwnedFd> {
    let mut process: libc::c_int = -1;
    let mut length = size_of_val(&process) as libc::socklen_t;
    // SAFETY: the socket is open, and the value and its length have the types that the option takes.
    let asked = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut process).cast(), &raw mut length)
    };
    Errno::result(asked)?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(process) })
}
