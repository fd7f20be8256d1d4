//! The projection as the daemon uses it.

use std::sync::Arc;

use bytes::Bytes;

use super::{PiEvent, Projection, answer, entry, export_html};
use crate::kernel::command::Snapshot;
use crate::kernel::event::Event;
use crate::kernel::id::{GateId, Seq, SessionId};
use crate::kernel::import::Import;
use crate::kernel::time::Now;
use crate::protocol::command_protocol::{
    ConversationQuery, ForkPoint, Heading, SessionFileState, SessionProjection, Vote,
};
use crate::protocol::operation::UiResponse;
use crate::protocol::pi::encode;
use crate::protocol::pi::session_file::{Entry, Header, IdGenerator, SyncPlan};

impl SessionProjection for Projection {
    fn apply(&mut self, event: &Event) {
        Self::apply(self, event);
    }

    fn project(&mut self, session: &SessionId, events: &[Event]) -> Vec<Bytes> {
        lines(session, &Self::project(self, events))
    }

    fn open_requests(&self, session: &SessionId, now: Now) -> Vec<Bytes> {
        lines(session, &Self::open_requests(self, now))
    }

    fn query(&self, query: ConversationQuery<'_>) -> Arc<str> {
        let data = match query {
            ConversationQuery::Messages => encode::messages(self.messages()),
            ConversationQuery::ForkMessages => encode::fork_messages(&self.fork_messages()),
            ConversationQuery::LastText => encode::last_text(self.last_text().as_deref()),
            ConversationQuery::Summary => {
                self.summary().map_or_else(encode::no_data, |summary| encode::compaction(&summary))
            }
            ConversationQuery::Statistics { session, file } => encode::session_stats(session, file, &self.stats()),
        };
        data.into()
    }

    fn export(&self, heading: &Heading) -> String {
        export_html(self, heading)
    }

    fn is_streaming(&self) -> bool {
        self.run_start.is_some()
    }

    fn is_empty(&self) -> bool {
        self.entries().next().is_none()
    }

    fn message_count(&self) -> u64 {
        entry::visible(&self.conversation).count() as u64
    }

    fn context_tokens(&self) -> Option<u64> {
        self.context_tokens
    }

    fn last_branch(&self) -> Option<Seq> {
        self.last_branch
    }

    fn fork_point(&self, entry: &str) -> Option<ForkPoint> {
        entry::fork_point(&self.conversation, entry)
    }

    fn open_questions(&self) -> u64 {
        self.questions.len() as u64
    }

    fn has_question(&self, gate: &GateId) -> bool {
        self.question(gate).is_some()
    }

    fn vote(&self, gate: &GateId, response: &UiResponse) -> Option<Result<Vote, String>> {
        self.question(gate).map(|question| answer::vote(question, response))
    }

    fn foreign_entries(
        &self,
        file: SessionFileState<'_>,
        snapshot: &Snapshot,
        ids: &mut dyn IdGenerator,
    ) -> Option<Import> {
        SyncPlan::new(self, file).foreign(snapshot, ids)
    }

    fn missing_entries(
        &self,
        file: SessionFileState<'_>,
        snapshot: &Snapshot,
        header: &Header,
    ) -> Result<Vec<Entry>, String> {
        SyncPlan::new(self, file).missing(snapshot, header)
    }

    fn file_path_before(&self, file: SessionFileState<'_>, entry: &str) -> Vec<String> {
        SyncPlan::new(self, file).path_before(entry)
    }
}

/// Returns the line of each event.
fn lines(session: &SessionId, events: &[PiEvent]) -> Vec<Bytes> {
    events.iter().map(|event| encode::event(session, event)).collect()
}
