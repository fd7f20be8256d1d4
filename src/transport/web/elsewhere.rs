//! The owner of a connection on systems that cannot tell.

use std::net::{IpAddr, SocketAddr};

/// Whether this system can tell the owner of a connection.
pub(super) const SUPPORTED: bool = false;

pub(super) const fn own_uid() -> u32 {
    0
}

pub(super) const fn find_connection(_at: SocketAddr, _to: SocketAddr) -> Option<(u32, u64)> {
    None
}

pub(super) const fn is_local(_peer: IpAddr, _here: IpAddr) -> bool {
    false
}

pub(super) const fn holds(_pid: u32, _socket: u64) -> bool {
    false
}

pub(super) const fn holders(_socket: u64) -> Vec<u32> {
    Vec::new()
}

pub(super) const fn processes_of(_uid: u32) -> Vec<u32> {
    Vec::new()
}

pub(super) const fn runs_as(_pid: u32, _uid: u32) -> bool {
    false
}
