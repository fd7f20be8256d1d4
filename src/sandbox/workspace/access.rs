//! Which paths of a workspace a model's tools may access, and which further paths a person approved.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::deny_list::DenyList;
use super::{DeniedPaths, DenyReason, FileId, ReachPolicy, WorkspaceDir, WorkspaceError};
use crate::sandbox::confinement::HiddenEntries;
use crate::sandbox::confinement::entries::normalize_lowercase;

impl WorkspaceDir {
    /// Denies tools access to files and directories under every alias; they need not exist.
    ///
    /// It reads the file system. With [`ReachPolicy::Anywhere`] nothing is denied.
    #[must_use]
    pub fn with_denied_paths(self, paths: &DeniedPaths) -> Self {
        let closed = match self.reach {
            ReachPolicy::Workspace => DenyList::resolve(paths, &self.path),
            ReachPolicy::Anywhere => DenyList::default(),
        };
        Self { denied: Arc::new(closed), ..self }
    }

    /// Approves access to the hidden entries that these paths lead to. It resolves links.
    #[must_use]
    pub fn with_approved_paths(self, paths: &[String]) -> Self {
        let hidden = |path: &PathBuf| self.denied.hidden_entries().hides(path);
        let approved: Arc<[PathBuf]> =
            paths.iter().map(|path| self.resolve_links(Path::new(path))).filter(hidden).collect();
        Self { approved_paths: approved, ..self }
    }

    /// Returns the approved hidden entries: their resolved paths, in the order in which they were named.
    pub fn approved_paths(&self) -> &[PathBuf] {
        &self.approved_paths
    }

    /// Returns every home of the user, both as named and without links.
    pub fn homes(&self) -> &[PathBuf] {
        self.denied.homes()
    }

    /// Returns the entries of a workspace that is a home which are hidden from commands.
    pub fn hidden_entries(&self) -> &HiddenEntries {
        self.denied.hidden_entries()
    }

    /// Refuses a path that names something denied, lexically. Links are checked when the path is opened.
    pub fn check_name(&self, path: &Path) -> Result<(), WorkspaceError> {
        self.check_not_denied(path, || Ok(self.normalize(path)), None)
    }

    /// Refuses a path that leads to something denied, lexically or through links, without opening it.
    pub fn check_resolved(&self, path: &Path) -> Result<(), WorkspaceError> {
        self.check_name(path)?;
        self.check_not_denied(path, || Ok(self.resolve_links(path)), None)
    }

    /// Refuses a denied path: by its resolved path, by its parent directories, and by its identity.
    pub(super) fn check_not_denied(
        &self,
        path: &Path,
        resolved: impl FnOnce() -> io::Result<PathBuf>,
        id: Option<FileId>,
    ) -> Result<(), WorkspaceError> {
        if self.denied.is_empty() {
            return Ok(());
        }
        let resolved = resolved().map_err(WorkspaceError::from_io("resolve", path))?;
        let absolute = self.path.join(&resolved);
        let ids = || {
            let inner = absolute.strip_prefix(&self.path).unwrap_or(&resolved);
            let above = inner.ancestors().filter(|above| !above.as_os_str().is_empty());
            let above = above.filter_map(|above| self.root.id_below(above));
            id.into_iter().chain(above).chain(self.file_id().ok()).collect()
        };
        let hidden = |closed: &Path, why| WorkspaceError::Hidden { path: path.into(), closed: closed.into(), why };
        if let Some((closed, why)) = self.denied.find_denied(&absolute, &ids) {
            return Err(hidden(closed, why));
        }
        if self.is_hidden_and_unapproved(&absolute) {
            return Err(hidden(&absolute, DenyReason::Unapproved));
        }
        Ok(())
    }

    /// Returns whether a path without links is a hidden entry, or lies in one, that is not approved.
    pub(super) fn is_hidden_and_unapproved(&self, path: &Path) -> bool {
        let is_in = |approved: &PathBuf| normalize_lowercase(path).starts_with(normalize_lowercase(approved));
        self.denied.hidden_entries().hides(path) && !self.approved_paths.iter().any(is_in)
    }
}
