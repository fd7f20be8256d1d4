//! The summary that replaces the older part of a conversation.
//!
//! Only a complete summary replaces it: a truncated, refused or empty one would lose context.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::{Table, tools_tokens};
use crate::agent::compaction;
use crate::kernel::effect::Report;
use crate::kernel::event::{Compaction, CompactionReason};
use crate::kernel::id::Seq;
use crate::provider::error::{Kind, ModelError};
use crate::provider::model::{Piece, Request, Stop, TurnEnd};
use crate::provider::registry::Ready;
use crate::provider::{Gone, Step};

/// A request for a summary.
pub(super) struct Wish {
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
    LeaveOut,
}

/// The result of a compaction within a run.
pub(super) enum Summarised {
    /// The summary replaces the older part.
    Done,
    /// There is no summary: the compaction was stopped, or the server failed.
    Failed(ModelError),
}

impl Table {
    /// Has the model summarise the conversation of a run, unless the compaction is stopped.
    pub(super) async fn summarise_for_run(
        &mut self,
        ready: &Ready,
        wish: &Wish,
        reason: CompactionReason,
        fallback: Fallback,
    ) -> Result<Summarised, Gone> {
        let halts = Arc::clone(&self.asking.halts);
        // Discards a cancellation of an earlier compaction.
        let _ = timeout(Duration::ZERO, halts.compaction.notified()).await;
        self.reports.send(Report::Compacting(reason)).await?;
        let (source, phase) = ("orchestrator".to_owned(), "Compacting context...".to_owned());
        let detail = Some(format!("{} tokens", wish.tokens));
        self.reports.send(Report::Status { source, phase, detail }).await?;
        let outcome = tokio::select! {
            outcome = self.summarise(ready, wish) => outcome?,
            // The session has reported the cancellation already.
            () = halts.compaction.notified() => return Ok(Summarised::Failed(stopped())),
        };
        let error = match outcome {
            Ok(()) => return Ok(Summarised::Done),
            Err(error) => error,
        };
        // The model responds without a summary. A server that does not respond would not accept the conversation
        // either.
        if fallback == Fallback::LeaveOut && matches!(error.kind, Kind::Garbage | Kind::Refused) {
            self.leave_out(wish, &error).await?;
            return Ok(Summarised::Done);
        }
        let message = self.reports.redactor().text(&error.message).into_owned();
        self.reports.send(Report::CompactionFailed { message, again: false }).await?;
        Ok(Summarised::Failed(error))
    }

    /// Has the model summarise the older part of the conversation, and replaces that part.
    ///
    /// An incomplete summary is requested once more, without a length limit. If the request does not fit, the oldest
    /// part is omitted from it, and finally all of it.
    pub(super) async fn summarise(
        &mut self,
        ready: &Ready,
        wish: &Wish,
    ) -> Result<Result<(), ModelError>, Gone> {
        let tools = self.tools();
        let fixed = tools_tokens(&tools);
        let mut room = self.window_of(u64::from(ready.window())).room_for_summary(fixed);
        loop {
            let window = self.window_of(u64::from(ready.window()));
            room = room.min(window.room_for_summary(fixed));
            let (from, own) = (wish.kept_from, wish.instructions.as_deref());
            let Some(request) = compaction::request(&self.context, from, room, ready.model(), own) else {
                let error = ModelError::new(Kind::ContextTooLong, "a summary of the older part does not fit");
                self.leave_out(wish, &error).await?;
                return Ok(Ok(()));
            };
            let (max_tokens, thinking) = (Some(window.summary_tokens()), self.thinking(ready));
            // Servers refuse a conversation with calls if their tools are not declared.
            let request = Request { tools: tools.clone(), max_tokens, thinking, ..request };
            self.told = room.min(self.context.tokens_before(from)).saturating_add(fixed);
            let summary = match self.ask_for_whole_summary(ready, request).await? {
                Ok(summary) => self.reports.redactor().text(&summary).into_owned(),
                Err(error) if error.kind == Kind::ContextTooLong => {
                    ready.learn_window(&error);
                    room = room.min(self.context.tokens_before(from)) / 2;
                    continue;
                }
                Err(error) => return Ok(Err(error)),
            };
            self.compacted(wish, summary).await?;
            return Ok(Ok(()));
        }
    }

    /// Replaces the older part by the beginnings of its messages.
    async fn leave_out(&mut self, wish: &Wish, why: &ModelError) -> Result<(), Gone> {
        let message = format!("{}; the older part of the conversation is omitted instead", why.message);
        self.reports.warn("SUMMARY_FAILED", &message, why.detail.as_deref()).await?;
        let summary = self.context.left_out(wish.kept_from);
        self.compacted(wish, self.reports.redactor().text(&summary).into_owned()).await
    }

    async fn compacted(&mut self, wish: &Wish, summary: String) -> Result<(), Gone> {
        let compaction = Compaction { summary, kept_from: wish.kept_from, tokens_before: wish.tokens };
        self.context.compact(&compaction);
        self.reports.send(Report::Compacted(Box::new(compaction))).await
    }

    /// Requests a summary, and once more if it is incomplete.
    async fn ask_for_whole_summary(
        &self,
        ready: &Ready,
        mut request: Request,
    ) -> Result<Result<String, ModelError>, Gone> {
        let outcome = self.ask_for_summary(ready, &request).await?;
        if !matches!(&outcome, Err(error) if error.retryable) {
            return Ok(outcome);
        }
        request.max_tokens = None;
        self.ask_for_summary(ready, &request).await
    }

    /// Requests a summary once; reports its usage in any case.
    async fn ask_for_summary(
        &self,
        ready: &Ready,
        request: &Request,
    ) -> Result<Result<String, ModelError>, Gone> {
        let mut answering = self.ask(ready, request);
        let mut summary = String::new();
        let failed = loop {
            match answering.step().await {
                Ok(Step::Pieces(pieces)) => summary.extend(pieces.into_iter().filter_map(said)),
                Ok(Step::Waits(_)) => {}
                Ok(Step::Loading(waited)) => self.tell_loading(ready, waited).await?,
                Ok(Step::End) => break None,
                // Before the first delta the stream has retried already.
                Err(error) => {
                    let retryable = error.retryable && !summary.is_empty();
                    break Some(ModelError { retryable, ..error });
                }
            }
        };
        let end = TurnEnd { carry: None, ..answering.end() };
        if failed.is_none() || end.usage.input > 0 {
            self.taken(&end, ready, summary.len(), Vec::new()).await?;
        }
        Ok(match failed {
            Some(error) => Err(error),
            None if end.stop == Stop::Done && !summary.trim().is_empty() => Ok(summary),
            None => Err(not_whole(&end.stop)),
        })
    }
}

fn not_whole(stop: &Stop) -> ModelError {
    let why = match stop {
        Stop::Done | Stop::Calls => "the response is empty".to_owned(),
        Stop::Length => "the length limit was reached".to_owned(),
        Stop::Refused => "the model refused".to_owned(),
        Stop::Other(word) => format!("the response stopped: {word}"),
    };
    let message = format!("the model returned no complete summary of the conversation: {why}");
    ModelError { retryable: true, ..ModelError::new(Kind::Garbage, message) }
}

fn stopped() -> ModelError {
    ModelError::new(Kind::Refused, "the summary of the conversation was stopped")
}

fn said(piece: Piece) -> Option<String> {
    match piece {
        Piece::Said(text) => Some(text),
        Piece::Thought(_) | Piece::Call(_) => None,
    }
}
