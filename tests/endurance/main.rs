//! Failures and load: kills at random points, many concurrent clients, full and damaged disks.
#![cfg(unix)]

#[path = "../support/mod.rs"]
mod support;

mod damage;
mod kill;
mod load;
mod pi_load;
mod storage;
mod write_ahead;
