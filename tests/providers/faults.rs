//! Errors of providers: the kind for programs, the message for people, and the deltas before the error.

use std::time::{Duration, Instant};

use pushd::provider::dialect::Dialect;
use pushd::provider::error::{Kind, ModelError};
use pushd::provider::limits::{Limits, TurnLimits};
use pushd::provider::model::Piece;
use pushd::provider::registry::key_variable;

use crate::model::{Delivery, Fault, Reply, cases, fault, say};
use crate::world::{KEY, World, limits, question, said};

pub(crate) async fn a_wrong_key_is_told_with_what_to_set(dialect: Dialect) {
    let error = refused(dialect, cases::wrong_key(), Kind::Unauthorized).await;
    let variable = key_variable(dialect.name());
    let head = format!("{} refuses the key from {variable} (401): bad key; set {variable}", dialect.name());
    assert!(error.message.starts_with(&head), "{error}");
    assert!(error.message.contains("push config key"), "{error}");
    assert_eq!(error.detail, None, "what the message quotes is not said twice");
}

pub(crate) async fn a_forbidden_model_is_told(dialect: Dialect) {
    refused(dialect, cases::forbidden(), Kind::Unauthorized).await;
}

pub(crate) async fn a_missing_model_is_told(dialect: Dialect) {
    let error = refused(dialect, cases::no_such_model(), Kind::ModelNotFound).await;
    assert!(error.message.contains("has no model test-model"), "{error}");
    assert_eq!(error.message.contains("ollama pull test-model"), dialect == Dialect::Ollama, "{error}");
}

pub(crate) async fn a_wrong_path_is_told_with_the_base_url(dialect: Dialect) {
    let error = refused(dialect, cases::no_such_path(), Kind::Refused).await;
    assert!(error.message.contains("is http://127.0.0.1:"), "{error}");
}

pub(crate) async fn a_refused_request_is_told_in_the_server_s_words(dialect: Dialect) {
    let error = refused(dialect, cases::refuses(), Kind::Refused).await;
    assert_eq!(error.message, format!("{} answered 400: this model does not support tools", dialect.name()));
}

pub(crate) async fn a_conversation_that_is_too_long_is_told(dialect: Dialect) {
    refused(dialect, cases::prompt_too_long(), Kind::ContextTooLong).await;
}

pub(crate) async fn an_empty_account_is_told(dialect: Dialect) {
    refused(dialect, cases::no_credit(), Kind::OutOfCredit).await;
}

pub(crate) async fn a_redirect_is_not_followed(dialect: Dialect) {
    let error = refused(dialect, cases::redirects(), Kind::Refused).await;
    assert!(error.message.contains("http://127.0.0.1:9/elsewhere"), "{error}");
}

pub(crate) async fn a_web_page_is_no_answer(dialect: Dialect) {
    let error = refused(dialect, cases::web_page(), Kind::Garbage).await;
    assert!(error.message.contains("answered with a web page"), "{error}");
    assert!(error.detail.unwrap().contains("Please log in"));
}

pub(crate) async fn garbage_in_the_middle_ends_the_answer(dialect: Dialect) {
    broken_off(dialect, cases::garbles(), Kind::Garbage, "one").await;
}

pub(crate) async fn garbage_from_the_start_is_not_asked_again(dialect: Dialect) {
    let error = refused(dialect, cases::another_file(), Kind::Garbage).await;
    assert!(error.detail.unwrap().starts_with("%PDF-1.7"));
}

pub(crate) async fn what_is_no_http_is_no_answer(dialect: Dialect) {
    refused(dialect, Reply::NotHttp, Kind::Garbage).await;
}

pub(crate) async fn a_cut_in_the_middle_is_told_after_what_came(dialect: Dialect) {
    let steps = [say("one "), say("two"), fault(Fault::Cut)];
    let error = broken_off(dialect, Reply::turn(steps), Kind::Cut, "one two").await;
    assert!(error.retryable);
}

pub(crate) async fn a_cut_inside_a_character_is_a_cut(dialect: Dialect) {
    let reply = cases::breaks_off("été", Fault::CutInsideCharacter);
    broken_off(dialect, reply, Kind::Cut, "été").await;
}

pub(crate) async fn a_cut_inside_a_character_of_an_unframed_body_is_a_cut(dialect: Dialect) {
    let reply = cases::breaks_off("été", Fault::CutInsideCharacter);
    broken_off(dialect, reply.delivered(Delivery::UntilClose), Kind::Cut, "été").await;
}

pub(crate) async fn a_reset_in_the_middle_is_a_cut(dialect: Dialect) {
    // Bytes in flight when the connection is reset may be lost.
    let world = World::new(dialect, [cases::breaks_off("one", Fault::Reset), Reply::says("again")]);
    let asked = world.ask().await;
    match asked.error {
        Some(error) => assert_eq!((error.kind, asked.pieces), (Kind::Cut, vec![said("one")])),
        None => assert_eq!((asked.pieces, world.seen().len()), (vec![said("again")], 2)),
    }
}

pub(crate) async fn an_answer_that_ends_without_its_end_is_cut(dialect: Dialect) {
    broken_off(dialect, cases::breaks_off("one", Fault::EndEarly), Kind::Cut, "one").await;
}

pub(crate) async fn silence_is_told_after_its_time(dialect: Dialect) {
    let world = World::with(dialect, impatient(), [Reply::Never]);
    let started = Instant::now();
    let error = world.ask().await.failed_after(&[]);
    assert_eq!((error.kind, error.retryable), (Kind::Silent, true));
    assert!(started.elapsed() >= impatient().first_byte);
    assert_eq!(world.seen().len(), 1, "whoever waited so long is not made to wait again");
}

pub(crate) async fn silence_after_the_head_is_told(dialect: Dialect) {
    let world = World::with(dialect, impatient(), [Reply::HeadOnly]);
    assert_eq!(world.ask().await.failed_after(&[]).kind, Kind::Silent);
}

pub(crate) async fn silence_in_the_middle_is_told_after_what_came(dialect: Dialect) {
    // Far below the limit for the first byte.
    let (silence, first_byte) = (Duration::from_millis(100), Duration::from_secs(3600));
    let limits = Limits { silence, first_byte, ..limits() };
    let world = World::with(dialect, limits, [cases::breaks_off("one", Fault::Stall)]);
    let error = world.ask().await.failed_after(&[said("one")]);
    assert_eq!(error.kind, Kind::Silent);
    assert_eq!(error.message, "the server has sent nothing for 0.1 s");
    world.server.hangups(1).await;
}

pub(crate) async fn a_slow_answer_is_no_silence(dialect: Dialect) {
    let silence = Duration::from_secs(1);
    let limits = Limits { silence, first_byte: silence, ..limits() };
    let reply = Reply::turn((0..15).map(|number| say(&number.to_string())));
    let world = World::with(dialect, limits, [reply.delivered(Delivery::Paced(silence / 10))]);
    let asked = world.ask().await;
    let expected: String = (0..15).map(|number| number.to_string()).collect();
    assert_eq!((asked.error, asked.pieces), (None, vec![said(&expected)]));
}

pub(crate) async fn a_huge_line_is_refused(dialect: Dialect) {
    let turn = TurnLimits { line_bytes: 100_000, ..TurnLimits::default() };
    let world = World::with(dialect, Limits { turn, ..limits() }, [cases::says_too_long_a_line(300_000)]);
    let error = world.ask().await.failed_after(&[said("one")]);
    assert_eq!(error.kind, Kind::Garbage);
    assert_eq!(error.message, "the server sent a line of more than 100000 bytes");
    assert!(error.detail.unwrap().len() < 2_000, "an excerpt is enough");
}

pub(crate) async fn an_error_in_the_middle_is_told_after_what_came(dialect: Dialect) {
    let reply = cases::breaks_off("one", cases::overloaded_midway());
    let error = broken_off(dialect, reply, Kind::Overloaded, "one").await;
    assert!(error.message.ends_with("come back later"), "{error}");
}

pub(crate) async fn too_many_calls_are_refused(dialect: Dialect) {
    let turn = TurnLimits { calls: 3, ..TurnLimits::default() };
    let world = World::with(dialect, Limits { turn, ..limits() }, [cases::calls_too_often(4)]);
    let error = world.ask().await.failed_after(&[]);
    assert_eq!(error.message, "the model made more than 3 tool calls in one turn");
    assert_eq!(error.kind, Kind::Garbage);
}

pub(crate) async fn too_much_text_is_refused(dialect: Dialect) {
    let turn = TurnLimits { text_bytes: 100, ..TurnLimits::default() };
    let steps = (0..30).map(|_| say("12345"));
    let world = World::with(dialect, Limits { turn, ..limits() }, [Reply::turn(steps)]);
    let error = world.ask().await.failed_after(&[said(&"12345".repeat(20))]);
    assert_eq!(error.kind, Kind::Garbage);
    world.server.hangups(0).await;
}

pub(crate) async fn too_long_arguments_are_refused(dialect: Dialect) {
    let turn = TurnLimits { args_bytes: 100, ..TurnLimits::default() };
    let world = World::with(dialect, Limits { turn, ..limits() }, [cases::calls_at_length(200)]);
    assert_eq!(world.ask().await.failed_after(&[]).kind, Kind::Garbage);
}

pub(crate) async fn a_key_that_the_server_repeats_is_hidden(dialect: Dialect) {
    let error = refused(dialect, cases::repeats_the_key(KEY), Kind::Unauthorized).await;
    assert!(!format!("{error:?}").contains(KEY), "{error:?}");
    assert!(error.message.contains("wrong key [key]"), "{error}");
}

pub(crate) async fn an_error_stays_one(dialect: Dialect) {
    let world = World::new(dialect, [Reply::status(401, "")]);
    let mut answering = world.ready().await.ask(&question());
    let error = answering.next().await.unwrap_err();
    assert_eq!(answering.next().await, Err(error));
    assert_eq!(world.seen().len(), 1);
}

/// One request, not retried, ends with this kind of error.
async fn refused(dialect: Dialect, reply: Reply, kind: Kind) -> ModelError {
    let world = World::new(dialect, [reply, Reply::says("asked again")]);
    let error = world.ask().await.failed_after(&[]);
    assert_eq!((error.kind, error.retryable, world.seen().len()), (kind, false, 1), "{error:?}");
    error
}

/// One request; the answer is interrupted after this text and not retried.
async fn broken_off(dialect: Dialect, reply: Reply, kind: Kind, text: &str) -> ModelError {
    let world = World::new(dialect, [reply, Reply::says("asked again")]);
    let expected: [Piece; 1] = [said(text)];
    let error = world.ask().await.failed_after(&expected);
    assert_eq!((error.kind, world.seen().len()), (kind, 1), "{error:?}");
    error
}

fn impatient() -> Limits {
    Limits { first_byte: Duration::from_millis(100), ..limits() }
}
