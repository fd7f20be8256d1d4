//! Commands in messages of somebody other than the owner: they ask first and run confined, or do not run.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::web::client::{PiDaemon, Socket};
use crate::web::http::{bearer, http_daemon, request};

/// A session of the owner in a directory of its own, and a connection with a token of the role `prompter`.
struct SharedSession {
    server: PiDaemon,
    attach: Value,
    prompter: Socket,
    project: PathBuf,
}

impl SharedSession {
    fn start(sandbox: &str) -> Self {
        let server = http_daemon();
        let project = server.daemon.home.path().join("project");
        std::fs::create_dir(&project).unwrap();
        let start = json!({"cwd": project, "sandboxProvider": sandbox});
        let started = server.daemon.connect().get("start_session", start);
        let attach = json!({"sessionId": started["sessionId"], "attachToken": started["attachToken"]});
        let mut prompter = server.socket("/push", &[("authorization", &bearer(&server, "prompter"))]);
        assert_eq!(request(&mut prompter, "attach_session", &attach)["ok"], true);
        Self { server, attach, prompter, project }
    }

    fn prompt(&mut self, mut message: Value) {
        message["sessionId"] = self.attach["sessionId"].clone();
        let answer = request(&mut self.prompter, "send_user_message", &message);
        assert_eq!(answer["ok"], true, "{answer}");
    }

    /// Returns the events up to one of a type.
    fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.prompter.json();
            let is_last = event["type"] == kind;
            events.push(event);
            if is_last {
                return events;
            }
        }
    }
}

#[test]
fn the_acceptance_checks_of_a_prompter_ask_and_run_confined() {
    let mut shared = SharedSession::start("local");
    let outside = shared.server.daemon.home.path().join("outside");
    let check = format!("touch inside && ! touch {}", outside.display());
    shared.prompt(json!({"text": "$ true", "acceptanceCriteria": [{"id": "c", "check": check}]}));
    if !shared.server.confines_commands() {
        let events = shared.until("run_complete");
        assert!(!shared.project.join("inside").exists(), "it must not run unconfined: {events:?}");
        return;
    }
    let server = &shared.server;
    let mut approver = server.socket("/push", &[("authorization", &bearer(server, "approver"))]);
    assert_eq!(request(&mut approver, "attach_session", &shared.attach)["ok"], true);
    for asking in ["the step", "the check"] {
        let asked = shared.until("approval_required").pop().unwrap();
        assert!(!shared.project.join("inside").exists(), "{asking} asks first");
        let vote = json!({"sessionId": shared.attach["sessionId"], "approvalId": asked["payload"]["approvalId"],
            "decision": "approve"});
        let refused = request(&mut shared.prompter, "submit_approval", &vote);
        assert_eq!(refused["ok"], false, "a prompter may not approve {asking}: {refused}");
        assert_eq!(request(&mut approver, "submit_approval", &vote)["ok"], true, "{asking}");
    }
    let complete = shared.until("run_complete").pop().unwrap();
    assert_eq!(complete["payload"]["acceptance"]["passed"], 1, "{complete}");
    assert!(shared.project.join("inside").exists() && !outside.exists(), "{complete}");
}

#[test]
fn a_command_of_a_prompter_does_not_run_where_no_sandbox_works() {
    let mut shared = SharedSession::start("none");
    shared.prompt(json!({"text": "$ touch inside", "acceptanceCriteria": [{"id": "c", "check": "touch inside"}]}));
    let events = shared.until("run_complete");
    assert!(events.iter().any(|event| event.to_string().contains("SANDBOX_UNAVAILABLE")), "{events:?}");
    assert_eq!(events.last().unwrap()["payload"]["outcome"], "failed", "{events:?}");
    assert!(!shared.project.join("inside").exists(), "{events:?}");
    // The same command of the owner runs.
    let session = shared.attach["sessionId"].as_str().unwrap().to_owned();
    let mut owner = shared.server.daemon.connect();
    owner.attach(&session, 0);
    owner.prompt(&session, "$ touch inside");
    shared.until("run_complete");
    assert!(shared.project.join("inside").exists());
}

#[test]
fn a_prompter_adds_no_steps_to_a_run_of_the_owner() {
    let mut shared = SharedSession::start("local");
    let session = shared.attach["sessionId"].as_str().unwrap().to_owned();
    let mut owner = shared.server.daemon.connect();
    owner.attach(&session, 0);
    owner.prompt(&session, "$ until [ -e go ]; do sleep 0.01; done");
    shared.until("tool_call");
    let steer = json!({"sessionId": session, "text": "$ touch steered"});
    let refused = request(&mut shared.prompter, "steer", &steer);
    assert_eq!(refused["error"]["code"], "ATTACH_FORBIDDEN", "{refused}");
    std::fs::write(shared.project.join("go"), "").unwrap();
    shared.until("run_complete");
    assert!(!shared.project.join("steered").exists());
}
