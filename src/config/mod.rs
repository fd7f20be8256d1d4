//! What the daemon and the client are told from outside: where things are, how much they may hold, what the user wants.
//!
//! Configuration reads and names; it creates and changes nothing. Keys are no part of it.

pub mod file;
pub mod limits;
pub mod origin;
pub mod paths;
pub mod pi;
pub mod project;
pub mod sandbox;
pub mod settings;
pub mod watched;
