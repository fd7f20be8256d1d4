//! Retries of model requests: how they are reported, and how they end.

use pushd::kernel::command::{Answer, Command};
use pushd::kernel::event::{Adjustment, EventKind, Outcome};
use pushd::kernel::refusal::Refusal;

use crate::house::{Guest, House, KEY};
use crate::model::{Fault, Reply, fault, say};

const BUSY: &str = r#"{"error":{"message":"overloaded"}}"#;

#[tokio::test]
async fn a_server_that_answers_at_last_is_told_of_attempt_by_attempt() {
    let house = House::new();
    let mut guest = house.session().await;
    let shown = format!(r#"{{"error":{{"message":"{KEY} is overloaded"}}}}"#);
    house.server.script([Reply::status(529, BUSY), Reply::status(503, &shown), Reply::says("here")]);
    assert_eq!(guest.run("hello?").await.outcome, Outcome::Success);
    let told = retries(&guest);
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("1 of 3 after ") && told[1].starts_with("2 of 3 after "), "{told:?}");
    assert_eq!(told[2], "succeeded after 2: ");
    assert!(!format!("{:?}", guest.seen).contains(KEY), "what a server says is made safe");
    house.close().await;
}

#[tokio::test]
async fn a_server_that_never_answers_ends_the_run_and_the_retries() {
    let house = House::new();
    let mut guest = house.session().await;
    house.server.usually(Reply::status(503, BUSY));
    let report = guest.run("hello?").await;
    assert_eq!(report.outcome, Outcome::Failed);
    let told = retries(&guest);
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told[3].starts_with("failed after 3: "), "{told:?}");
    let order: Vec<_> = guest.seen.iter().map(|event| std::mem::discriminant(&event.kind)).collect();
    let last =
        guest.seen.iter().rposition(|event| matches!(event.kind, EventKind::RetryOver { .. })).unwrap();
    assert!(last < order.len() - 1, "the run ends after its retries");
    house.close().await;
}

#[tokio::test]
async fn waiting_for_a_server_is_stopped_and_the_run_fails_with_what_went_wrong() {
    let house = House::new();
    let mut guest = house.session().await;
    // The retry-after is so long that only a cancel ends the wait.
    house.server.script([Reply::status(429, BUSY).header("retry-after", "50"), Reply::says("too late")]);
    assert_eq!(guest.ask(Command::StopRetry).await.0, Err(Refusal::NoRetry));
    guest.prompt("hello?").await;
    guest.until(|event| matches!(event.kind, EventKind::RetryBegan(_)).then_some(())).await;
    assert_eq!(guest.grant(Command::StopRetry).await, Answer::RetryStopped);
    let report = guest.over().await;
    assert_eq!((report.outcome, house.questions()), (Outcome::Failed, 1));
    let told = retries(&guest);
    assert!(told[1].starts_with("failed after 1: "), "{told:?}");
    assert_eq!(guest.ask(Command::StopRetry).await.0, Err(Refusal::NoRetry));
    house.close().await;
}

#[tokio::test]
async fn a_cancelled_run_leaves_no_retry_open() {
    let house = House::new();
    let mut guest = house.session().await;
    house.server.script([Reply::status(429, BUSY).header("retry-after", "50")]);
    guest.prompt("hello?").await;
    guest.until(|event| matches!(event.kind, EventKind::RetryBegan(_)).then_some(())).await;
    guest.grant(Command::Cancel { run: None, reason: "enough".into() }).await;
    assert_eq!(guest.over().await.outcome, Outcome::Cancelled);
    assert_eq!(retries(&guest)[1], "failed after 1: the run was stopped");
    house.close().await;
}

#[tokio::test]
async fn a_server_is_asked_once_where_nobody_wants_more() {
    let house = House::new();
    let mut guest = house.session().await;
    let off = Adjustment { auto_retry: Some(false), ..Adjustment::default() };
    guest.grant(Command::Adjust(Box::new(off))).await;
    house.server.script([Reply::status(503, BUSY)]);
    assert_eq!(guest.run("hello?").await.outcome, Outcome::Failed);
    assert_eq!((house.questions(), retries(&guest).len()), (1, 0));
    // An interrupted turn counts as one attempt, too.
    house.server.script([Reply::turn([say("half a"), fault(Fault::Cut)])]);
    assert_eq!(guest.run("hello?").await.outcome, Outcome::Failed);
    assert_eq!((house.questions(), retries(&guest).len()), (2, 0));
    house.close().await;
}

#[tokio::test]
async fn a_turn_that_breaks_off_is_a_retry_as_well() {
    let house = House::new();
    let mut guest = house.session().await;
    house.server.script([Reply::turn([say("half a"), fault(Fault::Cut)]), Reply::says("the whole")]);
    let report = guest.run("hello?").await;
    assert_eq!((report.outcome, report.summary.as_str()), (Outcome::Success, "the whole"));
    let told = retries(&guest);
    assert!(told[0].starts_with("1 of 3 after 500: "), "{told:?}");
    assert_eq!(told[1], "succeeded after 1: ");
    house.close().await;
}

/// The retry events as short texts.
fn retries(guest: &Guest) -> Vec<String> {
    let told = guest.seen.iter().filter_map(|event| match &event.kind {
        EventKind::RetryBegan(retry) => {
            assert!(!retry.message.is_empty());
            Some(format!(
                "{} of {} after {}: {}",
                retry.attempt, retry.most, retry.pause_millis, retry.message
            ))
        }
        EventKind::RetryOver { succeeded, attempt, message } => {
            let word = if *succeeded { "succeeded" } else { "failed" };
            Some(format!("{word} after {attempt}: {}", message.clone().unwrap_or_default()))
        }
        _ => None,
    });
    told.collect()
}
