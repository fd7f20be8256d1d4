//! Failures and load: kills at random points, crowds of clients, full and damaged disks.
#![cfg(unix)]

#[path = "../support/mod.rs"]
mod support;

mod crowds;
mod damage;
mod kill;
mod pi_crowd;
mod storage;
mod write_ahead;
