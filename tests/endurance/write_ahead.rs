//! Events that are shown before they are committed: they survive a kill, and wait for a locked database.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::io::Write;

use crate::support::daemon::{Client, Daemon, wait_until};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use rusqlite::Connection;
use serde_json::{Value, json};

/// A run whose step prints what the test writes to it.
struct EchoRun {
    client: Client,
    session: String,
    pipe: File,
}

impl EchoRun {
    fn start(daemon: &Daemon) -> Self {
        let pipe = daemon.cwd().join("pipe");
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        let mut client = daemon.connect();
        let started =
            client.get("start_session", json!({"cwd": daemon.cwd(), "environment": {"PATH": "/usr/bin:/bin"}}));
        let session = started["sessionId"].as_str().unwrap().to_owned();
        let text = "$ while read line; do echo \"$line\"; done < pipe\n";
        client.get("send_user_message", json!({"sessionId": session, "text": text}));
        let pipe = File::options().write(true).open(&pipe).unwrap();
        let mut run = Self { client, session, pipe };
        run.print("ready");
        // The reply comes after everything that is on its way to the journal.
        run.client.get("get_session_snapshot", json!({"sessionId": run.session}));
        run
    }

    /// Makes the step print a word, and returns its event.
    fn print(&mut self, word: &str) -> Value {
        writeln!(self.pipe, "{word}").unwrap();
        let event = self.client.event_of("tool_output");
        assert_eq!(event["payload"]["text"], format!("{word}\n"));
        event
    }
}

/// Keeps the journal from writing, as another program that maintains the database would.
fn lock(daemon: &Daemon) -> Connection {
    let database = Connection::open(daemon.home.path().join(".push/state/pushd.db")).unwrap();
    wait_until("the database can be locked", || database.execute_batch("BEGIN IMMEDIATE").is_ok());
    database
}

fn history(daemon: &Daemon, session: &str) -> Vec<Value> {
    let mut client = daemon.connect();
    client.attach(session, 0);
    client.events_until("run_complete")
}

#[test]
fn events_published_before_their_commit_survive_a_kill() {
    let mut daemon = Daemon::start();
    let mut run = EchoRun::start(&daemon);
    let locked = lock(&daemon);
    let seen = run.print("seen and not committed");
    daemon.kill();
    drop(locked);
    daemon.restart();
    // The daemon asks whether the step completed; the test ends the run.
    let mut client = daemon.connect();
    client.get("cancel_run", json!({"sessionId": run.session}));
    let events = history(&daemon, &run.session);
    assert!(events.contains(&seen), "{seen} is not among {events:#?}");
}

#[test]
fn published_events_are_committed_when_the_database_lock_is_released() {
    let daemon = Daemon::start();
    let mut run = EchoRun::start(&daemon);
    let locked = lock(&daemon);
    let seen = run.print("seen and not committed");
    let refused = || {
        let logs = fs::read_dir(daemon.home.path().join(".push/logs")).unwrap();
        let texts = logs.map(|log| fs::read_to_string(log.unwrap().path()).unwrap_or_default());
        texts.collect::<String>().contains("cannot store events of the write-ahead file")
    };
    wait_until("the journal could not store the event", refused);
    drop(locked);
    run.print("and more");
    drop(run.pipe);
    assert_eq!(run.client.event_of("run_complete")["payload"]["outcome"], "success");
    assert!(history(&daemon, &run.session).contains(&seen));
}
