//! Who answers and how: models, thinking, names, what happens by itself.

use std::sync::Arc;

use super::{Done, Job, Result};
use crate::kernel::command::Command;
use crate::kernel::event::Adjustment;
use crate::kernel::refusal::Refusal;
use crate::protocol::pi::encode::{self, ModelRow};
use crate::protocol::pi::request::{Direction, Thinking};
use crate::runtime::pi::desk::Failure;
use crate::runtime::pi::seat::Seat;

impl Job {
    pub(super) async fn models(&self) -> Result {
        let seat = self.seat().await?;
        let (_, version) = self.describe(&seat).await?;
        Ok(Done::at(encode::models(&self.model_rows().await?), version))
    }

    pub(super) async fn set_model(&self, provider: &str, model: &str) -> Result {
        let seat = self.seat().await?;
        let row = self.model_row(provider, model)?;
        let version = self.adjust_model(&seat, &row).await?;
        Ok(Done::at(encode::model_set(&row), version))
    }

    pub(super) async fn cycle_model(&self, direction: Direction) -> Result {
        let seat = self.seat().await?;
        let (snapshot, _) = self.describe(&seat).await?;
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
            return Ok(Done::at(encode::cycled_model(None), self.touch_unchanged(&seat).await?));
        };
        let version = self.adjust_model(&seat, row).await?;
        Ok(Done::at(encode::cycled_model(Some((row, self.thinking(&snapshot)))), version))
    }

    pub(super) async fn set_thinking(&self, level: Thinking) -> Result {
        let seat = self.seat().await?;
        let version = self.adjust_thinking(&seat, level).await?;
        Ok(Done::at(encode::no_data(), version))
    }

    pub(super) async fn cycle_thinking(&self) -> Result {
        let seat = self.seat().await?;
        let (snapshot, _) = self.describe(&seat).await?;
        if !self.session_model(&snapshot).is_some_and(|model| model.reasoning) {
            return Ok(Done::at(encode::cycled_thinking(None), self.touch_unchanged(&seat).await?));
        }
        let current = self.thinking(&snapshot);
        let at = Thinking::ALL.iter().position(|level| *level == current).unwrap_or_default();
        let next = Thinking::ALL[(at + 1) % Thinking::ALL.len()];
        let version = self.adjust_thinking(&seat, next).await?;
        Ok(Done::at(encode::cycled_thinking(Some(next)), version))
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

    pub(super) async fn abort_retry(&self) -> Result {
        let seat = self.seat().await?;
        let version = match self.ask(&seat, Command::StopRetry).await {
            // To stop one leaves no trace by itself: the run tells of it later.
            Ok(_) => self.touch_stopped(&seat).await?,
            // There is nothing to stop, which is what was wanted.
            Err(Failure::Refused(Refusal::NoRetry | Refusal::NoActiveRun)) => self.touch_unstopped(&seat).await?,
            Err(failure) => return Err(failure),
        };
        Ok(Done::at(encode::no_data(), version))
    }

    async fn adjust_model(&self, seat: &Arc<Seat>, row: &ModelRow) -> Result<u64> {
        let (provider, model) = (Some(row.provider.clone()), Some(row.id.clone()));
        let adjustment = Adjustment { provider, model, ..Adjustment::default() };
        Ok(self.ask(seat, Command::Adjust(Box::new(adjustment))).await?.version)
    }

    async fn adjust_thinking(&self, seat: &Arc<Seat>, level: Thinking) -> Result<u64> {
        let adjustment = Adjustment { thinking: Some(level.as_str().to_owned()), ..Adjustment::default() };
        Ok(self.ask(seat, Command::Adjust(Box::new(adjustment))).await?.version)
    }
}
