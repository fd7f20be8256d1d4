//! The keeper's place on Windows: it is never started there, and refuses.

use std::path::Path;
use std::process::ExitCode;

use super::Ancestry;

/// Refuses.
pub(super) fn main() -> ExitCode {
    ExitCode::FAILURE
}

/// Refuses.
pub(super) fn inside() -> ExitCode {
    ExitCode::FAILURE
}

/// Refuses.
pub(super) fn hold() -> ExitCode {
    ExitCode::FAILURE
}

/// This system does not say who descends from whom.
pub(super) const TELLS_DESCENT: bool = false;

/// What holds on to processes that lose their parent.
pub(super) const HOLDER: &str = "none";

/// Says that nothing holds a step together.
pub(super) const fn layers(_cgroups: bool) -> &'static str {
    "none: steps are not supported on Windows yet"
}

/// There are no cgroups.
pub(super) const fn find_cgroups() -> Option<Box<Path>> {
    None
}

/// There is nothing to clean.
pub(super) const fn clean_after(_cgroups: &Path, _keeper: u32) {}

/// Nobody is above anybody.
pub(super) const fn ancestry(_pid: u32) -> Ancestry {
    Ancestry::NotKept
}
