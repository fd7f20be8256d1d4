//! The seven contracts of the Push protocol, over a real socket to a real daemon.
#![cfg(unix)]

use crate::support::daemon::{Daemon, types};
use serde_json::json;

#[test]
fn the_handshake_reports_version_and_capabilities() {
    let daemon = Daemon::start();
    let hello = daemon.connect().get("hello", json!({"capabilities": ["approvals"]}));
    assert_eq!(hello["protocolVersion"], "push.runtime.v1");
    assert_eq!(hello["runtimeName"], "pushd");
    for capability in ["stream_tokens", "approvals", "replay_attach", "headless"] {
        assert!(hello["capabilities"].as_array().unwrap().contains(&json!(capability)));
    }
}

#[test]
fn a_started_session_is_reported_to_its_starter() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    let started = client.get("start_session", json!({"cwd": daemon.cwd(), "mode": "interactive"}));
    assert_eq!(started["state"], "idle");
    assert!(started["attachToken"].as_str().unwrap().starts_with("att_"));
    let event = client.event();
    assert_eq!(event["type"], "session_started");
    assert_eq!(event["payload"]["sessionId"], started["sessionId"]);
}

#[test]
fn text_streams_in_order_before_the_run_completes() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.prompt(&session, "One two three four.\n\n$ true\n");
    let events = client.events_until("run_complete");
    let tokens: String = events
        .iter()
        .filter(|event| event["type"] == "assistant_token")
        .map(|event| event["payload"]["text"].as_str().unwrap())
        .collect();
    assert_eq!(tokens, "One two three four.");
    let seqs: Vec<_> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
    assert_eq!(events.last().unwrap()["payload"]["outcome"], "success");
}

#[test]
fn a_tool_is_seen_when_called_and_when_done() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.prompt(&session, "$ echo seen\n");
    let events = client.events_until("run_complete");
    let call = events.iter().find(|event| event["type"] == "tool_call").unwrap();
    let result = events.iter().find(|event| event["type"] == "tool_result").unwrap();
    assert_eq!(call["payload"]["toolName"], result["payload"]["toolName"]);
    assert_eq!(call["payload"]["args"]["command"], "echo seen");
    assert_eq!(result["payload"]["text"], "seen\n");
}

#[test]
fn an_approved_step_goes_on() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let run = client.prompt(&session, "$? echo done > approved\n");
    let approval_event = client.event_of("approval_required");
    assert!(!daemon.cwd().join("approved").exists(), "it ran before it was approved");
    let approval = approval_event["payload"]["approvalId"].clone();
    let payload = json!({"sessionId": session, "runId": run, "approvalId": approval, "decision": "approve"});
    client.get("submit_approval", payload);
    let events = client.events_until("run_complete");
    assert_eq!(events[0]["type"], "approval_received");
    assert_eq!(events[0]["payload"]["by"], "cli");
    assert_eq!(events.last().unwrap()["payload"]["outcome"], "success");
    assert!(daemon.cwd().join("approved").exists());
}

#[test]
fn a_cancelled_run_completes_as_cancelled() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    let run = client.prompt(&session, "$ echo begun; sleep 1000\n");
    client.event_of("tool_output");
    client.get("cancel_run", json!({"sessionId": session, "runId": run}));
    let complete = client.event_of("run_complete");
    assert_eq!(complete["payload"]["outcome"], "cancelled");
    assert_eq!(complete["payload"]["headless"]["exitCodeHint"], 2);
}

#[test]
fn a_reattaching_client_gets_missed_events_in_order() {
    let daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    client.prompt(&session, "Some words to say.\n\n$ echo more\n");
    let mut all = client.events_until("run_complete");
    let run_events = all.len();
    let seen = all[run_events / 2]["seq"].as_u64().unwrap();
    let missed = all.split_off(run_events / 2 + 1);
    let mut other = daemon.connect();
    let attached = other.get("attach_session", json!({"sessionId": session, "lastSeenSeq": seen}));
    assert_eq!(attached["replay"]["fromSeq"], seen + 1);
    assert_eq!(attached["replay"]["toSeq"], missed.last().unwrap()["seq"]);
    assert_eq!(attached["replay"]["gap"], false);
    let replayed = other.events_until("run_complete");
    assert_eq!(types(&replayed), types(&missed));
    assert_eq!(replayed, missed);
}
