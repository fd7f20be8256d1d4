//! Files for their owner alone, as Unix has them.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;

/// Lets nobody but the owner read what is created.
pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}
