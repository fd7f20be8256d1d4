//! Protocol adapters: decode client lines into requests, and encode events and replies into lines.
//!
//! Each adapter is pure and depends on the kernel and its records only. It does no I/O, reads no clock and mints no ids, and no adapter
//! names another adapter.

pub mod pi;
pub mod push;
