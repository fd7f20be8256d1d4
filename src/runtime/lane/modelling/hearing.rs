//! What a model says in one turn, as it comes, and what follows from it.

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

/// How an answer went.
pub(super) enum Heard {
    /// The turn is over.
    Over,
    /// It was cut, and is asked for again.
    Cut,
    /// The conversation is too long for the server, which says so.
    TooLong(ModelError),
}

impl Table {
    /// Listens to one answer and does what follows from it.
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
                    // What was said is shown before anybody looks for more of it.
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

    /// Ends a turn early, because a message was said into the run: what the model has said is kept, and the calls that it
    /// wanted are not made.
    async fn cut_short(&mut self, ready: &Ready, end: TurnEnd, taking: &Taking) -> Result<Heard, Gone> {
        if let Some(attempt) = self.retrying.take() {
            self.reports.retried(attempt, Some(STEERED)).await?;
        }
        self.reports.done_speaking().await?;
        if taking.has_said() {
            // What the dialect wants back belongs to a whole turn.
            self.taken(&TurnEnd { carry: None, ..end }, ready, taking.written(), Vec::new()).await?;
        }
        self.reports.turn_done().await?;
        Ok(Heard::Over)
    }

    /// Asks, and asks again where the session wants that.
    pub(super) fn ask(&self, ready: &Ready, request: &Request) -> Answering {
        if self.asking.voice.auto_retry { ready.ask(request) } else { ready.ask_once(request) }
    }

    /// Keeps what a turn used in which the model wrote so many bytes, and what it wants used later.
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
                // If one has to wait, all of them are kept: a restart in between must not begin with a later one.
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
                let message = format!("{}; it is asked again", error.message);
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

    /// Returns how a run ends whose model is done: as denied where it could not go on after what the policy of the run denied.
    fn without_denied_calls(&self, finish: Finish) -> Finish {
        match finish.outcome {
            Outcome::Success if self.context.policy_denials() > 0 => taking::denied(finish.summary),
            Outcome::Success | Outcome::Failed | Outcome::Cancelled | Outcome::Denied => finish,
        }
    }

    /// Waits before a turn that was cut is asked for again, unless somebody does not want to.
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

    /// Says that the server is asked again after a pause.
    async fn wait(&mut self, wait: &Wait) -> Result<(), Gone> {
        if self.retrying.replace(wait.attempt).is_none() {
            // Who stopped an earlier one has not stopped this.
            let _ = timeout(Duration::ZERO, self.asking.halts.retry.notified()).await;
        }
        self.reports.retry(wait).await
    }

    /// Says that the server loads its model, and for how long it has been waited for.
    pub(super) async fn tell_loading(&self, ready: &Ready, waited: Duration) -> Result<(), Gone> {
        let (source, phase) = ("provider".to_owned(), format!("{} is loading the model", ready.provider()));
        let detail = Some(format!("{}, {} s", ready.model(), waited.as_secs()));
        self.reports.send(Report::Status { source, phase, detail }).await
    }

    /// Says what came of asking again, where that was done.
    async fn answered(&mut self, failed: Option<&ModelError>) -> Result<(), Gone> {
        match self.retrying.take() {
            Some(attempt) => self.reports.retried(attempt, failed.map(|error| error.message.as_str())).await,
            None => Ok(()),
        }
    }
}

/// Why a server is not waited for any longer.
const STEERED: &str = "a message was said into the run";

/// Takes a call as a model wrote it: its arguments on one line, as whatever comes from outside.
///
/// What is no object is passed on as one, so that the tool can say what is wrong.
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
