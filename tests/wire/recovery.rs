//! What must not survive: secrets outside of memory, and processes that outlive their run.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::daemon::{Client, Daemon, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A value that only the name of its variable marks as a secret.
const VALUE: &str = "correct-horse-battery-staple";
/// A value that has the form of a secret.
const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

#[test]
fn a_secret_is_used_and_never_shown_or_stored() {
    let mut daemon = Daemon::start_with(&[("PUSH_LOG", "trace")]);
    // Steps may write anything into their directory, so they use another one.
    let place = TempDir::new().unwrap();
    let mut client = daemon.connect();
    let session = start(&mut client, place.path(), &[("MY_API_TOKEN", VALUE)]);
    let mut watcher = daemon.connect();
    watcher.attach(&session, 0);
    let text = format!(
        "The token is {TOKEN}, the value {VALUE}.\n\n\
         $ printf %s \"$MY_API_TOKEN\" > value; printf %s {TOKEN} > token\n\
         $ cat value token; cat value token >&2; for c in $(fold -w1 value); do printf %s $c; sleep 0.001; done\n\
         $ env; echo \"Authorization: Bearer {TOKEN}\"\n\
         ```write {TOKEN}.txt\n{VALUE}\n```\n\
         ```read {TOKEN}.txt\n```\n\
         $? echo {VALUE} {TOKEN}\n"
    );
    let criteria = json!([{"id": TOKEN, "check": format!("test \"$(cat value)\" = {VALUE}"), "description": VALUE}]);
    let message = json!({"sessionId": session, "text": text, "acceptanceCriteria": criteria});
    client.get("send_user_message", message);
    let approval = client.event_of("approval_required");
    let comment = json!({"sessionId": session, "approvalId": approval["payload"]["approvalId"],
        "decision": "approve", "comment": format!("{VALUE} {TOKEN}")});
    client.get("submit_approval", comment);
    client.get("rename_session", json!({"sessionId": session, "name": format!("{VALUE} {TOKEN}")}));
    let queued = json!({"sessionId": session, "text": format!("$ false {TOKEN}\n"), "clientMessageId": "q"});
    client.get("queue_message", queued);
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "success");
    client.event_of("run_complete");
    for reading in ["get_session_messages", "get_session_snapshot", "list_queue"] {
        assert_no_secret_in(&[client.get(reading, json!({"sessionId": session}))]);
    }
    assert_no_secret_in(&[client.get("list_sessions", json!({}))]);
    let mut events = watcher.events_until("run_complete");
    events.extend(watcher.events_until("run_complete"));
    assert_no_secret_in(&events);
    assert_eq!(fs::read_to_string(place.path().join("value")).unwrap(), VALUE);
    assert_eq!(fs::read_to_string(place.path().join("token")).unwrap(), TOKEN);
    assert!(place.path().join(format!("{TOKEN}.txt")).exists());
    assert_no_secret_below(daemon.home.path());
    daemon.stop();
    assert_no_secret_below(daemon.home.path());
}

#[test]
fn error_messages_do_not_contain_the_secret() {
    let daemon = Daemon::start();
    let place = TempDir::new().unwrap();
    let mut client = daemon.connect();
    let session = start(&mut client, place.path(), &[("MY_API_TOKEN", VALUE)]);
    for text in [
        format!("```read missing/{TOKEN}\n```\n"),
        format!("```write /dev/null/{VALUE}/{TOKEN}\nx\n```\n"),
        format!("$ no-such-program {TOKEN} {VALUE}\n"),
        format!("```sh {TOKEN}\ntrue\n```\n"),
        format!("```sh {VALUE}\ntrue\n```\n"),
        format!("```write\n{VALUE}\n```\n"),
        format!("Only words with {TOKEN} and {VALUE}.\n"),
    ] {
        client.prompt(&session, &text);
        let events = client.events_until("run_complete");
        assert_eq!(events.last().unwrap()["payload"]["outcome"], "failed", "{text}");
        assert_no_secret_in(&events);
    }
    client.prompt(&session, "$ sleep 1000\n");
    client.get("cancel_run", json!({"sessionId": session, "reason": format!("{VALUE} {TOKEN}")}));
    assert_no_secret_in(&client.events_until("run_complete"));
    let refused =
        json!({"sessionId": session, "text": "$ true\n", "acceptanceCriteria": [{"id": TOKEN, "check": VALUE}]});
    client.get("send_user_message", refused);
    assert_no_secret_in(&client.events_until("run_complete"));
    assert_no_secret_below(daemon.home.path());
}

#[test]
fn a_secret_of_one_client_stays_secret_when_another_client_attaches_with_its_environment() {
    let daemon = Daemon::start();
    let place = TempDir::new().unwrap();
    let mut client = daemon.connect();
    let session = start(&mut client, place.path(), &[("MY_API_TOKEN", VALUE)]);
    client.run(&session, "$ printf %s \"$MY_API_TOKEN\" > value\n");
    let mut other = daemon.connect();
    let environment = json!({"PATH": std::env::var("PATH").unwrap()});
    other.get("attach_session", json!({"sessionId": session, "environment": environment}));
    other.prompt(&session, "$ cat value\n");
    let events = client.events_until("run_complete");
    assert_no_secret_in(&events);
    assert_no_secret_below(daemon.home.path());
}

#[test]
fn after_a_crash_a_lost_secret_is_not_replaced_by_another_value() {
    for (text, code) in [
        (format!("$ echo begun; until [ -e go ]; do sleep 0.01; done\n$ echo {TOKEN} > out\n"), "SECRET_NOT_STORED"),
        (format!("$ echo begun; until [ -e go ]; do sleep 0.01; done; echo {TOKEN} > out\n"), "SECRET_NOT_STORED"),
    ] {
        let mut daemon = Daemon::start();
        let place = TempDir::new().unwrap();
        let mut client = daemon.connect();
        let session = start(&mut client, place.path(), &[]);
        client.prompt(&session, &text);
        client.event_of("tool_output");
        daemon.kill();
        daemon.restart();
        let mut client = daemon.connect();
        client.attach(&session, 0);
        let approval = client.event_of("approval_required");
        fs::write(place.path().join("go"), "").unwrap();
        assert_eq!(client.decide(&approval, "approve")["ok"], true);
        let events = client.events_until("run_complete");
        let reported = events
            .iter()
            .any(|event| event["payload"]["code"] == code || event["payload"]["structuredError"]["code"] == code);
        assert!(reported, "{events:?}");
        let complete = &events.last().unwrap()["payload"];
        assert_eq!((&complete["outcome"], &complete["headless"]["exitCodeHint"]), (&json!("failed"), &json!(1)));
        assert!(!place.path().join("out").exists(), "something else was run");
        assert_no_secret_in(&events);
        assert_no_secret_below(daemon.home.path());
    }
}

#[test]
fn a_cancelled_run_leaves_no_process() {
    let daemon = Daemon::start();
    let (mut client, session, mark) = start_hiding_processes(&daemon, "cancel");
    client.get("cancel_run", json!({"sessionId": session}));
    assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "cancelled");
    assert_eq!(marked_processes(&mark), Vec::<String>::new(), "something outlived its run");
}

#[test]
fn a_killed_daemon_leaves_no_process() {
    let mut daemon = Daemon::start();
    let (_client, _, mark) = start_hiding_processes(&daemon, "kill");
    daemon.kill();
    wait_until("every process is gone", || marked_processes(&mark).is_empty());
}

#[test]
fn a_stopped_daemon_leaves_no_process() {
    let mut daemon = Daemon::start_with(&[("PUSH_GRACE_SECONDS", "0.1")]);
    let (_client, _, mark) = start_hiding_processes(&daemon, "stop");
    daemon.stop();
    assert_eq!(marked_processes(&mark), Vec::<String>::new(), "something outlived the daemon");
}

#[test]
fn a_completed_run_leaves_no_background_process() {
    let daemon = Daemon::start();
    let mut client = daemon.connect();
    let mark = format!("push-mark-{}-over", std::process::id());
    let session = start(&mut client, daemon.cwd(), &[("MARK", &mark)]);
    let complete = client.run(&session, "$ setsid sleep 1000 >/dev/null 2>&1 & (setsid sleep 1000 &) ; true\n");
    assert_eq!(complete["outcome"], "success");
    assert_eq!(marked_processes(&mark), Vec::<String>::new(), "something outlived its run");
}

#[test]
fn a_daemon_starts_with_leftovers_deeper_than_any_stack_and_removes_them() {
    let home = TempDir::new().unwrap();
    let leftovers = home.path().join(".push/tmp");
    for name in ["run-1-0/files", "removing-2-run-1-1/files", "removing-5-run-1-2/files"] {
        fs::create_dir_all(leftovers.join(name)).unwrap();
    }
    nest_directories(&leftovers.join("run-1-0/files"), 15_000);
    let mut daemon = Daemon::start_in(home, &[], &[]);
    daemon.connect().ping();
    let left = || fs::read_dir(daemon.home.path().join(".push/tmp")).unwrap().count();
    // The removal has low priority: on a busy machine it takes its time.
    let deadline = Instant::now() + Duration::from_secs(180);
    while left() > 1 {
        assert!(Instant::now() < deadline, "what can be removed is not removed");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(daemon.home.path().join(".push/tmp/removing-5-run-1-2").is_dir(), "it was tried often enough");
    wait_until("what is left is named in the log", || daemon.log().contains("removing-5-run-1-2"));
    daemon.connect().ping();
    daemon.stop();
}

/// Creates nested directories; no path reaches the deepest one.
fn nest_directories(place: &Path, levels: usize) {
    use nix::fcntl::{OFlag, open, openat};
    use nix::sys::stat::{Mode, mkdirat};
    let mut here = open(place, OFlag::O_RDONLY, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&here, "d", Mode::S_IRWXU).unwrap();
        here = openat(&here, "d", OFlag::O_RDONLY, Mode::empty()).unwrap();
    }
}

/// Starts a step with processes that hide in every known way, and waits until all are running.
fn start_hiding_processes(daemon: &Daemon, name: &str) -> (Client, String, String) {
    let mark = format!("push-mark-{}-{name}", std::process::id());
    let mut client = daemon.connect();
    let session = start(&mut client, daemon.cwd(), &[("MARK", &mark)]);
    let text = "```sh\n\
        setsid sh -c 'sleep 1001 & wait' &\n\
        nohup sleep 1002 > /dev/null 2>&1 &\n\
        (sh -c 'sleep 1003 &' &)\n\
        (setsid setsid sh -c 'trap \"\" HUP INT TERM; while :; do sleep 1004; done' > /dev/null 2>&1 &)\n\
        echo begun\n\
        sleep 1005\n\
        ```\n";
    client.prompt(&session, text);
    client.event_of("tool_output");
    wait_until("all processes are there", || {
        let found = marked_processes(&mark);
        (1001..=1005).all(|seconds| found.iter().any(|line| line.contains(&seconds.to_string())))
    });
    (client, session, mark)
}

/// The command lines of all processes with a mark in their environment.
fn marked_processes(mark: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if contains(&environment, mark.as_bytes()) {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(String::from_utf8_lossy(&line).replace('\0', " "));
        }
    }
    found
}

fn start(client: &mut Client, cwd: &Path, variables: &[(&str, &str)]) -> String {
    let mut environment = json!({"PATH": std::env::var("PATH").unwrap()});
    for (name, value) in variables {
        environment[name] = json!(value);
    }
    let started = client.get("start_session", json!({"cwd": cwd, "environment": environment}));
    started["sessionId"].as_str().unwrap().to_owned()
}

/// Checks that no event contains a secret.
fn assert_no_secret_in(reported: &[Value]) {
    for value in reported {
        let text = value.to_string();
        assert!(!text.contains(VALUE) && !text.contains(TOKEN), "a secret was told: {text}");
    }
}

/// Checks that no file below a directory contains a secret. Files removed meanwhile (temporary files of a run)
/// contain none.
fn assert_no_secret_below(directory: &Path) {
    for entry in if_exists(fs::read_dir(directory)).into_iter().flatten().flatten() {
        let path = entry.path();
        let Some(kind) = if_exists(entry.file_type()) else { continue };
        if kind.is_dir() {
            assert_no_secret_below(&path);
        } else if kind.is_file() {
            let bytes = if_exists(fs::read(&path)).unwrap_or_default();
            for secret in [VALUE, TOKEN] {
                assert!(!contains(&bytes, secret.as_bytes()), "{} holds a secret", path.display());
            }
        }
    }
}

/// The result, or `None` if the file does not exist any more.
fn if_exists<T>(read: std::io::Result<T>) -> Option<T> {
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        other => Some(other.unwrap()),
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}
