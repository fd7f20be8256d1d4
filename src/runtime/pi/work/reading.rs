//! Looks at a session: its state, its conversation, its numbers.

use super::{Done, Job, Result};
use crate::protocol::pi::encode::{self, ContextUsage};

impl Job {
    pub(super) async fn state(&self) -> Result {
        let seat = self.seat().await?;
        let (snapshot, version) = self.describe(&seat).await?;
        Ok(Done::at(encode::state(&self.info(&seat, &snapshot)), version))
    }

    pub(super) async fn messages(&self) -> Result {
        let seat = self.seat().await?;
        let (_, version) = self.describe(&seat).await?;
        let data = seat.tell(|story| encode::messages(story.messages()));
        Ok(Done::at(data, version))
    }

    pub(super) async fn stats(&self) -> Result {
        let seat = self.seat().await?;
        let (snapshot, version) = self.describe(&seat).await?;
        let file = self.file_of(seat.session(), &snapshot);
        let stats = seat.tell(|story| story.stats());
        Ok(Done::at(encode::session_stats(seat.session(), file.as_deref(), &stats), version))
    }

    pub(super) async fn fork_messages(&self) -> Result {
        let seat = self.seat().await?;
        let (_, version) = self.describe(&seat).await?;
        Ok(Done::at(encode::fork_messages(&seat.tell(|story| story.fork_messages())), version))
    }

    pub(super) async fn last_text(&self) -> Result {
        let seat = self.seat().await?;
        let (_, version) = self.describe(&seat).await?;
        let text = seat.tell(|story| story.last_text());
        Ok(Done::at(encode::last_text(text.as_deref()), version))
    }

    pub(super) async fn context_usage(&self) -> Result {
        let seat = self.seat().await?;
        let (snapshot, version) = self.describe(&seat).await?;
        let tokens = seat.tell(|story| story.context_tokens());
        // Nobody but a model has a window.
        let model = self.session_model(&snapshot).filter(|model| model.context_window > 0);
        let usage = model.map(|model| ContextUsage { tokens, window: model.context_window });
        Ok(Done::at(encode::context_usage(usage), version))
    }
}
