//! Follows one run: prints its events, answers or prompts for its approvals, and handles signals.

use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use crate::cli::answer::{AnswerView, StreamText};
use crate::cli::approval::{Board, Pending, Policies, Policy, Verdict, is_settled_already, wants_more};
use crate::cli::console::{Console, Volume};
use crate::cli::exit::{CliError, Exit};
use crate::cli::ids;
use crate::cli::input::{Interrupts, STOP_PATIENCE, StopRequest, TypedLines};
use crate::cli::plain::plain_line;
use crate::cli::report::{Progress, Report};
use crate::cli::view::{Echo, Thoughts, View};
use crate::client::{AskError, Client, Event, Request};

/// Within what time a second signal exits at once.
const TWICE: Duration = Duration::from_secs(2);

/// The comment of a denial if the run does not prompt.
const NOBODY_ANSWERS: &str = "this run does not prompt for approvals; --approve ask waits for an answer";
/// The comment of a denial to raise the budget of a run with `--yes`.
const BUDGET_KEPT: &str =
    "--yes does not raise the budget; --max-turns, --max-tokens and --max-cost set a larger one";

/// What is written to standard output.
#[derive(Debug)]
pub(super) enum Output {
    /// The complete transcript, for a terminal.
    Text(View),
    /// The answer; the transcript goes to standard error.
    Answer(Box<AnswerView>),
    /// The result as JSON, at the end.
    Result,
    /// Every event as JSON.
    Events,
}

/// Follows one run.
#[derive(Debug)]
pub(super) struct Follow {
    client: Client,
    interrupts: Interrupts,
    report: Report,
    policies: Policies,
    output: Output,
    board: Board,
    typed: Typed,
    /// When the last signal to cancel arrived.
    stopped_at: Option<Instant>,
    /// A signal that arrived during another request.
    stop_wanted: Option<StopRequest>,
}

/// The input for prompts.
#[derive(Debug)]
enum Typed {
    /// Not started yet.
    Unread,
    /// Standard input is a terminal in the foreground.
    Lines(TypedLines),
    /// There is no terminal, or its input has ended.
    Nobody,
}

impl Follow {
    /// Follows a run that has started.
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
            stop_wanted: None,
        }
    }

    /// Follows the run to its end and returns its exit code.
    ///
    /// At a terminal, the end of the input (Ctrl-D) detaches from the run.
    pub(super) async fn until_over(&mut self, console: &mut Console) -> Result<Exit, CliError> {
        if matches!(self.output, Output::Text(_)) {
            self.start_reading(console);
        }
        loop {
            if let Some(request) = self.stop_wanted.take()
                && let Some(exit) = self.interrupted(request, console).await?
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
                request = self.interrupts.next() => {
                    if let Some(exit) = self.interrupted(request, console).await? {
                        return Ok(exit);
                    }
                }
                line = self.typed.next(), if asking || watched => match line {
                    None if watched => return self.detach(console),
                    line if asking => self.answered(line, console).await?,
                    // Input without a prompt is ignored.
                    Some(_) | None => {}
                },
                event = self.client.next() => self.take(event?, console).await?,
            }
        }
    }

    /// Detaches from the run and prints how to attach to it again.
    fn detach(&mut self, console: &mut Console) -> Result<Exit, CliError> {
        if let Output::Text(view) = &mut self.output {
            console.text(&view.end_line())?;
        }
        console.note(&detached_hint(&self.client, self.report.names().0));
        Ok(Exit::SUCCESS)
    }

    fn start_reading(&mut self, console: &Console) {
        if matches!(self.typed, Typed::Unread) {
            self.typed = TypedLines::start(console).map_or(Typed::Nobody, Typed::Lines);
        }
    }

    /// Handles a signal; returns the exit code if the client exits.
    pub(super) async fn interrupted(
        &mut self,
        request: StopRequest,
        console: &mut Console,
    ) -> Result<Option<Exit>, CliError> {
        match request {
            StopRequest::Cancel => self.cancel(console).await,
            // The run was just cancelled, so it does not continue.
            StopRequest::Detach if self.was_just_stopped() => Ok(Some(Exit::CANCELLED)),
            StopRequest::Detach => {
                // The terminal may be closed.
                if let Output::Text(view) = &mut self.output {
                    let _ = console.text(&view.end_line());
                }
                console.warn(&detached_hint(&self.client, self.report.names().0));
                Ok(Some(Exit::SUCCESS))
            }
        }
    }

    /// Cancels the run; exits at once if the previous signal was recent.
    async fn cancel(&mut self, console: &mut Console) -> Result<Option<Exit>, CliError> {
        let again = self.was_just_stopped();
        self.stopped_at = Some(Instant::now());
        if again {
            return Ok(Some(Exit::CANCELLED));
        }
        let (session, run) = self.report.names();
        if self.client.awaits_start() {
            return Err(CliError::not_cancelled(&self.client, session));
        }
        console.note("cancelling the run; press Ctrl-C again to exit at once");
        let request = Request::cancel_run(session, Some(run));
        let answer = tokio::select! {
            // Two signals may arrive together; the request must be sent before the second one is handled.
            biased;
            answer = self.client.ask(request) => answer,
            _ = self.interrupts.next() => return Ok(Some(Exit::CANCELLED)),
            () = sleep(STOP_PATIENCE) => {
                return Err(CliError::not_cancelled(&self.client, session));
            }
        };
        match answer {
            // The run has ended already; its events have the outcome.
            Ok(_) | Err(AskError::Refused(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the last signal to cancel is recent.
    fn was_just_stopped(&self) -> bool {
        self.stopped_at.is_some_and(|before| before.elapsed() < TWICE)
    }

    /// Returns the report of the run.
    pub(super) const fn report(&self) -> &Report {
        &self.report
    }

    async fn take(&mut self, event: Event, console: &mut Console) -> Result<(), CliError> {
        if !self.report.concerns(&event) {
            return Ok(());
        }
        // Print the event before processing it, so that its reader does not wait for that.
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
            "context_compacted" => console.faint_note("the conversation was compacted to free context space"),
            _ => {}
        }
        let opened = self.board.follow(&event).cloned();
        match opened {
            Some(pending) => self.opened(pending, console).await,
            None => Ok(()),
        }
    }

    /// Answers an approval by the policy.
    ///
    /// Most approvals are decided already, because the daemon applies the policy of the run itself, or because the
    /// event is replayed; the daemon refuses a second decision. What is left are requests to raise the budget and
    /// interrupted steps.
    async fn opened(&mut self, pending: Pending, console: &mut Console) -> Result<(), CliError> {
        match self.policies.of(&pending) {
            // A form cannot be approved without an answer; the run continues without one.
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
                        // With --json, --jsonl or --quiet the approval has not been printed yet.
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
            request = self.interrupts.next() => {
                self.stop_wanted = Some(request);
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

/// Returns a view for prompts on standard error.
fn beside(console: &Console) -> View {
    View::new(console.notes_palette, Echo::Nothing, Thoughts::Hidden)
}

/// Returns what becomes of a run after its client exits, and how to attach to the run again.
pub(in crate::cli) fn detached_hint(client: &Client, session: &str) -> String {
    if client.awaits_start() {
        return CliError::not_cancelled(client, session).to_string();
    }
    come_back(session)
}

/// Returns the hint how to attach to a run again.
pub(in crate::cli) fn come_back(session: &str) -> String {
    let session = plain_line(&ids::handle(session));
    format!(
        "the run continues: `push attach {session}` attaches to it, `push wait {session}` waits for its end"
    )
}

fn elsewhere(pending: &Pending, console: &mut Console) {
    let id = plain_line(ids::short(&pending.id));
    let answer = if pending.form.is_some() { " --answer …" } else { "" };
    console.note(&format!("waiting for approval: `push approve {id}{answer}` or `push deny {id}`"));
}

fn status(event: &Event) -> String {
    let detail = event.payload.get("detail").and_then(Value::as_str).unwrap_or_default();
    plain_line(&format!("{} {detail}", event.text("phase")))
}

#[cfg(test)]
#[cfg(unix)]
#[path = "follow_tests.rs"]
mod tests;
