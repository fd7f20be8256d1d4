//! Child sessions: a new conversation and a fork; the conversation of another file; and the export as a page.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::warn;

use super::{Execution, OperationReply, Result};
use crate::kernel::command::{Answer, Command, Snapshot};
use crate::kernel::event::{Branch, Opening};
use crate::kernel::id::{Seq, SessionId};
use crate::kernel::refusal::Refusal;
use crate::protocol::command_protocol::{Heading, Notice};
use crate::protocol::error::ErrorBody;
use crate::protocol::operation_result::{OperationError, OperationResult};
use crate::runtime::commands::file_sync::{self, FileGuard};
use crate::runtime::commands::session_view::SessionView;
use crate::runtime::commands::session_views::ViewLease;
use crate::runtime::forks;
use crate::runtime::generate;
use crate::runtime::lane::ChangePosition;
use crate::runtime::server::stopping_error;
use crate::runtime::session_files::index::FileRecord;
use crate::runtime::workspace::{self, SessionWorkspaceError};

impl Execution {
    /// Starts a child session without messages, in which the connection continues.
    pub(super) async fn new_conversation(&self, parent: Option<&str>) -> Result {
        let view = self.view().await?;
        let mut guard = view.lock_file().await;
        let snapshot = self.finish_file(&view, &mut guard).await?;
        let origin = parent.map_or_else(|| self.file_or_id(&view, &snapshot), str::to_owned);
        let child = ChildStart { at: Seq::ZERO, name: None, origin, copied: None };
        let (child, version, notices) = self.start_child(&view, &snapshot, child).await?;
        let result = OperationResult::ChildStarted(child);
        Ok(OperationReply { result, version: Some(version), notices })
    }

    /// Switches to the conversation of another file, and continues in that file.
    pub(super) async fn switch_file(&self, path: &str) -> Result {
        let view = self.view().await?;
        let mut guard = view.lock_file().await;
        let stored = self.read_file(path).await?;
        self.finish_file(&view, &mut guard).await?;
        let next = file_sync::imported_file(&self.service, view.session(), Path::new(path));
        let version = self.branch_to_file(&view, next, self.request.command.if_version).await?;
        self.import_conversation(&view, &stored).await?;
        Ok(OperationReply::at(OperationResult::ConversationSwitched, version))
    }

    /// Starts a child session with the conversation before a user message, in which the connection continues, and
    /// returns the text of the message.
    pub(super) async fn fork(&self, entry: &str) -> Result {
        let view = self.view().await?;
        let mut guard = view.lock_file().await;
        let snapshot = self.finish_file(&view, &mut guard).await?;
        let Some(point) = view.read(|projection| projection.fork_point(entry)) else {
            return Err(OperationError::UnknownForkEntry);
        };
        let file = file_sync::current(&self.service, view.session(), &snapshot);
        let stored = match &file {
            // If the file cannot be read nothing is copied, and the new file is written from the journal.
            Some(file) => file_sync::read(&self.service, &file.path).await.ok().flatten(),
            None => None,
        };
        let id_prefix = file_sync::id_prefix(view.session());
        let state = file_sync::file_state(&id_prefix, &snapshot, stored.as_ref());
        let entries = view.read(|projection| projection.file_path_before(state, entry));
        let copied = file.filter(|_| !entries.is_empty()).map(|file| (file.path, entries));
        let (name, origin) = (snapshot.name.clone(), self.file_or_id(&view, &snapshot));
        let child = ChildStart { at: point.branch.until, name, origin, copied };
        let (child, version, notices) = self.start_child(&view, &snapshot, child).await?;
        let result = OperationResult::Forked { text: point.text, child };
        Ok(OperationReply { result, version: Some(version), notices })
    }

    /// Starts a child session. The connection that asked for it continues in the child under the id of the parent; the
    /// parent itself does not change.
    async fn start_child(
        &self,
        parent: &Arc<SessionView>,
        snapshot: &Snapshot,
        start: ChildStart,
    ) -> Result<(SessionId, u64, Vec<Notice>)> {
        if snapshot.run.is_some() {
            return Err(OperationError::Refused(Refusal::RunActive));
        }
        let server = self.service.server();
        if server.hub().is_draining() {
            return Err(OperationError::message(stopping_error().message));
        }
        let prepare = Command::PrepareFork { at: Some(start.at) };
        let Answer::ForkPrepared(point) = self.step(parent, prepare).await?.answer else {
            return Err(OperationError::Internal);
        };
        let failed = |body: ErrorBody| OperationError::message(body.message);
        let inherited = forks::inherit(server, parent.session(), &point).await.map_err(failed)?;
        let id = generate::session();
        let slot = self.reserve_slot(&id)?;
        server.create_lane(&id).map_err(failed)?;
        let view = self.service.create_view(id.clone());
        let mode = self.service.protocol().name().to_owned();
        let opening = Opening { mode, ..point.opening(parent.session().clone(), start.name.clone()) };
        let open = forks::open_command(&point, opening, inherited);
        if let Err(error) = self.open_child(&view, open).await {
            self.service.release_view(&view).await;
            return Err(error);
        }
        let lease = ViewLease::new(&view);
        slot.keep();
        let (snapshot, version) = self.service.describe(&view, None, &self.peer).await?;
        let file = view.lock_file().await;
        self.service.register_view(&view);
        if let Err(error) = self.write_child_file(&id, &snapshot, start).await {
            let error = self.service.error_text(&error);
            warn!(session = %id, %error, "the file of a child session is written from the journal");
        }
        drop(file);
        let label = self.label()?;
        parent.unsubscribe(self.outbox.id());
        self.subscribe_to(&view, label);
        self.peer.continue_in(label, &id);
        let notices = vec![Notice::SessionCreated(Box::new(self.info(&lease, &snapshot)))];
        Ok((id, version, notices))
    }

    /// Opens a child session, whose view follows all its events.
    async fn open_child(&self, view: &Arc<SessionView>, open: Command) -> Result<()> {
        self.request_part(view, open, None, ChangePosition::Last).await?;
        self.service.attach_view(view, &self.peer).await
    }

    /// Assigns a child session its file, and copies the inherited entries of its parent's file.
    async fn write_child_file(&self, child: &SessionId, snapshot: &Snapshot, start: ChildStart) -> Result<()> {
        let file = file_sync::choose_child_file(&self.service, child, snapshot, start.origin).await?;
        match start.copied {
            Some((from, entries)) => file_sync::copy_before(&self.service, &from, file, entries).await,
            None => Ok(()),
        }
    }

    /// Returns the path of a session's file, or its id if it has none.
    fn file_or_id(&self, view: &SessionView, snapshot: &Snapshot) -> String {
        self.file_of(view.session(), snapshot).unwrap_or_else(|| view.session().as_str().to_owned())
    }

    /// Exports the conversation as a page in the session's working directory.
    pub(super) async fn export(&self, path: Option<&str>) -> Result {
        let view = self.view().await?;
        let (snapshot, _) = self.describe(&view).await?;
        let cwd = PathBuf::from(&snapshot.opening.cwd);
        let path = match path {
            Some(path) => path_in_workspace(&cwd, Path::new(path))?,
            None => {
                let protocol = self.service.protocol().name();
                PathBuf::from(format!("{protocol}-session-{}.html", safe_name(view.session().as_str())))
            }
        };
        let heading = Heading {
            session: view.session().clone(),
            name: snapshot.name.clone(),
            cwd: snapshot.opening.cwd.clone(),
            at: self.service.now(),
        };
        let page = view.read(|projection| projection.export(&heading));
        let (target, below, workspace) = (cwd.join(&path), path.clone(), cwd.clone());
        let known = snapshot.adjusted.workspace.clone().or_else(|| snapshot.opening.workspace.clone());
        let write = move || -> std::result::Result<(), SessionWorkspaceError> {
            let (workspace_dir, _) = workspace::open(&cwd, known.as_ref())?;
            workspace_dir.replace(&below, page.as_bytes())?;
            Ok(())
        };
        let written = self.run_blocking(&workspace, write).await?;
        written.map_err(|error| OperationError::message(format!("the page cannot be written: {error}")))?;
        let result = OperationResult::Exported(target.to_string_lossy().into_owned());
        let version = self.bump_version(&view, &result).await?;
        Ok(OperationReply::at(result, version))
    }

    /// Writes the conversation to the current file before another is chosen, and returns the snapshot.
    ///
    /// A file that cannot be read or written is left as it is: the journal is complete.
    async fn finish_file(&self, view: &Arc<SessionView>, guard: &mut FileGuard<'_>) -> Result<Arc<Snapshot>> {
        let (snapshot, _) = self.describe(view).await?;
        self.synchronize_in(view, guard).await;
        Ok(snapshot)
    }

    /// Starts an empty conversation in the session, which continues in another file; returns the session's version.
    pub(super) async fn branch_to_file(
        &self,
        view: &Arc<SessionView>,
        file: FileRecord,
        version: Option<u64>,
    ) -> Result<u64> {
        let (snapshot, _) = self.service.describe(view, version, &self.peer).await?;
        file_sync::choose_after_branch(&self.service, file, snapshot.last_seq).await?;
        let branch = Branch { until: Seq::ZERO, from: snapshot.last_seq.next() };
        let left = self.request_part(view, Command::Branch(branch), version, ChangePosition::Step).await;
        // If it cannot be written now, it is resolved from the journal at the next synchronization.
        if let Err(error) = file_sync::resolve_branch(&self.service, view.session(), left.is_ok()).await {
            warn!(session = %view.session(), %error, "the file assignment of a session is resolved later");
        }
        Ok(left?.version)
    }
}

/// How a child session starts.
struct ChildStart {
    /// The last event that it inherits.
    at: Seq,
    name: Option<String>,
    /// What its file names as its parent.
    origin: String,
    /// The file of the parent, and the entries that are copied from it.
    copied: Option<(PathBuf, Vec<String>)>,
}

/// Returns a path relative to the working directory of the session.
fn path_in_workspace(cwd: &Path, path: &Path) -> Result<PathBuf> {
    let below = if path.is_absolute() { path.strip_prefix(cwd).ok() } else { Some(path) };
    let below = below.filter(|below| crate::sandbox::workspace::stays_beneath(below));
    below.map(Path::to_path_buf).ok_or(OperationError::ExportPathOutside)
}

/// Converts an id to a file name.
fn safe_name(id: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() || "-_".contains(letter) { letter } else { '_' };
    id.chars().take(100).map(letter).collect()
}
