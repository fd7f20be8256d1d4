//! The summary that replaces the older part of a conversation.
//!
//! Only a complete summary replaces it: a truncated, refused or empty one would lose context.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{ModelTurn, tools_tokens};
use crate::agent::compaction;
use crate::kernel::effect::Report;
use crate::kernel::event::{Compaction, CompactionReason};
use crate::kernel::id::Seq;
use crate::provider::error::{ModelError, ModelErrorKind};
use crate::provider::model::{Delta, Request, StopReason, TurnEnd};
use crate::provider::registry::ModelHandle;
use crate::provider::{SessionClosed, StreamItem};

/// A request for a summary.
pub(super) struct SummaryRequest {
    /// The first event that is not summarised.
    pub(super) kept_from: Seq,
    /// The estimated tokens of the conversation.
    pub(super) tokens: u64,
    /// Instructions of the user.
    pub(super) instructions: Option<String>,
}

/// What happens if no summary can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fallback {
    /// The compaction fails.
    None,
    /// The older part is omitted without a summary.
    Omit,
}

/// The result of a compaction within a run.
pub(super) enum SummaryOutcome {
    /// The summary replaces the older part.
    Done,
    /// There is no summary: the compaction was stopped, or the server failed.
    Failed(ModelError),
}

impl ModelTurn {
    /// Has the model summarise the conversation of a run, unless the compaction is stopped.
    pub(super) async fn summarise_for_run(
        &mut self,
        handle: &ModelHandle,
        summary_request: &SummaryRequest,
        reason: CompactionReason,
        fallback: Fallback,
    ) -> Result<SummaryOutcome, SessionClosed> {
        let interrupts = Arc::clone(&self.input.interrupts);
        // Discards a cancellation of an earlier compaction.
        let _ = timeout(Duration::ZERO, interrupts.compaction.notified()).await;
        self.reports.send(Report::CompactionStarted(reason)).await?;
        let (source, phase) = ("orchestrator".to_owned(), "Compacting context...".to_owned());
        let detail = Some(format!("{} tokens", summary_request.tokens));
        self.reports.send(Report::Status { source, phase, detail }).await?;
        let outcome = tokio::select! {
            outcome = self.summarise(handle, summary_request) => outcome?,
            // The session has reported the cancellation already.
            () = interrupts.compaction.notified() => return Ok(SummaryOutcome::Failed(summary_stopped())),
        };
        let error = match outcome {
            Ok(()) => return Ok(SummaryOutcome::Done),
            Err(error) => error,
        };
        // The model responds without a summary. A server that does not respond would not accept the conversation
        // either.
        if fallback == Fallback::Omit && matches!(error.kind, ModelErrorKind::InvalidResponse | ModelErrorKind::Refused)
        {
            self.omit_older_part(summary_request, &error).await?;
            return Ok(SummaryOutcome::Done);
        }
        let message = self.reports.redactor().redact(&error.message).into_owned();
        self.reports.send(Report::CompactionFailed { message, will_retry: false }).await?;
        Ok(SummaryOutcome::Failed(error))
    }

    /// Has the model summarise the older part of the conversation, and replaces that part.
    ///
    /// An incomplete summary is requested once more, without a length limit. If the request does not fit, the oldest
    /// part is omitted from it, and finally all of it.
    pub(super) async fn summarise(
        &mut self,
        handle: &ModelHandle,
        summary_request: &SummaryRequest,
    ) -> Result<Result<(), ModelError>, SessionClosed> {
        let tools = self.tool_specs();
        let fixed = tools_tokens(&tools);
        let mut token_budget = self.window_of(u64::from(handle.window())).summary_budget(fixed);
        loop {
            let window = self.window_of(u64::from(handle.window()));
            token_budget = token_budget.min(window.summary_budget(fixed));
            let (from, own) = (summary_request.kept_from, summary_request.instructions.as_deref());
            let Some(request) = compaction::request(&self.context, from, token_budget, handle.model(), own) else {
                let error = ModelError::new(ModelErrorKind::ContextTooLong, "a summary of the older part does not fit");
                self.omit_older_part(summary_request, &error).await?;
                return Ok(Ok(()));
            };
            let (max_tokens, thinking) = (Some(window.summary_tokens()), self.thinking(handle));
            // Servers refuse a conversation with calls if their tools are not declared.
            let request = Request { tools: tools.clone(), max_tokens, thinking, ..request };
            self.prompt_tokens = token_budget.min(self.context.tokens_before(from)).saturating_add(fixed);
            let summary = match self.request_complete_summary(handle, request).await? {
                Ok(summary) => self.reports.redactor().redact(&summary).into_owned(),
                Err(error) if error.kind == ModelErrorKind::ContextTooLong => {
                    handle.learn_window(&error);
                    token_budget = token_budget.min(self.context.tokens_before(from)) / 2;
                    continue;
                }
                Err(error) => return Ok(Err(error)),
            };
            self.record_compaction(summary_request, summary).await?;
            return Ok(Ok(()));
        }
    }

    /// Replaces the older part by the beginnings of its messages.
    async fn omit_older_part(
        &mut self,
        summary_request: &SummaryRequest,
        why: &ModelError,
    ) -> Result<(), SessionClosed> {
        let message = format!("{}; the older part of the conversation is omitted instead", why.message);
        self.reports.warn("SUMMARY_FAILED", &message, why.detail.as_deref()).await?;
        let summary = self.context.omission_notice(summary_request.kept_from);
        self.record_compaction(summary_request, self.reports.redactor().redact(&summary).into_owned()).await
    }

    async fn record_compaction(
        &mut self,
        summary_request: &SummaryRequest,
        summary: String,
    ) -> Result<(), SessionClosed> {
        let compaction =
            Compaction { summary, kept_from: summary_request.kept_from, tokens_before: summary_request.tokens };
        self.context.compact(&compaction);
        self.reports.send(Report::Compacted(Box::new(compaction))).await
    }

    /// Requests a summary, and once more if it is incomplete.
    async fn request_complete_summary(
        &self,
        handle: &ModelHandle,
        mut request: Request,
    ) -> Result<Result<String, ModelError>, SessionClosed> {
        let outcome = self.request_summary(handle, &request).await?;
        if !matches!(&outcome, Err(error) if error.retryable) {
            return Ok(outcome);
        }
        request.max_tokens = None;
        self.request_summary(handle, &request).await
    }

    /// Requests a summary once; reports its usage in any case.
    async fn request_summary(
        &self,
        handle: &ModelHandle,
        request: &Request,
    ) -> Result<Result<String, ModelError>, SessionClosed> {
        let mut stream = self.open_stream(handle, request);
        let mut summary = String::new();
        let failed = loop {
            match stream.next_item().await {
                Ok(StreamItem::Deltas(deltas)) => summary.extend(deltas.into_iter().filter_map(text_of)),
                Ok(StreamItem::RetryScheduled(_)) => {}
                Ok(StreamItem::Loading(waited)) => self.report_loading(handle, waited).await?,
                Ok(StreamItem::End) => break None,
                // Before the first delta the stream has retried already.
                Err(error) => {
                    let retryable = error.retryable && !summary.is_empty();
                    break Some(ModelError { retryable, ..error });
                }
            }
        };
        let end = TurnEnd { provider_state: None, ..stream.end() };
        if failed.is_none() || end.usage.input > 0 {
            self.report_usage(&end, handle, summary.len(), Vec::new()).await?;
        }
        Ok(match failed {
            Some(error) => Err(error),
            None if end.stop == StopReason::Done && !summary.trim().is_empty() => Ok(summary),
            None => Err(incomplete_summary(&end.stop)),
        })
    }
}

fn incomplete_summary(stop: &StopReason) -> ModelError {
    let why = match stop {
        StopReason::Done | StopReason::ToolCalls => "the response is empty".to_owned(),
        StopReason::Length => "the length limit was reached".to_owned(),
        StopReason::Refused => "the model refused".to_owned(),
        StopReason::Other(word) => format!("the response stopped: {word}"),
    };
    let message = format!("the model returned no complete summary of the conversation: {why}");
    ModelError { retryable: true, ..ModelError::new(ModelErrorKind::InvalidResponse, message) }
}

fn summary_stopped() -> ModelError {
    ModelError::new(ModelErrorKind::Refused, "the summary of the conversation was stopped")
}

fn text_of(delta: Delta) -> Option<String> {
    match delta {
        Delta::Text(text) => Some(text),
        Delta::Thinking(_) | Delta::ToolCall(_) => None,
    }
}
