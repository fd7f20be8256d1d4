//! Tools that are used for the user, beside any run.

use pushd::daemon::mint;
use pushd::kernel::command::{Answer, Aside, Command};
use pushd::kernel::event::{Ending, EventKind, OutputStream, Purpose, Settlement};
use pushd::kernel::id::{CallId, Json};
use pushd::kernel::refusal::Refusal;
use serde_json::json;

use crate::house::{Guest, House, KEY, texts};
use crate::model::{Delivery, Reply, say};

#[tokio::test]
async fn a_command_of_the_user_runs_streams_and_is_told_to_the_model_unless_kept_from_it() {
    let house = House::new();
    let mut guest = house.session().await;
    let (call, version) = begin(&mut guest, "echo out; echo err >&2; exit 3", true).await;
    assert_eq!(version, 0, "it makes no version of its own");
    let settled = settlement(&mut guest, &call).await;
    assert_eq!((settled.ending, settled.exit_code), (Ending::Failed, Some(3)));
    assert!(settled.text.contains("out\n") && settled.text.contains("err\n"), "{}", settled.text);
    let printed = guest.seen.iter().filter_map(|event| match &event.kind {
        EventKind::CallOutput { stream, text, .. } => Some((*stream, text.clone())),
        _ => None,
    });
    let printed: Vec<_> = printed.collect();
    assert!(printed.contains(&(OutputStream::Out, "out\n".into())), "{printed:?}");
    assert!(printed.contains(&(OutputStream::Err, "err\n".into())), "{printed:?}");
    assert!(guest.seen.iter().skip(1).all(|event| event.run.is_none()), "it is of no run");
    let (call, _) = begin(&mut guest, "echo not for the model", false).await;
    settlement(&mut guest, &call).await;
    house.server.script([Reply::says("fine")]);
    guest.run("what did I do?").await;
    let told = texts(&house.asked(0)).join("\n");
    assert!(
        told.contains(
            "[The user ran `echo out; echo err >&2; exit 3` beside the conversation; it exited with 3]"
        ),
        "{told}"
    );
    assert!(!told.contains("not for the model"), "{told}");
    house.close().await;
}

#[tokio::test]
async fn a_command_of_the_user_is_confined_like_a_model_s_and_hides_what_is_secret() {
    let house = House::new();
    let mut guest = house.session().await;
    let (call, _) =
        begin(&mut guest, &format!("printf 'sk%s\\n' '{}'; touch ../beyond || echo held", &KEY[2..]), true)
            .await;
    let settled = settlement(&mut guest, &call).await;
    assert!(!settled.text.contains(KEY), "{}", settled.text);
    let kept = format!("{:?}", guest.seen);
    assert!(!kept.contains(KEY), "{kept}");
    if settled.text.contains("held") {
        assert!(!house.cwd().join("../beyond").exists());
    }
    house.close().await;
}

#[tokio::test]
async fn a_command_of_the_user_is_stopped_with_everything_it_started_and_nothing_else_is() {
    let house = House::new();
    let mut guest = house.session().await;
    let (stopped, _) =
        begin(&mut guest, "exec 9> lock; flock -n 9 && echo begun; sleep 300 & wait", true).await;
    let (other, _) = begin(&mut guest, "sleep 300", true).await;
    guest.until(|event| printed(event, "begun")).await;
    assert_eq!(guest.ask(Command::StopAside { call: Some(mint::call()) }).await.0, Err(Refusal::NoAside));
    let answer = guest.grant(Command::StopAside { call: Some(stopped.clone()) }).await;
    assert_eq!(answer, Answer::StoppingAside);
    let settled = settlement(&mut guest, &stopped).await;
    assert_eq!((settled.ending, settled.exit_code), (Ending::Cut, None));
    assert!(settled.text.contains("begun"), "what it had printed is told: {}", settled.text);
    let lock = std::fs::File::open(house.cwd().join("lock")).unwrap();
    assert!(lock.try_lock().is_ok(), "what it left in the background holds on to nothing");
    assert_eq!(settled.purpose, Purpose::Aside { told: true });
    // The other goes on until all are stopped.
    assert_eq!(guest.grant(Command::StopAside { call: None }).await, Answer::StoppingAside);
    let settled = settlement(&mut guest, &other).await;
    assert_eq!(settled.ending, Ending::Cut);
    assert_eq!(guest.ask(Command::StopAside { call: None }).await.0, Err(Refusal::NoAside));
    house.close().await;
}

#[tokio::test]
async fn a_command_of_the_user_is_stopped_in_whatever_moment_of_its_beginning() {
    let house = House::new();
    let mut guest = house.session().await;
    for moment in 0..40 {
        let call = mint::call();
        let (begun, stopped) = guest
            .ask_both(
                aside(&call, "sleep 300", true),
                moment,
                Command::StopAside { call: Some(call.clone()) },
            )
            .await;
        assert_eq!(begun, Ok(Answer::AsideBegan(call.clone())));
        if stopped.is_err() {
            // It overtook what it was to stop.
            assert_eq!(stopped, Err(Refusal::NoAside));
            guest.grant(Command::StopAside { call: Some(call.clone()) }).await;
        }
        assert_eq!(settlement(&mut guest, &call).await.ending, Ending::Cut, "moment {moment}");
    }
    house.close().await;
}

#[tokio::test]
async fn a_command_of_the_user_runs_beside_a_run_and_is_bounded_in_number() {
    let house = House::new();
    let mut guest = house.session().await;
    house.server.script([Reply::turn([say("slowly"), say(" "), say("on")])
        .delivered(Delivery::Paced(std::time::Duration::from_millis(150)))]);
    guest.prompt("talk").await;
    let (call, _) = begin(&mut guest, "echo beside", false).await;
    let settled = settlement(&mut guest, &call).await;
    assert_eq!(settled.exit_code, Some(0));
    guest.over().await;
    let mut calls = Vec::new();
    for _ in 0..8 {
        calls.push(begin(&mut guest, "sleep 300", false).await.0);
    }
    let refused = guest.ask(aside(&mint::call(), "true", false)).await.0;
    assert_eq!(refused, Err(Refusal::TooManyAsides));
    guest.grant(Command::StopAside { call: None }).await;
    let mut left = calls.len();
    while left > 0 {
        guest.until(|event| calls.iter().find_map(|call| settled_of(event, call))).await;
        left -= 1;
    }
    house.close().await;
}

#[tokio::test]
async fn a_command_of_the_user_that_a_restart_cut_is_settled_and_never_begun_again() {
    let mut house = House::new();
    let mut guest = house.session().await;
    let (call, _) = begin(&mut guest, "echo once >> ran; touch begun; sleep 300", true).await;
    // What it does to the world is its only sign of life.
    house.has_made("begun").await;
    let id = guest.id();
    drop(guest);
    house.restart().await;
    let mut guest = house.back(&id).await;
    let settled = settlement(&mut guest, &call).await;
    assert_eq!(settled.ending, Ending::Cut);
    assert_eq!(settled.fault.unwrap().message, "the daemon stopped before it ended");
    let (call, _) = begin(&mut guest, "cat ran", true).await;
    assert_eq!(settlement(&mut guest, &call).await.text, "once\n");
    house.close().await;
}

async fn begin(guest: &mut Guest, command: &str, told: bool) -> (CallId, u64) {
    let call = mint::call();
    let (reply, version) = guest.ask(aside(&call, command, told)).await;
    assert_eq!(reply, Ok(Answer::AsideBegan(call.clone())));
    (call, version)
}

fn aside(call: &CallId, command: &str, told: bool) -> Command {
    let args = Json::new(json!({ "command": command }).to_string());
    Command::Aside(Box::new(Aside { call: call.clone(), tool: "sandbox_exec".into(), args, told }))
}

async fn settlement(guest: &mut Guest, call: &CallId) -> Settlement {
    guest.until(|event| settled_of(event, call)).await
}

fn settled_of(event: &pushd::kernel::event::Event, call: &CallId) -> Option<Settlement> {
    match &event.kind {
        EventKind::CallSettled(settlement) if settlement.call == *call => Some((**settlement).clone()),
        _ => None,
    }
}

fn printed(event: &pushd::kernel::event::Event, word: &str) -> Option<()> {
    match &event.kind {
        EventKind::CallOutput { text, .. } => text.contains(word).then_some(()),
        _ => None,
    }
}
