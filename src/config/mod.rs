//! The configuration of the daemon and the client: paths, limits and the user's settings.
//!
//! This module only reads; it creates and changes nothing. Credentials are not part of the configuration.

pub mod cache;
pub mod file;
pub mod limits;
pub mod listener;
pub mod origin;
pub mod paths;
pub mod project;
pub mod sandbox;
pub mod settings;
