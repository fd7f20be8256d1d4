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

    /// Looks up who is at `peer`, connected to us at `here`; reads a table of the system, so it may take a moment.
    pub fn of(peer: SocketAddr, here: SocketAddr) -> Self {
        os::find(peer, here).map_or(Self::UNKNOWN, |(uid, socket)| {
            let whose = if uid == os::own_uid() { Whose::Own } else { Whose::Foreign { uid } };
            Self { whose, socket: Some(socket) }
        })
    }

    /// Tells whether this system says whose a connection is.
    pub const fn is_told() -> bool {
        os::TELLS
    }

    /// Returns the processes that may be at the other end: those that have the socket open, or, where that cannot be
    /// seen, all of the same user. Empty when it is nobody's that lives.
    pub fn processes(&self) -> Vec<u32> {
        match (self.whose, self.socket) {
            (Whose::Own, Some(socket)) => os::holders(socket),
            (Whose::Foreign { uid }, _) => os::processes_of(uid),
            (Whose::Own | Whose::Unknown, _) => Vec::new(),
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
            assert!(found.processes().contains(&std::process::id()), "{place}");
            drop(client);
            // A child of another test may still have a copy, until it becomes another program.
            let deadline = Instant::now() + Duration::from_secs(30);
            while !found.processes().is_empty() {
                assert!(Instant::now() < deadline, "{place}: it is closed");
            }
        }
    }

    #[test]
    fn a_connection_that_is_not_there_is_nobodys() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        assert_eq!(Identity::of("127.0.0.1:1".parse().unwrap(), here), Identity::UNKNOWN);
        assert_eq!(Identity::of("192.0.2.1:9".parse().unwrap(), here), Identity::UNKNOWN);
        assert_eq!(Identity::UNKNOWN.processes(), [0; 0]);
    }
}
