//! The supervisor on Windows, where it is never started.

use std::path::Path;
use std::process::ExitCode;

use super::Ancestry;

/// Fails: there are no supervisors on Windows.
pub(super) fn main() -> ExitCode {
    ExitCode::FAILURE
}

/// Fails: there are no namespaces on Windows.
pub(super) fn inside() -> ExitCode {
    ExitCode::FAILURE
}

/// Fails: there is no holder on Windows.
pub(super) fn hold() -> ExitCode {
    ExitCode::FAILURE
}

/// The ancestors of a process are not read on Windows.
pub(super) const ANCESTRY_SUPPORTED: bool = false;

/// The mechanism that tracks processes whose parent has exited.
pub(super) const ORPHAN_LAYER: &str = "none";

/// States that no mechanism keeps track of a step's processes.
pub(super) const fn process_layers(_cgroups: bool) -> &'static str {
    "none: steps are not supported on Windows yet"
}

/// There are no cgroups on Windows.
pub(super) const fn find_cgroup_parent() -> Option<Box<Path>> {
    None
}

/// There is no cgroup to clean up.
pub(super) const fn clean_up_cgroup(_cgroups: &Path, _supervisor: u32) {}

/// The ancestors of a process are not read on Windows.
pub(super) const fn ancestry(_pid: u32) -> Ancestry {
    Ancestry::Unsupported
}
