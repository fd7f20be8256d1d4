//! Clients of a daemon that crashes.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::home::{Home, is_alive, until};

#[test]
fn a_watching_client_sees_everything_once_and_is_asked_about_the_step() {
    let home = Home::new();
    let message =
        "Before.\n\n$ echo first\n$ echo $$ >> steps; echo begun; test -e go || sleep 1000; echo again\n";
    let mut run = home.start(&["run", "--jsonl", message]);
    run.until_line("begun\\n\"");
    let step: i32 = home.read("steps").trim().parse().unwrap();
    let first = home.daemon_pid();
    home.kill_daemon();
    until("the step to be gone with its daemon", || !is_alive(step));
    run.until_line("approval_required");
    assert_ne!(home.daemon_pid(), first);
    assert_eq!(home.read("steps").lines().count(), 1, "the step was run again by itself");
    home.write("go", "");
    home.ok(&["approve", "--choice", "run_again"]);
    let said = run.said();
    assert_eq!(said.code, Some(0), "{said:?}");
    let events = said.events();
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
    let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((count("user_message"), count("run_recovered"), count("approval_required")), (1, 1, 1));
    assert_eq!(said.out.matches("\"first\\n\"").count(), 2, "in its output and in its result");
    assert_eq!(home.read("steps").lines().count(), 2);
}

#[test]
fn people_are_told_and_may_skip_the_step() {
    let home = Home::new();
    let mut run = home.start(&["run", "$ echo begun; sleep 1000\n$ echo after"]);
    run.until_line("begun");
    home.kill_daemon();
    run.until_error_line("the daemon was restarted");
    home.until_asked();
    assert!(home.ok(&["approvals"]).contains("run_again"));
    home.ok(&["approve", "--choice", "skip"]);
    let said = run.said();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.out, "begun\nafter\n", "{said:?}");
}

#[test]
fn a_headless_client_leaves_an_unknown_step_alone() {
    let home = Home::new();
    let mut run = home.start(&["run", "--headless", "$ echo x >> ran; echo begun; sleep 1000"]);
    run.until_line("begun");
    home.kill_daemon();
    let said = run.said();
    assert_eq!(said.code, Some(3), "{said:?}");
    assert_eq!(home.read("ran"), "x\n");
}

#[test]
fn what_waited_for_an_approval_still_waits() {
    let home = Home::new();
    let run = home.start(&["run", "$? echo went"]);
    let id = home.until_asked();
    home.kill_daemon();
    assert_eq!(home.until_asked(), id);
    home.ok(&["approve", &id]);
    let said = run.said();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.out, "went\n", "{said:?}");
}

#[test]
fn waiting_and_logs_survive_too() {
    let home = Home::new();
    let session = home.detached("$ echo one > one; until test -e go; do sleep 0.01; done");
    home.until_written("one", "one");
    let wait = home.start(&["wait", "--json", &session]);
    let mut log = home.start(&["log", "--follow", &session]);
    log.until_line("$ echo one");
    home.kill_daemon();
    home.until_asked();
    home.write("go", "");
    home.ok(&["approve", "--choice", "run_again"]);
    let said = wait.said();
    assert_eq!((said.code, said.json()["outcome"].as_str()), (Some(0), Some("success")));
    log.until_line("success");
}

#[test]
fn an_idle_watcher_does_not_bring_a_stopped_daemon_back() {
    let home = Home::new();
    home.ok(&["run", "$ true"]);
    let mut watcher = home.start(&["attach", "--read-only"]);
    watcher.until_line("success");
    home.ok(&["daemon", "stop"]);
    watcher.until_error_line("pushd was stopped; waiting for its next start");
    assert_eq!(home.push(&["daemon", "status"]).code, Some(69));
    kill(Pid::from_raw(watcher.pid()), Signal::SIGINT).unwrap();
    assert_eq!(watcher.said().code, Some(0), "somebody who waits can leave");
}
