//! The summary that takes the place of the older part of a conversation.
//!
//! Only a whole one does: what was cut, refused or left empty would make the model forget.

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

/// The summary that is wanted.
pub(super) struct Wish {
    /// The first event that is still told word by word.
    pub(super) kept_from: Seq,
    /// How many tokens the conversation has, about.
    pub(super) tokens: u64,
    /// What it should heed.
    pub(super) instructions: Option<String>,
}

/// What is done where no summary can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fallback {
    /// Nothing.
    None,
    /// The older part is left out without one.
    LeaveOut,
}

/// What came of a summary that a run needs.
pub(super) enum Summarised {
    /// It stands for the older part.
    Done,
    /// There is none: it was stopped, or the server does not answer.
    Failed(ModelError),
}

impl Table {
    /// Has the model summarise what has become too long for a run, unless somebody stops it.
    pub(super) async fn summarise_for_run(
        &mut self,
        ready: &Ready,
        wish: &Wish,
        reason: CompactionReason,
        fallback: Fallback,
    ) -> Result<Summarised, Gone> {
        let halts = Arc::clone(&self.asking.halts);
        // What was stopped before is not this one.
        let _ = timeout(Duration::ZERO, halts.compaction.notified()).await;
        self.reports.send(Report::Compacting(reason)).await?;
        let (source, phase) = ("orchestrator".to_owned(), "Compacting context...".to_owned());
        let detail = Some(format!("{} tokens", wish.tokens));
        self.reports.send(Report::Status { source, phase, detail }).await?;
        let outcome = tokio::select! {
            outcome = self.summarise(ready, wish) => outcome?,
            // The session has said so already.
            () = halts.compaction.notified() => return Ok(Summarised::Failed(stopped())),
        };
        let error = match outcome {
            Ok(()) => return Ok(Summarised::Done),
            Err(error) => error,
        };
        // The model is there and gives no summary; a server that is not would not take the conversation either.
        if fallback == Fallback::LeaveOut && matches!(error.kind, Kind::Garbage | Kind::Refused) {
            self.leave_out(wish, &error).await?;
            return Ok(Summarised::Done);
        }
        let message = self.reports.redactor().text(&error.message).into_owned();
        self.reports.send(Report::CompactionFailed { message, again: false }).await?;
        Ok(Summarised::Failed(error))
    }

    /// Has the model summarise the older part of the conversation, and goes on from there.
    ///
    /// A summary that is not whole is asked for once more, and its length is then left to the server. Where the request for it does
    /// not fit, the oldest part is left out of it, and in the end all of it.
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
            // A conversation with calls is refused where their tools are not told.
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

    /// Goes on without the older part: beginnings of messages stand for it.
    async fn leave_out(&mut self, wish: &Wish, why: &ModelError) -> Result<(), Gone> {
        let message = format!("{}; the older part of the conversation is left out instead", why.message);
        self.reports.warn("SUMMARY_FAILED", &message, why.detail.as_deref()).await?;
        let summary = self.context.left_out(wish.kept_from);
        self.compacted(wish, self.reports.redactor().text(&summary).into_owned()).await
    }

    async fn compacted(&mut self, wish: &Wish, summary: String) -> Result<(), Gone> {
        let compaction = Compaction { summary, kept_from: wish.kept_from, tokens_before: wish.tokens };
        self.context.compact(&compaction);
        self.reports.send(Report::Compacted(Box::new(compaction))).await
    }

    /// Asks for a summary, and once more where it is not whole.
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

    /// Asks once; what it used counts whatever came of it.
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
                // Before anything has come, asking again was tried already.
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
        Stop::Done | Stop::Calls => "it is empty".to_owned(),
        Stop::Length => "it became too long".to_owned(),
        Stop::Refused => "it was declined".to_owned(),
        Stop::Other(word) => format!("it stopped: {word}"),
    };
    let message = format!("the model gave no whole summary of the conversation: {why}");
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
