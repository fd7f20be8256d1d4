//! Transports: line framing, canonical JSON, the owner-only local socket, and WebSockets.
//!
//! A transport moves lines and does not interpret them. It names no other module of this crate, decides nothing about
//! sessions, and accepts only peers that its access rules allow.

pub mod canonical_json;
pub mod excerpt;
pub mod frames;
pub mod line;
pub mod local;
pub mod sink;
pub mod web;
