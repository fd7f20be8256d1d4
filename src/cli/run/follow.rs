//! Follows one run: shows it, answers or asks about its approvals, and passes on the wish to stop.

use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use crate::cli::answer::{AnswerView, StreamText};
use crate::cli::approval::{Board, Pending, Policies, Policy, Verdict, is_settled_already, wants_more};
use crate::cli::console::{Console, Volume};
use crate::cli::exit::{CliError, Exit};
use crate::cli::ids;
use crate::cli::input::{Interrupts, STOP_PATIENCE, TypedLines};
use crate::cli::plain::plain_line;
use crate::cli::report::{Progress, Report};
use crate::cli::view::{Echo, Thoughts, View};
use crate::client::{AskError, Client, Event, Request};

/// Within what time a second wish to stop leaves at once.
const TWICE: Duration = Duration::from_secs(2);

/// Why a run without anybody to ask is denied something.
const NOBODY_ANSWERS: &str = "nobody can be asked in this run; --approve ask waits for an answer";
/// Why a run that may do everything is denied more budget.
const BUDGET_KEPT: &str =
    "--yes does not raise the budget; --max-turns, --max-tokens and --max-cost set a larger one";

/// What goes to standard output.
#[derive(Debug)]
pub(super) enum Output {
    /// The whole transcript, for somebody at a terminal.
    Text(View),
    /// The answer alone; the transcript goes to standard error.
    Answer(Box<AnswerView>),
    /// The result, at the end.
    Result,
    /// Every event.
    Events,
}

/// One run and its follower.
#[derive(Debug)]
pub(super) struct Follow {
    client: Client,
    interrupts: Interrupts,
    report: Report,
    policies: Policies,
    output: Output,
    board: Board,
    typed: Typed,
    /// When somebody wanted to stop last.
    stopped_at: Option<Instant>,
    /// Whether somebody wanted to stop while the daemon was asked something else.
    stop_wanted: bool,
}

/// Whether somebody can be asked.
#[derive(Debug)]
enum Typed {
    /// Nobody was asked yet.
    Unread,
    /// Somebody is there.
    Lines(TypedLines),
    /// Nobody is there.
    Nobody,
}

impl Follow {
    /// Takes a run that has begun.
    pub(super) fn new(
        client: Client,
        interrupts: Interrupts,
        report: Report,
        policies: Policies,
        output: Output,
    ) -> Self {
        Self {
            client,
            interrupts,
            report,
            policies,
            output,
            board: Board::default(),
            typed: Typed::Unread,
            stopped_at: None,
            stop_wanted: false,
        }
    }

    /// Follows the run to its end and returns its exit code.
    ///
    /// At a terminal, the end of the input (Ctrl-D) leaves the run to itself.
    pub(super) async fn until_over(&mut self, console: &mut Console) -> Result<Exit, CliError> {
        if matches!(self.output, Output::Text(_)) {
            self.start_reading(console);
        }
        loop {
            if std::mem::take(&mut self.stop_wanted)
                && let Some(exit) = self.interrupted(console).await?
            {
                return Ok(exit);
            }
            match self.report.progress() {
                Progress::Going => {}
                Progress::Over(exit) => return self.finish(exit, console),
                Progress::Unknown => return Err(CliError::OutcomeGone),
            }
            let asking = self.board.oldest().is_some_and(|pending| self.policies.of(pending) == Policy::Ask);
            let watched = matches!(self.output, Output::Text(_));
            tokio::select! {
                biased;
                () = self.interrupts.next() => {
                    if let Some(exit) = self.interrupted(console).await? {
                        return Ok(exit);
                    }
                }
                line = self.typed.next(), if asking || watched => match line {
                    None if watched => return self.detach(console),
                    line if asking => self.answered(line, console).await?,
                    // What is typed while nothing is asked has no meaning.
                    Some(_) | None => {}
                },
                event = self.client.next() => self.take(event?, console).await?,
            }
        }
    }

    /// Leaves the run to itself and says how to come back.
    fn detach(&mut self, console: &mut Console) -> Result<Exit, CliError> {
        if let Output::Text(view) = &mut self.output {
            console.text(&view.end_line())?;
        }
        console.note(&come_back(self.report.names().0));
        Ok(Exit::SUCCESS)
    }

    fn start_reading(&mut self, console: &Console) {
        if matches!(self.typed, Typed::Unread) {
            self.typed = TypedLines::start(console).map_or(Typed::Nobody, Typed::Lines);
        }
    }

    /// Cancels the run at a wish to stop, and leaves at a second one soon after it.
    pub(super) async fn interrupted(&mut self, console: &mut Console) -> Result<Option<Exit>, CliError> {
        if self.stopped_at.replace(Instant::now()).is_some_and(|before| before.elapsed() < TWICE) {
            return Ok(Some(Exit::CANCELLED));
        }
        console.note("cancelling; once more leaves at once");
        let (session, run) = self.report.names();
        let request = Request::cancel_run(session, Some(run));
        let answer = tokio::select! {
            // Two signals may come at once, and the request is to be on its way when the second one is seen.
            biased;
            answer = self.client.ask(request) => answer,
            () = self.interrupts.next() => return Ok(Some(Exit::CANCELLED)),
            () = sleep(STOP_PATIENCE) => {
                return Err(CliError::NotCancelled { session: plain_line(session) });
            }
        };
        match answer {
            // It was over already; the events say how.
            Ok(_) | Err(AskError::Refused(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns what is known of the run.
    pub(super) const fn report(&self) -> &Report {
        &self.report
    }

    async fn take(&mut self, event: Event, console: &mut Console) -> Result<(), CliError> {
        if !self.report.concerns(&event) {
            return Ok(());
        }
        // Whoever reads every event waits for nothing that is made of it here.
        if matches!(self.output, Output::Events) {
            console.raw_json(&event.line)?;
        }
        self.report.follow(&event);
        match &mut self.output {
            Output::Text(view) => {
                if event.kind == "run_complete" {
                    console.text(&view.denials(self.report.denials()))?;
                }
                console.text(&view.event(&event))?;
            }
            Output::Answer(view) => {
                let StreamText { out, err } = view.event(&event, self.report.denials());
                console.text(&out)?;
                console.transcript(&err);
            }
            Output::Events | Output::Result => {}
        }
        match event.kind.as_str() {
            "status" => console.detail(&status(&event)),
            "context_compacted" => console.faint_note("the history was summarised to make room"),
            _ => {}
        }
        let opened = self.board.follow(&event).cloned();
        match opened {
            Some(pending) => self.opened(pending, console).await,
            None => Ok(()),
        }
    }

    /// Deals with an approval as the policy says.
    ///
    /// Most are settled already, as the policy is the run's own, or in a replay; the daemon knows, and its refusal is all
    /// there is to it. What is left is more budget, and a step of which nobody knows how it ended.
    async fn opened(&mut self, pending: Pending, console: &mut Console) -> Result<(), CliError> {
        match self.policies.of(&pending) {
            // Nobody can say yes to a question; the run goes on without an answer.
            Policy::Deny | Policy::All if pending.form.is_some() => {
                self.settle(&pending, Verdict::Deny(None), Some(NOBODY_ANSWERS.to_owned())).await
            }
            Policy::Deny => {
                let why = match self.policies.work {
                    Policy::All => BUDGET_KEPT,
                    Policy::Deny | Policy::Ask => NOBODY_ANSWERS,
                };
                self.settle(&pending, Verdict::Deny(None), Some(why.to_owned())).await
            }
            Policy::All => self.settle(&pending, Verdict::Approve(None), None).await,
            Policy::Ask => {
                self.start_reading(console);
                match &mut self.typed {
                    Typed::Lines(lines) => {
                        lines.discard();
                        // Who asked for JSON, or for quiet, has not seen what it is about.
                        let card = match self.output {
                            Output::Text(_) => String::new(),
                            Output::Answer(_) if console.volume != Volume::Quiet => String::new(),
                            Output::Answer(_) | Output::Result | Output::Events => {
                                beside(console).question(&pending.payload)
                            }
                        };
                        console.ask(&(card + &pending.prompt()));
                    }
                    Typed::Unread | Typed::Nobody => elsewhere(&pending, console),
                }
                Ok(())
            }
        }
    }

    async fn answered(&mut self, line: Option<String>, console: &mut Console) -> Result<(), CliError> {
        let Some(pending) = self.board.oldest().cloned() else { return Ok(()) };
        let Some(line) = line else {
            self.typed = Typed::Nobody;
            elsewhere(&pending, console);
            return Ok(());
        };
        let mut more = String::new();
        if wants_more(&line) {
            match &mut self.output {
                Output::Text(view) => console.text(&view.whole_question(&pending.payload))?,
                Output::Answer(view) => more = view.whole_question(&pending.payload),
                Output::Result | Output::Events => {
                    more = beside(console).whole_question(&pending.payload);
                }
            }
        }
        match pending.verdict(&line) {
            Some(verdict) => self.settle(&pending, verdict, None).await,
            None => {
                console.ask(&(more + &pending.prompt()));
                Ok(())
            }
        }
    }

    async fn settle(
        &mut self,
        pending: &Pending,
        verdict: Verdict,
        comment: Option<String>,
    ) -> Result<(), CliError> {
        let request = pending.settle(verdict, comment, self.client.environment());
        let answer = tokio::select! {
            biased;
            () = self.interrupts.next() => {
                self.stop_wanted = true;
                return Ok(());
            }
            answer = self.client.ask(request) => answer,
        };
        match answer {
            Ok(_) => Ok(()),
            Err(error) if is_settled_already(error.code()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn finish(&mut self, exit: Exit, console: &mut Console) -> Result<Exit, CliError> {
        match &mut self.output {
            Output::Text(view) => console.text(&view.end_line())?,
            Output::Result => console.json(&self.report.to_json())?,
            Output::Answer(_) | Output::Events => {}
        }
        Ok(exit)
    }
}

impl Typed {
    async fn next(&mut self) -> Option<String> {
        match self {
            Self::Lines(lines) => lines.next().await,
            Self::Unread | Self::Nobody => std::future::pending().await,
        }
    }
}

/// What shows a question beside a result that is for programs.
fn beside(console: &Console) -> View {
    View::new(console.notes_palette, Echo::Nothing, Thoughts::Hidden)
}

/// Says how to come back to a session that was left.
pub(super) fn come_back(session: &str) -> String {
    let session = plain_line(&ids::handle(session));
    format!("the run goes on: push attach {session} comes back to it, push wait {session} waits for its end")
}

fn elsewhere(pending: &Pending, console: &mut Console) {
    let id = plain_line(ids::short(&pending.id));
    let answer = if pending.form.is_some() { " --answer …" } else { "" };
    console.note(&format!("waiting for somebody to say: push approve {id}{answer}, or push deny {id}"));
}

fn status(event: &Event) -> String {
    let detail = event.payload.get("detail").and_then(Value::as_str).unwrap_or_default();
    plain_line(&format!("{} {detail}", event.text("phase")))
}

#[cfg(test)]
#[cfg(unix)]
#[path = "follow_tests.rs"]
mod tests;
