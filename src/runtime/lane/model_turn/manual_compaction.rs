//! A compaction that a client requested, outside of runs.

use std::sync::Arc;

use super::summary::SummaryRequest;
use super::{ModelTurn, ModelTurnInput, fixed_tokens};
use crate::agent::context::ResultDetail;
use crate::kernel::effect::{CompactionRequest, ModelChoice, Report, TurnRequest};
use crate::kernel::event::Budget;
use crate::kernel::id::{MessageId, RunId};
use crate::kernel::state::RunUsage;
use crate::provider::error::ModelError;
use crate::provider::registry::ModelHandle;
use crate::provider::{ReportSender, SessionClosed};
use crate::runtime::lane::conversation::ConversationSource;

/// Makes the summary, or reports why it failed.
pub(in crate::runtime::lane) async fn compact(
    input: ModelTurnInput,
    compact: CompactionRequest,
    conversation: ConversationSource,
    reports: ReportSender,
) -> Result<(), SessionClosed> {
    let mut model_turn = match ModelTurn::prepare(input, &as_turn(&compact), conversation, reports).await {
        Ok(model_turn) => model_turn,
        Err((finish, reports)) => return report_failure(&reports, &finish.summary).await,
    };
    match model_turn.compact(&compact).await? {
        Ok(()) => Ok(()),
        Err(message) => report_failure(&model_turn.reports, &message).await,
    }
}

impl ModelTurn {
    async fn compact(&mut self, compact: &CompactionRequest) -> Result<Result<(), String>, SessionClosed> {
        let handle = match self.resolve_model_now().await {
            Ok(handle) => handle,
            Err(error) => return Ok(Err(error.message)),
        };
        self.redact_key(&handle);
        let fixed = fixed_tokens(&self.base_request(&handle).await);
        let tokens = self.context.tokens(fixed, ResultDetail::Full);
        // A short conversation keeps less than one that fills the window.
        let keep = self.window(&handle).kept_tokens().min(tokens / KEPT_SHARE);
        let Some(kept_from) = self.context.find_cut(keep) else {
            return Ok(Err("there is nothing to summarise yet".to_owned()));
        };
        let summary_request = SummaryRequest { kept_from, tokens, instructions: compact.instructions.clone() };
        Ok(self.summarise(&handle, &summary_request).await?.map_err(|error| error.message))
    }

    /// Resolves the model without waiting for a client's environment.
    async fn resolve_model_now(&self) -> Result<ModelHandle, ModelError> {
        let models = self.input.services.model_config.registry(&self.run_config.settings);
        let nothing = std::collections::BTreeMap::new();
        let environment = self.input.environment.as_ref();
        let variables = environment.map_or(&nothing, |environment| environment.variables());
        let ModelChoice { provider, model, .. } = &self.input.model_choice;
        let handle = models.resolve(provider, model.as_deref(), variables).await?;
        Ok(handle.for_run(Arc::clone(&self.input.admission)))
    }
}

async fn report_failure(reports: &ReportSender, message: &str) -> Result<(), SessionClosed> {
    let message = reports.redactor().redact(message).into_owned();
    reports.send(Report::CompactionFailed { message, will_retry: false }).await
}

/// Returns a turn request with the conversation, and without anything that only a run has.
fn as_turn(compact: &CompactionRequest) -> TurnRequest {
    TurnRequest {
        run: RunId::from(""),
        text: String::new(),
        message: MessageId::from(""),
        steers: Vec::new(),
        steps_done: 0,
        last_call: None,
        checks_started: false,
        budget: Budget::default(),
        spent: RunUsage::default(),
        needs_environment: false,
        context_from: compact.context_from,
        last_seq: compact.last_seq,
        rules: Vec::new(),
        granted: Vec::new(),
        model_choice: compact.model_choice.clone(),
    }
}

/// The maximum part of a conversation that is not summarised, as a divisor.
const KEPT_SHARE: u64 = 4;
