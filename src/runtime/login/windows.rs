//! The environment of the owner on Windows: the daemon's own, as all processes of the user share it.

use std::ffi::OsString;
use std::path::Path;

/// Returns the variables of the daemon.
#[expect(clippy::unused_async, reason = "on Unix a shell is queried")]
pub(super) async fn query_shell(_home: &Path) -> Result<Vec<(OsString, OsString)>, String> {
    Ok(std::env::vars_os().collect())
}
