//! Kills the orphans that the daemon adopts from a lost holder and its supervisors.
//!
//! The daemon is a subreaper and also has children of its own. Those are in its session; every step is in another one,
//! and no process can join an existing session.

use std::collections::BTreeSet;

use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpid};

use super::process_table::{self, ProcessEntry};
use super::{STOP_PASSES, StoppedProcesses};

/// Kills the children of this process in other sessions, with their descendants, and reaps zombies; returns whether any
/// remains.
pub(in super::super::super) fn kill_orphans(excluded: &BTreeSet<u32>) -> bool {
    let Some(own) = ProcessEntry::read(getpid().as_raw()) else { return false };
    let is_orphan = |entry: &ProcessEntry| {
        let is_excluded = u32::try_from(entry.pid).is_ok_and(|pid| excluded.contains(&pid));
        entry.parent == own.pid && entry.session != own.session && !is_excluded
    };
    let mut stopped = StoppedProcesses::default();
    for _ in 0..STOP_PASSES {
        if stopped.stop_descendants(&is_orphan) == 0 {
            break;
        }
    }
    stopped.kill();
    let left: Vec<ProcessEntry> = process_table::pids().filter_map(ProcessEntry::read).filter(is_orphan).collect();
    for entry in &left {
        // No other code waits for a child that this process did not start.
        let _reaped = waitpid(Pid::from_raw(entry.pid), Some(WaitPidFlag::WNOHANG));
    }
    !left.is_empty()
}
