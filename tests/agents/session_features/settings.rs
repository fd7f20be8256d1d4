//! Changes of provider, model and thinking level in a session, and the versions that they create.

use pushd::kernel::command::{Answer, Command};
use pushd::kernel::event::{Adjustment, RunEvent, RunOutcome, SessionEvent};
use pushd::kernel::refusal::Refusal;

use crate::session_features::fixture::{Fixture, TestClient};
use crate::support::model::{Reply, call};

#[tokio::test]
async fn a_new_model_and_thinking_level_apply_from_the_next_turn() {
    let fixture = Fixture::new();
    let mut client = fixture.session().await;
    fixture.server.has_models(&["test-model", "other-model"]);
    let look = call("c1", "sandbox_list_dir", r#"{"path":"."}"#);
    fixture.server.script([Reply::turn([look]), Reply::says("done")]);
    // The model and its thinking level change between the two turns of one run.
    client.prompt("look around").await;
    client
        .until(|event| matches!(event.kind, pushd::kernel::event::EventKind::Run(RunEvent::Started(_))).then_some(()))
        .await;
    let adjustment =
        Adjustment { model: Some("other-model".into()), thinking: Some("high".into()), ..Adjustment::default() };
    adjust(&mut client, adjustment).await;
    assert_eq!(client.wait_for_run_end().await.outcome, RunOutcome::Success);
    let last = fixture.request_body(fixture.request_count() - 1);
    if fixture.request_body(0)["model"] == "test-model" {
        assert_eq!(last["model"], "other-model");
    }
    fixture.server.script([Reply::says("again")]);
    client.run("and again").await;
    let last = fixture.request_body(fixture.request_count() - 1);
    assert_eq!((&last["model"], &last["reasoning_effort"]), (&"other-model".into(), &"high".into()));
    let answer = client.send_accepted(Command::Describe).await;
    let Answer::Described(snapshot) = answer else { panic!("{answer:?}") };
    assert_eq!((snapshot.provider(), snapshot.model().unwrap().as_str()), ("openai", "other-model"));
    fixture.close().await;
}

#[tokio::test]
async fn adjusted_settings_survive_a_restart() {
    let mut fixture = Fixture::new();
    let mut client = fixture.session().await;
    fixture.server.has_models(&["test-model", "other-model"]);
    let adjustment = Adjustment { model: Some("other-model".into()), ..Adjustment::default() };
    adjust(&mut client, adjustment).await;
    let id = client.id();
    drop(client);
    fixture.restart().await;
    let mut client = fixture.attach(&id).await;
    fixture.server.script([Reply::says("here")]);
    client.run("hello?").await;
    assert_eq!(fixture.request_body(0)["model"], "other-model");
    fixture.close().await;
}

#[tokio::test]
async fn a_new_provider_applies_from_the_next_run_and_is_confined() {
    let fixture = Fixture::new();
    let mut client = fixture.session_of("playbook").await;
    assert_eq!(client.run("$ echo by the book").await.outcome, RunOutcome::Success);
    let adjustment =
        Adjustment { provider: Some("openai".into()), model: Some("test-model".into()), ..Adjustment::default() };
    adjust(&mut client, adjustment).await;
    fixture.server.script([Reply::says("a model")]);
    assert_eq!(client.run("$ echo nobody runs this").await.summary, "a model");
    fixture.close().await;
}

#[tokio::test]
async fn a_change_with_a_stale_version_is_refused() {
    let fixture = Fixture::new();
    let mut client = fixture.session().await;
    let rename = |name: &str| Command::Rename { name: name.into() };
    assert_eq!(client.send(Command::Describe).await.1, 0);
    let (reply, version) = client.send_if_version(rename("one"), Some(0)).await;
    assert_eq!((reply, version), (Ok(Answer::Renamed), 1));
    let (reply, version) = client.send_if_version(rename("two"), Some(0)).await;
    assert_eq!((reply, version), (Err(Refusal::Stale { expected: 0, actual: 1 }), 1));
    let touch = Command::BumpVersion { change: "export".into() };
    assert_eq!(client.send_if_version(touch, Some(1)).await, (Ok(Answer::VersionBumped), 2));
    assert_eq!(client.send_if_version(Command::Load, Some(2)).await, (Ok(Answer::Loaded), 0));
    let versions: Vec<_> = {
        client
            .until(|event| {
                matches!(event.kind, pushd::kernel::event::EventKind::Session(SessionEvent::Loaded { .. }))
                    .then_some(())
            })
            .await;
        client.seen.iter().filter_map(|event| event.version).collect()
    };
    assert_eq!(versions, [1, 2, 0]);
    fixture.close().await;
}

async fn adjust(client: &mut TestClient, adjustment: Adjustment) {
    assert_eq!(client.send_accepted(Command::Adjust(Box::new(adjustment))).await, Answer::Adjusted);
}
