//! Errors of providers: the kind for programs, the message for people, and the deltas before the error.

use std::time::{Duration, Instant};

use pushd::provider::error::{ModelError, ModelErrorKind};
use pushd::provider::limits::{Limits, TurnLimits};
use pushd::provider::model::Delta;
use pushd::provider::registry::key_variable;

use crate::providers::fixture::{Fixture, KEY, limits, simple_request, text_delta};
use crate::support::model::{Delivery, Fault, Reply, ServerDialect, cases, fault, say};

pub(crate) async fn a_wrong_key_is_reported_with_what_to_set(dialect: ServerDialect) {
    let error = refused(dialect, cases::wrong_key(), ModelErrorKind::Unauthorized).await;
    let variable = key_variable(dialect.name());
    let head = format!("{} refuses the key from {variable} (401): bad key; set {variable}", dialect.name());
    assert!(error.message.starts_with(&head), "{error}");
    assert!(error.message.contains("push config key"), "{error}");
    assert_eq!(error.detail, None, "what the message quotes is not said twice");
}

pub(crate) async fn a_forbidden_model_is_reported(dialect: ServerDialect) {
    refused(dialect, cases::forbidden(), ModelErrorKind::Unauthorized).await;
}

pub(crate) async fn a_missing_model_is_reported(dialect: ServerDialect) {
    let error = refused(dialect, cases::no_such_model(), ModelErrorKind::ModelNotFound).await;
    assert!(error.message.contains("has no model test-model"), "{error}");
    assert_eq!(error.message.contains("ollama pull test-model"), dialect == ServerDialect::Ollama, "{error}");
}

pub(crate) async fn a_wrong_path_is_reported_with_the_base_url(dialect: ServerDialect) {
    let error = refused(dialect, cases::no_such_path(), ModelErrorKind::Refused).await;
    assert!(error.message.contains("check that http://127.0.0.1:"), "{error}");
}

pub(crate) async fn a_refused_request_is_reported_with_the_server_s_message(dialect: ServerDialect) {
    let error = refused(dialect, cases::refuses(), ModelErrorKind::Refused).await;
    assert_eq!(error.message, format!("{} answered 400: this model does not support tools", dialect.name()));
}

pub(crate) async fn a_conversation_that_is_too_long_is_reported(dialect: ServerDialect) {
    refused(dialect, cases::prompt_too_long(), ModelErrorKind::ContextTooLong).await;
}

pub(crate) async fn an_empty_account_is_reported(dialect: ServerDialect) {
    refused(dialect, cases::no_credit(), ModelErrorKind::OutOfCredit).await;
}

pub(crate) async fn a_redirect_is_not_followed(dialect: ServerDialect) {
    let error = refused(dialect, cases::redirects(), ModelErrorKind::Refused).await;
    assert!(error.message.contains("http://127.0.0.1:9/elsewhere"), "{error}");
}

pub(crate) async fn a_web_page_is_refused_as_an_answer(dialect: ServerDialect) {
    let error = refused(dialect, cases::web_page(), ModelErrorKind::InvalidResponse).await;
    assert!(error.message.contains("answered with a web page"), "{error}");
    assert!(error.detail.unwrap().contains("Please log in"));
}

pub(crate) async fn garbage_in_the_middle_ends_the_answer(dialect: ServerDialect) {
    interrupted(dialect, cases::garbles(), ModelErrorKind::InvalidResponse, "one").await;
}

pub(crate) async fn garbage_from_the_start_is_not_retried(dialect: ServerDialect) {
    let error = refused(dialect, cases::another_file(), ModelErrorKind::InvalidResponse).await;
    assert!(error.detail.unwrap().starts_with("%PDF-1.7"));
}

pub(crate) async fn an_answer_that_is_not_http_is_refused(dialect: ServerDialect) {
    refused(dialect, Reply::NotHttp, ModelErrorKind::InvalidResponse).await;
}

pub(crate) async fn an_interruption_is_reported_after_the_received_text(dialect: ServerDialect) {
    let steps = [say("one "), say("two"), fault(Fault::Cut)];
    let error = interrupted(dialect, Reply::turn(steps), ModelErrorKind::Interrupted, "one two").await;
    assert!(error.retryable);
}

pub(crate) async fn a_cut_inside_a_character_is_an_interruption(dialect: ServerDialect) {
    let reply = cases::breaks_off("été", Fault::CutInsideCharacter);
    interrupted(dialect, reply, ModelErrorKind::Interrupted, "été").await;
}

pub(crate) async fn a_cut_inside_a_character_of_an_unframed_body_is_an_interruption(dialect: ServerDialect) {
    let reply = cases::breaks_off("été", Fault::CutInsideCharacter);
    interrupted(dialect, reply.delivered(Delivery::UntilClose), ModelErrorKind::Interrupted, "été").await;
}

pub(crate) async fn a_reset_in_the_middle_is_an_interruption(dialect: ServerDialect) {
    // Bytes in flight when the connection is reset may be lost.
    let fixture = Fixture::new(dialect, [cases::breaks_off("one", Fault::Reset), Reply::says("again")]);
    let completion = fixture.send_simple().await;
    match completion.error {
        Some(error) => {
            assert_eq!((error.kind, completion.deltas), (ModelErrorKind::Interrupted, vec![text_delta("one")]))
        }
        None => assert_eq!((completion.deltas, fixture.seen().len()), (vec![text_delta("again")], 2)),
    }
}

pub(crate) async fn an_answer_without_its_end_marker_is_an_interruption(dialect: ServerDialect) {
    interrupted(dialect, cases::breaks_off("one", Fault::EndEarly), ModelErrorKind::Interrupted, "one").await;
}

pub(crate) async fn silence_is_reported_after_its_timeout(dialect: ServerDialect) {
    let fixture = Fixture::with(dialect, short_timeouts(), [Reply::Never]);
    let started = Instant::now();
    let error = fixture.send_simple().await.failed_after(&[]);
    assert_eq!((error.kind, error.retryable), (ModelErrorKind::TimedOut, true));
    assert!(started.elapsed() >= short_timeouts().first_byte_timeout);
    assert_eq!(fixture.seen().len(), 1, "whoever waited so long is not made to wait again");
}

pub(crate) async fn silence_after_the_head_is_reported(dialect: ServerDialect) {
    let fixture = Fixture::with(dialect, short_timeouts(), [Reply::HeadOnly]);
    assert_eq!(fixture.send_simple().await.failed_after(&[]).kind, ModelErrorKind::TimedOut);
}

pub(crate) async fn silence_in_the_middle_is_reported_after_the_received_text(dialect: ServerDialect) {
    // Far below the limit for the first byte.
    let (silence, first_byte) = (Duration::from_millis(100), Duration::from_secs(3600));
    let limits = Limits { idle_timeout: silence, first_byte_timeout: first_byte, ..limits() };
    let fixture = Fixture::with(dialect, limits, [cases::breaks_off("one", Fault::Stall)]);
    let error = fixture.send_simple().await.failed_after(&[text_delta("one")]);
    assert_eq!(error.kind, ModelErrorKind::TimedOut);
    assert_eq!(error.message, "the server has sent nothing for 0.1 s");
    fixture.server.hangups(1).await;
}

pub(crate) async fn a_slow_answer_is_no_silence(dialect: ServerDialect) {
    let silence = Duration::from_secs(1);
    let limits = Limits { idle_timeout: silence, first_byte_timeout: silence, ..limits() };
    let reply = Reply::turn((0..15).map(|number| say(&number.to_string())));
    let fixture = Fixture::with(dialect, limits, [reply.delivered(Delivery::Paced(silence / 10))]);
    let completion = fixture.send_simple().await;
    let expected: String = (0..15).map(|number| number.to_string()).collect();
    assert_eq!((completion.error, completion.deltas), (None, vec![text_delta(&expected)]));
}

pub(crate) async fn a_huge_line_is_refused(dialect: ServerDialect) {
    let turn = TurnLimits { line_bytes: 100_000, ..TurnLimits::default() };
    let fixture = Fixture::with(dialect, Limits { turn, ..limits() }, [cases::says_too_long_a_line(300_000)]);
    let error = fixture.send_simple().await.failed_after(&[text_delta("one")]);
    assert_eq!(error.kind, ModelErrorKind::InvalidResponse);
    assert_eq!(error.message, "the server sent a line of more than 100000 bytes");
    assert!(error.detail.unwrap().len() < 2_000, "an excerpt is enough");
}

pub(crate) async fn an_error_in_the_middle_is_reported_after_the_received_text(dialect: ServerDialect) {
    let reply = cases::breaks_off("one", cases::overloaded_midway());
    let error = interrupted(dialect, reply, ModelErrorKind::Overloaded, "one").await;
    assert!(error.message.ends_with("come back later"), "{error}");
}

pub(crate) async fn too_many_calls_are_refused(dialect: ServerDialect) {
    let turn = TurnLimits { calls: 3, ..TurnLimits::default() };
    let fixture = Fixture::with(dialect, Limits { turn, ..limits() }, [cases::calls_too_often(4)]);
    let error = fixture.send_simple().await.failed_after(&[]);
    assert_eq!(error.message, "the model made more than 3 tool calls in one turn");
    assert_eq!(error.kind, ModelErrorKind::InvalidResponse);
}

pub(crate) async fn too_much_text_is_refused(dialect: ServerDialect) {
    let turn = TurnLimits { text_bytes: 100, ..TurnLimits::default() };
    let steps = (0..30).map(|_| say("12345"));
    let fixture = Fixture::with(dialect, Limits { turn, ..limits() }, [Reply::turn(steps)]);
    let error = fixture.send_simple().await.failed_after(&[text_delta(&"12345".repeat(20))]);
    assert_eq!(error.kind, ModelErrorKind::InvalidResponse);
    fixture.server.hangups(0).await;
}

pub(crate) async fn too_long_arguments_are_refused(dialect: ServerDialect) {
    let turn = TurnLimits { args_bytes: 100, ..TurnLimits::default() };
    let fixture = Fixture::with(dialect, Limits { turn, ..limits() }, [cases::calls_at_length(200)]);
    assert_eq!(fixture.send_simple().await.failed_after(&[]).kind, ModelErrorKind::InvalidResponse);
}

pub(crate) async fn a_key_that_the_server_repeats_is_redacted(dialect: ServerDialect) {
    let error = refused(dialect, cases::repeats_the_key(KEY), ModelErrorKind::Unauthorized).await;
    assert!(!format!("{error:?}").contains(KEY), "{error:?}");
    assert!(error.message.contains("wrong key [key]"), "{error}");
}

pub(crate) async fn an_error_is_final(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [Reply::status(401, "")]);
    let mut answering = fixture.ready().await.start_turn(&simple_request());
    let error = answering.next().await.unwrap_err();
    assert_eq!(answering.next().await, Err(error));
    assert_eq!(fixture.seen().len(), 1);
}

/// One request, not retried, ends with this kind of error.
async fn refused(dialect: ServerDialect, reply: Reply, kind: ModelErrorKind) -> ModelError {
    let fixture = Fixture::new(dialect, [reply, Reply::says("asked again")]);
    let error = fixture.send_simple().await.failed_after(&[]);
    assert_eq!((error.kind, error.retryable, fixture.seen().len()), (kind, false, 1), "{error:?}");
    error
}

/// One request; the answer is interrupted after this text and not retried.
async fn interrupted(dialect: ServerDialect, reply: Reply, kind: ModelErrorKind, text: &str) -> ModelError {
    let fixture = Fixture::new(dialect, [reply, Reply::says("asked again")]);
    let expected: [Delta; 1] = [text_delta(text)];
    let error = fixture.send_simple().await.failed_after(&expected);
    assert_eq!((error.kind, fixture.seen().len()), (kind, 1), "{error:?}");
    error
}

fn short_timeouts() -> Limits {
    Limits { first_byte_timeout: Duration::from_millis(100), ..limits() }
}
