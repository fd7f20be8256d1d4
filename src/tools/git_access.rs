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

use super::context::ToolContext;
use super::error::{ToolError, ToolErrorKind};
use super::exec;
use super::git_dir::{GitIndex, WritableGitDir};
use super::git_use::{GitUse, needs_outside};
use crate::sandbox::program::SearchPath;
use crate::sandbox::repository::Repository;
use crate::sandbox::{Chunk, Step, StepEnd, StepError};

/// How long to wait for the processes of a command after the caller has gone.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait for another command in the same repository.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// Write access to the git directory of the workspace.
pub(super) struct GitAccess {
    /// One command at a time: otherwise the changes of another one would be part of the snapshot.
    repository_lock: OwnedMutexGuard<()>,
    git_dir: PathBuf,
    /// The protection of the git directory; `None` if commands are not confined.
    writable_dir: Option<WritableGitDir>,
    /// The index to restore when the step fails.
    index: Option<GitIndex>,
}

impl GitAccess {
    /// Opens a repository for a commit; a failed commit restores the index.
    pub(super) async fn for_commit(repository: &Repository, context: &ToolContext) -> Result<Self, ToolError> {
        let repository_lock = lock_repository(&repository.common_dir).await?;
        let git_dir = repository.git_dir.clone();
        let (shared, own) = (repository.common_dir.clone(), git_dir.clone());
        let index = context.run_blocking(move |_| Ok(GitIndex::read(&own, &shared)?)).await?;
        let dir = prepare_writable_dir(repository, context).await?;
        Ok(Self { repository_lock, git_dir, writable_dir: dir, index: Some(index) })
    }

    /// Opens the repository of the workspace for a command that changes it according to its assessment.
    pub(super) async fn for_command(args: &exec::Args, context: &ToolContext) -> Result<Option<Self>, ToolError> {
        if !needs_git_write(args, context).await? {
            return Ok(None);
        }
        let (workspace, writable) = (context.workspace.path().to_owned(), context.writable.clone());
        let repository = match context.run_blocking(move |_| Ok(Repository::find(&workspace, &writable)?)).await {
            Ok(repository) => repository,
            // The command may use a repository inside the workspace, which it may write anyway.
            Err(error) if error.kind == ToolErrorKind::NotARepository => return Ok(None),
            Err(error) => return Err(error),
        };
        let repository_lock = lock_repository(&repository.common_dir).await?;
        let dir = prepare_writable_dir(&repository, context).await?;
        Ok(Some(Self { repository_lock, git_dir: repository.git_dir, writable_dir: dir, index: None }))
    }

    /// Runs a step that may write the git directory, and checks its changes there.
    ///
    /// The check also runs when the caller has gone, for example because its run was cancelled or the daemon stops.
    pub(super) async fn run(
        self,
        mut step: Step,
        context: &ToolContext,
        out: mpsc::Sender<Chunk>,
    ) -> Result<Result<StepEnd, StepError>, ToolError> {
        let Self { repository_lock, git_dir, writable_dir: dir, index } = self;
        if let Some(dir) = &dir {
            dir.grant(&mut step.permissions);
        }
        let context = context.clone();
        let (waiting, given_up) = oneshot::channel::<()>();
        let pending = context.sandbox.begin_check();
        let checked = tokio::spawn(async move {
            let _pending = pending;
            let end = tokio::select! {
                end = context.sandbox.run(step, out) => end,
                _ = given_up => Ok(StepEnd::Stopped),
            };
            if matches!(end, Ok(StepEnd::Stopped)) {
                // The check needs a directory that no process changes any more.
                let _left = context.sandbox.stop(STOP_TIMEOUT).await;
            }
            let index = index.filter(|_| !matches!(end, Ok(StepEnd::Exited(0))));
            let check = move || {
                let checked = dir.map_or(Ok(()), WritableGitDir::check);
                checked.and(index.map_or(Ok(()), |index| index.restore(&git_dir)).map_err(index_restore_failed))
            };
            let checked = context.run_blocking(move |_| check()).await;
            drop(repository_lock);
            checked.map(|()| end)
        });
        let end = checked.await;
        drop(waiting);
        let failed = |_| Err(ToolError::new(ToolErrorKind::Internal, "the daemon failed while it ran the command"));
        end.unwrap_or_else(failed)
    }
}

async fn prepare_writable_dir(
    repository: &Repository,
    context: &ToolContext,
) -> Result<Option<WritableGitDir>, ToolError> {
    let Some(mechanism) = context.sandbox.mechanism().await else { return Ok(None) };
    let repository = repository.clone();
    context.run_blocking(move |_| WritableGitDir::prepare(&repository, mechanism)).await.map(Some)
}

fn index_restore_failed(error: crate::sandbox::workspace::WorkspaceError) -> ToolError {
    let message = format!("the commit failed, and the index could not be restored: {error}");
    ToolError::new(ToolErrorKind::GitFailed, message)
}

/// Waits until no other command of any session has write access to a git directory.
async fn lock_repository(git_dir: &Path) -> Result<OwnedMutexGuard<()>, ToolError> {
    static REPOSITORY_LOCKS: Mutex<BTreeMap<PathBuf, Weak<TurnMutex<()>>>> = Mutex::new(BTreeMap::new());
    let own = {
        let mut turns = REPOSITORY_LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, repository_lock| repository_lock.strong_count() > 0);
        let known = turns.get(git_dir).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let own = Arc::default();
            turns.insert(git_dir.to_owned(), Arc::downgrade(&own));
            own
        })
    };
    timeout(LOCK_TIMEOUT, own.lock_owned()).await.map_err(|_| {
        let message = format!(
            "another git command has used {} for {} s; retry when it has finished",
            git_dir.display(),
            LOCK_TIMEOUT.as_secs()
        );
        ToolError::new(ToolErrorKind::GitFailed, message)
    })
}

/// Returns whether a command needs write access to the git directory; a command that needs more is refused.
pub(super) async fn needs_git_write(args: &exec::Args, context: &ToolContext) -> Result<bool, ToolError> {
    let GitUse { changes, runs_only_git: is_alone } = GitUse::from_command(args, context);
    if args.outside == Some(true) || changes.is_empty() || context.sandbox.mechanism().await.is_none() {
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
            let subcommand = words.split(' ').next().unwrap_or_default();
            format!(
                "`git {subcommand}` changes what git executes or trusts (its configuration, other working trees, the steps \
                 of a rebase), or takes a program to run or an object to store, which is protected in the sandbox; run \
                 it with `outside`, which needs an approval"
            )
        }
    };
    Err(ToolError::new(ToolErrorKind::ProtectedPath, message))
}

/// Sets `PATH` to directories that no model's command can write.
pub(super) async fn set_trusted_path(
    env: &mut Vec<(OsString, OsString)>,
    context: &ToolContext,
) -> Result<(), ToolError> {
    let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
    let mut writable = context.writable.clone();
    writable.push(context.workspace.path().to_owned());
    let trusted = context.run_blocking(move |_| Ok(SearchPath::trusted(path.as_deref(), &writable).value())).await?;
    env.retain(|(name, _)| name != "PATH");
    env.push(("PATH".into(), trusted));
    Ok(())
}

/// Adds git configuration for commands. It disables features that cannot work in the sandbox, and background work,
/// which ends with the command.
pub(super) fn add_git_config(env: &mut Vec<(OsString, OsString)>) {
    let count = env.iter().find(|(name, _)| name == CONFIG_COUNT).and_then(|(_, value)| value.to_str()?.parse().ok());
    let first: usize = count.unwrap_or(0);
    env.retain(|(name, _)| name != CONFIG_COUNT);
    for (number, (key, value)) in (first..).zip(GIT_CONFIG) {
        env.push((format!("GIT_CONFIG_KEY_{number}").into(), key.into()));
        env.push((format!("GIT_CONFIG_VALUE_{number}").into(), value.into()));
    }
    env.push((CONFIG_COUNT.into(), (first + GIT_CONFIG.len()).to_string().into()));
}

const CONFIG_COUNT: &str = "GIT_CONFIG_COUNT";

const GIT_CONFIG: [(&str, &str); 7] = [
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
            (CONFIG_COUNT.into(), "1".into()),
            ("GIT_CONFIG_KEY_0".into(), "user.name".into()),
            ("GIT_CONFIG_VALUE_0".into(), "Ann".into()),
        ];
        add_git_config(&mut env);
        let value =
            |name: &str| env.iter().filter(|(known, _)| known == name).map(|(_, value)| value).collect::<Vec<_>>();
        assert_eq!(value(CONFIG_COUNT), ["8"]);
        assert_eq!(value("GIT_CONFIG_KEY_0"), ["user.name"]);
        assert_eq!(value("GIT_CONFIG_KEY_7"), ["maintenance.auto"]);
        assert_eq!(value("GIT_CONFIG_VALUE_7"), ["false"]);
        let mut env = Vec::new();
        add_git_config(&mut env);
        assert!(env.contains(&(CONFIG_COUNT.into(), "7".into())));
    }
}
