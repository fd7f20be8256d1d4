//! The secrets of a session: whatever it keeps or shows hides them.
//!
//! Some come with a client's environment, some are found when a turn looks for its key. What was one once stays one.

use std::sync::{Arc, Mutex, PoisonError};

use crate::redact::{self, Redactor};

/// What a session hides; clones share it.
#[derive(Clone, Default)]
pub(in crate::runtime::lane) struct Hidden(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    redactor: Redactor,
    /// The values that the redactor knows, the newest last.
    secrets: Vec<String>,
}

impl Hidden {
    /// Hides these from now on.
    pub(in crate::runtime::lane) fn learn(&self, brought: Vec<String>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.secrets.retain(|secret| !brought.contains(secret));
        known.secrets.extend(brought);
        let surplus = known.secrets.len().saturating_sub(SECRETS);
        known.secrets.drain(..surplus);
        known.redactor = Redactor::new(known.secrets.iter().map(String::as_str));
    }

    /// Tells whether a secret is hidden already.
    pub(in crate::runtime::lane) fn hides(&self, secret: &str) -> bool {
        self.redactor().text(secret) == redact::MARKER
    }

    /// Returns what makes text safe.
    pub(in crate::runtime::lane) fn redactor(&self) -> Redactor {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).redactor.clone()
    }
}

/// How many secret values are known at once; an environment has a handful.
const SECRETS: usize = 1_000;
