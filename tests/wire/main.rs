//! A real daemon and the clients of its protocols: the Push and Pi protocols, WebSockets and the command line.
#![cfg(unix)]

#[path = "../support/mod.rs"]
mod support;

mod approvals;
mod bad_input;
mod cli;
mod contract;
mod errors;
mod pi;
mod recovery;
mod replay;
mod requests;
mod retention;
mod web;
