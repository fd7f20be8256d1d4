//! Tracks which processes descend from a command that a model chose.
//!
//! The daemon refuses connections from such processes: a model that could connect could approve its own requests. The
//! supervisors of all commands are registered here until no process of their commands remains. A process that loses its
//! parent is reparented to its supervisor or, if that was killed, to the holder or the daemon. The chain of parents
//! therefore identifies the origin of a process: below the daemon, a process belongs to the user only if a live
//! supervisor of the user's own commands is among its ancestors.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::supervisor::{self, Ancestor};

/// The registry of supervisors; clones share it.
#[derive(Debug, Clone, Default)]
pub struct SupervisorRegistry(Arc<Mutex<BTreeMap<u32, Supervisor>>>);

/// A registered supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Supervisor {
    /// When the process was started: together with the process id it identifies the process uniquely.
    start_time: u64,
    author: CommandAuthor,
}

/// Who chose a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandAuthor {
    User,
    Model,
}

/// Where a process comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessOrigin {
    /// It does not descend from a command that a model chose.
    NotModelCommand,
    /// It descends from a command that a model chose, or from a command whose supervisor was killed.
    ModelCommand,
    /// The origin cannot be determined.
    Unknown,
}

impl SupervisorRegistry {
    /// Determines the origin of a process; `None` stands for a process whose id is unknown.
    ///
    /// The answer holds for the process that has this id at the time of the call; the caller ensures that it is still
    /// the intended process.
    pub fn origin(&self, pid: Option<u32>) -> ProcessOrigin {
        if !supervisor::ANCESTRY_SUPPORTED {
            return ProcessOrigin::NotModelCommand;
        }
        // Copied before the process is inspected, so that a supervisor that ends in the meantime still counts.
        let supervisors = self.lock().clone();
        match pid.map(supervisor::ancestry) {
            None | Some(supervisor::Ancestry::NoSuchProcess) => ProcessOrigin::Unknown,
            Some(supervisor::Ancestry::Unsupported) => ProcessOrigin::NotModelCommand,
            Some(supervisor::Ancestry::Known { ancestors, complete, cgroup_supervisor }) => {
                if cgroup_supervisor.and_then(|pid| supervisors.get(&pid)).is_some_and(Supervisor::runs_model_commands)
                {
                    return ProcessOrigin::ModelCommand;
                }
                origin(&ancestors, complete, std::process::id(), &supervisors)
            }
        }
    }

    /// Registers a supervisor until the returned guard is dropped.
    pub(super) fn register(&self, supervisor: u32, start_time: u64, author: CommandAuthor) -> RegistrationGuard {
        self.lock().insert(supervisor, Supervisor { start_time, author });
        RegistrationGuard { registry: self.clone(), supervisor }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Supervisor>> {
        // Every statement leaves the map consistent, so a poisoned lock can be used.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Supervisor {
    fn runs_model_commands(&self) -> bool {
        self.author == CommandAuthor::Model
    }
}

/// Determines the origin of a process from its ancestors, whether that list is complete, the daemon's process id and
/// the supervisors.
fn origin(
    ancestors: &[Ancestor],
    complete: bool,
    daemon: u32,
    supervisors: &BTreeMap<u32, Supervisor>,
) -> ProcessOrigin {
    if ancestors.iter().filter_map(|ancestor| supervisors.get(&ancestor.pid)).any(Supervisor::runs_model_commands) {
        return ProcessOrigin::ModelCommand;
    }
    let at = match ancestors.iter().position(|ancestor| ancestor.pid == daemon) {
        Some(at @ 1..) => at,
        // The daemon itself is not part of any command.
        Some(_) => return ProcessOrigin::NotModelCommand,
        // An ancestor that the system hides may be a command of a model, if one is running.
        None if !complete && supervisors.values().any(Supervisor::runs_model_commands) => {
            return ProcessOrigin::Unknown;
        }
        None => return ProcessOrigin::NotModelCommand,
    };
    let is_users = ancestors[..at].iter().any(|ancestor| {
        let known = Supervisor { start_time: ancestor.start_time, author: CommandAuthor::User };
        ancestor.alive && supervisors.get(&ancestor.pid) == Some(&known)
    });
    if is_users { ProcessOrigin::NotModelCommand } else { ProcessOrigin::ModelCommand }
}

/// The registration of a supervisor; dropping it removes the supervisor from the registry.
pub(super) struct RegistrationGuard {
    registry: SupervisorRegistry,
    supervisor: u32,
}

impl Drop for RegistrationGuard {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.supervisor);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_identified_by_its_registered_ancestors() {
        let registry = SupervisorRegistry::default();
        let own = std::process::id();
        assert_eq!(registry.origin(Some(own)), ProcessOrigin::NotModelCommand);
        let registration = registry.register(std::os::unix::process::parent_id(), 0, CommandAuthor::Model);
        assert_eq!(registry.origin(Some(own)), ProcessOrigin::ModelCommand);
        drop(registration);
        let other = registry.register(u32::MAX - 1, 0, CommandAuthor::Model);
        assert_eq!(registry.origin(Some(own)), ProcessOrigin::NotModelCommand);
        drop(other);
    }

    #[test]
    fn an_ended_or_unknown_process_has_an_unknown_origin_even_without_commands() {
        let registry = SupervisorRegistry::default();
        assert_eq!(registry.origin(None), ProcessOrigin::Unknown);
        assert_eq!(registry.origin(Some(u32::MAX)), ProcessOrigin::Unknown);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(registry.origin(Some(child.id())), ProcessOrigin::Unknown);
    }

    #[test]
    fn a_child_of_the_daemon_without_a_supervisor_counts_as_a_model_s() {
        let registry = SupervisorRegistry::default();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let found = registry.origin(Some(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, ProcessOrigin::ModelCommand);
    }

    #[test]
    fn only_a_live_supervisor_of_user_commands_makes_a_descendant_the_user_s() {
        const DAEMON: u32 = 10;
        let of = |pid, start_time, alive| Ancestor { pid, start_time, alive };
        let chain = |supervisor| [of(40, 4, true), of(35, 4, true), supervisor, of(20, 2, true), of(DAEMON, 1, true)];
        let user = BTreeMap::from([(30, Supervisor { start_time: 3, author: CommandAuthor::User })]);
        let model = BTreeMap::from([(30, Supervisor { start_time: 3, author: CommandAuthor::Model })]);
        assert_eq!(origin(&chain(of(30, 3, true)), true, DAEMON, &user), ProcessOrigin::NotModelCommand);
        assert_eq!(
            origin(&chain(of(30, 3, false)), true, DAEMON, &user),
            ProcessOrigin::ModelCommand,
            "the supervisor was killed"
        );
        assert_eq!(
            origin(&chain(of(30, 9, true)), true, DAEMON, &user),
            ProcessOrigin::ModelCommand,
            "the process id was reused"
        );
        assert_eq!(origin(&chain(of(31, 3, true)), true, DAEMON, &user), ProcessOrigin::ModelCommand, "not registered");
        assert_eq!(origin(&chain(of(30, 3, true)), true, DAEMON, &model), ProcessOrigin::ModelCommand);
        assert_eq!(
            origin(&chain(of(30, 3, true)), true, 99, &user),
            ProcessOrigin::NotModelCommand,
            "a process of another daemon"
        );
        assert_eq!(
            origin(&chain(of(30, 9, true)), true, 99, &model),
            ProcessOrigin::ModelCommand,
            "a matching id is enough for a model"
        );
        let nested = [of(40, 4, true), of(30, 3, true), of(DAEMON, 1, true), of(5, 1, true)];
        assert_eq!(origin(&nested[2..], true, DAEMON, &user), ProcessOrigin::NotModelCommand, "the daemon itself");
        // Hidden ancestors: the origin is unknown while a command of a model runs.
        let hidden = [of(40, 4, true), of(35, 4, true)];
        assert_eq!(origin(&hidden, false, DAEMON, &user), ProcessOrigin::NotModelCommand);
        assert_eq!(origin(&hidden, false, DAEMON, &model), ProcessOrigin::Unknown);
        assert_eq!(origin(&hidden, true, DAEMON, &model), ProcessOrigin::NotModelCommand);
        // A supervisor above the daemon belongs to another daemon.
        let ancestors = [of(40, 4, true), of(DAEMON, 1, true), of(30, 3, true)];
        assert_eq!(origin(&ancestors, true, DAEMON, &user), ProcessOrigin::ModelCommand);
    }
}
