//! Requested compactions, and those that a run needs.

use pushd::kernel::command::{Answer, Command};
use pushd::kernel::event::{Adjustment, CompactionEnding, CompactionReason, EventKind, Outcome};
use pushd::kernel::refusal::Refusal;

use crate::house::{Guest, House, texts};
use crate::model::Reply;

#[tokio::test]
async fn a_summary_that_somebody_asks_for_takes_the_place_of_the_older_part() {
    let house = House::new();
    let mut guest = talked(&house).await;
    house.server.script([Reply::says("the gist of it"), Reply::says("on we go")]);
    let compact = Command::Compact { instructions: Some("mention the colour".into()) };
    let (reply, version) = guest.ask(compact).await;
    assert!(matches!(reply, Ok(Answer::CompactionBegan(_))), "{reply:?}");
    assert_eq!(version, 2, "what is not done yet makes no version");
    assert_eq!(guest.ask(Command::Compact { instructions: None }).await.0, Err(Refusal::Compacting));
    let compaction = guest
        .until(|event| match &event.kind {
            EventKind::Compacted(compaction) => Some((**compaction).clone()),
            EventKind::CompactionOver { message, .. } => panic!("{message:?}"),
            _ => None,
        })
        .await;
    assert_eq!(compaction.summary, "the gist of it");
    assert!(compaction.tokens_before > 0);
    let asked = texts(&house.asked(2));
    assert!(asked.last().unwrap().ends_with("The user asks for this in particular:\nmention the colour"));
    let began = guest.seen.iter().find_map(|event| match &event.kind {
        EventKind::CompactionBegan { reason, by } => Some((*reason, by.clone(), event.run.clone())),
        _ => None,
    });
    assert_eq!(began, Some((CompactionReason::Manual, Some("guest".into()), None)));
    let used = guest.seen.iter().filter(|event| matches!(event.kind, EventKind::TurnTaken(_))).count();
    assert_eq!(used, 3, "what it used is told");
    guest.run("and now?").await;
    let told = texts(&house.asked(3));
    assert!(told[1].contains("the gist of it"), "{told:?}");
    assert!(!told.join("\n").contains("first question"), "{told:?}");
    assert!(told.last().unwrap().ends_with("and now?"));
    house.close().await;
}

#[tokio::test]
async fn a_summary_is_stopped_and_messages_that_waited_for_it_begin() {
    let house = House::new();
    let mut guest = talked(&house).await;
    house.server.script([Reply::Never, Reply::says("here")]);
    guest.grant(Command::Compact { instructions: None }).await;
    house.has_asked(3).await;
    let refused = crate::house::prompt("too early", Vec::new());
    assert_eq!(guest.ask(Command::Prompt(Box::new(refused))).await.0, Err(Refusal::Compacting));
    let queued = crate::house::prompt("later", Vec::new());
    let answer = guest.grant(Command::Queue(Box::new(queued))).await;
    assert!(matches!(answer, Answer::Queued { ahead: 1, .. }), "{answer:?}");
    assert_eq!(guest.grant(Command::StopCompaction).await, Answer::CompactionStopped);
    let report = guest.over().await;
    assert_eq!(report.outcome, Outcome::Success);
    assert_eq!(over(&guest), (CompactionEnding::Aborted, "stopped by guest".to_owned()));
    assert_eq!(guest.ask(Command::StopCompaction).await.0, Err(Refusal::NoCompaction));
    assert!(texts(&house.asked(house.questions() - 1)).join("\n").contains("first question"));
    house.close().await;
}

#[tokio::test]
async fn a_summary_that_fails_or_has_nothing_to_say_leaves_everything_as_it_was() {
    let house = House::new();
    let mut guest = house.session().await;
    guest.grant(Command::Compact { instructions: None }).await;
    ended(&mut guest).await;
    assert_eq!(over(&guest), (CompactionEnding::Failed, "there is nothing to summarise yet".to_owned()));
    let mut guest = talked(&house).await;
    house
        .server
        .script([Reply::status(401, r#"{"error":{"message":"who are you?"}}"#), Reply::says("still here")]);
    guest.grant(Command::Compact { instructions: None }).await;
    ended(&mut guest).await;
    assert_eq!(over(&guest).0, CompactionEnding::Failed);
    assert_eq!(guest.run("hello?").await.outcome, Outcome::Success);
    house.close().await;
}

#[tokio::test]
async fn a_summary_that_a_restart_cut_is_over_and_the_session_goes_on() {
    let mut house = House::new();
    let mut guest = talked(&house).await;
    house.server.script([Reply::Never]);
    guest.grant(Command::Compact { instructions: None }).await;
    house.has_asked(3).await;
    let id = guest.id();
    drop(guest);
    house.restart().await;
    let mut guest = house.back(&id).await;
    ended(&mut guest).await;
    assert_eq!(over(&guest).0, CompactionEnding::Aborted);
    house.server.script([Reply::says("here")]);
    assert_eq!(guest.run("hello?").await.outcome, Outcome::Success);
    house.close().await;
}

#[tokio::test]
async fn a_run_says_when_it_needs_a_summary() {
    let house = House::new();
    let mut guest = long(&house).await;
    house.server.script([Reply::says("the gist of it"), Reply::says("done")]);
    guest.run("third question").await;
    let reasons = reasons(&guest);
    assert_eq!(reasons, [CompactionReason::Threshold]);
    assert!(
        guest.seen.iter().any(|event| matches!(event.kind, EventKind::Compacted(_)) && event.run.is_some())
    );
    house.close().await;
}

#[tokio::test]
async fn a_run_goes_on_without_a_summary_that_was_stopped() {
    let house = House::new();
    let mut guest = long(&house).await;
    house.server.script([Reply::Never, Reply::says("without a summary")]);
    guest.prompt("third question").await;
    guest.until(|event| matches!(event.kind, EventKind::CompactionBegan { .. }).then_some(())).await;
    assert_eq!(guest.grant(Command::StopCompaction).await, Answer::CompactionStopped);
    let report = guest.over().await;
    assert_eq!(report.outcome, Outcome::Success, "{report:?}");
    assert_eq!(over(&guest).0, CompactionEnding::Aborted);
    assert!(!guest.seen.iter().any(|event| matches!(event.kind, EventKind::Compacted(_))));
    house.close().await;
}

#[tokio::test]
async fn nothing_is_summarised_unasked_where_nobody_wants_that() {
    let house = House::new();
    let mut guest = long(&house).await;
    let off = Adjustment { auto_compaction: Some(false), ..Adjustment::default() };
    guest.grant(Command::Adjust(Box::new(off))).await;
    house.server.script([Reply::says("as it is")]);
    assert_eq!(guest.run("third question").await.outcome, Outcome::Success);
    let too_long = r#"{"error":{"message":"This model's maximum context length is 9 tokens","code":"context_length_exceeded"}}"#;
    house.server.script([Reply::status(400, too_long)]);
    let report = guest.run("fourth question").await;
    assert_eq!(report.outcome, Outcome::Failed);
    assert!(report.summary.contains("not to be summarised unasked"), "{}", report.summary);
    assert_eq!(reasons(&guest), []);
    let on = Adjustment { auto_compaction: Some(true), ..Adjustment::default() };
    guest.grant(Command::Adjust(Box::new(on))).await;
    house.server.script([Reply::says("the gist"), Reply::says("done")]);
    assert_eq!(guest.run("fifth question").await.outcome, Outcome::Success);
    assert_eq!(reasons(&guest), [CompactionReason::Threshold]);
    house.close().await;
}

/// A session with two answered questions.
async fn talked(house: &House) -> Guest {
    let mut guest = house.session().await;
    house.server.script([Reply::says("the first answer"), Reply::says("the second answer")]);
    guest.run("first question").await;
    guest.run("second question").await;
    guest
}

/// A session whose conversation exceeds the window with the next question.
async fn long(house: &House) -> Guest {
    let mut guest = house.session().await;
    let before = house.questions();
    let words = "so many words ".repeat(500);
    for answer in ["the first answer", "the second answer", "the third answer"] {
        house.server.script([Reply::says(answer)]);
        guest.run(&format!("{answer}? {words}")).await;
    }
    let asked = house.asked(before);
    let fixed = (asked["messages"][0].to_string().len() + asked["tools"].to_string().len()) / 4;
    house.window((fixed + 5 * words.len() / 8) * 10 / 8);
    guest
}

async fn ended(guest: &mut Guest) {
    guest.until(|event| matches!(event.kind, EventKind::CompactionOver { .. }).then_some(())).await;
}

/// The failure and message of the last unsuccessful compaction.
fn over(guest: &Guest) -> (CompactionEnding, String) {
    let found = guest.seen.iter().rev().find_map(|event| match &event.kind {
        EventKind::CompactionOver { ending, message, .. } => {
            Some((*ending, message.clone().unwrap_or_default()))
        }
        _ => None,
    });
    found.expect("one that came to nothing")
}

fn reasons(guest: &Guest) -> Vec<CompactionReason> {
    let reasons = guest.seen.iter().filter_map(|event| match &event.kind {
        EventKind::CompactionBegan { reason, .. } => Some(*reason),
        _ => None,
    });
    reasons.collect()
}
