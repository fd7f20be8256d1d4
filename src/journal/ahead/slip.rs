//! The encoding of one early record: encrypted and authenticated, so that it cannot be read or forged without the
//! key.

use std::io;

use bytes::Bytes;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::journal::record::Block;
use crate::kernel::id::{Seq, SessionId};

/// The size of a key.
pub(super) const KEY: usize = 32;
/// The size of a record without its events and the name of their session.
pub(super) const AROUND: usize = HEAD + INSIDE + TAG;

/// Events of a session that follow those up to `after`.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::journal) struct Slip {
    pub(in crate::journal) session: SessionId,
    pub(in crate::journal) after: Seq,
    pub(in crate::journal) block: Block,
}

/// Encrypts and decrypts early records.
pub(super) struct Seal(LessSafeKey);

impl Seal {
    pub(super) fn new(key: &[u8; KEY]) -> io::Result<Self> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, key)
            .map_err(|_| io::Error::other("the early-write key is invalid"))?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Encrypts events; `count` is the nonce and must differ for every record of one key.
    pub(super) fn close(
        &self,
        session: &SessionId,
        after: Seq,
        block: &Block,
        count: u64,
    ) -> Option<Vec<u8>> {
        let name = session.as_str().as_bytes();
        let length = INSIDE + name.len() + block.bytes.len();
        let mut slip = Vec::with_capacity(HEAD + length + TAG);
        slip.extend_from_slice(&u32::try_from(length + TAG).ok()?.to_le_bytes());
        slip.extend_from_slice(&count.to_le_bytes());
        slip.extend_from_slice(&after.number().to_le_bytes());
        slip.extend_from_slice(&block.first.number().to_le_bytes());
        slip.extend_from_slice(&block.last.number().to_le_bytes());
        slip.extend_from_slice(&block.count.to_le_bytes());
        slip.extend_from_slice(&u32::try_from(name.len()).ok()?.to_le_bytes());
        slip.extend_from_slice(name);
        slip.extend_from_slice(&block.bytes);
        let sealed = slip.get_mut(HEAD..)?;
        let tag = self.0.seal_in_place_separate_tag(nonce(count), Aad::empty(), sealed).ok()?;
        slip.extend_from_slice(tag.as_ref());
        Some(slip)
    }

    /// Decrypts the content of a slot; `None` if it is empty, torn, or was encrypted with another key.
    pub(super) fn open(&self, place: &[u8]) -> Option<Slip> {
        let mut head = place;
        let length = u32::from_le_bytes(*take(&mut head)?);
        let count = u64::from_le_bytes(*take(&mut head)?);
        let mut sealed = head.get(..usize::try_from(length).ok()?)?.to_vec();
        let mut rest: &[u8] = self.0.open_in_place(nonce(count), Aad::empty(), &mut sealed).ok()?;
        let after = Seq::new(u64::from_le_bytes(*take(&mut rest)?));
        let first = Seq::new(u64::from_le_bytes(*take(&mut rest)?));
        let last = Seq::new(u64::from_le_bytes(*take(&mut rest)?));
        let events = u32::from_le_bytes(*take(&mut rest)?);
        let name = u32::from_le_bytes(*take(&mut rest)?);
        let (name, bytes) = rest.split_at_checked(usize::try_from(name).ok()?)?;
        let session = SessionId::from(std::str::from_utf8(name).ok()?);
        Some(Slip {
            session,
            after,
            block: Block { first, last, count: events, bytes: Bytes::copy_from_slice(bytes) },
        })
    }
}

/// The length and the nonce precede the encrypted part.
const HEAD: usize = 4 + 8;
/// Three positions, the number of events and the length of the name precede the name.
const INSIDE: usize = 3 * 8 + 2 * 4;
/// The authentication tag is at the end.
const TAG: usize = 16;

fn nonce(count: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(&count.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Takes the next bytes.
fn take<'a, const LENGTH: usize>(from: &mut &'a [u8]) -> Option<&'a [u8; LENGTH]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_opened_again_and_nothing_else_is() {
        let (session, seal) = (SessionId::from("ses_1"), Seal::new(&[3; KEY]).unwrap());
        let block =
            Block { first: Seq::new(8), last: Seq::new(9), count: 2, bytes: Bytes::from("one\ntwo\n") };
        let sealed = seal.close(&session, Seq::new(7), &block, 4).unwrap();
        assert!(memchr::memmem::find(&sealed, b"two").is_none(), "the plaintext is visible");
        let slip = || Some(Slip { session: session.clone(), after: Seq::new(7), block: block.clone() });
        assert_eq!(seal.open(&sealed), slip());
        let with_rest: Vec<u8> = sealed.iter().copied().chain([0; 100]).collect();
        assert_eq!(seal.open(&with_rest), slip(), "trailing bytes are ignored");
        assert_eq!(Seal::new(&[4; KEY]).unwrap().open(&sealed), None, "another key");
        assert_eq!(seal.open(&[0; 500]), None, "an empty slot");
        for length in 0..sealed.len() {
            assert_eq!(seal.open(&sealed[..length]), None, "{length} bytes of it");
            let torn: Vec<u8> = sealed[..length].iter().copied().chain([0; 500]).collect();
            assert_eq!(seal.open(&torn), None, "{length} bytes of it, in an empty slot");
        }
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(seal.open(&changed), None, "bit {bit}");
        }
    }

    #[test]
    fn no_two_slips_are_sealed_alike() {
        let (session, seal) = (SessionId::from("ses_1"), Seal::new(&[3; KEY]).unwrap());
        let block = Block { first: Seq::new(1), last: Seq::new(1), count: 1, bytes: Bytes::from("one\n") };
        let sealed = |count| seal.close(&session, Seq::ZERO, &block, count).unwrap();
        assert_ne!(sealed(0)[HEAD..], sealed(1)[HEAD..]);
    }
}
