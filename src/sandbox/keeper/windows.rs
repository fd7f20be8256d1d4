//! The keeper's place on Windows: it is never started there, and refuses.

use std::path::Path;
use std::process::ExitCode;

/// Refuses.
pub(super) fn main() -> ExitCode {
    ExitCode::FAILURE
}

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
