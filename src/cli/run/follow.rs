//! Follows one run: prints its events, answers or prompts for its approvals, and handles signals.

use tokio::time::{Duration, Instant, sleep};

use crate::cli::answer::{AnswerView, StreamText};
use crate::cli::approval::{
    ApprovalPolicies, ApprovalPolicy, Decision, PendingApproval, PendingApprovals, is_already_decided, wants_full_view,
};
use crate::cli::attach::status_lines;
use crate::cli::console::{Console, Verbosity};
use crate::cli::exit::{CliError, Exit};
use crate::cli::ids;
use crate::cli::input::{InputLines, Interrupts, STOP_TIMEOUT, StopRequest};
use crate::cli::report::{Progress, Report};
use crate::cli::sanitize::sanitize_line;
use crate::cli::view::{Echo, Reasoning, View};
use crate::client::{Client, Event, Request, RequestError};
use crate::kernel::event::{ContextEvent, EventKind};

/// Within what time a second signal exits at once.
const SECOND_SIGNAL_WINDOW: Duration = Duration::from_secs(2);

/// The comment of a denial if the run does not prompt.
const NO_PROMPT_COMMENT: &str = "this run does not prompt for approvals; --approve ask waits for an answer";
/// The comment of a denial to raise the budget of a run with `--yes`.
const BUDGET_COMMENT: &str =
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
pub(super) struct RunFollower {
    client: Client,
    interrupts: Interrupts,
    report: Report,
    policies: ApprovalPolicies,
    output: Output,
    /// The directory of the session.
    directory: String,
    approvals: PendingApprovals,
    input: PromptInput,
    /// When the last signal to cancel arrived.
    last_cancel: Option<Instant>,
    /// A signal that arrived during another request.
    pending_stop: Option<StopRequest>,
}

/// The input for prompts.
#[derive(Debug)]
enum PromptInput {
    /// Not started yet.
    NotStarted,
    /// Standard input is a terminal in the foreground.
    Lines(InputLines),
    /// There is no terminal, or its input has ended.
    Unavailable,
}

impl RunFollower {
    /// Follows a run that has started in a directory.
    pub(super) fn new(
        client: Client,
        interrupts: Interrupts,
        report: Report,
        policies: ApprovalPolicies,
        (output, directory): (Output, String),
    ) -> Self {
        Self {
            client,
            interrupts,
            directory,
            report,
            policies,
            output,
            approvals: PendingApprovals::default(),
            input: PromptInput::NotStarted,
            last_cancel: None,
            pending_stop: None,
        }
    }

    /// Follows the run to its end and returns its exit code.
    ///
    /// At a terminal, the end of the input (Ctrl-D) detaches from the run.
    pub(super) async fn follow_to_end(&mut self, console: &mut Console) -> Result<Exit, CliError> {
        if matches!(self.output, Output::Text(_)) {
            self.start_input(console);
        }
        loop {
            if let Some(request) = self.pending_stop.take()
                && let Some(exit) = self.handle_signal(request, console).await?
            {
                return Ok(exit);
            }
            match self.report.progress() {
                Progress::Running => {}
                Progress::Finished(exit) => return self.finish(exit, console),
                Progress::Unknown => return Err(CliError::OutcomeLost),
            }
            let asking = self
                .approvals
                .oldest()
                .is_some_and(|pending| self.policies.for_approval(pending) == ApprovalPolicy::Ask);
            let watched = matches!(self.output, Output::Text(_));
            tokio::select! {
                biased;
                request = self.interrupts.next() => {
                    if let Some(exit) = self.handle_signal(request, console).await? {
                        return Ok(exit);
                    }
                }
                line = self.input.next(), if asking || watched => match line {
                    None if watched => return self.detach(console),
                    line if asking => self.handle_answer(line, console).await?,
                    // Input without a prompt is ignored.
                    Some(_) | None => {}
                },
                event = self.client.next() => self.handle_event(event?, console).await?,
            }
        }
    }

    /// Detaches from the run and prints how to attach to it again.
    fn detach(&mut self, console: &mut Console) -> Result<Exit, CliError> {
        if let Output::Text(view) = &mut self.output {
            console.text(&view.end_line())?;
        }
        console.note(&detached_hint(&self.client, self.report.ids().0));
        Ok(Exit::SUCCESS)
    }

    fn start_input(&mut self, console: &Console) {
        if matches!(self.input, PromptInput::NotStarted) {
            self.input = InputLines::start(console).map_or(PromptInput::Unavailable, PromptInput::Lines);
        }
    }

    /// Handles a signal; returns the exit code if the client exits.
    pub(super) async fn handle_signal(
        &mut self,
        request: StopRequest,
        console: &mut Console,
    ) -> Result<Option<Exit>, CliError> {
        match request {
            StopRequest::Cancel => self.cancel(console).await,
            // The run was just cancelled, so it does not continue.
            StopRequest::Detach if self.was_just_cancelled() => Ok(Some(Exit::CANCELLED)),
            StopRequest::Detach => {
                // The terminal may be closed.
                if let Output::Text(view) = &mut self.output {
                    let _ = console.text(&view.end_line());
                }
                console.warn(&detached_hint(&self.client, self.report.ids().0));
                Ok(Some(Exit::SUCCESS))
            }
        }
    }

    /// Cancels the run; exits at once if the previous signal was recent.
    async fn cancel(&mut self, console: &mut Console) -> Result<Option<Exit>, CliError> {
        let again = self.was_just_cancelled();
        self.last_cancel = Some(Instant::now());
        if again {
            return Ok(Some(Exit::CANCELLED));
        }
        let (session, run) = self.report.ids();
        if self.client.awaits_start() {
            return Err(CliError::not_cancelled(&self.client, session));
        }
        console.note("cancelling the run; press Ctrl-C again to exit at once");
        let request = Request::cancel_run(session, Some(run));
        let answer = tokio::select! {
            // Two signals may arrive together; the request must be sent before the second one is handled.
            biased;
            answer = self.client.request(request) => answer,
            _ = self.interrupts.next() => return Ok(Some(Exit::CANCELLED)),
            () = sleep(STOP_TIMEOUT) => {
                return Err(CliError::not_cancelled(&self.client, session));
            }
        };
        match answer {
            // The run has ended already; its events have the outcome.
            Ok(_) | Err(RequestError::Refused(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the last signal to cancel is recent.
    fn was_just_cancelled(&self) -> bool {
        self.last_cancel.is_some_and(|before| before.elapsed() < SECOND_SIGNAL_WINDOW)
    }

    /// Returns the report of the run.
    pub(super) fn into_report(self) -> Report {
        self.report
    }

    async fn handle_event(&mut self, event: Event, console: &mut Console) -> Result<(), CliError> {
        if !self.report.includes(&event) {
            return Ok(());
        }
        // Print the event before processing it, so that its reader does not wait for that.
        if matches!(self.output, Output::Events) {
            console.raw_json(&event.line)?;
        }
        self.report.follow(&event);
        match &mut self.output {
            Output::Text(view) => {
                if event.ends_run() {
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
        if let Some((phase, detail)) = event.activity() {
            console.detail(&sanitize_line(&format!("{phase} {detail}")));
        }
        if matches!(event.recorded(), Some(EventKind::Context(ContextEvent::Compacted(_)))) {
            console.faint_note("the conversation was compacted to free context space");
        }
        let opened = self.approvals.follow(&event).cloned();
        match opened {
            Some(pending) => self.handle_approval(pending, console).await,
            None => Ok(()),
        }
    }

    /// Answers an approval by the policy.
    ///
    /// Most approvals are decided already, because the daemon applies the policy of the run itself, or because the
    /// event is replayed; the daemon refuses a second decision. What is left are requests to raise the budget and
    /// interrupted steps.
    async fn handle_approval(&mut self, pending: PendingApproval, console: &mut Console) -> Result<(), CliError> {
        if let Some((verdict, comment)) = automatic_decision(self.policies, &pending) {
            return self.submit(&pending, verdict, comment).await;
        }
        self.start_input(console);
        match &mut self.input {
            PromptInput::Lines(lines) => {
                lines.discard_pending();
                // With --json, --jsonl or --quiet the approval has not been printed yet.
                let card = match self.output {
                    Output::Text(_) => String::new(),
                    Output::Answer(_) if console.verbosity != Verbosity::Quiet => String::new(),
                    Output::Answer(_) | Output::Result | Output::Events => {
                        stderr_view(console).approval(&pending.question)
                    }
                };
                console.prompt(&(card + &status_lines(&pending, &self.directory) + &pending.prompt()));
            }
            PromptInput::NotStarted | PromptInput::Unavailable => note_pending(&pending, &self.client, console),
        }
        Ok(())
    }

    async fn handle_answer(&mut self, line: Option<String>, console: &mut Console) -> Result<(), CliError> {
        let Some(pending) = self.approvals.oldest().cloned() else { return Ok(()) };
        let Some(line) = line else {
            self.input = PromptInput::Unavailable;
            note_pending(&pending, &self.client, console);
            return Ok(());
        };
        let mut more = String::new();
        if wants_full_view(&line) {
            match &mut self.output {
                Output::Text(view) => console.text(&view.full_approval(&pending.question))?,
                Output::Answer(view) => more = view.full_approval(&pending.question),
                Output::Result | Output::Events => {
                    more = stderr_view(console).full_approval(&pending.question);
                }
            }
        }
        match pending.parse_answer(&line) {
            Some(verdict) => self.submit(&pending, verdict, None).await,
            None => {
                console.prompt(&(more + &pending.prompt()));
                Ok(())
            }
        }
    }

    async fn submit(
        &mut self,
        pending: &PendingApproval,
        verdict: Decision,
        comment: Option<String>,
    ) -> Result<(), CliError> {
        let request = pending.decision_request(verdict, comment, self.client.environment());
        let answer = tokio::select! {
            biased;
            request = self.interrupts.next() => {
                self.pending_stop = Some(request);
                return Ok(());
            }
            answer = self.client.request(request) => answer,
        };
        match answer {
            Ok(_) => Ok(()),
            Err(error) if is_already_decided(error.code()) => Ok(()),
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

impl PromptInput {
    async fn next(&mut self) -> Option<String> {
        match self {
            Self::Lines(lines) => lines.next().await,
            Self::NotStarted | Self::Unavailable => std::future::pending().await,
        }
    }
}

/// Returns the decision of the policy; none if somebody is asked.
pub(super) fn automatic_decision(
    policies: ApprovalPolicies,
    pending: &PendingApproval,
) -> Option<(Decision, Option<String>)> {
    match policies.for_approval(pending) {
        // A form cannot be approved without an answer; the run continues without one.
        ApprovalPolicy::Deny | ApprovalPolicy::All if pending.form.is_some() => {
            Some((Decision::Deny(None), Some(NO_PROMPT_COMMENT.to_owned())))
        }
        ApprovalPolicy::Deny => {
            let why = match policies.work {
                ApprovalPolicy::All => BUDGET_COMMENT,
                ApprovalPolicy::Deny | ApprovalPolicy::Ask => NO_PROMPT_COMMENT,
            };
            Some((Decision::Deny(None), Some(why.to_owned())))
        }
        ApprovalPolicy::All => Some((Decision::Approve(None), None)),
        ApprovalPolicy::Ask => None,
    }
}

/// Returns a view for prompts on standard error.
fn stderr_view(console: &Console) -> View {
    View::new(console.stderr_palette, Echo::Nothing, Reasoning::Hidden)
}

/// Returns what becomes of a run after its client exits, and how to attach to the run again.
pub(in crate::cli) fn detached_hint(client: &Client, session: &str) -> String {
    if client.awaits_start() {
        return CliError::not_cancelled(client, session).to_string();
    }
    reattach_hint(client, session)
}

/// Returns the hint how to attach to a run again.
pub(in crate::cli) fn reattach_hint(client: &Client, session: &str) -> String {
    let (push, session) = (command(client), sanitize_line(&ids::handle(session)));
    format!("the run continues: `{push} attach {session}` attaches to it, `{push} wait {session}` waits for its end")
}

/// Returns the start of a command line for the same daemon.
fn command(client: &Client) -> String {
    client.host().map_or_else(|| "push".to_owned(), |host| format!("push --host {host}"))
}

fn note_pending(pending: &PendingApproval, client: &Client, console: &mut Console) {
    let (push, id) = (command(client), sanitize_line(ids::short(pending.id())));
    let answer = if pending.form.is_some() { " --answer …" } else { "" };
    console.notice(&format!("waiting for approval: `{push} approve {id}{answer}` or `{push} deny {id}`"));
}

#[cfg(test)]
#[cfg(unix)]
#[path = "follow_tests.rs"]
mod tests;
