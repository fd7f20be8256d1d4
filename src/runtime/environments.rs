//! Deduplication of session environments: sessions with equal environments share one allocation.
//!
//! Most sessions of one user start from the same shell environment, which has several kilobytes. The pool holds weak
//! references only: an environment is dropped with the last session that uses it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::kernel::environment::Environment;

/// The most recent environments that are in use.
#[derive(Default)]
pub struct Environments(Mutex<Vec<Weak<Environment>>>);

impl Environments {
    /// Returns the shared copy of an equal environment, or shares this one.
    pub fn share(&self, environment: Environment) -> Arc<Environment> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|held| held.strong_count() > 0);
        if let Some(same) = known.iter().filter_map(Weak::upgrade).find(|held| **held == environment) {
            return same;
        }
        if known.len() >= MAX_COMPARED {
            known.remove(0);
        }
        let environment = Arc::new(environment);
        known.push(Arc::downgrade(&environment));
        environment
    }
}

impl fmt::Debug for Environments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environments")
    }
}

/// The number of environments that a new one is compared with. Older ones are not deduplicated.
const MAX_COMPARED: usize = 8;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn equal_environments_are_shared_and_dropped_with_their_last_user() {
        let environments = Environments::default();
        let named = |name: &str| Environment::new(BTreeMap::from([("NAME".to_owned(), name.to_owned())]));
        let one = environments.share(named("one"));
        assert!(Arc::ptr_eq(&one, &environments.share(named("one"))));
        assert!(!Arc::ptr_eq(&one, &environments.share(named("other"))));
        let many: Vec<_> = (0..2 * MAX_COMPARED).map(|number| environments.share(named(&number.to_string()))).collect();
        assert_eq!(environments.0.lock().unwrap().len(), MAX_COMPARED, "the oldest entry is evicted");
        drop(many);
        drop(environments.share(named("other")));
        assert_eq!(environments.0.lock().unwrap().len(), 1);
    }
}
