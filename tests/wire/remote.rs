//! `push --host` and `push stdio`: a client here, and the daemon of another machine behind a real ssh.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod machine;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use self::machine::{BOX, Machines, WITHOUT_KEY, WITHOUT_PUSH, executable};
use crate::support::home::{Home, is_alive, wait_until};
use crate::support::skip::skip;

const MISSING: &str = "another machine: sshd is missing";

#[test]
fn a_run_on_another_machine_has_the_environment_and_the_directory_of_that_machine() {
    let Some(machines) = Machines::new(&[("LOCAL_VALUE", "hunter2"), ("PUSH_PROVIDER", "none")]) else {
        return skip(MISSING);
    };
    let far = machines.far.path().canonicalize().unwrap();
    std::fs::create_dir(far.join("project")).unwrap();
    let message = "$ pwd; echo \"$HOME\"; env | grep -e LOCAL_VALUE -e hunter2 || echo absent";
    let out = machines.ok(&["run", "--headless", message]);
    assert_eq!(out, format!("{0}\n{0}\nabsent\n", far.display()));
    let out = machines.ok(&["run", "--headless", "--cwd", "project", "$ pwd"]);
    assert_eq!(out, format!("{}/project\n", far.display()));
    assert!(!machines.near.push_path("").exists(), "nothing is stored here");
    let sessions = machines.ok(&["sessions", "--json"]);
    let sessions: Value = serde_json::from_str(&sessions).unwrap();
    assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(2));
    assert!(machines.ok(&["show", "@last"]).contains("project"));
    let listed = machines.near.push_with(&["sessions", "--json"], &[("PUSH_HOST", BOX)], "");
    assert_eq!(listed.json(), sessions);
    let pi = "{\"id\":\"1\",\"type\":\"list_sessions\"}\n";
    let pi = machines.near.push_with_input(&["--host", BOX, "pi", "--stdio"], pi);
    assert_eq!(pi.code, Some(0), "{pi:?}");
    assert_eq!(pi.out.matches("\"sessionId\"").count(), 2, "{pi:?}");
    machines.ok(&["delete", "--yes", "@last"]);
    let refused = machines.near.push(&["--host", BOX, "run", "--worktree", "$ true"]);
    assert_eq!(refused.code, Some(64), "{refused:?}");
}

#[test]
fn exit_codes_are_those_of_the_other_machine() {
    let Some(machines) = Machines::new(&[]) else { return skip(MISSING) };
    let push = |words: &[&str]| machines.near.push(&[&["--host", BOX], words].concat());
    assert_eq!(push(&["daemon", "status", "--json"]).code, Some(69), "looking starts no daemon");
    assert_eq!(push(&["run", "--headless", "$ exit 7"]).code, Some(1));
    assert_eq!(push(&["run", "--headless", "?$ true"]).code, Some(3));
    assert_eq!(push(&["run", "--headless", "--accept", "false", "$ true"]).code, Some(4));
    let pid = machines.far.daemon_pid();
    let status = push(&["daemon", "status", "--json"]);
    assert_eq!((status.code, &status.json()["pid"]), (Some(0), &pid.into()));
    assert_eq!(push(&["token", "new", "--name", "it's a name"]).code, Some(0));
    assert!(push(&["token", "list"]).out.contains("it's a name"), "words are quoted for the shell there");
    assert_eq!(
        push(&["config", "check", "/no/such/file"]).code,
        machines.far.push(&["config", "check", "/no/such/file"]).code
    );
    assert_eq!(push(&["daemon", "run"]).code, Some(64));
    assert_eq!(push(&["stdio"]).code, Some(64));
    assert_eq!(push(&["daemon", "stop"]).code, Some(0));
    assert!(!is_alive(pid));
    assert!(machines.ssh_processes().is_empty());
}

#[test]
fn another_client_decides_and_attaches() {
    let Some(machines) = Machines::new(&[]) else { return skip(MISSING) };
    machines.ok(&["run", "--detach", "--approve", "ask", "--name", "nightly", "?$ echo released"]);
    let mut attached = machines.start(&["attach", "nightly"]);
    attached.wait_for_line("released");
    machines.ok(&["approve", "--comment", "looks good"]);
    machines.ok(&["wait", "nightly"]);
    let attached = attached.wait_for_output();
    assert_eq!(attached.code, Some(0), "{attached:?}");
    assert!(machines.ok(&["log", "nightly"]).contains("looks good"));
}

#[test]
fn a_client_whose_ssh_is_killed_continues_without_a_lost_or_repeated_event() {
    let Some(machines) = Machines::new(&[]) else { return skip(MISSING) };
    let steps = "$ i=0; while [ $i -lt 60 ]; do echo \"line $i\"; i=$((i+1)); sleep 0.1; done; echo over";
    let mut run = machines.start(&["run", "--headless", "--jsonl", steps]);
    for line in ["line 3", "line 15", "line 30"] {
        run.wait_for_line(line);
        let processes = machines.ssh_processes();
        assert_eq!(processes.len(), 1);
        for pid in processes {
            kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
            wait_until("the ssh process to be reaped", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
        }
    }
    let run = run.wait_for_output();
    assert_eq!(run.code, Some(0), "{run:?}");
    let events = |text: &str| -> Vec<Value> { text.lines().map(|line| serde_json::from_str(line).unwrap()).collect() };
    let received = events(&run.out);
    let seqs: Vec<u64> = received.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    let all: Vec<u64> = (seqs[0]..=*seqs.last().unwrap()).collect();
    assert_eq!(seqs, all, "every event once, in order");
    assert!(run.out.contains("over"));
    wait_until("the last ssh process to end", || machines.ssh_processes().is_empty());
}

#[test]
fn a_client_waits_for_a_daemon_that_was_stopped_there() {
    let Some(machines) = Machines::new(&[]) else { return skip(MISSING) };
    machines.ok(&["run", "--headless", "--name", "first", "$ echo one"]);
    let mut log = machines.start(&["log", "first", "--jsonl", "--follow"]);
    log.wait_for_line("run_complete");
    machines.ok(&["daemon", "stop"]);
    log.wait_for_error_line("was stopped; waiting");
    assert_eq!(machines.far.daemon(), None, "the client starts none");
    machines.ok(&["daemon", "start"]);
    machines.ok(&["send", "first", "$ echo two"]);
    log.wait_for_line("two");
}

#[test]
fn what_ssh_reports_is_shown_and_a_refusal_is_final() {
    let Some(machines) = Machines::new(&[]) else { return skip(MISSING) };
    let denied = machines.near.push(&["--host", WITHOUT_KEY, "sessions"]);
    assert_eq!(denied.code, Some(69), "{denied:?}");
    assert!(denied.err.contains("Permission denied"), "{denied:?}");
    let missing = machines.near.push(&["--host", WITHOUT_PUSH, "sessions"]);
    assert_eq!(missing.code, Some(69), "{missing:?}");
    assert!(missing.err.contains("found no program `push`"), "{missing:?}");
    let missing = machines.near.push(&["--host", WITHOUT_PUSH, "doctor"]);
    assert_eq!(missing.code, Some(69), "{missing:?}");
    assert!(missing.err.contains("found no program `push`"), "{missing:?}");
    // Start-up files that print something break every protocol over ssh.
    machines.far.write(".bashrc", "echo welcome");
    machines.far.write(".zshenv", "echo welcome");
    let noisy = machines.near.push(&["--host", BOX, "sessions"]);
    let prints = noisy.err.contains("not the Push protocol");
    assert!(prints || noisy.code == Some(0), "{noisy:?}");
}

#[test]
fn an_address_that_could_be_an_option_is_refused_before_ssh_is_started() {
    let files = tempfile::TempDir::new().unwrap();
    let started = files.path().join("started");
    let program = executable(files.path(), "ssh", &format!("touch {}", started.display()));
    let home = Home::with(&[("PUSH_SSH", &program.display().to_string())]);
    for address in ["ssh://-oProxyCommand=id", "ssh://-l@box", "ssh://", "ssh://a b", "ssh://a\nb", "box"] {
        let refused = home.push(&["--host", address, "sessions"]);
        assert_eq!(refused.code, Some(64), "{address:?}: {refused:?}");
        let refused = home.push_with(&["sessions"], &[("PUSH_HOST", address)], "");
        assert_eq!(refused.code, Some(64), "{address:?}: {refused:?}");
        assert!(refused.err.contains("PUSH_HOST"), "{refused:?}");
    }
    assert!(!started.exists());
    // A program that is none: the error names it.
    let absent = home.push_with(&["--host", BOX, "sessions"], &[("PUSH_SSH", "/no/such/ssh")], "");
    assert_eq!(absent.code, Some(69), "{absent:?}");
    assert!(absent.err.contains("/no/such/ssh"), "{absent:?}");
}

#[test]
fn the_protocol_is_copied_between_the_standard_streams_and_the_daemon() {
    let home = Home::new();
    let ping =
        "{\"v\":\"push.runtime.v1\",\"kind\":\"request\",\"requestId\":\"1\",\"type\":\"ping\",\"payload\":{}}\n";
    let stopped = home.push_with_input(&["stdio", "--resume"], ping);
    assert_eq!((stopped.code, stopped.out.as_str()), (Some(75), ""), "{stopped:?}");
    let output = home.push_with_input(&["stdio"], ping);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.json()["payload"]["pong"], true);
    // A daemon that crashed is started again.
    home.kill_daemon();
    let output = home.push_with_input(&["stdio", "--resume"], ping);
    assert_eq!(output.code, Some(0), "{output:?}");
    home.ok(&["daemon", "stop"]);
    assert_eq!(home.push_with_input(&["stdio", "--resume"], ping).code, Some(75));
    // The variable of another machine does not apply here.
    let output = home.push_with(&["stdio"], &[("PUSH_HOST", BOX), ("PUSH_SSH", "/no/such/ssh")], ping);
    assert_eq!(output.code, Some(0), "{output:?}");
}
