//! What the daemon and the holder of its supervisors say to each other, as bytes.
//!
//! Requests and replies have fixed sizes. Every request gets one reply, in order; the ends of supervisors come in between. The
//! descriptors of a new supervisor travel with the request for it.

/// How many bytes a request has.
pub(super) const REQUEST_LEN: usize = 5;

/// How many bytes a reply has.
pub(super) const REPLY_LEN: usize = 13;

/// What the daemon asks of the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HoldRequest {
    /// Start a supervisor with the three descriptors that come along: its link, standard output and standard error.
    Spawn,
    /// Kill the supervisor with this id.
    Kill(i32),
}

impl HoldRequest {
    /// The request as bytes.
    pub(super) const fn encode(self) -> [u8; REQUEST_LEN] {
        let (tag, number) = match self {
            Self::Spawn => (b'S', 0),
            Self::Kill(pid) => (b'K', pid),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [tag, a, b, c, d]
    }

    /// Reads a request; `None` if it is none.
    pub(super) const fn decode([tag, a, b, c, d]: [u8; REQUEST_LEN]) -> Option<Self> {
        match tag {
            b'S' => Some(Self::Spawn),
            b'K' => Some(Self::Kill(i32::from_le_bytes([a, b, c, d]))),
            _ => None,
        }
    }
}

/// What the holder tells the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HoldReply {
    /// A supervisor was started.
    Spawned {
        /// Its id.
        pid: i32,
        /// When it was born.
        born: u64,
    },
    /// No supervisor could be started, with this error number.
    Failed(i32),
    /// The request to kill was carried out.
    Killed,
    /// The supervisor with this id has ended, and nothing is left of its step.
    Ended(i32),
}

impl HoldReply {
    /// The reply as bytes.
    pub(super) fn encode(self) -> [u8; REPLY_LEN] {
        let (tag, number, born) = match self {
            Self::Spawned { pid, born } => (b'P', pid, born),
            Self::Failed(errno) => (b'F', errno, 0),
            Self::Killed => (b'K', 0, 0),
            Self::Ended(pid) => (b'E', pid, 0),
        };
        let mut bytes = [tag; REPLY_LEN];
        bytes[1..5].copy_from_slice(&number.to_le_bytes());
        bytes[5..].copy_from_slice(&born.to_le_bytes());
        bytes
    }

    /// Reads a reply; `None` if it is none.
    pub(super) const fn decode([tag, a, b, c, d, born @ ..]: [u8; REPLY_LEN]) -> Option<Self> {
        let (number, born) = (i32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(born));
        match tag {
            b'P' => Some(Self::Spawned { pid: number, born }),
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
    fn requests_and_replies_are_read_as_they_were_written() {
        for request in [HoldRequest::Spawn, HoldRequest::Kill(77)] {
            assert_eq!(HoldRequest::decode(request.encode()), Some(request));
        }
        for reply in [
            HoldReply::Spawned { pid: 77, born: u64::MAX - 1 },
            HoldReply::Failed(11),
            HoldReply::Killed,
            HoldReply::Ended(77),
        ] {
            assert_eq!(HoldReply::decode(reply.encode()), Some(reply));
        }
        assert_eq!(HoldRequest::decode(*b"?0000"), None);
        assert_eq!(HoldReply::decode(*b"?000000000000"), None);
    }
}
