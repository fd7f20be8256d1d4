//! Owner-only files, on Unix.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;

/// Creates files with mode 0600.
pub(super) fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}
