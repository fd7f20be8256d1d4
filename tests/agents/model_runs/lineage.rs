//! Commands without confinement that get rid of their supervisor, and connections whose process has exited: none is
//! admitted, and none of their processes survives.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::model_runs::calls;
use crate::model_runs::fixture::{Fixture, turn_with_call};
use crate::support::daemon::{Client, Daemon, wait_until};
use crate::support::model::{Reply, ServerDialect};
use crate::support::ordinary_user::also_as_an_ordinary_user;
use crate::support::program::copy_program;
use crate::support::test_name::test_name;

/// Attempts of a command without confinement to let one of its processes approve: a name, and a shell script.
///
/// `$S` is its supervisor, `$H` the holder of all supervisors, `approve.sh` tries to approve in a loop, and
/// `leave.sh` leaves the
/// cgroup of the step, where the user has that permission.
const ATTEMPTS: &[(&str, &str)] = &[
    (
        "leave the cgroup and kill the supervisor",
        "setsid sh -c '. ./leave.sh; kill -9 $S; exec sh approve.sh' & sleep 1000",
    ),
    (
        "kill the supervisor from the shell itself",
        ". ./leave.sh; setsid sh approve.sh & kill -9 $S; exec sh approve.sh",
    ),
    ("kill the holder alone", "setsid sh -c '. ./leave.sh; kill -9 $H; exec sh approve.sh' & sleep 1000"),
    (
        "kill the holder and the supervisor",
        "setsid sh -c '. ./leave.sh; kill -9 $H $S; exec sh approve.sh' & sleep 1000",
    ),
    (
        "kill the supervisor and then the holder",
        "setsid sh -c '. ./leave.sh; kill -9 $S; kill -9 $H; exec sh approve.sh' & sleep 1000",
    ),
    (
        "stop the holder and kill the supervisor",
        "setsid sh -c '. ./leave.sh; kill -STOP $H; kill -9 $S; exec sh approve.sh' & sleep 1000",
    ),
    (
        "keep the holder stopped and kill the supervisor",
        "setsid sh -c '. ./leave.sh; (while :; do kill -STOP $H; done) & kill -9 $S; exec sh approve.sh' & sleep 1000",
    ),
    (
        "ask the holder politely to end, and kill the supervisor",
        "setsid sh -c '. ./leave.sh; kill -TERM $H; kill -INT $H; kill -HUP $H; kill -9 $S; exec sh approve.sh' & sleep 1000",
    ),
    (
        "terminate the supervisor in the middle of a flight",
        "setsid sh -c '. ./leave.sh; kill -TERM $S; kill -9 $S; exec sh approve.sh' & sleep 1000",
    ),
    ("stay in the cgroup and kill the supervisor", "setsid sh -c 'kill -9 $S; exec sh approve.sh' & sleep 1000"),
    (
        "orphans of orphans in sessions of their own",
        "setsid sh -c '. ./leave.sh; setsid sh -c \"setsid sh approve.sh & exit\" & kill -9 $S; exit' & sleep 1000",
    ),
    (
        "fork and leave over and over while the supervisor is killed",
        "echo 'setsid sh hop.sh >/dev/null 2>&1 & timeout 1 $PUSH approve' > hop.sh; . ./leave.sh; sh hop.sh; kill -9 $S; sleep 1000",
    ),
    ("trace the supervisor and kill it", "setsid sh -c '. ./leave.sh; CALL=trace_supervisor exec $CALLS' & sleep 1000"),
    (
        "live on without the first thread",
        "setsid sh -c '. ./leave.sh; CALL=without_first_thread exec $CALLS' & sleep 1000",
    ),
    (
        "become a child of the supervisor's parent",
        "setsid sh -c '. ./leave.sh; CALL=sibling_of_supervisor exec $CALLS' & sleep 1000",
    ),
];

#[test]
fn a_command_that_kills_its_supervisor_approves_nothing_and_leaves_nothing() {
    also_as_an_ordinary_user(a_command_that_kills_its_supervisor_approves_nothing_and_leaves_nothing);
    let fixture = Fixture::new();
    let (mut owner, _) = session_with_pending_approval(&fixture.daemon);
    let approved = fixture.daemon.home.path().join("approved");
    for (name, words) in ATTEMPTS {
        let attack = Attack::new(&fixture, name);
        let (mut client, _) = run_command(&fixture, &json!({"command": attack.script(words), "outside": true}));
        client.event_of("tool_result");
        client.event_of("run_complete");
        wait_until(name, || attack.processes().is_empty() || approved.exists());
        assert!(attack.dir.join("struck").exists(), "{name}: it was not even tried");
        assert!(!approved.exists(), "{name}: a command has approved");
    }
    let log = fixture.daemon.log();
    assert!(log.contains("connection of a model's command refused"), "{log}");
    assert!(log.contains("the holder of the supervisors was lost"), "{log}");
    // Everything works as before, and the owner can connect.
    let (mut client, _) = run_command(&fixture, &json!({"command": "echo still there", "outside": true}));
    let result = client.event_of("tool_result");
    assert!(result["payload"]["text"].as_str().unwrap_or_default().contains("still there"), "{result}");
    let done = fixture.daemon.command("push").arg("approve").output().expect("the client");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(owner.event_of("run_complete")["payload"]["outcome"], "success");
}

#[test]
fn a_run_whose_supervisor_or_holder_is_stopped_can_be_cancelled() {
    also_as_an_ordinary_user(a_run_whose_supervisor_or_holder_is_stopped_can_be_cancelled);
    for (name, words) in [
        ("stop the supervisor", "setsid sh -c 'kill -STOP $S; touch up; exec sh approve.sh' & sleep 1000"),
        ("stop both", "setsid sh -c 'kill -STOP $H $S; touch up; exec sh approve.sh' & sleep 1000"),
    ] {
        let fixture = Fixture::new();
        let (_owner, _) = session_with_pending_approval(&fixture.daemon);
        let attack = Attack::new(&fixture, name);
        let (mut client, session) = run_command(&fixture, &json!({"command": attack.script(words), "outside": true}));
        wait_until(name, || attack.dir.join("up").exists());
        client.get("cancel_run", json!({"sessionId": session}));
        assert_eq!(client.event_of("run_complete")["payload"]["outcome"], "cancelled", "{name}");
        wait_until(name, || attack.processes().is_empty());
        assert!(!fixture.daemon.home.path().join("approved").exists(), "{name}: a command has approved");
    }
}

#[test]
fn a_step_of_the_user_may_connect_while_it_has_its_supervisor() {
    also_as_an_ordinary_user(a_step_of_the_user_may_connect_while_it_has_its_supervisor);
    let daemon = Daemon::start();
    let (_owner, _) = session_with_pending_approval(&daemon);
    let push = env!("CARGO_BIN_EXE_push");
    let (mut client, session) = daemon.session();
    let home = daemon.home.path().display();
    let outcome = client.run(&session, &format!("$ HOME={home} {push} sessions > listed"));
    assert_eq!(outcome["outcome"], "success", "{outcome} {}", daemon.log());
    // A step without its supervisor cannot be distinguished from a command of a model.
    let attack = Attack::at(daemon.home.path(), &daemon, "a step");
    let words = "setsid sh -c '. ./leave.sh; kill -9 $S; exec sh approve.sh' & sleep 1000";
    client.prompt(&session, &format!("$ {}", attack.script(words)));
    client.event_of("run_complete");
    wait_until("nothing of it is left", || attack.processes().is_empty());
    assert!(attack.dir.join("struck").exists() && !daemon.home.path().join("approved").exists());
}

#[test]
fn nothing_outlives_a_killed_daemon_whose_supervisor_was_killed_or_stopped() {
    also_as_an_ordinary_user(nothing_outlives_a_killed_daemon_whose_supervisor_was_killed_or_stopped);
    for words in [
        "setsid sh -c 'kill -STOP $S; touch up; sleep 1000' & sleep 1000",
        "setsid sh -c 'kill -STOP $H; touch up; sleep 1000' & sleep 1000",
        "setsid sh -c 'kill -STOP $H; kill -9 $S; touch up; sleep 1000' & sleep 1000",
        "setsid sh -c 'touch up; sleep 1000' & sleep 1000",
    ] {
        let mut fixture = Fixture::new();
        let attack = Attack::new(&fixture, words);
        let (_client, _) = run_command(&fixture, &json!({"command": attack.script(words), "outside": true}));
        wait_until(words, || attack.dir.join("up").exists());
        let held = descendants(fixture.daemon.pid());
        assert!(held.len() >= 2, "{held:?}");
        fixture.daemon.kill();
        wait_until(words, || attack.processes().is_empty());
        wait_until(words, || held.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()));
    }
}

#[test]
fn a_process_that_exits_before_it_is_accepted_is_refused_at_the_socket() {
    also_as_an_ordinary_user(a_process_that_exits_before_it_is_accepted_is_refused_at_the_socket);
    let daemon = Daemon::start();
    let line = json!({"v": "push.runtime.v1", "kind": "request", "requestId": "r", "type": "start_session",
        "payload": {"cwd": daemon.home.path()}});
    let before = sessions(&daemon);
    signal(&daemon, Signal::SIGSTOP);
    let ended = call("queue_at_socket").env("SOCKET", daemon.socket()).env("LINE", line.to_string()).status();
    assert!(ended.expect("a process").success());
    signal(&daemon, Signal::SIGCONT);
    wait_until("it is refused", || {
        daemon.log().contains("the process that opened it has exited") || sessions(&daemon) != before
    });
    assert_eq!(sessions(&daemon), before);
    // A living process is admitted.
    daemon.connect().ping();
}

#[test]
fn a_process_that_exits_before_its_handshake_is_read_is_refused_at_the_port() {
    also_as_an_ordinary_user(a_process_that_exits_before_its_handshake_is_read_is_refused_at_the_port);
    let (fixture, port) = open_port();
    let made = fixture.daemon.command("push").args(["token", "new"]).output().expect("the client");
    let token = String::from_utf8(made.stdout).expect("text").trim().to_owned();
    for (count, bearer) in [(1, ""), (2, token.as_str())] {
        signal(&fixture.daemon, Signal::SIGSTOP);
        let ended = call("queue_at_port").env("PORT", &port).env("TOKEN", bearer).status();
        assert!(ended.expect("a process").success());
        signal(&fixture.daemon, Signal::SIGCONT);
        wait_for_refusals(&fixture.daemon, count, "no process holds this connection open any more");
    }
}

#[test]
fn a_confined_command_is_refused_at_the_port_after_its_exit() {
    also_as_an_ordinary_user(a_confined_command_is_refused_at_the_port_after_its_exit);
    let (fixture, port) = open_port();
    for (name, count) in [("paced_handshake", 1), ("many_handshakes", 200), ("inherited_handshake", 1)] {
        let before = refusals(&fixture.daemon);
        let command = format!("CALL={name} PORT={port} {}", calls_program(&fixture.cwd()));
        for args in [json!({"command": command, "network": true}), json!({"command": command, "outside": true})] {
            let (mut client, _) = run_command(&fixture, &args);
            let result = client.event_of("tool_result");
            client.event_of("run_complete");
            let text = result["payload"]["text"].as_str().unwrap_or_default().to_owned();
            assert!(text.contains("queued"), "{name}: {result}");
        }
        wait_for_refusals(&fixture.daemon, before + 2 * count, "");
    }
}

#[test]
fn a_connection_queued_in_another_socket_is_refused_even_with_a_token() {
    also_as_an_ordinary_user(a_connection_queued_in_another_socket_is_refused_even_with_a_token);
    let (fixture, port) = open_port();
    let made = fixture.daemon.command("push").args(["token", "new"]).output().expect("the client");
    let token = String::from_utf8(made.stdout).expect("text").trim().to_owned();
    let command = format!("CALL=handshake_in_flight PORT={port} TOKEN={token} {}", calls_program(&fixture.cwd()));
    for args in [json!({"command": command, "network": true}), json!({"command": command, "outside": true})] {
        let (mut client, _) = run_command(&fixture, &args);
        let result = client.event_of("tool_result");
        client.event_of("run_complete");
        let text = result["payload"]["text"].as_str().unwrap_or_default().to_owned();
        assert!(text.contains("HTTP/1.1 403"), "{result}");
    }
}

/// Runs in a step, as one of the attempts that need system calls; without `CALL` it does nothing.
#[test]
fn run_the_call_of_a_step() {
    if let Ok(name) = std::env::var("CALL") {
        calls::run_call(&name);
    }
}

/// One attempt: the directory of its files, and the mark of its processes.
struct Attack {
    dir: PathBuf,
    mark: String,
    home: PathBuf,
}

impl Attack {
    fn new(fixture: &Fixture, name: &str) -> Self {
        Self::at(&fixture.cwd(), &fixture.daemon, name)
    }

    fn at(dir: &Path, daemon: &Daemon, name: &str) -> Self {
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
        let dir = dir.join(format!("attack-{name}"));
        fs::create_dir(&dir).expect("a directory");
        // A client whose daemon closes the connection retries for a while.
        fs::write(dir.join("approve.sh"), "while :; do timeout 1 $PUSH approve; done >>said 2>&1\n").expect("a file");
        let groups = "/sys/fs/cgroup /sys/fs/cgroup/unified";
        let leave = format!("for g in {groups}; do echo 0 > $g/cgroup.procs; done 2>/dev/null\n");
        fs::write(dir.join("leave.sh"), leave).expect("a file");
        Self { mark: format!("{}-{name}", std::process::id()), home: daemon.home.path().to_owned(), dir }
    }

    /// The script with its variables set.
    fn script(&self, words: &str) -> String {
        let (dir, home, mark) = (self.dir.display(), self.home.display(), &self.mark);
        let (push, calls) = (env!("CARGO_BIN_EXE_push"), calls_program(&self.dir));
        format!(
            "cd {dir}; export MARK={mark} HOME={home} PUSH={push} S=$PPID CALLS='{calls}'; \
             export H=$(cut -d' ' -f4 /proc/$S/stat); [ \"$(cat /proc/$H/comm)\" = step-holder ] || unset H; \
             touch struck; {words}"
        )
    }

    /// Its living processes.
    fn processes(&self) -> Vec<i32> {
        let wanted = format!("MARK={}", self.mark);
        let carries = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
        };
        processes().filter(carries).collect()
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        // Matters only after a failed test, which must not leave processes either.
        for _ in 0..1000 {
            let left = self.processes();
            if left.is_empty() {
                break;
            }
            for pid in left {
                let _dead = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The descendants of a process.
fn descendants(pid: u32) -> Vec<i32> {
    let is_child = |child: &i32| {
        let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
        status.lines().any(|line| line.strip_prefix("PPid:\t") == Some(&pid.to_string()))
    };
    let children: Vec<i32> = processes().filter(is_child).collect();
    children.iter().flat_map(|child| [vec![*child], descendants(child.cast_unsigned())].concat()).collect()
}

/// The shell command that makes this program carry out the call in `CALL`, as a copy that a confined command sees.
fn calls_program(workspace: &Path) -> String {
    let mut program = std::env::current_exe().expect("this program");
    if program.starts_with("/tmp") {
        let copy = workspace.join("calls");
        copy_program(&program, &copy);
        program = copy;
    }
    format!("{} --exact {} --nocapture", program.display(), test_name(run_the_call_of_a_step))
}

/// This program carrying out a call as a process outside of any step.
fn call(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test_name(run_the_call_of_a_step), "--nocapture"]).env("CALL", name);
    command.stdout(Stdio::null());
    command
}

/// Makes the model run a command, and approves it.
fn run_command(fixture: &Fixture, args: &Value) -> (Client, String) {
    fixture.server.script([turn_with_call("", "sandbox_exec", args.clone()), Reply::says("done")]);
    let (mut client, session) = fixture.start_run("go");
    let approval = client.event_of("approval_required");
    client.decide(&approval, "approve");
    (client, session)
}

/// A session of the owner that waits for an approval.
fn session_with_pending_approval(daemon: &Daemon) -> (Client, Value) {
    let (mut client, session) = daemon.session();
    client.prompt(&session, "$? touch approved");
    let gate = client.event_of("approval_required");
    (client, gate)
}

fn signal(daemon: &Daemon, signal: Signal) {
    kill(Pid::from_raw(daemon.pid().cast_signed()), signal).expect("a daemon");
}

fn sessions(daemon: &Daemon) -> usize {
    daemon.connect().get("list_sessions", json!({}))["sessions"].as_array().expect("sessions").len()
}

/// A daemon with a port for Pi that logs every connection there.
fn open_port() -> (Fixture, String) {
    let mut fixture = Fixture::with(ServerDialect::OpenAi, &[("PUSH_LOG", "info,pushd::runtime::web=debug")]);
    fs::create_dir_all(fixture.config().parent().expect("a folder")).expect("a directory");
    fs::write(fixture.config(), "[pi]\nenabled = true\nlisten = '127.0.0.1:0'\n").expect("a file");
    fixture.daemon.stop();
    fixture.daemon.restart();
    let at = fixture.daemon.connect().get("get_metrics", json!({}))["pi"].as_str().expect("a place").to_owned();
    let port = at.rsplit(':').next().expect("a port").to_owned();
    (fixture, port)
}

/// The number of refused requests at the port.
fn refusals(daemon: &Daemon) -> usize {
    daemon.log().matches("handshake refused").count()
}

/// Waits for so many refused requests; none may be admitted.
fn wait_for_refusals(daemon: &Daemon, count: usize, why: &str) {
    const CAME_IN: &str = "connection for Pi";
    let over = || {
        let log = daemon.log();
        let answered = ["handshake refused", "handshake not completed", "too many handshakes in progress"];
        let turned_away: usize = answered.iter().map(|text| log.matches(text).count()).sum();
        turned_away >= count || log.contains(CAME_IN)
    };
    wait_until("every connection is turned away", over);
    let log = daemon.log();
    assert!(!log.contains(CAME_IN), "it came in: {log}");
    assert!(log.contains(why), "{log}");
}
