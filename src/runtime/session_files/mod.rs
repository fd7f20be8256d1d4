//! The Pi session files of the user, and the index that assigns them to sessions.

pub mod index;
pub mod store;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::warn;

use self::index::{IndexError, SessionFileIndex};
use self::store::Store;
use super::services::Services;
use crate::bounded_io::FileTaskError;
use crate::kernel::id::SessionId;
use crate::kernel::time::Now;
use crate::protocol::reply::SessionFileRow;

/// The Pi session files of the user.
#[derive(Debug)]
pub struct SessionFiles {
    /// The files.
    pub store: Store,
    /// The assignment of files to sessions.
    pub index: SessionFileIndex,
}

impl SessionFiles {
    /// Opens the store in a home directory, and loads the index from a state directory.
    pub fn new(home: &Path, state: &Path) -> Self {
        let index = SessionFileIndex::new(state);
        if let Err(error) = index.load() {
            warn!(%error, "cannot read the index of session files");
        }
        Self { store: Store::new(home), index }
    }

    /// Returns the existing files of a session.
    fn files_of(&self, session: &SessionId, opened_at: Option<Now>) -> Result<Vec<SessionFileRow>, IndexError> {
        let mut found: Vec<(PathBuf, bool)> = Vec::new();
        for record in self.index.files_of(session.as_str())? {
            found.push((record.path, record.created.is_some()));
        }
        // A file that is older than the index is found by its name.
        let own = opened_at.and_then(|opened_at| self.store.find(session.as_str(), opened_at));
        found.extend(own.filter(|own| found.iter().all(|(path, _)| path != own)).map(|path| (path, true)));
        let row = |(path, created): (PathBuf, bool)| {
            let bytes = self.store.size(&path).ok().flatten()?;
            let path = path.to_string_lossy().into_owned();
            Some(SessionFileRow { path, bytes, created, removed: false, problem: None })
        };
        Ok(found.into_iter().filter_map(row).collect())
    }

    /// Removes the files that were created for a session, or all of them, and their index records.
    fn remove(
        &self,
        session: &SessionId,
        opened_at: Option<Now>,
        with_imported: bool,
    ) -> Result<Vec<SessionFileRow>, IndexError> {
        let mut rows = self.files_of(session, opened_at)?;
        let others: Vec<_> = self.index.all()?;
        let is_shared =
            |path: &Path| others.iter().any(|other| other.session_id != session.as_str() && other.path == path);
        for row in rows.iter_mut().filter(|row| row.created || with_imported) {
            let path = Path::new(&row.path);
            if is_shared(path) {
                row.problem = Some("another session uses it".to_owned());
                continue;
            }
            match self.store.remove(path) {
                Ok(_) => row.removed = true,
                Err(error) => row.problem = Some(error.to_string()),
            }
        }
        // Files that could not be removed stay in the index for a later attempt. Imported files belong to the user.
        let stays = |row: &&SessionFileRow| !row.removed && row.created && !is_shared(Path::new(&row.path));
        let stay: Vec<&Path> = rows.iter().filter(stays).map(|row| Path::new(&row.path)).collect();
        self.index.forget(session.as_str(), &stay)?;
        Ok(rows)
    }
}

/// Lists the files of a session.
pub(super) async fn list(services: &Arc<Services>, session: &SessionId, opened_at: Option<Now>) -> Vec<SessionFileRow> {
    let (services, id) = (Arc::clone(services), session.clone());
    let (files, directory) = (services.files.clone(), services.session_files.store.directory());
    rows_or_problem(session, files.run_in(&directory, move || services.session_files.files_of(&id, opened_at)).await)
}

/// Removes the files that were created for a deleted session; imported files only with `with_imported`.
pub(super) async fn remove(
    services: &Arc<Services>,
    session: &SessionId,
    opened_at: Option<Now>,
    with_imported: bool,
) -> Vec<SessionFileRow> {
    let (services, id) = (Arc::clone(services), session.clone());
    let (files, directory) = (services.files.clone(), services.session_files.store.directory());
    let remove = move || services.session_files.remove(&id, opened_at, with_imported);
    rows_or_problem(session, files.run_in(&directory, remove).await)
}

/// Returns the rows; a failure becomes a row with a problem.
fn rows_or_problem(
    session: &SessionId,
    found: Result<Result<Vec<SessionFileRow>, IndexError>, FileTaskError>,
) -> Vec<SessionFileRow> {
    let problem = match found {
        Ok(Ok(rows)) => return rows,
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    warn!(%session, %problem, "cannot list the session files of a session");
    let path = crate::runtime::session_files::index::NAME.to_owned();
    vec![SessionFileRow { path, bytes: 0, created: true, removed: false, problem: Some(problem) }]
}

/// Returns the home directory of the user.
pub(super) fn home() -> PathBuf {
    std::env::home_dir().unwrap_or_else(|| PathBuf::from("/"))
}
