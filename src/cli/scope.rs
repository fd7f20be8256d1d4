//! Which sessions a verb is about, and since when: `--here`, `--repo` and `--since`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::context::now;
use super::duration;
use super::exit::CliError;
use super::sanitize::sanitize_line;
use crate::client::{Client, Repository, Request, SessionItem};

/// Which sessions, and since when.
#[derive(Debug, clap::Args)]
pub(crate) struct ScopeArgs {
    /// Only sessions of this repository, or of this directory
    #[arg(long)]
    here: bool,
    /// Only sessions in this directory or below it
    #[arg(long, value_name = "DIR", conflicts_with = "here")]
    repo: Option<PathBuf>,
    /// Only what happened within this time, such as 2h or 7d
    #[arg(long, value_name = "AGE", value_parser = duration::age)]
    since: Option<Duration>,
}

/// A resolved scope.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Scope {
    /// The time in milliseconds since 1970.
    pub(crate) since: Option<u64>,
    directory: Option<String>,
}

impl Scope {
    /// Returns whether a session is in the directory, or belongs to the repository there, and was used since the time.
    pub(crate) fn includes(&self, item: &SessionItem) -> bool {
        let is_in = |directory: &String| {
            Path::new(&item.cwd).starts_with(directory) || item.repo.root_path.as_ref() == Some(directory)
        };
        self.directory.as_ref().is_none_or(is_in) && self.since <= item.updated_at
    }
}

impl ScopeArgs {
    /// Adds the scope to a request.
    pub(crate) fn add_to<R: DeserializeOwned>(
        &self,
        request: Request<R>,
        client: &Client,
    ) -> Result<Request<R>, CliError> {
        let Scope { since, directory } = self.resolve(client)?;
        Ok(request.with_some("since", since).with_some("directory", directory))
    }

    /// Resolves the directory and the time.
    pub(crate) fn resolve(&self, client: &Client) -> Result<Scope, CliError> {
        let millis = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let since = self.since.map(|age| now().saturating_sub(millis(age)));
        Ok(Scope { since, directory: self.directory(client)? })
    }

    fn directory(&self, client: &Client) -> Result<Option<String>, CliError> {
        let typed = match &self.repo {
            // A path of another machine is not resolved here.
            Some(path) if client.host().is_some() => return Ok(Some(path.to_string_lossy().into_owned())),
            Some(path) => path.clone(),
            None if !self.here => return Ok(None),
            None if client.host().is_some() => {
                return Err(CliError::Usage(
                    "--here is a directory of this machine; name one there with --repo".into(),
                ));
            }
            None => PathBuf::from("."),
        };
        let failed = |source| CliError::File { action: "find", what: sanitize_line(&typed.to_string_lossy()), source };
        let directory = typed.canonicalize().map_err(failed)?;
        let root = if self.here { Repository::find(&directory).map(|found| found.root) } else { None };
        Ok(Some(root.unwrap_or(directory).to_string_lossy().into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_a_directory_with_what_is_below_it_or_a_repository_and_a_time() {
        let item = |cwd: &str, root: Option<&str>, updated_at| {
            let mut item = SessionItem { cwd: cwd.into(), updated_at, ..SessionItem::default() };
            item.repo.root_path = root.map(str::to_owned);
            item
        };
        let scope = Scope { since: Some(5), directory: Some("/p".into()) };
        assert!(scope.includes(&item("/p", None, Some(5))) && scope.includes(&item("/p/q", None, Some(6))));
        assert!(scope.includes(&item("/worktree", Some("/p"), Some(5))), "a worktree of the repository");
        assert!(!scope.includes(&item("/pq", None, Some(5))), "another directory");
        assert!(!scope.includes(&item("/p", None, Some(4))) && !scope.includes(&item("/p", None, None)));
        assert!(Scope::default().includes(&item("/x", None, None)));
    }
}
