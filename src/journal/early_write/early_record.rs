//! The encoding of one early record: encrypted and authenticated, so that it cannot be read or forged without the
//! key.

use std::io;

use bytes::Bytes;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::journal::record::Block;
use crate::kernel::id::{Seq, SessionId};

/// The size of a key.
pub(super) const KEY_BYTES: usize = 32;
/// The size of a record without its events and the name of their session.
pub(super) const OVERHEAD_BYTES: usize = HEADER_BYTES + FIELDS_BYTES + TAG_BYTES;

/// Events of a session that follow those up to `after`.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::journal) struct EarlyRecord {
    pub(in crate::journal) session: SessionId,
    pub(in crate::journal) after: Seq,
    pub(in crate::journal) block: Block,
}

/// Encrypts and decrypts early records.
pub(super) struct RecordCipher(LessSafeKey);

impl RecordCipher {
    pub(super) fn new(key: &[u8; KEY_BYTES]) -> io::Result<Self> {
        let key =
            UnboundKey::new(&CHACHA20_POLY1305, key).map_err(|_| io::Error::other("the early-write key is invalid"))?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Encrypts events; `count` is the nonce and must differ for every record of one key.
    pub(super) fn encrypt(&self, session: &SessionId, after: Seq, block: &Block, count: u64) -> Option<Vec<u8>> {
        let name = session.as_str().as_bytes();
        let length = FIELDS_BYTES + name.len() + block.bytes.len();
        let mut record = Vec::with_capacity(HEADER_BYTES + length + TAG_BYTES);
        record.extend_from_slice(&u32::try_from(length + TAG_BYTES).ok()?.to_le_bytes());
        record.extend_from_slice(&count.to_le_bytes());
        record.extend_from_slice(&after.number().to_le_bytes());
        record.extend_from_slice(&block.first.number().to_le_bytes());
        record.extend_from_slice(&block.last.number().to_le_bytes());
        record.extend_from_slice(&block.count.to_le_bytes());
        record.extend_from_slice(&u32::try_from(name.len()).ok()?.to_le_bytes());
        record.extend_from_slice(name);
        record.extend_from_slice(&block.bytes);
        let sealed = record.get_mut(HEADER_BYTES..)?;
        let tag = self.0.seal_in_place_separate_tag(nonce(count), Aad::empty(), sealed).ok()?;
        record.extend_from_slice(tag.as_ref());
        Some(record)
    }

    /// Decrypts the content of a slot; `None` if it is empty, torn, or was encrypted with another key.
    pub(super) fn decrypt(&self, slot: &[u8]) -> Option<EarlyRecord> {
        let mut head = slot;
        let length = u32::from_le_bytes(*take_array(&mut head)?);
        let count = u64::from_le_bytes(*take_array(&mut head)?);
        let mut sealed = head.get(..usize::try_from(length).ok()?)?.to_vec();
        let mut rest: &[u8] = self.0.open_in_place(nonce(count), Aad::empty(), &mut sealed).ok()?;
        let after = Seq::new(u64::from_le_bytes(*take_array(&mut rest)?));
        let first = Seq::new(u64::from_le_bytes(*take_array(&mut rest)?));
        let last = Seq::new(u64::from_le_bytes(*take_array(&mut rest)?));
        let events = u32::from_le_bytes(*take_array(&mut rest)?);
        let name = u32::from_le_bytes(*take_array(&mut rest)?);
        let (name, bytes) = rest.split_at_checked(usize::try_from(name).ok()?)?;
        let session = SessionId::from(std::str::from_utf8(name).ok()?);
        Some(EarlyRecord {
            session,
            after,
            block: Block { first, last, count: events, bytes: Bytes::copy_from_slice(bytes) },
        })
    }
}

/// The length and the nonce precede the encrypted part.
const HEADER_BYTES: usize = 4 + 8;
/// Three positions, the number of events and the length of the name precede the name.
const FIELDS_BYTES: usize = 3 * 8 + 2 * 4;
/// The authentication tag is at the end.
const TAG_BYTES: usize = 16;

fn nonce(count: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(&count.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Takes the next bytes.
fn take_array<'a, const LENGTH: usize>(from: &mut &'a [u8]) -> Option<&'a [u8; LENGTH]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_intact_record_decrypts() {
        let (session, seal) = (SessionId::from("ses_1"), RecordCipher::new(&[3; KEY_BYTES]).unwrap());
        let block = Block { first: Seq::new(8), last: Seq::new(9), count: 2, bytes: Bytes::from("one\ntwo\n") };
        let sealed = seal.encrypt(&session, Seq::new(7), &block, 4).unwrap();
        assert!(memchr::memmem::find(&sealed, b"two").is_none(), "the plaintext is visible");
        let record = || Some(EarlyRecord { session: session.clone(), after: Seq::new(7), block: block.clone() });
        assert_eq!(seal.decrypt(&sealed), record());
        let with_rest: Vec<u8> = sealed.iter().copied().chain([0; 100]).collect();
        assert_eq!(seal.decrypt(&with_rest), record(), "trailing bytes are ignored");
        assert_eq!(RecordCipher::new(&[4; KEY_BYTES]).unwrap().decrypt(&sealed), None, "another key");
        assert_eq!(seal.decrypt(&[0; 500]), None, "an empty slot");
        for length in 0..sealed.len() {
            assert_eq!(seal.decrypt(&sealed[..length]), None, "{length} bytes of it");
            let torn: Vec<u8> = sealed[..length].iter().copied().chain([0; 500]).collect();
            assert_eq!(seal.decrypt(&torn), None, "{length} bytes of it, in an empty slot");
        }
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(seal.decrypt(&changed), None, "bit {bit}");
        }
    }

    #[test]
    fn no_two_records_share_a_ciphertext() {
        let (session, seal) = (SessionId::from("ses_1"), RecordCipher::new(&[3; KEY_BYTES]).unwrap());
        let block = Block { first: Seq::new(1), last: Seq::new(1), count: 1, bytes: Bytes::from("one\n") };
        let sealed = |count| seal.encrypt(&session, Seq::ZERO, &block, count).unwrap();
        assert_ne!(sealed(0)[HEADER_BYTES..], sealed(1)[HEADER_BYTES..]);
    }
}
