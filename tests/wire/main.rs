//! A real daemon and the clients of its protocols: the Push and Pi protocols, WebSockets and the command line.
#![cfg(unix)]

#[path = "../support/mod.rs"]
mod support;

mod approvals;
mod bad_input;
mod cli;
mod contract;
mod errors;
mod forks;
mod pi;
mod recovery;
mod remote;
mod replay;
mod requests;
mod retention;
mod third_protocol;
mod web;
