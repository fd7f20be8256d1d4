//! Fresh names and secrets: the kernel receives them and makes none.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use ulid::Ulid;

use crate::kernel::id::{CallId, Fingerprint, GateId, MessageId, RunId, SessionId};

/// Mints the name of a session.
pub fn session() -> SessionId {
    SessionId::new(prefixed("sess_"))
}

/// Mints the name of a run.
pub fn run() -> RunId {
    RunId::new(prefixed("run_"))
}

/// Mints the name of a gate.
pub fn gate() -> GateId {
    GateId::new(prefixed("appr_"))
}

/// Mints the name of a use of a tool.
pub fn call() -> CallId {
    CallId::new(prefixed("call_"))
}

/// Mints the name of a user's message that came without one.
pub fn message() -> MessageId {
    MessageId::new(prefixed("msg_"))
}

/// Mints the name of an assistant's message.
pub fn assistant_message() -> MessageId {
    MessageId::new(prefixed("asst_"))
}

/// Mints the name of a rule that was granted for always.
pub fn grant() -> String {
    prefixed("grant_")
}

/// Mints the name of a request that came without one.
pub fn request() -> String {
    prefixed("req_")
}

/// Mints a token of 256 random bits.
pub fn token() -> Result<String, getrandom::Error> {
    let mut bits = [0_u8; 32];
    getrandom::fill(&mut bits)?;
    let mut text = String::with_capacity(68);
    text.push_str("att_");
    for byte in bits {
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(u32::from(digit), 16));
        }
    }
    Ok(text)
}

/// Returns what is kept of a token.
pub fn token_hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Compares a token with what is kept of one, in constant time.
pub fn token_matches(token: &str, hash: &[u8; 32]) -> bool {
    token_hash(token).ct_eq(hash).into()
}

/// Digests everything a command asks for; the parts are kept apart by their lengths.
pub fn fingerprint<'a>(parts: impl IntoIterator<Item = &'a str>) -> Fingerprint {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part.as_bytes());
    }
    let whole: [u8; 32] = digest.finalize().into();
    let (half, _) = whole.split_at(16);
    Fingerprint(half.iter().fold(0, |value, byte| value << 8 | u128::from(*byte)))
}

fn prefixed(prefix: &str) -> String {
    format!("{prefix}{}", Ulid::generate())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_256_random_bits_and_matches_its_hash_alone() {
        let (one, other) = (token().unwrap(), token().unwrap());
        assert_eq!(one.len(), 4 + 64);
        assert_ne!(one, other);
        assert!(token_matches(&one, &token_hash(&one)));
        assert!(!token_matches(&other, &token_hash(&one)));
    }

    #[test]
    fn parts_of_a_fingerprint_do_not_run_together() {
        assert_eq!(fingerprint(["ab", "c"]), fingerprint(["ab", "c"]));
        assert_ne!(fingerprint(["ab", "c"]), fingerprint(["a", "bc"]));
    }
}
