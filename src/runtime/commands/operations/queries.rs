//! Queries of a session: state, messages, statistics.

use super::{Execution, OperationReply, Result};
use crate::protocol::command_protocol::ConversationQuery;
use crate::protocol::operation_result::{ContextUsage, OperationResult};

impl Execution {
    pub(super) async fn describe_session(&self) -> Result {
        let view = self.view().await?;
        let (snapshot, version) = self.describe(&view).await?;
        Ok(OperationReply::at(OperationResult::Described(Box::new(self.info(&view, &snapshot))), version))
    }

    pub(super) async fn messages(&self) -> Result {
        self.query(ConversationQuery::Messages).await
    }

    pub(super) async fn fork_messages(&self) -> Result {
        self.query(ConversationQuery::ForkMessages).await
    }

    pub(super) async fn last_text(&self) -> Result {
        self.query(ConversationQuery::LastText).await
    }

    /// Queries the conversation of the session.
    async fn query(&self, query: ConversationQuery<'_>) -> Result {
        let view = self.view().await?;
        let (_, version) = self.describe(&view).await?;
        let answer = view.read(|projection| projection.query(query));
        Ok(OperationReply::at(OperationResult::Encoded(answer), version))
    }

    pub(super) async fn statistics(&self) -> Result {
        let view = self.view().await?;
        let (snapshot, version) = self.describe(&view).await?;
        let (session, file) = (view.session(), self.file_of(view.session(), &snapshot));
        let query = ConversationQuery::Statistics { session, file: file.as_deref() };
        let answer = view.read(|projection| projection.query(query));
        Ok(OperationReply::at(OperationResult::Encoded(answer), version))
    }

    pub(super) async fn context_usage(&self) -> Result {
        let view = self.view().await?;
        let (snapshot, version) = self.describe(&view).await?;
        let tokens = view.read(|projection| projection.context_tokens());
        // A provider without models has no context window.
        let model = self.session_model(&snapshot).filter(|model| model.context_window > 0);
        let usage = model.map(|model| ContextUsage { tokens, window: model.context_window });
        Ok(OperationReply::at(OperationResult::ContextUsage(usage), version))
    }
}
