//! Files of a home that shells, sessions and programs execute at start: a tool writes them only with approval.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::daemon::Client;
use crate::ordinary_user::also_as_an_ordinary_user;
use crate::stage::Stage;

#[test]
fn start_up_files_of_a_home_are_asked_about_under_the_most_lenient_preset() {
    also_as_an_ordinary_user(
        "startup::start_up_files_of_a_home_are_asked_about_under_the_most_lenient_preset",
    );
    let stage = Stage::new();
    fs::write(stage.at(".config/push/config.toml"), "[approvals]\npreset = \"trusted\"\n").unwrap();
    let (mut client, session) = stage.session(&stage.at(""));
    for path in [
        ".bash_aliases",
        ".config/environment.d/x.conf",
        ".pam_environment",
        ".config/git/config",
        ".config/autostart/x.desktop",
        "bin/ls",
    ] {
        stage.script(&[("sandbox_write_file", json!({"path": path, "content": "x"}))]);
        client.prompt(&session, "write");
        let asked = asked_about(&mut client, path);
        assert_eq!(asked["payload"]["details"]["risk"], "critical", "{path}: {asked}");
        client.decide(&asked, "deny");
        client.event_of("run_complete");
        assert!(!stage.at(path).exists(), "{path}");
    }
    // An ordinary file needs no approval.
    stage.script(&[("sandbox_write_file", json!({"path": "notes.txt", "content": "x"}))]);
    client.prompt(&session, "write");
    let events = client.events_until("run_complete");
    assert!(events.iter().all(|event| event["type"] != "approval_required"), "{events:?}");
    assert!(stage.at("notes.txt").exists());
}

#[test]
fn a_link_to_a_start_up_file_is_asked_about_like_the_file() {
    also_as_an_ordinary_user("startup::a_link_to_a_start_up_file_is_asked_about_like_the_file");
    let stage = Stage::new();
    fs::write(stage.at(".config/push/config.toml"), "[approvals]\npreset = \"trusted\"\n").unwrap();
    fs::create_dir_all(stage.at(".config/environment.d")).unwrap();
    symlink("../.config/environment.d", stage.at("work/env")).unwrap();
    symlink("../.bash_aliases", stage.at("work/aliases")).unwrap();
    let (mut client, session) = stage.session(&stage.at(""));
    for path in ["work/env/x.conf", "work/aliases"] {
        stage.script(&[("sandbox_write_file", json!({"path": path, "content": "x"}))]);
        client.prompt(&session, "write");
        let asked = asked_about(&mut client, path);
        assert_eq!(asked["payload"]["details"]["risk"], "critical", "{path}: {asked}");
        client.decide(&asked, "deny");
        client.event_of("run_complete");
    }
    assert!(!stage.at(".bash_aliases").exists() && !stage.at(".config/environment.d/x.conf").exists());
}

#[test]
fn start_up_files_in_a_workspace_below_the_home_are_asked_about_unless_the_workspace_is_one_of_them() {
    also_as_an_ordinary_user(
        "startup::start_up_files_in_a_workspace_below_the_home_are_asked_about_unless_the_workspace_is_one_of_them",
    );
    let stage = Stage::new();
    fs::write(stage.at(".config/push/config.toml"), "[approvals]\npreset = \"trusted\"\n").unwrap();
    for (workspace, asked, free) in [
        (".config", &["environment.d/x.conf", "git/config", "nvim/init.lua"][..], &["tool/settings"][..]),
        (".local/share", &["applications/x.desktop", "systemd/user/x.service"], &["notes/x"]),
        (".config/nvim", &[], &["init.lua", "lua/plugins.lua"]),
        ("project", &[], &["src/main.rs", "bin/tool", "git/config"]),
    ] {
        fs::create_dir_all(stage.at(workspace)).unwrap();
        let (mut client, session) = stage.session(&stage.at(workspace));
        for path in asked {
            stage.script(&[("sandbox_write_file", json!({"path": path, "content": "x"}))]);
            client.prompt(&session, "write");
            let question = asked_about(&mut client, path);
            assert_eq!(question["payload"]["details"]["risk"], "critical", "{path}: {question}");
            client.decide(&question, "deny");
            client.event_of("run_complete");
            assert!(!stage.at(workspace).join(path).exists(), "{workspace}/{path}");
        }
        for path in free {
            stage.script(&[("sandbox_write_file", json!({"path": path, "content": "x"}))]);
            client.prompt(&session, "write");
            let events = client.events_until("run_complete");
            assert!(events.iter().all(|event| event["type"] != "approval_required"), "{path}: {events:?}");
            assert!(stage.at(workspace).join(path).exists(), "{workspace}/{path}: {events:?}");
        }
    }
}

/// Waits for the approval request of a write, which must come before the run ends.
fn asked_about(client: &mut Client, path: &str) -> Value {
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
