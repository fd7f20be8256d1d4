//! The requests of clients, and their wire form.

use serde_json::{Value, json};

use super::harness::Harness;
use super::observations::DeliveryMode;

/// A request to the daemon.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Start { number: usize },
    Attach { session: String, after: u64 },
    Message { id: String, delivery: DeliveryMode, payload: Value },
    Decide { session: String, approval: String, decision: String, choice: Option<String> },
    Cancel { session: String, run: String },
    Remove { session: String, message: String },
    Rename { session: String, name: String },
    Snapshot { session: String },
}

impl Request {
    /// Encodes the request for a given generation of the daemon.
    pub(crate) fn encode(&self, harness: &Harness, generation: u64) -> (&'static str, Value) {
        let environment = || environment(harness, generation);
        match self {
            Self::Start { number } => {
                let (cwd, key) = (harness.cwd(), format!("start-{number}"));
                ("start_session", json!({"cwd": cwd, "idempotencyKey": key, "environment": environment()}))
            }
            Self::Attach { session, after } => {
                let payload = json!({"sessionId": session, "lastSeenSeq": after, "environment": environment()});
                ("attach_session", payload)
            }
            Self::Message { delivery: DeliveryMode::Send, payload, .. } => ("send_user_message", payload.clone()),
            Self::Message { delivery: DeliveryMode::Queue, payload, .. } => ("queue_message", payload.clone()),
            Self::Message { delivery: DeliveryMode::Steer, payload, .. } => ("steer", payload.clone()),
            Self::Decide { session, approval, decision, choice } => {
                let mut payload = json!({"sessionId": session, "approvalId": approval, "decision": decision});
                if let Some(choice) = choice {
                    payload["choice"] = json!(choice);
                }
                ("submit_approval", payload)
            }
            Self::Cancel { session, run } => ("cancel_run", json!({"sessionId": session, "runId": run})),
            Self::Remove { session, message } => ("remove_queued", json!({"sessionId": session, "messageId": message})),
            Self::Rename { session, name } => ("rename_session", json!({"sessionId": session, "name": name})),
            Self::Snapshot { session } => ("get_session_snapshot", json!({"sessionId": session})),
        }
    }
}

/// The environment of steps; the mark names the generation, so that processes that outlive it are found.
pub(crate) fn environment(harness: &Harness, generation: u64) -> Value {
    json!({"PATH": std::env::var("PATH").unwrap_or_default(), "PUSH_KILL_MARK": mark(harness, generation)})
}

/// The mark of all steps of one generation.
pub(crate) fn mark(harness: &Harness, generation: u64) -> String {
    format!("{}/life-{generation}.", harness.home.path().display())
}
