//! Owner-only files, on Windows.

use std::fs::OpenOptions;

/// Changes nothing: files in a user's profile belong to that user.
pub(super) const fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}
