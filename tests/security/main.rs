//! What confinement and access control refuse: escapes from the sandbox, other users, exchanged workspaces, processes
//! that outlive their step.
#![cfg(unix)]

#[path = "../support/mod.rs"]
mod support;

mod escape;
mod other_users;
mod supervisor;
mod workspaces;
