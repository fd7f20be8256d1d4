//! Cancellation latency: from the request to the end of all processes and requests of the run.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::daemon::{Client, Home};
use super::model::ServerDialect;
use super::table::{Table, median};
use super::token_server::{Pace, TokenServer};

const ROUNDS: usize = 15;
/// The pace of the answer that is cancelled.
const TOKEN_INTERVAL: Duration = Duration::from_millis(5);

/// Cancels a step whose descendants try to escape, and a streaming answer.
pub(crate) fn measure(table: &mut Table) {
    let home = Home::with_daemon();
    let mut client = home.connect();
    let steps: Vec<_> = (0..ROUNDS).map(|_| cancel_step(&home, &mut client)).collect();
    report(table, "cancelled in the middle of a step", steps);
    let server = TokenServer::start(ServerDialect::OpenAi, 100_000, Pace::Every(TOKEN_INTERVAL));
    let answers: Vec<_> = (0..ROUNDS).map(|_| cancel_answer(&home, &mut client, &server)).collect();
    report(table, "cancelled in the middle of an answer", answers);
}

fn report(table: &mut Table, what: &str, took: Vec<f64>) {
    let slowest = took.iter().copied().fold(0.0, f64::max);
    table.single(format!("{what}, until all of it has ended, median"), "ms", median(took));
    table.single(format!("{what}, slowest of {ROUNDS}"), "ms", slowest);
}

/// Cancels a step with a process in a session of its own, and checks that all its processes are dead.
fn cancel_step(home: &Home, client: &mut Client) -> f64 {
    let session = home.session(client);
    let words = "$ setsid sh -c 'trap \"\" TERM; sleep 1000' & sleep 1000 & echo $! $$; sleep 1000";
    let printed = start_run(client, &session, words, "tool_output");
    let pids = printed["payload"]["text"].as_str().expect("what it printed").to_owned();
    let took = cancel(client, &session);
    for pid in pids.split_whitespace() {
        assert!(!Path::new("/proc").join(pid).exists(), "{pid} is still there");
    }
    took
}

fn cancel_answer(home: &Home, client: &mut Client, server: &TokenServer) -> f64 {
    let environment = json!({"OPENAI_BASE_URL": server.base_url(ServerDialect::OpenAi), "OPENAI_API_KEY": "a-key"});
    let start = json!({"cwd": home.dir.path(), "provider": "openai", "model": "m", "environment": environment});
    let session = client.request("start_session", start)["sessionId"].as_str().expect("a session").to_owned();
    start_run(client, &session, "hi", "assistant_token");
    // Between two tokens, as almost every cancel is: what a token causes on disk is not measured here.
    std::thread::sleep(TOKEN_INTERVAL / 2);
    cancel(client, &session)
}

/// Starts a run and waits for an event of the kind `middle`.
fn start_run(client: &mut Client, session: &str, words: &str, middle: &str) -> Value {
    client.attach(session);
    client.send("send_user_message", json!({"sessionId": session, "text": words}));
    client.event(middle)
}

fn cancel(client: &mut Client, session: &str) -> f64 {
    let begun = Instant::now();
    client.send("cancel_run", json!({"sessionId": session}));
    let over = client.event("run_complete");
    let took = begun.elapsed().as_secs_f64() * 1e3;
    assert_eq!(over["payload"]["outcome"], "cancelled", "{over}");
    client.request("detach_session", json!({"sessionId": session}));
    took
}
