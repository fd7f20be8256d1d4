//! `push attach`: follows a session and sends typed lines to it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::sleep;

use super::approval::{PendingApproval, PendingApprovals, is_already_decided, wants_full_view};
use super::approval_view::{context_lines, indent};
use super::chat::start_like;
use super::context::Context;
use super::exit::{CliError, Exit};
use super::ids;
use super::input::{InputLines, Interrupts, OnTerminate, STOP_TIMEOUT, StopRequest};
use super::run::{detached_hint, reattach_hint};
use super::sanitize::sanitize_line;
use super::send::new_message_id;
use super::view::{Echo, View};
use crate::client::{Access, Client, Event, EventContent, Request, RequestError, SessionSnapshot};
use crate::kernel::event::{EventKind, RunEvent};
use crate::tui::{self, Options, StartPosition, SwitchTarget, ViewExit};

/// Follow a session and send messages to it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
At a terminal the session is shown in the inline view, as by `push chat`. With --plain, what you type is sent to the active run, or starts \
a new run; y and n answer a pending approval. Ctrl-C cancels the active run, a second Ctrl-C detaches; Ctrl-D detaches at once. The session continues in any case. \
If standard input is not a terminal, the command exits when the active run ends, or at once without one; --read-only stays attached.

Examples:
  push attach
  push attach sess_01HX --since 120
  push attach @last --read-only | tee run.txt")]
pub(crate) struct AttachArgs {
    /// The session
    #[arg(default_value = "@last")]
    session: String,
    /// Only events after this seq; default: the latest events in the inline view, all of them elsewhere
    #[arg(long, value_name = "SEQ")]
    since: Option<u64>,
    /// Only watch: nothing can be typed
    #[arg(long)]
    read_only: bool,
    /// Print lines instead of the inline view, for screen readers and simple terminals; also: PUSH_PLAIN=1
    #[arg(long)]
    plain: bool,
}

impl AttachArgs {
    /// Returns the arguments that follow a session line by line.
    pub(super) const fn plain(session: String) -> Self {
        Self { session, since: None, read_only: false, plain: true }
    }
}

/// Attaches to a session until the user detaches.
pub(crate) async fn run(args: AttachArgs, context: &mut Context) -> Result<Exit, CliError> {
    if context.uses_inline_view(args.plain) {
        return show(&args, context).await;
    }
    let mut interrupts = Interrupts::listen(OnTerminate::Detach)?;
    let (client, session, directory, newest, end) = tokio::select! {
        biased;
        _ = interrupts.next() => return Ok(Exit::SUCCESS),
        connected = connect(&args, context) => connected?,
    };
    if end.as_ref().is_some_and(|end| end.is_reached_at(args.since.unwrap_or_default())) {
        return Ok(Exit::SUCCESS);
    }
    let view = context.view(Echo::Messages);
    let mut attached = AttachedSession {
        client,
        session,
        directory,
        view,
        approvals: PendingApprovals::default(),
        last_seq_at_attach: newest,
        run: None,
        cancelled: false,
        hint_printed: false,
        sent_messages: BTreeSet::new(),
    };
    let mut lines = if args.read_only { None } else { InputLines::start(&context.console) };
    attached.hint_printed = lines.is_none();
    loop {
        tokio::select! {
            biased;
            request = interrupts.next() => {
                if args.read_only || attached.handle_signal(request, context, &mut interrupts).await? == LoopControl::Detach {
                    return Ok(Exit::SUCCESS);
                }
            }
            line = next_line(&mut lines) => match line {
                Some(line) => {
                    if attached.handle_line_or_signal(&line, context, &mut interrupts).await? == LoopControl::Detach {
                        return Ok(Exit::SUCCESS);
                    }
                }
                None => {
                    attached.print_reattach_hint(context);
                    return Ok(Exit::SUCCESS);
                }
            },
            event = attached.client.next() => {
                let event = event?;
                attached.handle_event(&event, context)?;
                if end.as_ref().is_some_and(|end| end.is_reached(&event)) {
                    return Ok(Exit::SUCCESS);
                }
            }
        }
    }
}

/// Shows the session in the inline view.
async fn show(args: &AttachArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let session = ids::resolve_session(&mut client, &args.session).await?;
    let access = if args.read_only { Access::ReadOnly } else { Access::Full };
    let start = args.since.map_or(StartPosition::NearEnd, StartPosition::After);
    show_session(client, SessionView { session, start, access, first_message: None }, context).await
}

/// What the inline view shows, without a run to wait for.
pub(super) struct SessionView {
    /// The session.
    pub(super) session: String,
    /// From where on it is shown.
    pub(super) start: StartPosition,
    /// What the user may do.
    pub(super) access: Access,
    /// A message to send first.
    pub(super) first_message: Option<String>,
}

/// Shows a session, and those that the user switches to, in the inline view until the user leaves.
pub(super) async fn show_session(client: Client, view: SessionView, context: &mut Context) -> Result<Exit, CliError> {
    let (left, hint) = show_until_left(client, view, context).await?;
    match left {
        ViewExit::Detached { is_running: true }
        | ViewExit::Signalled { is_running: true }
        | ViewExit::Interrupted { is_running: true } => context.console.note(&hint),
        ViewExit::Detached { is_running: false }
        | ViewExit::Signalled { is_running: false }
        | ViewExit::Interrupted { is_running: false }
        | ViewExit::Finished
        | ViewExit::Switch { .. }
        | ViewExit::Unwritable => {}
    }
    Ok(Exit::SUCCESS)
}

/// Shows a session, and those that the user switches to; returns how the user left, and how to come back.
pub(super) async fn show_until_left(
    mut client: Client,
    view: SessionView,
    context: &mut Context,
) -> Result<(ViewExit, String), CliError> {
    let SessionView { mut session, mut start, access, mut first_message } = view;
    let mut drafts = BTreeMap::new();
    loop {
        let options = Options {
            session: session.clone(),
            handle: sanitize_line(&ids::handle(&session)),
            theme: context.theme(),
            start,
            access,
            first_message: first_message.take(),
            draft: drafts.remove(&session),
            can_switch: true,
            auto_decision: None,
        };
        let notices = context.route_notices();
        let hint = reattach_hint(&client, &session);
        match tui::run(client, options, notices, &mut |_| false).await? {
            ViewExit::Switch { target, draft } => {
                drafts.insert(session.clone(), draft);
                client = context.client().await?;
                start = StartPosition::NearEnd;
                session = match target {
                    SwitchTarget::Session(next) => next,
                    SwitchTarget::New => start_like(&mut client, &session, context).await?,
                };
            }
            left @ (ViewExit::Detached { .. }
            | ViewExit::Signalled { .. }
            | ViewExit::Interrupted { .. }
            | ViewExit::Finished
            | ViewExit::Unwritable) => return Ok((left, hint)),
        }
    }
}

/// Attaches; returns the session, its directory, its last seq, and when to exit without input.
async fn connect(
    args: &AttachArgs,
    context: &mut Context,
) -> Result<(Client, String, String, u64, Option<ExitCondition>), CliError> {
    let mut client = context.client().await?;
    let session = ids::resolve_session(&mut client, &args.session).await?;
    // Without a terminal no message can be typed, and without --read-only the command does not wait for other
    // clients.
    let snapshot = client.request(Request::session_snapshot(&session)).await?;
    let is_bounded = !args.read_only && !context.console.input_is_terminal;
    let end = is_bounded.then(|| ExitCondition::read(&snapshot));
    let access = if args.read_only { Access::ReadOnly } else { Access::Full };
    let replay = client.attach(&session, args.since.unwrap_or_default(), access).await?;
    Ok((client, session, snapshot.meta.cwd, replay.to_seq, end))
}

/// When to exit: at the end of the active run or, without one, at the end of the history.
#[derive(Debug, PartialEq, Eq)]
enum ExitCondition {
    /// At the end of this run.
    RunComplete(String),
    /// At this seq.
    Seq(u64),
}

impl ExitCondition {
    /// Reads it from a snapshot of the session.
    fn read(snapshot: &SessionSnapshot) -> Self {
        match &snapshot.active_run_id {
            Some(run) => Self::RunComplete(run.clone()),
            None => Self::Seq(snapshot.last_seq),
        }
    }

    /// Returns whether no event is left after a seq.
    fn is_reached_at(&self, seen: u64) -> bool {
        match self {
            Self::RunComplete(_) => false,
            Self::Seq(last) => *last <= seen,
        }
    }

    /// Returns whether an event is the last one. A snapshot may replace the events in which the run ended.
    fn is_reached(&self, event: &Event) -> bool {
        let run = match self {
            Self::RunComplete(run) => Some(run),
            Self::Seq(last) => return event.seq >= *last,
        };
        if let EventContent::Snapshot(snapshot) = &event.content {
            return snapshot.active_run_id.as_ref() != run;
        }
        event.ends_run() && event.run.as_ref() == run
    }
}

/// What the event loop does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoopControl {
    Continue,
    Detach,
}

/// An attached session.
struct AttachedSession {
    client: Client,
    session: String,
    /// The directory of the session.
    directory: String,
    view: View,
    approvals: PendingApprovals,
    /// The last seq at the time of attaching: approvals in earlier events are not prompted for.
    last_seq_at_attach: u64,
    run: Option<String>,
    cancelled: bool,
    /// Whether the hint about typed input was printed.
    hint_printed: bool,
    /// The ids of messages that were typed here and whose events have not arrived yet.
    sent_messages: BTreeSet<String>,
}

impl AttachedSession {
    fn handle_event(&mut self, event: &Event, context: &mut Context) -> Result<(), CliError> {
        self.track_run(event);
        // A message that was typed here is on the screen already.
        let is_typed_here = message_id(event).is_some_and(|id| self.sent_messages.remove(id));
        if !is_typed_here {
            let text = self.view.event(event);
            context.console.text(&text)?;
        }
        let opened = self.approvals.follow(event).is_some();
        if event.seq >= self.last_seq_at_attach && !std::mem::replace(&mut self.hint_printed, true) {
            let session = sanitize_line(&ids::handle(&self.session));
            context.console.note(&format!("attached to {session}: typed lines are sent to it, Ctrl-D detaches"));
        }
        if (opened && event.seq > self.last_seq_at_attach || event.seq == self.last_seq_at_attach)
            && context.console.input_is_terminal
            && let Some(pending) = self.approvals.oldest()
        {
            context.console.prompt(&(status_lines(pending, &self.directory) + &pending.prompt()));
        }
        Ok(())
    }

    /// Tracks the active run.
    fn track_run(&mut self, event: &Event) {
        let run = if let EventContent::Snapshot(snapshot) = &event.content {
            snapshot.active_run_id.clone()
        } else if event.ends_run() {
            None
        } else {
            event.run.clone().or_else(|| self.run.clone())
        };
        if run.is_some() != self.run.is_some() {
            self.cancelled = false;
        }
        self.run = run;
    }

    /// Handles a typed line, unless a signal arrives before the daemon has replied.
    async fn handle_line_or_signal(
        &mut self,
        line: &str,
        context: &mut Context,
        interrupts: &mut Interrupts,
    ) -> Result<LoopControl, CliError> {
        let request = tokio::select! {
            biased;
            request = interrupts.next() => request,
            done = self.handle_line(line, context) => return done.map(|()| LoopControl::Continue),
        };
        self.handle_signal(request, context, interrupts).await
    }

    /// Handles a signal.
    async fn handle_signal(
        &mut self,
        request: StopRequest,
        context: &mut Context,
        interrupts: &mut Interrupts,
    ) -> Result<LoopControl, CliError> {
        match request {
            StopRequest::Cancel => self.cancel(context, interrupts).await,
            StopRequest::Detach => {
                self.print_reattach_hint(context);
                Ok(LoopControl::Detach)
            }
        }
    }

    /// Prints how to attach to a run that continues.
    fn print_reattach_hint(&self, context: &mut Context) {
        if self.run.is_some() {
            context.console.note(&detached_hint(&self.client, &self.session));
        }
    }

    async fn handle_line(&mut self, line: &str, context: &mut Context) -> Result<(), CliError> {
        if line.trim().is_empty() {
            return Ok(());
        }
        if wants_full_view(line)
            && let Some(pending) = self.approvals.oldest()
        {
            return Ok(context.console.text(&self.view.full_approval(&pending.question))?);
        }
        let verdict = self.approvals.oldest().and_then(|pending| Some((pending, pending.parse_answer(line)?)));
        let answer = match verdict {
            Some((pending, verdict)) => {
                let request = pending.decision_request(verdict, None, self.client.environment());
                self.client.request(request).await.map(drop)
            }
            None => self.send_message(line).await,
        };
        match answer {
            Ok(()) => {}
            Err(error) if is_already_decided(error.code()) => context.console.note("the approval is already decided"),
            Err(RequestError::Refused(fault)) => context.console.error(&sanitize_line(&fault.to_string())),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Sends a line to the active run, or starts a run with it.
    ///
    /// If a run starts or ends in the meantime, the line is sent the other way.
    async fn send_message(&mut self, line: &str) -> Result<(), RequestError> {
        let id = new_message_id();
        self.sent_messages.insert(id.clone());
        let steer = Request::steer(&self.session, &id, line);
        let begin = Request::send_user_message(&self.session, &id, line).with_environment(self.client.environment());
        let (first, otherwise, second) = match self.run {
            Some(_) => (steer, "NO_ACTIVE_RUN", begin),
            None => (begin, "RUN_IN_PROGRESS", steer),
        };
        match self.client.request(first).await {
            Err(error) if error.code() == Some(otherwise) => self.client.request(second).await.map(drop),
            answer => answer.map(drop),
        }
    }

    /// Cancels the active run. Without one, or the second time, it detaches.
    async fn cancel(&mut self, context: &mut Context, interrupts: &mut Interrupts) -> Result<LoopControl, CliError> {
        let Some(run) = self.run.clone().filter(|_| !self.cancelled) else { return Ok(LoopControl::Detach) };
        self.cancelled = true;
        if self.client.awaits_start() {
            return Err(CliError::not_cancelled(&self.client, &self.session));
        }
        context.console.note("cancelling the run; press Ctrl-C again to detach");
        let request = Request::cancel_run(&self.session, Some(&run));
        tokio::select! {
            // Two signals may arrive together; the request must be sent before the second one is handled.
            biased;
            answer = self.client.request(request) => match answer {
                Ok(_) | Err(RequestError::Refused(_)) => Ok(LoopControl::Continue),
                Err(error) => Err(error.into()),
            },
            _ = interrupts.next() => Ok(LoopControl::Detach),
            () = sleep(STOP_TIMEOUT) => Err(CliError::not_cancelled(&self.client, &self.session)),
        }
    }
}

/// Returns the lines before the prompt of an approval: where it happens and a risk that is not high, when it expires, and
/// its votes if it needs several.
pub(super) fn status_lines(pending: &PendingApproval, directory: &str) -> String {
    let context = indent(&context_lines(&pending.question, directory).join("\n"));
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let status = pending.status(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    if status.is_empty() { context } else { format!("{context}the approval {}\n", status.join("; ")) }
}

/// Returns the id of the user's message that an event reports.
fn message_id(event: &Event) -> Option<&str> {
    let kind = event.recorded()?;
    if let EventKind::Run(RunEvent::Steered(steering)) = kind {
        return Some(steering.message.as_str());
    }
    let EventKind::Run(RunEvent::Started(message)) = kind else { return None };
    Some(message.message.as_str())
}

/// Returns the next typed line; never completes without an input.
async fn next_line(lines: &mut Option<InputLines>) -> Option<String> {
    match lines {
        Some(lines) => lines.next().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::client::test_events;

    #[test]
    fn the_exit_condition_is_the_end_of_the_active_run_or_of_the_history() {
        let end = ExitCondition::read(&snapshot(json!({"activeRunId": "r", "lastSeq": 7})));
        for (kind, run, payload, reached) in [
            ("tool_result", "r", json!({}), false),
            ("run_complete", "q", json!({}), false),
            ("run_complete", "r", json!({}), true),
            ("session_snapshot", "", json!({"activeRunId": "r"}), false),
            ("session_snapshot", "", json!({"activeRunId": null}), true),
        ] {
            assert_eq!(end.is_reached(&event(9, kind, run, payload)), reached, "{kind} {run}");
        }
        assert!(!end.is_reached_at(7));
        let end = ExitCondition::read(&snapshot(json!({"activeRunId": null, "lastSeq": 7})));
        assert!(!end.is_reached(&event(6, "run_complete", "r", json!({}))));
        assert!(end.is_reached(&event(7, "run_complete", "r", json!({}))));
        assert_eq!((end.is_reached_at(6), end.is_reached_at(7)), (false, true));
    }

    fn event(seq: u64, kind: &str, run: &str, payload: Value) -> Event {
        let run = (!run.is_empty()).then(|| run.to_owned());
        Event { run, seq, ..test_events::event(kind, payload) }
    }

    fn snapshot(snapshot: Value) -> SessionSnapshot {
        serde_json::from_value(snapshot).unwrap()
    }
}
