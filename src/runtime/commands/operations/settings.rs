//! Settings of a session: model, thinking level, name, automatic compaction and retries.

use std::sync::Arc;

use super::{Execution, OperationReply, Result, StopTrace};
use crate::kernel::command::Command;
use crate::kernel::event::Adjustment;
use crate::protocol::operation::{Direction, Thinking};
use crate::protocol::operation_result::{ModelRow, OperationResult};
use crate::runtime::commands::session_view::SessionView;

impl Execution {
    pub(super) async fn models(&self) -> Result {
        let view = self.view().await?;
        let (_, version) = self.describe(&view).await?;
        Ok(OperationReply::at(OperationResult::Models(self.model_rows().await?), version))
    }

    pub(super) async fn set_model(&self, provider: &str, model: &str) -> Result {
        let view = self.view().await?;
        let row = self.model_row(provider, model)?;
        let result = OperationResult::ModelSet(Box::new(row.clone()));
        let version = self.adjust_model(&view, &row, &result).await?;
        Ok(OperationReply::at(result, version))
    }

    pub(super) async fn cycle_model(&self, direction: Direction) -> Result {
        let view = self.view().await?;
        let (snapshot, _) = self.describe(&view).await?;
        let models = self.model_rows().await?;
        let is_current = |row: &ModelRow| {
            row.provider == snapshot.provider() && snapshot.model().is_some_and(|model| *model == row.id)
        };
        let current = models.iter().position(is_current);
        let next = match (current, direction) {
            _ if models.is_empty() => None,
            (Some(_), _) if models.len() == 1 => None,
            (Some(at), Direction::Forward) => Some((at + 1) % models.len()),
            (Some(at), Direction::Backward) => Some((at + models.len() - 1) % models.len()),
            (None, _) => Some(0),
        };
        let Some(row) = next.and_then(|next| models.get(next)) else {
            let result = OperationResult::ModelCycled(None);
            let version = self.bump_expected_version(&view, &result).await?;
            return Ok(OperationReply::at(result, version));
        };
        let result = OperationResult::ModelCycled(Some(Box::new((row.clone(), self.thinking(&snapshot)))));
        let version = self.adjust_model(&view, row, &result).await?;
        Ok(OperationReply::at(result, version))
    }

    pub(super) async fn set_thinking(&self, level: Thinking) -> Result {
        let view = self.view().await?;
        let version = self.adjust_thinking(&view, level, &OperationResult::None).await?;
        Ok(OperationReply::at(OperationResult::None, version))
    }

    pub(super) async fn cycle_thinking(&self) -> Result {
        let view = self.view().await?;
        let (snapshot, _) = self.describe(&view).await?;
        if !self.session_model(&snapshot).is_some_and(|model| model.reasoning) {
            let result = OperationResult::ThinkingCycled(None);
            let version = self.bump_expected_version(&view, &result).await?;
            return Ok(OperationReply::at(result, version));
        }
        let current = self.thinking(&snapshot);
        let at = Thinking::ALL.iter().position(|level| *level == current).unwrap_or_default();
        let next = Thinking::ALL[(at + 1) % Thinking::ALL.len()];
        let result = OperationResult::ThinkingCycled(Some(next));
        let version = self.adjust_thinking(&view, next, &result).await?;
        Ok(OperationReply::at(result, version))
    }

    pub(super) async fn rename(&self, name: &str) -> Result {
        self.change(Command::Rename { name: name.to_owned() }).await
    }

    pub(super) async fn set_auto_compaction(&self, enabled: bool) -> Result {
        let adjustment = Adjustment { auto_compaction: Some(enabled), ..Adjustment::default() };
        self.change(Command::Adjust(Box::new(adjustment))).await
    }

    pub(super) async fn set_auto_retry(&self, enabled: bool) -> Result {
        let adjustment = Adjustment { auto_retry: Some(enabled), ..Adjustment::default() };
        self.change(Command::Adjust(Box::new(adjustment))).await
    }

    pub(super) async fn stop_retry(&self) -> Result {
        // The run reports it later.
        self.stop(Command::StopRetry, StopTrace::None).await
    }

    async fn adjust_model(&self, view: &Arc<SessionView>, row: &ModelRow, result: &OperationResult) -> Result<u64> {
        let (provider, model) = (Some(row.provider.clone()), Some(row.id.clone()));
        let adjustment = Adjustment { provider, model, ..Adjustment::default() };
        Ok(self.request_with(view, Command::Adjust(Box::new(adjustment)), result).await?.version)
    }

    async fn adjust_thinking(&self, view: &Arc<SessionView>, level: Thinking, result: &OperationResult) -> Result<u64> {
        let adjustment = Adjustment { thinking: Some(level.as_str().to_owned()), ..Adjustment::default() };
        Ok(self.request_with(view, Command::Adjust(Box::new(adjustment)), result).await?.version)
    }
}
