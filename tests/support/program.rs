//! Copies of programs that a test executes.

use std::path::Path;
use std::process::Command;

/// Copies a program, in another process: a process that another test forks at that time would inherit the descriptor
/// that the copy is written with, and no program that is open for writing can be executed.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().expect("cp starts");
    assert!(copied.success(), "{} was not copied", from.display());
}
