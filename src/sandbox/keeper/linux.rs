//! Tracks the process tree of a step on Linux: subreaper, cgroup, and scans of `/proc`.
//!
//! No process is signalled by its id alone unless it is the supervisor's own child: other processes are identified by a
//! pidfd and their start time, so a reused process id never causes a signal to an unrelated process.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{ForkResult, Pid, fork as plain_fork, getpid, getppid};

use super::cgroup::{self, Cgroup};
use super::table::{self, Entry};
use super::{Told, Tree, is_closed};
use crate::sandbox::confine::Bounds;
use crate::sandbox::keeper::{Ancestor, Ancestry};

mod confined;
mod holder;
mod memory;
mod orphans;

pub(super) use confined::{Inside, start_inside};
pub(in super::super) use confined::{inside, seal};
pub(in super::super) use holder::main as hold;
pub(super) use memory::MemoryWatch;
pub(in super::super) use orphans::end_orphans;

/// Linux exposes the parents of a process.
pub(in super::super) const TELLS_DESCENT: bool = true;

/// The maximum number of passes that stop processes before the stopped ones are killed.
const PASSES: usize = 64;

/// Makes `clone3` place the child in a cgroup; the type of libc's constant is too small for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The mechanism that tracks processes whose parent has exited.
pub(in super::super) const HOLDER: &str = "subreaper";

/// Names the mechanisms that keep track of a step's processes.
pub(in super::super) const fn layers(cgroups: bool) -> &'static str {
    if cgroups { "cgroup and subreaper" } else { "subreaper" }
}

/// Finds the directory in which cgroups can be created.
pub(in super::super) fn find_cgroups() -> Option<Box<Path>> {
    cgroup::find()
}

/// Kills the processes that a killed supervisor left in its cgroup.
pub(in super::super) fn clean_after(cgroups: &Path, keeper: u32) {
    cgroup::clean_after(cgroups, keeper);
}

/// Prepares this process for supervising; a measure that fails does not prevent the others.
pub(super) fn settle() {
    // With another process name, `killall push` does not kill the process that cleans up.
    let _named = prctl::set_name(c"step-keeper");
    let _reaper = prctl::set_child_subreaper(true);
    close_the_rest();
}

/// Closes all descriptors except the three standard ones.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn close_the_rest() {
    // SAFETY: the supervisor has just started and owns only the first three descriptors.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
}

/// The cgroup of a step's processes.
pub(super) struct Room(Cgroup);

impl Room {
    /// Creates the cgroup in the directory `cgroups`, which is empty if cgroups are not used, and sets its limits.
    pub(super) fn open(cgroups: &CStr, bounds: Option<Bounds>) -> Option<Self> {
        let cgroup = Cgroup::make(cgroups, std::process::id())?;
        if let Some(bounds) = bounds {
            cgroup.bound(bounds);
        }
        Some(Self(cgroup))
    }

    /// Returns whether the OOM killer has killed processes in it.
    pub(super) fn ran_out_of_memory(&self) -> bool {
        self.0.ran_out_of_memory()
    }

    /// Removes the cgroup.
    pub(super) fn close(self) {
        self.0.remove();
    }
}

/// Forks, into the cgroup if the system allows it.
pub(super) fn fork(room: Option<&Room>) -> nix::Result<ForkResult> {
    if room.is_some()
        && let Ok(forked) = fork_into(room, 0)
    {
        return Ok(forked);
    }
    plain()
}

#[expect(unsafe_code, reason = "there is no safe fork")]
fn plain() -> nix::Result<ForkResult> {
    // SAFETY: the supervisor has one thread, so the child may do whatever the parent may.
    unsafe { plain_fork() }
}

/// Forks into the cgroup, if there is one, and into new namespaces.
///
/// Creating a process in a cgroup is cheap; moving it there can take ten milliseconds.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn fork_into(room: Option<&Room>, namespaces: i32) -> nix::Result<ForkResult> {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = u64::from(namespaces.cast_unsigned());
    arguments.exit_signal = libc::SIGCHLD as u64;
    if let Some(room) = room {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = room.0.directory.as_raw_fd() as u64;
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
pub(super) fn die_with_keeper(keeper: Pid) -> nix::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // A supervisor that was killed earlier sends no signal, and its children already have another parent.
    if getppid() == keeper { Ok(()) } else { Err(Errno::ESRCH) }
}

/// Exits a child that did not become the shell, without running the supervisor's exit handlers.
#[expect(unsafe_code, reason = "the call has no wrapper")]
pub(super) fn leave() -> ! {
    // SAFETY: `_exit` ends the process at once and runs no exit handler.
    unsafe { libc::_exit(127) }
}

/// The events that wake a supervisor: the control socket, a dead child, or a termination signal.
pub(super) struct Wakeup(SignalFd);

impl Wakeup {
    /// Blocks the signals and starts to receive them as events.
    pub(super) fn new() -> nix::Result<Self> {
        let wanted: SigSet =
            [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
        wanted.thread_block()?;
        SignalFd::with_flags(&wanted, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map(Self)
    }

    /// Waits until a child has died, a stop is requested, or `limit` has passed.
    pub(super) fn wait(&self, link: BorrowedFd<'_>, limit: Option<Duration>) -> nix::Result<Told> {
        let mut sources =
            [PollFd::new(link, PollFlags::POLLIN), PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        match poll(&mut sources, limit.map_or(PollTimeout::NONE, timeout)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let [link_woke, _] = sources.map(|source| source.any().unwrap_or(true));
        let asked = self.drain();
        Ok(if asked || (link_woke && is_closed(link)) { Told::End } else { Told::Nothing })
    }

    /// Waits until a child has died, for at most `limit`.
    pub(super) fn pause(&self, limit: Duration) {
        let _timed_out = poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], timeout(limit));
        self.drain();
    }

    /// Waits until a child has died or `other` is readable, for at most `limit`; returns whether `other` is readable.
    ///
    /// Termination signals are ignored: the caller ends when `other` is closed.
    fn wait_beside(&self, other: BorrowedFd<'_>, limit: Option<Duration>) -> nix::Result<bool> {
        let mut sources =
            [PollFd::new(other, PollFlags::POLLIN), PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
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
        let mut asked = false;
        while let Ok(Some(signal)) = self.0.read_signal() {
            asked |= i32::try_from(signal.ssi_signo) != Ok(libc::SIGCHLD);
        }
        asked
    }
}

fn timeout(limit: Duration) -> PollTimeout {
    PollTimeout::try_from(limit.as_millis().max(1)).unwrap_or(PollTimeout::MAX)
}

/// With a subreaper, a process without children has no descendants.
pub(super) const fn without_children(_shell: Pid) -> Tree {
    Tree::Empty
}

/// Kills the process tree once: stops processes until a scan finds no new one, then kills them all.
///
/// A stopped process forks no more children, so the passes come to an end.
pub(super) fn strike(_shell: Pid, room: Option<&Room>) {
    if let Some(room) = room {
        room.0.kill();
    }
    strike_children(&BTreeSet::new());
}

/// Stops, then kills, all children of this process and their descendants, except the given ones and theirs.
///
/// For processes with one thread that reap their own children.
fn strike_children(spared: &BTreeSet<i32>) {
    let own = getpid().as_raw();
    let is_root = |entry: &Entry| entry.parent == own && !spared.contains(&entry.pid);
    let mut caught = Caught::default();
    for _ in 0..PASSES {
        if caught.stop_children(spared) + caught.stop_descendants(&is_root) == 0 {
            break;
        }
    }
    caught.kill();
}

/// The processes stopped so far, with their start times. Own children need none: their ids are not reused before this
/// process reaps them.
#[derive(Default)]
struct Caught(BTreeMap<i32, Option<u64>>);

impl Caught {
    /// Stops the own children; returns how many were new.
    ///
    /// This is fast enough to catch a process that forks and exits in a loop and is reparented to this process in
    /// between.
    fn stop_children(&mut self, spared: &BTreeSet<i32>) -> usize {
        let mut found = 0;
        for _ in 0..PASSES {
            let before = found;
            let children = table::own_children().unwrap_or_default();
            for pid in children.into_iter().filter(|pid| !spared.contains(pid)) {
                if self.0.insert(pid, None).is_none() {
                    send(pid, None, Signal::SIGSTOP);
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
    fn stop_descendants(&mut self, is_root: &dyn Fn(&Entry) -> bool) -> usize {
        let mut found = 0;
        for entry in table::pids().filter_map(Entry::read) {
            let known = self.0.contains_key(&entry.pid);
            if known || entry.dead || !(is_root(&entry) || self.0.contains_key(&entry.parent)) {
                continue;
            }
            send(entry.pid, Some(entry.born), Signal::SIGSTOP);
            self.0.insert(entry.pid, Some(entry.born));
            found += 1;
        }
        found
    }

    /// Kills all stopped processes.
    fn kill(self) {
        for (pid, born) in self.0 {
            send(pid, born, Signal::SIGKILL);
        }
    }
}

/// Signals a process, if it is still the one with this start time.
fn send(pid: i32, born: Option<u64>, signal: Signal) {
    let Some(born) = born else {
        let _dead = kill(Pid::from_raw(pid), signal);
        return;
    };
    match pidfd_open(pid) {
        Ok(process) => {
            // Read after the pidfd was opened: if the start time matches, the pidfd refers to the intended process.
            if Entry::read(pid).is_some_and(|entry| entry.born == born) {
                pidfd_send(&process, signal);
            }
        }
        // On kernels without pidfds only the process id is available.
        Err(Errno::ENOSYS) => {
            let _dead = kill(Pid::from_raw(pid), signal);
        }
        Err(_) => {}
    }
}

#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn pidfd_open(pid: i32) -> nix::Result<OwnedFd> {
    // SAFETY: only integers are passed.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0_u32) })?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn pidfd_send(process: &OwnedFd, signal: Signal) {
    let nothing: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: the descriptor is open, and a null pointer is valid for the signal information.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal as i32, nothing, 0_u32) };
}

/// How often `/proc` is read again when a process ended during the scan.
const READINGS: usize = 16;

/// Returns the ancestors of a process, according to `/proc`.
pub(in super::super) fn ancestry(pid: u32) -> Ancestry {
    for _ in 0..READINGS {
        let Some(entry) = i32::try_from(pid).ok().and_then(Entry::read).filter(|entry| !entry.dead) else {
            return Ancestry::Gone;
        };
        if let Some((above, complete)) = above(entry) {
            return Ancestry::Known { above, complete, cgroup: cgroup::keeper_of(pid) };
        }
    }
    Ancestry::Gone
}

/// Returns a process and its ancestors, and whether the list is complete; `None` if one of them ended meanwhile,
/// because its children then have another parent.
fn above(mut entry: Entry) -> Option<(Vec<Ancestor>, bool)> {
    let mut above = vec![Ancestor::try_from(entry).ok()?];
    while entry.parent > 0 {
        let Some(parent) = Entry::read(entry.parent) else {
            // The parent exists if the entry is unchanged, but the system hides it (`hidepid`).
            let still = Entry::read(entry.pid)?;
            return (still == entry).then_some((above, false));
        };
        entry = parent;
        above.push(Ancestor::try_from(entry).ok()?);
    }
    Some((above, true))
}

impl TryFrom<Entry> for Ancestor {
    type Error = std::num::TryFromIntError;

    fn try_from(entry: Entry) -> Result<Self, Self::Error> {
        Ok(Self { pid: entry.pid.try_into()?, born: entry.born, alive: !entry.dead })
    }
}
