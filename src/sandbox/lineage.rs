//! Which processes descend from a command that a model chose.
//!
//! The daemon does not listen to those: a model that could talk to it could approve what it wants itself. The keepers of all
//! commands are known here until nothing of their commands is left, and whoever loses its parent becomes the child of its keeper,
//! or, when that was killed, of the holder or the daemon. So the parents of a process tell whose it is: below the daemon only what
//! has a living keeper of the user's own commands above it is the user's.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::keeper::{self, Ancestor};

/// The keepers of commands; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Lineage(Arc<Mutex<BTreeMap<u32, Supervisor>>>);

/// What is known of a keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Supervisor {
    /// When it was born: with its id, it names the process for good.
    born: u64,
    author: Author,
}

/// Who chose a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Author {
    User,
    Model,
}

/// Whose a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// No model chose a command that brought it forth.
    Elsewhere,
    /// It descends from a command that a model chose, or from one whose keeper was killed.
    Tool,
    /// Nobody can say.
    Unknown,
}

impl Lineage {
    /// Says where a process comes from; `None` is one that cannot be named.
    ///
    /// The answer holds for the process that has this id at this moment; whoever asks sees to it that it still is the one that
    /// was meant.
    pub fn origin(&self, pid: Option<u32>) -> Origin {
        if !keeper::TELLS_DESCENT {
            return Origin::Elsewhere;
        }
        // Taken before the process is looked at: what ends meanwhile still counts.
        let supervisors = self.supervisors().clone();
        match pid.map(keeper::ancestry) {
            None | Some(keeper::Ancestry::Gone) => Origin::Unknown,
            Some(keeper::Ancestry::NotKept) => Origin::Elsewhere,
            Some(keeper::Ancestry::Known { above, complete, cgroup }) => {
                if cgroup.and_then(|pid| supervisors.get(&pid)).is_some_and(Supervisor::is_models) {
                    return Origin::Tool;
                }
                origin(&above, complete, std::process::id(), &supervisors)
            }
        }
    }

    /// Takes a keeper in, until what is returned is dropped.
    pub(super) fn enter(&self, keeper: u32, born: u64, author: Author) -> Entered {
        self.supervisors().insert(keeper, Supervisor { born, author });
        Entered { lineage: self.clone(), keeper }
    }

    fn supervisors(&self) -> MutexGuard<'_, BTreeMap<u32, Supervisor>> {
        // The map is whole between any two statements, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Supervisor {
    fn is_models(&self) -> bool {
        self.author == Author::Model
    }
}

/// Says where a process comes from, given what is above it and whether that is all, the daemon's id and the keepers.
fn origin(
    above: &[Ancestor],
    complete: bool,
    daemon: u32,
    supervisors: &BTreeMap<u32, Supervisor>,
) -> Origin {
    if above.iter().filter_map(|ancestor| supervisors.get(&ancestor.pid)).any(Supervisor::is_models) {
        return Origin::Tool;
    }
    let at = match above.iter().position(|ancestor| ancestor.pid == daemon) {
        Some(at @ 1..) => at,
        // The daemon itself is nobody's command.
        Some(_) => return Origin::Elsewhere,
        // What the system hides may be a command of a model, if there is one.
        None if !complete && supervisors.values().any(Supervisor::is_models) => return Origin::Unknown,
        None => return Origin::Elsewhere,
    };
    let is_users = above[..at].iter().any(|ancestor| {
        let known = Supervisor { born: ancestor.born, author: Author::User };
        ancestor.alive && supervisors.get(&ancestor.pid) == Some(&known)
    });
    if is_users { Origin::Elsewhere } else { Origin::Tool }
}

/// A keeper that is known.
pub(super) struct Entered {
    lineage: Lineage,
    keeper: u32,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.lineage.supervisors().remove(&self.keeper);
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
        let entered = lineage.enter(std::os::unix::process::parent_id(), 0, Author::Model);
        assert_eq!(lineage.origin(Some(own)), Origin::Tool);
        drop(entered);
        let other = lineage.enter(u32::MAX - 1, 0, Author::Model);
        assert_eq!(lineage.origin(Some(own)), Origin::Elsewhere);
        drop(other);
    }

    #[test]
    fn a_process_that_is_gone_or_not_seen_is_unknown_also_while_no_command_runs() {
        let lineage = Lineage::default();
        assert_eq!(lineage.origin(None), Origin::Unknown);
        assert_eq!(lineage.origin(Some(u32::MAX)), Origin::Unknown);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(lineage.origin(Some(child.id())), Origin::Unknown);
    }

    #[test]
    fn a_child_of_the_daemon_without_a_keeper_counts_as_a_model_s() {
        let lineage = Lineage::default();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let found = lineage.origin(Some(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, Origin::Tool);
    }

    #[test]
    fn only_a_living_keeper_of_the_user_s_commands_makes_a_descendant_the_user_s() {
        const DAEMON: u32 = 10;
        let of = |pid, born, alive| Ancestor { pid, born, alive };
        let chain = |keeper| [of(40, 4, true), of(35, 4, true), keeper, of(20, 2, true), of(DAEMON, 1, true)];
        let user = BTreeMap::from([(30, Supervisor { born: 3, author: Author::User })]);
        let model = BTreeMap::from([(30, Supervisor { born: 3, author: Author::Model })]);
        assert_eq!(origin(&chain(of(30, 3, true)), true, DAEMON, &user), Origin::Elsewhere);
        assert_eq!(origin(&chain(of(30, 3, false)), true, DAEMON, &user), Origin::Tool, "it was killed");
        assert_eq!(origin(&chain(of(30, 9, true)), true, DAEMON, &user), Origin::Tool, "another has its id");
        assert_eq!(origin(&chain(of(31, 3, true)), true, DAEMON, &user), Origin::Tool, "it is not known");
        assert_eq!(origin(&chain(of(30, 3, true)), true, DAEMON, &model), Origin::Tool);
        assert_eq!(origin(&chain(of(30, 3, true)), true, 99, &user), Origin::Elsewhere, "of another daemon");
        assert_eq!(origin(&chain(of(30, 9, true)), true, 99, &model), Origin::Tool, "in doubt");
        let nested = [of(40, 4, true), of(30, 3, true), of(DAEMON, 1, true), of(5, 1, true)];
        assert_eq!(origin(&nested[2..], true, DAEMON, &user), Origin::Elsewhere, "the daemon itself");
        // Parents that the system hides: in doubt while a command of a model runs.
        let hidden = [of(40, 4, true), of(35, 4, true)];
        assert_eq!(origin(&hidden, false, DAEMON, &user), Origin::Elsewhere);
        assert_eq!(origin(&hidden, false, DAEMON, &model), Origin::Unknown);
        assert_eq!(origin(&hidden, true, DAEMON, &model), Origin::Elsewhere);
        // A keeper above the daemon is not one of its own.
        let above = [of(40, 4, true), of(DAEMON, 1, true), of(30, 3, true)];
        assert_eq!(origin(&above, true, DAEMON, &user), Origin::Tool);
    }
}
