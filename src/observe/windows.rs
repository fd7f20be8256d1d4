//! Files for their owner alone, as Windows has them.

use std::fs::OpenOptions;

/// Changes nothing: what lies in a profile belongs to its owner already.
pub(super) const fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}
