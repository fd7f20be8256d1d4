//! Files of a home that shells, sessions and programs execute at start: a tool writes them only with approval.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::support::daemon::Client;
use crate::support::ordinary_user::also_as_an_ordinary_user;
use crate::workspaces::fixture::Fixture;

#[test]
fn startup_files_of_a_home_need_approval_under_the_most_lenient_preset() {
    also_as_an_ordinary_user(startup_files_of_a_home_need_approval_under_the_most_lenient_preset);
    let fixture = Fixture::new();
    fs::write(fixture.path(".config/push/config.toml"), "[approvals]\npreset = \"trusted\"\n").unwrap();
    let (mut client, session) = fixture.session(&fixture.path(""));
    for path in [
        ".bash_aliases",
        ".config/environment.d/x.conf",
        ".pam_environment",
        ".config/git/config",
        ".config/autostart/x.desktop",
        "bin/ls",
    ] {
        fixture.script(&[("sandbox_write_file", json!({"path": path, "content": "x"}))]);
        client.prompt(&session, "write");
        let protected = write_approval_request(&mut client, path);
        assert_eq!(protected["payload"]["details"]["risk"], "critical", "{path}: {protected}");
        client.decide(&protected, "deny");
        client.event_of("run_complete");
        assert!(!fixture.path(path).exists(), "{path}");
    }
    // An ordinary file needs no approval.
    fixture.script(&[("sandbox_write_file", json!({"path": "notes.txt", "content": "x"}))]);
    client.prompt(&session, "write");
    let events = client.events_until("run_complete");
    assert!(events.iter().all(|event| event["type"] != "approval_required"), "{events:?}");
    assert!(fixture.path("notes.txt").exists());
}

#[test]
fn a_link_to_a_startup_file_needs_approval_like_the_file() {
    also_as_an_ordinary_user(a_link_to_a_startup_file_needs_approval_like_the_file);
    let fixture = Fixture::new();
    fs::write(fixture.path(".config/push/config.toml"), "[approvals]\npreset = \"trusted\"\n").unwrap();
    fs::create_dir_all(fixture.path(".config/environment.d")).unwrap();
    symlink("../.config/environment.d", fixture.path("work/env")).unwrap();
    symlink("../.bash_aliases", fixture.path("work/aliases")).unwrap();
    let (mut client, session) = fixture.session(&fixture.path(""));
    for path in ["work/env/x.conf", "work/aliases"] {
        fixture.script(&[("sandbox_write_file", json!({"path": path, "content": "x"}))]);
        client.prompt(&session, "write");
        let protected = write_approval_request(&mut client, path);
        assert_eq!(protected["payload"]["details"]["risk"], "critical", "{path}: {protected}");
        client.decide(&protected, "deny");
        client.event_of("run_complete");
    }
    assert!(!fixture.path(".bash_aliases").exists() && !fixture.path(".config/environment.d/x.conf").exists());
}

#[test]
fn startup_files_in_a_workspace_below_the_home_need_approval_unless_the_workspace_is_one_of_them() {
    also_as_an_ordinary_user(
        startup_files_in_a_workspace_below_the_home_need_approval_unless_the_workspace_is_one_of_them,
    );
    let fixture = Fixture::new();
    fs::write(fixture.path(".config/push/config.toml"), "[approvals]\npreset = \"trusted\"\n").unwrap();
    for (workspace, protected, free) in [
        (".config", &["environment.d/x.conf", "git/config", "nvim/init.lua"][..], &["tool/settings"][..]),
        (".local/share", &["applications/x.desktop", "systemd/user/x.service"], &["notes/x"]),
        (".config/nvim", &[], &["init.lua", "lua/plugins.lua"]),
        ("project", &[], &["src/main.rs", "bin/tool", "git/config"]),
    ] {
        fs::create_dir_all(fixture.path(workspace)).unwrap();
        let (mut client, session) = fixture.session(&fixture.path(workspace));
        for path in protected {
            fixture.script(&[("sandbox_write_file", json!({"path": path, "content": "x"}))]);
            client.prompt(&session, "write");
            let question = write_approval_request(&mut client, path);
            assert_eq!(question["payload"]["details"]["risk"], "critical", "{path}: {question}");
            client.decide(&question, "deny");
            client.event_of("run_complete");
            assert!(!fixture.path(workspace).join(path).exists(), "{workspace}/{path}");
        }
        for path in free {
            fixture.script(&[("sandbox_write_file", json!({"path": path, "content": "x"}))]);
            client.prompt(&session, "write");
            let events = client.events_until("run_complete");
            assert!(events.iter().all(|event| event["type"] != "approval_required"), "{path}: {events:?}");
            assert!(fixture.path(workspace).join(path).exists(), "{workspace}/{path}: {events:?}");
        }
    }
}

/// Waits for the approval request of a write, which must come before the run ends.
fn write_approval_request(client: &mut Client, path: &str) -> Value {
    let mut before = Vec::new();
    loop {
        let event = client.event();
        if event["type"] == "approval_required" {
            return event;
        }
        assert_ne!(event["type"], "run_complete", "{path} was not asked about: {before:?}");
        before.push(event);
    }
}
