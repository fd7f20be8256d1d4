//! Which processes descend from a command that a model chose.
//!
//! The daemon does not listen to those: a model that could talk to it could approve what it wants itself. The keepers of such
//! commands are known here while they live, and whoever loses its parent becomes the child of its keeper, so that the parents
//! of a process tell whose it is.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::keeper;

/// The keepers of commands that models chose; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Lineage(Arc<Mutex<BTreeSet<u32>>>);

/// Whose a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// No model chose a command that brought it forth.
    Elsewhere,
    /// It descends from a command that a model chose.
    Tool,
    /// Nobody can say, and a command that a model chose is running.
    Unknown,
}

impl Lineage {
    /// Says where a process comes from; `None` is one that cannot be named.
    ///
    /// The answer holds for the process that has this id at this moment; whoever asks sees to it that it still is the one that
    /// was meant.
    pub fn origin(&self, pid: Option<u32>) -> Origin {
        let keepers = self.keepers().clone();
        if keepers.is_empty() {
            return Origin::Elsewhere;
        }
        match pid.map(keeper::ancestry) {
            None | Some(keeper::Ancestry::Gone) => Origin::Unknown,
            Some(keeper::Ancestry::NotKept) => Origin::Elsewhere,
            Some(keeper::Ancestry::Known { above, cgroup }) => {
                let is_kept = above.iter().chain(&cgroup).any(|pid| keepers.contains(pid));
                if is_kept { Origin::Tool } else { Origin::Elsewhere }
            }
        }
    }

    /// Tells whether no command of a model is running.
    pub fn is_empty(&self) -> bool {
        self.keepers().is_empty()
    }

    /// Takes a keeper in, until what is returned is dropped.
    pub(super) fn enter(&self, keeper: u32) -> Entered {
        self.keepers().insert(keeper);
        Entered { lineage: self.clone(), keeper }
    }

    fn keepers(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        // The set is whole between any two statements, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A keeper that is known.
pub(super) struct Entered {
    lineage: Lineage,
    keeper: u32,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.lineage.keepers().remove(&self.keeper);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_those_above_it_while_they_are_known() {
        let lineage = Lineage::default();
        let own = std::process::id();
        assert_eq!(lineage.origin(Some(own)), Origin::Elsewhere);
        assert_eq!(lineage.origin(None), Origin::Elsewhere);
        let entered = lineage.enter(std::os::unix::process::parent_id());
        assert_eq!(lineage.origin(Some(own)), Origin::Tool);
        assert_eq!(lineage.origin(None), Origin::Unknown);
        assert_eq!(lineage.origin(Some(u32::MAX)), Origin::Unknown);
        drop(entered);
        let other = lineage.enter(u32::MAX - 1);
        assert_eq!(lineage.origin(Some(own)), Origin::Elsewhere);
        drop(other);
        assert_eq!(lineage.origin(Some(u32::MAX)), Origin::Elsewhere);
    }
}
