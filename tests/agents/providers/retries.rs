//! Which requests are retried transparently, how often, and which are not.

use std::time::{Duration, Instant};

use pushd::provider::StreamItem;
use pushd::provider::error::{ModelError, ModelErrorKind};
use pushd::provider::limits::Limits;

use crate::providers::fixture::{Fixture, limits, simple_request, text_delta};
use crate::support::model::{Reply, ServerDialect, UnusedPort, cases};

pub(crate) async fn a_rate_limit_is_waited_out(dialect: ServerDialect) {
    answered_after(dialect, [cases::limited(), cases::limited()]).await;
}

pub(crate) async fn a_retry_after_is_honoured(dialect: ServerDialect) {
    let started = Instant::now();
    answered_after(dialect, [cases::limited_for("0.2")]).await;
    assert!(started.elapsed() >= Duration::from_millis(200));
}

pub(crate) async fn a_retry_after_over_the_limit_is_not_waited_for(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, [cases::limited_for("3600"), Reply::says("asked again")]);
    let error = fixture.send_simple().await.failed_after(&[]);
    assert_eq!((error.kind, error.retry_after), (ModelErrorKind::RateLimited, Some(Duration::from_secs(3600))));
    assert!(error.message.contains("retry after 3600 s, more than the limit of 5 s"), "{error}");
    assert_eq!(fixture.seen().len(), 1);
}

pub(crate) async fn a_lasting_rate_limit_is_reported(dialect: ServerDialect) {
    let error = retries_exhausted(dialect, &cases::limited()).await;
    assert_eq!((error.kind, error.retryable), (ModelErrorKind::RateLimited, true));
}

pub(crate) async fn a_failing_server_is_retried(dialect: ServerDialect) {
    answered_after(dialect, cases::fails()).await;
}

pub(crate) async fn an_overloaded_server_is_retried(dialect: ServerDialect) {
    answered_after(dialect, cases::has_too_much_to_do()).await;
}

pub(crate) async fn a_server_that_stays_overloaded_is_reported(dialect: ServerDialect) {
    let error = retries_exhausted(dialect, &cases::overloaded()).await;
    assert_eq!(error.message, format!("{} answered 529: Overloaded", dialect.name()));
    assert_eq!((error.kind, error.retryable), (ModelErrorKind::Overloaded, true));
}

pub(crate) async fn timeouts_and_conflicts_are_retried(dialect: ServerDialect) {
    answered_after(dialect, cases::too_slow_then_in_conflict()).await;
}

pub(crate) async fn a_connection_closed_without_an_answer_is_retried(dialect: ServerDialect) {
    answered_after(dialect, [Reply::HangUp]).await;
}

pub(crate) async fn a_connection_reset_without_an_answer_is_retried(dialect: ServerDialect) {
    answered_after(dialect, [Reply::Reset]).await;
}

pub(crate) async fn an_interruption_before_the_first_delta_is_retried(dialect: ServerDialect) {
    answered_after(dialect, cases::cut_before_anything()).await;
}

pub(crate) async fn an_error_before_the_first_delta_is_retried(dialect: ServerDialect) {
    answered_after(dialect, [cases::breaks(cases::overloaded_midway())]).await;
}

pub(crate) async fn an_unreachable_server_is_reported(dialect: ServerDialect) {
    let mut fixture = Fixture::new(dialect, []);
    let nobody = UnusedPort::new();
    let place = nobody.address();
    let variable = pushd::provider::registry::base_url_variable(dialect.name());
    fixture.environment.insert(variable, format!("http://{place}"));
    let error = fixture.send_simple().await.failed_after(&[]);
    assert_eq!((error.kind, error.retryable), (ModelErrorKind::Unreachable, true));
    assert!(error.message.starts_with(&format!("cannot reach {place}: ")), "{error}");
    let failures = fixture.models.circuits()[0].counts.consecutive_failures;
    assert_eq!(failures, 1, "one run failed, however often it was tried");
}

pub(crate) async fn a_wrong_key_reported_as_a_server_error_is_not_retried(dialect: ServerDialect) {
    let refuses = Reply::status(401, r#"{"error":{"type":"api_error","message":"no such key"}}"#);
    let fixture = Fixture::new(dialect, [refuses, Reply::says("asked again")]);
    let error = fixture.send_simple().await.failed_after(&[]);
    assert_eq!((error.kind, error.retryable), (ModelErrorKind::Unauthorized, false), "{error}");
    assert_eq!(fixture.seen().len(), 1);
}

pub(crate) async fn a_model_that_is_being_loaded_is_waited_for(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, (0..4).map(|_| loading()).chain([Reply::says("at last")]));
    let mut answering = fixture.ready().await.start_turn_without_retry(&simple_request());
    let mut reported = Vec::new();
    loop {
        match answering.next_item().await.unwrap() {
            StreamItem::Loading(waited) => reported.push(waited),
            StreamItem::RetryScheduled(wait) => panic!("it is no failure: {wait:?}"),
            StreamItem::Deltas(pieces) => assert_eq!(pieces, [text_delta("at last")]),
            StreamItem::End => break,
        }
    }
    assert_eq!((reported.len(), fixture.seen().len()), (1, 5), "it is told at once, and not with every look");
    let counts = fixture.models.circuits()[0].counts;
    assert_eq!((counts.consecutive_failures, counts.opened), (0, 0));
}

pub(crate) async fn a_model_that_loads_for_too_long_is_reported(dialect: ServerDialect) {
    let short = Limits { first_byte_timeout: Duration::from_millis(300), ..limits() };
    let fixture = Fixture::with(dialect, short, []);
    fixture.server.usually(loading());
    let error = fixture.send_simple().await.failed_after(&[]);
    assert_eq!((error.kind, error.retryable), (ModelErrorKind::ModelLoading, true));
    assert!(error.message.contains("Loading model"), "{error}");
}

/// The answer of llama.cpp while it loads its model.
fn loading() -> Reply {
    Reply::status(503, r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#)
}

/// One request; the server fails like this first, and the same request is retried until it answers.
async fn answered_after<const N: usize>(dialect: ServerDialect, failures: [Reply; N]) {
    let fixture = Fixture::new(dialect, failures.into_iter().chain([Reply::says("at last")]));
    assert_eq!(fixture.send_simple().await.completed(), [text_delta("at last")]);
    let seen = fixture.seen();
    assert_eq!(seen.len(), N + 1);
    assert!(seen.iter().all(|completion| completion.body == seen[0].body && completion.path == seen[0].path));
}

/// One request; the server always fails like this, and gets three attempts.
async fn retries_exhausted(dialect: ServerDialect, reply: &Reply) -> ModelError {
    let fixture = Fixture::new(dialect, []);
    fixture.server.usually(reply.clone());
    let error = fixture.send_simple().await.failed_after(&[]);
    assert_eq!(fixture.seen().len(), 3);
    error
}
