//! The context of a model: images, imported messages, and branches from an earlier point.

use pushd::kernel::command::{Answer, Command};
use pushd::kernel::event::{Branch, Ending, Image, Outcome, Taken};
use pushd::kernel::id::{Json, Seq};
use pushd::kernel::import::{Import, Imported, ImportedCall, ImportedRun, ImportedTurn, Kept, Provenance};
use pushd::kernel::refusal::Refusal;
use pushd::kernel::time::Now;
use serde_json::json;

use crate::house::{House, KEY, texts};
use crate::model::{Reply, Speaks};

#[tokio::test]
async fn pictures_reach_the_model_in_the_words_of_its_server() {
    let picture = || vec![Image { mime: "image/png".into(), data: "aGk=".into() }];
    for (speaks, expected) in [
        (
            Speaks::OpenAi,
            json!([{"type": "text", "text": "what is it?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]),
        ),
        (Speaks::Ollama, json!("what is it?")),
        (
            Speaks::Anthropic,
            json!([{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
            {"type": "text", "text": "what is it?", "cache_control": {"type": "ephemeral"}}]),
        ),
    ] {
        let house = House::speaking(speaks);
        let mut guest = house.session().await;
        house.server.script([Reply::says("a cat")]);
        guest.prompt_with("what is it?", picture()).await;
        assert_eq!(guest.over().await.outcome, Outcome::Success, "{speaks:?}");
        let messages = house.asked(0)["messages"].clone();
        let last = messages.as_array().unwrap().last().unwrap().clone();
        assert_eq!(last["content"], expected, "{speaks:?}");
        if speaks == Speaks::Ollama {
            assert_eq!(last["images"], json!(["aGk="]));
        }
        house.close().await;
    }
}

#[tokio::test]
async fn what_was_said_elsewhere_is_told_as_if_it_had_been_said_here() {
    let house = House::new();
    let mut guest = house.session().await;
    let call = |name: &str, text: String| ImportedCall {
        call: name.into(),
        tool: "sandbox_exec".into(),
        args: Json::new(r#"{"command":"make"}"#),
        millis: 5,
        ending: Ending::Done,
        exit_code: Some(0),
        text,
        fault: None,
        source: Provenance::default(),
    };
    let run = |name: &str, text: &str, said: &str, calls: Vec<ImportedCall>| {
        Imported::Run(ImportedRun {
            run: format!("run_{name}").into(),
            message: format!("msg_{name}").into(),
            text: text.into(),
            images: Vec::new(),
            turns: vec![ImportedTurn {
                thought: "hm".into(),
                text: said.into(),
                message: format!("asst_{name}").into(),
                taken: Taken { model: "elsewhere".into(), ..Taken::default() },
                calls,
                source: Provenance::default(),
            }],
            source: Provenance { at: Some(Now(7)), entry: Some(format!("entry_{name}")) },
        })
    };
    let turns = vec![
        run("a", "long ago", "yes", Vec::new()),
        run("b", "build it", "building", vec![call("c1", format!("built with {KEY}"))]),
        Imported::Summary {
            text: "what was long ago".into(),
            tokens_before: 9,
            kept: Kept::Entry("entry_b".into()),
            source: Provenance::default(),
        },
        Imported::Aside { call: call("c2", "beside".into()), told: true },
    ];
    let (reply, version) = guest.ask(Command::Import(Box::new(Import { turns, ..Import::default() }))).await;
    // An import comes with a load or a branch, which increment the version; by itself it does not.
    assert_eq!((reply, version), (Ok(Answer::Imported), 0));
    house.server.script([Reply::says("go on")]);
    guest.run("where were we?").await;
    let told = texts(&house.asked(0));
    let rest: Vec<_> = told.iter().skip(1).map(String::as_str).collect();
    assert!(rest[0].ends_with("what was long ago"), "{rest:?}");
    assert_eq!(rest[1..3], ["user: build it", "assistant: building"]);
    assert!(rest[3].starts_with("tool: built with ") && !rest[3].contains(KEY), "{rest:?}");
    assert!(rest[4].contains("`make`") && rest[4].ends_with("beside"), "{rest:?}");
    assert_eq!(rest[5..], ["user: where were we?"]);
    house.close().await;
}

#[tokio::test]
async fn a_conversation_goes_on_from_an_earlier_point_also_after_a_restart() {
    let mut house = House::new();
    let mut guest = house.session().await;
    house.server.script([Reply::says("one"), Reply::says("two"), Reply::says("instead")]);
    guest.run("first").await;
    let until = guest.seen.last().unwrap().seq;
    guest.run("second").await;
    let newest = guest.seen.last().unwrap().seq;
    let branch = |until, from| Command::Branch(Branch { until, from });
    for (until, from) in [(newest.next(), Seq::new(1)), (until, newest), (until, Seq::ZERO)] {
        assert_eq!(guest.ask(branch(until, from)).await.0, Err(Refusal::UnknownPosition), "{until} {from}");
    }
    assert_eq!(guest.grant(branch(until, Seq::new(1))).await, Answer::Branched);
    let id = guest.id();
    drop(guest);
    house.restart().await;
    let mut guest = house.back(&id).await;
    assert_eq!(guest.run("other second").await.summary, "instead");
    let told = texts(&house.asked(2));
    assert_eq!(told[1..], ["user: first", "assistant: one", "user: other second"]);
    house.close().await;
}

#[tokio::test]
async fn a_long_conversation_is_taken_in_at_once_and_kept() {
    let mut house = House::new();
    let mut guest = house.session().await;
    let run = |number: usize| {
        Imported::Run(ImportedRun {
            run: format!("run_{number}").into(),
            message: format!("msg_{number}").into(),
            text: "so many words ".repeat(600),
            images: Vec::new(),
            turns: Vec::new(),
            source: Provenance::default(),
        })
    };
    let import = Import { turns: (0..500).map(run).collect(), ..Import::default() };
    assert_eq!(guest.grant(Command::Import(Box::new(import))).await, Answer::Imported);
    let id = guest.id();
    drop(guest);
    house.restart().await;
    let mut guest = house.back(&id).await;
    guest.until(|event| (event.run.as_ref()?.as_str() == "run_499").then_some(())).await;
    house.close().await;
}
