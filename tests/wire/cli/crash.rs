//! Clients of a daemon that crashes.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::home::{Home, is_alive, wait_until};

#[test]
fn an_attached_client_sees_every_event_once_and_is_asked_about_the_step() {
    let home = Home::new();
    let message = "Before.\n\n$ echo first\n$ echo $$ >> steps; echo begun; test -e go || sleep 1000; echo again\n";
    let mut run = home.start(&["run", "--jsonl", message]);
    run.wait_for_line("begun\\n\"");
    let step: i32 = home.read("steps").trim().parse().unwrap();
    let first = home.daemon_pid();
    home.kill_daemon();
    wait_until("the step to be gone with its daemon", || !is_alive(step));
    run.wait_for_line("approval_required");
    assert_ne!(home.daemon_pid(), first);
    assert_eq!(home.read("steps").lines().count(), 1, "the step was run again by itself");
    home.write("go", "");
    home.ok(&["approve", "--choice", "run_again"]);
    let output = run.wait_for_output();
    assert_eq!(output.code, Some(0), "{output:?}");
    let events = output.events();
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
    let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((count("user_message"), count("run_recovered"), count("approval_required")), (1, 1, 1));
    assert_eq!(output.out.matches("\"first\\n\"").count(), 2, "in its output and in its result");
    assert_eq!(home.read("steps").lines().count(), 2);
}

#[test]
fn a_restart_is_reported_and_the_step_can_be_skipped() {
    let home = Home::new();
    let mut run = home.start(&["run", "$ echo begun; sleep 1000\n$ echo after"]);
    run.wait_for_line("begun");
    home.kill_daemon();
    run.wait_for_error_line("the daemon was restarted");
    home.wait_for_approval();
    assert!(home.ok(&["approvals"]).contains("run_again"));
    home.ok(&["approve", "--choice", "skip"]);
    let output = run.wait_for_output();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.out, "begun\nafter\n", "{output:?}");
}

#[test]
fn a_headless_client_leaves_an_unknown_step_alone() {
    let home = Home::new();
    let mut run = home.start(&["run", "--headless", "$ echo x >> ran; echo begun; sleep 1000"]);
    run.wait_for_line("begun");
    home.kill_daemon();
    let output = run.wait_for_output();
    assert_eq!(output.code, Some(3), "{output:?}");
    assert_eq!(home.read("ran"), "x\n");
}

#[test]
fn a_pending_approval_survives_a_crash() {
    let home = Home::new();
    let run = home.start(&["run", "$? echo went"]);
    let id = home.wait_for_approval();
    home.kill_daemon();
    assert_eq!(home.wait_for_approval(), id);
    home.ok(&["approve", &id]);
    let output = run.wait_for_output();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.out, "went\n", "{output:?}");
}

#[test]
fn wait_and_log_survive_a_crash() {
    let home = Home::new();
    let session = home.start_detached("$ echo one > one; until test -e go; do sleep 0.01; done");
    home.wait_for_text("one", "one");
    let wait = home.start(&["wait", "--json", &session]);
    let mut log = home.start(&["log", "--follow", &session]);
    log.wait_for_line("$ echo one");
    home.kill_daemon();
    home.wait_for_approval();
    home.write("go", "");
    home.ok(&["approve", "--choice", "run_again"]);
    let output = wait.wait_for_output();
    assert_eq!((output.code, output.json()["outcome"].as_str()), (Some(0), Some("success")));
    log.wait_for_line("success");
}

#[test]
fn an_idle_attached_client_does_not_restart_a_stopped_daemon() {
    let home = Home::new();
    home.ok(&["run", "$ true"]);
    let mut watcher = home.start(&["attach", "--read-only"]);
    watcher.wait_for_line("success");
    home.ok(&["daemon", "stop"]);
    watcher.wait_for_error_line("pushd was stopped; waiting for its next start");
    assert_eq!(home.push(&["daemon", "status"]).code, Some(69));
    kill(Pid::from_raw(watcher.pid()), Signal::SIGINT).unwrap();
    assert_eq!(watcher.wait_for_output().code, Some(0), "somebody who waits can leave");
}
