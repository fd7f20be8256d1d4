//! Maintenance: `push delete`, `push purge` and `push doctor`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::geteuid;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::home::{Home, ProgramOutput, Running, is_alive, wait_until};
use crate::support::skip::skip;

#[test]
fn a_deleted_session_leaves_no_data() {
    let home = Home::new();
    home.ok(&["run", "--name", "planted-name", "Planted-words.\n\n$ echo planted-output"]);
    home.ok(&["run", "$ echo kept"]);
    let kept = home.json(&["show", "@last", "--json"])["sessionId"].clone();
    let all = home.json(&["sessions", "--json"]);
    let gone = all["sessions"][1]["sessionId"].as_str().unwrap();
    assert!(home.any_file_contains("state", "lanted-"));
    let result = home.push(&["delete", gone]);
    assert_eq!((result.code, result.out.as_str()), (Some(64), ""), "nobody agreed: {result:?}");
    assert!(result.err.contains("--yes"), "{result:?}");
    assert!(home.any_file_contains("state", "lanted-"));
    let result = home.push(&["delete", &gone[5..], gone, "--yes", "--json"]).json();
    assert_eq!((&result["deleted"][0]["sessionId"], &result["skipped"]), (&json!(gone), &json!([])));
    assert_eq!(result["deleted"].as_array().unwrap().len(), 1, "it was named twice");
    assert_eq!(result["bytes"], result["deleted"][0]["bytes"]);
    assert!(!home.any_file_contains("state", "lanted-") && !home.any_file_contains("logs", "lanted-"));
    assert_eq!(home.json(&["sessions", "--json"])["sessions"][0]["sessionId"], kept);
    for words in [&["show", gone][..], &["log", gone], &["delete", gone, "--yes"], &["send", gone, "x"]] {
        let result = home.push(words);
        let code = if words[0] == "delete" { 1 } else { 64 };
        assert_eq!(result.code, Some(code), "{words:?}: {result:?}");
        assert!(result.err.contains("no session"), "{words:?}: {result:?}");
    }
    // An unknown session is reported even where the deletion cannot be confirmed.
    for words in [&["delete", "nosuch", "--yes"][..], &["delete", "nosuch"]] {
        let result = home.push(words);
        assert!(result.code == Some(64) && result.err.contains("no session"), "{words:?}: {result:?}");
        assert!(!result.err.contains("--yes"), "{words:?}: {result:?}");
    }
    home.ok(&["delete", "@last", "--yes"]);
    assert_eq!(home.ok(&["sessions"]), "");
}

#[test]
fn old_sessions_are_deleted_and_active_ones_are_listed() {
    let home = Home::new();
    home.ok(&["run", "$ echo one"]);
    let busy = home.start_detached("$? echo two");
    home.wait_for_approval();
    let none = home.json(&["delete", "--older-than", "1h", "--yes", "--json"]);
    assert_eq!(none, json!({"deleted": [], "skipped": [], "bytes": 0}));
    let result = home.push(&["delete", "--older-than", "0m", "--yes", "--json"]);
    assert_eq!(result.code, Some(1), "one stayed: {result:?}");
    assert!(result.err.contains(&busy) && result.err.contains("`push cancel SESSION` cancels it"), "{result:?}");
    let report = result.json();
    assert_eq!(report["deleted"].as_array().unwrap().len(), 1);
    assert_eq!(report["skipped"][0]["sessionId"], busy.as_str());
    let left = home.json(&["sessions", "--json"]);
    assert_eq!(left["sessions"].as_array().unwrap().len(), 1);
    home.ok(&["cancel", &busy]);
    home.push(&["wait", &busy]);
    home.ok(&["delete", &busy, "--yes"]);
}

#[test]
fn attached_clients_are_notified_of_a_deletion() {
    let home = Home::new();
    home.ok(&["run", "$ echo one"]);
    let mut log = home.start(&["log", "--follow"]);
    log.wait_for_line("success");
    home.ok(&["delete", "@last", "--yes"]);
    let result = log.wait_for_output();
    assert_eq!(result.code, Some(1), "{result:?}");
    assert!(result.err.contains("was deleted"), "{result:?}");
}

#[test]
fn the_log_of_a_trimmed_session_shows_the_remaining_events() {
    let home = Home::with(&[("PUSH_SESSION_BYTES", "400000"), ("PUSH_PARK_SECONDS", "0.05")]);
    home.ok(&["run", "$ seq 200000"]);
    wait_until("the session to be parked", || home.ok(&["daemon", "status"]).contains("(0 in memory)"));
    home.ok(&["run", "--session", "@last", "$ echo newest"]);
    wait_until("the oldest events to be cut", || !home.ok(&["log"]).contains("\n  1\n  2\n"));
    let log = home.ok(&["log"]);
    assert!(log.contains("  200000\n") && log.ends_with("success: 1 step done\n"), "{}", log.len());
    assert!(log.contains("  newest\n"));
    let events = home.push(&["log", "--jsonl"]).events();
    assert!(events[0]["seq"].as_u64() > Some(1), "{}", events[0]);
    assert_eq!(events.last().unwrap()["type"], "run_complete");
    assert_eq!(home.push(&["doctor"]).code, Some(0));
}

#[test]
fn a_purge_removes_all_files_of_pushd_and_nothing_else() {
    let home = Home::new();
    home.ok(&["run", "Planted.\n\n$ echo planted-output"]);
    let result = home.push(&["purge"]);
    assert_eq!(result.code, Some(64), "nobody agreed: {result:?}");
    let session = home.start_detached("$? echo asked");
    home.wait_for_approval();
    let result = home.push(&["purge", "--yes"]);
    assert_eq!(result.code, Some(1), "{result:?}");
    assert!(result.err.contains("1 run is active"), "{result:?}");
    assert_eq!(home.json(&["show", &session, "--json"])["state"], "awaiting_approval");
    fs::write(home.push_path("state/pushd.db.damaged-7"), "planted-output").unwrap();
    home.ok(&["token", "new"]);
    fs::write(home.push_path("state/approvals.json"), "{}").unwrap();
    fs::write(home.push_path("state/my-notes"), "mine").unwrap();
    let cache = home.push_path("cache/0123456789abcdef0123456789abcdef/overlay-0/npm/work/work");
    fs::create_dir_all(&cache).unwrap();
    fs::write(cache.join("x"), "planted-output").unwrap();
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o000)).unwrap();
    fs::write(home.push_path("cache/my-cache"), "mine").unwrap();
    fs::write(home.push_path("logs/my.log"), "mine").unwrap();
    let pid = home.daemon_pid();
    let result = home.push(&["purge", "--yes", "--force"]);
    assert_eq!((result.code, result.out.as_str()), (Some(0), ""), "{result:?}");
    assert!(result.err.contains("my-notes does not belong to pushd") && result.err.contains("my.log"), "{result:?}");
    assert!(!is_alive(pid));
    assert_eq!(names(&home, "state"), ["my-notes", "pushd.lock"]);
    assert_eq!(names(&home, "logs"), ["my.log"]);
    assert_eq!(names(&home, "cache"), ["my-cache"]);
    assert!(!home.any_file_contains("state", "lanted"));
    // Without a daemon there is nothing left to remove, and the next one starts from scratch.
    home.ok(&["purge", "--yes"]);
    assert!(home.daemon().is_none());
    assert_eq!(home.ok(&["sessions"]), "");
    home.ok(&["run", "$ true"]);
}

#[test]
fn a_purge_removes_caches_of_any_depth_and_counts_their_disk_usage() {
    let home = Home::new();
    let store = home.push_path("cache/0123456789abcdef0123456789abcdef");
    // A directory whose removal was interrupted.
    let interrupted = home.push_path("cache/removing-2-fedcba9876543210fedcba9876543210");
    for directory in [&store, &interrupted] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::File::create(store.join("sparse")).unwrap().set_len(1 << 40).unwrap();
    nest_directories(&store, 2_000);
    let counted = home.push(&["doctor"]).out;
    assert!(counted.contains("for 2 workspaces in") && !counted.contains("TiB"), "{counted}");
    let purge = format!("ulimit -n 128 && exec {} purge --yes", env!("CARGO_BIN_EXE_push"));
    let result = Running::start(home.program("/bin/sh", &["-c", &purge])).wait_for_output();
    assert_eq!((result.code, result.err.as_str()), (Some(0), ""), "{result:?}");
    assert!(!home.push_path("cache").exists(), "{:?}", names(&home, "cache"));
}

#[test]
fn a_purge_removes_pi_session_files_that_pushd_created_and_lists_the_imported_ones() {
    let home = Home::new();
    home.ok(&["run", "$ true"]);
    let file = |name: &str| {
        let path = home.path().join(".pi/agent/sessions").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "{\"type\":\"session\",\"version\":3,\"id\":\"x\"}\n").unwrap();
        path
    };
    let (created, imported, foreign) = (file("--w--/created.jsonl"), file("imported.jsonl"), file("foreign.jsonl"));
    let index = || {
        let text = json!({"version": 1, "files": [
            {"sessionId": "s", "path": created, "created": {"id": "s", "at": 1, "cwd": "/w"}},
            {"sessionId": "t", "path": imported},
        ]});
        fs::write(home.push_path("state/session-files.json"), text.to_string()).unwrap();
    };
    index();
    let result = home.push(&["purge", "--yes"]);
    assert_eq!(result.code, Some(0), "{result:?}");
    assert!(result.err.contains("imported.jsonl was imported and is kept; --with-pi-files"), "{result:?}");
    assert!(!created.exists() && imported.exists() && foreign.exists());
    assert!(!home.push_path("state/session-files.json").exists());
    index();
    home.ok(&["purge", "--yes", "--with-pi-files"]);
    assert!(!imported.exists() && foreign.exists());
}

#[test]
fn a_purge_does_not_touch_what_a_daemon_at_another_socket_uses() {
    let home = Home::new();
    home.ok(&["run", "$ echo planted-output"]);
    let mut command = home.command(&["purge", "--yes"]);
    let other = home.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o700)).unwrap();
    command.env("PUSHD_SOCKET", other.join("x.sock"));
    let result = Running::start(command).wait_for_output();
    assert_eq!(result.code, Some(1), "{result:?}");
    assert!(result.err.contains("another daemon holds"), "{result:?}");
    assert!(home.ok(&["log", "@last"]).contains("planted-output"));
}

#[test]
fn doctor_reports_no_problem_in_a_healthy_home() {
    let home = Home::new();
    let result = home.push(&["doctor"]);
    assert_eq!(result.code, Some(0), "{result:?}");
    assert!(result.out.contains("pushd is not running and nothing is stored yet"), "{result:?}");
    assert!(!home.push_path("").exists(), "looking has left something behind");
    home.ok(&["run", "$ true"]);
    for words in [&["doctor"][..], &["doctor", "--full"]] {
        let result = home.push(words);
        assert_eq!((result.code, result.err.as_str()), (Some(0), ""), "{result:?}");
        // The free disk space depends on the machine.
        let mut lines = result.out.lines().filter(|line| !line.contains("free at"));
        let advice = "         `readable = [\"~/…\"]` in the [sandbox] section of the configuration opens more";
        assert!(lines.all(|line| line.starts_with("ok  ") || line == advice), "{}", result.out);
    }
    let result = home.json(&["doctor", "--full", "--json"]);
    assert_eq!((&result["ok"], &result["journal"]["proof"]["sessions"]), (&json!(true), &json!(1)));
    home.ok(&["daemon", "stop"]);
    let result = home.push(&["doctor"]);
    assert_eq!(result.code, Some(0), "{result:?}");
    assert!(result.out.contains("note     daemon: pushd is not running; "), "{}", result.out);
    assert_eq!(home.push(&["doctor", "--full"]).code, Some(1), "what was asked for was not done");
    assert!(home.daemon().is_none(), "it starts none");
}

#[test]
fn doctor_lists_losses() {
    let home = Home::new();
    home.ok(&["run", "$ seq 60000"]);
    let session = home.json(&["show", "--json"])["sessionId"].clone();
    home.ok(&["daemon", "stop"]);
    let database = Connection::open(home.push_path("state/pushd.db")).unwrap();
    let (first, last): (i64, i64) = database
        .query_row("SELECT first, last FROM block ORDER BY first LIMIT 1 OFFSET 2", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    database.execute("UPDATE block SET bytes = zeroblob(length(bytes)) WHERE first = ?1", [first]).unwrap();
    drop(database);
    fs::write(home.push_path("state/pushd.db.damaged-7"), "set aside").unwrap();
    home.ok(&["daemon", "start"]);
    let result = home.push(&["doctor", "--full"]);
    assert_eq!(result.code, Some(1), "{result:?}");
    let line = format!("problem  losses: {} has lost events {first} to {last} (damage)", session.as_str().unwrap());
    assert!(result.out.contains(&line), "{}", result.out);
    assert!(result.out.contains("pushd.db.damaged-7 (9 B)"), "{}", result.out);
    let again = home.push(&["doctor", "--json"]);
    assert_eq!(again.code, Some(1), "it is named for a while");
    let level = |result: &ProgramOutput, about: &str| {
        let result = result.json();
        let findings = result["findings"].as_array().unwrap().clone();
        findings.into_iter().find(|finding| finding["about"] == about).unwrap_or_default()["level"].clone()
    };
    assert_eq!(level(&again, "losses"), "problem");
    // With a set-aside file, a deletion cannot guarantee that no data is left.
    let deleted = home.push(&["delete", "@last", "--yes"]);
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    assert!(deleted.err.contains("may still contain deleted data"), "{deleted:?}");
    let after = home.push(&["doctor", "--json"]);
    assert_eq!((after.code, level(&after, "losses")), (Some(0), json!("ok")), "{after:?}");
}

#[test]
fn doctor_reports_problems_of_directories_and_the_socket() {
    let home = Home::new();
    home.ok(&["run", "$ true"]);
    home.ok(&["daemon", "stop"]);
    fs::set_permissions(home.push_path("state"), fs::Permissions::from_mode(0o755)).unwrap();
    let result = home.push(&["doctor"]);
    assert_eq!(result.code, Some(1), "{result:?}");
    assert!(result.out.contains("is accessible to other users (mode 0755)\n         chmod 700 "), "{}", result.out);
    fs::set_permissions(home.push_path("state"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(home.push(&["doctor"]).code, Some(0));
    let mut command = home.command(&["doctor"]);
    command.env("PUSHD_SOCKET", home.path().join("x".repeat(120)));
    let result = Running::start(command).wait_for_output();
    assert_eq!(result.code, Some(1), "{result:?}");
    assert!(result.out.contains("problem  paths: ") && result.out.contains("PUSHD_SOCKET"), "{}", result.out);
    home.ok(&["daemon", "start"]);
    let other = home.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = home.command(&["doctor"]);
    command.env("PUSHD_SOCKET", other.join("x.sock"));
    let result = Running::start(command).wait_for_output();
    assert_eq!(result.code, Some(1), "{result:?}");
    assert!(result.out.contains("holds") && result.out.contains("does not answer"), "{}", result.out);
}

#[test]
fn doctor_reports_a_read_only_home() {
    let home = Home::new();
    let inside = format!(
        "mount -t tmpfs -o ro none '{0}' && exec '{1}' doctor",
        home.path().display(),
        env!("CARGO_BIN_EXE_push")
    );
    let mut arguments = vec!["--mount"];
    if !geteuid().is_root() {
        arguments.extend(["--user", "--map-root-user"]);
    }
    let can = Command::new("unshare").args(&arguments).args(["mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        return skip("a read-only file system cannot be mounted here");
    }
    arguments.extend(["/bin/sh", "-c", &inside]);
    let result = Running::start(home.program("unshare", &arguments)).wait_for_output();
    assert_eq!(result.code, Some(1), "{result:?}");
    assert!(
        result.out.contains("read-only file system: nothing can be stored") && result.out.contains("PUSH_HOME"),
        "{result:?}"
    );
}

#[test]
fn doctor_reports_an_unwritable_and_a_missing_home() {
    let home = Home::new();
    for (place, what) in [("/proc", "cannot create files in /proc"), ("/proc/none", "/proc/none does not exist")] {
        let mut command = home.command(&["doctor"]);
        command.env("HOME", place);
        let result = Running::start(command).wait_for_output();
        assert_eq!(result.code, Some(1), "{result:?}");
        assert!(result.out.contains(what) && result.out.contains("PUSH_HOME"), "{}", result.out);
    }
}

#[test]
fn doctor_reports_an_invalid_configuration_with_and_without_a_daemon() {
    let home = Home::new();
    fs::create_dir_all(home.path().join(".config/push")).unwrap();
    home.write(".config/push/config.toml", "# mine\nprovder = 1\n");
    for daemon in ["without", "with"] {
        if daemon == "with" {
            home.ok(&["daemon", "start"]);
        }
        let result = home.push(&["doctor"]);
        assert_eq!((result.code, result.err.as_str()), (Some(1), ""), "{daemon}: {result:?}");
        assert!(
            result.out.contains("problem  configuration: ") && result.out.contains("line 2"),
            "{daemon}: {}",
            result.out
        );
        assert_eq!(result.out.matches("problem  ").count(), 1, "{daemon}: {}", result.out);
        assert_eq!(result.out.contains(" is running (pid "), daemon == "with", "{daemon}: {}", result.out);
    }
}

#[test]
fn a_home_that_does_not_exist_is_not_created() {
    let home = Home::new();
    let missing = home.path().join("nobody");
    for words in [&["daemon", "run"][..], &["run", "$ true"], &["token", "new"], &["sessions"]] {
        let mut command = home.command(words);
        command.env("HOME", &missing);
        let result = Running::start(command).wait_for_output();
        assert!(
            result.code.is_some_and(|code| code != 0) && result.err.contains("does not exist"),
            "{words:?}: {result:?}"
        );
        assert_eq!(result.err.matches("does not exist").count(), 1, "{result:?}");
        assert!(!missing.exists(), "{words:?}");
    }
}

#[test]
fn every_json_finding_has_its_level() {
    let home = Home::new();
    home.ok(&["run", "$ true"]);
    let result = home.json(&["doctor", "--json"]);
    let findings = result["findings"].as_array().unwrap();
    assert!(findings.len() > 5, "{result}");
    for finding in findings {
        assert!(["ok", "note", "problem"].contains(&finding["level"].as_str().unwrap()), "{finding}");
        assert!(finding["about"].is_string() && finding["text"].is_string(), "{finding}");
    }
    assert_ne!(result["journal"], Value::Null);
}

/// Nests directories deeper than the longest path.
fn nest_directories(top: &Path, levels: usize) {
    let mut here = open(top, OFlag::O_RDONLY, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&here, "d", Mode::S_IRWXU).unwrap();
        here = openat(&here, "d", OFlag::O_RDONLY, Mode::empty()).unwrap();
    }
}

fn names(home: &Home, below: &str) -> Vec<String> {
    let entries = fs::read_dir(home.push_path(below)).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

impl Home {
    /// Whether any file in a directory of pushd contains a word.
    fn any_file_contains(&self, below: &str, word: &str) -> bool {
        fs::read_dir(self.push_path(below)).unwrap().flatten().any(|entry| {
            let bytes = fs::read(entry.path()).unwrap_or_default();
            bytes.windows(word.len()).any(|window| window == word.as_bytes())
        })
    }
}
