//! Generation, hashing and comparison of tokens.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Generates a token of 256 random bits; its prefix identifies its kind.
pub fn generate(beginning: &str) -> Result<String, getrandom::Error> {
    let mut bits = [0_u8; 32];
    getrandom::fill(&mut bits)?;
    let mut text = String::with_capacity(beginning.len() + 64);
    text.push_str(beginning);
    for byte in bits {
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(u32::from(digit), 16));
        }
    }
    Ok(text)
}

/// Returns the digest of a token, which is what is stored.
pub fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Compares a token with a stored digest, in constant time.
pub fn matches(token: &str, kept: &[u8; 32]) -> bool {
    hash(token).ct_eq(kept).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_256_random_bits_and_matches_its_hash_alone() {
        let (one, other) = (generate("att_").unwrap(), generate("att_").unwrap());
        assert_eq!(one.len(), 4 + 64);
        assert_ne!(one, other);
        assert!(matches(&one, &hash(&one)));
        assert!(!matches(&other, &hash(&one)));
    }
}
