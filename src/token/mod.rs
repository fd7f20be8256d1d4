//! Access tokens: generation, comparison and storage.
//!
//! Only the digest of a token is stored, in a file that only its owner can read. The file is read whenever a token
//! is checked, so that a revoked token is refused at once. The store works with and without a running daemon.

mod secret;
mod store;

pub use secret::{generate, hash, matches};
pub use store::{TokenRecord, TokenRole, TokenStore, TokenStoreError};
