//! Who is at the other end of a connection from this machine, where the system can tell.
//!
//! A port of the loopback is open to every user of the machine, so that a connection itself proves nothing. The table of
//! connections does: it says whose socket the other end is.

use std::net::SocketAddr;

use super::os;

/// Whose a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The user's that the daemon runs as.
    Own,
    /// Another user's of this machine.
    Foreign {
        /// Who.
        uid: u32,
    },
    /// A socket of this machine that no process has open any more, or that is closed already.
    Orphaned,
    /// Nobody's that is known: it comes from elsewhere, or the system does not tell.
    Unknown,
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Whose it is.
    pub whose: Whose,
    /// The number of its socket, where it is known.
    socket: Option<u64>,
}

impl Identity {
    /// Somebody of whom nothing is known.
    pub const UNKNOWN: Self = Self { whose: Whose::Unknown, socket: None };

    /// A connection of this machine that no process holds.
    const ORPHANED: Self = Self { whose: Whose::Orphaned, socket: None };

    /// Looks up who is at `peer`, connected to us at `here`; reads a table of the system, so it may take a moment.
    pub fn of(peer: SocketAddr, here: SocketAddr) -> Self {
        match os::find(peer, here) {
            // The kernel goes on sending what an ended process has queued, from a socket without a number.
            Some((_, 0)) => Self::ORPHANED,
            Some((uid, socket)) => {
                let whose = if uid == os::own_uid() { Whose::Own } else { Whose::Foreign { uid } };
                Self { whose, socket: Some(socket) }
            }
            None if os::is_of_this_machine(peer.ip(), here.ip()) => Self::ORPHANED,
            None => Self::UNKNOWN,
        }
    }

    /// Tells whether this system says whose a connection is.
    pub const fn is_told() -> bool {
        os::TELLS
    }

    /// Returns the processes that have the socket open, as far as they can be seen.
    pub fn holders(&self) -> Vec<u32> {
        self.socket.map(os::holders).unwrap_or_default()
    }

    /// Tells whether a process has the socket open.
    pub fn is_held_by(&self, pid: u32) -> bool {
        self.socket.is_some_and(|socket| os::holds(pid, socket))
    }

    /// Returns the processes that may have the socket without being seen to: all living ones of its user.
    ///
    /// A socket can also lie in the queue of another one, where no process is seen to have it. Each is looked up when it is asked
    /// for, so that little time passes until the caller looks at it.
    pub fn possible_holders(&self) -> impl Iterator<Item = u32> + use<> {
        self.user().into_iter().flat_map(os::processes_of)
    }

    /// Tells whether a process lives that may have the socket without being seen to.
    pub fn may_be_held_by(&self, pid: u32) -> bool {
        self.user().is_some_and(|uid| os::acts_as(pid, uid))
    }

    fn user(&self) -> Option<u32> {
        match self.whose {
            Whose::Own => Some(os::own_uid()),
            Whose::Foreign { uid } => Some(uid),
            Whose::Orphaned | Whose::Unknown => None,
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_connection_from_this_process_is_found_by_either_family() {
        for place in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            let Ok(listener) = TcpListener::bind(place) else { continue };
            let here = listener.local_addr().unwrap();
            let client = TcpStream::connect(here).unwrap();
            let (accepted, peer) = listener.accept().unwrap();
            let found = Identity::of(peer, accepted.local_addr().unwrap());
            assert_eq!(found.whose, Whose::Own, "{place}");
            assert!(found.holders().contains(&std::process::id()), "{place}");
            assert!(found.possible_holders().any(|pid| pid == std::process::id()), "{place}");
            assert!(found.is_held_by(std::process::id()), "{place}");
            drop(client);
            // A child of another test may still have a copy, until it becomes another program.
            let deadline = Instant::now() + Duration::from_secs(30);
            while !found.holders().is_empty() {
                assert!(Instant::now() < deadline, "{place}: it is closed");
            }
            assert!(!found.is_held_by(std::process::id()), "{place}");
            let found = Identity::of(peer, accepted.local_addr().unwrap());
            assert_eq!(found, Identity::ORPHANED, "{place}");
            assert_eq!((found.holders(), found.possible_holders().count()), (vec![], 0), "{place}");
        }
    }

    #[test]
    fn a_connection_that_is_not_there_is_nobodys() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        assert_eq!(Identity::of("127.0.0.1:1".parse().unwrap(), here), Identity::ORPHANED);
        // Whoever connects to the loopback is on this machine, whatever address it took for itself.
        assert_eq!(Identity::of("192.0.2.1:9".parse().unwrap(), here), Identity::ORPHANED);
        let elsewhere = Identity::of("192.0.2.1:9".parse().unwrap(), "192.0.2.2:9".parse().unwrap());
        assert_eq!(elsewhere, Identity::UNKNOWN);
        let oneself = Identity::of("192.0.2.1:9".parse().unwrap(), "192.0.2.1:8".parse().unwrap());
        assert_eq!(oneself, Identity::ORPHANED);
        assert_eq!((Identity::UNKNOWN.holders(), Identity::UNKNOWN.possible_holders().count()), (vec![], 0));
    }

    #[test]
    fn a_socket_whose_process_has_ended_with_data_in_its_queue_is_orphaned() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let client = TcpStream::connect(here).unwrap();
        let (_accepted, peer) = listener.accept().unwrap();
        // More than the receiver takes, so that the socket is neither closed nor reset for a long time.
        client.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &client, &[0; 65536]).is_ok() {}
        drop(client);
        let deadline = Instant::now() + Duration::from_secs(30);
        while Identity::of(peer, here) != Identity::ORPHANED {
            assert!(Instant::now() < deadline, "it is closed");
        }
    }
}
