//! The response of a model in one turn, as it streams in, and the actions that follow from it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::ModelTurn;
use crate::agent::turn_machine::{self, model_failure};
use crate::agent::{Action, TurnMachine, grouping, price};
use crate::kernel::effect::{FinishReport, Report};
use crate::kernel::event::{PendingCall, RunOutcome, TURN_INTERRUPTED, TurnUsage};
use crate::kernel::id::Json;
use crate::provider::error::ModelError;
use crate::provider::model::{self, Delta, Request, TurnEnd};
use crate::provider::registry::ModelHandle;
use crate::provider::{PendingRetry, SessionClosed, StreamItem, TurnStream};
use crate::runtime::lane::unredacted::SentValue;
use crate::tools;
use crate::transport::canonical_json::{self, canonicalize};

/// How a response ended.
pub(super) enum ResponseOutcome {
    /// The turn is complete.
    Done,
    /// The stream broke, and the request is sent again.
    Retry,
    /// The server reports that the conversation is too long.
    TooLong(ModelError),
}

impl ModelTurn {
    /// Receives one response and performs its actions.
    pub(super) async fn receive_response(
        &mut self,
        handle: &ModelHandle,
        request: &Request,
        machine: &mut TurnMachine,
    ) -> Result<ResponseOutcome, SessionClosed> {
        let mut stream = self.open_stream(handle, request);
        let interrupts = Arc::clone(&self.input.interrupts);
        loop {
            let step = tokio::select! {
                biased;
                () = interrupts.wait_for_steer(self.steers_seen) => {
                    return self.end_early(handle, stream.end(), machine).await;
                }
                step = stream.next_item() => step,
                () = interrupts.retry.notified(), if self.retry_attempt.is_some() => {
                    stream.cancel_retry();
                    continue;
                }
            };
            match step {
                Ok(StreamItem::RetryScheduled(wait)) => self.report_retry(&wait).await?,
                Ok(StreamItem::Loading(waited)) => self.report_loading(handle, waited).await?,
                Ok(StreamItem::Deltas(deltas)) => {
                    self.report_retry_end(None).await?;
                    self.report_deltas(deltas, machine).await?;
                    // Deltas are published before the next ones are read.
                    tokio::task::yield_now().await;
                }
                Ok(StreamItem::End) => {
                    self.report_retry_end(None).await?;
                    let mut outcome = ResponseOutcome::Done;
                    for action in machine.on_end(stream.end()) {
                        outcome = self.perform_action(action, handle, machine).await?;
                    }
                    return Ok(outcome);
                }
                Err(error) => {
                    self.report_retry_end(Some(&error)).await?;
                    let action = machine.on_error(error, stream.end());
                    return self.perform_action(action, handle, machine).await;
                }
            }
        }
    }

    /// Ends a turn early because of a steering message: keeps the text of the model and drops the calls it requested.
    async fn end_early(
        &mut self,
        handle: &ModelHandle,
        end: TurnEnd,
        machine: &TurnMachine,
    ) -> Result<ResponseOutcome, SessionClosed> {
        if let Some(attempt) = self.retry_attempt.take() {
            self.reports.report_retry_result(attempt, Some(STEERED)).await?;
        }
        self.reports.end_output().await?;
        if machine.has_text() {
            // Provider state belongs to complete turns only.
            self.report_usage(&TurnEnd { provider_state: None, ..end }, handle, machine.output_bytes(), Vec::new())
                .await?;
        }
        self.reports.end_turn().await?;
        Ok(ResponseOutcome::Done)
    }

    /// Sends a request, with automatic retries if the session enables them.
    pub(super) fn open_stream(&self, handle: &ModelHandle, request: &Request) -> TurnStream {
        if self.input.model_choice.auto_retry {
            handle.start_turn(request)
        } else {
            handle.start_turn_without_retry(request)
        }
    }

    /// Reports the usage of a turn in which the model wrote `written` bytes, and its pending calls.
    pub(super) async fn report_usage(
        &self,
        end: &TurnEnd,
        handle: &ModelHandle,
        written: usize,
        pending: Vec<PendingCall>,
    ) -> Result<(), SessionClosed> {
        let used = price::usage_or_estimate(&end.usage, self.price(handle).as_ref(), self.prompt_tokens, written);
        let (model, provider_state) = (handle.model().to_owned(), end.provider_state.clone());
        self.reports.report_turn(TurnUsage { model, usage: used, provider_state, pending }).await
    }

    async fn report_deltas(&mut self, deltas: Vec<Delta>, machine: &mut TurnMachine) -> Result<(), SessionClosed> {
        for action in deltas.into_iter().filter_map(|delta| machine.on_delta(delta)) {
            match action {
                Action::Text(text) => self.reports.send_text(&text).await?,
                Action::Thinking(text) => self.reports.send_thinking(&text).await?,
                Action::EndText
                | Action::RunTools(..)
                | Action::Finish(..)
                | Action::Retry(..)
                | Action::Compact(_) => {}
            }
        }
        Ok(())
    }

    async fn perform_action(
        &mut self,
        action: Action,
        handle: &ModelHandle,
        machine: &TurnMachine,
    ) -> Result<ResponseOutcome, SessionClosed> {
        let written = machine.output_bytes();
        match action {
            Action::Text(text) => self.reports.send_text(&text).await?,
            Action::Thinking(text) => self.reports.send_thinking(&text).await?,
            Action::EndText => self.reports.end_output().await?,
            Action::RunTools(end, calls) => {
                self.reports.end_output().await?;
                let calls: Vec<PendingCall> = calls.into_iter().map(to_pending_call).collect();
                let now = grouping::parallel_count(calls.iter(), &self.input.services.tools);
                // If one call has to wait, all are stored: after a restart the first one must still come first.
                let pending = if now < calls.len() { calls.clone() } else { Vec::new() };
                self.report_usage(&end, handle, written, pending).await?;
                for call in calls.iter().take(now) {
                    self.request_call(call, SentValue::Known(call.args.as_str().to_owned())).await?;
                }
                self.reports.end_turn().await?;
            }
            Action::Finish(end, finish) => {
                self.reports.end_output().await?;
                if let Some(end) = end {
                    self.report_usage(&end, handle, written, Vec::new()).await?;
                }
                self.reports.finish(self.apply_denials(finish)).await?;
            }
            Action::Retry(error, end, pause) => {
                self.reports.discard_text().await?;
                let message = format!("{}; the request is sent again", error.message);
                self.reports.warn(TURN_INTERRUPTED, &message, error.detail.as_deref()).await?;
                if let Some(end) = end {
                    self.report_usage(&end, handle, written, Vec::new()).await?;
                }
                return self.wait_before_retry(error, pause, machine).await;
            }
            Action::Compact(error) => return Ok(ResponseOutcome::TooLong(error)),
        }
        Ok(ResponseOutcome::Done)
    }

    /// Returns how a completed run ends: as denied if the model stopped after denials by the policy.
    fn apply_denials(&self, finish: FinishReport) -> FinishReport {
        match finish.outcome {
            RunOutcome::Success if self.context.policy_denials() > 0 => turn_machine::denied(finish.summary),
            RunOutcome::Success | RunOutcome::Failed | RunOutcome::Cancelled | RunOutcome::Denied => finish,
        }
    }

    /// Waits before a broken turn is requested again, unless the retry is cancelled.
    async fn wait_before_retry(
        &mut self,
        error: ModelError,
        pause: Duration,
        machine: &TurnMachine,
    ) -> Result<ResponseOutcome, SessionClosed> {
        let (attempt, most) = machine.retries();
        self.report_retry(&PendingRetry { attempt, max_retries: most, pause, error: error.clone() }).await?;
        let stopped = tokio::select! {
            () = tokio::time::sleep(pause) => false,
            () = self.input.interrupts.retry.notified() => true,
        };
        if !stopped {
            return Ok(ResponseOutcome::Retry);
        }
        self.report_retry_end(Some(&error)).await?;
        self.reports.finish(model_failure(error)).await?;
        Ok(ResponseOutcome::Done)
    }

    /// Reports that the request is sent again after a pause.
    async fn report_retry(&mut self, wait: &PendingRetry) -> Result<(), SessionClosed> {
        if self.retry_attempt.replace(wait.attempt).is_none() {
            // Discards a cancellation of an earlier retry.
            let _ = timeout(Duration::ZERO, self.input.interrupts.retry.notified()).await;
        }
        self.reports.report_retry(wait).await
    }

    /// Reports that the server is loading its model, and for how long.
    pub(super) async fn report_loading(&self, handle: &ModelHandle, waited: Duration) -> Result<(), SessionClosed> {
        let (source, phase) = ("provider".to_owned(), format!("{} is loading the model", handle.provider()));
        let detail = Some(format!("{}, {} s", handle.model(), waited.as_secs()));
        self.reports.send(Report::Status { source, phase, detail }).await
    }

    /// Reports the result of a retry, if there was one.
    async fn report_retry_end(&mut self, failed: Option<&ModelError>) -> Result<(), SessionClosed> {
        match self.retry_attempt.take() {
            Some(attempt) => {
                self.reports.report_retry_result(attempt, failed.map(|error| error.message.as_str())).await
            }
            None => Ok(()),
        }
    }
}

/// Why a retry was given up.
const STEERED: &str = "a steering message arrived";

/// Converts a call of a model: its arguments become canonical JSON, like all external input.
///
/// Arguments that are not an object are passed on as one, so that the tool can report the error.
fn to_pending_call(call: model::ToolCall) -> PendingCall {
    let compacted = canonicalize(call.args.as_bytes(), canonical_json::Limits::default()).ok();
    let is_object = |text: &String| text.starts_with('{');
    let args = match compacted.and_then(|bytes| String::from_utf8(bytes).ok()).filter(is_object) {
        Some(args) => args,
        None if call.args.trim().is_empty() => "{}".to_owned(),
        None => tools::wrap_unreadable(call.args),
    };
    PendingCall { tool: call.tool, args: Json::new(args) }
}
