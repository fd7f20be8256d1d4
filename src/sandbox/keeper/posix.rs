//! Tracks the process tree of a step on other Unix systems: by its process group.
//!
//! A process that leaves the group with `setsid` is not tracked; more is not promised on these systems.

use std::convert::Infallible;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{ForkResult, Pid, fork as plain_fork};

use super::{Said, Told, Tree, is_closed};
use crate::sandbox::confine::{Bounds, Walls};
use crate::sandbox::keeper::Ancestry;
use crate::sandbox::message::{Obstacle, Order, Part, Report, Standing};

/// How often a supervisor polls for dead children, which cause no event here.
const LOOK_MILLIS: u16 = 20;

/// The mechanism that tracks processes whose parent has exited.
pub(in super::super) const HOLDER: &str = "process group";

/// Names the mechanisms that keep track of a step's processes.
pub(in super::super) const fn layers(_cgroups: bool) -> &'static str {
    "process group"
}

/// There are no cgroups.
pub(in super::super) const fn find_cgroups() -> Option<Box<Path>> {
    None
}

/// There is no cgroup to clean up.
pub(in super::super) const fn clean_after(_cgroups: &Path, _keeper: u32) {}

/// No setup is needed.
pub(super) const fn settle() {}

/// The cgroup of a step's processes; never constructed.
pub(super) struct Room(Infallible);

impl Room {
    pub(super) const fn open(_cgroups: &CStr, _bounds: Option<Bounds>) -> Option<Self> {
        None
    }

    pub(super) fn ran_out_of_memory(&self) -> bool {
        match self.0 {}
    }

    pub(super) fn close(self) {
        match self.0 {}
    }
}

/// Does not monitor memory: no confinement here limits it.
pub(super) struct MemoryWatch;

impl MemoryWatch {
    pub(super) const fn new(_bounds: Bounds) -> Self {
        Self
    }

    pub(super) const fn due_in(&self) -> Duration {
        Duration::MAX
    }

    pub(super) const fn is_exceeded(&mut self) -> bool {
        false
    }
}

/// A step in namespaces; never constructed.
pub(super) struct Inside(Infallible);

impl Inside {
    pub(super) fn end(&self, _outside: Report) -> Said {
        match self.0 {}
    }
}

const NO_WALLS: Obstacle = Obstacle { part: Part::Namespaces, errno: Errno::ENOSYS as i32 };

/// Fails: there are no namespaces.
pub(super) fn start_inside(
    _order: &Order,
    _body: &[u8],
    _walls: &Walls,
    _room: Option<&Room>,
) -> Result<(Pid, Inside), Report> {
    Err(Report::NoWalls(NO_WALLS))
}

/// Fails: there is neither Landlock nor seccomp.
pub(in super::super) const fn seal(_walls: &Walls) -> Result<Standing, Obstacle> {
    Err(NO_WALLS)
}

/// The ancestors of a process are not read on these systems.
pub(in super::super) const TELLS_DESCENT: bool = false;

/// Fails: the daemon starts supervisors itself.
pub(in super::super) fn hold() -> ExitCode {
    ExitCode::FAILURE
}

/// Fails: no step runs in namespaces.
pub(in super::super) fn inside() -> ExitCode {
    ExitCode::FAILURE
}

/// Forks.
#[expect(unsafe_code, reason = "there is no safe fork")]
pub(super) fn fork(_room: Option<&Room>) -> nix::Result<ForkResult> {
    // SAFETY: the supervisor has one thread, so the child may do whatever the parent may.
    unsafe { plain_fork() }
}

/// Does nothing: these systems cannot make the shell die with its supervisor.
pub(super) const fn die_with_keeper(_keeper: Pid) -> nix::Result<()> {
    Ok(())
}

/// Exits a child that did not become the shell, without running the supervisor's exit handlers.
#[expect(unsafe_code, reason = "the call has no wrapper")]
pub(super) fn leave() -> ! {
    // SAFETY: `_exit` ends the process at once and runs no exit handler.
    unsafe { libc::_exit(127) }
}

/// The events that wake a supervisor: the control socket, or the poll interval.
pub(super) struct Wakeup;

impl Wakeup {
    pub(super) const fn new() -> nix::Result<Self> {
        Ok(Self)
    }

    /// Waits until a stop is requested or the poll interval has passed.
    pub(super) fn wait(&self, link: BorrowedFd<'_>, _limit: Option<Duration>) -> nix::Result<Told> {
        match poll(&mut [PollFd::new(link, PollFlags::POLLIN)], PollTimeout::from(LOOK_MILLIS)) {
            Ok(1..) if is_closed(link) => Ok(Told::End),
            Ok(_) | Err(Errno::EINTR) => Ok(Told::Nothing),
            Err(errno) => Err(errno),
        }
    }

    /// Sleeps shortly, for at most `limit`.
    pub(super) fn pause(&self, limit: Duration) {
        std::thread::sleep(limit.min(Duration::from_millis(1)));
    }
}

/// Without children, reparented processes may still be in the shell's process group.
pub(super) fn without_children(shell: Pid) -> Tree {
    if killpg(shell, None) == Err(Errno::ESRCH) { Tree::Empty } else { Tree::Alive }
}

/// Kills the process group of the step.
pub(super) fn strike(shell: Pid, _room: Option<&Room>) {
    let _gone = killpg(shell, Signal::SIGKILL);
}

/// The ancestors of a process are not read on these systems.
pub(in super::super) const fn ancestry(_pid: u32) -> Ancestry {
    Ancestry::NotKept
}
