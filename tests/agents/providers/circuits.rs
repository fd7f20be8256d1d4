//! The circuit breaker: it opens after repeated failures and closes when the server is available again.

use std::sync::Arc;
use std::time::Duration;

use pushd::provider::breaker::{BreakerPolicy, BreakerState};
use pushd::provider::error::ModelErrorKind;
use pushd::provider::limits::Limits;
use pushd::provider::registry::{CircuitReport, Environment, ModelRegistry, Settings, base_url_variable};
use pushd::provider::{RunAdmission, Starter, retry};

use crate::providers::fixture::{Fixture, built_in, limits, no_keyring, read_turn, simple_request, text_delta};
use crate::support::model::{Fault, ModelServer, Reply, ServerDialect, fault, say};

pub(crate) async fn a_circuit_opens_after_failures_and_sends_nothing(dialect: ServerDialect) {
    let fixture = Fixture::with(dialect, limits_without_retries(LONG), []);
    for _ in 0..3 {
        assert_eq!(fixture.send_simple().await.failed_after(&[]).kind, ModelErrorKind::Failed);
    }
    let error = fixture.send_simple().await.failed_after(&[]);
    assert_eq!((error.kind, error.retryable), (ModelErrorKind::CircuitOpen, true));
    assert!(error.retry_after.is_some_and(|wait| wait > Duration::from_secs(500)), "{error:?}");
    assert!(error.message.contains("failed too often in a row"), "{error}");
    assert_eq!(fixture.seen().len(), 3);
    let report = circuit(&fixture);
    assert_eq!(report.provider, dialect.name());
    assert_eq!(report.base_url, fixture.server.base_url(dialect));
    assert_eq!((report.state, report.counts.opened, report.counts.refused), (BreakerState::Open, 1, 1));
}

pub(crate) async fn a_circuit_closes_when_the_server_is_back(dialect: ServerDialect) {
    let fixture = with_open_circuit(dialect).await;
    fixture.server.script([Reply::says("back")]);
    assert_eq!(circuit(&fixture).state, BreakerState::HalfOpen);
    assert_eq!(fixture.send_simple().await.completed(), [text_delta("back")]);
    let report = circuit(&fixture);
    assert_eq!((report.state, report.counts.consecutive_failures), (BreakerState::Closed, 0));
}

pub(crate) async fn a_failed_probe_keeps_the_circuit_open(dialect: ServerDialect) {
    let fixture = with_open_circuit(dialect).await;
    assert_eq!(fixture.send_simple().await.failed_after(&[]).kind, ModelErrorKind::Failed);
    assert_eq!(circuit(&fixture).counts.opened, 2);
}

pub(crate) async fn a_dropped_probe_permits_another(dialect: ServerDialect) {
    let fixture = with_open_circuit(dialect).await;
    fixture.server.script([Reply::Never, Reply::says("back")]);
    let ready = fixture.ready().await;
    let mut probe = ready.start_turn(&simple_request());
    tokio::select! {
        outcome = probe.next() => panic!("nobody answered, and yet: {outcome:?}"),
        () = async { while fixture.seen().len() < 4 { tokio::task::yield_now().await } } => {}
    }
    assert_eq!(fixture.send_simple().await.failed_after(&[]).kind, ModelErrorKind::CircuitOpen, "one probe at a time");
    drop(probe);
    assert_eq!(fixture.send_simple().await.completed(), [text_delta("back")]);
}

pub(crate) async fn wrong_keys_open_no_circuit(dialect: ServerDialect) {
    let fixture = Fixture::with(dialect, limits_without_retries(LONG), []);
    for status in [401, 400, 404, 429, 401, 403] {
        fixture.server.script([Reply::status(status, "")]);
        assert_ne!(fixture.send_simple().await.failed_after(&[]).kind, ModelErrorKind::CircuitOpen);
    }
    assert_eq!((circuit(&fixture).state, fixture.seen().len()), (BreakerState::Closed, 6));
}

pub(crate) async fn interrupted_answers_open_the_circuit(dialect: ServerDialect) {
    let fixture = Fixture::with(dialect, limits_without_retries(LONG), []);
    fixture.server.usually(Reply::turn([say("one"), fault(Fault::Cut)]));
    for _ in 0..3 {
        assert_eq!(fixture.send_simple().await.failed_after(&[text_delta("one")]).kind, ModelErrorKind::Interrupted);
    }
    assert_eq!(circuit(&fixture).state, BreakerState::Open);
}

pub(crate) async fn each_endpoint_has_its_own_circuit(dialect: ServerDialect) {
    let mut fixture = Fixture::with(dialect, limits_without_retries(LONG), []);
    for _ in 0..3 {
        fixture.send_simple().await.failed_after(&[]);
    }
    let other = ModelServer::start();
    other.script([Reply::says("here")]);
    fixture.environment.insert(base_url_variable(dialect.name()), other.base_url(dialect));
    assert_eq!(fixture.send_simple().await.completed(), [text_delta("here")]);
    let mut states: Vec<BreakerState> = fixture.models.circuits().iter().map(|report| report.state).collect();
    states.sort_by_key(|state| state.name());
    assert_eq!(states, [BreakerState::Closed, BreakerState::Open]);
}

pub(crate) async fn the_requests_of_one_run_count_once(dialect: ServerDialect) {
    let fixture = Fixture::with(dialect, limits_without_retries(LONG), []);
    let run = Arc::new(RunAdmission::new(Starter::Program));
    for _ in 0..5 {
        let ready = fixture.ready().await.for_run(Arc::clone(&run));
        assert_eq!(read_turn(ready.start_turn(&simple_request())).await.failed_after(&[]).kind, ModelErrorKind::Failed);
    }
    let report = circuit(&fixture);
    assert_eq!((report.state, report.counts.consecutive_failures), (BreakerState::Closed, 1));
}

pub(crate) async fn a_run_that_was_admitted_is_not_refused_later(dialect: ServerDialect) {
    let fixture = Fixture::with(dialect, limits_without_retries(LONG), [Reply::says("one")]);
    let ready = fixture.ready().await.for_run(Arc::new(RunAdmission::new(Starter::Program)));
    assert_eq!(read_turn(ready.start_turn(&simple_request())).await.completed(), [text_delta("one")]);
    for _ in 0..3 {
        fixture.send_simple().await.failed_after(&[]);
    }
    assert_eq!(fixture.send_simple().await.failed_after(&[]).kind, ModelErrorKind::CircuitOpen);
    fixture.server.script([Reply::says("two")]);
    assert_eq!(read_turn(ready.start_turn(&simple_request())).await.completed(), [text_delta("two")]);
    assert_eq!(circuit(&fixture).state, BreakerState::Closed, "the server is back");
}

pub(crate) async fn a_run_of_a_person_is_never_refused_and_probes(dialect: ServerDialect) {
    let fixture = Fixture::with(dialect, limits_without_retries(LONG), []);
    for _ in 0..3 {
        fixture.send_simple().await.failed_after(&[]);
    }
    assert_eq!(circuit(&fixture).state, BreakerState::Open);
    for kind in [ModelErrorKind::Failed, ModelErrorKind::Failed] {
        let ready = fixture.ready().await.for_run(Arc::new(RunAdmission::new(Starter::Person)));
        assert_eq!(read_turn(ready.start_turn(&simple_request())).await.failed_after(&[]).kind, kind);
        assert_eq!(
            fixture.send_simple().await.failed_after(&[]).kind,
            ModelErrorKind::CircuitOpen,
            "a program is refused"
        );
    }
    fixture.server.script([Reply::says("back")]);
    let ready = fixture.ready().await.for_run(Arc::new(RunAdmission::new(Starter::Person)));
    assert_eq!(read_turn(ready.start_turn(&simple_request())).await.completed(), [text_delta("back")]);
    assert_eq!(circuit(&fixture).state, BreakerState::Closed);
}

pub(crate) async fn providers_of_one_server_share_its_circuit(dialect: ServerDialect) {
    let server = ModelServer::start();
    let settings = |dialect: ServerDialect| {
        let base_url = Some(server.base_url(dialect));
        Settings { base_url, model: Some("test-model".to_owned()), ..Settings::new(built_in(dialect)) }
    };
    let named = [("one".to_owned(), settings(dialect)), ("two".to_owned(), settings(ServerDialect::OpenAi))];
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().to_owned();
    let models =
        ModelRegistry::new(named.into_iter().collect(), keys, no_keyring(&folder), limits_without_retries(LONG));
    for provider in ["one", "two", "one"] {
        let ready = models.resolve(provider, None, &Environment::new()).await.unwrap();
        assert_eq!(read_turn(ready.start_turn(&simple_request())).await.failed_after(&[]).kind, ModelErrorKind::Failed);
    }
    let ready = models.resolve("two", None, &Environment::new()).await.unwrap();
    assert_eq!(
        read_turn(ready.start_turn(&simple_request())).await.failed_after(&[]).kind,
        ModelErrorKind::CircuitOpen
    );
    let reports = models.circuits();
    let states: Vec<_> = reports.iter().map(|report| (report.provider.as_str(), report.state)).collect();
    assert_eq!(states, [("one", BreakerState::Open), ("two", BreakerState::Open)]);
}

/// A fixture whose circuit is open and may be probed at once.
async fn with_open_circuit(dialect: ServerDialect) -> Fixture {
    let fixture = Fixture::with(dialect, limits_without_retries(Duration::ZERO), []);
    for _ in 0..3 {
        fixture.send_simple().await.failed_after(&[]);
    }
    fixture
}

fn circuit(fixture: &Fixture) -> CircuitReport {
    fixture.models.circuits().remove(0)
}

/// Limits without retries, under which three failures open the circuit.
fn limits_without_retries(pause: Duration) -> Limits {
    let usual = limits();
    let retry = retry::RetryPolicy { attempts: 1, ..usual.retry };
    Limits { retry, breaker: BreakerPolicy { failure_threshold: 3, open_duration: pause }, ..usual }
}

const LONG: Duration = Duration::from_secs(600);
