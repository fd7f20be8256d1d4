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

use super::{InitReports, TreeState, WaitOutcome, is_closed};
use crate::sandbox::confinement::{ConfinementSpec, ResourceLimits};
use crate::sandbox::supervisor::Ancestry;
use crate::sandbox::supervisor_protocol::{ActiveLayers, ConfinementFailure, FailureCause, Report, StepRequest};

/// How often a supervisor polls for dead children, which cause no event here.
const POLL_MILLIS: u16 = 20;

/// The mechanism that tracks processes whose parent has exited.
pub(in super::super) const ORPHAN_LAYER: &str = "process group";

/// Names the mechanisms that keep track of a step's processes.
pub(in super::super) const fn process_layers(_cgroups: bool) -> &'static str {
    "process group"
}

/// There are no cgroups.
pub(in super::super) const fn find_cgroup_parent() -> Option<Box<Path>> {
    None
}

/// There is no cgroup to clean up.
pub(in super::super) const fn clean_up_cgroup(_cgroups: &Path, _supervisor: u32) {}

/// No setup is needed.
pub(super) const fn prepare_supervisor() {}

/// The cgroup of a step's processes; never constructed.
pub(super) struct StepCgroup(Infallible);

impl StepCgroup {
    pub(super) const fn create(_cgroups: &CStr, _limits: Option<ResourceLimits>) -> Option<Self> {
        None
    }

    pub(super) fn ran_out_of_memory(&self) -> bool {
        match self.0 {}
    }

    pub(super) fn remove(self) {
        match self.0 {}
    }
}

/// Does not monitor memory: no confinement here limits it.
pub(super) struct MemoryMonitor;

impl MemoryMonitor {
    pub(super) const fn new(_limits: ResourceLimits) -> Self {
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
pub(super) struct NamespacedStep(Infallible);

impl NamespacedStep {
    pub(super) fn finish(&self, _outside: Report) -> InitReports {
        match self.0 {}
    }
}

const UNSUPPORTED: ConfinementFailure =
    ConfinementFailure { cause: FailureCause::Namespaces, errno: Errno::ENOSYS as i32 };

/// Fails: there are no namespaces.
pub(super) fn start_in_namespaces(
    _request: &StepRequest,
    _body: &[u8],
    _confinement: &ConfinementSpec,
    _cgroup: Option<&StepCgroup>,
) -> Result<(Pid, NamespacedStep), Report> {
    Err(Report::ConfinementFailed(UNSUPPORTED))
}

/// Fails: there is neither Landlock nor seccomp.
pub(in super::super) const fn restrict_self(
    _confinement: &ConfinementSpec,
) -> Result<ActiveLayers, ConfinementFailure> {
    Err(UNSUPPORTED)
}

/// The ancestors of a process are not read on these systems.
pub(in super::super) const ANCESTRY_SUPPORTED: bool = false;

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
pub(super) fn fork(_cgroup: Option<&StepCgroup>) -> nix::Result<ForkResult> {
    // SAFETY: the supervisor has one thread, so the child may do whatever the parent may.
    unsafe { plain_fork() }
}

/// Does nothing: these systems cannot make the shell die with its supervisor.
pub(super) const fn die_with_supervisor(_supervisor: Pid) -> nix::Result<()> {
    Ok(())
}

/// Exits a child that did not become the shell, without running the supervisor's exit handlers.
#[expect(unsafe_code, reason = "the call has no wrapper")]
pub(super) fn exit_child() -> ! {
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
    pub(super) fn wait(&self, socket: BorrowedFd<'_>, _limit: Option<Duration>) -> nix::Result<WaitOutcome> {
        match poll(&mut [PollFd::new(socket, PollFlags::POLLIN)], PollTimeout::from(POLL_MILLIS)) {
            Ok(1..) if is_closed(socket) => Ok(WaitOutcome::Stop),
            Ok(_) | Err(Errno::EINTR) => Ok(WaitOutcome::Continue),
            Err(errno) => Err(errno),
        }
    }

    /// Sleeps shortly, for at most `limit`.
    pub(super) fn pause(&self, limit: Duration) {
        std::thread::sleep(limit.min(Duration::from_millis(1)));
    }
}

/// Without children, reparented processes may still be in the shell's process group.
pub(super) fn state_without_children(shell: Pid) -> TreeState {
    if killpg(shell, None) == Err(Errno::ESRCH) { TreeState::Empty } else { TreeState::Alive }
}

/// Kills the process group of the step.
pub(super) fn kill_tree(shell: Pid, _cgroup: Option<&StepCgroup>) {
    let _gone = killpg(shell, Signal::SIGKILL);
}

/// The ancestors of a process are not read on these systems.
pub(in super::super) const fn ancestry(_pid: u32) -> Ancestry {
    Ancestry::Unsupported
}
