//! Which paths of a workspace a model's tools may access, and which further paths a person approved.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::closed::Closed;
use super::{ClosedBy, ClosedPaths, FileId, Ground, GroundError, Reach};
use crate::sandbox::confine::HiddenEntries;
use crate::sandbox::confine::entries::folded;

impl Ground {
    /// Denies tools access to files and directories under every alias; they need not exist.
    ///
    /// It reads the file system. With [`Reach::Anywhere`] nothing is denied.
    #[must_use]
    pub fn closing(self, paths: &ClosedPaths) -> Self {
        let closed = match self.reach {
            Reach::Workspace => Closed::of(paths, &self.path),
            Reach::Anywhere => Closed::default(),
        };
        Self { closed: Arc::new(closed), ..self }
    }

    /// Approves access to the hidden entries that these paths lead to. It resolves links.
    #[must_use]
    pub fn approving(self, paths: &[String]) -> Self {
        let hidden = |path: &PathBuf| self.closed.entries().hides(path);
        let approved: Arc<[PathBuf]> =
            paths.iter().map(|path| self.real(Path::new(path))).filter(hidden).collect();
        Self { approved, ..self }
    }

    /// Returns the approved hidden entries: their resolved paths, in the order in which they were named.
    pub fn approved(&self) -> &[PathBuf] {
        &self.approved
    }

    /// Returns every home of the user, both as named and without links.
    pub fn homes(&self) -> &[PathBuf] {
        self.closed.homes()
    }

    /// Returns the entries of a workspace that is a home which are hidden from commands.
    pub fn hidden_entries(&self) -> &HiddenEntries {
        self.closed.entries()
    }

    /// Refuses a path that names something denied, lexically. Links are checked when the path is opened.
    pub fn may_name(&self, path: &Path) -> Result<(), GroundError> {
        self.not_closed(path, || Ok(self.plain(path)), None)
    }

    /// Refuses a path that leads to something denied, lexically or through links, without opening it.
    pub fn may_reach(&self, path: &Path) -> Result<(), GroundError> {
        self.may_name(path)?;
        self.not_closed(path, || Ok(self.real(path)), None)
    }

    /// Refuses a denied path: by its resolved path, by its parent directories, and by its identity.
    pub(super) fn not_closed(
        &self,
        path: &Path,
        place: impl FnOnce() -> io::Result<PathBuf>,
        id: Option<FileId>,
    ) -> Result<(), GroundError> {
        if self.closed.is_empty() {
            return Ok(());
        }
        let place = place().map_err(GroundError::of("resolve", path))?;
        let whole = self.path.join(&place);
        let ids = || {
            let inner = whole.strip_prefix(&self.path).unwrap_or(&place);
            let above = inner.ancestors().filter(|above| !above.as_os_str().is_empty());
            let above = above.filter_map(|above| self.root.id_below(above));
            id.into_iter().chain(above).chain(self.file_id().ok()).collect()
        };
        let hidden =
            |closed: &Path, why| GroundError::Hidden { path: path.into(), closed: closed.into(), why };
        if let Some((closed, why)) = self.closed.around(&whole, &ids) {
            return Err(hidden(closed, why));
        }
        if self.is_withheld(&whole) {
            return Err(hidden(&whole, ClosedBy::Unapproved));
        }
        Ok(())
    }

    /// Returns whether a path without links is a hidden entry, or lies in one, that is not approved.
    pub(super) fn is_withheld(&self, path: &Path) -> bool {
        let is_in = |approved: &PathBuf| folded(path).starts_with(folded(approved));
        self.closed.entries().hides(path) && !self.approved.iter().any(is_in)
    }
}
