//! Requested compactions, and those that a run needs.

use pushd::kernel::command::{Answer, Command};
use pushd::kernel::event::{
    Adjustment, CompactionFailure, CompactionReason, ContextEvent, EventKind, RunEvent, RunOutcome,
};
use pushd::kernel::refusal::Refusal;

use crate::session_features::fixture::{Fixture, TestClient, texts};
use crate::support::model::Reply;

#[tokio::test]
async fn a_requested_compaction_replaces_the_older_part() {
    let fixture = Fixture::new();
    let mut client = session_with_two_answers(&fixture).await;
    fixture.server.script([Reply::says("the gist of it"), Reply::says("on we go")]);
    let compact = Command::Compact { instructions: Some("mention the colour".into()) };
    let (reply, version) = client.send(compact).await;
    assert!(matches!(reply, Ok(Answer::CompactionStarted(_))), "{reply:?}");
    assert_eq!(version, 2, "what is not done yet makes no version");
    assert_eq!(client.send(Command::Compact { instructions: None }).await.0, Err(Refusal::Compacting));
    let compaction = client
        .until(|event| match &event.kind {
            EventKind::Context(ContextEvent::Compacted(compaction)) => Some((**compaction).clone()),
            EventKind::Context(ContextEvent::CompactionFailed { message, .. }) => panic!("{message:?}"),
            _ => None,
        })
        .await;
    assert_eq!(compaction.summary, "the gist of it");
    assert!(compaction.tokens_before > 0);
    let request = texts(&fixture.request_body(2));
    assert!(request.last().unwrap().ends_with("The user asks for this in particular:\nmention the colour"));
    let began = client.seen.iter().find_map(|event| match &event.kind {
        EventKind::Context(ContextEvent::CompactionStarted { reason, by }) => {
            Some((*reason, by.clone(), event.run.clone()))
        }
        _ => None,
    });
    assert_eq!(began, Some((CompactionReason::Manual, Some("guest".into()), None)));
    let used = client.seen.iter().filter(|event| matches!(event.kind, EventKind::Run(RunEvent::TurnUsage(_)))).count();
    assert_eq!(used, 3, "what it used is told");
    client.run("and now?").await;
    let sent = texts(&fixture.request_body(3));
    assert!(sent[1].contains("the gist of it"), "{sent:?}");
    assert!(!sent.join("\n").contains("first question"), "{sent:?}");
    assert!(sent.last().unwrap().ends_with("and now?"));
    fixture.close().await;
}

#[tokio::test]
async fn a_cancelled_compaction_releases_waiting_messages() {
    let fixture = Fixture::new();
    let mut client = session_with_two_answers(&fixture).await;
    fixture.server.script([Reply::Never, Reply::says("here")]);
    client.send_accepted(Command::Compact { instructions: None }).await;
    fixture.wait_for_requests(3).await;
    let refused = crate::session_features::fixture::prompt("too early", Vec::new());
    assert_eq!(client.send(Command::Prompt(Box::new(refused))).await.0, Err(Refusal::Compacting));
    let queued = crate::session_features::fixture::prompt("later", Vec::new());
    let answer = client.send_accepted(Command::Queue(Box::new(queued))).await;
    assert!(matches!(answer, Answer::Queued { position: 1, .. }), "{answer:?}");
    assert_eq!(client.send_accepted(Command::StopCompaction).await, Answer::CompactionStopped);
    let report = client.wait_for_run_end().await;
    assert_eq!(report.outcome, RunOutcome::Success);
    assert_eq!(last_failure(&client), (CompactionFailure::Aborted, "stopped by guest".to_owned()));
    assert_eq!(client.send(Command::StopCompaction).await.0, Err(Refusal::NoCompaction));
    assert!(texts(&fixture.request_body(fixture.request_count() - 1)).join("\n").contains("first question"));
    fixture.close().await;
}

#[tokio::test]
async fn a_failed_or_empty_compaction_changes_nothing() {
    let fixture = Fixture::new();
    let mut client = fixture.session().await;
    client.send_accepted(Command::Compact { instructions: None }).await;
    wait_for_compaction(&mut client).await;
    assert_eq!(last_failure(&client), (CompactionFailure::Failed, "there is nothing to summarise yet".to_owned()));
    let mut client = session_with_two_answers(&fixture).await;
    fixture.server.script([Reply::status(401, r#"{"error":{"message":"who are you?"}}"#), Reply::says("still here")]);
    client.send_accepted(Command::Compact { instructions: None }).await;
    wait_for_compaction(&mut client).await;
    assert_eq!(last_failure(&client).0, CompactionFailure::Failed);
    assert_eq!(client.run("hello?").await.outcome, RunOutcome::Success);
    fixture.close().await;
}

#[tokio::test]
async fn a_compaction_interrupted_by_a_restart_ends_and_the_session_continues() {
    let mut fixture = Fixture::new();
    let mut client = session_with_two_answers(&fixture).await;
    fixture.server.script([Reply::Never]);
    client.send_accepted(Command::Compact { instructions: None }).await;
    fixture.wait_for_requests(3).await;
    let id = client.id();
    drop(client);
    fixture.restart().await;
    let mut client = fixture.attach(&id).await;
    wait_for_compaction(&mut client).await;
    assert_eq!(last_failure(&client).0, CompactionFailure::Aborted);
    fixture.server.script([Reply::says("here")]);
    assert_eq!(client.run("hello?").await.outcome, RunOutcome::Success);
    fixture.close().await;
}

#[tokio::test]
async fn a_run_reports_its_compaction() {
    let fixture = Fixture::new();
    let mut client = session_near_window_limit(&fixture).await;
    fixture.server.script([Reply::says("the gist of it"), Reply::says("done")]);
    client.run("third question").await;
    let reasons = reasons(&client);
    assert_eq!(reasons, [CompactionReason::Threshold]);
    assert!(
        client
            .seen
            .iter()
            .any(|event| matches!(event.kind, EventKind::Context(ContextEvent::Compacted(_))) && event.run.is_some())
    );
    fixture.close().await;
}

#[tokio::test]
async fn a_run_continues_after_its_compaction_was_cancelled() {
    let fixture = Fixture::new();
    let mut client = session_near_window_limit(&fixture).await;
    fixture.server.script([Reply::Never, Reply::says("without a summary")]);
    client.prompt("third question").await;
    client
        .until(|event| matches!(event.kind, EventKind::Context(ContextEvent::CompactionStarted { .. })).then_some(()))
        .await;
    assert_eq!(client.send_accepted(Command::StopCompaction).await, Answer::CompactionStopped);
    let report = client.wait_for_run_end().await;
    assert_eq!(report.outcome, RunOutcome::Success, "{report:?}");
    assert_eq!(last_failure(&client).0, CompactionFailure::Aborted);
    assert!(!client.seen.iter().any(|event| matches!(event.kind, EventKind::Context(ContextEvent::Compacted(_)))));
    fixture.close().await;
}

#[tokio::test]
async fn automatic_compaction_can_be_disabled() {
    let fixture = Fixture::new();
    let mut client = session_near_window_limit(&fixture).await;
    let off = Adjustment { auto_compaction: Some(false), ..Adjustment::default() };
    client.send_accepted(Command::Adjust(Box::new(off))).await;
    fixture.server.script([Reply::says("as it is")]);
    assert_eq!(client.run("third question").await.outcome, RunOutcome::Success);
    let too_long =
        r#"{"error":{"message":"This model's maximum context length is 9 tokens","code":"context_length_exceeded"}}"#;
    fixture.server.script([Reply::status(400, too_long)]);
    let report = client.run("fourth question").await;
    assert_eq!(report.outcome, RunOutcome::Failed);
    assert!(report.summary.contains("automatic compaction is off"), "{}", report.summary);
    assert_eq!(reasons(&client), []);
    let on = Adjustment { auto_compaction: Some(true), ..Adjustment::default() };
    client.send_accepted(Command::Adjust(Box::new(on))).await;
    fixture.server.script([Reply::says("the gist"), Reply::says("done")]);
    assert_eq!(client.run("fifth question").await.outcome, RunOutcome::Success);
    assert_eq!(reasons(&client), [CompactionReason::Threshold]);
    fixture.close().await;
}

/// A session with two answered questions.
async fn session_with_two_answers(fixture: &Fixture) -> TestClient {
    let mut client = fixture.session().await;
    fixture.server.script([Reply::says("the first answer"), Reply::says("the second answer")]);
    client.run("first question").await;
    client.run("second question").await;
    client
}

/// A session whose conversation exceeds the window with the next question.
async fn session_near_window_limit(fixture: &Fixture) -> TestClient {
    let mut client = fixture.session().await;
    let before = fixture.request_count();
    let words = "so many words ".repeat(500);
    for answer in ["the first answer", "the second answer", "the third answer"] {
        fixture.server.script([Reply::says(answer)]);
        client.run(&format!("{answer}? {words}")).await;
    }
    let request = fixture.request_body(before);
    let fixed = (request["messages"][0].to_string().len() + request["tools"].to_string().len()) / 4;
    fixture.set_context_window((fixed + 5 * words.len() / 8) * 10 / 8);
    client
}

async fn wait_for_compaction(client: &mut TestClient) {
    client
        .until(|event| matches!(event.kind, EventKind::Context(ContextEvent::CompactionFailed { .. })).then_some(()))
        .await;
}

/// The failure and message of the last unsuccessful compaction.
fn last_failure(client: &TestClient) -> (CompactionFailure, String) {
    let found = client.seen.iter().rev().find_map(|event| match &event.kind {
        EventKind::Context(ContextEvent::CompactionFailed { failure: ending, message, .. }) => {
            Some((*ending, message.clone().unwrap_or_default()))
        }
        _ => None,
    });
    found.expect("one that came to nothing")
}

fn reasons(client: &TestClient) -> Vec<CompactionReason> {
    let reasons = client.seen.iter().filter_map(|event| match &event.kind {
        EventKind::Context(ContextEvent::CompactionStarted { reason, .. }) => Some(*reason),
        _ => None,
    });
    reasons.collect()
}
