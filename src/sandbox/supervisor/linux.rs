//! Tracks the process tree of a step on Linux: subreaper, cgroup, and scans of `/proc`.
//!
//! No process is signalled by its id alone unless it is the supervisor's own child: other processes are identified by a
//! pidfd and their start time, so a reused process id never causes a signal to an unrelated process.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{ForkResult, Pid, fork as plain_fork, getpid, getppid};
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

use super::cgroup::{self, Cgroup};
use super::process_table::{self, ProcessEntry};
use super::{TreeState, WaitOutcome, is_closed};
use crate::sandbox::confinement::ResourceLimits;
use crate::sandbox::supervisor::{Ancestor, Ancestry};

mod confined;
mod holder;
mod memory;
mod orphans;

pub(super) use confined::{NamespacedStep, start_in_namespaces};
pub(in super::super) use confined::{inside, restrict_self};
pub(in super::super) use holder::main as hold;
pub(super) use memory::MemoryMonitor;
pub(in super::super) use orphans::kill_orphans;

/// Linux exposes the parents of a process.
pub(in super::super) const ANCESTRY_SUPPORTED: bool = true;

/// The maximum number of passes that stop processes before the stopped ones are killed.
const STOP_PASSES: usize = 64;

/// Makes `clone3` place the child in a cgroup; the type of libc's constant is too small for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The mechanism that tracks processes whose parent has exited.
pub(in super::super) const ORPHAN_LAYER: &str = "subreaper";

/// Names the mechanisms that keep track of a step's processes.
pub(in super::super) const fn process_layers(cgroups: bool) -> &'static str {
    if cgroups { "cgroup and subreaper" } else { "subreaper" }
}

/// Finds the directory in which cgroups can be created.
pub(in super::super) fn find_cgroup_parent() -> Option<Box<Path>> {
    cgroup::find_parent()
}

/// Kills the processes that a killed supervisor left in its cgroup.
pub(in super::super) fn clean_up_cgroup(cgroups: &Path, supervisor: u32) {
    cgroup::clean_up(cgroups, supervisor);
}

/// Prepares this process for supervising; a measure that fails does not prevent the others.
pub(super) fn prepare_supervisor() {
    // With another process name, `killall push` does not kill the process that cleans up.
    let _named = prctl::set_name(c"push-supervisor");
    let _reaper = prctl::set_child_subreaper(true);
    close_inherited_fds();
}

/// The daemon's process, in a holder and in the supervisors that it has forked.
static DAEMON: OnceLock<OwnedFd> = OnceLock::new();

/// Makes this holder and the supervisors that it forks notice the end of the daemon, which is the parent process.
fn watch_daemon() {
    // A daemon that has already ended has also closed its socket. Kernels without pidfds have the socket alone.
    let parent = rustix::process::getppid();
    if let Some(Ok(process)) = parent.map(|parent| pidfd_open(parent, PidfdFlags::empty())) {
        let _only_once = DAEMON.set(process);
    }
}

/// Closes all descriptors except the three standard ones and the daemon's process.
fn close_inherited_fds() {
    close_fds_except(DAEMON.get().map(OwnedFd::as_fd));
}

/// Closes all descriptors except the three standard ones and `kept`.
///
/// For a process that was just started or forked and uses no other descriptor from here on.
fn close_fds_except(kept: Option<BorrowedFd<'_>>) {
    match kept.map(|kept| kept.as_raw_fd()) {
        None => close_from(3),
        Some(kept) => {
            if kept > 3 {
                close_range(3, (kept - 1).cast_unsigned());
            }
            close_from(kept + 1);
        }
    }
}

/// Closes every descriptor from `first` on; the caller owns none of them.
fn close_from(first: RawFd) {
    close_range(first, u32::MAX);
}

#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn close_range(first: RawFd, last: u32) {
    // SAFETY: the callers own no descriptor in this range that they use again.
    unsafe { libc::syscall(libc::SYS_close_range, first.cast_unsigned(), last, 0_u32) };
}

/// The cgroup of a step's processes.
pub(super) struct StepCgroup(Cgroup);

impl StepCgroup {
    /// Creates the cgroup in the directory `cgroups`, which is empty if cgroups are not used, and sets its limits.
    pub(super) fn create(cgroups: &CStr, limits: Option<ResourceLimits>) -> Option<Self> {
        let cgroup = Cgroup::create(cgroups, std::process::id())?;
        if let Some(limits) = limits {
            cgroup.set_limits(limits);
        }
        Some(Self(cgroup))
    }

    /// Returns whether the OOM killer has killed processes in it.
    pub(super) fn ran_out_of_memory(&self) -> bool {
        self.0.ran_out_of_memory()
    }

    /// Removes the cgroup.
    pub(super) fn remove(self) {
        self.0.remove();
    }
}

/// Forks, into the cgroup if the system allows it.
pub(super) fn fork(cgroup: Option<&StepCgroup>) -> nix::Result<ForkResult> {
    if cgroup.is_some()
        && let Ok(forked) = fork_into(cgroup, 0)
    {
        return Ok(forked);
    }
    fork_plain()
}

#[expect(unsafe_code, reason = "there is no safe fork")]
fn fork_plain() -> nix::Result<ForkResult> {
    // SAFETY: the supervisor has one thread, so the child may do whatever the parent may.
    unsafe { plain_fork() }
}

/// Forks into the cgroup, if there is one, and into new namespaces.
///
/// Creating a process in a cgroup is cheap; moving it there can take ten milliseconds.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn fork_into(cgroup: Option<&StepCgroup>, namespaces: i32) -> nix::Result<ForkResult> {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = u64::from(namespaces.cast_unsigned());
    arguments.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = cgroup.0.directory.as_raw_fd() as u64;
    }
    // SAFETY: without a stack and shared memory this is a fork, and the supervisor has one thread; the structure
    // outlives the call and its size is given.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of_val(&arguments)) };
    match Errno::result(pid)? {
        0 => Ok(ForkResult::Child),
        child => Ok(ForkResult::Parent { child: Pid::from_raw(child as libc::pid_t) }),
    }
}

/// Makes the shell die with its supervisor, should that be killed.
pub(super) fn die_with_supervisor(supervisor: Pid) -> nix::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // A supervisor that was killed earlier sends no signal, and its children already have another parent.
    if getppid() == supervisor { Ok(()) } else { Err(Errno::ESRCH) }
}

/// Exits a child that did not become the shell, without running the supervisor's exit handlers.
#[expect(unsafe_code, reason = "the call has no wrapper")]
pub(super) fn exit_child() -> ! {
    // SAFETY: `_exit` ends the process at once and runs no exit handler.
    unsafe { libc::_exit(127) }
}

/// The events that wake a supervisor: the control socket, a dead child, or a termination signal.
pub(super) struct Wakeup(SignalFd);

impl Wakeup {
    /// Blocks the signals and starts to receive them as events.
    pub(super) fn new() -> nix::Result<Self> {
        let signals: SigSet = [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
        signals.thread_block()?;
        SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map(Self)
    }

    /// Waits until a child has died, a stop is requested, or `limit` has passed.
    pub(super) fn wait(&self, socket: BorrowedFd<'_>, limit: Option<Duration>) -> nix::Result<WaitOutcome> {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut sources = vec![readable(socket), readable(self.0.as_fd())];
        sources.extend(DAEMON.get().map(|process| readable(process.as_fd())));
        match poll(&mut sources, limit.map_or(PollTimeout::NONE, timeout)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let is_ready = |source: Option<&PollFd<'_>>| source.is_some_and(|source| source.any().unwrap_or(true));
        let (socket_ready, daemon_ended) = (is_ready(sources.first()), is_ready(sources.get(2)));
        let stopped = self.drain() || daemon_ended || (socket_ready && is_closed(socket));
        Ok(if stopped { WaitOutcome::Stop } else { WaitOutcome::Continue })
    }

    /// Waits until a child has died, for at most `limit`.
    pub(super) fn pause(&self, limit: Duration) {
        let _timed_out = poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], timeout(limit));
        self.drain();
    }

    /// Waits until a child has died or `other` is readable, for at most `limit`; returns whether `other` is readable.
    ///
    /// Termination signals are ignored: the caller ends when `other` is closed.
    fn wait_for_child_or(&self, other: BorrowedFd<'_>, limit: Option<Duration>) -> nix::Result<bool> {
        let mut sources = [PollFd::new(other, PollFlags::POLLIN), PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let limit = limit.map_or(PollTimeout::NONE, |limit| {
            PollTimeout::try_from(limit.as_millis().max(1)).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut sources, limit) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        self.drain();
        Ok(sources[0].any().unwrap_or(true))
    }

    /// Consumes pending signals; returns whether one of them requests termination.
    fn drain(&self) -> bool {
        let mut requested = false;
        while let Ok(Some(signal)) = self.0.read_signal() {
            requested |= i32::try_from(signal.ssi_signo) != Ok(libc::SIGCHLD);
        }
        requested
    }
}

fn timeout(limit: Duration) -> PollTimeout {
    PollTimeout::try_from(limit.as_millis().max(1)).unwrap_or(PollTimeout::MAX)
}

/// With a subreaper, a process without children has no descendants.
pub(super) const fn state_without_children(_shell: Pid) -> TreeState {
    TreeState::Empty
}

/// Kills the process tree once: stops processes until a scan finds no new one, then kills them all.
///
/// A stopped process forks no more children, so the passes come to an end.
pub(super) fn kill_tree(_shell: Pid, cgroup: Option<&StepCgroup>) {
    if let Some(cgroup) = cgroup {
        cgroup.0.kill();
    }
    kill_descendants(&BTreeSet::new());
}

/// Stops, then kills, all children of this process and their descendants, except the given ones and theirs.
///
/// For processes with one thread that reap their own children.
fn kill_descendants(excluded: &BTreeSet<i32>) {
    let own = getpid().as_raw();
    let is_root = |entry: &ProcessEntry| entry.parent == own && !excluded.contains(&entry.pid);
    let mut stopped = StoppedProcesses::default();
    for _ in 0..STOP_PASSES {
        if stopped.stop_children(excluded) + stopped.stop_descendants(&is_root) == 0 {
            break;
        }
    }
    stopped.kill();
}

/// The processes stopped so far, with their start times. Own children need none: their ids are not reused before this
/// process reaps them.
#[derive(Default)]
struct StoppedProcesses(BTreeMap<i32, Option<u64>>);

impl StoppedProcesses {
    /// Stops the own children; returns how many were new.
    ///
    /// This is fast enough to catch a process that forks and exits in a loop and is reparented to this process in
    /// between.
    fn stop_children(&mut self, excluded: &BTreeSet<i32>) -> usize {
        let mut found = 0;
        for _ in 0..STOP_PASSES {
            let before = found;
            let children = process_table::own_children().unwrap_or_default();
            for pid in children.into_iter().filter(|pid| !excluded.contains(pid)) {
                if self.0.insert(pid, None).is_none() {
                    signal_process(pid, None, Signal::SIGSTOP);
                    found += 1;
                }
            }
            if found == before {
                break;
            }
        }
        found
    }

    /// Stops the root processes and the descendants of stopped ones, according to `/proc`; returns how many were new.
    ///
    /// Each process is stopped as soon as it is read; children that are younger than their parents are mostly read
    /// after them.
    fn stop_descendants(&mut self, is_root: &dyn Fn(&ProcessEntry) -> bool) -> usize {
        let mut found = 0;
        for entry in process_table::pids().filter_map(ProcessEntry::read) {
            let known = self.0.contains_key(&entry.pid);
            if known || entry.is_zombie || !(is_root(&entry) || self.0.contains_key(&entry.parent)) {
                continue;
            }
            signal_process(entry.pid, Some(entry.start_time), Signal::SIGSTOP);
            self.0.insert(entry.pid, Some(entry.start_time));
            found += 1;
        }
        found
    }

    /// Kills all stopped processes.
    fn kill(self) {
        for (pid, start_time) in self.0 {
            signal_process(pid, start_time, Signal::SIGKILL);
        }
    }
}

/// Signals a process, if it is still the one with this start time.
fn signal_process(pid: i32, start_time: Option<u64>, signal: Signal) {
    let Some(start_time) = start_time else {
        let _dead = kill(Pid::from_raw(pid), signal);
        return;
    };
    let (Some(process), Some(number)) =
        (rustix::process::Pid::from_raw(pid), rustix::process::Signal::from_named_raw(signal as i32))
    else {
        return;
    };
    match pidfd_open(process, PidfdFlags::empty()) {
        Ok(process) => {
            // Read after the pidfd was opened: if the start time matches, the pidfd refers to the intended process.
            if ProcessEntry::read(pid).is_some_and(|entry| entry.start_time == start_time) {
                let _dead = pidfd_send_signal(&process, number);
            }
        }
        // On kernels without pidfds only the process id is available.
        Err(rustix::io::Errno::NOSYS) => {
            let _dead = kill(Pid::from_raw(pid), signal);
        }
        Err(_) => {}
    }
}

/// How often `/proc` is read again when a process ended during the scan.
const ANCESTRY_ATTEMPTS: usize = 16;

/// Returns the ancestors of a process, according to `/proc`.
pub(in super::super) fn ancestry(pid: u32) -> Ancestry {
    for _ in 0..ANCESTRY_ATTEMPTS {
        let Some(entry) = i32::try_from(pid).ok().and_then(ProcessEntry::read).filter(|entry| !entry.is_zombie) else {
            return Ancestry::NoSuchProcess;
        };
        if let Some((ancestors, complete)) = ancestor_chain(entry) {
            return Ancestry::Known { ancestors, complete, cgroup_supervisor: cgroup::supervisor_of(pid) };
        }
    }
    Ancestry::NoSuchProcess
}

/// Returns a process and its ancestors, and whether the list is complete; `None` if one of them ended meanwhile,
/// because its children then have another parent.
fn ancestor_chain(mut entry: ProcessEntry) -> Option<(Vec<Ancestor>, bool)> {
    let mut ancestors = vec![Ancestor::try_from(entry).ok()?];
    while entry.parent > 0 {
        let Some(parent) = ProcessEntry::read(entry.parent) else {
            // The parent exists if the entry is unchanged, but the system hides it (`hidepid`).
            let still = ProcessEntry::read(entry.pid)?;
            return (still == entry).then_some((ancestors, false));
        };
        entry = parent;
        ancestors.push(Ancestor::try_from(entry).ok()?);
    }
    Some((ancestors, true))
}

impl TryFrom<ProcessEntry> for Ancestor {
    type Error = std::num::TryFromIntError;

    fn try_from(entry: ProcessEntry) -> Result<Self, Self::Error> {
        Ok(Self { pid: entry.pid.try_into()?, start_time: entry.start_time, alive: !entry.is_zombie })
    }
}
