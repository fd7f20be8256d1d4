//! How Linux holds a tree together: subreaper, cgroup, and a sweep through `/proc`.
//!
//! Nobody is signalled by number alone: a process that is not the keeper's own child is named by a descriptor and
//! its time of birth, so that an id given away in the meantime hurts no stranger.

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

/// This system says who descends from whom.
pub(in super::super) const TELLS_DESCENT: bool = true;

/// How many passes a sweep makes before it kills what it has.
const PASSES: usize = 64;

/// Has `clone3` put the child into a cgroup; the constant of libc is of a type too small for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What holds on to processes that lose their parent.
pub(in super::super) const HOLDER: &str = "subreaper";

/// Names what holds a step's processes together.
pub(in super::super) const fn layers(cgroups: bool) -> &'static str {
    if cgroups { "cgroup and subreaper" } else { "subreaper" }
}

/// Finds where cgroups can be made.
pub(in super::super) fn find_cgroups() -> Option<Box<Path>> {
    cgroup::find()
}

/// Ends what a killed keeper left in its cgroup.
pub(in super::super) fn clean_after(cgroups: &Path, keeper: u32) {
    cgroup::clean_after(cgroups, keeper);
}

/// Makes this process fit to be a keeper; each measure that fails leaves the others standing.
pub(super) fn settle() {
    // Whoever ends all processes called `push` is not to end the one that tidies up.
    let _named = prctl::set_name(c"step-keeper");
    let _reaper = prctl::set_child_subreaper(true);
    close_the_rest();
}

/// Closes whatever came in beside the three standard descriptors.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn close_the_rest() {
    // SAFETY: the keeper has just begun and owns no descriptor but the first three.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
}

/// Where a step's processes are put.
pub(super) struct Room(Cgroup);

impl Room {
    /// Makes the room under `cgroups`, which is empty where none can be made, and bounds what is used in it.
    pub(super) fn open(cgroups: &CStr, bounds: Option<Bounds>) -> Option<Self> {
        let cgroup = Cgroup::make(cgroups, std::process::id())?;
        if let Some(bounds) = bounds {
            cgroup.bound(bounds);
        }
        Some(Self(cgroup))
    }

    /// Tells whether the system has ended processes in it because they used too much memory.
    pub(super) fn ran_out_of_memory(&self) -> bool {
        self.0.ran_out_of_memory()
    }

    /// Removes it.
    pub(super) fn close(self) {
        self.0.remove();
    }
}

/// Forks, into the room if the system allows it.
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
    // SAFETY: the keeper has one thread, so the child may do whatever the parent may.
    unsafe { plain_fork() }
}

/// Forks into the room, if there is one, and into namespaces.
///
/// To be born in a cgroup is cheap; to be moved there can take ten milliseconds.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn fork_into(room: Option<&Room>, namespaces: i32) -> nix::Result<ForkResult> {
    // SAFETY: all zeroes is a valid value of this structure of numbers.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = u64::from(namespaces.cast_unsigned());
    arguments.exit_signal = libc::SIGCHLD as u64;
    if let Some(room) = room {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = room.0.directory.as_raw_fd() as u64;
    }
    // SAFETY: without a stack and shared memory this is a fork, and the keeper has one thread; the structure
    // outlives the call and its size is given.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size_of_val(&arguments)) };
    match Errno::result(pid)? {
        0 => Ok(ForkResult::Child),
        child => Ok(ForkResult::Parent { child: Pid::from_raw(child as libc::pid_t) }),
    }
}

/// Has the shell die with its keeper, should somebody kill that.
pub(super) fn die_with_keeper(keeper: Pid) -> nix::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // A keeper killed just before sends no signal any more, and its children belong to somebody else.
    if getppid() == keeper { Ok(()) } else { Err(Errno::ESRCH) }
}

/// Ends a child that did not become the shell, without the keeper's own last acts.
#[expect(unsafe_code, reason = "the call has no wrapper")]
pub(super) fn leave() -> ! {
    // SAFETY: ends the process at once, running no code of ours.
    unsafe { libc::_exit(127) }
}

/// What wakes a keeper: the socket, a dead child, or a request to end.
pub(super) struct Wakeup(SignalFd);

impl Wakeup {
    /// Begins to listen; from here on the signals do nothing by themselves.
    pub(super) fn new() -> nix::Result<Self> {
        let wanted: SigSet =
            [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
        wanted.thread_block()?;
        SignalFd::with_flags(&wanted, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map(Self)
    }

    /// Waits until a child died, everything is to be ended, or `limit` is over.
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

    /// Waits until a child died, for at most `limit`.
    pub(super) fn pause(&self, limit: Duration) {
        let _timed_out = poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], timeout(limit));
        self.drain();
    }

    /// Waits until a child died or `other` can be read, for at most `limit`; whether `other` can be read.
    ///
    /// A request to end is not heard: whoever waits so ends when `other` does.
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

    /// Takes the signals that have come; whether one asked for the end.
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

/// With a subreaper, to have no child is to have no descendant.
pub(super) const fn without_children(_shell: Pid) -> Tree {
    Tree::Empty
}

/// Goes through the tree once: stops whoever is found until nobody new is, then kills them all.
///
/// A stopped process has no more children and lets none of them go, so the passes come to an end.
pub(super) fn strike(_shell: Pid, room: Option<&Room>) {
    if let Some(room) = room {
        room.0.kill();
    }
    strike_children(&BTreeSet::new());
}

/// Stops, then kills, all children of this process and their descendants, except those who are to be spared with theirs.
///
/// It is for processes with one thread, which reap their children themselves.
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

/// The processes stopped so far, with their time of birth; own children need none, for nobody else reaps them.
#[derive(Default)]
struct Caught(BTreeMap<i32, Option<u64>>);

impl Caught {
    /// Stops the own children, and says how many were new.
    ///
    /// This is quick enough to catch one that forks and leaves over and over, and becomes our child in between.
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

    /// Stops the roots and whoever descends from one caught, according to the system's table, and says how many were new.
    ///
    /// Each is stopped as soon as it is read; children younger than their parents are met after them, mostly.
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

    /// Kills everybody who was caught.
    fn kill(self) {
        for (pid, born) in self.0 {
            send(pid, born, Signal::SIGKILL);
        }
    }
}

/// Signals a process, if it is still the one that was meant.
fn send(pid: i32, born: Option<u64>, signal: Signal) {
    let Some(born) = born else {
        let _dead = kill(Pid::from_raw(pid), signal);
        return;
    };
    match pidfd_open(pid) {
        Ok(process) => {
            // Read after it was opened: if the birth is right, the descriptor is.
            if Entry::read(pid).is_some_and(|entry| entry.born == born) {
                pidfd_send(&process, signal);
            }
        }
        // Systems older than the call; the id alone has to do.
        Err(Errno::ENOSYS) => {
            let _dead = kill(Pid::from_raw(pid), signal);
        }
        Err(_) => {}
    }
}

#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn pidfd_open(pid: i32) -> nix::Result<OwnedFd> {
    // SAFETY: two numbers are passed.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0_u32) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn pidfd_send(process: &OwnedFd, signal: Signal) {
    let nothing: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: the descriptor is open, and no information is a valid one.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal as i32, nothing, 0_u32) };
}

/// How often the table is read again when a process ended while it was read.
const READINGS: usize = 16;

/// Says what is above a process, by the system's table.
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

/// A process and its parents, and whether they are all; `None` when one ended meanwhile, whose children then have another
/// parent.
fn above(mut entry: Entry) -> Option<(Vec<Ancestor>, bool)> {
    let mut above = vec![Ancestor::try_from(entry).ok()?];
    while entry.parent > 0 {
        let Some(parent) = Entry::read(entry.parent) else {
            // One that is still the parent is there, and hidden (`hidepid`).
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
