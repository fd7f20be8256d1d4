//! Workspaces that another session replaces by something else.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::support::ordinary_user::also_as_an_ordinary_user;
use crate::workspaces::fixture::{Fixture, approve_until_complete, outcome, run_and_approve, tool_results};

#[test]
fn a_workspace_that_another_session_replaced_by_a_link_is_used_by_no_tool() {
    also_as_an_ordinary_user(a_workspace_that_another_session_replaced_by_a_link_is_used_by_no_tool);
    let mut fixture = Fixture::new();
    let (mut outer, outer_id) = fixture.session(&fixture.path("work"));
    let (mut inner, inner_id) = fixture.session(&fixture.path("work/sub"));
    // The tools work as long as it is the directory in which the session started.
    fixture.script(&[("sandbox_write_file", json!({"path": "mine", "content": "x"}))]);
    assert_eq!(tool_results(&run_and_approve(&mut inner, &inner_id, "write"))[0].0, "done");
    // A call waits for approval while the other session replaces the directory.
    fixture.script(&[(
        "sandbox_write_file",
        json!({"path": "config.toml", "content": "[approvals]\npreset = \"trusted\"\n"}),
    )]);
    inner.prompt(&inner_id, "write the configuration");
    let approval = inner.event_of("approval_required");
    run_approved(&fixture, &mut outer, &outer_id, "mv sub old && ln -s ../.config/push sub");
    fixture.script(&[]);
    inner.decide(&approval, "approve");
    let events = approve_until_complete(&mut inner);
    let [(status, kind, text)] = &tool_results(&events)[..] else { panic!("one result: {events:?}") };
    assert_eq!((status.as_str(), kind.as_str()), ("failed", "SANDBOX_UNAVAILABLE"), "{text}");
    assert!(text.contains("was replaced since the session started"), "{text}");
    fixture.assert_untouched();
    // A new run is refused as well, before and after a restart of the daemon.
    let seen = assert_refused(&fixture, &mut inner, &inner_id);
    fixture.daemon.kill();
    fixture.daemon.restart();
    let mut inner = fixture.reattach(&inner_id, seen);
    assert_refused(&fixture, &mut inner, &inner_id);
    // Once the directory is back, the session works again.
    fs::remove_file(fixture.path("work/sub")).unwrap();
    fs::rename(fixture.path("work/old"), fixture.path("work/sub")).unwrap();
    fixture.script(&[("sandbox_read_file", json!({"path": "mine"}))]);
    assert_eq!(tool_results(&run_and_approve(&mut inner, &inner_id, "read"))[0].0, "done");
}

#[test]
fn every_tool_is_refused_a_workspace_that_leads_to_credentials() {
    also_as_an_ordinary_user(every_tool_is_refused_a_workspace_that_leads_to_credentials);
    for (tool, args) in [
        ("sandbox_read_file", json!({"path": "id_ed25519"})),
        ("sandbox_list_dir", json!({})),
        ("sandbox_search", json!({"pattern": "private"})),
        ("sandbox_write_file", json!({"path": "authorized_keys", "content": "mine"})),
        ("sandbox_edit_file", json!({"path": "id_ed25519", "old": "private", "new": "public"})),
        ("sandbox_edit_file", json!({"patch": "--- /dev/null\n+++ b/rc\n@@ -0,0 +1 @@\n+x\n"})),
        ("sandbox_exec", json!({"command": "cat id_ed25519; echo x > rc"})),
        ("sandbox_git_status", json!({})),
        ("sandbox_git_diff", json!({})),
    ] {
        let fixture = Fixture::new();
        let (mut client, session) = fixture.session(&fixture.path("work/sub"));
        if tool == "sandbox_edit_file" {
            fs::write(fixture.path("work/sub/id_ed25519"), "private\n").unwrap();
        }
        // The call waits for approval while the directory is replaced.
        fixture.script(&[(tool, args)]);
        client.prompt(&session, "go");
        let approval = client.event_of("approval_required");
        fs::rename(fixture.path("work/sub"), fixture.path("work/old")).unwrap();
        symlink("../.ssh", fixture.path("work/sub")).unwrap();
        client.decide(&approval, "approve");
        let events = approve_until_complete(&mut client);
        let text = format!("{events:?}");
        let [(status, kind, why)] = &tool_results(&events)[..] else { panic!("{tool}: {text}") };
        assert_eq!((status.as_str(), kind.as_str()), ("failed", "SANDBOX_UNAVAILABLE"), "{tool}: {why}");
        assert!(why.contains("was replaced since the session started"), "{tool}: {why}");
        assert!(!text.contains(crate::workspaces::fixture::SECRET), "{tool}: {text}");
        fixture.assert_untouched();
    }
}

#[test]
fn a_new_directory_in_the_place_of_a_workspace_is_not_the_workspace() {
    also_as_an_ordinary_user(a_new_directory_in_the_place_of_a_workspace_is_not_the_workspace);
    let fixture = Fixture::new();
    let (mut outer, outer_id) = fixture.session(&fixture.path("work"));
    let (mut inner, inner_id) = fixture.session(&fixture.path("work/sub"));
    run_approved(&fixture, &mut outer, &outer_id, "mv sub old && mkdir sub && echo planted > sub/AGENTS.md");
    assert_refused(&fixture, &mut inner, &inner_id);
}

#[test]
fn a_link_above_a_workspace_is_not_followed_either() {
    also_as_an_ordinary_user(a_link_above_a_workspace_is_not_followed_either);
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("work/a/sub")).unwrap();
    fs::create_dir_all(fixture.path("elsewhere/sub")).unwrap();
    let (mut outer, outer_id) = fixture.session(&fixture.path("work"));
    let (mut inner, inner_id) = fixture.session(&fixture.path("work/a/sub"));
    run_approved(&fixture, &mut outer, &outer_id, "mv a b && ln -s ../elsewhere a");
    assert_refused(&fixture, &mut inner, &inner_id);
    assert_eq!(fs::read_dir(fixture.path("elsewhere/sub")).unwrap().count(), 0);
}

#[test]
fn a_session_started_through_a_link_stays_in_the_original_directory() {
    also_as_an_ordinary_user(a_session_started_through_a_link_stays_in_the_original_directory);
    let fixture = Fixture::new();
    symlink("work", fixture.path("named")).unwrap();
    let (mut client, session) = fixture.session(&fixture.path("named"));
    fixture.script(&[("sandbox_write_file", json!({"path": fixture.path("named/f"), "content": "x"}))]);
    assert_eq!(tool_results(&run_and_approve(&mut client, &session, "write"))[0].0, "done");
    fs::remove_file(fixture.path("named")).unwrap();
    symlink(".ssh", fixture.path("named")).unwrap();
    fixture.script(&[("sandbox_write_file", json!({"path": "g", "content": "x"}))]);
    assert_eq!(tool_results(&run_and_approve(&mut client, &session, "write"))[0].0, "done");
    assert!(fixture.path("work/f").exists() && fixture.path("work/g").exists());
    fixture.assert_untouched();
}

#[test]
fn playbook_steps_follow_the_rules_of_the_session_s_original_directory() {
    let fixture = Fixture::new();
    symlink("work", fixture.path("named")).unwrap();
    fs::create_dir_all(fixture.path("work/.push")).unwrap();
    let rules = "[approvals]\nrules = [\"deny: write(/precious)\"]\n";
    fs::write(fixture.path("work/.push/config.toml"), rules).unwrap();
    let mut client = fixture.daemon.connect();
    let start = json!({"cwd": fixture.path("named"), "provider": "playbook", "environment": fixture.environment()});
    let session = client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned();
    for path in [fixture.path("work/precious"), fixture.path("named/precious"), "precious".into()] {
        let events = run_and_approve(&mut client, &session, &format!("$ echo x > {}\n", path.display()));
        assert_ne!(outcome(&events).0, "success", "{}", path.display());
        assert!(!fixture.path("work/precious").exists(), "{}: {events:?}", path.display());
    }
}

#[test]
fn a_link_inside_a_home_leads_no_tool_to_credentials() {
    also_as_an_ordinary_user(a_link_inside_a_home_leads_no_tool_to_credentials);
    let fixture = Fixture::new();
    symlink("../.ssh", fixture.path("work/keys")).unwrap();
    symlink(".ssh", fixture.path("keys")).unwrap();
    fs::hard_link(fixture.path(".ssh/id_ed25519"), fixture.path("work/copy")).unwrap();
    fs::write(fixture.path(".netrc"), crate::workspaces::fixture::SECRET).unwrap();
    fs::hard_link(fixture.path(".netrc"), fixture.path("work/netrc")).unwrap();
    let (mut client, session) = fixture.session(&fixture.path(""));
    let calls = [
        ("sandbox_read_file", json!({"path": "work/keys/id_ed25519"})),
        ("sandbox_read_file", json!({"path": ".ssh/id_ed25519"})),
        ("sandbox_read_file", json!({"path": "work/netrc"})),
        ("sandbox_list_dir", json!({"path": "keys"})),
        ("sandbox_search", json!({"pattern": "private-key", "path": ".ssh"})),
        ("sandbox_write_file", json!({"path": "keys/authorized_keys", "content": "mine"})),
        ("sandbox_write_file", json!({"path": ".config/push/keys.toml", "content": "mine"})),
        ("sandbox_edit_file", json!({"path": "work/keys/id_ed25519", "old": "private", "new": "public"})),
    ];
    fixture.script(&calls);
    let events = run_and_approve(&mut client, &session, "go");
    for ((tool, args), (status, kind, text)) in calls.iter().zip(tool_results(&events)) {
        assert_eq!(status, "failed", "{tool} {args}: {text}");
        assert!(["HIDDEN_PATH", "OUTSIDE_WORKSPACE"].contains(&kind.as_str()), "{tool} {args}: {kind}");
    }
    assert_eq!(tool_results(&events).len(), calls.len());
    // No search finds the files behind the link either.
    fixture.script(&[("sandbox_search", json!({"pattern": "private-key"}))]);
    let events = run_and_approve(&mut client, &session, "search");
    let (_, _, text) = &tool_results(&events)[0];
    assert!(!text.contains(".ssh/") && !text.contains(".netrc") && !text.contains("work/netrc"), "{text}");
}

/// Makes a session run a command, and approves it if asked.
fn run_approved(fixture: &Fixture, client: &mut crate::support::daemon::Client, session: &str, command: &str) {
    fixture.script(&[("sandbox_exec", json!({"command": command}))]);
    let events = run_and_approve(client, session, "exchange it");
    let (status, _, text) = &tool_results(&events)[0];
    assert_eq!(status, "done", "{text}");
}

/// Checks that a session does nothing in the place of its workspace.
fn assert_refused(fixture: &Fixture, client: &mut crate::support::daemon::Client, session: &str) -> u64 {
    fixture.script(&[("sandbox_write_file", json!({"path": "escaped", "content": "x"}))]);
    let events = run_and_approve(client, session, "write");
    let (ended, text) = outcome(&events);
    assert_eq!(ended, "failed", "{text}");
    assert!(text.contains("was replaced since the session started"), "{text}");
    fixture.assert_untouched();
    crate::support::daemon::seq(events.last().unwrap())
}
