//! Paths at which a daemon could block for ever: every client gets a reply, and the daemon stops when asked to.

use std::fs;
use std::path::Path;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;

use crate::support::ordinary_user::also_as_an_ordinary_user;
use crate::workspaces::fixture::{Fixture, outcome, run_and_approve, tool_results};

#[test]
fn a_fifo_as_project_configuration_blocks_no_client() {
    also_as_an_ordinary_user(a_fifo_as_project_configuration_blocks_no_client);
    let mut fixture = Fixture::new();
    fs::create_dir(fixture.path("work/.push")).unwrap();
    fifo(&fixture.path("work/.push/config.toml"));
    let mut client = fixture.daemon.connect();
    let answer = client.ask("start_session", fixture.start(&fixture.path("work")));
    assert_eq!(answer["ok"], false, "{answer}");
    assert!(answer.to_string().contains("is a FIFO, not a regular file"), "{answer}");
    assert_eq!(answer["error"]["code"], "INVALID_CONFIGURATION", "{answer}");
    // A FIFO above it counts too, up to the repository.
    fs::create_dir(fixture.path("work/.git")).unwrap();
    assert_eq!(client.ask("start_session", fixture.start(&fixture.path("work/sub")))["ok"], false);
    fixture.daemon.connect().ping();
    fixture.daemon.stop();
}

#[test]
fn a_fifo_that_appears_under_a_session_fails_its_runs_and_nothing_else() {
    also_as_an_ordinary_user(a_fifo_that_appears_under_a_session_fails_its_runs_and_nothing_else);
    let mut fixture = Fixture::new();
    let (mut client, session) = fixture.session(&fixture.path("work"));
    fs::create_dir(fixture.path("work/.push")).unwrap();
    fifo(&fixture.path("work/.push/config.toml"));
    let (ended, text) = outcome(&run_and_approve(&mut client, &session, "go"));
    assert_eq!(ended, "failed", "{text}");
    assert!(text.contains("is a FIFO"), "{text}");
    // The steps of a playbook come from the user, and follow the same rules.
    let mut other = fixture.daemon.connect();
    let start = json!({"cwd": fixture.path("work/sub"), "environment": fixture.environment()});
    let playbook = other.get("start_session", start)["sessionId"].as_str().unwrap().to_owned();
    fs::create_dir(fixture.path("work/sub/.push")).unwrap();
    fifo(&fixture.path("work/sub/.push/config.toml"));
    let (ended, text) = outcome(&run_and_approve(&mut other, &playbook, "$ echo hello"));
    assert_eq!(ended, "failed", "{text}");
    fixture.daemon.connect().ping();
    fixture.daemon.stop();
}

#[test]
fn a_fifo_among_the_files_for_the_model_is_neither_waited_for_nor_read() {
    also_as_an_ordinary_user(a_fifo_among_the_files_for_the_model_is_neither_waited_for_nor_read);
    let mut fixture = Fixture::new();
    for name in [".gitignore", ".ignore", "AGENTS.md", "pipe", "sub/.gitignore"] {
        fifo(&fixture.path("work").join(name));
    }
    fs::write(fixture.path("work/file"), "needle\n").unwrap();
    let (mut client, session) = fixture.session(&fixture.path("work"));
    let calls = [
        ("sandbox_search", json!({"pattern": "needle"})),
        ("sandbox_read_file", json!({"path": "pipe"})),
        ("sandbox_write_file", json!({"path": "pipe", "content": "x"})),
        ("sandbox_edit_file", json!({"path": ".gitignore", "old": "a", "new": "b"})),
        ("sandbox_list_dir", json!({"depth": 3})),
    ];
    fixture.script(&calls);
    let events = run_and_approve(&mut client, &session, "go");
    let results = tool_results(&events);
    assert_eq!(results.len(), calls.len(), "{events:?}");
    assert!(results[0].2.contains("needle") && results[0].2.contains("is not a regular file"), "{results:?}");
    for (status, kind, text) in &results[1..4] {
        assert_eq!((status.as_str(), kind.as_str()), ("failed", "NOT_A_FILE"), "{text}");
    }
    assert_eq!(results[4].0, "done");
    fixture.daemon.stop();
}

#[test]
fn a_fifo_as_a_directory_or_on_the_way_to_one_is_an_error() {
    also_as_an_ordinary_user(a_fifo_as_a_directory_or_on_the_way_to_one_is_an_error);
    let mut fixture = Fixture::new();
    fifo(&fixture.path("pipe"));
    let mut client = fixture.daemon.connect();
    for cwd in ["pipe", "pipe/below", "none"] {
        assert_eq!(client.refused("start_session", fixture.start(&fixture.path(cwd))), "SANDBOX_UNAVAILABLE", "{cwd}");
    }
    // The kind of `.git` only decides how far up project files are searched.
    fifo(&fixture.path("work/.git"));
    let (mut client, session) = fixture.session(&fixture.path("work/sub"));
    fixture.script(&[]);
    assert_eq!(outcome(&run_and_approve(&mut client, &session, "go")).0, "success");
    fixture.daemon.stop();
}

#[test]
fn a_huge_configuration_of_a_project_is_refused_and_costs_little() {
    also_as_an_ordinary_user(a_huge_configuration_of_a_project_is_refused_and_costs_little);
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("work/.push")).unwrap();
    let file = fs::File::create(fixture.path("work/.push/config.toml")).unwrap();
    file.set_len(8 << 30).unwrap();
    let mut client = fixture.daemon.connect();
    let answer = client.ask("start_session", fixture.start(&fixture.path("work")));
    assert!(answer.to_string().contains("more than 1048576 bytes"), "{answer}");
}

#[test]
fn a_configuration_that_is_a_device_is_not_opened() {
    also_as_an_ordinary_user(a_configuration_that_is_a_device_is_not_opened);
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("work/.push")).unwrap();
    for device in ["/dev/zero", "/dev/tty", "/dev/ptmx"] {
        let _was = fs::remove_file(fixture.path("work/.push/config.toml"));
        std::os::unix::fs::symlink(device, fixture.path("work/.push/config.toml")).unwrap();
        let mut client = fixture.daemon.connect();
        let answer = client.ask("start_session", fixture.start(&fixture.path("work")));
        assert!(answer.to_string().contains("is a device, not a regular file"), "{device}: {answer}");
    }
}

#[test]
fn a_huge_ignore_file_does_not_exhaust_memory() {
    also_as_an_ordinary_user(a_huge_ignore_file_does_not_exhaust_memory);
    let fixture = Fixture::new();
    let mut patterns = String::new();
    for number in 0..500_000 {
        patterns.push_str(&format!("*x{number}*y?\n"));
    }
    fs::write(fixture.path("work/.gitignore"), &patterns).unwrap();
    fs::write(fixture.path("work/file"), "needle\n").unwrap();
    assert!(patterns.len() > 5_000_000);
    let (mut client, session) = fixture.session(&fixture.path("work"));
    fixture.script(&[("sandbox_search", json!({"pattern": "needle"}))]);
    let events = run_and_approve(&mut client, &session, "go");
    let (_, _, text) = &tool_results(&events)[0];
    assert!(text.contains("needle") && text.contains("patterns are used"), "{text}");
    let status = fs::read_to_string(format!("/proc/{}/status", fixture.daemon.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kibibytes: u64 = peak.trim().trim_end_matches("kB").trim().parse().unwrap();
    assert!(kibibytes < 500 * 1024, "the daemon took {kibibytes} KiB");
}

fn fifo(path: &Path) {
    mkfifo(path, Mode::S_IRWXU).unwrap();
}
