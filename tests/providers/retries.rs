//! Which requests are retried transparently, how often, and which are not.

use std::time::{Duration, Instant};

use pushd::provider::Step;
use pushd::provider::dialect::Dialect;
use pushd::provider::error::{Kind, ModelError};
use pushd::provider::limits::Limits;

use crate::model::{Nobody, Reply, cases};
use crate::world::{World, limits, question, said};

pub(crate) async fn a_rate_limit_is_waited_out(dialect: Dialect) {
    answered_at_last(dialect, [cases::limited(), cases::limited()]).await;
}

pub(crate) async fn the_time_a_server_asks_for_is_waited(dialect: Dialect) {
    let started = Instant::now();
    answered_at_last(dialect, [cases::limited_for("0.2")]).await;
    assert!(started.elapsed() >= Duration::from_millis(200));
}

pub(crate) async fn a_server_that_asks_for_too_long_is_not_waited_for(dialect: Dialect) {
    let world = World::new(dialect, [cases::limited_for("3600"), Reply::says("asked again")]);
    let error = world.ask().await.failed_after(&[]);
    assert_eq!((error.kind, error.retry_after), (Kind::RateLimited, Some(Duration::from_secs(3600))));
    assert!(error.message.contains("retry after 3600 s, more than the limit of 5 s"), "{error}");
    assert_eq!(world.seen().len(), 1);
}

pub(crate) async fn a_rate_limit_that_lasts_is_told(dialect: Dialect) {
    let error = given_up(dialect, &cases::limited()).await;
    assert_eq!((error.kind, error.retryable), (Kind::RateLimited, true));
}

pub(crate) async fn a_failing_server_is_asked_again(dialect: Dialect) {
    answered_at_last(dialect, cases::fails()).await;
}

pub(crate) async fn an_overloaded_server_is_asked_again(dialect: Dialect) {
    answered_at_last(dialect, cases::has_too_much_to_do()).await;
}

pub(crate) async fn a_server_that_stays_overloaded_is_told(dialect: Dialect) {
    let error = given_up(dialect, &cases::overloaded()).await;
    assert_eq!(error.message, format!("{} answered 529: Overloaded", dialect.name()));
    assert_eq!((error.kind, error.retryable), (Kind::Overloaded, true));
}

pub(crate) async fn timeouts_and_conflicts_are_asked_again(dialect: Dialect) {
    answered_at_last(dialect, cases::too_slow_then_in_conflict()).await;
}

pub(crate) async fn a_connection_closed_without_an_answer_is_asked_again(dialect: Dialect) {
    answered_at_last(dialect, [Reply::HangUp]).await;
}

pub(crate) async fn a_connection_reset_without_an_answer_is_asked_again(dialect: Dialect) {
    answered_at_last(dialect, [Reply::Reset]).await;
}

pub(crate) async fn a_cut_before_the_first_piece_is_asked_again(dialect: Dialect) {
    answered_at_last(dialect, cases::cut_before_anything()).await;
}

pub(crate) async fn an_error_before_the_first_piece_is_asked_again(dialect: Dialect) {
    answered_at_last(dialect, [cases::breaks(cases::overloaded_midway())]).await;
}

pub(crate) async fn a_place_where_nobody_listens_is_told(dialect: Dialect) {
    let mut world = World::new(dialect, []);
    let nobody = Nobody::new();
    let place = nobody.address();
    let variable = pushd::provider::registry::place_variable(dialect.name());
    world.environment.insert(variable, format!("http://{place}"));
    let error = world.ask().await.failed_after(&[]);
    assert_eq!((error.kind, error.retryable), (Kind::Unreachable, true));
    assert!(error.message.starts_with(&format!("cannot reach {place}: ")), "{error}");
    let failures = world.models.circuits()[0].counts.failures_in_a_row;
    assert_eq!(failures, 1, "one run failed, however often it was tried");
}

pub(crate) async fn a_wrong_key_that_is_called_a_failure_is_not_asked_again(dialect: Dialect) {
    let refuses = Reply::status(401, r#"{"error":{"type":"api_error","message":"no such key"}}"#);
    let world = World::new(dialect, [refuses, Reply::says("asked again")]);
    let error = world.ask().await.failed_after(&[]);
    assert_eq!((error.kind, error.retryable), (Kind::Unauthorized, false), "{error}");
    assert_eq!(world.seen().len(), 1);
}

pub(crate) async fn a_model_that_is_being_loaded_is_waited_for(dialect: Dialect) {
    let world = World::new(dialect, (0..4).map(|_| loading()).chain([Reply::says("at last")]));
    let mut answering = world.ready().await.ask_once(&question());
    let mut told = Vec::new();
    loop {
        match answering.step().await.unwrap() {
            Step::Loading(waited) => told.push(waited),
            Step::Waits(wait) => panic!("it is no failure: {wait:?}"),
            Step::Pieces(pieces) => assert_eq!(pieces, [said("at last")]),
            Step::End => break,
        }
    }
    assert_eq!((told.len(), world.seen().len()), (1, 5), "it is told at once, and not with every look");
    let counts = world.models.circuits()[0].counts;
    assert_eq!((counts.failures_in_a_row, counts.opened), (0, 0));
}

pub(crate) async fn a_model_that_is_loaded_for_too_long_is_told(dialect: Dialect) {
    let short = Limits { first_byte: Duration::from_millis(300), ..limits() };
    let world = World::with(dialect, short, []);
    world.server.usually(loading());
    let error = world.ask().await.failed_after(&[]);
    assert_eq!((error.kind, error.retryable), (Kind::ModelLoading, true));
    assert!(error.message.contains("Loading model"), "{error}");
}

/// The answer of llama.cpp while it loads its model.
fn loading() -> Reply {
    Reply::status(503, r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#)
}

/// One request; the server fails like this first, and the same request is retried until it answers.
async fn answered_at_last<const N: usize>(dialect: Dialect, failures: [Reply; N]) {
    let world = World::new(dialect, failures.into_iter().chain([Reply::says("at last")]));
    assert_eq!(world.ask().await.whole(), [said("at last")]);
    let seen = world.seen();
    assert_eq!(seen.len(), N + 1);
    assert!(seen.iter().all(|asked| asked.body == seen[0].body && asked.path == seen[0].path));
}

/// One request; the server always fails like this, and gets three attempts.
async fn given_up(dialect: Dialect, reply: &Reply) -> ModelError {
    let world = World::new(dialect, []);
    world.server.usually(reply.clone());
    let error = world.ask().await.failed_after(&[]);
    assert_eq!(world.seen().len(), 3);
    error
}
