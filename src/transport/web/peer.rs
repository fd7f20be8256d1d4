//! The process at the other end of a local TCP connection, where the system can tell.
//!
//! Every user of the machine can connect to a loopback port, so a connection alone proves nothing. The kernel's table
//! of connections names the owner of the socket at the other end.

use std::net::SocketAddr;

use super::os;

/// The owner of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerOwner {
    /// The user that the daemon runs as.
    Own,
    /// Another user of this machine.
    OtherUser {
        /// The user id.
        uid: u32,
    },
    /// A socket of this machine that is closed or that no process holds open any more.
    Orphaned,
    /// Unknown: the connection comes from another machine, or the system cannot tell.
    Unknown,
}

/// The identity of a connection's peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The owner.
    pub owner: PeerOwner,
    /// The inode number of its socket, if known.
    socket: Option<u64>,
}

impl PeerIdentity {
    /// An unknown peer.
    pub const UNKNOWN: Self = Self { owner: PeerOwner::Unknown, socket: None };

    /// A connection of this machine that no process holds.
    const ORPHANED: Self = Self { owner: PeerOwner::Orphaned, socket: None };

    /// Looks up the peer at `peer`, connected to this side at `here`. It reads a system table, which may take a
    /// moment.
    pub fn lookup(peer: SocketAddr, here: SocketAddr) -> Self {
        match os::find_connection(peer, here) {
            // The kernel still sends the queued data of an ended process, from a socket without an inode number.
            Some((_, 0)) => Self::ORPHANED,
            Some((uid, socket)) => {
                let owner = if uid == os::own_uid() { PeerOwner::Own } else { PeerOwner::OtherUser { uid } };
                Self { owner, socket: Some(socket) }
            }
            None if os::is_local(peer.ip(), here.ip()) => Self::ORPHANED,
            None => Self::UNKNOWN,
        }
    }

    /// Returns whether this system can tell the owner of a connection.
    pub const fn is_supported() -> bool {
        os::SUPPORTED
    }

    /// Returns the processes that visibly hold the socket open.
    pub fn holders(&self) -> Vec<u32> {
        self.socket.map(os::holders).unwrap_or_default()
    }

    /// Returns whether a process visibly holds the socket open.
    pub fn is_held_by(&self, pid: u32) -> bool {
        self.socket.is_some_and(|socket| os::holds(pid, socket))
    }

    /// Returns the processes that may hold the socket invisibly: all live ones of its user.
    ///
    /// A socket can also be queued in another socket (SCM_RIGHTS), where no process visibly holds it. Each process is
    /// looked up when the iterator reaches it, so that little time passes before the caller examines it.
    pub fn possible_holders(&self) -> impl Iterator<Item = u32> + use<> {
        self.user().into_iter().flat_map(os::processes_of)
    }

    /// Returns whether a live process may hold the socket invisibly.
    pub fn may_be_held_by(&self, pid: u32) -> bool {
        self.user().is_some_and(|uid| os::runs_as(pid, uid))
    }

    fn user(&self) -> Option<u32> {
        match self.owner {
            PeerOwner::Own => Some(os::own_uid()),
            PeerOwner::OtherUser { uid } => Some(uid),
            PeerOwner::Orphaned | PeerOwner::Unknown => None,
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_connection_from_this_process_is_found_over_ipv4_and_ipv6() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let here = listener.local_addr().unwrap();
            let client = TcpStream::connect(here).unwrap();
            let (accepted, peer) = listener.accept().unwrap();
            let found = PeerIdentity::lookup(peer, accepted.local_addr().unwrap());
            assert_eq!(found.owner, PeerOwner::Own, "{address}");
            assert!(found.holders().contains(&std::process::id()), "{address}");
            assert!(found.possible_holders().any(|pid| pid == std::process::id()), "{address}");
            assert!(found.is_held_by(std::process::id()), "{address}");
            drop(client);
            // A forked child of another test may hold a copy until its exec.
            let deadline = Instant::now() + Duration::from_secs(30);
            while !found.holders().is_empty() {
                assert!(Instant::now() < deadline, "{address}: it is closed");
            }
            assert!(!found.is_held_by(std::process::id()), "{address}");
            let found = PeerIdentity::lookup(peer, accepted.local_addr().unwrap());
            assert_eq!(found, PeerIdentity::ORPHANED, "{address}");
            assert_eq!((found.holders(), found.possible_holders().count()), (vec![], 0), "{address}");
        }
    }

    #[test]
    fn a_missing_connection_has_no_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        assert_eq!(PeerIdentity::lookup("127.0.0.1:1".parse().unwrap(), here), PeerIdentity::ORPHANED);
        // A peer connected to the loopback is on this machine, whatever its address.
        assert_eq!(PeerIdentity::lookup("192.0.2.1:9".parse().unwrap(), here), PeerIdentity::ORPHANED);
        let elsewhere = PeerIdentity::lookup("192.0.2.1:9".parse().unwrap(), "192.0.2.2:9".parse().unwrap());
        assert_eq!(elsewhere, PeerIdentity::UNKNOWN);
        let oneself = PeerIdentity::lookup("192.0.2.1:9".parse().unwrap(), "192.0.2.1:8".parse().unwrap());
        assert_eq!(oneself, PeerIdentity::ORPHANED);
        assert_eq!((PeerIdentity::UNKNOWN.holders(), PeerIdentity::UNKNOWN.possible_holders().count()), (vec![], 0));
    }

    #[test]
    fn a_socket_whose_process_has_ended_with_data_in_its_queue_is_orphaned() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let client = TcpStream::connect(here).unwrap();
        let (_accepted, peer) = listener.accept().unwrap();
        // More data than the receiver accepts, so that the socket is neither closed nor reset for a long time.
        client.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &client, &[0; 65536]).is_ok() {}
        drop(client);
        let deadline = Instant::now() + Duration::from_secs(30);
        while PeerIdentity::lookup(peer, here) != PeerIdentity::ORPHANED {
            assert!(Instant::now() < deadline, "it is closed");
        }
    }
}
