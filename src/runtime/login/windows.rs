//! The environment of the owner on Windows: that of every process of theirs, the daemon included.

use std::ffi::OsString;
use std::path::Path;

/// Returns the variables of the daemon itself.
#[expect(clippy::unused_async, reason = "elsewhere a shell is asked")]
pub(super) async fn ask_shell(_home: &Path) -> Result<Vec<(OsString, OsString)>, String> {
    Ok(std::env::vars_os().collect())
}
