//! The supervisor: this program, executed once more to own the processes of one step.
//!
//! It is started as `push __keep`, reads its request from standard input, starts the shell, and kills every process of
//! the step when that input closes, because the run was stopped or the daemon died. It is synchronous, has one thread,
//! no runtime and no configuration, and sends nothing but reports of five bytes.
//!
//! On Linux it is the subreaper of its descendants: a process that loses its parent becomes its child, also after
//! `setsid` and double forks, and `waitpid` reporting no child proves that no process remains. Where a cgroup can be
//! created, the step is started in it, which also kills processes that the supervisor may not signal.
//!
//! On Linux all supervisors are children of one holder, `push __hold`, which is a subreaper as well: the processes of a
//! killed supervisor are reparented to the holder, which kills them before it reports the supervisor's end.

use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;

use super::removal;

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

/// The argument that runs this program as a supervisor.
pub const ARGUMENT: &str = "__keep";

/// The argument that runs this program as the holder of all supervisors of a daemon.
pub const HOLDER_ARGUMENT: &str = "__hold";

/// The second argument that runs this program as the init process of the namespaces that bubblewrap has created.
pub(super) const INIT_ARGUMENT: &str = "inside";

/// Runs a supervisor or a holder if the arguments request one; to be called before anything else is set up.
pub fn main_if_requested() -> Option<ExitCode> {
    let argument = std::env::args_os().nth(1)?;
    if argument == ARGUMENT {
        Some(main())
    } else if argument == HOLDER_ARGUMENT {
        Some(os::hold())
    } else {
        None
    }
}

fn main() -> ExitCode {
    match std::env::args_os().nth(2) {
        Some(argument) if argument == INIT_ARGUMENT => os::inside(),
        Some(argument) if argument == removal::ARGUMENT => removal::main(),
        Some(_) | None => os::main(),
    }
}

/// Names the mechanisms that keep track of a step's processes on this machine.
pub fn process_layers() -> &'static str {
    os::process_layers(cgroup_parent().is_some())
}

/// Names the mechanism that tracks processes whose parent has exited.
pub(super) const fn orphan_layer() -> &'static str {
    os::ORPHAN_LAYER
}

/// Returns the directory in which cgroups of steps can be created, if there is one.
///
/// It is searched for once, and leftover cgroups of killed supervisors are then removed.
pub(super) fn cgroup_parent() -> Option<&'static Path> {
    static CGROUP_PARENT: OnceLock<Option<Box<Path>>> = OnceLock::new();
    CGROUP_PARENT.get_or_init(os::find_cgroup_parent).as_deref()
}

/// Kills the processes that a killed supervisor left in its cgroup, if it had one.
pub(super) fn clean_up_cgroup(supervisor: u32) {
    if let Some(parent) = cgroup_parent() {
        os::clean_up_cgroup(parent, supervisor);
    }
}

/// Kills the processes that this process has adopted as a subreaper: its children in a session other than its own, with
/// their descendants, except the given ones. Returns whether any remains.
#[cfg(target_os = "linux")]
pub(super) fn kill_orphans(excluded: &std::collections::BTreeSet<u32>) -> bool {
    os::kill_orphans(excluded)
}

/// Whether this system exposes the ancestors of a process.
pub(super) const ANCESTRY_SUPPORTED: bool = os::ANCESTRY_SUPPORTED;

/// A process in a chain of ancestors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "only Linux reads the ancestors of a process")]
pub(super) struct Ancestor {
    /// Its process id.
    pub(super) pid: u32,
    /// When it was started: together with the process id it identifies a process uniquely.
    pub(super) start_time: u64,
    /// Whether it is running.
    pub(super) alive: bool,
}

/// The ancestors of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(dead_code, reason = "only Linux reads the ancestors of a process")]
pub(super) enum Ancestry {
    /// There is no such process.
    NoSuchProcess,
    /// This system does not expose them.
    Unsupported,
    /// The process, its ancestors up to the first process, and the supervisor that its cgroup is named after.
    Known {
        /// The process itself first.
        ancestors: Vec<Ancestor>,
        /// Whether the list is complete; the system may hide some processes.
        complete: bool,
        /// The supervisor of its cgroup.
        cgroup_supervisor: Option<u32>,
    },
}

/// Returns the ancestors of a process.
pub(super) fn ancestry(pid: u32) -> Ancestry {
    os::ancestry(pid)
}
