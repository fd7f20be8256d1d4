//! The library without a daemon: the kernel and its rules, policy, protocols, schemas and files.

#[path = "../support/mod.rs"]
mod support;

mod allocations;
mod checkpoints;
mod command_log_rules;
mod command_log_walks;
mod conversation;
mod discovery;
mod export;
mod forks;
mod kernel_rules;
mod kernel_walks;
mod pi_adapter;
mod policy;
mod properties;
mod schemas;
mod session_files;
mod skips;
mod steering;
