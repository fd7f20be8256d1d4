//! Where the daemon listens.

use crate::config::paths::{Paths, SocketPlace};
pub use crate::transport::local::Address;
use crate::transport::local::Directory;
pub(super) use crate::transport::local::{Stream, connect};

/// Returns where a daemon with these paths listens.
pub fn address(paths: &Paths) -> Address {
    Address {
        socket: paths.socket.clone(),
        lock: paths.lock.clone(),
        pid: paths.pid.clone(),
        directory: match paths.socket_place {
            SocketPlace::Default => Directory::Default,
            SocketPlace::Chosen => Directory::Chosen,
        },
    }
}
