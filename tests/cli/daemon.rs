//! The life cycle of the daemon, through its subcommands and files.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getsid};
use serde_json::{Value, json};

use super::home::{Home, Running, is_alive, until};

#[test]
fn it_is_started_looked_at_and_stopped() {
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
fn its_status_for_programs_has_these_fields_and_no_others() {
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
        let said = client.said();
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", ""), "{said:?}");
    }
    let pid = home.daemon_pid();
    until("the losers to be gone", || daemons_of(&home) == [pid]);
    let log = home.read(".push/logs/pushd.log");
    assert_eq!(log.matches("daemon ready").count(), 1, "{log}");
}

#[test]
fn it_keeps_nothing_of_the_client_that_started_it() {
    let home = Home::new();
    let (theirs, _ours) = std::io::pipe().unwrap();
    fcntl(&theirs, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let number = theirs.as_raw_fd();
    let client = home.start(&["daemon", "start"]);
    let client_session = getsid(None).unwrap();
    assert_eq!(client.said().code, Some(0));
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
fn what_it_keeps_is_for_its_owner_alone() {
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
fn its_log_has_no_word_of_a_message() {
    for level in ["info", "debug"] {
        let home = Home::with(&[("PUSH_LOG", level)]);
        home.ok(&[
            "run",
            "--name",
            "pelican",
            "Flamingo.\n\n$ echo $((700 + 77))heron\n$? true # ostrich",
            "--yes",
        ]);
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
fn its_log_is_shown_also_when_it_is_gone() {
    let home = Home::new();
    let said = home.push(&["daemon", "logs"]);
    assert_eq!(said.code, Some(1), "{said:?}");
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
    run.until_line("begun");
    let stop = home.start(&["daemon", "stop"]);
    until("a daemon that takes nothing new", || home.push(&["run", "$ true"]).code == Some(1));
    home.write("go", "");
    let said = run.said();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.out, "begun\nended\n", "{said:?}");
    assert_eq!(stop.said().code, Some(0));
    assert_eq!(home.push(&["daemon", "status"]).code, Some(69));
}

#[test]
fn after_the_grace_a_step_ends_as_stopped_and_nobody_is_asked_what_became_of_it() {
    for words in [&["daemon", "stop", "--grace", "0.2"][..], &["daemon", "stop", "--now"]] {
        let home = Home::new();
        let session = home.detached("$ echo $$ > step; sleep 1000\n$ touch later");
        home.until_written("step", "\n");
        home.ok(words);
        let step: i32 = home.read("step").trim().parse().unwrap();
        assert!(!is_alive(step), "{words:?}");
        // Every reply is right, including the first one.
        let sessions = home.json(&["sessions", "--json"]);
        assert_eq!(sessions["sessions"][0]["state"], "failed", "{words:?}: {sessions}");
        assert_eq!(home.push(&["wait", &session]).code, Some(1), "{words:?}");
        assert_eq!(home.json(&["approvals", "--json"])["approvals"], json!([]));
        let log = home.ok(&["log", &session]);
        assert!(log.contains("stopped: the daemon was told to stop, and ended it"), "{log}");
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
    let session = home.detached("$ echo $$ > step; sleep 1000\n");
    home.until_written("step", "\n");
    home.kill_daemon();
    let sessions = home.json(&["sessions", "--json"]);
    assert_eq!(sessions["sessions"][0]["state"], "awaiting_approval", "{sessions}");
    home.ok(&["cancel", &session]);
}

#[test]
fn a_client_that_waits_for_the_next_start_says_at_a_signal_that_nothing_runs() {
    let home = Home::new();
    let run = home.start(&["run", "$? true"]);
    home.until_asked();
    let (mut attached, mut detached) = (home.start(&["attach", "@last"]), home.start(&["attach", "@last"]));
    attached.until_line("Approve command");
    detached.until_line("Approve command");
    home.ok(&["daemon", "stop"]);
    let clients = [
        (run, Signal::SIGINT, 69),
        (attached, Signal::SIGINT, 69),
        // Without `--headless` it detaches.
        (detached, Signal::SIGTERM, 0),
    ];
    for (mut client, signal, code) in clients {
        client.until_error_line("pushd was stopped; waiting for its next start (`push daemon start`)");
        client.signal(signal);
        let said = client.said();
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(said.err.contains("no step of the run is running"), "{said:?}");
        assert!(!said.err.contains("may continue"), "{said:?}");
    }
}

#[test]
fn a_daemon_that_was_stopped_stays_stopped_and_attached_clients_wait_for_the_next_start() {
    let home = Home::new();
    let mut run = home.start(&["run", "$? echo begun"]);
    home.until_asked();
    let idle = home.detached("$ true");
    home.push(&["wait", &idle]);
    let mut attached = home.start(&["attach", &idle, "--read-only"]);
    attached.until_line("success: 1 step done");
    home.ok(&["daemon", "stop", "--now"]);
    for client in [&mut run, &mut attached] {
        client.until_error_line("pushd was stopped; waiting for its next start (`push daemon start`)");
    }
    assert_eq!(home.push(&["daemon", "status"]).code, Some(69), "nobody has started it again");
    home.ok(&["daemon", "start"]);
    home.ok(&["approve", &home.until_asked()]);
    assert_eq!(run.said().code, Some(0));
    home.ok(&["rename", &idle, "later"]);
    home.ok(&["run", "--session", "later", "$ echo again"]);
    attached.until_line("  again");
    kill(Pid::from_raw(attached.pid()), Signal::SIGINT).unwrap();
    assert_eq!(attached.said().code, Some(0));
}

#[test]
fn a_client_whose_run_the_stopping_daemon_ended_reports_the_end() {
    let home = Home::new();
    let mut run = home.start(&["run", "$ echo begun; sleep 1000"]);
    run.until_line("begun");
    home.ok(&["daemon", "stop", "--now"]);
    // The end reaches a client that is slow at the next start.
    home.ok(&["daemon", "start"]);
    let said = run.said();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("failed (stopped)"), "{said:?}");
}

#[test]
fn it_runs_in_the_foreground_under_both_names_until_told_to_stop() {
    for (program, words) in
        [(env!("CARGO_BIN_EXE_push"), &["daemon", "run"][..]), (env!("CARGO_BIN_EXE_pushd"), &[])]
    {
        let home = Home::new();
        let daemon = Running::start(home.program(program, words));
        until("a daemon", || home.push(&["daemon", "status"]).code == Some(0));
        assert_eq!(home.daemon_pid(), daemon.pid());
        let second = Running::start(home.program(program, words)).said();
        assert_eq!(second.code, Some(1), "{second:?}");
        assert!(second.err.contains("another pushd"), "{second:?}");
        kill(Pid::from_raw(daemon.pid()), Signal::SIGTERM).unwrap();
        assert_eq!(daemon.said().code, Some(0));
    }
}

#[test]
fn another_daemon_with_the_same_state_is_named() {
    let home = Home::new();
    home.ok(&["daemon", "start"]);
    let elsewhere =
        tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o700)).tempdir().unwrap();
    let mut command = home.command(&["sessions"]);
    command.env("PUSHD_SOCKET", elsewhere.path().join("other.sock"));
    let said = Running::start(command).said();
    assert_eq!(said.code, Some(69), "{said:?}");
    assert!(said.err.contains("another daemon uses"), "{said:?}");
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
