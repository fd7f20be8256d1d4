//! The proofs which stand beside the bytes: a chain over a session's history and a seal over a block's numbers.
//!
//! They find damage, not malice: a CRC keeps no one out who can write the file.

use crc32fast::Hasher;

use crate::kernel::id::SessionId;

/// What the first block of a session continues from.
pub(super) fn genesis(session: &SessionId) -> u32 {
    crc32fast::hash(session.as_str().as_bytes())
}

/// Continues the chain `prev` over `bytes`.
///
/// Two blocks one after the other have the chain of both in one, which is what lets them be merged.
pub(super) fn chain(prev: u32, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(prev);
    hasher.update(bytes);
    hasher.finalize()
}

/// The numbers of a block, as stored.
///
/// A block that counts no events is a splice: it stands where events were lost and says so in its bytes. What follows it
/// continues from its checksum, which is that of the history as it was; its seal covers its bytes instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) count: u32,
    pub(super) prev: u32,
    pub(super) checksum: u32,
}

impl Numbers {
    /// Tells whether the block stands for events that were lost.
    pub(super) const fn is_splice(&self) -> bool {
        self.count == 0
    }

    /// Covers the numbers and the session which they belong to, and of a splice the bytes, which no chain covers.
    ///
    /// The bytes of an ordinary block are not looked at.
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

    /// Returns whether the block is the one that was written after a history with the chain `prev`.
    pub(super) fn prove(&self, session: &SessionId, seal: u32, prev: u32, bytes: &[u8]) -> bool {
        self.prev == prev && self.stands(session, seal, bytes)
    }

    /// Returns whether the block is one that was written, whatever came before it.
    pub(super) fn stands(&self, session: &SessionId, seal: u32, bytes: &[u8]) -> bool {
        self.seal(session, bytes) == seal && (self.is_splice() || chain(self.prev, bytes) == self.checksum)
    }
}

/// Covers a checkpoint: whose it is, where it stands and what it says.
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
