//! The circuit breaker: it opens after repeated failures and closes when the server is available again.

use std::sync::Arc;
use std::time::Duration;

use pushd::provider::breaker::{Policy, State};
use pushd::provider::dialect::Dialect;
use pushd::provider::error::Kind;
use pushd::provider::limits::Limits;
use pushd::provider::registry::{CircuitReport, Environment, Models, Settings, place_variable};
use pushd::provider::{RunAdmission, Starter, retry};

use crate::model::{Fault, ModelServer, Reply, fault, say};
use crate::world::{World, limits, no_keyring, question, read, said, speaks};

pub(crate) async fn a_circuit_opens_after_failures_and_asks_nobody(dialect: Dialect) {
    let world = World::with(dialect, brief(LONG), []);
    for _ in 0..3 {
        assert_eq!(world.ask().await.failed_after(&[]).kind, Kind::Failed);
    }
    let error = world.ask().await.failed_after(&[]);
    assert_eq!((error.kind, error.retryable), (Kind::CircuitOpen, true));
    assert!(error.retry_after.is_some_and(|wait| wait > Duration::from_secs(500)), "{error:?}");
    assert!(error.message.contains("failed too often in a row"), "{error}");
    assert_eq!(world.seen().len(), 3);
    let report = circuit(&world);
    assert_eq!(report.provider, dialect.name());
    assert_eq!(report.base_url, world.server.base_url(speaks(dialect)));
    assert_eq!((report.state, report.counts.opened, report.counts.refused), (State::Open, 1, 1));
}

pub(crate) async fn a_circuit_closes_when_the_server_is_back(dialect: Dialect) {
    let world = opened(dialect).await;
    world.server.script([Reply::says("back")]);
    assert_eq!(circuit(&world).state, State::HalfOpen);
    assert_eq!(world.ask().await.whole(), [said("back")]);
    let report = circuit(&world);
    assert_eq!((report.state, report.counts.failures_in_a_row), (State::Closed, 0));
}

pub(crate) async fn a_failed_probe_keeps_the_circuit_open(dialect: Dialect) {
    let world = opened(dialect).await;
    assert_eq!(world.ask().await.failed_after(&[]).kind, Kind::Failed);
    assert_eq!(circuit(&world).counts.opened, 2);
}

pub(crate) async fn a_dropped_probe_makes_room_for_another(dialect: Dialect) {
    let world = opened(dialect).await;
    world.server.script([Reply::Never, Reply::says("back")]);
    let ready = world.ready().await;
    let mut probe = ready.ask(&question());
    tokio::select! {
        outcome = probe.next() => panic!("nobody answered, and yet: {outcome:?}"),
        () = async { while world.seen().len() < 4 { tokio::task::yield_now().await } } => {}
    }
    assert_eq!(world.ask().await.failed_after(&[]).kind, Kind::CircuitOpen, "one probe at a time");
    drop(probe);
    assert_eq!(world.ask().await.whole(), [said("back")]);
}

pub(crate) async fn wrong_keys_open_no_circuit(dialect: Dialect) {
    let world = World::with(dialect, brief(LONG), []);
    for status in [401, 400, 404, 429, 401, 403] {
        world.server.script([Reply::status(status, "")]);
        assert_ne!(world.ask().await.failed_after(&[]).kind, Kind::CircuitOpen);
    }
    assert_eq!((circuit(&world).state, world.seen().len()), (State::Closed, 6));
}

pub(crate) async fn answers_that_are_cut_open_the_circuit(dialect: Dialect) {
    let world = World::with(dialect, brief(LONG), []);
    world.server.usually(Reply::turn([say("one"), fault(Fault::Cut)]));
    for _ in 0..3 {
        assert_eq!(world.ask().await.failed_after(&[said("one")]).kind, Kind::Cut);
    }
    assert_eq!(circuit(&world).state, State::Open);
}

pub(crate) async fn each_place_has_a_circuit_of_its_own(dialect: Dialect) {
    let mut world = World::with(dialect, brief(LONG), []);
    for _ in 0..3 {
        world.ask().await.failed_after(&[]);
    }
    let other = ModelServer::start();
    other.script([Reply::says("here")]);
    world.environment.insert(place_variable(dialect.name()), other.base_url(speaks(dialect)));
    assert_eq!(world.ask().await.whole(), [said("here")]);
    let mut states: Vec<State> = world.models.circuits().iter().map(|report| report.state).collect();
    states.sort_by_key(|state| state.name());
    assert_eq!(states, [State::Closed, State::Open]);
}

pub(crate) async fn the_questions_of_one_run_count_once(dialect: Dialect) {
    let world = World::with(dialect, brief(LONG), []);
    let run = Arc::new(RunAdmission::new(Starter::Program));
    for _ in 0..5 {
        let ready = world.ready().await.for_run(Arc::clone(&run));
        assert_eq!(read(ready.ask(&question())).await.failed_after(&[]).kind, Kind::Failed);
    }
    let report = circuit(&world);
    assert_eq!((report.state, report.counts.failures_in_a_row), (State::Closed, 1));
}

pub(crate) async fn a_run_that_was_admitted_is_not_refused_later(dialect: Dialect) {
    let world = World::with(dialect, brief(LONG), [Reply::says("one")]);
    let ready = world.ready().await.for_run(Arc::new(RunAdmission::new(Starter::Program)));
    assert_eq!(read(ready.ask(&question())).await.whole(), [said("one")]);
    for _ in 0..3 {
        world.ask().await.failed_after(&[]);
    }
    assert_eq!(world.ask().await.failed_after(&[]).kind, Kind::CircuitOpen);
    world.server.script([Reply::says("two")]);
    assert_eq!(read(ready.ask(&question())).await.whole(), [said("two")]);
    assert_eq!(circuit(&world).state, State::Closed, "the server is back");
}

pub(crate) async fn a_run_of_a_person_is_never_refused_and_probes(dialect: Dialect) {
    let world = World::with(dialect, brief(LONG), []);
    for _ in 0..3 {
        world.ask().await.failed_after(&[]);
    }
    assert_eq!(circuit(&world).state, State::Open);
    for kind in [Kind::Failed, Kind::Failed] {
        let ready = world.ready().await.for_run(Arc::new(RunAdmission::new(Starter::Person)));
        assert_eq!(read(ready.ask(&question())).await.failed_after(&[]).kind, kind);
        assert_eq!(world.ask().await.failed_after(&[]).kind, Kind::CircuitOpen, "a program is refused");
    }
    world.server.script([Reply::says("back")]);
    let ready = world.ready().await.for_run(Arc::new(RunAdmission::new(Starter::Person)));
    assert_eq!(read(ready.ask(&question())).await.whole(), [said("back")]);
    assert_eq!(circuit(&world).state, State::Closed);
}

pub(crate) async fn providers_of_one_server_share_its_circuit(dialect: Dialect) {
    let server = ModelServer::start();
    let settings = |dialect: Dialect| {
        let base_url = Some(server.base_url(speaks(dialect)));
        Settings { base_url, model: Some("test-model".to_owned()), ..Settings::new(dialect) }
    };
    let named = [("one".to_owned(), settings(dialect)), ("two".to_owned(), settings(Dialect::OpenAi))];
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().to_owned();
    let models = Models::new(named.into_iter().collect(), keys, no_keyring(&folder), brief(LONG));
    for provider in ["one", "two", "one"] {
        let ready = models.resolve(provider, None, &Environment::new()).await.unwrap();
        assert_eq!(read(ready.ask(&question())).await.failed_after(&[]).kind, Kind::Failed);
    }
    let ready = models.resolve("two", None, &Environment::new()).await.unwrap();
    assert_eq!(read(ready.ask(&question())).await.failed_after(&[]).kind, Kind::CircuitOpen);
    let reports = models.circuits();
    let states: Vec<_> = reports.iter().map(|report| (report.provider.as_str(), report.state)).collect();
    assert_eq!(states, [("one", State::Open), ("two", State::Open)]);
}

/// A fixture whose circuit is open and may be probed at once.
async fn opened(dialect: Dialect) -> World {
    let world = World::with(dialect, brief(Duration::ZERO), []);
    for _ in 0..3 {
        world.ask().await.failed_after(&[]);
    }
    world
}

fn circuit(world: &World) -> CircuitReport {
    world.models.circuits().remove(0)
}

/// Limits without retries, under which three failures open the circuit.
fn brief(pause: Duration) -> Limits {
    let usual = limits();
    let retry = retry::Policy { attempts: 1, ..usual.retry };
    Limits { retry, breaker: Policy { failures: 3, pause }, ..usual }
}

const LONG: Duration = Duration::from_secs(600);
