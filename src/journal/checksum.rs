//! Checksums: a chain over a session's history and a seal over the header of each block.
//!
//! They detect damage, not tampering: anyone who can write the file can recompute a CRC.

use crc32fast::Hasher;

use crate::kernel::id::SessionId;

/// Returns the checksum from which the first block of a session continues.
pub(super) fn genesis(session: &SessionId) -> u32 {
    crc32fast::hash(session.as_str().as_bytes())
}

/// Continues the chain `prev` over `bytes`.
///
/// The chain over two adjacent blocks equals the chain over their concatenation, so blocks can be joined.
pub(super) fn chain(prev: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(prev);
    hasher.update(bytes);
    hasher.finalize()
}

/// The header of a block, as stored; ordered by position.
///
/// A block with a count of zero is a splice: it replaces lost or removed events, and its bytes describe the loss.
/// Later blocks continue from its checksum, which is the one of the original history, so its seal covers its
/// bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockHeader {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) count: u32,
    pub(super) prev: u32,
    pub(super) checksum: u32,
}

impl BlockHeader {
    /// Returns whether the block replaces lost or removed events.
    pub(super) const fn is_splice(&self) -> bool {
        self.count == 0
    }

    /// Returns the checksum of the header and its session. For a splice it also covers the bytes, which no chain
    /// covers.
    pub(super) fn seal(&self, session: &SessionId, bytes: &[u8]) -> u32 {
        let mut hasher = Hasher::new();
        hasher.update(session.as_str().as_bytes());
        hasher.update(&self.first.to_be_bytes());
        hasher.update(&self.last.to_be_bytes());
        hasher.update(&self.count.to_be_bytes());
        hasher.update(&self.prev.to_be_bytes());
        hasher.update(&self.checksum.to_be_bytes());
        if self.is_splice() {
            hasher.update(bytes);
        }
        hasher.finalize()
    }

    /// Returns whether the block is intact and continues a history with the chain `prev`.
    pub(super) fn verify(&self, session: &SessionId, seal: u32, prev: u32, bytes: &[u8]) -> bool {
        self.prev == prev && self.verify_unchained(session, seal, bytes)
    }

    /// Returns whether the block is intact, whatever precedes it.
    pub(super) fn verify_unchained(&self, session: &SessionId, seal: u32, bytes: &[u8]) -> bool {
        self.seal(session, bytes) == seal && (self.is_splice() || chain(self.prev, bytes) == self.checksum)
    }
}

/// Returns the checksum of a checkpoint: its session, its position and its bytes.
pub(super) fn checkpoint(session: &SessionId, seq: u64, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(genesis(session));
    hasher.update(&seq.to_be_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_chains_are_the_chain_of_both() {
        let prev = genesis(&SessionId::from("s"));
        assert_eq!(chain(chain(prev, b"one\n"), b"two\n"), chain(prev, b"one\ntwo\n"));
        assert_ne!(chain(prev, b"one\ntwo\n"), chain(0, b"one\ntwo\n"), "the start is part of it");
    }
}
