//! Valid answers in every form.

use std::pin::pin;
use std::task::{Context, Waker};

use pushd::provider::dialect::Dialect;
use pushd::provider::model::{Piece, Stop, Usage, Wanted};

use crate::model::cases::{self, LOOK};
use crate::model::{Delivery, Fault, Reply, say};
use crate::world::{World, question, read, said, speaks};

pub(crate) async fn a_text_is_passed_on(dialect: Dialect) {
    let world = World::new(dialect, [Reply::says("Hello!")]);
    let asked = world.ask().await;
    assert_eq!(asked.end.stop, Stop::Done);
    assert_eq!(asked.whole(), [said("Hello!")]);
    assert_eq!(world.seen().len(), 1);
}

pub(crate) async fn tokens_come_in_order(dialect: Dialect) {
    let world = World::new(dialect, [cases::counts()]);
    assert_eq!(world.ask().await.whole(), [said(&cases::numbers().concat())]);
}

pub(crate) async fn an_empty_turn_ends(dialect: Dialect) {
    let world = World::new(dialect, [cases::says_nothing()]);
    let asked = world.ask().await;
    assert_eq!(asked.end.stop, Stop::Done);
    assert_eq!(asked.whole(), []);
}

pub(crate) async fn any_text_survives(dialect: Dialect) {
    let world = World::new(dialect, [Reply::says(cases::ANY_TEXT)]);
    assert_eq!(world.ask().await.whole(), [said(cases::ANY_TEXT)]);
}

pub(crate) async fn a_long_text_survives(dialect: Dialect) {
    let text = cases::long_text();
    let world = World::new(dialect, [Reply::says(&text)]);
    assert!(world.ask().await.whole() == [said(&text)], "the text is not what was sent");
}

pub(crate) async fn thinking_is_told_from_text(dialect: Dialect) {
    let world = World::new(dialect, [cases::thinks_first()]);
    let asked = world.ask().await;
    assert!(asked.end.carry.is_some(), "thinking is carried");
    assert_eq!(asked.whole(), [Piece::Thought("hm!".to_owned()), said("Yes.")]);
}

pub(crate) async fn a_call_comes_whole(dialect: Dialect) {
    let world = World::new(dialect, [cases::calls_once()]);
    let asked = world.ask().await;
    assert_eq!(asked.end.stop, Stop::Calls);
    assert_eq!(asked.whole(), [wanted("call_7", LOOK, r#"{"path":"the sky"}"#)]);
}

pub(crate) async fn several_calls_keep_their_order(dialect: Dialect) {
    let world = World::new(dialect, [cases::calls_thrice()]);
    assert_eq!(
        world.ask().await.whole(),
        [
            wanted("c1", LOOK, r#"{"path":"1"}"#),
            wanted("c2", "sandbox_git_status", "{}"),
            wanted("c3", LOOK, r#"{"path":"3"}"#)
        ]
    );
}

pub(crate) async fn arguments_in_fragments_of_one_byte_become_whole(dialect: Dialect) {
    let world = World::new(dialect, [cases::calls_in_bytes()]);
    let pieces = world.ask().await.whole();
    let names: Vec<&str> = pieces.iter().map(|piece| call_of(piece).id.as_str()).collect();
    assert_eq!(names, ["c1", "c2"]);
    let expected: serde_json::Value = serde_json::from_str(cases::ARGS).unwrap();
    for piece in &pieces {
        let args: serde_json::Value = serde_json::from_str(&call_of(piece).args).unwrap();
        assert_eq!(args, expected, "Ollama's own form may order and space it in its own way");
    }
}

pub(crate) async fn a_call_without_arguments_has_an_empty_object(dialect: Dialect) {
    let world = World::new(dialect, [cases::calls_without_arguments(speaks(dialect))]);
    assert_eq!(world.ask().await.whole(), [wanted("c1", LOOK, "{}")]);
}

pub(crate) async fn arguments_that_are_no_object_are_passed_on(dialect: Dialect) {
    let world = World::new(dialect, [cases::calls_with_nonsense()]);
    let pieces = world.ask().await.whole();
    assert_eq!(call_of(&pieces[0]).args, "[1,2]");
    assert!(
        call_of(&pieces[1]).args.contains("{oops"),
        "what the model wrote is judged by whoever runs the tool"
    );
}

pub(crate) async fn text_comes_before_the_call_it_announces(dialect: Dialect) {
    let world = World::new(dialect, [cases::announces_a_call()]);
    assert_eq!(
        world.ask().await.whole(),
        [Piece::Thought("hm".to_owned()), said("Looking."), wanted("c1", LOOK, "{}")]
    );
}

pub(crate) async fn usage_is_reported(dialect: Dialect) {
    let world = World::new(dialect, [Reply::says("Hello!").spends(cases::SPENT)]);
    let all = Usage { input: 150, output: 7, cache_read: 40, cache_write: 10, cost_microusd: Some(250_000) };
    let expected = match dialect {
        Dialect::Ollama => Usage { cache_read: 0, cache_write: 0, cost_microusd: None, ..all },
        Dialect::OpenAi => all,
        Dialect::Anthropic => Usage { cost_microusd: None, ..all },
    };
    assert_eq!(world.ask().await.end.usage, expected);
}

pub(crate) async fn a_turn_without_usage_costs_nothing(dialect: Dialect) {
    let world = World::new(dialect, [Reply::says("Hello!")]);
    let asked = world.ask().await;
    assert_eq!((asked.end.usage, asked.error), (Usage::default(), None));
}

pub(crate) async fn a_turn_that_got_too_long_says_so(dialect: Dialect) {
    let world = World::new(dialect, [cases::gets_too_long()]);
    assert_eq!(world.ask().await.end.stop, Stop::Length);
}

pub(crate) async fn a_refusal_says_so(dialect: Dialect) {
    let world = World::new(dialect, [cases::declines()]);
    let expected = match dialect {
        // Ollama has no such stop reason.
        Dialect::Ollama => Stop::Other("refused".to_owned()),
        Dialect::OpenAi | Dialect::Anthropic => Stop::Refused,
    };
    let asked = world.ask().await;
    assert_eq!(asked.end.stop, expected);
    assert_eq!(asked.whole(), [said("I will not.")]);
}

pub(crate) async fn bytes_one_at_a_time_make_the_same_answer(dialect: Dialect) {
    let (events, bytes) = (cases::everything(Delivery::Events), cases::everything(Delivery::Bytes));
    let world = World::new(dialect, [events, bytes]);
    let (whole, bytes) = (world.ask().await, world.ask().await);
    assert_eq!(bytes.end, whole.end);
    assert_eq!(bytes.whole(), whole.whole());
}

pub(crate) async fn a_body_that_ends_with_its_connection_is_whole(dialect: Dialect) {
    let world = World::new(dialect, [cases::says_until_it_hangs_up()]);
    assert_eq!(world.ask().await.whole(), [said("Hello!")]);
}

pub(crate) async fn a_fast_answer_comes_in_few_pieces(dialect: Dialect) {
    let world = World::new(dialect, [cases::hurries(20_000)]);
    let asked = world.ask().await;
    let parts = asked.parts;
    assert!(asked.whole() == [said(&"token ".repeat(20_000))], "the text is not what was sent");
    assert!(parts < 2_000, "{parts} pieces for 20,000 tokens that came together");
}

pub(crate) async fn a_token_is_passed_on_before_the_next_arrives(dialect: Dialect) {
    let world = World::new(dialect, [cases::breaks_off("one", Fault::Stall)]);
    let mut answering = world.ready().await.ask(&question());
    assert_eq!(answering.next().await.unwrap(), Some(vec![said("one")]));
    assert_eq!(answering.end().stop, Stop::Other("unfinished".to_owned()));
}

pub(crate) async fn an_answer_may_be_waited_for_in_parts(dialect: Dialect) {
    let reply = Reply::turn((0..50).map(|number| say(&number.to_string())));
    let world = World::new(dialect, [reply.delivered(Delivery::Bytes)]);
    let mut answering = world.ready().await.ask(&question());
    for _ in 0..20 {
        // Polled once and dropped while it waits, as a `select!` does.
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(answering.next()).as_mut().poll(&mut context).is_pending());
    }
    let expected: String = (0..50).map(|number| number.to_string()).collect();
    assert_eq!(read(answering).await.whole(), [said(&expected)]);
}

pub(crate) async fn a_connection_is_used_again(dialect: Dialect) {
    let world = World::new(dialect, (0..20).map(|_| Reply::says("Hello!")));
    for _ in 0..20 {
        world.ask().await.whole();
    }
    let connections = world.server.connections();
    assert!(connections < 10, "{connections} connections for 20 questions");
}

fn wanted(id: &str, tool: &str, args: &str) -> Piece {
    Piece::Call(Wanted { id: id.to_owned(), tool: tool.to_owned(), args: args.to_owned() })
}

fn call_of(piece: &Piece) -> &Wanted {
    match piece {
        Piece::Call(wanted) => wanted,
        Piece::Said(_) | Piece::Thought(_) => panic!("{piece:?} is no call"),
    }
}
