//! Valid answers in every form.

use std::pin::pin;
use std::task::{Context, Waker};

use pushd::provider::model::{Delta, StopReason, ToolCall, Usage};

use crate::providers::fixture::{Fixture, read_turn, simple_request, text_delta};
use crate::support::model::cases::{self, LOOK};
use crate::support::model::{Delivery, Fault, Reply, ServerDialect, say};

pub(crate) async fn a_text_is_passed_on(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [Reply::says("Hello!")]);
    let completion = fixture.send_simple().await;
    assert_eq!(completion.end.stop, StopReason::Done);
    assert_eq!(completion.completed(), [text_delta("Hello!")]);
    assert_eq!(fixture.seen().len(), 1);
}

pub(crate) async fn tokens_come_in_order(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [cases::counts()]);
    assert_eq!(fixture.send_simple().await.completed(), [text_delta(&cases::numbers().concat())]);
}

pub(crate) async fn an_empty_turn_ends(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [cases::says_nothing()]);
    let completion = fixture.send_simple().await;
    assert_eq!(completion.end.stop, StopReason::Done);
    assert_eq!(completion.completed(), []);
}

pub(crate) async fn any_text_survives(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [Reply::says(cases::ANY_TEXT)]);
    assert_eq!(fixture.send_simple().await.completed(), [text_delta(cases::ANY_TEXT)]);
}

pub(crate) async fn a_long_text_survives(dialect: ServerDialect) {
    let text = cases::long_text();
    let fixture = Fixture::new(dialect, [Reply::says(&text)]);
    assert!(fixture.send_simple().await.completed() == [text_delta(&text)], "the text is not what was sent");
}

pub(crate) async fn thinking_is_distinguished_from_text(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [cases::thinks_first()]);
    let completion = fixture.send_simple().await;
    assert!(completion.end.provider_state.is_some(), "thinking is carried");
    assert_eq!(completion.completed(), [Delta::Thinking("hm!".to_owned()), text_delta("Yes.")]);
}

pub(crate) async fn a_tool_call_is_complete(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [cases::calls_once()]);
    let completion = fixture.send_simple().await;
    assert_eq!(completion.end.stop, StopReason::ToolCalls);
    assert_eq!(completion.completed(), [tool_call("call_7", LOOK, r#"{"path":"the sky"}"#)]);
}

pub(crate) async fn several_calls_keep_their_order(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [cases::calls_thrice()]);
    assert_eq!(
        fixture.send_simple().await.completed(),
        [
            tool_call("c1", LOOK, r#"{"path":"1"}"#),
            tool_call("c2", "sandbox_git_status", "{}"),
            tool_call("c3", LOOK, r#"{"path":"3"}"#)
        ]
    );
}

pub(crate) async fn arguments_in_fragments_of_one_byte_are_joined(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [cases::calls_in_bytes()]);
    let pieces = fixture.send_simple().await.completed();
    let names: Vec<&str> = pieces.iter().map(|piece| call_of(piece).id.as_str()).collect();
    assert_eq!(names, ["c1", "c2"]);
    let expected: serde_json::Value = serde_json::from_str(cases::ARGS).unwrap();
    for piece in &pieces {
        let args: serde_json::Value = serde_json::from_str(&call_of(piece).args).unwrap();
        assert_eq!(args, expected, "Ollama's own form may order and space it in its own way");
    }
}

pub(crate) async fn a_call_without_arguments_has_an_empty_object(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [cases::calls_without_arguments(dialect)]);
    assert_eq!(fixture.send_simple().await.completed(), [tool_call("c1", LOOK, "{}")]);
}

pub(crate) async fn arguments_that_are_no_object_are_passed_on(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [cases::calls_with_nonsense()]);
    let pieces = fixture.send_simple().await.completed();
    assert_eq!(call_of(&pieces[0]).args, "[1,2]");
    assert!(call_of(&pieces[1]).args.contains("{oops"), "what the model wrote is judged by whoever runs the tool");
}

pub(crate) async fn text_comes_before_the_call_it_announces(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [cases::announces_a_call()]);
    assert_eq!(
        fixture.send_simple().await.completed(),
        [Delta::Thinking("hm".to_owned()), text_delta("Looking."), tool_call("c1", LOOK, "{}")]
    );
}

pub(crate) async fn usage_is_reported(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [Reply::says("Hello!").spends(cases::SPENT)]);
    let all = Usage { input: 150, output: 7, cache_read: 40, cache_write: 10, cost_microusd: Some(250_000) };
    let expected = match dialect {
        ServerDialect::Ollama => Usage { cache_read: 0, cache_write: 0, cost_microusd: None, ..all },
        ServerDialect::OpenAi => all,
        ServerDialect::Anthropic => Usage { cost_microusd: None, ..all },
    };
    assert_eq!(fixture.send_simple().await.end.usage, expected);
}

pub(crate) async fn a_turn_without_usage_costs_nothing(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [Reply::says("Hello!")]);
    let completion = fixture.send_simple().await;
    assert_eq!((completion.end.usage, completion.error), (Usage::default(), None));
}

pub(crate) async fn a_truncated_turn_is_reported(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [cases::gets_too_long()]);
    assert_eq!(fixture.send_simple().await.end.stop, StopReason::Length);
}

pub(crate) async fn a_refusal_is_reported(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [cases::declines()]);
    let expected = match dialect {
        // Ollama has no such stop reason.
        ServerDialect::Ollama => StopReason::Other("refused".to_owned()),
        ServerDialect::OpenAi | ServerDialect::Anthropic => StopReason::Refused,
    };
    let completion = fixture.send_simple().await;
    assert_eq!(completion.end.stop, expected);
    assert_eq!(completion.completed(), [text_delta("I will not.")]);
}

pub(crate) async fn bytes_one_at_a_time_make_the_same_answer(dialect: ServerDialect) {
    let (events, bytes) = (cases::everything(Delivery::Events), cases::everything(Delivery::Bytes));
    let fixture = Fixture::new(dialect, [events, bytes]);
    let (whole, bytes) = (fixture.send_simple().await, fixture.send_simple().await);
    assert_eq!(bytes.end, whole.end);
    assert_eq!(bytes.completed(), whole.completed());
}

pub(crate) async fn a_body_that_ends_with_its_connection_is_complete(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [cases::says_until_it_hangs_up()]);
    assert_eq!(fixture.send_simple().await.completed(), [text_delta("Hello!")]);
}

pub(crate) async fn a_fast_answer_comes_in_few_deltas(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [cases::hurries(20_000)]);
    let completion = fixture.send_simple().await;
    let parts = completion.delta_count;
    assert!(completion.completed() == [text_delta(&"token ".repeat(20_000))], "the text is not what was sent");
    assert!(parts < 2_000, "{parts} pieces for 20,000 tokens that came together");
}

pub(crate) async fn a_token_is_passed_on_before_the_next_arrives(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [cases::breaks_off("one", Fault::Stall)]);
    let mut answering = fixture.ready().await.start_turn(&simple_request());
    assert_eq!(answering.next().await.unwrap(), Some(vec![text_delta("one")]));
    assert_eq!(answering.end().stop, StopReason::Other("unfinished".to_owned()));
}

pub(crate) async fn reading_a_turn_is_cancellation_safe(dialect: ServerDialect) {
    let reply = Reply::turn((0..50).map(|number| say(&number.to_string())));
    let fixture = Fixture::new(dialect, [reply.delivered(Delivery::Bytes)]);
    let mut answering = fixture.ready().await.start_turn(&simple_request());
    for _ in 0..20 {
        // Polled once and dropped while it waits, as a `select!` does.
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(answering.next()).as_mut().poll(&mut context).is_pending());
    }
    let expected: String = (0..50).map(|number| number.to_string()).collect();
    assert_eq!(read_turn(answering).await.completed(), [text_delta(&expected)]);
}

pub(crate) async fn a_connection_is_reused(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, (0..20).map(|_| Reply::says("Hello!")));
    for _ in 0..20 {
        fixture.send_simple().await.completed();
    }
    let connections = fixture.server.connections();
    assert!(connections < 10, "{connections} connections for 20 questions");
}

fn tool_call(id: &str, tool: &str, args: &str) -> Delta {
    Delta::ToolCall(ToolCall { id: id.to_owned(), tool: tool.to_owned(), args: args.to_owned() })
}

fn call_of(piece: &Delta) -> &ToolCall {
    match piece {
        Delta::ToolCall(wanted) => wanted,
        Delta::Text(_) | Delta::Thinking(_) => panic!("{piece:?} is no call"),
    }
}
