//! Changes of provider, model and thinking level in a session, and the versions that they create.

use pushd::kernel::command::{Answer, Command};
use pushd::kernel::event::{Adjustment, Outcome};
use pushd::kernel::refusal::Refusal;

use crate::house::{Guest, House};
use crate::model::{Reply, call};

#[tokio::test]
async fn another_model_and_more_thinking_count_from_the_next_turn_on() {
    let house = House::new();
    let mut guest = house.session().await;
    house.server.has_models(&["test-model", "other-model"]);
    let look = call("c1", "sandbox_list_dir", r#"{"path":"."}"#);
    house.server.script([Reply::turn([look]), Reply::says("done")]);
    // The model and its thinking level change between the two turns of one run.
    guest.prompt("look around").await;
    guest
        .until(|event| matches!(event.kind, pushd::kernel::event::EventKind::RunStarted(_)).then_some(()))
        .await;
    let adjustment = Adjustment {
        model: Some("other-model".into()),
        thinking: Some("high".into()),
        ..Adjustment::default()
    };
    adjust(&mut guest, adjustment).await;
    assert_eq!(guest.over().await.outcome, Outcome::Success);
    let last = house.asked(house.questions() - 1);
    if house.asked(0)["model"] == "test-model" {
        assert_eq!(last["model"], "other-model");
    }
    house.server.script([Reply::says("again")]);
    guest.run("and again").await;
    let last = house.asked(house.questions() - 1);
    assert_eq!((&last["model"], &last["reasoning_effort"]), (&"other-model".into(), &"high".into()));
    let answer = guest.grant(Command::Describe).await;
    let Answer::Described(snapshot) = answer else { panic!("{answer:?}") };
    assert_eq!((snapshot.provider(), snapshot.model().unwrap().as_str()), ("openai", "other-model"));
    house.close().await;
}

#[tokio::test]
async fn what_was_adjusted_holds_after_a_restart() {
    let mut house = House::new();
    let mut guest = house.session().await;
    house.server.has_models(&["test-model", "other-model"]);
    let adjustment = Adjustment { model: Some("other-model".into()), ..Adjustment::default() };
    adjust(&mut guest, adjustment).await;
    let id = guest.id();
    drop(guest);
    house.restart().await;
    let mut guest = house.back(&id).await;
    house.server.script([Reply::says("here")]);
    guest.run("hello?").await;
    assert_eq!(house.asked(0)["model"], "other-model");
    house.close().await;
}

#[tokio::test]
async fn another_provider_answers_in_the_next_run_and_is_confined_as_it_must_be() {
    let house = House::new();
    let mut guest = house.session_of("playbook").await;
    assert_eq!(guest.run("$ echo by the book").await.outcome, Outcome::Success);
    let adjustment = Adjustment {
        provider: Some("openai".into()),
        model: Some("test-model".into()),
        ..Adjustment::default()
    };
    adjust(&mut guest, adjustment).await;
    house.server.script([Reply::says("a model")]);
    assert_eq!(guest.run("$ echo nobody runs this").await.summary, "a model");
    house.close().await;
}

#[tokio::test]
async fn a_change_is_refused_that_believes_in_another_version() {
    let house = House::new();
    let mut guest = house.session().await;
    let rename = |name: &str| Command::Rename { name: name.into() };
    assert_eq!(guest.ask(Command::Describe).await.1, 0);
    let (reply, version) = guest.ask_if(rename("one"), Some(0)).await;
    assert_eq!((reply, version), (Ok(Answer::Renamed), 1));
    let (reply, version) = guest.ask_if(rename("two"), Some(0)).await;
    assert_eq!((reply, version), (Err(Refusal::Stale { expected: 0, found: 1 }), 1));
    let touch = Command::Touch { what: "export".into() };
    assert_eq!(guest.ask_if(touch, Some(1)).await, (Ok(Answer::Touched), 2));
    assert_eq!(guest.ask_if(Command::Load, Some(2)).await, (Ok(Answer::Loaded), 0));
    let versions: Vec<_> = {
        guest
            .until(|event| matches!(event.kind, pushd::kernel::event::EventKind::Loaded { .. }).then_some(()))
            .await;
        guest.seen.iter().filter_map(|event| event.version).collect()
    };
    assert_eq!(versions, [1, 2, 0]);
    house.close().await;
}

async fn adjust(guest: &mut Guest, adjustment: Adjustment) {
    assert_eq!(guest.grant(Command::Adjust(Box::new(adjustment))).await, Answer::Adjusted);
}
