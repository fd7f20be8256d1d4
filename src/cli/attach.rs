//! `push attach`: watches a session and takes part in it, line by line.

use std::collections::BTreeSet;

use serde_json::Value;

use super::approval::{Board, is_settled_already, wants_more};
use super::context::{Context, start_this_program};
use super::exit::{CliError, Exit};
use super::ids;
use super::input::{Interrupts, TypedLines};
use super::plain::plain_line;
use super::send::new_message_id;
use super::view::{Echo, View};
use crate::client::{Access, AskError, Client, Event, Missing, Request};

/// Watch a session and take part in it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
What you type is sent as a message, or said to the run that is active; y and n answer an approval \
that waits. Ctrl-C cancels the active run, once more leaves; Ctrl-D leaves at once. The session goes on in any case.

Examples:
  push attach
  push attach sess_01HX --since 120
  push attach @last --read-only | tee run.txt")]
pub(crate) struct AttachArgs {
    /// The session
    #[arg(default_value = "@last")]
    session: String,
    /// Only what happened after this number
    #[arg(long, value_name = "SEQ", default_value_t = 0, hide_default_value = true)]
    since: u64,
    /// Watch alone
    #[arg(long)]
    read_only: bool,
}

/// Attaches to a session until somebody leaves.
pub(crate) async fn run(args: AttachArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut interrupts = Interrupts::listen()?;
    let connect = async {
        let mut client = context.client().await?;
        let session = ids::session(&mut client, &args.session).await?;
        let access = if args.read_only { Access::ReadOnly } else { Access::Full };
        let attached = client.attach(&session, args.since, access).await?;
        Ok::<_, CliError>((client, session, attached.to))
    };
    let (client, session, newest) = tokio::select! {
        biased;
        () = interrupts.next() => return Ok(Exit::SUCCESS),
        connected = connect => connected?,
    };
    let view = context.view(Echo::Messages);
    let mut room = Room {
        client,
        session,
        view,
        board: Board::default(),
        newest,
        run: None,
        cancelled: false,
        greeted: false,
        typed_here: BTreeSet::new(),
    };
    let mut lines = if args.read_only { None } else { TypedLines::start(&context.console) };
    room.greeted = lines.is_none();
    loop {
        tokio::select! {
            biased;
            () = interrupts.next() => {
                if args.read_only || room.cancel(context, &mut interrupts).await? == Stay::No {
                    return Ok(Exit::SUCCESS);
                }
            }
            line = next_line(&mut lines) => match line {
                Some(line) => room.typed(&line, context).await?,
                None => return Ok(Exit::SUCCESS),
            },
            event = room.client.next() => match event {
                Ok(event) => room.take(&event, context)?,
                // A daemon that stopped while nothing ran was told to.
                Err(AskError::Unreachable(_)) if room.run.is_none() => {
                    context.console.note("pushd has stopped; `push attach` starts it again");
                    return Ok(Exit::SUCCESS);
                }
                Err(error) => return Err(error.into()),
            },
        }
    }
}

/// Whether to stay attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stay {
    Yes,
    No,
}

/// An attached session, as far as it is known here.
struct Room {
    client: Client,
    session: String,
    view: View,
    board: Board,
    /// The newest event there was at the beginning: what comes before it is history and not to be asked about.
    newest: u64,
    run: Option<String>,
    cancelled: bool,
    /// Whether somebody who can type was told what that does.
    greeted: bool,
    /// The messages that were typed here and have not come back as events.
    typed_here: BTreeSet<String>,
}

impl Room {
    fn take(&mut self, event: &Event, context: &mut Context) -> Result<(), CliError> {
        self.follow(event)?;
        // What was typed here stands on the screen already.
        if event.kind != "user_message" || !self.typed_here.remove(event.text("messageId")) {
            let text = self.view.event(event);
            context.console.text(&text)?;
        }
        let opened = self.board.follow(event).is_some();
        if event.seq >= self.newest && !std::mem::replace(&mut self.greeted, true) {
            let session = plain_line(ids::short(&self.session));
            context.console.note(&format!("attached to {session}: what you type goes to it, Ctrl-D leaves"));
        }
        if (opened && event.seq > self.newest || event.seq == self.newest)
            && context.console.input_is_terminal
            && let Some(pending) = self.board.oldest()
        {
            context.console.ask(&pending.prompt());
        }
        Ok(())
    }

    /// Follows which run is active.
    ///
    /// Only with one is a daemon that is gone brought back: an idle one may have been stopped on purpose.
    fn follow(&mut self, event: &Event) -> Result<(), CliError> {
        let run = match event.kind.as_str() {
            "run_complete" => None,
            "session_snapshot" => event.payload.get("activeRunId").and_then(Value::as_str).map(str::to_owned),
            _ if event.run.is_some() => event.run.clone(),
            _ => self.run.clone(),
        };
        if run.is_some() != self.run.is_some() {
            self.cancelled = false;
            let missing = if run.is_some() { start_this_program()? } else { Missing::Leave };
            self.client.when_missing(missing);
        }
        self.run = run;
        Ok(())
    }

    async fn typed(&mut self, line: &str, context: &mut Context) -> Result<(), CliError> {
        if line.trim().is_empty() {
            return Ok(());
        }
        if wants_more(line)
            && let Some(pending) = self.board.oldest()
        {
            return Ok(context.console.text(&self.view.whole_question(&pending.payload))?);
        }
        let verdict = self.board.oldest().and_then(|pending| Some((pending, pending.verdict(line)?)));
        let answer = match verdict {
            Some((pending, verdict)) => {
                let request = pending.settle(verdict, None, self.client.environment());
                self.client.ask(request).await
            }
            None => self.say(line).await,
        };
        match answer {
            Ok(_) => {}
            Err(error) if is_settled_already(error.code()) => {
                context.console.note("that was settled already")
            }
            Err(AskError::Refused(fault)) => context.console.error(&plain_line(&fault.to_string())),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Says a line to the active run, or begins one with it.
    ///
    /// A run may begin or end while somebody types, and what was typed is meant for the session either way.
    async fn say(&mut self, line: &str) -> Result<Value, AskError> {
        let id = new_message_id();
        self.typed_here.insert(id.clone());
        let steer = Request::steer(&self.session, &id, line);
        let begin =
            Request::send_user_message(&self.session, &id, line).with_environment(self.client.environment());
        let (first, otherwise, second) = match self.run {
            Some(_) => (steer, "NO_ACTIVE_RUN", begin),
            None => (begin, "RUN_IN_PROGRESS", steer),
        };
        match self.client.ask(first).await {
            Err(error) if error.code() == Some(otherwise) => self.client.ask(second).await,
            answer => answer,
        }
    }

    /// Cancels the active run; without one, or the second time, it is time to leave.
    async fn cancel(&mut self, context: &mut Context, interrupts: &mut Interrupts) -> Result<Stay, CliError> {
        let Some(run) = self.run.clone().filter(|_| !self.cancelled) else { return Ok(Stay::No) };
        self.cancelled = true;
        context.console.note("cancelling; once more leaves");
        let request = Request::cancel_run(&self.session, Some(&run));
        tokio::select! {
            // Two signals may come at once, and the request is to be on its way when the second one is seen.
            biased;
            answer = self.client.ask(request) => match answer {
                Ok(_) | Err(AskError::Refused(_)) => Ok(Stay::Yes),
                Err(error @ (AskError::Unreachable(_) | AskError::Unanswered { .. })) => Err(error.into()),
            },
            () = interrupts.next() => Ok(Stay::No),
        }
    }
}

/// Returns the next typed line; waits for ever where nobody types.
async fn next_line(lines: &mut Option<TypedLines>) -> Option<String> {
    match lines {
        Some(lines) => lines.next().await,
        None => std::future::pending().await,
    }
}
