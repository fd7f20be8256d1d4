//! A compaction that a client requested, outside of runs.

use std::sync::Arc;

use super::summary::Wish;
use super::{Asking, Table, fixed_tokens};
use crate::agent::context::Results;
use crate::kernel::effect::{Compact, Report, Turn, Voice};
use crate::kernel::event::Budget;
use crate::kernel::id::{MessageId, RunId};
use crate::kernel::state::Spent;
use crate::provider::error::ModelError;
use crate::provider::registry::Ready;
use crate::provider::{Gone, Reports};

/// Makes the summary, or reports why it failed.
pub(in crate::runtime::lane) async fn compact(
    asking: Asking,
    compact: Compact,
    reports: Reports,
) -> Result<(), Gone> {
    let mut table = match Table::laid(asking, &as_turn(&compact), reports).await {
        Ok(table) => table,
        Err((finish, reports)) => return fail(&reports, &finish.summary).await,
    };
    match table.compact(&compact).await? {
        Ok(()) => Ok(()),
        Err(message) => fail(&table.reports, &message).await,
    }
}

impl Table {
    async fn compact(&mut self, compact: &Compact) -> Result<Result<(), String>, Gone> {
        let ready = match self.ready_now().await {
            Ok(ready) => ready,
            Err(error) => return Ok(Err(error.message)),
        };
        self.hide_key(&ready);
        let fixed = fixed_tokens(&self.request(&ready).await);
        let tokens = self.context.tokens(fixed, Results::Whole);
        // A short conversation keeps less than one that fills the window.
        let keep = self.window(&ready).kept().min(tokens / SHARE);
        let Some(kept_from) = self.context.cut(keep) else {
            return Ok(Err("there is nothing to summarise yet".to_owned()));
        };
        let wish = Wish { kept_from, tokens, instructions: compact.instructions.clone() };
        Ok(self.summarise(&ready, &wish).await?.map_err(|error| error.message))
    }

    /// Resolves the model without waiting for a client's environment.
    async fn ready_now(&self) -> Result<Ready, ModelError> {
        let models = self.asking.world.house.models(&self.rules.settings);
        let nothing = std::collections::BTreeMap::new();
        let environment = self.asking.environment.as_ref();
        let variables = environment.map_or(&nothing, |environment| environment.variables());
        let Voice { provider, model, .. } = &self.asking.voice;
        let ready = models.resolve(provider, model.as_deref(), variables).await?;
        Ok(ready.for_run(Arc::clone(&self.asking.admission)))
    }
}

async fn fail(reports: &Reports, message: &str) -> Result<(), Gone> {
    let message = reports.redactor().text(message).into_owned();
    reports.send(Report::CompactionFailed { message, again: false }).await
}

/// Returns a turn request with the conversation, and without anything that only a run has.
fn as_turn(compact: &Compact) -> Turn {
    Turn {
        run: RunId::from(""),
        text: String::new(),
        message: MessageId::from(""),
        steers: Vec::new(),
        done: 0,
        last: None,
        checking: false,
        budget: Budget::default(),
        spent: Spent::default(),
        needs_environment: false,
        context_from: compact.context_from,
        last_seq: compact.last_seq,
        rules: Vec::new(),
        granted: Vec::new(),
        voice: compact.voice.clone(),
    }
}

/// The maximum part of a conversation that is not summarised, as a divisor.
const SHARE: u64 = 4;
