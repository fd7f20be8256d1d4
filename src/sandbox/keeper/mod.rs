//! The keeper: this program, executed once more to own the processes of one step.
//!
//! It is started as `push __keep`, reads its order from standard input, starts the shell, and ends everything the
//! shell brought forth when that input closes: because the run was stopped, or because the daemon died. It is
//! synchronous, has one thread, no runtime and no configuration, and says nothing but reports of five bytes.
//!
//! How it holds on to a tree, on Linux: it is the subreaper of all below it, so whoever loses its parent becomes its
//! child, `setsid` and double forks included, and `waitpid` saying that it has no child is the proof that nothing is
//! left. Where a cgroup can be made, the step is born into one, which also ends what the keeper may not signal.
//!
//! On Linux all keepers are children of one holder, `push __hold`, a subreaper as well: what a killed keeper leaves behind
//! becomes the holder's, which ends it before the keeper's end is reported.

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

/// The argument that makes this program a keeper.
pub const ARGUMENT: &str = "__keep";

/// The argument that makes this program the holder of all keepers of a daemon.
pub const HOLD_ARGUMENT: &str = "__hold";

/// The argument after it that makes this program the first process behind the walls that bubblewrap has built.
pub(super) const INSIDE: &str = "inside";

/// Is a keeper or a holder where the arguments say so, until its end; to be called before anything else is set up.
pub fn main_if_asked() -> Option<ExitCode> {
    let argument = std::env::args_os().nth(1)?;
    if argument == ARGUMENT {
        Some(main())
    } else if argument == HOLD_ARGUMENT {
        Some(os::hold())
    } else {
        None
    }
}

fn main() -> ExitCode {
    match std::env::args_os().nth(2) {
        Some(argument) if argument == INSIDE => os::inside(),
        Some(argument) if argument == removal::ARGUMENT => removal::main(),
        Some(_) | None => os::main(),
    }
}

/// Names what holds a step's processes together on this machine.
pub fn layers() -> &'static str {
    os::layers(cgroups().is_some())
}

/// Names what holds on to processes that lose their parent.
pub(super) const fn holder() -> &'static str {
    os::HOLDER
}

/// The directory under which cgroups of steps can be made, if there is one.
///
/// It is looked for once; what keepers that were killed have left there is then removed.
pub(super) fn cgroups() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<Box<Path>>> = OnceLock::new();
    FOUND.get_or_init(os::find_cgroups).as_deref()
}

/// Ends what a keeper that was killed has left in its cgroup, where it had one.
pub(super) fn clean_after(keeper: u32) {
    if let Some(cgroups) = cgroups() {
        os::clean_after(cgroups, keeper);
    }
}

/// Ends the processes that this one has inherited as a subreaper: its children in a session other than its own, with their
/// descendants, except those spared; returns whether any is left.
#[cfg(target_os = "linux")]
pub(super) fn end_orphans(spared: &std::collections::BTreeSet<u32>) -> bool {
    os::end_orphans(spared)
}

/// Whether this system says who descends from whom.
pub(super) const TELLS_DESCENT: bool = os::TELLS_DESCENT;

/// A process above another, or itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "one system tells, the others say that they do not")]
pub(super) struct Ancestor {
    /// Its id.
    pub(super) pid: u32,
    /// When it was born: with the id, it names a process for good.
    pub(super) born: u64,
    /// Whether it has not ended.
    pub(super) alive: bool,
}

/// What is above a process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(dead_code, reason = "one system tells, the others say that they do not")]
pub(super) enum Ancestry {
    /// There is no such process.
    Gone,
    /// This system does not tell.
    NotKept,
    /// It, its parents up to the first process, and the keeper by whose id its cgroup is called.
    Known {
        /// Itself first.
        above: Vec<Ancestor>,
        /// Whether they are all; the system may hide some.
        complete: bool,
        /// The keeper of its cgroup.
        cgroup: Option<u32>,
    },
}

/// Says what is above a process.
pub(super) fn ancestry(pid: u32) -> Ancestry {
    os::ancestry(pid)
}
