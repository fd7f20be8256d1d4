//! Going elsewhere with a conversation: to its beginning, to an earlier message, to a file, to a page.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::warn;

use super::{Done, Failure, Job, Result};
use crate::kernel::command::{Command, Snapshot};
use crate::kernel::event::Branch;
use crate::kernel::id::Seq;
use crate::protocol::pi::encode;
use crate::protocol::pi::error_text;
use crate::protocol::pi::projection::{Heading, export_html};
use crate::runtime::pi::file_plan::Plan;
use crate::runtime::pi::files::{self, FileTurn};
use crate::runtime::pi::seat::Seat;
use crate::runtime::session_files::index::FileRecord;
use crate::runtime::workspace::{self, SessionWorkspaceError};

impl Job {
    /// Begins a conversation of which the model is told nothing of the one before, in a file of its own.
    pub(super) async fn new_session(&self, parent: Option<&str>) -> Result {
        let seat = self.seat().await?;
        let turn = seat.file_turn().await;
        let snapshot = self.left_file(&seat, &turn).await?;
        let file = files::current(self.bureau.session_files(), seat.session(), &snapshot);
        let next = file.map(|file| {
            let parent = parent.map_or_else(|| file.path.to_string_lossy().into_owned(), str::to_owned);
            files::new_file(&self.bureau, seat.session(), &snapshot, Some(parent)).0
        });
        let version = self.leave_for(&seat, None, next, self.asked.if_session_version).await?;
        Ok(Done::at(encode::conversation_switched(), version))
    }

    /// Goes on with the conversation of another file, and in that file.
    pub(super) async fn switch_session_file(&self, path: &str) -> Result {
        let seat = self.seat().await?;
        let turn = seat.file_turn().await;
        let stored = self.read_file(path).await?;
        self.left_file(&seat, &turn).await?;
        let next = files::imported_file(&self.bureau, seat.session(), Path::new(path));
        let version = self.leave_for(&seat, None, Some(next), self.asked.if_session_version).await?;
        self.take_in(&seat, &stored).await?;
        Ok(Done::at(encode::conversation_switched(), version))
    }

    /// Goes back to before a message of the user's, in a file of its own, and returns what the message said.
    pub(super) async fn fork(&self, entry: &str) -> Result {
        let seat = self.seat().await?;
        let turn = seat.file_turn().await;
        let snapshot = self.left_file(&seat, &turn).await?;
        let Some(point) = seat.tell(|story| story.fork_point(entry)) else {
            return Err(Failure::said("Invalid entry ID for forking"));
        };
        let file = files::current(self.bureau.session_files(), seat.session(), &snapshot);
        let stored = match &file {
            // From one that cannot be read nothing is copied; the new one is written from the journal.
            Some(file) => files::read(&self.bureau, &file.path).await.ok().flatten(),
            None => None,
        };
        let path = seat.tell(|story| Plan::new(seat.session(), story, stored.as_ref()).path_before(entry));
        let branch = Branch { until: point.until, from: point.from };
        let next = file.as_ref().map(|file| {
            let parent = file.path.to_string_lossy().into_owned();
            files::new_file(&self.bureau, seat.session(), &snapshot, Some(parent))
        });
        let chosen = next.as_ref().map(|(next, _)| next.clone());
        let version = self.leave_for(&seat, Some(branch), chosen, self.asked.if_session_version).await?;
        if let (Some(file), Some((next, header))) = (file, next)
            && !path.is_empty()
        {
            let begun = (next.path, header);
            let copied = files::copy_before(&self.bureau, &file.path, begun, path).await;
            if let Err(failure) = copied {
                let error = failure.text();
                warn!(session = %seat.session(), %error, "a forked session file is written from the journal");
            }
        }
        Ok(Done::at(encode::forked(&point.text), version))
    }

    /// Writes the conversation as a page, in the session's own directory and nowhere else.
    pub(super) async fn export_html(&self, path: Option<&str>) -> Result {
        let seat = self.seat().await?;
        let (snapshot, _) = self.describe(&seat).await?;
        let cwd = PathBuf::from(&snapshot.opening.cwd);
        let path = match path {
            Some(path) => within(&cwd, Path::new(path))?,
            None => PathBuf::from(format!("pi-session-{}.html", safe_name(seat.session().as_str()))),
        };
        let heading = Heading {
            session: seat.session().clone(),
            name: snapshot.name.clone(),
            cwd: snapshot.opening.cwd.clone(),
            at: self.bureau.now(),
        };
        let page = seat.tell(|story| export_html(story, &heading));
        let (place, below, workspace) = (cwd.join(&path), path.clone(), cwd.clone());
        let known = snapshot.adjusted.workspace.clone().or_else(|| snapshot.opening.workspace.clone());
        let write = move || -> std::result::Result<(), SessionWorkspaceError> {
            let (ground, _) = workspace::open(&cwd, known.as_ref())?;
            ground.replace(&below, page.as_bytes())?;
            Ok(())
        };
        let written = self.away(&workspace, write).await?;
        written.map_err(|error| Failure::said(format!("the page cannot be written: {error}")))?;
        let version = self.touch(&seat).await?;
        Ok(Done::at(encode::exported(&place.to_string_lossy()), version))
    }

    /// Has everything written that was said so far, before another file is chosen, and looks at the session.
    ///
    /// A file that cannot be read or written is left as it is: the journal has everything.
    async fn left_file(&self, seat: &Arc<Seat>, turn: &FileTurn<'_>) -> Result<Box<Snapshot>> {
        let (snapshot, _) = self.describe(seat).await?;
        self.synchronize_in(seat, turn).await;
        Ok(snapshot)
    }

    /// Leaves the conversation behind, or the part after a branch, to go on in another file; returns the session's version.
    pub(super) async fn leave_for(
        &self,
        seat: &Arc<Seat>,
        branch: Option<Branch>,
        file: Option<FileRecord>,
        version: Option<u64>,
    ) -> Result<u64> {
        let (snapshot, _) = self.bureau.describe(seat, version, &self.peer).await?;
        if let Some(file) = file {
            files::choose_after(&self.bureau, file, snapshot.last_seq).await?;
        }
        let branch = branch.unwrap_or(Branch { until: Seq::ZERO, from: snapshot.last_seq.next() });
        let left = self.bureau.ask(seat, Command::Branch(branch), version, &self.peer).await;
        // What cannot be written now is settled by the journal before the next look at the file.
        if let Err(error) = files::settle(&self.bureau, seat.session(), left.is_ok()).await {
            warn!(session = %seat.session(), %error, "it is settled later which file a session is written to");
        }
        Ok(left?.version)
    }
}

/// Returns a path below the session's directory, as it is called there.
fn within(cwd: &Path, path: &Path) -> Result<PathBuf> {
    let below = if path.is_absolute() { path.strip_prefix(cwd).ok() } else { Some(path) };
    let below = below.filter(|below| crate::sandbox::workspace::stays_beneath(below));
    let outside = || Failure::said(error_text::invalid("outputPath", "must be inside the session's directory"));
    below.map(Path::to_path_buf).ok_or_else(outside)
}

/// Makes a name of a file of an id.
fn safe_name(id: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() || "-_".contains(letter) { letter } else { '_' };
    id.chars().take(100).map(letter).collect()
}
