//! Going elsewhere with a conversation: to its beginning, to an earlier message, to a file, to a page.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::discovering::away;
use super::{Done, Failure, Job, Result};
use crate::adapter::pi::encode;
use crate::adapter::pi::story::{Heading, export_html};
use crate::adapter::pi::text;
use crate::daemon::pi::desk::Answered;
use crate::daemon::pi::files::Minted;
use crate::daemon::pi::seat::Seat;
use crate::kernel::command::Command;
use crate::kernel::event::Branch;
use crate::kernel::id::Seq;
use crate::sandbox::ground::{Ground, GroundError, Reach};

impl Job {
    /// Begins a conversation of which the model is told nothing of the one before.
    pub(super) async fn new_session(&self) -> Result {
        let seat = self.seat().await?;
        let version = self.begin_anew(&seat).await?;
        Ok(Done::at(encode::moved(), version))
    }

    pub(super) async fn switch_session_file(&self, path: &str) -> Result {
        let seat = self.seat().await?;
        let stored = self.read_file(path).await?;
        let taken_in = stored.conversation().into_import(&mut Minted).import;
        let version = self.begin_anew(&seat).await?;
        self.ask_further(&seat, Command::Import(Box::new(taken_in))).await?;
        Ok(Done::at(encode::moved(), version))
    }

    /// Goes back to before a message of the user's, and returns what it said.
    pub(super) async fn fork(&self, entry: &str) -> Result {
        let seat = self.seat().await?;
        self.describe(&seat).await?;
        let Some(point) = seat.tell(|story| story.fork_point(entry)) else {
            return Err(Failure::said("Invalid entry ID for forking"));
        };
        let branch = Branch { until: point.until, from: point.from };
        let Answered { version, .. } = self.ask(&seat, Command::Branch(branch)).await?;
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
        let (place, below) = (cwd.join(&path), path.clone());
        away(move || Ground::open(&cwd, Reach::Workspace)?.replace(&below, page.as_bytes()))
            .await?
            .map_err(|error: GroundError| Failure::said(format!("the page cannot be written: {error}")))?;
        let version = self.touch(&seat).await?;
        Ok(Done::at(encode::exported(&place.to_string_lossy()), version))
    }

    /// Leaves the conversation behind, and returns the session's version.
    async fn begin_anew(&self, seat: &Arc<Seat>) -> Result<u64> {
        let (snapshot, _) = self.describe(seat).await?;
        let branch = Branch { until: Seq::ZERO, from: snapshot.last_seq.next() };
        Ok(self.ask(seat, Command::Branch(branch)).await?.version)
    }
}

/// Returns a path below the session's directory, as it is called there.
fn within(cwd: &Path, path: &Path) -> Result<PathBuf> {
    let below = if path.is_absolute() { path.strip_prefix(cwd).ok() } else { Some(path) };
    let below = below.filter(|below| crate::sandbox::ground::stays_beneath(below));
    let outside = || Failure::said(text::invalid("outputPath", "must be inside the session's directory"));
    below.map(Path::to_path_buf).ok_or_else(outside)
}

/// Makes a name of a file of an id.
fn safe_name(id: &str) -> String {
    let letter =
        |letter: char| if letter.is_ascii_alphanumeric() || "-_".contains(letter) { letter } else { '_' };
    id.chars().take(100).map(letter).collect()
}
