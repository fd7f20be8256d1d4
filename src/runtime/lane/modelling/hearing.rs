//! The response of a model in one turn, as it streams in, and the actions that follow from it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Table;
use crate::agent::taking::{self, gave_up};
use crate::agent::{Act, Taking, grouping, price};
use crate::kernel::effect::{Finish, Report};
use crate::kernel::event::{Outcome, TURN_CUT, Taken, Wanted};
use crate::kernel::id::Json;
use crate::provider::error::ModelError;
use crate::provider::model::{self, Piece, Request, TurnEnd};
use crate::provider::registry::Ready;
use crate::provider::{Answering, Gone, Step, Wait};
use crate::runtime::lane::memory::Whole;
use crate::tools;
use crate::transport::compact::{self, compact};

/// How a response ended.
pub(super) enum Heard {
    /// The turn is complete.
    Over,
    /// The stream broke, and the request is sent again.
    Cut,
    /// The server reports that the conversation is too long.
    TooLong(ModelError),
}

impl Table {
    /// Receives one response and performs its actions.
    pub(super) async fn listen(
        &mut self,
        ready: &Ready,
        request: &Request,
        taking: &mut Taking,
    ) -> Result<Heard, Gone> {
        let mut answering = self.ask(ready, request);
        let halts = Arc::clone(&self.asking.halts);
        loop {
            let step = tokio::select! {
                biased;
                () = halts.steered(self.steers) => {
                    return self.cut_short(ready, answering.end(), taking).await;
                }
                step = answering.step() => step,
                () = halts.retry.notified(), if self.retrying.is_some() => {
                    answering.give_up();
                    continue;
                }
            };
            match step {
                Ok(Step::Waits(wait)) => self.wait(&wait).await?,
                Ok(Step::Loading(waited)) => self.tell_loading(ready, waited).await?,
                Ok(Step::Pieces(pieces)) => {
                    self.answered(None).await?;
                    self.pass_on(pieces, taking).await?;
                    // Deltas are published before the next ones are read.
                    tokio::task::yield_now().await;
                }
                Ok(Step::End) => {
                    self.answered(None).await?;
                    let mut heard = Heard::Over;
                    for act in taking.end(answering.end()) {
                        heard = self.act(act, ready, taking).await?;
                    }
                    return Ok(heard);
                }
                Err(error) => {
                    self.answered(Some(&error)).await?;
                    let act = taking.fail(error, answering.end());
                    return self.act(act, ready, taking).await;
                }
            }
        }
    }

    /// Ends a turn early because of a steering message: keeps the text of the model and drops the calls it requested.
    async fn cut_short(&mut self, ready: &Ready, end: TurnEnd, taking: &Taking) -> Result<Heard, Gone> {
        if let Some(attempt) = self.retrying.take() {
            self.reports.retried(attempt, Some(STEERED)).await?;
        }
        self.reports.done_speaking().await?;
        if taking.has_said() {
            // Provider state belongs to complete turns only.
            self.taken(&TurnEnd { carry: None, ..end }, ready, taking.written(), Vec::new()).await?;
        }
        self.reports.turn_done().await?;
        Ok(Heard::Over)
    }

    /// Sends a request, with automatic retries if the session enables them.
    pub(super) fn ask(&self, ready: &Ready, request: &Request) -> Answering {
        if self.asking.voice.auto_retry { ready.ask(request) } else { ready.ask_once(request) }
    }

    /// Reports the usage of a turn in which the model wrote `written` bytes, and its pending calls.
    pub(super) async fn taken(
        &self,
        end: &TurnEnd,
        ready: &Ready,
        written: usize,
        pending: Vec<Wanted>,
    ) -> Result<(), Gone> {
        let used = price::used(&end.usage, self.price(ready).as_ref(), self.told, written);
        let (model, carry) = (ready.model().to_owned(), end.carry.clone());
        self.reports.taken(Taken { model, used, carry, pending }).await
    }

    async fn pass_on(&mut self, pieces: Vec<Piece>, taking: &mut Taking) -> Result<(), Gone> {
        for act in pieces.into_iter().filter_map(|piece| taking.piece(piece)) {
            match act {
                Act::Say(text) => self.reports.say(&text).await?,
                Act::Think(text) => self.reports.think(&text).await?,
                Act::EndText | Act::Use(..) | Act::Finish(..) | Act::AskAgain(..) | Act::Compact(_) => {}
            }
        }
        Ok(())
    }

    async fn act(&mut self, act: Act, ready: &Ready, taking: &Taking) -> Result<Heard, Gone> {
        let written = taking.written();
        match act {
            Act::Say(text) => self.reports.say(&text).await?,
            Act::Think(text) => self.reports.think(&text).await?,
            Act::EndText => self.reports.done_speaking().await?,
            Act::Use(end, calls) => {
                self.reports.done_speaking().await?;
                let calls: Vec<Wanted> = calls.into_iter().map(wanted).collect();
                let now = grouping::together(calls.iter());
                // If one call has to wait, all are stored: after a restart the first one must still come first.
                let pending = if now < calls.len() { calls.clone() } else { Vec::new() };
                self.taken(&end, ready, written, pending).await?;
                for call in calls.iter().take(now) {
                    self.want(call, Whole::Known(call.args.as_str().to_owned())).await?;
                }
                self.reports.turn_done().await?;
            }
            Act::Finish(end, finish) => {
                self.reports.done_speaking().await?;
                if let Some(end) = end {
                    self.taken(&end, ready, written, Vec::new()).await?;
                }
                self.reports.finish(self.without_denied_calls(finish)).await?;
            }
            Act::AskAgain(error, end, pause) => {
                self.reports.cut_text().await?;
                let message = format!("{}; the request is sent again", error.message);
                self.reports.warn(TURN_CUT, &message, error.detail.as_deref()).await?;
                if let Some(end) = end {
                    self.taken(&end, ready, written, Vec::new()).await?;
                }
                return self.pause(error, pause, taking).await;
            }
            Act::Compact(error) => return Ok(Heard::TooLong(error)),
        }
        Ok(Heard::Over)
    }

    /// Returns how a completed run ends: as denied if the model stopped after denials by the policy.
    fn without_denied_calls(&self, finish: Finish) -> Finish {
        match finish.outcome {
            Outcome::Success if self.context.policy_denials() > 0 => taking::denied(finish.summary),
            Outcome::Success | Outcome::Failed | Outcome::Cancelled | Outcome::Denied => finish,
        }
    }

    /// Waits before a broken turn is requested again, unless the retry is cancelled.
    async fn pause(&mut self, error: ModelError, pause: Duration, taking: &Taking) -> Result<Heard, Gone> {
        let (attempt, most) = taking.tries();
        self.wait(&Wait { attempt, most, pause, error: error.clone() }).await?;
        let stopped = tokio::select! {
            () = tokio::time::sleep(pause) => false,
            () = self.asking.halts.retry.notified() => true,
        };
        if !stopped {
            return Ok(Heard::Cut);
        }
        self.answered(Some(&error)).await?;
        self.reports.finish(gave_up(error)).await?;
        Ok(Heard::Over)
    }

    /// Reports that the request is sent again after a pause.
    async fn wait(&mut self, wait: &Wait) -> Result<(), Gone> {
        if self.retrying.replace(wait.attempt).is_none() {
            // Discards a cancellation of an earlier retry.
            let _ = timeout(Duration::ZERO, self.asking.halts.retry.notified()).await;
        }
        self.reports.retry(wait).await
    }

    /// Reports that the server is loading its model, and for how long.
    pub(super) async fn tell_loading(&self, ready: &Ready, waited: Duration) -> Result<(), Gone> {
        let (source, phase) = ("provider".to_owned(), format!("{} is loading the model", ready.provider()));
        let detail = Some(format!("{}, {} s", ready.model(), waited.as_secs()));
        self.reports.send(Report::Status { source, phase, detail }).await
    }

    /// Reports the result of a retry, if there was one.
    async fn answered(&mut self, failed: Option<&ModelError>) -> Result<(), Gone> {
        match self.retrying.take() {
            Some(attempt) => self.reports.retried(attempt, failed.map(|error| error.message.as_str())).await,
            None => Ok(()),
        }
    }
}

/// Why a retry was given up.
const STEERED: &str = "a steering message arrived";

/// Converts a call of a model: its arguments become canonical JSON, like all external input.
///
/// Arguments that are not an object are passed on as one, so that the tool can report the error.
fn wanted(call: model::Wanted) -> Wanted {
    let compacted = compact(call.args.as_bytes(), compact::Limits::default()).ok();
    let is_object = |text: &String| text.starts_with('{');
    let args = match compacted.and_then(|bytes| String::from_utf8(bytes).ok()).filter(is_object) {
        Some(args) => args,
        None if call.args.trim().is_empty() => "{}".to_owned(),
        None => tools::as_unreadable(call.args),
    };
    Wanted { tool: call.tool, args: Json::new(args) }
}
