//! Files that are hidden from commands, and the file tools: in a home that is the workspace, and in a home inside the
//! workspace.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::daemon::Client;
use crate::stage::{SECRET, Stage, finish, results, run};

const LENIENT: &str = "[approvals]\npreset = \"trusted\"\n";

#[test]
fn what_is_hidden_from_commands_is_asked_about_in_a_home_that_is_the_workspace() {
    let stage = home();
    symlink(".gemini/oauth", stage.at("link")).unwrap();
    let (mut client, session) = stage.session(&stage.at(""));
    for (tool, args) in [
        ("sandbox_read_file", json!({"path": ".gemini/oauth"})),
        ("sandbox_read_file", json!({"path": ".GEMINI/../.gemini/oauth"})),
        ("sandbox_read_file", json!({"path": "link"})),
        ("sandbox_read_file", json!({"path": ".cargo/credentials.toml.bak"})),
        ("sandbox_list_dir", json!({"path": ".gemini"})),
        ("sandbox_list_dir", json!({"path": ".config"})),
        ("sandbox_search", json!({"pattern": "private", "path": ".gemini"})),
        ("sandbox_write_file", json!({"path": ".newtool/settings", "content": "x"})),
        ("sandbox_edit_file", json!({"path": ".gemini/oauth", "old": "private", "new": "public"})),
    ] {
        stage.script(&[(tool, args.clone())]);
        client.prompt(&session, "go");
        let asked = asked(&mut client, &args);
        let reason = asked["payload"]["details"]["reason"].as_str().unwrap();
        assert!(reason.contains("hidden from commands"), "{tool} {args}: {asked}");
        client.decide(&asked, "deny");
        let events = client.events_until("run_complete");
        assert!(!format!("{:?}", results(&events)).contains(SECRET), "{tool} {args}: {events:?}");
    }
    assert!(!stage.at(".newtool").exists());
    assert_eq!(fs::read_to_string(stage.at(".gemini/oauth")).unwrap(), SECRET);
    // One approval is enough.
    stage.script(&[("sandbox_read_file", json!({"path": ".gemini/oauth"}))]);
    let [(status, _, said)] = &results(&run(&mut client, &session, "go"))[..] else { panic!("one result") };
    assert!(status == "done" && said.contains(SECRET), "{said}");
}

#[test]
fn listings_and_searches_of_a_home_leave_out_what_is_hidden_from_commands() {
    let stage = home();
    let (mut client, session) = stage.session(&stage.at(""));
    let calls = [
        ("sandbox_search", json!({"pattern": "a-private-key"})),
        ("sandbox_search", json!({"glob": "oauth"})),
        ("sandbox_list_dir", json!({"depth": 3})),
        ("sandbox_read_file", json!({"path": ".cargo/config.toml"})),
        ("sandbox_read_file", json!({"path": "notes/plain"})),
    ];
    stage.script(&calls);
    client.prompt(&session, "go");
    let events = client.events_until("run_complete");
    assert!(events.iter().all(|event| event["type"] != "approval_required"), "{events:?}");
    let results = results(&events);
    assert_eq!(results.len(), calls.len());
    for ((tool, args), (status, _, said)) in calls.iter().zip(&results) {
        assert_eq!(status, "done", "{tool} {args}: {said}");
        assert!(!said.contains(SECRET) && !said.contains(".gemini"), "{tool} {args}: {said}");
    }
    assert!(results[2].2.contains("plain") && results[4].2.contains("seen"), "{results:?}");
}

#[test]
fn a_yes_to_one_hidden_file_is_none_to_another_that_a_link_then_leads_to() {
    let stage = home();
    symlink(".gemini/settings", stage.at("link")).unwrap();
    let (mut client, session) = stage.session(&stage.at(""));
    stage.script(&[("sandbox_read_file", json!({"path": "link"}))]);
    client.prompt(&session, "go");
    let asked = asked(&mut client, &json!("link"));
    fs::remove_file(stage.at("link")).unwrap();
    symlink(".gemini/oauth", stage.at("link")).unwrap();
    client.decide(&asked, "approve");
    let [(status, kind, said)] = &results(&finish(&mut client))[..] else { panic!("one result") };
    assert_eq!((status.as_str(), kind.as_str()), ("failed", "APPROVAL_STALE"), "{said}");
}

#[test]
fn a_home_inside_the_workspace_is_closed_to_file_tools_except_for_what_is_opened() {
    let stage = Stage::new();
    for (name, text) in [("notes", SECRET), (".gemini/oauth", SECRET), (".cargo/config.toml", "[build]")] {
        file(&stage.at("work/ann").join(name), text);
    }
    file(&stage.at("work/plain"), "seen");
    symlink("ann/notes", stage.at("work/link")).unwrap();
    let mut start = stage.start(&stage.at("work"));
    start["environment"]["HOME"] = json!(stage.at("work/ann"));
    let mut client = stage.daemon.connect();
    let session = client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned();
    let closed = [
        ("sandbox_read_file", json!({"path": "ann/notes"})),
        ("sandbox_read_file", json!({"path": "link"})),
        ("sandbox_read_file", json!({"path": "ann/.gemini/oauth"})),
        ("sandbox_list_dir", json!({"path": "ann"})),
        ("sandbox_search", json!({"pattern": "private", "path": "ann"})),
        ("sandbox_write_file", json!({"path": "ann/new", "content": "x"})),
        ("sandbox_edit_file", json!({"path": "ann/notes", "old": "private", "new": "public"})),
    ];
    stage.script(&closed);
    for ((tool, args), (status, kind, said)) in closed.iter().zip(results(&run(&mut client, &session, "go")))
    {
        assert_eq!((status.as_str(), kind.as_str()), ("failed", "HIDDEN_PATH"), "{tool} {args}: {said}");
    }
    stage.script(&[
        ("sandbox_search", json!({"pattern": "a-private-key"})),
        ("sandbox_list_dir", json!({"depth": 3})),
        ("sandbox_read_file", json!({"path": "ann/.cargo/config.toml"})),
        ("sandbox_read_file", json!({"path": "plain"})),
    ]);
    let results = results(&run(&mut client, &session, "go"));
    assert_eq!(results.len(), 4, "{results:?}");
    assert!(results.iter().all(|(status, ..)| status == "done"), "{results:?}");
    assert!(!format!("{results:?}").contains(SECRET), "{results:?}");
    assert!(!results[1].2.contains("oauth") && results[2].2.contains("[build]"), "{results:?}");
}

#[test]
fn paths_of_git_tools_are_closed_like_those_of_file_tools_where_nothing_confines() {
    let stage = Stage::new();
    let git = |words: &[&str]| {
        let name = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        let done = Command::new("git").args(name).args(words).current_dir(stage.at("")).output().unwrap();
        assert!(done.status.success(), "git {words:?}: {done:?}");
    };
    file(&stage.at(".gemini/oauth"), "before");
    git(&["init", "-q"]);
    git(&["add", "-f", ".ssh/id_ed25519", ".gemini/oauth"]);
    git(&["commit", "-q", "-m", "begin"]);
    fs::write(stage.at(".ssh/id_ed25519"), "changed").unwrap();
    fs::write(stage.at(".config/push/config.toml"), LENIENT).unwrap();
    let mut start = stage.start(&stage.at(""));
    start["sandboxProvider"] = json!("none");
    let mut client = stage.daemon.connect();
    let session = client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned();
    let calls = [
        ("sandbox_git_diff", json!({"paths": [".ssh/id_ed25519"]})),
        ("sandbox_git_diff", json!({"paths": ["./x/../.ssh"]})),
        ("sandbox_git_commit", json!({"message": "m", "paths": [".ssh/id_ed25519"]})),
    ];
    stage.script(&calls);
    for ((tool, args), (status, kind, said)) in calls.iter().zip(results(&run(&mut client, &session, "go"))) {
        assert_eq!((status.as_str(), kind.as_str()), ("failed", "HIDDEN_PATH"), "{tool} {args}: {said}");
    }
    // Hidden files need approval, also as part of a whole diff.
    for args in [json!({"paths": [".gemini"]}), json!({})] {
        stage.script(&[("sandbox_git_diff", args.clone())]);
        client.prompt(&session, "go");
        let asked = asked(&mut client, &args);
        client.decide(&asked, "deny");
        client.event_of("run_complete");
    }
}

/// A home with an agent's token, a copy of credentials and ordinary files, under the most lenient preset.
fn home() -> Stage {
    let stage = Stage::new();
    fs::write(stage.at(".config/push/config.toml"), LENIENT).unwrap();
    for (name, text) in [
        (".gemini/oauth", SECRET),
        (".gemini/settings", "{}"),
        (".config/tool/token", SECRET),
        (".cargo/config.toml", "[build]\n"),
        (".cargo/credentials.toml.bak", SECRET),
        ("notes/plain", "seen"),
    ] {
        file(&stage.at(name), text);
    }
    stage
}

fn file(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Waits for the approval request of a call, which must come before the run ends.
fn asked(client: &mut Client, about: &Value) -> Value {
    let mut before = Vec::new();
    loop {
        let event = client.event();
        if event["type"] == "approval_required" {
            return event;
        }
        assert_ne!(event["type"], "run_complete", "{about} was not asked about: {before:?}");
        before.push(event);
    }
}
