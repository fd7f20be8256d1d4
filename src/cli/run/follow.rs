//! Follows one run: shows it, answers or asks about its approvals, and passes on the wish to stop.

use serde_json::Value;

use crate::cli::approval::{Board, Pending, Policies, Policy, Verdict, is_settled_already, wants_more};
use crate::cli::console::Console;
use crate::cli::exit::{CliError, Exit};
use crate::cli::ids;
use crate::cli::input::{Interrupts, TypedLines};
use crate::cli::plain::plain_line;
use crate::cli::report::{Progress, Report};
use crate::cli::view::{Echo, Thoughts, View};
use crate::client::{AskError, Client, Event, Request};

/// What goes to standard output.
#[derive(Debug)]
pub(super) enum Output {
    /// Text for people.
    Text(View),
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
    stops: u32,
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
            stops: 0,
        }
    }

    /// Follows the run to its end and returns its exit code.
    pub(super) async fn until_over(&mut self, console: &mut Console) -> Result<Exit, CliError> {
        loop {
            match self.report.progress() {
                Progress::Going => {}
                Progress::Over(exit) => return self.finish(exit, console),
                Progress::Unknown => return Err(CliError::OutcomeGone),
            }
            let asking = self.board.oldest().is_some_and(|pending| self.policies.of(pending) == Policy::Ask);
            tokio::select! {
                biased;
                () = self.interrupts.next() => {
                    if let Some(exit) = self.interrupted(console).await? {
                        return Ok(exit);
                    }
                }
                line = self.typed.next(), if asking => self.answered(line, console).await?,
                event = self.client.next() => self.take(event?, console).await?,
            }
        }
    }

    /// Cancels the run at the first wish to stop, and leaves at the second.
    pub(super) async fn interrupted(&mut self, console: &mut Console) -> Result<Option<Exit>, CliError> {
        self.stops += 1;
        if self.stops > 1 {
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
        };
        match answer {
            // It was over already; the events say how.
            Ok(_) | Err(AskError::Refused(_)) => Ok(None),
            Err(error @ (AskError::Unreachable(_) | AskError::Unanswered { .. })) => Err(error.into()),
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
    /// In a replay it may be settled already; the daemon knows, and its refusal is all there is to it.
    async fn opened(&mut self, pending: Pending, console: &mut Console) -> Result<(), CliError> {
        match self.policies.of(&pending) {
            // Nobody can say yes to a question; the run goes on without an answer.
            Policy::Deny | Policy::All if pending.form.is_some() => {
                console.note("dismissed: nobody to ask; run with --approve ask");
                self.settle(&pending, Verdict::Deny(None), None).await
            }
            Policy::Deny => {
                let why = match self.policies.work {
                    Policy::All => "denied: the budget is used up, and --yes does not raise it",
                    Policy::Deny | Policy::Ask => "denied: nobody to ask; run with --approve ask or all",
                };
                console.note(why);
                // A reason would be told to the model, and the run would go on.
                self.settle(&pending, Verdict::Deny(None), None).await
            }
            Policy::All => self.settle(&pending, Verdict::Approve(None), None).await,
            Policy::Ask => {
                if matches!(self.typed, Typed::Unread) {
                    self.typed = TypedLines::start(console).map_or(Typed::Nobody, Typed::Lines);
                }
                match &mut self.typed {
                    Typed::Lines(lines) => {
                        lines.discard();
                        // People who asked for JSON have not seen what it is about.
                        let card = match self.output {
                            Output::Text(_) => String::new(),
                            Output::Result | Output::Events => beside(console).question(&pending.payload),
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
        match self.client.ask(request).await {
            Ok(_) => Ok(()),
            Err(error) if is_settled_already(error.code()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn finish(&mut self, exit: Exit, console: &mut Console) -> Result<Exit, CliError> {
        match &mut self.output {
            Output::Text(view) => console.text(&view.end_line())?,
            Output::Result => console.json(&self.report.to_json())?,
            Output::Events => {}
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
