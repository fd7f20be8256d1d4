//! Other users, and other daemons, against the real one: no other user gets access, and no file of ours is taken or
//! exposed.
//!
//! The other user is this test program again, under another user id; that takes root.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(unix)]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::support::daemon::{Client, Daemon, wait_until};
use crate::support::skip;
use crate::support::test_name::test_name;
use nix::unistd::geteuid;
use serde_json::{Value, json};
use tempfile::TempDir;

#[test]
fn another_user_gets_no_reply_with_any_two_defences_removed() {
    let Some(shared_dir) = SharedDir::new() else { return };
    let daemon = Daemon::start();
    let (home, push) = (daemon.home.path(), daemon.home.path().join(".push"));
    let (run, socket) = (push.join("run"), daemon.socket());
    for (directory, file, expected) in [
        (0o700, 0o666, "no connection: permission denied"),
        (0o755, 0o600, "no connection: permission denied"),
        // With the credential check alone, it may connect and send, and gets no reply.
        (0o755, 0o666, "no answer"),
    ] {
        for (path, mode) in [(home, 0o755), (&*push, 0o755), (&*run, directory), (&*socket, file)] {
            set_mode(path, mode);
        }
        assert_eq!(shared_dir.reply_to_other_user(&socket), expected, "{directory:o} {file:o}");
        // The client of that user reports the error, and starts nothing of its own.
        let text = shared_dir.push_as(NOBODY, &socket, &["daemon", "status"]);
        assert!(!text.status.success(), "{}", String::from_utf8_lossy(&text.stdout));
        daemon.connect().ping();
    }
    let log = daemon.log();
    assert!(log.contains(&format!("another user (uid {NOBODY}) was rejected")), "{log}");
}

#[test]
fn nothing_that_another_user_prepared_is_used_or_touched() {
    let Some(shared_dir) = SharedDir::new() else { return };
    let theirs = shared_dir.path("theirs");
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("file"), "precious").unwrap();
    let _listening = UnixListener::bind(theirs.join("socket")).unwrap();
    for path in [theirs.clone(), theirs.join("file"), theirs.join("socket")] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let before = listing(&theirs);
    let foreign = format!("belongs to another user (uid {NOBODY})");
    type Prepare<'a> = &'a dyn Fn(&Path);
    let cases: [(&str, &str, Prepare<'_>); 8] = [
        ("run", &foreign, &|path| give_away_directory(path)),
        ("run", "is a symbolic link", &|path| symlink(&theirs, path).unwrap()),
        ("run/pushd.sock", &foreign, &|path| {
            drop(UnixListener::bind(path).unwrap());
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }),
        ("run/pushd.sock", "is not a socket", &|path| symlink(theirs.join("socket"), path).unwrap()),
        ("run/pushd.lock", "is a symbolic link", &|path| symlink(theirs.join("file"), path).unwrap()),
        ("run/pushd.lock", &foreign, &|path| {
            fs::write(path, "").unwrap();
            chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }),
        ("state", &foreign, &|path| give_away_directory(path)),
        ("logs", &foreign, &|path| give_away_directory(path)),
    ];
    for (name, why, prepare) in cases {
        let home = TempDir::new().unwrap();
        let path = home.path().join(".push").join(name);
        make_closed(path.parent().unwrap());
        prepare(&path);
        let (kind, owner) = kind_and_owner(&path);
        let refused = start_refused_daemon(home.path(), &[]);
        assert!(refused.contains(why), "{name}: {refused}");
        assert_eq!(kind_and_owner(&path), (kind, owner), "{name} was touched");
        assert_eq!(listing(&theirs), before, "{name}: what it leads to was touched");
    }
    // The daemon replaces a pid file by name and does not touch the target of a link.
    let mut daemon = Daemon::start();
    daemon.stop();
    let pid = daemon.home.path().join(".push/run/pushd.pid");
    symlink(theirs.join("file"), &pid).unwrap();
    daemon.restart();
    assert_eq!(fs::read_to_string(&pid).unwrap(), format!("{}\n", daemon.pid()));
    assert!(pid.symlink_metadata().unwrap().is_file());
    assert_eq!(listing(&theirs), before);
}

#[test]
fn a_socket_is_created_only_in_a_directory_of_the_same_user() {
    let home = TempDir::new().unwrap();
    let shared = home.path().join("shared");
    fs::create_dir(&shared).unwrap();
    for mode in [0o1777, 0o777, 0o755, 0o701] {
        set_mode(&shared, mode);
        let refused = start_refused_daemon(home.path(), &[("PUSHD_SOCKET", &shared.join("p.sock"))]);
        assert!(refused.contains(&format!("is open to other users (mode {mode:04o})")), "{refused}");
        assert_eq!(fs::read_dir(&shared).unwrap().count(), 0, "something was left in it");
        assert_eq!(shared.metadata().unwrap().mode() & 0o7777, mode, "it is not ours to close");
    }
    let Some(shared_dir) = SharedDir::new() else { return };
    let theirs = shared_dir.path("theirs");
    give_away_directory(&theirs);
    for (variable, path) in [("PUSHD_SOCKET", theirs.join("p.sock")), ("PUSH_HOME", theirs.clone())] {
        let refused = start_refused_daemon(home.path(), &[(variable, &path)]);
        assert!(refused.contains(&format!("belongs to another user (uid {NOBODY})")), "{refused}");
        assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0, "something was left in it");
    }
}

#[test]
fn a_daemon_that_lost_its_socket_keeps_serving_and_blocks_a_second_daemon() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 4] = [
        ("removed", |socket| fs::remove_file(socket).unwrap()),
        ("renamed", |socket| fs::rename(socket, socket.with_extension("away")).unwrap()),
        ("a file", |socket| {
            fs::remove_file(socket).unwrap();
            fs::write(socket, "precious").unwrap();
        }),
        ("a dead socket", |socket| {
            fs::remove_file(socket).unwrap();
            drop(UnixListener::bind(socket).unwrap());
        }),
    ];
    for (what, change) in changes {
        let mut daemon = Daemon::start();
        let (mut client, session) = daemon.session();
        let socket = daemon.socket();
        change(&socket);
        let there = socket.symlink_metadata().ok().map(|there| there.ino());
        let refused = start_refused_daemon(daemon.home.path(), &[]);
        assert!(refused.contains("another pushd is running"), "{what}: {refused}");
        assert_eq!(client.run(&session, "$ true\n")["outcome"], "success", "{what}");
        daemon.stop();
        assert_eq!(socket.symlink_metadata().ok().map(|there| there.ino()), there, "{what}: it was not its own");
        if what != "a file" {
            daemon.restart();
            daemon.connect().attach(&session, 0);
        }
    }
}

#[test]
fn a_displaced_daemon_leaves_its_successors_socket_alone() {
    let place = TempDir::new().unwrap();
    make_closed(&place.path().join("run"));
    let socket = place.path().join("run/p.sock");
    let at = [("PUSHD_SOCKET", socket.to_str().unwrap())];
    let mut old = Daemon::start_with(&at);
    let mut watching = Client::connect(&socket);
    // Somebody removes the directory, lock included; another daemon, with another home, takes its place.
    for file in ["p.sock", "p.lock", "p.pid"] {
        fs::remove_file(socket.with_file_name(file)).unwrap();
    }
    let new = Daemon::start_with(&at);
    assert_eq!(pid_at(&socket), new.pid());
    watching.ping();
    old.stop();
    assert_eq!(pid_at(&socket), new.pid(), "the old one took the socket with it");
    assert_eq!(fs::read_to_string(socket.with_file_name("p.pid")).unwrap(), format!("{}\n", new.pid()));
}

#[test]
fn two_daemons_never_share_a_state_directory_whatever_happens_to_the_run_directory() {
    let mut daemon = Daemon::start();
    let (mut client, session) = daemon.session();
    fs::remove_dir_all(daemon.home.path().join(".push/run")).unwrap();
    let refused = start_refused_daemon(daemon.home.path(), &[]);
    assert!(refused.contains("another daemon uses"), "{refused}");
    assert_eq!(client.run(&session, "$ true\n")["outcome"], "success");
    daemon.stop();
    daemon.restart();
    let attached = daemon.connect().attach(&session, 0);
    assert_eq!(attached["sessionId"], json!(session));
}

#[test]
fn after_ten_wrong_tokens_token_checks_pause_and_the_owner_needs_no_token() {
    let daemon = Daemon::start_with(&[("PUSH_WRONG_TOKEN_SECONDS", "600")]);
    let mut owner = daemon.connect();
    let started = owner.get("start_session", json!({"cwd": daemon.cwd()}));
    let (session, token) = (started["sessionId"].clone(), started["attachToken"].clone());
    let attach = |client: &mut Client, token: &Value| {
        client.ask("attach_session", json!({"sessionId": session, "attachToken": token}))["error"].clone()
    };
    let wrong = json!(format!("att_{}", "0".repeat(64)));
    for _ in 0..50 {
        assert_eq!(attach(&mut daemon.connect(), &token), Value::Null, "a right one costs nothing");
    }
    // From one connection or from many, the session counts.
    let mut guesser = daemon.connect();
    for round in 0..10 {
        let answer = if round % 2 == 0 { attach(&mut guesser, &wrong) } else { attach(&mut daemon.connect(), &wrong) };
        assert_eq!((&answer["code"], &answer["retryable"]), (&json!("ATTACH_FORBIDDEN"), &json!(false)));
    }
    for tried in [&wrong, &token] {
        let answer = attach(&mut guesser, tried);
        assert_eq!((&answer["code"], &answer["retryable"]), (&json!("ATTACH_FORBIDDEN"), &json!(true)));
        assert!(answer["message"].as_str().unwrap().contains("too many wrong attach tokens"), "{answer}");
    }
    daemon.connect().attach(session.as_str().unwrap(), 0);
    let other = owner.get("start_session", json!({"cwd": daemon.cwd()}));
    let with_token = json!({"sessionId": other["sessionId"], "attachToken": other["attachToken"]});
    guesser.get("attach_session", with_token);
}

#[test]
fn token_checks_resume_after_the_pause() {
    let daemon = Daemon::start_with(&[("PUSH_WRONG_TOKEN_SECONDS", "0.2")]);
    let mut client = daemon.connect();
    let started = client.get("start_session", json!({"cwd": daemon.cwd()}));
    let with = |token: &Value| json!({"sessionId": started["sessionId"], "attachToken": token});
    let retryable = |client: &mut Client| {
        client.ask("attach_session", with(&json!("att_wrong")))["error"]["retryable"] == json!(true)
    };
    wait_until("wrong tokens are no longer looked at", || retryable(&mut client));
    wait_until("the right one is looked at again", || {
        client.ask("attach_session", with(&started["attachToken"]))["ok"] == json!(true)
    });
}

/// The other process: sends like a careless client, and prints the reply.
#[test]
fn connect_as_the_other_user() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let text = match UnixStream::connect(socket) {
        Err(error) => format!("no connection: {}", error.kind()),
        Ok(mut stream) => {
            let ping =
                json!({"v": "push.runtime.v1", "kind": "request", "requestId": "r", "type": "ping", "payload": {}});
            let spoken = stream.write_all(format!("{ping}\n").as_bytes());
            let mut received = String::new();
            // The daemon may close the connection before or after the request.
            match stream.read_to_string(&mut received) {
                Ok(0) | Err(_) => "no answer".to_owned(),
                Ok(_) => format!("{spoken:?} {received}"),
            }
        }
    };
    println!("\n{REPLY_PREFIX}{text}");
}

/// A directory that another user can reach, with our programs in it.
struct SharedDir(TempDir);

impl SharedDir {
    /// `None`, with a reported skip, where the tests do not run as root.
    fn new() -> Option<Self> {
        if !geteuid().is_root() {
            skip::skip("other_users: only root can act as another user");
            return None;
        }
        let shared_dir = Self(TempDir::new().unwrap());
        set_mode(shared_dir.0.path(), 0o755);
        let running = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
        let this = if running.exists() { running } else { std::env::current_exe().unwrap() };
        for (program, name) in [(&*this, "other-user"), (Path::new(env!("CARGO_BIN_EXE_push")), "push")] {
            // Copied by another process: a concurrently forked child of this process would hold the copy open for
            // writing, and a file that is open for writing cannot be executed.
            assert!(Command::new("cp").arg(program).arg(shared_dir.path(name)).status().unwrap().success());
            set_mode(&shared_dir.path(name), 0o755);
        }
        Some(shared_dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The reply that another user gets from a socket.
    fn reply_to_other_user(&self, socket: &Path) -> String {
        let mut command = Command::new(self.path("other-user"));
        command.args(["--exact", test_name(connect_as_the_other_user), "--nocapture"]).env(SOCKET, socket);
        let output = command.uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let word = text.lines().find_map(|line| line.strip_prefix(REPLY_PREFIX));
        word.unwrap_or_else(|| panic!("it said nothing: {text}")).to_owned()
    }

    fn push_as(&self, uid: u32, socket: &Path, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.path("push"));
        command.args(arguments).env_clear().env("HOME", "/nonexistent").env("PUSHD_SOCKET", socket);
        command.uid(uid).gid(uid).current_dir("/").stdin(Stdio::null()).output().unwrap()
    }
}

/// Starts a daemon that must refuse, and returns its error text.
fn start_refused_daemon(home: &Path, variables: &[(&str, &Path)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_push"));
    command.args(["daemon", "run"]).env_clear().env("HOME", home).envs(variables.iter().copied());
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut started = KilledOnDrop(command.spawn().unwrap());
    wait_until("the daemon refuses", || started.0.try_wait().unwrap().is_some());
    let mut words = String::new();
    started.0.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    assert!(!started.0.wait().unwrap().success(), "{words}");
    words
}

/// A process that is killed at the end of its test.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pid_at(socket: &Path) -> u32 {
    let pid = Client::connect(socket).get("get_metrics", json!({}))["pid"].as_u64().unwrap();
    u32::try_from(pid).unwrap()
}

fn give_away_directory(path: &Path) {
    fs::create_dir(path).unwrap();
    set_mode(path, 0o777);
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
}

fn make_closed(path: &Path) {
    fs::create_dir_all(path).unwrap();
    set_mode(path, 0o700);
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The kind of a path, without following links, and its owner.
fn kind_and_owner(path: &Path) -> (String, u32) {
    let there = path.symlink_metadata().unwrap();
    let kind = there.file_type();
    (format!("link {} socket {} mode {:o}", kind.is_symlink(), kind.is_socket(), there.mode()), there.uid())
}

/// The entries of a directory, with the contents of files.
fn listing(directory: &Path) -> Vec<(String, String, String)> {
    let mut found: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let text = if path.is_file() { fs::read_to_string(&path).unwrap() } else { String::new() };
            (path.display().to_string(), format!("{:?}", kind_and_owner(&path)), text)
        })
        .collect();
    found.sort();
    found
}

const SOCKET: &str = "PUSHD_TEST_SOCKET";
const REPLY_PREFIX: &str = "it says: ";
const NOBODY: u32 = 65534;
