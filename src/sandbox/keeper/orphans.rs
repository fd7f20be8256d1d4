//! Kills the orphans that the daemon adopts from a lost holder and its supervisors.
//!
//! The daemon is a subreaper and also has children of its own. Those are in its session; every step is in another one,
//! and no process can join an existing session.

use std::collections::BTreeSet;

use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpid};

use super::table::{self, Entry};
use super::{Caught, PASSES};

/// Kills the children of this process in other sessions, with their descendants, and reaps zombies; returns whether any
/// remains.
pub(in super::super::super) fn end_orphans(spared: &BTreeSet<u32>) -> bool {
    let Some(own) = Entry::read(getpid().as_raw()) else { return false };
    let is_orphan = |entry: &Entry| {
        let is_spared = u32::try_from(entry.pid).is_ok_and(|pid| spared.contains(&pid));
        entry.parent == own.pid && entry.session != own.session && !is_spared
    };
    let mut caught = Caught::default();
    for _ in 0..PASSES {
        if caught.stop_descendants(&is_orphan) == 0 {
            break;
        }
    }
    caught.kill();
    let left: Vec<Entry> = table::pids().filter_map(Entry::read).filter(is_orphan).collect();
    for entry in &left {
        // No other code waits for a child that this process did not start.
        let _reaped = waitpid(Pid::from_raw(entry.pid), Some(WaitPidFlag::WNOHANG));
    }
    !left.is_empty()
}
