//! Fitting a conversation into the context window of its model, and handling a server that reports an overflow.
//!
//! An overflow never ends a session. First older results are trimmed, then the older part is summarised, then the
//! part that does not fit into the summary request is omitted, then the newest results are trimmed. A run ends only
//! if its newest message does not fit together with the system prompt and the tools.

use super::response::ResponseOutcome;
use super::summary::{Fallback, SummaryOutcome, SummaryRequest};
use super::{ModelTurn, fixed_tokens};
use crate::agent::TurnMachine;
use crate::agent::compaction::CompactionStep;
use crate::agent::context::ResultDetail;
use crate::agent::turn_machine::model_failure;
use crate::kernel::effect::{FinishReport, TurnRequest};
use crate::kernel::event::CompactionReason;
use crate::provider::SessionClosed;
use crate::provider::error::{ModelError, ModelErrorKind};
use crate::provider::registry::ModelHandle;
use crate::runtime::lane::conversation;

/// How the conversation is encoded in the next request.
struct PromptPlan {
    /// The tokens that every request contains.
    fixed_tokens: u64,
    results: ResultDetail,
    reason: CompactionReason,
}

impl ModelTurn {
    /// Requests a turn until it is complete.
    pub(super) async fn request_turn(&mut self, turn: &TurnRequest, handle: &ModelHandle) -> Result<(), SessionClosed> {
        let whole = conversation::original_texts(turn);
        let mut machine =
            if self.input.model_choice.auto_retry { TurnMachine::default() } else { TurnMachine::without_retries() };
        let mut request = self.base_request(handle).await;
        let fixed = fixed_tokens(&request);
        let mut plan =
            PromptPlan { fixed_tokens: fixed, results: ResultDetail::Full, reason: CompactionReason::Threshold };
        let tokens = self.context.tokens(fixed, ResultDetail::Full);
        if tokens.saturating_mul(WINDOW_QUERY_SHARE) >= u64::from(handle.window()) {
            handle.look_up_window().await;
        }
        let mut step = self.window(handle).next_step(&self.context, fixed);
        loop {
            if let Some(finish) = self.shorten(handle, step, &mut plan).await? {
                return self.reports.finish(finish).await;
            }
            step = CompactionStep::None;
            request.entries = self.context.entries(&whole, plan.results);
            self.prompt_tokens = self.context.tokens(fixed, plan.results);
            machine.start_attempt();
            match self.receive_response(handle, &request, &mut machine).await? {
                ResponseOutcome::Done => return Ok(()),
                ResponseOutcome::Retry => {}
                ResponseOutcome::TooLong(error) => {
                    self.learn_window(handle, &error).await;
                    if !self.input.model_choice.auto_compaction {
                        return self.reports.finish(model_failure(compaction_disabled())).await;
                    }
                    plan.reason = CompactionReason::Overflow;
                    match self.window(handle).next_step_after_rejection(&self.context, fixed, plan.results) {
                        Some(next) => step = next,
                        None => {
                            return self.reports.finish(model_failure(self.message_too_long(handle, &error))).await;
                        }
                    }
                }
            }
        }
    }

    /// Shortens the conversation; a returned report ends the run.
    async fn shorten(
        &mut self,
        handle: &ModelHandle,
        step: CompactionStep,
        plan: &mut PromptPlan,
    ) -> Result<Option<FinishReport>, SessionClosed> {
        let (kept_from, tokens) = match step {
            CompactionStep::None => return Ok(None),
            CompactionStep::Trim => {
                plan.results = ResultDetail::Trimmed;
                return Ok(None);
            }
            CompactionStep::Squeeze(bytes) => {
                plan.results = ResultDetail::Limited(bytes);
                return Ok(None);
            }
            // Automatic compaction is off: the results are trimmed, and the server decides whether the rest fits.
            CompactionStep::Summarise { .. } if !self.input.model_choice.auto_compaction => {
                plan.results = ResultDetail::Trimmed;
                return Ok(None);
            }
            CompactionStep::Summarise { kept_from, tokens } => (kept_from, tokens),
        };
        let enough = plan.reason == CompactionReason::Threshold
            && plan.results == ResultDetail::Full
            && self.window(handle).fits_when_trimmed(&self.context, plan.fixed_tokens);
        let fallback = if enough { Fallback::None } else { Fallback::Omit };
        let summary_request = SummaryRequest { kept_from, tokens, instructions: None };
        let error = match self.summarise_for_run(handle, &summary_request, plan.reason, fallback).await? {
            SummaryOutcome::Done => return Ok(None),
            SummaryOutcome::Failed(error) => error,
        };
        if !enough {
            return Ok(Some(model_failure(error)));
        }
        let message = format!("{}; older results are trimmed instead", error.message);
        self.reports.warn("SUMMARY_FAILED", &message, error.detail.as_deref()).await?;
        plan.results = ResultDetail::Trimmed;
        Ok(None)
    }

    /// Learns the size of the context window from a refused request.
    ///
    /// If the server names no size, or one that should have sufficed, the next request is smaller than the refused
    /// one.
    pub(super) async fn learn_window(&mut self, handle: &ModelHandle, error: &ModelError) {
        if !handle.learn_window(error) {
            handle.look_up_window().await;
        }
        if self.prompt_tokens <= self.window(handle).tokens {
            self.token_ceiling = Some(self.prompt_tokens / 4 * 3);
        }
    }

    fn message_too_long(&self, handle: &ModelHandle, error: &ModelError) -> ModelError {
        let message = format!(
            "the newest message does not fit into the context window of {}: {} tokens, and about {} are needed with the \
             instructions and tools; send a shorter message, or choose a model with a larger window",
            handle.model(),
            handle.window(),
            self.prompt_tokens
        );
        ModelError { message, ..error.clone() }
    }
}

fn compaction_disabled() -> ModelError {
    let message = "the conversation is too long for the model, and automatic compaction is off; \
                   `push compact SESSION` summarises it";
    ModelError::new(ModelErrorKind::ContextTooLong, message)
}

/// The part of the assumed window, as a divisor, from which on the server is asked for its window.
const WINDOW_QUERY_SHARE: u64 = 4;
