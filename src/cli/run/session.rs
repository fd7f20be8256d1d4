//! The session of a run: a new one, or one to continue.

use std::path::{Path, PathBuf};

use serde_json::json;
use ulid::Ulid;

use super::{RunFlags, RunPlan};
use crate::cli::answer::AnswerSource;
use crate::cli::context::Context;
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

    /// Returns the directory in which steps run, for people.
    pub(super) fn directory(&self) -> String {
        self.directory.display().to_string()
    }

    /// Warns if the run works in another directory than the current one, or if another session is active there.
    pub(super) fn warn_about_directory(&self, flags: &RunFlags, context: &mut Context) {
        let here = std::env::current_dir().and_then(|path| path.canonicalize()).unwrap_or_default();
        let is_elsewhere = !context.is_remote() && self.directory != here;
        let console = &mut context.console;
        if flags.session.is_some() && is_elsewhere {
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
    let (id, other_session) = match &flags.session {
        Some(typed) => (ids::resolve_session(client, typed).await?, None),
        None => {
            let other_session = find_active_session(directory, client).await?;
            let id = start(plan, flags, directory, client).await?;
            // The daemon already sends its first events, and those of a repeated run.
            client.track(&id, 0);
            // With a repeated key it may be the session itself.
            let other_session = other_session.filter(|other_session| *other_session != id);
            (id, other_session)
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
    Ok(RunSession { id, seen, provider, directory, other_session })
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
    // Files of another machine cannot be read.
    let local = directory.filter(|_| client.host().is_none());
    let repository = local.and_then(|directory| Repository::find(Path::new(directory)));
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
pub(in crate::cli) fn resolve_directory(directory: Option<&Path>) -> Result<String, CliError> {
    let (path, what) = match directory {
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

/// Returns the absolute path of a directory on another machine; a relative one is in the home directory there.
pub(in crate::cli) fn resolve_remote_directory(
    directory: Option<&Path>,
    home: Option<&str>,
) -> Result<String, CliError> {
    let path_arg = directory.unwrap_or(Path::new("")).to_str();
    let path_arg =
        path_arg.ok_or_else(|| CliError::Usage("with --host, the path after --cwd must be UTF-8".to_owned()))?;
    // A shell of this machine does not expand a quoted `~`.
    let path_arg = path_arg.strip_prefix("~/").unwrap_or(if path_arg == "~" { "" } else { path_arg });
    // A path of Windows begins with a drive or a share.
    if path_arg.starts_with(['/', '\\']) || path_arg.get(1..2) == Some(":") {
        return Ok(path_arg.to_owned());
    }
    match (home, path_arg) {
        (Some(home), "") => Ok(home.to_owned()),
        (Some(home), path_arg) => Ok(format!("{}/{path_arg}", home.trim_end_matches('/'))),
        (None, _) => Err(CliError::Usage(
            "the daemon there does not report its home directory; name an absolute path with --cwd".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit::Exit;

    #[test]
    fn a_relative_directory_of_another_machine_is_in_its_home() {
        let resolve =
            |path_arg: Option<&str>| resolve_remote_directory(path_arg.map(Path::new), Some("/home/ann")).unwrap();
        for (path_arg, path) in [
            (None, "/home/ann"),
            (Some("~"), "/home/ann"),
            (Some("project"), "/home/ann/project"),
            (Some("~/project"), "/home/ann/project"),
            (Some("/srv"), "/srv"),
            (Some("C:\\srv"), "C:\\srv"),
        ] {
            assert_eq!(resolve(path_arg), path, "{path_arg:?}");
        }
        assert_eq!(resolve_remote_directory(None, None).unwrap_err().exit(), Exit::USAGE);
    }

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
