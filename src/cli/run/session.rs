//! The session of a run: a new one, or one to continue.

use std::path::{Path, PathBuf};

use serde_json::json;
use ulid::Ulid;

use super::{RunFlags, RunPlan};
use crate::cli::answer::AnswerSource;
use crate::cli::console::Console;
use crate::cli::exit::CliError;
use crate::cli::ids;
use crate::cli::sanitize::sanitize_line;
use crate::client::{Client, Repository, Request, SessionItem, SessionState};
use crate::kernel::command::Phase;
use crate::provider::playbook;

/// The properties of a session that a run needs.
#[derive(Debug)]
pub(super) struct RunSession {
    /// Its id.
    pub(super) id: String,
    /// The seq after which the run is followed.
    pub(super) seen: u64,
    provider: String,
    /// The directory in which steps run.
    directory: PathBuf,
    /// Another session with an active run in the same directory.
    other_session: Option<String>,
}

impl RunSession {
    /// Returns the source of the answer of its runs.
    pub(super) fn source(&self) -> AnswerSource {
        if self.provider == playbook::NAME { AnswerSource::Steps } else { AnswerSource::Model }
    }

    /// Warns if the run works in another directory than the current one, or if another session is active there.
    pub(super) fn warn_about_directory(&self, flags: &RunFlags, console: &mut Console) {
        let here = std::env::current_dir().and_then(|path| path.canonicalize()).unwrap_or_default();
        if flags.session.is_some() && self.directory != here {
            let directory = sanitize_line(&self.directory.display().to_string());
            console.warn(&format!("the run continues in {directory}, the directory of its session"));
        }
        if let Some(other) = &self.other_session {
            let other = sanitize_line(&ids::handle(other));
            console.warn(&format!(
                "session {other} has an active run in the same directory; --worktree runs in a separate one"
            ));
        }
    }
}

/// Resolves or starts the session of a run and subscribes to its events.
pub(super) async fn open(
    plan: &RunPlan,
    flags: &RunFlags,
    directory: Option<&str>,
    client: &mut Client,
) -> Result<RunSession, CliError> {
    let (id, neighbour) = match &flags.session {
        Some(typed) => (ids::resolve_session(client, typed).await?, None),
        None => {
            let neighbour = find_active_session(directory, client).await?;
            let id = start(plan, flags, directory, client).await?;
            // The daemon already sends its first events, and those of a repeated run.
            client.track(&id, 0);
            // With a repeated key it may be the session itself.
            let neighbour = neighbour.filter(|neighbour| *neighbour != id);
            (id, neighbour)
        }
    };
    let snapshot = client.request(Request::session_snapshot(&id)).await?;
    let (provider, directory) = (snapshot.meta.provider, snapshot.meta.cwd.into());
    if plan.is_playbook && provider != playbook::NAME {
        return Err(CliError::Usage(format!(
            "session {id} uses the provider {provider}; a playbook needs a playbook session: leave out --session"
        )));
    }
    // The run of a repeated key may have ended long ago.
    let seen = match (&flags.session, &flags.idempotency_key) {
        (Some(_), None) => snapshot.last_seq,
        (Some(_), Some(_)) | (None, _) => 0,
    };
    if flags.session.is_some() {
        client.track(&id, seen);
    }
    Ok(RunSession { id, seen, provider, directory, other_session: neighbour })
}

/// Returns one of the latest sessions with an active run in this directory.
async fn find_active_session(directory: Option<&str>, client: &mut Client) -> Result<Option<String>, CliError> {
    let page = client.request(Request::list_sessions(LATEST)).await?;
    let is_active = |item: &SessionItem| matches!(item.state, SessionState::Known(Phase::Running | Phase::Waiting));
    let is_here = |item: &SessionItem| directory.is_some_and(|directory| item.cwd == directory);
    let found = page.sessions.into_iter().find(|item| is_active(item) && is_here(item));
    Ok(found.map(|item| item.session_id))
}

/// How many sessions are searched for one that is active in the same directory.
const LATEST: u64 = 100;

async fn start(
    plan: &RunPlan,
    flags: &RunFlags,
    directory: Option<&str>,
    client: &mut Client,
) -> Result<String, CliError> {
    let key = flags.idempotency_key.clone().unwrap_or_else(|| format!("key_{}", Ulid::generate()));
    let repository = directory.and_then(|directory| Repository::find(Path::new(directory)));
    let request = Request::start_session(&key)
        .with("mode", if flags.headless { "headless" } else { "interactive" })
        .with_some("provider", plan.provider.clone())
        .with_some("model", plan.model.clone())
        .with_some("cwd", directory)
        .with_some("name", flags.name.clone())
        .with_some("sandboxProvider", flags.sandbox.clone())
        .with_some("repo", repository.map(|repository| repository.to_json()))
        .with("metadata", json!({"source": "cli"}))
        .with_environment(client.environment());
    Ok(client.request(request).await?.session_id)
}

/// Returns the absolute path of the directory in which steps run.
pub(super) fn resolve_directory(said: Option<&Path>) -> Result<String, CliError> {
    let (path, what) = match said {
        Some(path) => (path.canonicalize(), path.display().to_string()),
        None => (std::env::current_dir(), "the current directory".to_owned()),
    };
    let path = path.map_err(|source| CliError::Usage(format!("cannot use {what}: {source}")))?;
    if !path.is_dir() {
        return Err(CliError::Usage(format!("{what} is not a directory")));
    }
    let path = path.into_os_string().into_string();
    path.map_err(|_| CliError::Usage(format!("the path of {what} is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit::Exit;

    #[test]
    fn a_run_needs_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "").unwrap();
        assert!(resolve_directory(Some(dir.path())).unwrap().starts_with('/') || cfg!(windows));
        assert_eq!(resolve_directory(Some(&file)).unwrap_err().exit(), Exit::USAGE);
        assert_eq!(resolve_directory(Some(&dir.path().join("no"))).unwrap_err().exit(), Exit::USAGE);
    }
}
