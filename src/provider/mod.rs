//! To be written.

pub mod playbook;
