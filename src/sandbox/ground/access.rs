//! Which paths of a workspace are open to a model's tools, and what a person has approved beside them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::closed::Closed;
use super::{ClosedBy, ClosedPaths, FileId, Ground, GroundError, Reach};
use crate::sandbox::confine::HiddenEntries;
use crate::sandbox::confine::entries::folded;

impl Ground {
    /// Closes files and directories to tools, under every name; they need not exist.
    ///
    /// It looks at the files. The user's own words are not held back.
    #[must_use]
    pub fn closing(self, paths: &ClosedPaths) -> Self {
        let closed = match self.reach {
            Reach::Workspace => Closed::of(paths, &self.path),
            Reach::Anywhere => Closed::default(),
        };
        Self { closed: Arc::new(closed), ..self }
    }

    /// Opens the hidden entries to which these paths lead, as somebody was or is to be asked about them; it looks at links.
    #[must_use]
    pub fn approving(self, paths: &[String]) -> Self {
        let hidden = |path: &PathBuf| self.closed.entries().hides(path);
        let approved: Arc<[PathBuf]> =
            paths.iter().map(|path| self.real(Path::new(path))).filter(hidden).collect();
        Self { approved, ..self }
    }

    /// Returns the hidden entries that are approved: where they really are, in the order in which they were named.
    pub fn approved(&self) -> &[PathBuf] {
        &self.approved
    }

    /// Returns every home of the user, as it is named and without links.
    pub fn homes(&self) -> &[PathBuf] {
        self.closed.homes()
    }

    /// Returns the entries of the workspace that are hidden from commands, as it is a home.
    pub fn hidden_entries(&self) -> &HiddenEntries {
        self.closed.entries()
    }

    /// Refuses a path whose words lead to something closed; links are found when it is opened.
    pub fn may_name(&self, path: &Path) -> Result<(), GroundError> {
        self.not_closed(path, || Ok(self.plain(path)), None)
    }

    /// Refuses a path that leads to something closed, by its words or by links; nothing is opened.
    pub fn may_reach(&self, path: &Path) -> Result<(), GroundError> {
        self.may_name(path)?;
        self.not_closed(path, || Ok(self.real(path)), None)
    }

    /// Refuses what is closed: by where it really is, by the directories it lies in, and by what it is itself.
    pub(super) fn not_closed(
        &self,
        path: &Path,
        place: impl FnOnce() -> io::Result<PathBuf>,
        id: Option<FileId>,
    ) -> Result<(), GroundError> {
        if self.closed.is_empty() {
            return Ok(());
        }
        let place = place().map_err(GroundError::of("look for", path))?;
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

    /// Tells whether a path without links is a hidden entry, or lies in one, which nobody has approved.
    pub(super) fn is_withheld(&self, path: &Path) -> bool {
        let is_in = |approved: &PathBuf| folded(path).starts_with(folded(approved));
        self.closed.entries().hides(path) && !self.approved.iter().any(is_in)
    }
}
