//! Commands that change the repository: they may write the git directory, except for the files that git executes or
//! trusts.
//!
//! The risk assessment of the command decides whether it gets write access. A command that hides its use of git
//! finds the git directory read-only. A command that cannot work without changing what git executes or trusts is
//! refused before an approval is requested.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Mutex as TurnMutex, OwnedMutexGuard, mpsc, oneshot};
use tokio::time::timeout;

use super::bench::Bench;
use super::exec;
use super::fault::{Fault, FaultKind};
use super::git_dir::{Index, WritableGitDir};
use super::git_words::{GitUse, needs_outside};
use crate::sandbox::program::SearchPath;
use crate::sandbox::repository::Repository;
use crate::sandbox::{Chunk, Step, StepEnd, StepError};

/// How long to wait for the processes of a command after the caller has gone.
const STOP: Duration = Duration::from_secs(30);

/// How long to wait for another command in the same repository.
const TURN: Duration = Duration::from_secs(60);

/// Write access to the git directory of the workspace.
pub(super) struct GitAccess {
    /// One command at a time: otherwise the changes of another one would be part of the snapshot.
    turn: OwnedMutexGuard<()>,
    git_dir: PathBuf,
    /// The protection of the git directory; `None` if commands are not confined.
    dir: Option<WritableGitDir>,
    /// The index to restore when the step fails.
    index: Option<Index>,
}

impl GitAccess {
    /// Opens a repository for a commit; a failed commit restores the index.
    pub(super) async fn to_commit(repository: &Repository, bench: &Bench) -> Result<Self, Fault> {
        let turn = turn(&repository.common_dir).await?;
        let git_dir = repository.git_dir.clone();
        let (shared, own) = (repository.common_dir.clone(), git_dir.clone());
        let index = bench.away(move |_| Ok(Index::read(&own, &shared)?)).await?;
        let dir = protected(repository, bench).await?;
        Ok(Self { turn, git_dir, dir, index: Some(index) })
    }

    /// Opens the repository of the workspace for a command that changes it according to its assessment.
    pub(super) async fn of_command(args: &exec::Args, bench: &Bench) -> Result<Option<Self>, Fault> {
        if !is_wanted(args, bench).await? {
            return Ok(None);
        }
        let (workspace, writable) = (bench.ground.path().to_owned(), bench.writable.clone());
        let repository = match bench.away(move |_| Ok(Repository::find(&workspace, &writable)?)).await {
            Ok(repository) => repository,
            // The command may use a repository inside the workspace, which it may write anyway.
            Err(fault) if fault.kind == FaultKind::NotARepository => return Ok(None),
            Err(fault) => return Err(fault),
        };
        let turn = turn(&repository.common_dir).await?;
        let dir = protected(&repository, bench).await?;
        Ok(Some(Self { turn, git_dir: repository.git_dir, dir, index: None }))
    }

    /// Runs a step that may write the git directory, and checks its changes there.
    ///
    /// The check also runs when the caller has gone, for example because its run was cancelled or the daemon stops.
    pub(super) async fn run(
        self,
        mut step: Step,
        bench: &Bench,
        out: mpsc::Sender<Chunk>,
    ) -> Result<Result<StepEnd, StepError>, Fault> {
        let Self { turn, git_dir, dir, index } = self;
        if let Some(dir) = &dir {
            dir.open_to(&mut step.leave);
        }
        let bench = bench.clone();
        let (waiting, given_up) = oneshot::channel::<()>();
        let pending = bench.tree.begin_check();
        let checked = tokio::spawn(async move {
            let _pending = pending;
            let end = tokio::select! {
                end = bench.tree.run(step, out) => end,
                _ = given_up => Ok(StepEnd::Stopped),
            };
            if matches!(end, Ok(StepEnd::Stopped)) {
                // The check needs a directory that no process changes any more.
                let _left = bench.tree.stop(STOP).await;
            }
            let index = index.filter(|_| !matches!(end, Ok(StepEnd::Exited(0))));
            let check = move || {
                let checked = dir.map_or(Ok(()), WritableGitDir::check);
                checked.and(index.map_or(Ok(()), |index| index.put_back(&git_dir)).map_err(not_put_back))
            };
            let checked = bench.away(move |_| check()).await;
            drop(turn);
            checked.map(|()| end)
        });
        let end = checked.await;
        drop(waiting);
        let failed = |_| Err(Fault::new(FaultKind::Internal, "the daemon failed while it ran the command"));
        end.unwrap_or_else(failed)
    }
}

async fn protected(repository: &Repository, bench: &Bench) -> Result<Option<WritableGitDir>, Fault> {
    let Some(way) = bench.tree.way().await else { return Ok(None) };
    let repository = repository.clone();
    bench.away(move |_| WritableGitDir::prepare(&repository, way)).await.map(Some)
}

fn not_put_back(error: crate::sandbox::ground::GroundError) -> Fault {
    let message = format!("the commit failed, and the index could not be restored: {error}");
    Fault::new(FaultKind::GitFailed, message)
}

/// Waits until no other command of any session has write access to a git directory.
async fn turn(git_dir: &Path) -> Result<OwnedMutexGuard<()>, Fault> {
    static TURNS: Mutex<BTreeMap<PathBuf, Weak<TurnMutex<()>>>> = Mutex::new(BTreeMap::new());
    let own = {
        let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, turn| turn.strong_count() > 0);
        let known = turns.get(git_dir).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let own = Arc::default();
            turns.insert(git_dir.to_owned(), Arc::downgrade(&own));
            own
        })
    };
    timeout(TURN, own.lock_owned()).await.map_err(|_| {
        let message = format!(
            "another git command has used {} for {} s; retry when it has finished",
            git_dir.display(),
            TURN.as_secs()
        );
        Fault::new(FaultKind::GitFailed, message)
    })
}

/// Returns whether a command needs write access to the git directory; a command that needs more is refused.
pub(super) async fn is_wanted(args: &exec::Args, bench: &Bench) -> Result<bool, Fault> {
    let GitUse { changes, is_alone } = GitUse::of(args, bench);
    if args.outside == Some(true) || changes.is_empty() || bench.tree.way().await.is_none() {
        return Ok(false);
    }
    let message = match changes.iter().find(|words| needs_outside(words)) {
        None if is_alone => return Ok(true),
        None => {
            "a command that changes the repository may run only git and programs that start no other one (echo, cat, \
             mkdir and the like), without variables that configure git or the shell: run git in a command of its own, \
             or run the command with `outside`, which needs an approval"
                .to_owned()
        }
        Some(words) => {
            let verb = words.split(' ').next().unwrap_or_default();
            format!(
                "`git {verb}` changes what git executes or trusts (its configuration, other working trees, the steps \
                 of a rebase), or takes a program to run or an object to store, which is protected in the sandbox; run \
                 it with `outside`, which needs an approval"
            )
        }
    };
    Err(Fault::new(FaultKind::ProtectedPath, message))
}

/// Sets `PATH` to directories that no model's command can write.
pub(super) async fn trust_path(env: &mut Vec<(OsString, OsString)>, bench: &Bench) -> Result<(), Fault> {
    let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
    let mut writable = bench.writable.clone();
    writable.push(bench.ground.path().to_owned());
    let trusted = bench.away(move |_| Ok(SearchPath::trusted(path.as_deref(), &writable).value())).await?;
    env.retain(|(name, _)| name != "PATH");
    env.push(("PATH".into(), trusted));
    Ok(())
}

/// Adds git configuration for commands. It disables features that cannot work in the sandbox, and background work,
/// which ends with the command.
pub(super) fn add_settings(env: &mut Vec<(OsString, OsString)>) {
    let count =
        env.iter().find(|(name, _)| name == COUNT).and_then(|(_, value)| value.to_str()?.parse().ok());
    let first: usize = count.unwrap_or(0);
    env.retain(|(name, _)| name != COUNT);
    for (number, (key, value)) in (first..).zip(SETTINGS) {
        env.push((format!("GIT_CONFIG_KEY_{number}").into(), key.into()));
        env.push((format!("GIT_CONFIG_VALUE_{number}").into(), value.into()));
    }
    env.push((COUNT.into(), (first + SETTINGS.len()).to_string().into()));
}

const COUNT: &str = "GIT_CONFIG_COUNT";

const SETTINGS: [(&str, &str); 7] = [
    // Hooks may run scripts of the workspace while the git directory is writable.
    ("core.hooksPath", "/dev/null"),
    // Upstream branches are stored in the configuration, which is read-only.
    ("branch.autoSetupMerge", "false"),
    // Keys and their agents are hidden.
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("core.fsmonitor", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_added_to_those_of_the_environment() {
        let mut env = vec![
            (COUNT.into(), "1".into()),
            ("GIT_CONFIG_KEY_0".into(), "user.name".into()),
            ("GIT_CONFIG_VALUE_0".into(), "Ann".into()),
        ];
        add_settings(&mut env);
        let value = |name: &str| {
            env.iter().filter(|(known, _)| known == name).map(|(_, value)| value).collect::<Vec<_>>()
        };
        assert_eq!(value(COUNT), ["8"]);
        assert_eq!(value("GIT_CONFIG_KEY_0"), ["user.name"]);
        assert_eq!(value("GIT_CONFIG_KEY_7"), ["maintenance.auto"]);
        assert_eq!(value("GIT_CONFIG_VALUE_7"), ["false"]);
        let mut env = Vec::new();
        add_settings(&mut env);
        assert!(env.contains(&(COUNT.into(), "7".into())));
    }
}
