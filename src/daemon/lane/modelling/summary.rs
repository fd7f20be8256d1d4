//! The summary that takes the place of the older part of a conversation.
//!
//! Only a whole one does: what was cut, refused or left empty would make the model forget.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Table;
use crate::agent::compaction;
use crate::kernel::effect::Report;
use crate::kernel::event::{Compaction, CompactionReason};
use crate::kernel::id::Seq;
use crate::provider::Gone;
use crate::provider::error::{Kind, ModelError};
use crate::provider::model::{Piece, Request, Stop, TurnEnd};
use crate::provider::registry::Ready;

/// The summary that is wanted.
pub(super) struct Wish {
    /// The first event that is still told word by word.
    pub(super) kept_from: Seq,
    /// How many tokens the conversation has, about.
    pub(super) tokens: u64,
    /// What it should heed.
    pub(super) instructions: Option<String>,
}

impl Table {
    /// Has the model summarise what has become too long for a run, unless somebody stops it.
    pub(super) async fn summarise_for_run(
        &mut self,
        ready: &Ready,
        wish: &Wish,
        reason: CompactionReason,
    ) -> Result<Result<(), ModelError>, Gone> {
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
            () = halts.compaction.notified() => return Ok(Err(stopped())),
        };
        if let Err(error) = &outcome {
            let message = self.reports.redactor().text(&error.message).into_owned();
            self.reports.send(Report::CompactionFailed { message, again: false }).await?;
        }
        Ok(outcome)
    }

    /// Has the model summarise the older part of the conversation, and goes on from there.
    ///
    /// A summary that is not whole is asked for once more, and its length is then left to the server.
    pub(super) async fn summarise(
        &mut self,
        ready: &Ready,
        wish: &Wish,
    ) -> Result<Result<(), ModelError>, Gone> {
        let Wish { kept_from, tokens, instructions } = wish;
        let (kept_from, tokens) = (*kept_from, *tokens);
        self.told = tokens;
        let instructions = instructions.as_deref();
        let mut request = compaction::request(&self.context, kept_from, ready.model(), instructions);
        // A conversation with calls is refused where their tools are not told.
        (request.tools, request.thinking) = (self.tools(), self.thinking(ready));
        let mut outcome = self.ask_for_summary(ready, &request).await?;
        if matches!(&outcome, Err(error) if error.retryable) {
            request.max_tokens = None;
            outcome = self.ask_for_summary(ready, &request).await?;
        }
        let summary = match outcome {
            Ok(summary) => self.reports.redactor().text(&summary).into_owned(),
            Err(error) => return Ok(Err(error)),
        };
        let compaction = Compaction { summary, kept_from, tokens_before: tokens };
        self.context.compact(&compaction);
        self.reports.send(Report::Compacted(Box::new(compaction))).await?;
        Ok(Ok(()))
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
            match answering.next().await {
                Ok(Some(pieces)) => summary.extend(pieces.into_iter().filter_map(said)),
                Ok(None) => break None,
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
