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

use super::home::{Home, Running, Said, is_alive, until};
use super::skip::skip;

#[test]
fn a_deleted_session_is_really_gone() {
    let home = Home::new();
    home.ok(&["run", "--name", "planted-name", "Planted-words.\n\n$ echo planted-output"]);
    home.ok(&["run", "$ echo kept"]);
    let kept = home.json(&["show", "@last", "--json"])["sessionId"].clone();
    let all = home.json(&["sessions", "--json"]);
    let gone = all["sessions"][1]["sessionId"].as_str().unwrap();
    assert!(home.holds("state", "lanted-"));
    let said = home.push(&["delete", gone]);
    assert_eq!((said.code, said.out.as_str()), (Some(64), ""), "nobody agreed: {said:?}");
    assert!(said.err.contains("--yes"), "{said:?}");
    assert!(home.holds("state", "lanted-"));
    let said = home.push(&["delete", &gone[5..], gone, "--yes", "--json"]).json();
    assert_eq!((&said["deleted"][0]["sessionId"], &said["skipped"]), (&json!(gone), &json!([])));
    assert_eq!(said["deleted"].as_array().unwrap().len(), 1, "it was named twice");
    assert_eq!(said["bytes"], said["deleted"][0]["bytes"]);
    assert!(!home.holds("state", "lanted-") && !home.holds("logs", "lanted-"));
    assert_eq!(home.json(&["sessions", "--json"])["sessions"][0]["sessionId"], kept);
    for words in [&["show", gone][..], &["log", gone], &["delete", gone, "--yes"], &["send", gone, "x"]] {
        let said = home.push(words);
        let code = if words[0] == "delete" { 1 } else { 64 };
        assert_eq!(said.code, Some(code), "{words:?}: {said:?}");
        assert!(said.err.contains("no session"), "{words:?}: {said:?}");
    }
    // An unknown session is reported even where the deletion cannot be confirmed.
    for words in [&["delete", "nosuch", "--yes"][..], &["delete", "nosuch"]] {
        let said = home.push(words);
        assert!(said.code == Some(64) && said.err.contains("no session"), "{words:?}: {said:?}");
        assert!(!said.err.contains("--yes"), "{words:?}: {said:?}");
    }
    home.ok(&["delete", "@last", "--yes"]);
    assert_eq!(home.ok(&["sessions"]), "");
}

#[test]
fn old_sessions_are_deleted_and_those_at_work_are_named() {
    let home = Home::new();
    home.ok(&["run", "$ echo one"]);
    let busy = home.detached("$? echo two");
    home.until_asked();
    let none = home.json(&["delete", "--older-than", "1h", "--yes", "--json"]);
    assert_eq!(none, json!({"deleted": [], "skipped": [], "bytes": 0}));
    let said = home.push(&["delete", "--older-than", "0m", "--yes", "--json"]);
    assert_eq!(said.code, Some(1), "one stayed: {said:?}");
    assert!(said.err.contains(&busy) && said.err.contains("cancel it first"), "{said:?}");
    let report = said.json();
    assert_eq!(report["deleted"].as_array().unwrap().len(), 1);
    assert_eq!(report["skipped"][0]["sessionId"], busy.as_str());
    let left = home.json(&["sessions", "--json"]);
    assert_eq!(left["sessions"].as_array().unwrap().len(), 1);
    home.ok(&["cancel", &busy]);
    home.push(&["wait", &busy]);
    home.ok(&["delete", &busy, "--yes"]);
}

#[test]
fn who_watches_a_session_that_is_deleted_is_told() {
    let home = Home::new();
    home.ok(&["run", "$ echo one"]);
    let mut log = home.start(&["log", "--follow"]);
    log.until_line("success");
    home.ok(&["delete", "@last", "--yes"]);
    let said = log.said();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("was deleted"), "{said:?}");
}

#[test]
fn the_log_of_a_cut_session_shows_what_is_left() {
    let home = Home::with(&[("PUSH_SESSION_BYTES", "400000"), ("PUSH_PARK_SECONDS", "0.05")]);
    home.ok(&["run", "$ seq 200000"]);
    until("the session to be parked", || home.ok(&["daemon", "status"]).contains("(0 in memory)"));
    home.ok(&["run", "--session", "@last", "$ echo newest"]);
    until("the oldest events to be cut", || !home.ok(&["log"]).contains("\n  1\n  2\n"));
    let log = home.ok(&["log"]);
    assert!(log.contains("  200000\n") && log.ends_with("success: 1 step done\n"), "{}", log.len());
    assert!(log.contains("  newest\n"));
    let events = home.push(&["log", "--jsonl"]).events();
    assert!(events[0]["seq"].as_u64() > Some(1), "{}", events[0]);
    assert_eq!(events.last().unwrap()["type"], "run_complete");
    assert_eq!(home.push(&["doctor"]).code, Some(0));
}

#[test]
fn a_purge_leaves_nothing_of_ours_and_everything_else() {
    let home = Home::new();
    home.ok(&["run", "Planted.\n\n$ echo planted-output"]);
    let said = home.push(&["purge"]);
    assert_eq!(said.code, Some(64), "nobody agreed: {said:?}");
    let session = home.detached("$? echo asked");
    home.until_asked();
    let said = home.push(&["purge", "--yes"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("1 run is active"), "{said:?}");
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
    let said = home.push(&["purge", "--yes", "--force"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "{said:?}");
    assert!(
        said.err.contains("my-notes does not belong to pushd") && said.err.contains("my.log"),
        "{said:?}"
    );
    assert!(!is_alive(pid));
    assert_eq!(names(&home, "state"), ["my-notes", "pushd.lock"]);
    assert_eq!(names(&home, "logs"), ["my.log"]);
    assert_eq!(names(&home, "cache"), ["my-cache"]);
    assert!(!home.holds("state", "lanted"));
    // Without a daemon there is nothing left to remove, and the next one starts from scratch.
    home.ok(&["purge", "--yes"]);
    assert!(home.daemon().is_none());
    assert_eq!(home.ok(&["sessions"]), "");
    home.ok(&["run", "$ true"]);
}

#[test]
fn a_purge_removes_caches_of_any_depth_and_counts_what_they_take_on_the_disk() {
    let home = Home::new();
    let store = home.push_path("cache/0123456789abcdef0123456789abcdef");
    // A directory whose removal was interrupted.
    let interrupted = home.push_path("cache/removing-2-fedcba9876543210fedcba9876543210");
    for directory in [&store, &interrupted] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::File::create(store.join("sparse")).unwrap().set_len(1 << 40).unwrap();
    deepen(&store, 2_000);
    let counted = home.push(&["doctor"]).out;
    assert!(counted.contains("for 2 workspaces in") && !counted.contains("TiB"), "{counted}");
    let purge = format!("ulimit -n 128 && exec {} purge --yes", env!("CARGO_BIN_EXE_push"));
    let said = Running::start(home.program("/bin/sh", &["-c", &purge])).said();
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
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
    let (created, imported, foreign) =
        (file("--w--/created.jsonl"), file("imported.jsonl"), file("foreign.jsonl"));
    let index = || {
        let text = json!({"version": 1, "files": [
            {"sessionId": "s", "path": created, "created": {"id": "s", "at": 1, "cwd": "/w"}},
            {"sessionId": "t", "path": imported},
        ]});
        fs::write(home.push_path("state/session-files.json"), text.to_string()).unwrap();
    };
    index();
    let said = home.push(&["purge", "--yes"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("imported.jsonl was imported and is kept; --with-pi-files"), "{said:?}");
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
    let said = Running::start(command).said();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("another daemon holds"), "{said:?}");
    assert!(home.ok(&["log", "@last"]).contains("planted-output"));
}

#[test]
fn a_doctor_finds_nothing_wrong_where_nothing_is() {
    let home = Home::new();
    let said = home.push(&["doctor"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("pushd is not running and nothing is stored yet"), "{said:?}");
    assert!(!home.push_path("").exists(), "looking has left something behind");
    home.ok(&["run", "$ true"]);
    for words in [&["doctor"][..], &["doctor", "--full"]] {
        let said = home.push(words);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
        // The free disk space depends on the machine.
        let mut lines = said.out.lines().filter(|line| !line.contains("free at"));
        assert!(lines.all(|line| line.starts_with("ok  ")), "{}", said.out);
    }
    let said = home.json(&["doctor", "--full", "--json"]);
    assert_eq!((&said["ok"], &said["journal"]["proof"]["sessions"]), (&json!(true), &json!(1)));
    home.ok(&["daemon", "stop"]);
    let said = home.push(&["doctor"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("note     daemon: pushd is not running; "), "{}", said.out);
    assert_eq!(home.push(&["doctor", "--full"]).code, Some(1), "what was asked for was not done");
    assert!(home.daemon().is_none(), "it starts none");
}

#[test]
fn a_doctor_names_what_was_lost() {
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
    let said = home.push(&["doctor", "--full"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let line =
        format!("problem  losses: {} has lost events {first} to {last} (damage)", session.as_str().unwrap());
    assert!(said.out.contains(&line), "{}", said.out);
    assert!(said.out.contains("pushd.db.damaged-7 (9 B)"), "{}", said.out);
    let again = home.push(&["doctor", "--json"]);
    assert_eq!(again.code, Some(1), "it is named for a while");
    let level = |said: &Said, about: &str| {
        let said = said.json();
        let findings = said["findings"].as_array().unwrap().clone();
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
fn a_doctor_says_what_is_wrong_with_directories_and_the_socket() {
    let home = Home::new();
    home.ok(&["run", "$ true"]);
    home.ok(&["daemon", "stop"]);
    fs::set_permissions(home.push_path("state"), fs::Permissions::from_mode(0o755)).unwrap();
    let said = home.push(&["doctor"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.out.contains("is accessible to other users (mode 0755)\n         chmod 700 "),
        "{}",
        said.out
    );
    fs::set_permissions(home.push_path("state"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(home.push(&["doctor"]).code, Some(0));
    let mut command = home.command(&["doctor"]);
    command.env("PUSHD_SOCKET", home.path().join("x".repeat(120)));
    let said = Running::start(command).said();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("problem  paths: ") && said.out.contains("PUSHD_SOCKET"), "{}", said.out);
    home.ok(&["daemon", "start"]);
    let other = home.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = home.command(&["doctor"]);
    command.env("PUSHD_SOCKET", other.join("x.sock"));
    let said = Running::start(command).said();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("holds") && said.out.contains("does not answer"), "{}", said.out);
}

#[test]
fn a_doctor_tells_a_read_only_home() {
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
    let can =
        Command::new("unshare").args(&arguments).args(["mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        return skip("a read-only file system cannot be mounted here");
    }
    arguments.extend(["/bin/sh", "-c", &inside]);
    let said = Running::start(home.program("unshare", &arguments)).said();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.out.contains("read-only file system: nothing can be stored") && said.out.contains("PUSH_HOME"),
        "{said:?}"
    );
}

#[test]
fn a_doctor_finds_a_home_that_cannot_be_written_and_one_that_is_not_there() {
    let home = Home::new();
    for (place, what) in
        [("/proc", "cannot create files in /proc"), ("/proc/none", "/proc/none does not exist")]
    {
        let mut command = home.command(&["doctor"]);
        command.env("HOME", place);
        let said = Running::start(command).said();
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.out.contains(what) && said.out.contains("PUSH_HOME"), "{}", said.out);
    }
}

#[test]
fn a_doctor_finds_a_broken_configuration_with_and_without_a_daemon() {
    let home = Home::new();
    fs::create_dir_all(home.path().join(".config/push")).unwrap();
    home.write(".config/push/config.toml", "# mine\nprovder = 1\n");
    for daemon in ["without", "with"] {
        if daemon == "with" {
            home.ok(&["daemon", "start"]);
        }
        let said = home.push(&["doctor"]);
        assert_eq!((said.code, said.err.as_str()), (Some(1), ""), "{daemon}: {said:?}");
        assert!(
            said.out.contains("problem  configuration: ") && said.out.contains("line 2"),
            "{daemon}: {}",
            said.out
        );
        assert_eq!(said.out.matches("problem  ").count(), 1, "{daemon}: {}", said.out);
        assert_eq!(said.out.contains(" is running (pid "), daemon == "with", "{daemon}: {}", said.out);
    }
}

#[test]
fn a_home_that_does_not_exist_is_not_created() {
    let home = Home::new();
    let missing = home.path().join("nobody");
    for words in [&["daemon", "run"][..], &["run", "$ true"], &["token", "new"], &["sessions"]] {
        let mut command = home.command(words);
        command.env("HOME", &missing);
        let said = Running::start(command).said();
        assert!(
            said.code.is_some_and(|code| code != 0) && said.err.contains("does not exist"),
            "{words:?}: {said:?}"
        );
        assert_eq!(said.err.matches("does not exist").count(), 1, "{said:?}");
        assert!(!missing.exists(), "{words:?}");
    }
}

#[test]
fn for_programs_every_finding_has_its_level() {
    let home = Home::new();
    home.ok(&["run", "$ true"]);
    let said = home.json(&["doctor", "--json"]);
    let findings = said["findings"].as_array().unwrap();
    assert!(findings.len() > 5, "{said}");
    for finding in findings {
        assert!(["ok", "note", "problem"].contains(&finding["level"].as_str().unwrap()), "{finding}");
        assert!(finding["about"].is_string() && finding["text"].is_string(), "{finding}");
    }
    assert_ne!(said["journal"], Value::Null);
}

/// Nests directories deeper than the longest path.
fn deepen(top: &Path, levels: usize) {
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
    fn holds(&self, below: &str, word: &str) -> bool {
        fs::read_dir(self.push_path(below)).unwrap().flatten().any(|entry| {
            let bytes = fs::read(entry.path()).unwrap_or_default();
            bytes.windows(word.len()).any(|window| window == word.as_bytes())
        })
    }
}
