//! The peer process on Linux, as a pidfd, which a later process with the same id cannot impersonate.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerPidfd;

use super::Stream;

/// Returns whether the connecting process has exited; kernels before 6.5 cannot tell.
pub(in super::super) fn peer_has_exited(stream: &Stream) -> bool {
    match getsockopt(stream, PeerPidfd) {
        Ok(process) => {
            let mut sources = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
            // A pidfd becomes readable when its process exits.
            poll(&mut sources, PollTimeout::ZERO) != Ok(0)
        }
        Err(Errno::ENOPROTOOPT) => false,
        Err(_) => true,
    }
}
