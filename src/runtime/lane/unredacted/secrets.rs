//! The secrets of a session, which are redacted in everything it stores or publishes.
//!
//! Some come with a client's environment, some with the key of a turn. A secret stays in the set.

use std::sync::{Arc, Mutex, PoisonError};

use crate::redact::{self, Redactor};

/// The secrets of a session; clones share them.
#[derive(Clone, Default)]
pub(in crate::runtime::lane) struct SessionSecrets(Arc<Mutex<SecretState>>);

#[derive(Default)]
struct SecretState {
    redactor: Redactor,
    /// The values that the redactor knows, the newest last.
    secrets: Vec<String>,
}

impl SessionSecrets {
    /// Adds secrets.
    pub(in crate::runtime::lane) fn add(&self, brought: Vec<String>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.secrets.retain(|secret| !brought.contains(secret));
        known.secrets.extend(brought);
        let surplus = known.secrets.len().saturating_sub(MAX_SECRETS);
        known.secrets.drain(..surplus);
        known.redactor = Redactor::new(known.secrets.iter().map(String::as_str));
    }

    /// Returns whether a value is redacted already.
    pub(in crate::runtime::lane) fn contains(&self, secret: &str) -> bool {
        self.redactor().redact(secret) == redact::MARKER
    }

    /// Returns the redactor.
    pub(in crate::runtime::lane) fn redactor(&self) -> Redactor {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).redactor.clone()
    }
}

/// The maximum number of secrets; an environment has a handful.
const MAX_SECRETS: usize = 1_000;
