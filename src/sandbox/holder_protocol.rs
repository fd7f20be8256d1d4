//! The protocol between the daemon and the holder of its supervisors.
//!
//! Requests and replies have fixed sizes. Every request gets one reply, in order; notices of ended supervisors come in
//! between. The descriptors of a new supervisor are passed with the request that starts it, and so are duplicates of
//! the daemon's own ends of them, which the holder keeps while the step runs.

/// The size of a request, in bytes.
pub(super) const REQUEST_LEN: usize = 5;

/// The size of a reply, in bytes.
pub(super) const REPLY_LEN: usize = 13;

/// The number of descriptors that a supervisor needs: its control socket, standard output and standard error.
pub(super) const SUPERVISOR_FDS: usize = 3;

/// The maximum number of descriptors of a message: those of the supervisor, then the daemon's ends of them.
pub(super) const REQUEST_FDS_MAX: usize = 2 * SUPERVISOR_FDS;

/// A request from the daemon to the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HolderRequest {
    /// Start a supervisor with the first [`SUPERVISOR_FDS`] descriptors of the message, and keep the others until its
    /// step has ended.
    Spawn,
    /// Kill the supervisor with this process id.
    Kill(i32),
}

impl HolderRequest {
    /// Encodes the request.
    pub(super) const fn encode(self) -> [u8; REQUEST_LEN] {
        let (tag, number) = match self {
            Self::Spawn => (b'S', 0),
            Self::Kill(pid) => (b'K', pid),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [tag, a, b, c, d]
    }

    /// Decodes a request; `None` if the bytes are not a valid request.
    pub(super) const fn decode([tag, a, b, c, d]: [u8; REQUEST_LEN]) -> Option<Self> {
        match tag {
            b'S' => Some(Self::Spawn),
            b'K' => Some(Self::Kill(i32::from_le_bytes([a, b, c, d]))),
            _ => None,
        }
    }
}

/// A reply or notice from the holder to the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HolderReply {
    /// A supervisor was started.
    Spawned {
        /// Its process id.
        pid: i32,
        /// When the process was started.
        start_time: u64,
    },
    /// The supervisor could not be started; the errno.
    Failed(i32),
    /// The kill request was carried out.
    Killed,
    /// The supervisor with this process id has ended and no process of its step remains.
    Ended(i32),
}

impl HolderReply {
    /// Encodes the reply.
    pub(super) fn encode(self) -> [u8; REPLY_LEN] {
        let (tag, number, born) = match self {
            Self::Spawned { pid, start_time: born } => (b'P', pid, born),
            Self::Failed(errno) => (b'F', errno, 0),
            Self::Killed => (b'K', 0, 0),
            Self::Ended(pid) => (b'E', pid, 0),
        };
        let mut bytes = [tag; REPLY_LEN];
        bytes[1..5].copy_from_slice(&number.to_le_bytes());
        bytes[5..].copy_from_slice(&born.to_le_bytes());
        bytes
    }

    /// Decodes a reply; `None` if the bytes are not a valid reply.
    pub(super) const fn decode([tag, a, b, c, d, born @ ..]: [u8; REPLY_LEN]) -> Option<Self> {
        let (number, born) = (i32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(born));
        match tag {
            b'P' => Some(Self::Spawned { pid: number, start_time: born }),
            b'F' => Some(Self::Failed(number)),
            b'K' => Some(Self::Killed),
            b'E' => Some(Self::Ended(number)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_replies_round_trip() {
        for request in [HolderRequest::Spawn, HolderRequest::Kill(77)] {
            assert_eq!(HolderRequest::decode(request.encode()), Some(request));
        }
        for reply in [
            HolderReply::Spawned { pid: 77, start_time: u64::MAX - 1 },
            HolderReply::Failed(11),
            HolderReply::Killed,
            HolderReply::Ended(77),
        ] {
            assert_eq!(HolderReply::decode(reply.encode()), Some(reply));
        }
        assert_eq!(HolderRequest::decode(*b"?0000"), None);
        assert_eq!(HolderReply::decode(*b"?000000000000"), None);
    }
}
