//! Orphans that the daemon inherits: what a lost holder and its supervisors leave behind.
//!
//! The daemon is a subreaper and has children of its own as well. Those are in its session; every step is in another one, and no
//! process can enter a session that exists.

use std::collections::BTreeSet;

use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpid};

use super::table::{self, Entry};
use super::{Caught, PASSES};

/// Kills the children of this process in another session, with their descendants, and reaps the dead; whether any is left.
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
        // Nobody else waits for a child that nobody started.
        let _reaped = waitpid(Pid::from_raw(entry.pid), Some(WaitPidFlag::WNOHANG));
    }
    !left.is_empty()
}
