//! Files that are hidden from commands, and the file tools: in a home that is the workspace, and in a home inside the
//! workspace.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::daemon::Client;
use crate::workspaces::fixture::{Fixture, SECRET, approve_until_complete, run_and_approve, tool_results};

const LENIENT: &str = "[approvals]\npreset = \"trusted\"\n";

#[test]
fn hidden_files_need_approval_in_a_home_that_is_the_workspace() {
    let fixture = home();
    symlink(".gemini/oauth", fixture.path("link")).unwrap();
    let (mut client, session) = fixture.session(&fixture.path(""));
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
        fixture.script(&[(tool, args.clone())]);
        client.prompt(&session, "go");
        let approval = approval_request(&mut client, &args);
        let reason = approval["payload"]["details"]["reason"].as_str().unwrap();
        assert!(reason.contains("hidden from commands"), "{tool} {args}: {approval}");
        client.decide(&approval, "deny");
        let events = client.events_until("run_complete");
        assert!(!format!("{:?}", tool_results(&events)).contains(SECRET), "{tool} {args}: {events:?}");
    }
    assert!(!fixture.path(".newtool").exists());
    assert_eq!(fs::read_to_string(fixture.path(".gemini/oauth")).unwrap(), SECRET);
    // One approval is enough.
    fixture.script(&[("sandbox_read_file", json!({"path": ".gemini/oauth"}))]);
    let [(status, _, text)] = &tool_results(&run_and_approve(&mut client, &session, "go"))[..] else {
        panic!("one result")
    };
    assert!(status == "done" && text.contains(SECRET), "{text}");
}

#[test]
fn listings_and_searches_of_a_home_omit_hidden_files() {
    let fixture = home();
    let (mut client, session) = fixture.session(&fixture.path(""));
    let calls = [
        ("sandbox_search", json!({"pattern": "a-private-key"})),
        ("sandbox_search", json!({"glob": "oauth"})),
        ("sandbox_list_dir", json!({"depth": 3})),
        ("sandbox_read_file", json!({"path": ".cargo/config.toml"})),
        ("sandbox_read_file", json!({"path": "notes/plain"})),
    ];
    fixture.script(&calls);
    client.prompt(&session, "go");
    let events = client.events_until("run_complete");
    assert!(events.iter().all(|event| event["type"] != "approval_required"), "{events:?}");
    let results = tool_results(&events);
    assert_eq!(results.len(), calls.len());
    for ((tool, args), (status, _, text)) in calls.iter().zip(&results) {
        assert_eq!(status, "done", "{tool} {args}: {text}");
        assert!(!text.contains(SECRET) && !text.contains(".gemini"), "{tool} {args}: {text}");
    }
    assert!(results[2].2.contains("plain") && results[4].2.contains("seen"), "{results:?}");
}

#[test]
fn an_approval_for_one_hidden_file_does_not_cover_another_behind_a_changed_link() {
    let fixture = home();
    symlink(".gemini/settings", fixture.path("link")).unwrap();
    let (mut client, session) = fixture.session(&fixture.path(""));
    fixture.script(&[("sandbox_read_file", json!({"path": "link"}))]);
    client.prompt(&session, "go");
    let approval = approval_request(&mut client, &json!("link"));
    fs::remove_file(fixture.path("link")).unwrap();
    symlink(".gemini/oauth", fixture.path("link")).unwrap();
    client.decide(&approval, "approve");
    let [(status, kind, text)] = &tool_results(&approve_until_complete(&mut client))[..] else { panic!("one result") };
    assert_eq!((status.as_str(), kind.as_str()), ("failed", "APPROVAL_STALE"), "{text}");
}

#[test]
fn a_home_inside_the_workspace_is_denied_to_file_tools_except_for_opened_paths() {
    let fixture = Fixture::new();
    for (name, text) in [("notes", SECRET), (".gemini/oauth", SECRET), (".cargo/config.toml", "[build]")] {
        file(&fixture.path("work/ann").join(name), text);
    }
    file(&fixture.path("work/plain"), "seen");
    symlink("ann/notes", fixture.path("work/link")).unwrap();
    let mut start = fixture.start(&fixture.path("work"));
    start["environment"]["HOME"] = json!(fixture.path("work/ann"));
    let mut client = fixture.daemon.connect();
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
    fixture.script(&closed);
    for ((tool, args), (status, kind, message)) in
        closed.iter().zip(tool_results(&run_and_approve(&mut client, &session, "go")))
    {
        assert_eq!((status.as_str(), kind.as_str()), ("failed", "HIDDEN_PATH"), "{tool} {args}: {message}");
    }
    fixture.script(&[
        ("sandbox_search", json!({"pattern": "a-private-key"})),
        ("sandbox_list_dir", json!({"depth": 3})),
        ("sandbox_read_file", json!({"path": "ann/.cargo/config.toml"})),
        ("sandbox_read_file", json!({"path": "plain"})),
    ]);
    let results = tool_results(&run_and_approve(&mut client, &session, "go"));
    assert_eq!(results.len(), 4, "{results:?}");
    assert!(results.iter().all(|(status, ..)| status == "done"), "{results:?}");
    assert!(!format!("{results:?}").contains(SECRET), "{results:?}");
    assert!(!results[1].2.contains("oauth") && results[2].2.contains("[build]"), "{results:?}");
}

#[test]
fn without_confinement_git_tools_are_denied_the_same_paths_as_file_tools() {
    let fixture = Fixture::new();
    let git = |words: &[&str]| {
        let name = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        let done = Command::new("git").args(name).args(words).current_dir(fixture.path("")).output().unwrap();
        assert!(done.status.success(), "git {words:?}: {done:?}");
    };
    file(&fixture.path(".gemini/oauth"), "before");
    git(&["init", "-q"]);
    git(&["add", "-f", ".ssh/id_ed25519", ".gemini/oauth"]);
    git(&["commit", "-q", "-m", "begin"]);
    fs::write(fixture.path(".ssh/id_ed25519"), "changed").unwrap();
    fs::write(fixture.path(".config/push/config.toml"), LENIENT).unwrap();
    let mut start = fixture.start(&fixture.path(""));
    start["sandboxProvider"] = json!("none");
    let mut client = fixture.daemon.connect();
    let session = client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned();
    let calls = [
        ("sandbox_git_diff", json!({"paths": [".ssh/id_ed25519"]})),
        ("sandbox_git_diff", json!({"paths": ["./x/../.ssh"]})),
        ("sandbox_git_commit", json!({"message": "m", "paths": [".ssh/id_ed25519"]})),
    ];
    fixture.script(&calls);
    for ((tool, args), (status, kind, text)) in
        calls.iter().zip(tool_results(&run_and_approve(&mut client, &session, "go")))
    {
        assert_eq!((status.as_str(), kind.as_str()), ("failed", "HIDDEN_PATH"), "{tool} {args}: {text}");
    }
    // Hidden files need approval, also as part of a whole diff.
    for args in [json!({"paths": [".gemini"]}), json!({})] {
        fixture.script(&[("sandbox_git_diff", args.clone())]);
        client.prompt(&session, "go");
        let approval = approval_request(&mut client, &args);
        client.decide(&approval, "deny");
        client.event_of("run_complete");
    }
}

/// A home with an agent's token, a copy of credentials and ordinary files, under the most lenient preset.
fn home() -> Fixture {
    let fixture = Fixture::new();
    fs::write(fixture.path(".config/push/config.toml"), LENIENT).unwrap();
    for (name, text) in [
        (".gemini/oauth", SECRET),
        (".gemini/settings", "{}"),
        (".config/tool/token", SECRET),
        (".cargo/config.toml", "[build]\n"),
        (".cargo/credentials.toml.bak", SECRET),
        ("notes/plain", "seen"),
    ] {
        file(&fixture.path(name), text);
    }
    fixture
}

fn file(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Waits for the approval request of a call, which must come before the run ends.
fn approval_request(client: &mut Client, about: &Value) -> Value {
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
