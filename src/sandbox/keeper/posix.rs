//! How other Unix systems hold a tree together: the process group of the step.
//!
//! A process that leaves the group with `setsid` is lost from sight there; no more is promised.

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

/// How often a keeper looks for dead children, which wake nobody here.
const LOOK_MILLIS: u16 = 20;

/// What holds on to processes that lose their parent.
pub(in super::super) const HOLDER: &str = "process group";

/// Names what holds a step's processes together.
pub(in super::super) const fn layers(_cgroups: bool) -> &'static str {
    "process group"
}

/// There are no cgroups.
pub(in super::super) const fn find_cgroups() -> Option<Box<Path>> {
    None
}

/// There is nothing to clean.
pub(in super::super) const fn clean_after(_cgroups: &Path, _keeper: u32) {}

/// Nothing has to be set up.
pub(super) const fn settle() {}

/// Where a step's processes are put; there is no such place.
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

/// Nobody watches memory here: there is no sandbox that bounds it.
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

/// The inside of walls, which there is not.
pub(super) struct Inside(Infallible);

impl Inside {
    pub(super) fn end(&self, _outside: Report) -> Said {
        match self.0 {}
    }
}

const NO_WALLS: Obstacle = Obstacle { part: Part::Namespaces, errno: Errno::ENOSYS as i32 };

/// Refuses: there are no namespaces.
pub(super) fn start_inside(
    _order: &Order,
    _body: &[u8],
    _walls: &Walls,
    _room: Option<&Room>,
) -> Result<(Pid, Inside), Report> {
    Err(Report::NoWalls(NO_WALLS))
}

/// Refuses: there are no rules.
pub(in super::super) const fn seal(_walls: &Walls) -> Result<Standing, Obstacle> {
    Err(NO_WALLS)
}

/// This system does not say who descends from whom.
pub(in super::super) const TELLS_DESCENT: bool = false;

/// Refuses: supervisors are started by the daemon itself.
pub(in super::super) fn hold() -> ExitCode {
    ExitCode::FAILURE
}

/// Refuses: nothing is ever inside of walls.
pub(in super::super) fn inside() -> ExitCode {
    ExitCode::FAILURE
}

/// Forks.
#[expect(unsafe_code, reason = "there is no safe fork")]
pub(super) fn fork(_room: Option<&Room>) -> nix::Result<ForkResult> {
    // SAFETY: the keeper has one thread, so the child may do whatever the parent may.
    unsafe { plain_fork() }
}

/// A shell cannot be made to die with its keeper here.
pub(super) const fn die_with_keeper(_keeper: Pid) -> nix::Result<()> {
    Ok(())
}

/// Ends a child that did not become the shell, without the keeper's own last acts.
#[expect(unsafe_code, reason = "the call has no wrapper")]
pub(super) fn leave() -> ! {
    // SAFETY: ends the process at once, running no code of ours.
    unsafe { libc::_exit(127) }
}

/// What wakes a keeper: the socket, or the time to look again.
pub(super) struct Wakeup;

impl Wakeup {
    pub(super) const fn new() -> nix::Result<Self> {
        Ok(Self)
    }

    /// Waits until everything is to be ended, or it is time to look for dead children.
    pub(super) fn wait(&self, link: BorrowedFd<'_>, _limit: Option<Duration>) -> nix::Result<Told> {
        match poll(&mut [PollFd::new(link, PollFlags::POLLIN)], PollTimeout::from(LOOK_MILLIS)) {
            Ok(1..) if is_closed(link) => Ok(Told::End),
            Ok(_) | Err(Errno::EINTR) => Ok(Told::Nothing),
            Err(errno) => Err(errno),
        }
    }

    /// Waits a little, for at most `limit`.
    pub(super) fn pause(&self, limit: Duration) {
        std::thread::sleep(limit.min(Duration::from_millis(1)));
    }
}

/// Without children, those who left the shell behind may still be in its group.
pub(super) fn without_children(shell: Pid) -> Tree {
    if killpg(shell, None) == Err(Errno::ESRCH) { Tree::Empty } else { Tree::Alive }
}

/// Kills the step's group.
pub(super) fn strike(shell: Pid, _room: Option<&Room>) {
    let _gone = killpg(shell, Signal::SIGKILL);
}

/// The system does not say who is above whom in a way that is used here.
pub(in super::super) const fn ancestry(_pid: u32) -> Ancestry {
    Ancestry::NotKept
}
