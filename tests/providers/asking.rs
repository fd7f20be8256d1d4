//! Requests to the server, and what it sees when a client drops one.

use std::time::Duration;

use pushd::provider::dialect::Dialect;
use pushd::provider::model::{Entry, Outcome, Piece, Request, Thinking, ToolSpec, Wanted};
use serde_json::{Value, json};

use crate::model::{Fault, Reply, call, fault, say, think};
use crate::world::{KEY, MODEL, World, limits, question, said};

pub(crate) async fn the_question_is_put_in_the_dialect(dialect: Dialect) {
    let world = World::new(dialect, [Reply::says("Hello!")]);
    world.ask().await.whole();
    let seen = &world.seen()[0];
    let cached = json!({ "type": "ephemeral" });
    let (path, body) = match dialect {
        Dialect::Ollama => {
            ("/api/chat", json!({ "stream": true, "messages": plain(), "options": { "num_ctx": 32_768 } }))
        }
        Dialect::OpenAi => (
            "/v1/chat/completions",
            json!({ "stream": true, "stream_options": { "include_usage": true }, "messages": plain() }),
        ),
        Dialect::Anthropic => (
            "/v1/messages",
            json!({
                "stream": true,
                "max_tokens": 16_384,
                "system": [{ "type": "text", "text": "Be brief.", "cache_control": cached }],
                "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Hello?", "cache_control": cached }] }],
            }),
        ),
    };
    let mut expected = body;
    expected["model"] = MODEL.into();
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", path));
    assert_eq!(seen.body, expected);
}

pub(crate) async fn the_key_and_the_headers_are_sent(dialect: Dialect) {
    let headers =
        vec![("X-Team".to_owned(), "birds".to_owned()), ("User-Agent".to_owned(), "mine".to_owned())];
    let world = World::set(dialect, limits(), |settings| settings.headers = headers, [Reply::says("Hello!")]);
    world.ask().await.whole();
    let seen = &world.seen()[0].headers;
    let header = |name: &str| seen.get(name).map(String::as_str);
    let bearer = format!("Bearer {KEY}");
    match dialect {
        Dialect::Ollama | Dialect::OpenAi => assert_eq!(header("authorization"), Some(bearer.as_str())),
        Dialect::Anthropic => {
            assert_eq!((header("x-api-key"), header("authorization")), (Some(KEY), None));
            assert_eq!(header("anthropic-version"), Some("2023-06-01"));
        }
    }
    assert_eq!((header("x-team"), header("user-agent")), (Some("birds"), Some("mine")));
    assert_eq!(header("content-type"), Some("application/json"));
}

pub(crate) async fn tools_and_results_are_sent(dialect: Dialect) {
    let world =
        World::new(dialect, [Reply::turn([call("c1", "look", r#"{"at":1}"#)]), Reply::says("A cat.")]);
    let mut request = question();
    request.tools = vec![ToolSpec {
        name: "look".to_owned(),
        description: "Looks.".to_owned(),
        schema: json!({ "type": "object", "properties": { "at": { "type": "integer" } } }),
    }];
    let asked = world.ask_this(&request).await;
    let carry = asked.end.carry.clone();
    let calls = calls_of(asked.whole());
    let result = Entry::Result {
        id: calls[0].id.clone(),
        tool: calls[0].tool.clone(),
        text: "a cat".to_owned(),
        outcome: Outcome::Fine,
    };
    request.entries.extend([Entry::Assistant { carry, said: String::new(), calls }, result]);
    assert_eq!(world.ask_this(&request).await.whole(), [said("A cat.")]);
    let seen = &world.seen()[1].body;
    let tool = match dialect {
        Dialect::Ollama | Dialect::OpenAi => &seen["tools"][0]["function"]["name"],
        Dialect::Anthropic => &seen["tools"][0]["name"],
    };
    assert_eq!(tool, "look");
    let last = seen["messages"].as_array().unwrap().last().unwrap();
    let (name, text) = match dialect {
        Dialect::Ollama => (&last["tool_name"], &last["content"]),
        Dialect::OpenAi => (&last["tool_call_id"], &last["content"]),
        Dialect::Anthropic => (&last["content"][0]["tool_use_id"], &last["content"][0]["content"]),
    };
    let expected = if dialect == Dialect::Ollama { "look" } else { "c1" };
    assert_eq!((name, text), (&json!(expected), &json!("a cat")));
}

pub(crate) async fn thinking_goes_back_to_whom_it_came_from(dialect: Dialect) {
    let turn = Reply::turn([think("hm"), call("c1", "look", "{}")]);
    let world = World::new(dialect, [turn, Reply::says("Yes."), Reply::says("Yes.")]);
    let asked = world.ask().await;
    let carry = asked.end.carry.clone();
    let calls = vec![Wanted { id: "c1".to_owned(), tool: "look".to_owned(), args: "{}".to_owned() }];
    let with = |carry: Option<String>| {
        let mut request = question();
        request.entries.push(Entry::Assistant { carry, said: String::new(), calls: calls.clone() });
        let (id, tool, text) = ("c1".to_owned(), "look".to_owned(), "a cat".to_owned());
        request.entries.push(Entry::Result { id, tool, text, outcome: Outcome::Fine });
        request
    };
    world.ask_this(&with(carry)).await.whole();
    world.ask_this(&with(Some(r#"{"stranger":{}}"#.to_owned()))).await.whole();
    let given_back = |seen: &Value| {
        let assistant =
            seen["messages"].as_array().unwrap().iter().find(|message| message["role"] == "assistant");
        let assistant = assistant.unwrap();
        match dialect {
            Dialect::Ollama => assistant["thinking"].clone(),
            Dialect::OpenAi => assistant["reasoning_content"].clone(),
            Dialect::Anthropic => assistant["content"][0]["thinking"].clone(),
        }
    };
    assert_eq!(given_back(&world.seen()[1].body), "hm");
    assert_eq!(given_back(&world.seen()[2].body), Value::Null, "another dialect's is left out");
}

pub(crate) async fn limits_on_tokens_are_sent(dialect: Dialect) {
    let world = World::set(
        dialect,
        limits(),
        |settings| settings.context_tokens = Some(65_536),
        [Reply::says("Hello!")],
    );
    let request = Request { max_tokens: Some(77), thinking: Thinking::High, ..question() };
    world.ask_this(&request).await.whole();
    let body = &world.seen()[0].body;
    match dialect {
        Dialect::Ollama => {
            assert_eq!(body["options"], json!({ "num_predict": 77, "num_ctx": 65_536 }));
            assert_eq!(body["think"], true);
        }
        Dialect::OpenAi => {
            assert_eq!((&body["max_tokens"], &body["reasoning_effort"]), (&json!(77), &json!("high")));
        }
        Dialect::Anthropic => {
            assert_eq!((&body["max_tokens"], &body["thinking"]["type"]), (&json!(77), &json!("adaptive")));
        }
    }
}

pub(crate) async fn dropping_the_answer_closes_the_stream(dialect: Dialect) {
    let world = World::new(dialect, [Reply::turn([say("one"), fault(Fault::Stall)])]);
    let mut answering = world.ready().await.ask(&question());
    assert_eq!(answering.next().await.unwrap(), Some(vec![said("one")]));
    drop(answering);
    tokio::time::timeout(Duration::from_secs(10), world.server.hangups(1)).await.unwrap();
}

pub(crate) async fn dropping_it_before_the_answer_closes_the_connection(dialect: Dialect) {
    let world = World::new(dialect, [Reply::Never]);
    let mut answering = world.ready().await.ask(&question());
    tokio::select! {
        outcome = answering.next() => panic!("nobody answered, and yet: {outcome:?}"),
        () = until_asked(&world) => {}
    }
    drop(answering);
    tokio::time::timeout(Duration::from_secs(10), world.server.hangups(1)).await.unwrap();
}

async fn until_asked(world: &World) {
    while world.seen().is_empty() {
        tokio::task::yield_now().await;
    }
}

fn plain() -> Value {
    json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Hello?" }])
}

fn calls_of(pieces: Vec<Piece>) -> Vec<Wanted> {
    let call = |piece| match piece {
        Piece::Call(wanted) => Some(wanted),
        Piece::Said(_) | Piece::Thought(_) => None,
    };
    pieces.into_iter().filter_map(call).collect()
}
