//! Requests to the server, and what it sees when a client drops one.

use std::time::Duration;

use pushd::provider::model::{CallOutcome, Delta, Entry, Request, Thinking, ToolCall, ToolSpec};
use serde_json::{Value, json};

use crate::providers::fixture::{Fixture, KEY, limits, simple_request, text_delta};
use crate::support::model::{Fault, Reply, ServerDialect, call, fault, say, think};

pub(crate) async fn the_key_and_the_headers_are_sent(dialect: ServerDialect) {
    let headers = vec![("X-Team".to_owned(), "birds".to_owned()), ("User-Agent".to_owned(), "mine".to_owned())];
    let fixture =
        Fixture::with_settings(dialect, limits(), |settings| settings.headers = headers, [Reply::says("Hello!")]);
    fixture.send_simple().await.completed();
    let seen = &fixture.seen()[0].headers;
    let header = |name: &str| seen.get(name).map(String::as_str);
    let bearer = format!("Bearer {KEY}");
    match dialect {
        ServerDialect::Ollama | ServerDialect::OpenAi => assert_eq!(header("authorization"), Some(bearer.as_str())),
        ServerDialect::Anthropic => {
            assert_eq!((header("x-api-key"), header("authorization")), (Some(KEY), None));
            assert_eq!(header("anthropic-version"), Some("2023-06-01"));
        }
    }
    assert_eq!((header("x-team"), header("user-agent")), (Some("birds"), Some("mine")));
    assert_eq!(header("content-type"), Some("application/json"));
}

pub(crate) async fn tools_and_results_are_sent(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [Reply::turn([call("c1", "look", r#"{"at":1}"#)]), Reply::says("A cat.")]);
    let mut request = simple_request();
    request.tools = vec![ToolSpec {
        name: "look".to_owned(),
        description: "Looks.".to_owned(),
        schema: json!({ "type": "object", "properties": { "at": { "type": "integer" } } }),
    }];
    let completion = fixture.send(&request).await;
    let carry = completion.end.provider_state.clone();
    let calls = calls_of(completion.completed());
    let result = Entry::Result {
        id: calls[0].id.clone(),
        tool: calls[0].tool.clone(),
        text: "a cat".to_owned(),
        outcome: CallOutcome::Succeeded,
    };
    request.entries.extend([Entry::Assistant { provider_state: carry, text: String::new(), calls }, result]);
    assert_eq!(fixture.send(&request).await.completed(), [text_delta("A cat.")]);
    let seen = &fixture.seen()[1].body;
    let tool = match dialect {
        ServerDialect::Ollama | ServerDialect::OpenAi => &seen["tools"][0]["function"]["name"],
        ServerDialect::Anthropic => &seen["tools"][0]["name"],
    };
    assert_eq!(tool, "look");
    let last = seen["messages"].as_array().unwrap().last().unwrap();
    let (name, text) = match dialect {
        ServerDialect::Ollama => (&last["tool_name"], &last["content"]),
        ServerDialect::OpenAi => (&last["tool_call_id"], &last["content"]),
        ServerDialect::Anthropic => (&last["content"][0]["tool_use_id"], &last["content"][0]["content"]),
    };
    let expected = if dialect == ServerDialect::Ollama { "look" } else { "c1" };
    assert_eq!((name, text), (&json!(expected), &json!("a cat")));
}

pub(crate) async fn thinking_is_sent_back_to_its_server(dialect: ServerDialect) {
    let turn = Reply::turn([think("hm"), call("c1", "look", "{}")]);
    let fixture = Fixture::new(dialect, [turn, Reply::says("Yes."), Reply::says("Yes.")]);
    let completion = fixture.send_simple().await;
    let carry = completion.end.provider_state.clone();
    let calls = vec![ToolCall { id: "c1".to_owned(), tool: "look".to_owned(), args: "{}".to_owned() }];
    let with = |carry: Option<String>| {
        let mut request = simple_request();
        request.entries.push(Entry::Assistant { provider_state: carry, text: String::new(), calls: calls.clone() });
        let (id, tool, text) = ("c1".to_owned(), "look".to_owned(), "a cat".to_owned());
        request.entries.push(Entry::Result { id, tool, text, outcome: CallOutcome::Succeeded });
        request
    };
    fixture.send(&with(carry)).await.completed();
    fixture.send(&with(Some(r#"{"stranger":{}}"#.to_owned()))).await.completed();
    let given_back = |seen: &Value| {
        let assistant = seen["messages"].as_array().unwrap().iter().find(|message| message["role"] == "assistant");
        let assistant = assistant.unwrap();
        match dialect {
            ServerDialect::Ollama => assistant["thinking"].clone(),
            ServerDialect::OpenAi => assistant["reasoning_content"].clone(),
            ServerDialect::Anthropic => assistant["content"][0]["thinking"].clone(),
        }
    };
    assert_eq!(given_back(&fixture.seen()[1].body), "hm");
    assert_eq!(given_back(&fixture.seen()[2].body), Value::Null, "another dialect's is left out");
}

pub(crate) async fn limits_on_tokens_are_sent(dialect: ServerDialect) {
    let fixture = Fixture::with_settings(
        dialect,
        limits(),
        |settings| settings.context_tokens = Some(65_536),
        [Reply::says("Hello!")],
    );
    let request = Request { max_tokens: Some(77), thinking: Thinking::High, ..simple_request() };
    fixture.send(&request).await.completed();
    let body = &fixture.seen()[0].body;
    match dialect {
        ServerDialect::Ollama => {
            assert_eq!(body["options"], json!({ "num_predict": 77, "num_ctx": 65_536 }));
            assert_eq!(body["think"], true);
        }
        ServerDialect::OpenAi => {
            assert_eq!((&body["max_tokens"], &body["reasoning_effort"]), (&json!(77), &json!("high")));
        }
        ServerDialect::Anthropic => {
            assert_eq!((&body["max_tokens"], &body["thinking"]["type"]), (&json!(77), &json!("adaptive")));
        }
    }
}

pub(crate) async fn dropping_the_answer_closes_the_stream(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [Reply::turn([say("one"), fault(Fault::Stall)])]);
    let mut answering = fixture.ready().await.start_turn(&simple_request());
    assert_eq!(answering.next().await.unwrap(), Some(vec![text_delta("one")]));
    drop(answering);
    tokio::time::timeout(Duration::from_secs(10), fixture.server.hangups(1)).await.unwrap();
}

pub(crate) async fn dropping_the_request_before_the_answer_closes_the_connection(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [Reply::Never]);
    let mut answering = fixture.ready().await.start_turn(&simple_request());
    tokio::select! {
        outcome = answering.next() => panic!("nobody answered, and yet: {outcome:?}"),
        () = wait_for_request(&fixture) => {}
    }
    drop(answering);
    tokio::time::timeout(Duration::from_secs(10), fixture.server.hangups(1)).await.unwrap();
}

async fn wait_for_request(fixture: &Fixture) {
    while fixture.seen().is_empty() {
        tokio::task::yield_now().await;
    }
}

fn calls_of(pieces: Vec<Delta>) -> Vec<ToolCall> {
    let call = |piece| match piece {
        Delta::ToolCall(wanted) => Some(wanted),
        Delta::Text(_) | Delta::Thinking(_) => None,
    };
    pieces.into_iter().filter_map(call).collect()
}
