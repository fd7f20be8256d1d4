//! How lines travel: framing, the check at the door, and the owner-only local socket.
//!
//! A transport moves lines and knows nothing of what is in them. It names no other module of this crate, decides
//! nothing about sessions, and lets in nobody but the owner.

pub mod compact;
pub mod line;
pub mod local;
pub mod sink;
