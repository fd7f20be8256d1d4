//! Attempts against a real daemon, with every mechanism, as root and as an ordinary user: to connect or approve from a
//! command, to reach the holder of the supervisors, to plant programs and pipes for the daemon's own tools, to replace
//! a workspace, and to read a home.
//!
//! Attempts that the mechanism has no influence on are made with the machine's default in `tests/agents`,
//! `tests/tools` and `tests/workspaces`; `docs/escape-attempts.md` gives the reasons.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use pushd::sandbox::confinement::Mechanism;
use serde_json::json;

use super::daemon_fixture::{DaemonFixture, SECRET, approve_until_complete, git, write_trap};
use super::fixture::own_program;
use super::{agent_calls, calls_process};
use crate::support::daemon::wait_until;
use crate::support::ordinary_user::with_an_ordinary_user;
use crate::support::program::copy_program;
use crate::support::test_name::test_name;

/// An attempt by name.
pub(crate) type DaemonAttempt = (&'static str, fn(&DaemonFixture, &str));

pub(crate) const DAEMON_ATTEMPTS: &[DaemonAttempt] = &[
    ("a handshake at the port that ends after its command", |daemon, name| at_port(daemon, name, "paced_handshake", 1)),
    ("two hundred connections at the port, then the end", |daemon, name| at_port(daemon, name, "many_handshakes", 200)),
    ("a connection at the port in the hands of an orphan", |daemon, name| {
        at_port(daemon, name, "inherited_handshake", 1);
    }),
    ("a connection at the port in another socket, with a token", connection_in_flight),
    ("approve by the client", |daemon, name| self_approval(daemon, name, "$APPROVE")),
    ("approve by an orphan in its own session", |daemon, name| self_approval(daemon, name, ORPHAN)),
    ("approve by another socket path", |daemon, name| {
        self_approval(daemon, name, "PUSHD_SOCKET=$HOME/.push/run/pushd.sock HOME=/tmp $APPROVE");
    }),
    ("kill the supervisor and approve", |daemon, name| {
        self_approval(daemon, name, "kill -9 $S; kill -TERM $S; kill -STOP $S; $APPROVE");
    }),
    ("kill the holder and approve", |daemon, name| {
        self_approval(daemon, name, "kill -9 $H; kill -TERM $H; kill -STOP $H; $APPROVE");
    }),
    ("kill the daemon", |daemon, name| {
        self_approval(daemon, name, "kill -9 $D; kill -TERM $D; kill -STOP $D; $APPROVE")
    }),
    ("kill all three from an orphan and approve", |daemon, name| {
        self_approval(
            daemon,
            name,
            "(setsid sh -c 'kill -9 $H $S $D; $APPROVE; : > done' >/dev/null 2>&1 &); until [ -e done ]; do sleep 0.01; done",
        );
    }),
    ("the memory of the holder", |daemon, name| {
        self_approval(
            daemon,
            name,
            "for p in $H $D; do cat /proc/$p/maps && echo ESCAPED; (exec 9<>/proc/$p/mem) && echo ESCAPED; done",
        );
    }),
    ("the pipes that the holder keeps", kept_pipes),
    ("the descriptors of the holder and the daemon", |daemon, name| {
        self_approval(
            daemon,
            name,
            "for p in $H $D; do for n in 0 1 2 3 4 5 6 7 8 9; do readlink /proc/$p/fd/$n && echo ESCAPED; \
             (exec 9<>/proc/$p/fd/$n) && echo ESCAPED; done; done",
        );
    }),
    ("limits and priorities of the holder and the daemon", |daemon, name| {
        self_approval(
            daemon,
            name,
            "for p in $H $D; do VICTIM=$p; export VICTIM; for c in limits_of_victim priority_of_victim \
             processors_of_victim scheduler_of_victim disk_priority_of_victim; do PROCESS_CALL=$c $CALLS; done; done",
        );
    }),
    ("git in the programs of a Python environment", |daemon, name| {
        planted_git(daemon, name, ".venv/bin", &["{w}/.venv/bin"])
    }),
    ("git in the programs of Node modules", |daemon, name| {
        planted_git(daemon, name, "node_modules/.bin", &["{w}/node_modules/.bin"]);
    }),
    ("git by a relative entry of the path", |daemon, name| planted_git(daemon, name, "bin", &["bin", "./bin", "."])),
    ("git behind a link to the workspace", |daemon, name| planted_git(daemon, name, "bin", &["{w}-link"])),
    ("git in a directory that others may write", |daemon, name| planted_git(daemon, name, "bin", &["{w}-open"])),
    ("git alone on the path", |daemon, name| planted_git(daemon, name, "bin", &["{w}/bin", ""])),
    ("a git file that leads to another repository", other_repository_by_file),
    ("a git directory that shares another repository", other_repository_by_commondir),
    ("variables that lead git elsewhere", variables_of_git),
    ("a configuration with programs", configuration_with_programs),
    ("a pipe in place of the git directory", |daemon, name| pipe_for_git(daemon, name, &[".git"])),
    ("pipes in place of files of git", |daemon, name| {
        pipe_for_git(daemon, name, &[".git/HEAD", ".git/config", ".git/index"]);
    }),
    ("a pipe as the project's configuration, made by a command", pipe_as_configuration),
    ("a device as the project's configuration, made by a command", device_as_configuration),
    ("pipes among the files for the model, made by a command", pipes_for_the_model),
    ("a workspace replaced by a link to the configuration", |daemon, name| {
        replaced_workspace(daemon, name, "mv sub old && ln -s ../../.config/push sub");
    }),
    ("a workspace replaced by a link to keys", |daemon, name| {
        replaced_workspace(daemon, name, "mv sub old && ln -s ../../.ssh sub");
    }),
    ("a workspace replaced by a new directory", |daemon, name| {
        replaced_workspace(daemon, name, "mv sub old && mkdir sub && echo planted > sub/AGENTS.md");
    }),
    ("credentials in a home without the daemon's files", credentials_in_home),
];

/// Tries to approve while its command waits.
const ORPHAN: &str = "(setsid sh -c '$APPROVE; : > done' >/dev/null 2>&1 &); until [ -e done ]; do sleep 0.01; done";

#[test]
fn every_attempt_at_a_daemon_is_refused_with_bubblewrap() {
    assert_refused(every_attempt_at_a_daemon_is_refused_with_bubblewrap, Mechanism::Bubblewrap);
}

#[test]
fn every_attempt_at_a_daemon_is_refused_with_namespaces() {
    assert_refused(every_attempt_at_a_daemon_is_refused_with_namespaces, Mechanism::Namespaces);
}

#[test]
fn every_attempt_at_a_daemon_is_refused_with_landlock_alone() {
    assert_refused(every_attempt_at_a_daemon_is_refused_with_landlock_alone, Mechanism::Rules);
}

/// Runs in a step, as one of the attempts that need system calls; without `CALL` it does nothing.
#[test]
fn run_the_call_of_a_step() {
    if let Ok(name) = std::env::var("PROCESS_CALL") {
        calls_process::run_call(&name, &[]);
    } else if let Ok(name) = std::env::var("CALL") {
        agent_calls::run_call(&name);
    }
}

/// Makes every attempt at one daemon, as root and at the same time as an ordinary user.
fn assert_refused(test: impl Fn(), mechanism: Mechanism) {
    with_an_ordinary_user(test, || {
        let Some(daemon) = DaemonFixture::start(mechanism) else { return };
        let fails = |(name, attempt): &&DaemonAttempt| {
            let made = catch_unwind(AssertUnwindSafe(|| {
                attempt(&daemon, name);
                daemon.assert_unharmed(&mark(&daemon, name));
            }));
            made.is_err()
        };
        let failed: Vec<&str> = DAEMON_ATTEMPTS.iter().filter(fails).map(|(name, _)| *name).collect();
        assert_eq!(failed, [""; 0], "with {}", mechanism.as_str());
    });
}

fn mark(daemon: &DaemonFixture, name: &str) -> String {
    format!("{}-{}", daemon.daemon.pid(), name.replace([' ', '\'', ','], "-"))
}

/// A confined command leaves connections at the port and exits; each is turned away.
fn at_port(daemon: &DaemonFixture, name: &str, call: &str, count: usize) {
    let before = turned_away(&daemon.log());
    let workspace = daemon.workspace(name);
    let (port, program) = (daemon.port(), calls_program(&workspace));
    let command = format!("export MARK={}; CALL={call} PORT={port} {program}", mark(daemon, name));
    let result = daemon.run_command(&workspace, json!({"command": command, "network": true}));
    assert!(result.text.contains("queued"), "{}", result.text);
    wait_until("every connection is turned away", || turned_away(&daemon.log()) >= before + count);
    assert!(!daemon.log().contains("connection for Pi"), "it came in: {}", daemon.log());
}

/// How many connections at the port were turned away.
fn turned_away(log: &str) -> usize {
    let answered = ["handshake refused", "handshake not completed", "too many handshakes in progress"];
    answered.iter().map(|text| log.matches(text).count()).sum()
}

fn connection_in_flight(daemon: &DaemonFixture, name: &str) {
    let workspace = daemon.workspace(name);
    let (port, token, program) = (daemon.port(), daemon.token(), calls_program(&workspace));
    let command = format!("CALL=handshake_in_flight PORT={port} TOKEN={token} {program}");
    let result = daemon.run_command(&workspace, json!({"command": command, "network": true}));
    assert!(result.text.contains("HTTP/1.1 403"), "{}", result.text);
}

/// A confined command that tries to approve, or to reach the holder or the daemon, and then goes on.
///
/// `$S` is its parent, `$H` the holder, `$D` the daemon.
fn self_approval(daemon: &DaemonFixture, name: &str, words: &str) {
    let workspace = daemon.workspace(name);
    let (holder, pid) = (daemon.holder(), daemon.daemon.pid());
    let before = conditions(&[holder.cast_unsigned(), pid]);
    let command = format!(
        "export MARK={} S=$PPID H={holder} D={pid} HOME={}; export APPROVE='timeout 2 {} approve' CALLS='{}'; \
         ( {words} ); echo TRIED",
        mark(daemon, name),
        daemon.home().display(),
        env!("CARGO_BIN_EXE_push"),
        calls_program(&workspace),
    );
    let result = daemon.run_command(&workspace, json!({"command": command}));
    assert!(result.text.contains("TRIED"), "it did not run on: {}", result.text);
    assert!(!result.text.contains("ESCAPED") && !result.text.contains("approved"), "{}", result.text);
    assert_eq!(conditions(&[holder.cast_unsigned(), pid]), before);
    assert_eq!(daemon.holder(), holder);
}

/// A command of another session cannot reach the pipes of a running step, which the holder keeps.
fn kept_pipes(daemon: &DaemonFixture, name: &str) {
    let workspace = daemon.workspace(name);
    let (mut client, session) = daemon.session(&workspace, &[]);
    daemon.script(&[(
        "sandbox_exec",
        json!({"command": "touch up; until [ -e go ]; do sleep 0.01; done; echo finished"}),
    )]);
    client.prompt(&session, "go");
    let approval = client.event_of("approval_required");
    client.decide(&approval, "approve");
    wait_until("the step runs", || workspace.join("up").exists());
    let taking = "for p in $H $D $S; do for fd in /proc/$p/fd/*; do case $(readlink $fd) in \
                  socket:*|pipe:*) (exec 9<$fd) 2>/dev/null && echo ESCAPED;; esac; done; done; \
                  PROCESS_CALL=descriptors_of_first $CALLS";
    self_approval(daemon, "the pipes of another step", taking);
    fs::write(workspace.join("go"), "").unwrap();
    let (results, _) = approve_until_complete(&mut client);
    assert!(results[0].text.contains("finished"), "{}", results[0].text);
}

/// State, limits, priorities and processors of processes.
fn conditions(pids: &[u32]) -> Vec<String> {
    let read = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let kept = ["Name:", "PPid:", "TracerPid:", "Cpus_allowed:"];
        let mut seen: Vec<&str> =
            status.lines().filter(|line| kept.iter().any(|name| line.starts_with(name))).collect();
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
        seen.push(&limits);
        let stopped = status.contains("\nState:\tT");
        format!("{} stopped: {stopped}", seen.join(" "))
    };
    pids.iter().map(read).collect()
}

/// The git tools run the machine's git whatever a command has planted. `{w}` is the workspace.
fn planted_git(daemon: &DaemonFixture, name: &str, directory: &str, entries: &[&str]) {
    let workspace = daemon.repository(name);
    let trace = workspace.join("sprung");
    let planted = workspace.join(directory).join("git");
    write_trap(&planted, &trace);
    if entries.contains(&".") {
        write_trap(&workspace.join("git"), &trace);
    }
    let at = workspace.display().to_string();
    std::os::unix::fs::symlink(workspace.join(directory), format!("{at}-link")).unwrap();
    let open = format!("{at}-open");
    write_trap(&Path::new(&open).join("git"), &trace);
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let usual = std::env::var("PATH").unwrap_or_default();
    let mut path: Vec<String> =
        entries.iter().filter(|entry| !entry.is_empty()).map(|entry| entry.replace("{w}", &at)).collect();
    // An empty entry at the end stands for a path without any other directory.
    if entries.last() != Some(&"") {
        path.push(usual);
    }
    let mut session = daemon.session(&workspace, &[("PATH", &path.join(":"))]);
    use_every_git_tool(daemon, &mut session, &workspace);
    assert_eq!(fs::read_to_string(&trace).unwrap_or_default(), "", "a planted program ran");
}

/// Uses every git tool; all succeed.
fn use_every_git_tool(
    daemon: &DaemonFixture,
    session: &mut (crate::support::daemon::Client, String),
    workspace: &Path,
) {
    fs::write(workspace.join("tracked"), "second\n").unwrap();
    let (results, end) = daemon.use_tools(
        session,
        &[
            ("sandbox_git_status", json!({})),
            ("sandbox_git_diff", json!({})),
            ("sandbox_git_commit", json!({"message": "m", "paths": ["tracked"]})),
        ],
    );
    assert_eq!(results.len(), 3, "{end}");
    for result in &results {
        assert_eq!(result.status, "done", "{}", result.text);
    }
    assert!(results[1].text.contains("+second"), "{}", results[1].text);
}

/// Uses every git tool; all fail, and print no secret.
fn assert_every_git_tool_fails(daemon: &DaemonFixture, workspace: &Path) {
    let calls = [
        ("sandbox_git_status", json!({})),
        ("sandbox_git_diff", json!({})),
        ("sandbox_git_commit", json!({"message": "m", "all": true})),
    ];
    let (results, end) = daemon.use_tools(&mut daemon.session(workspace, &[]), &calls);
    assert_eq!(results.len(), 3, "{end}");
    for result in &results {
        assert_eq!(result.code, "GIT_FAILED", "{}", result.text);
        assert!(!result.text.contains(SECRET), "{}", result.text);
    }
}

fn other_repository_by_file(daemon: &DaemonFixture, name: &str) {
    let victim = daemon.repository("a victim of a git file");
    let before = listing(&victim);
    let workspace = daemon.workspace(name);
    fs::write(workspace.join("mine"), "x\n").unwrap();
    for target in [victim.join(".git").display().to_string(), "../a-victim-of-a-git-file/.git".to_owned()] {
        fs::write(workspace.join(".git"), format!("gitdir: {target}\n")).unwrap();
        assert_every_git_tool_fails(daemon, &workspace);
    }
    assert_eq!(listing(&victim), before);
}

fn other_repository_by_commondir(daemon: &DaemonFixture, name: &str) {
    let victim = daemon.repository("a victim of a common directory");
    let before = listing(&victim);
    let workspace = daemon.repository(name);
    fs::write(workspace.join(".git/commondir"), format!("{}\n", victim.join(".git").display())).unwrap();
    assert_every_git_tool_fails(daemon, &workspace);
    assert_eq!(listing(&victim), before);
}

fn variables_of_git(daemon: &DaemonFixture, name: &str) {
    let victim = daemon.repository("a victim of variables");
    let before = listing(&victim);
    let workspace = daemon.repository(name);
    let trace = workspace.join("sprung");
    write_trap(&workspace.join("trap"), &trace);
    let (trap, other) = (workspace.join("trap").display().to_string(), victim.display().to_string());
    let inner = format!("{other}/.git");
    let mut session = daemon.session(
        &workspace,
        &[
            ("GIT_DIR", &inner),
            ("GIT_WORK_TREE", &other),
            ("GIT_COMMON_DIR", &inner),
            ("GIT_EXEC_PATH", &workspace.display().to_string()),
            ("GIT_EXTERNAL_DIFF", &trap),
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "core.fsmonitor"),
            ("GIT_CONFIG_VALUE_0", &trap),
            ("BASH_FUNC_git%%", &format!("() {{ {trap}; }}")),
        ],
    );
    use_every_git_tool(daemon, &mut session, &workspace);
    assert_eq!(fs::read_to_string(&trace).unwrap_or_default(), "", "a planted program ran");
    assert_eq!(listing(&victim), before);
}

fn configuration_with_programs(daemon: &DaemonFixture, name: &str) {
    let workspace = daemon.repository(name);
    let trace = workspace.join("sprung");
    write_trap(&workspace.join("trap"), &trace);
    let trap = workspace.join("trap").display().to_string();
    for hook in ["pre-commit", "post-commit", "post-index-change", "reference-transaction"] {
        write_trap(&workspace.join("hooks").join(hook), &trace);
    }
    let included = format!(
        "[core]\n\tfsmonitor = {trap}\n\thooksPath = {}\n\tpager = {trap}\n\teditor = {trap}\n[diff]\n\texternal = {trap}\n\
         [diff \"x\"]\n\ttextconv = {trap}\n[gpg]\n\tprogram = {trap}\n[commit]\n\tgpgSign = true\n",
        workspace.join("hooks").display()
    );
    fs::write(workspace.join("included"), included).unwrap();
    fs::write(workspace.join(".gitattributes"), "* diff=x\n").unwrap();
    git(&workspace, &["config", "include.path", "../included"]);
    let mut session = daemon.session(&workspace, &[]);
    use_every_git_tool(daemon, &mut session, &workspace);
    assert_eq!(fs::read_to_string(&trace).unwrap_or_default(), "", "a planted program ran");
}

/// The git tools fail at once where git would wait.
fn pipe_for_git(daemon: &DaemonFixture, name: &str, files: &[&str]) {
    for file in files {
        let label = format!("{name} {}", file.replace(['.', '/'], "-"));
        let workspace = if *file == ".git" { daemon.workspace(&label) } else { daemon.repository(&label) };
        let path = workspace.join(file);
        let _replaced = fs::remove_file(&path);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_every_git_tool_fails(daemon, &workspace);
    }
}

/// With namespaces the pipe cannot be made. With Landlock alone it can, and fails the next run of that workspace alone.
fn pipe_as_configuration(daemon: &DaemonFixture, name: &str) {
    planted_configuration(daemon, name, "mkfifo .push/config.toml", "is a FIFO", |kind| kind.is_fifo());
}

fn device_as_configuration(daemon: &DaemonFixture, name: &str) {
    planted_configuration(daemon, name, "ln -s /dev/zero .push/config.toml", "is a device", |kind| kind.is_symlink());
}

fn planted_configuration(
    daemon: &DaemonFixture,
    name: &str,
    plant: &str,
    refusal: &str,
    is_planted: fn(&fs::FileType) -> bool,
) {
    let workspace = daemon.workspace(name);
    let mut session = daemon.session(&workspace, &[]);
    let command = format!("mkdir -p .push; {plant}; echo TRIED");
    let (results, _) = daemon.use_tools(&mut session, &[("sandbox_exec", json!({"command": command}))]);
    assert!(results[0].text.contains("TRIED"), "{}", results[0].text);
    let planted =
        fs::symlink_metadata(workspace.join(".push/config.toml")).is_ok_and(|there| is_planted(&there.file_type()));
    assert_eq!(planted, daemon.mechanism == Mechanism::Rules);
    let (results, end) = daemon.use_tools(&mut session, &[("sandbox_exec", json!({"command": "echo next"}))]);
    if planted {
        assert_eq!((end["outcome"].as_str(), results.len()), (Some("failed"), 0), "{end}");
        let mut client = daemon.daemon.connect();
        let start = json!({"cwd": workspace, "provider": "openai", "model": "m", "environment": {}});
        let answer = client.ask("start_session", start);
        assert!(answer.to_string().contains(refusal), "{answer}");
    } else {
        assert!(results[0].text.contains("next"), "{}", results[0].text);
    }
}

fn pipes_for_the_model(daemon: &DaemonFixture, name: &str) {
    let workspace = daemon.workspace(name);
    fs::write(workspace.join("file"), "needle\n").unwrap();
    let mut session = daemon.session(&workspace, &[]);
    let (results, end) = daemon.use_tools(
        &mut session,
        &[
            (
                "sandbox_exec",
                json!({"command": "mkdir sub; mkfifo .gitignore .ignore AGENTS.md pipe sub/.gitignore; echo TRIED"}),
            ),
            ("sandbox_search", json!({"pattern": "needle"})),
            ("sandbox_read_file", json!({"path": "pipe"})),
            ("sandbox_list_dir", json!({"depth": 3})),
        ],
    );
    assert_eq!(results.len(), 4, "{end}");
    assert!(results[0].text.contains("TRIED"), "{}", results[0].text);
    assert!(results[1].text.contains("needle"), "{}", results[1].text);
    assert_eq!((results[2].code.as_str(), results[3].status.as_str()), ("NOT_A_FILE", "done"));
    let (results, end) = daemon.use_tools(&mut session, &[("sandbox_exec", json!({"command": "echo next"}))]);
    assert!(results.first().is_some_and(|result| result.text.contains("next")), "{end}");
}

/// Tools of a session whose workspace a command of another session replaces while they wait for approval.
fn replaced_workspace(daemon: &DaemonFixture, name: &str, replace: &str) {
    let calls = [
        ("sandbox_exec", json!({"command": "cat *; echo escaped > rc"})),
        ("sandbox_write_file", json!({"path": "rc", "content": "escaped"})),
    ];
    for (number, (tool, args)) in calls.into_iter().enumerate() {
        let outer = daemon.workspace(&format!("{name} {number}"));
        fs::create_dir(outer.join("sub")).unwrap();
        let (mut client, session) = daemon.session(&outer.join("sub"), &[]);
        daemon.script(&[(tool, args)]);
        client.prompt(&session, "go");
        let approval = client.event_of("approval_required");
        let result = daemon.run_command(&outer, json!({"command": replace}));
        assert_eq!(result.status, "done", "{}", result.text);
        daemon.script(&[]);
        client.decide(&approval, "approve");
        let (results, end) = approve_until_complete(&mut client);
        assert_eq!(results.len(), 1, "{tool}: {end}");
        assert_eq!(results[0].code, "SANDBOX_UNAVAILABLE", "{tool}: {}", results[0].text);
        assert!(!results[0].text.contains(SECRET), "{tool}: {}", results[0].text);
        assert!(!outer.join("sub/rc").exists() && !outer.join("old/rc").exists(), "{tool}");
    }
}

fn credentials_in_home(daemon: &DaemonFixture, name: &str) {
    let workspace = daemon.workspace(name);
    let home = daemon.home().display().to_string();
    for file in [".ssh/id_ed25519", ".gemini/oauth", ".netrc", "private/.git/config"] {
        let command = format!("cat {home}/{file} /proc/self/root{home}/{file} ../../{file}");
        let result = daemon.run_command(&workspace, json!({"command": command}));
        assert!(!result.text.contains(SECRET), "{file}: {}", result.text);
    }
    let result = daemon.run_command(&workspace, json!({"command": format!("cat {home}/.cargo/config.toml")}));
    assert!(result.text.contains("[build]"), "toolchains read their settings: {}", result.text);
}

/// Every file below a directory, with its size.
fn listing(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![directory.to_owned()];
    while let Some(path) = todo.pop() {
        for entry in fs::read_dir(path).unwrap().flatten() {
            let there = entry.metadata().unwrap();
            found.push(format!("{} {}", entry.path().display(), there.len()));
            if there.is_dir() {
                todo.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// The shell command that makes this program carry out the call in `CALL` or `PROCESS_CALL`, as a copy that a confined
/// command sees.
fn calls_program(workspace: &Path) -> String {
    let mut program = own_program();
    if program.starts_with("/tmp") {
        let copy = workspace.join("calls");
        copy_program(&program, &copy);
        program = copy;
    }
    format!("{} --exact {} --nocapture", program.display(), test_name(run_the_call_of_a_step))
}
