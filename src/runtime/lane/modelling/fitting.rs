//! Fitting a conversation into the context window of its model, and handling a server that reports an overflow.
//!
//! An overflow never ends a session. First older results are trimmed, then the older part is summarised, then the
//! part that does not fit into the summary request is omitted, then the newest results are trimmed. A run ends only
//! if its newest message does not fit together with the system prompt and the tools.

use super::hearing::Heard;
use super::summary::{Fallback, Summarised, Wish};
use super::{Table, fixed_tokens};
use crate::agent::Taking;
use crate::agent::compaction::Measure;
use crate::agent::context::Results;
use crate::agent::taking::gave_up;
use crate::kernel::effect::{Finish, Turn};
use crate::kernel::event::CompactionReason;
use crate::provider::Gone;
use crate::provider::error::{Kind, ModelError};
use crate::provider::registry::Ready;
use crate::runtime::lane::conversation;

/// How the conversation is encoded in the next request.
struct Telling {
    /// The tokens that every request contains.
    fixed: u64,
    results: Results,
    reason: CompactionReason,
}

impl Table {
    /// Requests a turn until it is complete.
    pub(super) async fn converse(&mut self, turn: &Turn, ready: &Ready) -> Result<(), Gone> {
        let whole = conversation::whole_texts(turn);
        let mut taking = if self.asking.voice.auto_retry { Taking::default() } else { Taking::once() };
        let mut request = self.request(ready).await;
        let fixed = fixed_tokens(&request);
        let mut telling = Telling { fixed, results: Results::Whole, reason: CompactionReason::Threshold };
        let tokens = self.context.tokens(fixed, Results::Whole);
        if tokens.saturating_mul(ASK_FROM) >= u64::from(ready.window()) {
            ready.look_up_window().await;
        }
        let mut measure = self.window(ready).measure(&self.context, fixed);
        loop {
            if let Some(finish) = self.shorten(ready, measure, &mut telling).await? {
                return self.reports.finish(finish).await;
            }
            measure = Measure::None;
            request.entries = self.context.entries(&whole, telling.results);
            self.told = self.context.tokens(fixed, telling.results);
            taking.begin();
            match self.listen(ready, &request, &mut taking).await? {
                Heard::Over => return Ok(()),
                Heard::Cut => {}
                Heard::TooLong(error) => {
                    self.learn_window(ready, &error).await;
                    if !self.asking.voice.auto_compaction {
                        return self.reports.finish(gave_up(not_summarised())).await;
                    }
                    telling.reason = CompactionReason::Overflow;
                    match self.window(ready).insist(&self.context, fixed, telling.results) {
                        Some(next) => measure = next,
                        None => return self.reports.finish(gave_up(self.too_long(ready, &error))).await,
                    }
                }
            }
        }
    }

    /// Shortens the conversation; a returned report ends the run.
    async fn shorten(
        &mut self,
        ready: &Ready,
        measure: Measure,
        telling: &mut Telling,
    ) -> Result<Option<Finish>, Gone> {
        let (kept_from, tokens) = match measure {
            Measure::None => return Ok(None),
            Measure::Trim => {
                telling.results = Results::Trimmed;
                return Ok(None);
            }
            Measure::Squeeze(bytes) => {
                telling.results = Results::Within(bytes);
                return Ok(None);
            }
            // Automatic compaction is off: the results are trimmed, and the server decides whether the rest fits.
            Measure::Summarise { .. } if !self.asking.voice.auto_compaction => {
                telling.results = Results::Trimmed;
                return Ok(None);
            }
            Measure::Summarise { kept_from, tokens } => (kept_from, tokens),
        };
        let enough = telling.reason == CompactionReason::Threshold
            && telling.results == Results::Whole
            && self.window(ready).takes_trimmed(&self.context, telling.fixed);
        let fallback = if enough { Fallback::None } else { Fallback::LeaveOut };
        let wish = Wish { kept_from, tokens, instructions: None };
        let error = match self.summarise_for_run(ready, &wish, telling.reason, fallback).await? {
            Summarised::Done => return Ok(None),
            Summarised::Failed(error) => error,
        };
        if !enough {
            return Ok(Some(gave_up(error)));
        }
        let message = format!("{}; older results are trimmed instead", error.message);
        self.reports.warn("SUMMARY_FAILED", &message, error.detail.as_deref()).await?;
        telling.results = Results::Trimmed;
        Ok(None)
    }

    /// Learns the size of the context window from a refused request.
    ///
    /// If the server names no size, or one that should have sufficed, the next request is smaller than the refused
    /// one.
    pub(super) async fn learn_window(&mut self, ready: &Ready, error: &ModelError) {
        if !ready.learn_window(error) {
            ready.look_up_window().await;
        }
        if self.told <= self.window(ready).tokens {
            self.ceiling = Some(self.told / 4 * 3);
        }
    }

    fn too_long(&self, ready: &Ready, error: &ModelError) -> ModelError {
        let message = format!(
            "the newest message does not fit into the context window of {}: {} tokens, and about {} are needed with the \
             instructions and tools; send a shorter message, or choose a model with a larger window",
            ready.model(),
            ready.window(),
            self.told
        );
        ModelError { message, ..error.clone() }
    }
}

fn not_summarised() -> ModelError {
    let message = "the conversation is too long for the model, and automatic compaction is off; \
                   `push compact SESSION` summarises it";
    ModelError::new(Kind::ContextTooLong, message)
}

/// The part of the assumed window, as a divisor, from which on the server is asked for its window.
const ASK_FROM: u64 = 4;
