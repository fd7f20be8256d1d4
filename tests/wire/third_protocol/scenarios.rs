//! The third protocol beside Push and Pi: shared sessions, participants, messages for an audience, and votes.

use pushd::config::limits::Limits;
use serde_json::json;

use super::{SwitchedClient, WordDaemon};
use crate::support::daemon::Client;

#[test]
fn three_protocols_share_a_session() {
    share_a_session(Limits::default());
}

#[test]
fn a_third_protocol_reads_what_has_left_the_ring_from_the_journal() {
    share_a_session(Limits { ring_bytes: 1, ..Limits::default() });
}

#[test]
fn a_protocol_sends_heartbeats_whatever_else_it_sends() {
    let daemon = WordDaemon::start(Limits::default());
    let mut push = Client::connect(&daemon.socket);
    let session = push.start(daemon.home.path());
    let mut words = SwitchedClient::connect(&daemon.socket, "words with heartbeats");
    assert_eq!(words.line(), "welcome");
    let beats = words.until(|line| line.starts_with("alive "));
    let first = beats.last().cloned();
    words.send(&format!("attach {session} 0"));
    words.until(|line| line == "attach ok");
    push.run(&session, "$ true");
    words.until_ended();
    let later = words.until(|line| line.starts_with("alive ")).pop();
    assert!(later > first, "the times rise: {first:?} {later:?}");
    // A protocol without an interval sends none.
    let mut silent = SwitchedClient::words(&daemon.socket);
    words.until(|line| line.starts_with("alive "));
    silent.send("attach nowhere 0");
    assert_eq!(silent.line(), "attach SESSION_NOT_FOUND");
    drop((words, silent));
    daemon.stop();
}

fn share_a_session(limits: Limits) {
    let daemon = WordDaemon::start(limits);
    let mut push = Client::connect(&daemon.socket);
    let session = push.start(daemon.home.path());
    push.attach(&session, 0);
    let mut pi = SwitchedClient::connect(&daemon.socket, "pi");
    pi.send(&json!({"type": "switch_session", "id": "1", "sessionId": session}).to_string());
    pi.until(|line| line.contains(r#""command":"switch_session""#) && line.contains(r#""success":true"#));
    let mut words = SwitchedClient::words(&daemon.socket);
    words.send(&format!("attach {session} 0"));
    assert_eq!(words.line(), "attach ok");
    words.send(&format!("prompt {session} $ echo said"));
    let lines = words.until_ended();
    assert!(lines.contains(&"prompt ok".to_owned()), "{lines:?}");
    let shown = push.events_until("run_complete");
    let ended = shown.last().unwrap()["seq"].to_string();
    assert_eq!(lines.last(), Some(&format!("{ended} ended")), "both see the same numbers");
    let told = pi.until(|line| line.contains(r#""type":"agent_end""#));
    assert!(told.iter().any(|line| line.contains("said")), "{told:?}");
    // What one has missed, it reads later.
    push.run(&session, "$ true");
    let second = words.until_ended();
    let mut late = SwitchedClient::words(&daemon.socket);
    late.send(&format!("attach {session} 0"));
    assert_eq!(late.line(), "attach ok");
    let first: Vec<String> = lines.into_iter().filter(|line| line != "prompt ok").collect();
    assert_eq!(late.until_ended(), first);
    assert_eq!(late.until_ended(), second);
    drop((pi, words, late));
    daemon.stop();
}

#[test]
fn participants_of_a_third_protocol_post_and_vote_together_with_push_and_pi() {
    let daemon = WordDaemon::start(Limits::default());
    let mut push = Client::connect(&daemon.socket);
    let session = push.start(daemon.home.path());
    let mut pi = SwitchedClient::connect(&daemon.socket, "pi");
    pi.send(&json!({"type": "switch_session", "id": "1", "sessionId": session}).to_string());
    let mut ann = SwitchedClient::words(&daemon.socket);
    let mut ask = |words: String| {
        ann.send(&words);
        ann.until(|line| line.starts_with(words.split(' ').next().unwrap())).pop().unwrap()
    };
    assert_eq!(ask(format!("join {session} approver system")), "join INVALID_REQUEST");
    assert_eq!(ask(format!("join {session} approver ann")), "join ok");
    assert_eq!(ask(format!("attach {session} 0")), "attach ok");
    assert_eq!(ask(format!("post {session} approver quietly")), "post ok");
    let gate = ask(format!("ask {session} all")).split_off(4);
    let vote = json!({"sessionId": session, "approvalId": gate, "decision": "approve"});
    push.get("submit_approval", vote.clone());
    pi.until(|line| line.contains("Merge?"));
    let confirm = json!({"method": "confirm", "confirmed": true});
    let answer = json!({"type": "extension_ui_response", "id": "2", "sessionId": session, "requestId": gate,
        "response": confirm});
    pi.send(&answer.to_string());
    pi.until(|line| line.contains(r#""command":"extension_ui_response""#));
    assert_eq!(push.get("list_approvals", json!({}))["approvals"][0]["needed"], 2, "the owner has voted once");
    assert_eq!(ask(format!("yes {session} {gate}")), "yes ok");
    let seen = push.events_until("approval_received");
    assert_eq!(seen.last().unwrap()["payload"]["participantId"], "ann");
    assert!(!seen.iter().any(|event| event.to_string().contains("quietly")), "Push is not in the audience");
    // A gate of a role: the owner does not hold it.
    let gate = ask(format!("ask {session} approver")).split_off(4);
    let vote = json!({"sessionId": session, "approvalId": gate, "decision": "approve"});
    assert_eq!(push.refused("submit_approval", vote), "ATTACH_FORBIDDEN");
    assert_eq!(ask(format!("yes {session} {gate}")), "yes ok");
    let mut late = SwitchedClient::words(&daemon.socket);
    late.send(&format!("join {session} approver ann\nattach {session} 0"));
    assert!(late.until(|line| line.ends_with(" settled")).iter().any(|line| line.contains("quietly")));
    let known = push.get("list_participants", json!({"sessionId": session}));
    assert_eq!(known["participants"][0]["participantId"], "ann", "{known}");
    assert_eq!(known["participants"][0]["online"], true, "{known}");
    drop((pi, ann, late));
    daemon.stop();
}

#[test]
fn a_third_protocol_is_served_at_its_path_and_a_bad_frame_is_answered() {
    let daemon = WordDaemon::start(Limits::default());
    let mut push = Client::connect(&daemon.socket);
    let session = push.start(daemon.home.path());
    let address = push.get("get_metrics", json!({}))["http"].as_str().expect("an address").to_owned();
    let (mut web, _) = tungstenite::connect(format!("ws://{address}/words")).expect("the path is served");
    assert_eq!(web.read().unwrap().to_text().unwrap(), "welcome");
    for (line, reply) in [
        ("dance s".to_owned(), "unknown INVALID_REQUEST"),
        ("attach".to_owned(), "unknown INVALID_REQUEST"),
        ("prompt nobody hello".to_owned(), "prompt SESSION_NOT_FOUND"),
        (format!("cancel {session}"), "cancel NO_ACTIVE_RUN"),
        ("x".repeat(1 << 17), "unknown INVALID_REQUEST"),
    ] {
        web.send(tungstenite::Message::text(line.clone())).unwrap();
        assert_eq!(web.read().unwrap().to_text().unwrap(), reply, "{}", &line[..line.len().min(40)]);
    }
    push.ping();
    drop(web);
    daemon.stop();
}
