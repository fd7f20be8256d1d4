//! Retries of model requests: how they are reported, and how they end.

use pushd::kernel::command::{Answer, Command};
use pushd::kernel::event::{Adjustment, EventKind, RunEvent, RunOutcome};
use pushd::kernel::refusal::Refusal;

use crate::session_features::fixture::{Fixture, KEY, TestClient};
use crate::support::model::{Fault, Reply, fault, say};

const BUSY: &str = r#"{"error":{"message":"overloaded"}}"#;

#[tokio::test]
async fn every_retry_is_reported_until_the_server_answers() {
    let fixture = Fixture::new();
    let mut client = fixture.session().await;
    let shown = format!(r#"{{"error":{{"message":"{KEY} is overloaded"}}}}"#);
    fixture.server.script([Reply::status(529, BUSY), Reply::status(503, &shown), Reply::says("here")]);
    assert_eq!(client.run("hello?").await.outcome, RunOutcome::Success);
    let reports = retries(&client);
    assert_eq!(reports.len(), 3, "{reports:?}");
    assert!(reports[0].starts_with("1 of 3 after ") && reports[1].starts_with("2 of 3 after "), "{reports:?}");
    assert_eq!(reports[2], "succeeded after 2: ");
    assert!(!format!("{:?}", client.seen).contains(KEY), "what a server says is made safe");
    fixture.close().await;
}

#[tokio::test]
async fn a_server_that_never_answers_ends_the_run_and_the_retries() {
    let fixture = Fixture::new();
    let mut client = fixture.session().await;
    fixture.server.usually(Reply::status(503, BUSY));
    let report = client.run("hello?").await;
    assert_eq!(report.outcome, RunOutcome::Failed);
    let reports = retries(&client);
    assert_eq!(reports.len(), 4, "{reports:?}");
    assert!(reports[3].starts_with("failed after 3: "), "{reports:?}");
    let order: Vec<_> = client.seen.iter().map(|event| std::mem::discriminant(&event.kind)).collect();
    let last = client
        .seen
        .iter()
        .rposition(|event| matches!(event.kind, EventKind::Run(RunEvent::RetryEnded { .. })))
        .unwrap();
    assert!(last < order.len() - 1, "the run ends after its retries");
    fixture.close().await;
}

#[tokio::test]
async fn a_cancelled_retry_fails_the_run_with_the_last_error() {
    let fixture = Fixture::new();
    let mut client = fixture.session().await;
    // The retry-after is so long that only a cancel ends the wait.
    fixture.server.script([Reply::status(429, BUSY).header("retry-after", "50"), Reply::says("too late")]);
    assert_eq!(client.send(Command::StopRetry).await.0, Err(Refusal::NoRetry));
    client.prompt("hello?").await;
    client.until(|event| matches!(event.kind, EventKind::Run(RunEvent::RetryStarted(_))).then_some(())).await;
    assert_eq!(client.send_accepted(Command::StopRetry).await, Answer::RetryStopped);
    let report = client.wait_for_run_end().await;
    assert_eq!((report.outcome, fixture.request_count()), (RunOutcome::Failed, 1));
    let reports = retries(&client);
    assert!(reports[1].starts_with("failed after 1: "), "{reports:?}");
    assert_eq!(client.send(Command::StopRetry).await.0, Err(Refusal::NoRetry));
    fixture.close().await;
}

#[tokio::test]
async fn a_cancelled_run_leaves_no_retry_open() {
    let fixture = Fixture::new();
    let mut client = fixture.session().await;
    fixture.server.script([Reply::status(429, BUSY).header("retry-after", "50")]);
    client.prompt("hello?").await;
    client.until(|event| matches!(event.kind, EventKind::Run(RunEvent::RetryStarted(_))).then_some(())).await;
    client.send_accepted(Command::Cancel { run: None, reason: "enough".into() }).await;
    assert_eq!(client.wait_for_run_end().await.outcome, RunOutcome::Cancelled);
    assert_eq!(retries(&client)[1], "failed after 1: the run was stopped");
    fixture.close().await;
}

#[tokio::test]
async fn retries_can_be_disabled() {
    let fixture = Fixture::new();
    let mut client = fixture.session().await;
    let off = Adjustment { auto_retry: Some(false), ..Adjustment::default() };
    client.send_accepted(Command::Adjust(Box::new(off))).await;
    fixture.server.script([Reply::status(503, BUSY)]);
    assert_eq!(client.run("hello?").await.outcome, RunOutcome::Failed);
    assert_eq!((fixture.request_count(), retries(&client).len()), (1, 0));
    // An interrupted turn counts as one attempt, too.
    fixture.server.script([Reply::turn([say("half a"), fault(Fault::Cut)])]);
    assert_eq!(client.run("hello?").await.outcome, RunOutcome::Failed);
    assert_eq!((fixture.request_count(), retries(&client).len()), (2, 0));
    fixture.close().await;
}

#[tokio::test]
async fn an_interrupted_turn_is_retried() {
    let fixture = Fixture::new();
    let mut client = fixture.session().await;
    fixture.server.script([Reply::turn([say("half a"), fault(Fault::Cut)]), Reply::says("the whole")]);
    let report = client.run("hello?").await;
    assert_eq!((report.outcome, report.summary.as_str()), (RunOutcome::Success, "the whole"));
    let reports = retries(&client);
    assert!(reports[0].starts_with("1 of 3 after 500: "), "{reports:?}");
    assert_eq!(reports[1], "succeeded after 1: ");
    fixture.close().await;
}

/// The retry events as short texts.
fn retries(client: &TestClient) -> Vec<String> {
    let reported = client.seen.iter().filter_map(|event| match &event.kind {
        EventKind::Run(RunEvent::RetryStarted(retry)) => {
            assert!(!retry.message.is_empty());
            Some(format!("{} of {} after {}: {}", retry.attempt, retry.max_attempts, retry.pause_millis, retry.message))
        }
        EventKind::Run(RunEvent::RetryEnded { succeeded, attempt, message }) => {
            let word = if *succeeded { "succeeded" } else { "failed" };
            Some(format!("{word} after {attempt}: {}", message.clone().unwrap_or_default()))
        }
        _ => None,
    });
    reported.collect()
}
