//! The context of a model: images, imported messages, and branches from an earlier point.

use pushd::kernel::command::{Answer, Command};
use pushd::kernel::event::{Branch, Image, RunOutcome, ToolOutcome, TurnUsage};
use pushd::kernel::id::{Json, Seq};
use pushd::kernel::import::{ContextStart, Import, ImportedCall, ImportedPart, ImportedRun, ImportedTurn, Provenance};
use pushd::kernel::refusal::Refusal;
use pushd::kernel::time::Now;
use serde_json::json;

use crate::session_features::fixture::{Fixture, KEY, texts};
use crate::support::model::{Reply, ServerDialect};

#[tokio::test]
async fn images_are_sent_in_the_dialect_of_the_server() {
    let picture = || vec![Image { mime: "image/png".into(), data: "aGk=".into() }];
    for (dialect, expected) in [
        (
            ServerDialect::OpenAi,
            json!([{"type": "text", "text": "what is it?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]),
        ),
        (ServerDialect::Ollama, json!("what is it?")),
        (
            ServerDialect::Anthropic,
            json!([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
            {"type": "text", "text": "what is it?", "cache_control": {"type": "ephemeral"}}]),
        ),
    ] {
        let fixture = Fixture::with_dialect(dialect);
        let mut client = fixture.session().await;
        fixture.server.script([Reply::says("a cat")]);
        client.prompt_with("what is it?", picture()).await;
        assert_eq!(client.wait_for_run_end().await.outcome, RunOutcome::Success, "{dialect:?}");
        let messages = fixture.request_body(0)["messages"].clone();
        let last = messages.as_array().unwrap().last().unwrap().clone();
        assert_eq!(last["content"], expected, "{dialect:?}");
        if dialect == ServerDialect::Ollama {
            assert_eq!(last["images"], json!(["aGk="]));
        }
        fixture.close().await;
    }
}

#[tokio::test]
async fn imported_messages_are_sent_like_own_messages() {
    let fixture = Fixture::new();
    let mut client = fixture.session().await;
    let call = |name: &str, text: String| ImportedCall {
        call: name.into(),
        tool: "sandbox_exec".into(),
        args: Json::new(r#"{"command":"make"}"#),
        millis: 5,
        outcome: ToolOutcome::Succeeded,
        exit_code: Some(0),
        text,
        error: None,
        source: Provenance::default(),
    };
    let run = |name: &str, text: &str, answer: &str, calls: Vec<ImportedCall>| {
        ImportedPart::Run(ImportedRun {
            run: format!("run_{name}").into(),
            message: format!("msg_{name}").into(),
            text: text.into(),
            images: Vec::new(),
            turns: vec![ImportedTurn {
                thinking: "hm".into(),
                text: answer.into(),
                message: format!("asst_{name}").into(),
                usage: TurnUsage { model: "elsewhere".into(), ..TurnUsage::default() },
                calls,
                source: Provenance::default(),
            }],
            source: Provenance { at: Some(Now(7)), entry: Some(format!("entry_{name}")) },
        })
    };
    let parts = vec![
        run("a", "long ago", "yes", Vec::new()),
        run("b", "build it", "building", vec![call("c1", format!("built with {KEY}"))]),
        ImportedPart::Summary {
            text: "what was long ago".into(),
            tokens_before: 9,
            context_start: ContextStart::Entry("entry_b".into()),
            source: Provenance::default(),
        },
        ImportedPart::UserCommand { call: call("c2", "beside".into()), in_context: true },
    ];
    let (reply, version) = client.send(Command::Import(Box::new(Import { parts, ..Import::default() }))).await;
    // An import comes with a load or a branch, which increment the version; by itself it does not.
    assert_eq!((reply, version), (Ok(Answer::Imported), 0));
    fixture.server.script([Reply::says("go on")]);
    client.run("where were we?").await;
    let sent = texts(&fixture.request_body(0));
    let rest: Vec<_> = sent.iter().skip(1).map(String::as_str).collect();
    assert!(rest[0].ends_with("what was long ago"), "{rest:?}");
    assert_eq!(rest[1..3], ["user: build it", "assistant: building"]);
    assert!(rest[3].starts_with("tool: built with ") && !rest[3].contains(KEY), "{rest:?}");
    assert!(rest[4].contains("`make`") && rest[4].ends_with("beside"), "{rest:?}");
    assert_eq!(rest[5..], ["user: where were we?"]);
    fixture.close().await;
}

#[tokio::test]
async fn a_branch_continues_from_an_earlier_point_even_after_a_restart() {
    let mut fixture = Fixture::new();
    let mut client = fixture.session().await;
    fixture.server.script([Reply::says("one"), Reply::says("two"), Reply::says("instead")]);
    client.run("first").await;
    let until = client.seen.last().unwrap().seq;
    client.run("second").await;
    let newest = client.seen.last().unwrap().seq;
    let branch = |until, from| Command::Branch(Branch { until, from });
    for (until, from) in [(newest.next(), Seq::new(1)), (until, newest), (until, Seq::ZERO)] {
        assert_eq!(client.send(branch(until, from)).await.0, Err(Refusal::UnknownPosition), "{until} {from}");
    }
    assert_eq!(client.send_accepted(branch(until, Seq::new(1))).await, Answer::Branched);
    let id = client.id();
    drop(client);
    fixture.restart().await;
    let mut client = fixture.attach(&id).await;
    assert_eq!(client.run("other second").await.summary, "instead");
    let sent = texts(&fixture.request_body(2));
    assert_eq!(sent[1..], ["user: first", "assistant: one", "user: other second"]);
    fixture.close().await;
}

#[tokio::test]
async fn a_long_conversation_is_imported_at_once_and_stored() {
    let mut fixture = Fixture::new();
    let mut client = fixture.session().await;
    let run = |number: usize| {
        ImportedPart::Run(ImportedRun {
            run: format!("run_{number}").into(),
            message: format!("msg_{number}").into(),
            text: "so many words ".repeat(600),
            images: Vec::new(),
            turns: Vec::new(),
            source: Provenance::default(),
        })
    };
    let import = Import { parts: (0..500).map(run).collect(), ..Import::default() };
    assert_eq!(client.send_accepted(Command::Import(Box::new(import))).await, Answer::Imported);
    let id = client.id();
    drop(client);
    fixture.restart().await;
    let mut client = fixture.attach(&id).await;
    client.until(|event| (event.run.as_ref()?.as_str() == "run_499").then_some(())).await;
    fixture.close().await;
}
