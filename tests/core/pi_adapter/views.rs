//! Queries on a projection: messages, statistics, forks, summaries, pending questions.

use pushd::kernel::event::Branch;
use pushd::kernel::id::Seq;
use pushd::kernel::time::Now;
use pushd::protocol::command_protocol::{CommandResponse, ForkPoint, SessionProjection};
use pushd::protocol::pi::encode;
use pushd::protocol::pi::projection::{Projection, Role};
use serde_json::{Value, json};

use crate::pi_adapter::event_source::{EventSource, projection, read};
use crate::pi_adapter::pages::check_line;

/// Two runs with a call, a shell command of the user, and a cancelled run.
const TALK: &[&str] = &[
    r#"session_started -"#,
    r#"user_message r1 {"messageId":"m1","text":"first"}"#,
    r#"thinking_token r1 {"text":"hm"}"#,
    r#"assistant_token r1 {"text":"I look."}"#,
    r#"usage r1 {"inputTokens":100,"outputTokens":10,"cacheReadTokens":70,"costMicroUsd":2000}"#,
    r#"tool_call r1 {"toolName":"x","callId":"c1"}"#,
    r#"status r1 {"phase":"started","detail":"x","callId":"c1"}"#,
    r#"tool_result r1 {"toolName":"x","callId":"c1","text":"seen"}"#,
    r#"assistant_token r1 {"text":"Seen."}"#,
    r#"usage r1 {"inputTokens":200,"outputTokens":20,"cacheWriteTokens":50,"costMicroUsd":3000}"#,
    r#"run_complete r1"#,
    r#"tool_call - {"source":"user","toolName":"bash","callId":"c2","args":{"command":"ls"}}"#,
    r#"status - {"phase":"started","detail":"bash","callId":"c2"}"#,
    r#"tool_result - {"source":"user","toolName":"bash","callId":"c2","text":"a","exitCode":0}"#,
    r#"user_message r2 {"messageId":"m2","text":"second"}"#,
    r#"run_complete r2 {"outcome":"cancelled","summary":"cancelled by pi"}"#,
];

#[test]
fn messages_equal_the_projected_ones() {
    let (projection, projected) = projection(TALK);
    let ended: Vec<&Value> =
        projected.iter().filter(|event| event["type"] == "message_end").map(|event| &event["message"]).collect();
    let messages = messages(&projection);
    assert_eq!(messages.iter().collect::<Vec<_>>(), ended);
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    let expected = ["user", "assistant", "toolResult", "assistant", "bashExecution", "user", "assistant"];
    assert_eq!(roles, expected);
    let ends: Vec<&Value> = projected.iter().filter(|event| event["type"] == "agent_end").collect();
    assert_eq!(ends[0]["messages"].as_array().unwrap()[..], messages[..4]);
    assert_eq!(ends[1]["messages"].as_array().unwrap()[..], messages[5..]);
    assert_eq!(projection.message_count(), 7);
}

#[test]
fn the_last_text_is_that_of_the_last_assistant_message() {
    let (projection, _) = projection(TALK);
    assert_eq!(projection.last_text().as_deref(), Some("Seen."), "an empty message says nothing");
    assert_eq!(Projection::default().last_text(), None);
}

#[test]
fn statistics_count_messages_and_usage() {
    let (projection, _) = projection(TALK);
    let data = encode::session_stats(&"s".into(), None, &projection.stats());
    let stats: Value = serde_json::from_str(data.as_str()).unwrap();
    let expected = json!({
        "sessionFile": null, "sessionId": "s", "userMessages": 2, "assistantMessages": 3, "toolCalls": 1,
        "toolResults": 1, "totalMessages": 7, "cost": 0.005,
        "tokens": { "input": 180, "output": 30, "cacheRead": 70, "cacheWrite": 50, "total": 330 },
    });
    assert_eq!(stats, expected);
    assert_eq!(projection.context_tokens(), Some(220));
}

#[test]
fn a_fork_starts_before_a_message_and_drops_later_ones() {
    let (mut projection, _) = projection(TALK);
    let forks = projection.fork_messages();
    let texts: Vec<_> = forks.iter().map(|fork| (fork.entry_id.as_str(), fork.text.as_str())).collect();
    assert_eq!(texts, [("00000002", "first"), ("0000000f", "second")]);
    let point = ForkPoint { text: "second".into(), branch: Branch { until: Seq::new(14), from: Seq::new(1) } };
    assert_eq!(projection.fork_point("0000000f"), Some(point));
    assert_eq!(projection.fork_point("00000003"), None, "only from a message of the user's");
    let mut source = later(TALK.len());
    let branched = source.event("session_branched", None, json!({ "untilSeq": 14, "fromSeq": 0 }));
    projection.apply(&branched);
    assert_eq!(projection.message_count(), 5);
    assert_eq!(projection.fork_messages().len(), 1);
    assert_eq!(projection.context_tokens(), None);
    projection.apply(&source.event("user_message", Some("r3"), json!({ "messageId": "m3", "text": "other" })));
    let texts: Vec<_> = projection.fork_messages().into_iter().map(|fork| fork.text).collect();
    assert_eq!(texts, ["first", "other"]);
    assert_eq!(projection.stats().cost, 5000, "what was spent is spent");
}

#[test]
fn a_fork_during_an_answer_drops_the_answer() {
    let lines = [
        r#"user_message r1 {"messageId":"m1","text":"go"}"#,
        r#"assistant_token r1 {"text":"One, "}"#,
        r#"user_message r1 {"messageId":"m2","text":"faster","delivery":"steer"}"#,
        r#"assistant_token r1 {"text":"two."}"#,
        r#"usage r1"#,
        r#"assistant_token r1 {"text":"Three."}"#,
        r#"usage r1"#,
        r#"run_complete r1"#,
    ];
    let (mut projection, _) = projection(&lines);
    let roles = |projection: &Projection| projection.entries().map(|entry| entry.role).collect::<Vec<_>>();
    let assistant = Role::Assistant { calls: 0 };
    assert_eq!(roles(&projection), [Role::User, assistant, Role::User, assistant]);
    let point = projection.fork_point("00000003").unwrap();
    assert_eq!((point.branch.until, point.text.as_str()), (Seq::new(2), "faster"));
    let branch = json!({ "untilSeq": point.branch.until.number(), "fromSeq": point.branch.from.number() });
    projection.apply(&later(lines.len()).event("session_branched", None, branch));
    assert_eq!(roles(&projection), [Role::User], "what was not whole by then was not said");
}

#[test]
fn a_new_conversation_starts_after_the_old_one() {
    let (mut projection, _) = projection(TALK);
    let mut source = later(TALK.len());
    projection.apply(&source.event("session_branched", None, json!({ "untilSeq": 0, "fromSeq": 17 })));
    assert_eq!((projection.message_count(), projection.last_text()), (0, None));
    projection.apply(&source.event("user_message", Some("r3"), json!({ "messageId": "m3", "text": "anew" })));
    let id = projection.fork_messages()[0].entry_id.clone();
    let point = projection.fork_point(&id).unwrap();
    assert_eq!((point.branch.until, point.branch.from), (Seq::new(17), Seq::new(17)));
}

#[test]
fn a_summary_replaces_earlier_messages_and_a_fork_restores_them() {
    let (mut projection, _) = projection(TALK);
    let whole = messages(&projection);
    let mut source = later(TALK.len());
    let summary = json!({ "summary": "They looked.", "keptFromSeq": 15, "tokensBefore": 500 });
    projection.apply(&source.event("context_compacted", None, summary));
    let projected = messages(&projection);
    assert_eq!(projected.len(), 3);
    let first = json!({
        "role": "compactionSummary", "summary": "They looked.", "tokensBefore": 500, "timestamp": 17000,
    });
    assert_eq!((&projected[0], &projected[1..]), (&first, &whole[5..]));
    let data = encode::compaction(&projection.summary().unwrap());
    let data: Value = serde_json::from_str(data.as_str()).unwrap();
    assert_eq!(data, json!({ "summary": "They looked.", "firstKeptEntryId": "0000000f", "tokensBefore": 500 }));
    assert_eq!(projection.context_tokens(), None);
    assert_eq!(projection.fork_messages().len(), 2, "a fork may begin in what was summarised");
    assert_eq!(projection.entries().count(), 8);

    projection.apply(&source.event("user_message", Some("r3"), json!({ "messageId": "m3", "text": "third" })));
    projection.apply(&source.event("run_complete", Some("r3"), json!({})));
    let point = projection.fork_point("00000012").unwrap();
    assert_eq!((point.branch.until, point.branch.from), (Seq::new(17), Seq::new(15)), "told as it was at that point");
    let point = projection.fork_point("0000000f").unwrap();
    assert_eq!((point.branch.until, point.branch.from), (Seq::new(14), Seq::new(1)), "before there was a summary");
    projection.apply(&source.event("session_branched", None, json!({ "untilSeq": 14, "fromSeq": 0 })));
    assert_eq!(messages(&projection), whole[..5]);
    assert_eq!(projection.summary(), None);
}

#[test]
fn a_result_follows_its_call_whatever_messages_came_in_between() {
    let (projection, _) = projection(&[
        r#"user_message r1 {"messageId":"m1","text":"go"}"#,
        r#"usage r1"#,
        r#"tool_call r1 {"toolName":"x","callId":"c1"}"#,
        r#"status r1 {"phase":"started","detail":"x","callId":"c1"}"#,
        r#"user_message r1 {"messageId":"m2","text":"wait","delivery":"steer"}"#,
        r#"tool_result r1 {"toolName":"x","callId":"c1","text":"seen"}"#,
    ]);
    let roles: Vec<_> = projection.entries().map(|entry| entry.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant { calls: 1 }, Role::ToolResult, Role::User]);
}

#[test]
fn a_complete_message_survives_the_daemon_that_died_before_the_end_of_its_run() {
    let mut lines = vec![
        r#"user_message r1 {"messageId":"m1","text":"go"}"#,
        r#"assistant_token r1 {"text":"Done."}"#,
        r#"assistant_done r1 {"messageId":"a1"}"#,
        r#"usage r1"#,
        r#"run_recovered r1 {"found":"working"}"#,
    ];
    let (recovered, projected) = projection(&lines);
    assert_eq!(recovered.last_text().as_deref(), Some("Done."));
    let ended: Vec<_> = projected.iter().filter(|event| event["type"] == "message_end").collect();
    assert_eq!(ended[1]["message"]["stopReason"], "stop", "{ended:?}");
    lines.extend([
        r#"assistant_token r1 {"text":"Yes, done."}"#,
        r#"assistant_done r1 {"messageId":"a2"}"#,
        r#"usage r1"#,
        r#"run_complete r1"#,
    ]);
    let (ended, _) = projection(&lines);
    let texts: Vec<_> = messages(&ended).iter().map(|message| message["content"][0]["text"].clone()).collect();
    assert_eq!(texts, ["go", "Done.", "Yes, done."]);
}

#[test]
fn a_new_subscriber_receives_pending_questions() {
    let (mut projection, _) = projection(&[
        r#"user_message r1 {"messageId":"m1","text":"go"}"#,
        r#"tool_call r1 {"toolName":"x","callId":"c1"}"#,
        r#"approval_required r1 {"approvalId":"g1","callId":"c1"}"#,
    ]);
    let requests: Vec<Value> = projection.open_requests(Now(13_000)).iter().map(read).collect();
    assert_eq!(requests.len(), 1);
    assert_eq!((&requests[0]["requestId"], &requests[0]["timeout"]), (&json!("g1"), &json!(50_000)));
    assert!(projection.question(&"g1".into()).is_some());
    assert!(projection.is_streaming());
    projection.apply(&later(3).event("approval_received", Some("r1"), json!({ "approvalId": "g1" })));
    assert_eq!(projection.open_requests(Now(13_000)), []);
    assert!(projection.question(&"g1".into()).is_none());
}

#[test]
fn the_messages_of_a_projection_are_a_valid_response() {
    let (projection, _) = projection(TALK);
    let data = encode::messages(projection.messages());
    check_line(&encode::response(&CommandResponse {
        id: Some("c"),
        command: "get_messages",
        success: true,
        body: data.as_str(),
        session_version: Some(3),
        replayed: false,
        timed_out: false,
    }));
}

fn messages(projection: &Projection) -> Vec<Value> {
    projection.messages().map(|message| serde_json::from_str(&message).unwrap()).collect()
}

/// An event source that continues after this number of events.
fn later(events: usize) -> EventSource {
    let mut source = EventSource::default();
    for _ in 0..events {
        source.line("session_loaded -");
    }
    source
}
