//! What the daemon and the client are told from outside: where things are.
//!
//! Configuration reads and names; it creates nothing and opens nothing.

pub mod paths;
