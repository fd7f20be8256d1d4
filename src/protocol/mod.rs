//! Protocols: lines into what is asked of the daemon, events into lines.
//!
//! Each adapter is pure and knows the kernel alone: no IO, no clock, no name is minted, and no adapter names another.

mod json;
pub mod pi;
pub mod push;
