//! Secrets that open a door: how they are made, compared, and kept.
//!
//! What is kept of a token is its digest, in a file that its owner alone can read. The file is read whenever a token is
//! looked at, so that one that was revoked opens nothing any more. It works with and without a daemon.

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;
mod secret;
mod store;

pub use secret::{fresh, hash, matches};
pub use store::{Token, Tokens, TokensError};
