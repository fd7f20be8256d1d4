//! What is asked again behind everybody's back, how often, and when not.

use std::time::{Duration, Instant};

use pushd::provider::dialect::Dialect;
use pushd::provider::error::{Kind, ModelError};

use crate::model::{Fault, Reply, fault};
use crate::world::{World, said};

pub(crate) async fn a_rate_limit_is_waited_out(dialect: Dialect) {
    answered_at_last(dialect, [limited(), limited()]).await;
}

pub(crate) async fn the_time_a_server_asks_for_is_waited(dialect: Dialect) {
    let started = Instant::now();
    answered_at_last(dialect, [limited().header("retry-after", "0.2")]).await;
    assert!(started.elapsed() >= Duration::from_millis(200));
}

pub(crate) async fn a_server_that_asks_for_too_long_is_not_waited_for(dialect: Dialect) {
    let world = World::new(dialect, [limited().header("retry-after", "3600"), Reply::says("asked again")]);
    let error = world.ask().await.failed_after(&[]);
    assert_eq!((error.kind, error.retry_after), (Kind::RateLimited, Some(Duration::from_secs(3600))));
    assert!(error.message.contains("asked again in 3600 s, and at most 5 s"), "{error}");
    assert_eq!(world.seen().len(), 1);
}

pub(crate) async fn a_rate_limit_that_lasts_is_told(dialect: Dialect) {
    let error = given_up(dialect, &limited()).await;
    assert_eq!((error.kind, error.retryable), (Kind::RateLimited, true));
}

pub(crate) async fn a_failing_server_is_asked_again(dialect: Dialect) {
    answered_at_last(dialect, [Reply::status(500, "oops"), Reply::status(502, "<html>bad gateway</html>")])
        .await;
}

pub(crate) async fn an_overloaded_server_is_asked_again(dialect: Dialect) {
    answered_at_last(dialect, [Reply::status(503, ""), Reply::status(529, "")]).await;
}

pub(crate) async fn a_server_that_stays_overloaded_is_told(dialect: Dialect) {
    let body = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let error = given_up(dialect, &Reply::status(529, body)).await;
    assert_eq!(error.message, format!("{} answered 529: Overloaded", dialect.name()));
    assert_eq!((error.kind, error.retryable), (Kind::Overloaded, true));
}

pub(crate) async fn timeouts_and_conflicts_are_asked_again(dialect: Dialect) {
    answered_at_last(dialect, [Reply::status(408, ""), Reply::status(409, "")]).await;
}

pub(crate) async fn a_connection_closed_without_an_answer_is_asked_again(dialect: Dialect) {
    answered_at_last(dialect, [Reply::HangUp]).await;
}

pub(crate) async fn a_connection_reset_without_an_answer_is_asked_again(dialect: Dialect) {
    answered_at_last(dialect, [Reply::Reset]).await;
}

pub(crate) async fn a_cut_before_the_first_piece_is_asked_again(dialect: Dialect) {
    let cut = |kind| Reply::turn([fault(kind)]);
    answered_at_last(dialect, [cut(Fault::Cut), cut(Fault::EndEarly)]).await;
}

pub(crate) async fn an_error_before_the_first_piece_is_asked_again(dialect: Dialect) {
    let wrong = Fault::Error { kind: "overloaded_error".to_owned(), message: "Overloaded".to_owned() };
    answered_at_last(dialect, [Reply::turn([fault(wrong)])]).await;
}

pub(crate) async fn a_place_where_nobody_listens_is_told(dialect: Dialect) {
    let mut world = World::new(dialect, []);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let variable = pushd::provider::registry::place_variable(dialect.name());
    world.environment.insert(variable, format!("http://{free}"));
    let error = world.ask().await.failed_after(&[]);
    assert_eq!((error.kind, error.retryable), (Kind::Unreachable, true));
    assert!(error.message.starts_with(&format!("cannot reach {free}: ")), "{error}");
    let failures = world.models.circuits()[0].counts.failures_in_a_row;
    assert_eq!(failures, 3, "it was tried as often as anything is");
}

/// Asks once; the server fails so at first, and is asked the same until it answers.
async fn answered_at_last<const N: usize>(dialect: Dialect, failures: [Reply; N]) {
    let world = World::new(dialect, failures.into_iter().chain([Reply::says("at last")]));
    assert_eq!(world.ask().await.whole(), [said("at last")]);
    let seen = world.seen();
    assert_eq!(seen.len(), N + 1);
    assert!(seen.iter().all(|asked| asked.body == seen[0].body && asked.path == seen[0].path));
}

/// Asks once; the server always fails so, and is asked three times.
async fn given_up(dialect: Dialect, reply: &Reply) -> ModelError {
    let world = World::new(dialect, []);
    world.server.usually(reply.clone());
    let error = world.ask().await.failed_after(&[]);
    assert_eq!(world.seen().len(), 3);
    error
}

fn limited() -> Reply {
    Reply::status(429, r#"{"error":{"type":"rate_limit_error","message":"slow down"}}"#)
}
