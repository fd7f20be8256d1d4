//! The environments that sessions hold: the same one is held once, however many sessions came with it.
//!
//! Sessions of one user are mostly started from the same surroundings, of several kilobytes each. It keeps none alive:
//! an environment goes with the last session that holds it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::protocol::push::decode::Environment;

/// The environments in use that came last.
#[derive(Default)]
pub struct Environments(Mutex<Vec<Weak<Environment>>>);

impl Environments {
    /// Returns the environment as others hold it, if any do.
    pub fn share(&self, environment: Environment) -> Arc<Environment> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|held| held.strong_count() > 0);
        if let Some(same) = known.iter().filter_map(Weak::upgrade).find(|held| **held == environment) {
            return same;
        }
        if known.len() >= KNOWN {
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

/// How many different ones are compared with; further ones are held once more.
const KNOWN: usize = 8;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn an_environment_is_held_once_and_only_as_long_as_somebody_holds_it() {
        let environments = Environments::default();
        let named = |name: &str| Environment::new(BTreeMap::from([("NAME".to_owned(), name.to_owned())]));
        let one = environments.share(named("one"));
        assert!(Arc::ptr_eq(&one, &environments.share(named("one"))));
        assert!(!Arc::ptr_eq(&one, &environments.share(named("other"))));
        let many: Vec<_> =
            (0..2 * KNOWN).map(|number| environments.share(named(&number.to_string()))).collect();
        assert_eq!(environments.0.lock().unwrap().len(), KNOWN, "the oldest is compared with no more");
        drop(many);
        drop(environments.share(named("other")));
        assert_eq!(environments.0.lock().unwrap().len(), 1);
    }
}
