//! The life cycle of the daemon, through its subcommands and files.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getsid};
use serde_json::{Value, json};

use crate::support::home::{Home, Running, is_alive, wait_until};

#[test]
fn the_daemon_is_started_inspected_and_stopped() {
    let home = Home::new();
    assert_eq!(home.push(&["daemon", "status"]).code, Some(69));
    let absent = home.push(&["daemon", "status", "--json"]);
    assert_eq!((absent.code, absent.json()), (Some(69), json!({"running": false})));
    assert!(!home.push_path("").exists(), "looking has left something behind");
    home.ok(&["daemon", "start"]);
    let pid = home.daemon_pid();
    home.ok(&["daemon", "start"]);
    assert_eq!(home.daemon_pid(), pid);
    let out = home.ok(&["daemon", "status"]);
    assert!(out.contains(&format!("(pid {pid})")), "{out}");
    home.ok(&["daemon", "restart"]);
    assert!(!is_alive(pid) && home.daemon_pid() != pid);
    home.ok(&["daemon", "stop"]);
    home.ok(&["daemon", "stop"]);
    assert_eq!(home.push(&["daemon", "status"]).code, Some(69));
    assert!(!home.push_path("run/pushd.sock").exists());
}

#[test]
fn the_json_status_has_exactly_these_fields() {
    let home = Home::new();
    home.ok(&["run", "$ true"]);
    let status = home.json(&["daemon", "status", "--json"]);
    let mut names: Vec<&str> = status.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "connections",
            "events",
            "http",
            "journalBytes",
            "memoryBytes",
            "pi",
            "pid",
            "pvp",
            "running",
            "sessions",
            "socket",
            "uptimeSeconds",
            "version"
        ]
    );
    assert_eq!((&status["running"], &status["sessions"]), (&json!(true), &json!(1)));
    assert_eq!(status["pid"], home.daemon_pid());
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["socket"].as_str().map(Path::new), Some(home.push_path("run/pushd.sock").as_path()));
    for name in ["http", "pi", "pvp"] {
        assert_eq!(status[name], Value::Null);
    }
    for name in ["events", "journalBytes", "memoryBytes", "connections"] {
        assert!(status[name].as_u64().unwrap() > 0, "{name}");
    }
}

#[test]
fn a_hundred_clients_at_once_start_one_daemon() {
    let home = Home::new();
    let clients: Vec<Running> = (0..100).map(|_| home.start(&["sessions"])).collect();
    for client in clients {
        let output = client.wait_for_output();
        let expected = (Some(0), "", "no sessions; `push run MESSAGE` starts one\n");
        assert_eq!((output.code, output.out.as_str(), output.err.as_str()), expected, "{output:?}");
    }
    let pid = home.daemon_pid();
    wait_until("the losers to be gone", || daemons_of(&home) == [pid]);
    let log = home.read(".push/logs/pushd.log");
    assert_eq!(log.matches("daemon ready").count(), 1, "{log}");
}

#[test]
fn the_daemon_inherits_nothing_from_the_client_that_started_it() {
    let home = Home::new();
    let (theirs, _ours) = std::io::pipe().unwrap();
    fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let number = theirs.as_raw_fd();
    let client = home.start(&["daemon", "start"]);
    let client_session = getsid(None).unwrap();
    assert_eq!(client.wait_for_output().code, Some(0));
    let pid = home.daemon_pid();
    let proc = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).unwrap();
    assert_eq!(proc("cwd"), Path::new("/"));
    assert_eq!(getsid(Some(Pid::from_raw(pid))).unwrap(), Pid::from_raw(pid));
    assert_ne!(client_session, Pid::from_raw(pid));
    for standard in ["fd/0", "fd/1", "fd/2"] {
        assert_eq!(proc(standard), Path::new("/dev/null"));
    }
    let inherited = fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        let target = fs::read_link(entry.unwrap().path()).unwrap_or_default();
        assert_ne!(target, inherited, "it holds a pipe of its starter");
    }
}

#[test]
fn files_of_the_daemon_are_private_to_its_owner() {
    let home = Home::new();
    home.ok(&["run", "$ true"]);
    for name in ["", "run", "state", "logs"] {
        assert_eq!(mode(&home.push_path(name)), 0o700, "{name}");
    }
    assert_eq!(mode(&home.push_path("run/pushd.sock")), 0o600);
    for name in ["run", "state", "logs"] {
        for entry in fs::read_dir(home.push_path(name)).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
}

#[test]
fn the_log_contains_no_text_of_a_message() {
    for level in ["info", "debug"] {
        let home = Home::with(&[("PUSH_LOG", level)]);
        home.ok(&["run", "--name", "pelican", "Flamingo.\n\n$ echo $((700 + 77))heron\n$? true # ostrich", "--yes"]);
        home.push(&["run", "--session", "@last", "Flamingo."]);
        home.push(&["send", "nonsense-stork", "x"]);
        home.ok(&["daemon", "stop"]);
        let log: String = fs::read_dir(home.push_path("logs"))
            .unwrap()
            .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect();
        assert!(log.contains("daemon ready") && log.contains("run ended"), "{log}");
        for word in ["lamingo", "heron", "ostrich", "pelican", "stork"] {
            assert!(!log.contains(word), "{level}: {word} in {log}");
        }
    }
}

#[test]
fn the_log_is_shown_without_a_running_daemon() {
    let home = Home::new();
    let output = home.push(&["daemon", "logs"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    home.ok(&["run", "$ true"]);
    home.ok(&["daemon", "stop"]);
    let out = home.ok(&["daemon", "logs"]);
    assert!(out.contains("daemon ready") && out.contains("daemon ended"), "{out}");
    assert_eq!(home.ok(&["daemon", "logs", "-n", "1"]).lines().count(), 1);
    assert!(home.daemon().is_none());
}

#[test]
fn stopping_lets_a_run_finish() {
    let home = Home::new();
    let mut run = home.start(&["run", "$ echo begun; until test -e go; do sleep 0.01; done; echo ended"]);
    run.wait_for_line("begun");
    let stop = home.start(&["daemon", "stop"]);
    wait_until("a daemon that takes nothing new", || home.push(&["run", "$ true"]).code == Some(1));
    home.write("go", "");
    let output = run.wait_for_output();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.out, "begun\nended\n", "{output:?}");
    assert_eq!(stop.wait_for_output().code, Some(0));
    assert_eq!(home.push(&["daemon", "status"]).code, Some(69));
}

#[test]
fn after_the_grace_period_a_step_ends_as_stopped_without_a_decision() {
    for words in [&["daemon", "stop", "--grace", "0.2"][..], &["daemon", "stop", "--now"]] {
        let home = Home::new();
        let session = home.start_detached("$ echo $$ > step; sleep 1000\n$ touch later");
        home.wait_for_text("step", "\n");
        home.ok(words);
        let step: i32 = home.read("step").trim().parse().unwrap();
        assert!(!is_alive(step), "{words:?}");
        // Every reply is right, including the first one.
        let sessions = home.json(&["sessions", "--json"]);
        assert_eq!(sessions["sessions"][0]["state"], "failed", "{words:?}: {sessions}");
        assert_eq!(home.push(&["wait", &session]).code, Some(1), "{words:?}");
        assert_eq!(home.json(&["approvals", "--json"])["approvals"], json!([]));
        let log = home.ok(&["log", &session]);
        assert!(log.contains("stopped: the daemon was shutting down and ended the call"), "{log}");
        assert!(log.contains("failed (stopped): step 1 of 2 was ended when the daemon was stopped"), "{log}");
        assert!(
            !log.contains("result of the interrupted step is unknown") && !home.path().join("later").exists(),
            "{log}"
        );
    }
}

#[test]
fn after_a_crash_the_first_list_says_that_an_interrupted_step_is_asked_about() {
    let home = Home::new();
    let session = home.start_detached("$ echo $$ > step; sleep 1000\n");
    home.wait_for_text("step", "\n");
    home.kill_daemon();
    let sessions = home.json(&["sessions", "--json"]);
    assert_eq!(sessions["sessions"][0]["state"], "awaiting_approval", "{sessions}");
    home.ok(&["cancel", &session]);
}

#[test]
fn a_client_that_waits_for_the_next_start_says_at_a_signal_that_nothing_runs() {
    let home = Home::new();
    let (mut run, mut detached) = (home.start(&["run", "$? true"]), home.start(&["run", "$? true"]));
    run.wait_for_error_line("Approve command");
    detached.wait_for_error_line("Approve command");
    let mut attached = home.start(&["attach", "@last"]);
    attached.wait_for_line("Approve command");
    home.ok(&["daemon", "stop"]);
    let clients = [
        (run, Signal::SIGINT, 69),
        (attached, Signal::SIGINT, 69),
        // Without `--headless` the client detaches.
        (detached, Signal::SIGTERM, 0),
    ];
    for (mut client, signal, code) in clients {
        client.wait_for_error_line("pushd was stopped; waiting for its next start (`push daemon start`)");
        client.signal(signal);
        let output = client.wait_for_output();
        assert_eq!(output.code, Some(code), "{output:?}");
        assert!(output.err.contains("no step of the run is running"), "{output:?}");
        assert!(!output.err.contains("may continue"), "{output:?}");
    }
}

#[test]
fn a_daemon_that_was_stopped_stays_stopped_and_attached_clients_wait_for_the_next_start() {
    let home = Home::new();
    let mut run = home.start(&["run", "$? echo begun"]);
    home.wait_for_approval();
    let idle = home.start_detached("$ true");
    home.push(&["wait", &idle]);
    let mut attached = home.start(&["attach", &idle, "--read-only"]);
    attached.wait_for_line("success: 1 step done");
    home.ok(&["daemon", "stop", "--now"]);
    for client in [&mut run, &mut attached] {
        client.wait_for_error_line("pushd was stopped; waiting for its next start (`push daemon start`)");
    }
    assert_eq!(home.push(&["daemon", "status"]).code, Some(69), "nobody has started it again");
    home.ok(&["daemon", "start"]);
    home.ok(&["approve", &home.wait_for_approval()]);
    assert_eq!(run.wait_for_output().code, Some(0));
    home.ok(&["rename", &idle, "later"]);
    home.ok(&["run", "--session", "later", "$ echo again"]);
    attached.wait_for_line("  again");
    kill(Pid::from_raw(attached.pid()), Signal::SIGINT).unwrap();
    assert_eq!(attached.wait_for_output().code, Some(0));
}

#[test]
fn a_client_whose_run_the_stopping_daemon_ended_reports_the_end() {
    let home = Home::new();
    let mut run = home.start(&["run", "$ echo begun; sleep 1000"]);
    run.wait_for_line("begun");
    home.ok(&["daemon", "stop", "--now"]);
    // The end reaches a client that is slow at the next start.
    home.ok(&["daemon", "start"]);
    let output = run.wait_for_output();
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("failed (stopped)"), "{output:?}");
}

#[test]
fn the_daemon_runs_in_the_foreground_under_both_names_until_stopped() {
    for (program, words) in [(env!("CARGO_BIN_EXE_push"), &["daemon", "run"][..]), (env!("CARGO_BIN_EXE_pushd"), &[])] {
        let home = Home::new();
        let daemon = Running::start(home.program(program, words));
        wait_until("a daemon", || home.push(&["daemon", "status"]).code == Some(0));
        assert_eq!(home.daemon_pid(), daemon.pid());
        let second = Running::start(home.program(program, words)).wait_for_output();
        assert_eq!(second.code, Some(1), "{second:?}");
        assert!(second.err.contains("another pushd"), "{second:?}");
        kill(Pid::from_raw(daemon.pid()), Signal::SIGTERM).unwrap();
        assert_eq!(daemon.wait_for_output().code, Some(0));
    }
}

#[test]
fn another_daemon_with_the_same_state_is_named() {
    let home = Home::new();
    home.ok(&["daemon", "start"]);
    let elsewhere = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o700)).tempdir().unwrap();
    let mut command = home.command(&["sessions"]);
    command.env("PUSHD_SOCKET", elsewhere.path().join("other.sock"));
    let output = Running::start(command).wait_for_output();
    assert_eq!(output.code, Some(69), "{output:?}");
    assert!(output.err.contains("another daemon uses"), "{output:?}");
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).map(|facts| facts.permissions().mode() & 0o777).unwrap_or_default()
}

/// The processes of a home that are daemons.
fn daemons_of(home: &Home) -> Vec<i32> {
    let variable = format!("HOME={}", home.path().display());
    let is_ours = |pid: &i32| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let surroundings = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap_or_default();
        words.contains("daemon\0run") && surroundings.split('\0').any(|entry| entry == variable)
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_ours).collect()
}
