//! How lines travel: framing, the check at the door, the owner-only local socket, and WebSockets.
//!
//! A transport moves lines and knows nothing of what is in them. It names no other module of this crate, decides
//! nothing about sessions, and lets in nobody whom it was not told to.

pub mod compact;
pub mod excerpt;
pub mod frames;
pub mod line;
pub mod local;
pub mod sink;
pub mod web;
