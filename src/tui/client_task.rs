//! The task that owns the connection: it sends requests and passes events on, so that the view never waits for the
//! daemon.
//!
//! A request that fails is answered with its reason; what the user wrote is in the state of the view until then.

use tokio::sync::mpsc::{Sender, UnboundedReceiver};

use super::files::{self, AttachedImage};
use crate::client::{
    Client, Event, Grant, ListedApproval, QueuedMessage, Request, RequestError, SessionItem, SessionSnapshot, Update,
};
use crate::display::approval::{Decision, PendingApproval};

/// Decides approvals by the policy of a run; `None` leaves the decision to the user.
pub(crate) type AutoDecision = Box<dyn Fn(&PendingApproval) -> Option<(Decision, Option<String>)> + Send>;

/// How many sessions are listed.
const LISTED_SESSIONS: u64 = 50;

/// A request of the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    /// Starts a run with a message, or queues the message behind the active run.
    Queue {
        /// The id of the message.
        id: String,
        /// Its text.
        text: String,
    },
    /// Sends a message into the active run; without one it starts a run.
    Steer {
        /// The id of the message.
        id: String,
        /// Its text.
        text: String,
    },
    /// Removes a queued message.
    Unqueue {
        /// The message.
        id: String,
    },
    /// Decides an approval.
    Decide {
        /// The approval.
        pending: Box<PendingApproval>,
        /// The decision.
        decision: Decision,
        /// A comment.
        comment: Option<String>,
        /// The rule in place of the offered one.
        rule: Option<String>,
    },
    /// Cancels the active run.
    Cancel,
    /// Runs a command of the user.
    RunCommand {
        /// The command.
        command: String,
    },
    /// Stops all commands of the user.
    StopCommands,
    /// Lists the queued messages.
    ListQueue,
    /// Lists the pending approvals of all sessions.
    ListApprovals,
    /// Lists the remembered rules of all repositories.
    ListRules,
    /// Lists the newest sessions.
    ListSessions,
    /// Requests the state of the session.
    Snapshot,
    /// Compacts the conversation.
    Compact {
        /// Instructions for the summary.
        instructions: Option<String>,
    },
    /// Renames the session.
    Rename {
        /// The name.
        name: String,
    },
    /// Ends the session.
    End,
}

/// The reply to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallReply {
    /// It was executed.
    Done,
    /// The queued messages.
    Queue(Vec<QueuedMessage>),
    /// The pending approvals.
    Approvals(Vec<ListedApproval>),
    /// The remembered rules.
    Rules(Vec<Grant>),
    /// Sessions, newest first.
    Sessions(Vec<SessionItem>),
    /// The state of the session.
    Snapshot(Box<SessionSnapshot>),
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallError {
    /// The error code of the daemon, if it refused the request.
    pub(crate) code: Option<String>,
    /// For people; not sanitized.
    pub(crate) message: String,
}

/// What the task reports.
#[derive(Debug)]
pub(crate) enum Report {
    /// An event of the session.
    Event(Box<Event>),
    /// The pending approvals of all sessions have changed.
    Approvals(Vec<ListedApproval>),
    /// The reply to a request.
    Reply {
        /// The number of the request.
        number: u64,
        /// The reply.
        reply: Result<CallReply, CallError>,
    },
    /// The daemon cannot be reached any more, or the session is gone.
    Lost(RequestError),
}

/// Serves requests and passes events on until the view ends or the daemon is lost.
pub(crate) async fn serve(
    mut client: Client,
    (session, directory): (String, String),
    mut calls: UnboundedReceiver<(u64, Call)>,
    reports: Sender<Report>,
) {
    if let Err(error) = client.watch_approvals(0).await {
        // Nobody may be left to receive it.
        let _ = reports.send(Report::Lost(error)).await;
        return;
    }
    loop {
        let report = tokio::select! {
            biased;
            call = calls.recv() => {
                let Some((number, call)) = call else { return };
                let reply = execute(&mut client, (&session, &directory), call).await;
                if let Err(error @ RequestError::Unreachable(_)) = reply {
                    let _ = reports.send(Report::Reply { number, reply: Err(call_error(&error)) }).await;
                    Report::Lost(error)
                } else {
                    Report::Reply { number, reply: reply.map_err(|error| call_error(&error)) }
                }
            }
            update = client.next_update() => match update {
                Ok(Update::Event(event)) => Report::Event(event),
                Ok(Update::Approvals(listed)) => {
                    // A daemon of an earlier version has no revision, and answers at once.
                    match listed.revision {
                        Some(known) => renewed(&mut client, known, listed.approvals).await,
                        None => Report::Approvals(listed.approvals),
                    }
                }
                Err(error) => Report::Lost(error),
            },
        };
        let is_over = matches!(report, Report::Lost(_));
        if reports.send(report).await.is_err() || is_over {
            return;
        }
    }
}

/// Waits for the next change of the pending approvals, and reports those of now.
async fn renewed(client: &mut Client, known: u64, approvals: Vec<ListedApproval>) -> Report {
    match client.watch_approvals(known).await {
        Ok(()) => Report::Approvals(approvals),
        Err(error) => Report::Lost(error),
    }
}

async fn execute(
    client: &mut Client,
    (session, directory): (&str, &str),
    call: Call,
) -> Result<CallReply, RequestError> {
    let environment = client.environment().cloned();
    match call {
        Call::Queue { id, text } => {
            let images = files::load_images(&text, directory).await;
            let request = Request::queue_message(session, &id, &text).with_environment(environment.as_ref());
            client.request(with_images(request, &images)).await?;
        }
        Call::Steer { id, text } => {
            let images = files::load_images(&text, directory).await;
            let steer = with_images(Request::steer(session, &id, &text), &images);
            match client.request(steer).await {
                Err(error) if error.code() == Some("NO_ACTIVE_RUN") => {
                    let request = Request::queue_message(session, &id, &text).with_environment(environment.as_ref());
                    client.request(with_images(request, &images)).await?;
                }
                reply => drop(reply?),
            }
        }
        Call::Unqueue { id } => drop(client.request(Request::remove_queued(session, &id)).await?),
        Call::Decide { pending, decision, comment, rule } => {
            let request = pending.decision_request(decision, comment, environment.as_ref()).with_some("rule", rule);
            client.request(request).await?;
        }
        Call::Cancel => drop(client.request(Request::cancel_run(session, None)).await?),
        Call::RunCommand { command } => {
            let request = Request::run_user_command(session, &command).with_environment(environment.as_ref());
            client.request(request).await?;
        }
        Call::StopCommands => drop(client.request(Request::stop_user_command(session, None)).await?),
        Call::ListQueue => {
            return Ok(CallReply::Queue(client.request(Request::list_queue(session)).await?.messages));
        }
        Call::ListApprovals => {
            return Ok(CallReply::Approvals(client.request(Request::list_approvals(None)).await?.approvals));
        }
        Call::ListRules => return Ok(CallReply::Rules(client.request(Request::list_grants()).await?.grants)),
        Call::ListSessions => {
            let page = client.request(Request::list_sessions(LISTED_SESSIONS)).await?;
            return Ok(CallReply::Sessions(page.sessions));
        }
        Call::Snapshot => {
            let snapshot = client.request(Request::session_snapshot(session)).await?;
            return Ok(CallReply::Snapshot(Box::new(snapshot)));
        }
        Call::Compact { instructions } => {
            let request = Request::compact_session(session, instructions.as_deref());
            client.request(request.with_environment(environment.as_ref())).await?;
        }
        Call::Rename { name } => drop(client.request(Request::rename_session(session, &name)).await?),
        Call::End => drop(client.request(Request::end_session(session)).await?),
    }
    Ok(CallReply::Done)
}

fn with_images<R: serde::de::DeserializeOwned>(request: Request<R>, images: &[AttachedImage]) -> Request<R> {
    if images.is_empty() {
        return request;
    }
    let list: Vec<_> =
        images.iter().map(|image| serde_json::json!({"mimeType": image.mime, "data": image.data})).collect();
    request.with("images", list)
}

/// Describes why a request failed.
pub(crate) fn call_error(error: &RequestError) -> CallError {
    CallError { code: error.code().map(str::to_owned), message: error.to_string() }
}
