//! Workspaces that another session replaces by something else.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::ordinary_user::also_as_an_ordinary_user;
use crate::stage::{Stage, finish, outcome, results, run};

#[test]
fn a_workspace_that_another_session_replaced_by_a_link_is_used_by_no_tool() {
    also_as_an_ordinary_user(
        "exchanged::a_workspace_that_another_session_replaced_by_a_link_is_used_by_no_tool",
    );
    let mut stage = Stage::new();
    let (mut outer, outer_id) = stage.session(&stage.at("work"));
    let (mut inner, inner_id) = stage.session(&stage.at("work/sub"));
    // The tools work as long as it is the directory in which the session started.
    stage.script(&[("sandbox_write_file", json!({"path": "mine", "content": "x"}))]);
    assert_eq!(results(&run(&mut inner, &inner_id, "write"))[0].0, "done");
    // A call waits for approval while the other session replaces the directory.
    stage.script(&[(
        "sandbox_write_file",
        json!({"path": "config.toml", "content": "[approvals]\npreset = \"trusted\"\n"}),
    )]);
    inner.prompt(&inner_id, "write the configuration");
    let asked = inner.event_of("approval_required");
    exchange(&stage, &mut outer, &outer_id, "mv sub old && ln -s ../.config/push sub");
    stage.script(&[]);
    inner.decide(&asked, "approve");
    let events = finish(&mut inner);
    let [(status, kind, said)] = &results(&events)[..] else { panic!("one result: {events:?}") };
    assert_eq!((status.as_str(), kind.as_str()), ("failed", "SANDBOX_UNAVAILABLE"), "{said}");
    assert!(said.contains("was replaced since the session started"), "{said}");
    stage.assert_untouched();
    // A new run is refused as well, before and after a restart of the daemon.
    let seen = assert_refused(&stage, &mut inner, &inner_id);
    stage.daemon.kill();
    stage.daemon.revive();
    let mut inner = stage.back(&inner_id, seen);
    assert_refused(&stage, &mut inner, &inner_id);
    // Once the directory is back, the session works again.
    fs::remove_file(stage.at("work/sub")).unwrap();
    fs::rename(stage.at("work/old"), stage.at("work/sub")).unwrap();
    stage.script(&[("sandbox_read_file", json!({"path": "mine"}))]);
    assert_eq!(results(&run(&mut inner, &inner_id, "read"))[0].0, "done");
}

#[test]
fn every_tool_is_refused_a_workspace_that_leads_to_credentials() {
    also_as_an_ordinary_user("exchanged::every_tool_is_refused_a_workspace_that_leads_to_credentials");
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
        let stage = Stage::new();
        let (mut client, session) = stage.session(&stage.at("work/sub"));
        if tool == "sandbox_edit_file" {
            fs::write(stage.at("work/sub/id_ed25519"), "private\n").unwrap();
        }
        // The call waits for approval while the directory is replaced.
        stage.script(&[(tool, args)]);
        client.prompt(&session, "go");
        let asked = client.event_of("approval_required");
        fs::rename(stage.at("work/sub"), stage.at("work/old")).unwrap();
        symlink("../.ssh", stage.at("work/sub")).unwrap();
        client.decide(&asked, "approve");
        let events = finish(&mut client);
        let said = format!("{events:?}");
        let [(status, kind, why)] = &results(&events)[..] else { panic!("{tool}: {said}") };
        assert_eq!((status.as_str(), kind.as_str()), ("failed", "SANDBOX_UNAVAILABLE"), "{tool}: {why}");
        assert!(why.contains("was replaced since the session started"), "{tool}: {why}");
        assert!(!said.contains(crate::stage::SECRET), "{tool}: {said}");
        stage.assert_untouched();
    }
}

#[test]
fn a_new_directory_in_the_place_of_a_workspace_is_not_the_workspace() {
    also_as_an_ordinary_user("exchanged::a_new_directory_in_the_place_of_a_workspace_is_not_the_workspace");
    let stage = Stage::new();
    let (mut outer, outer_id) = stage.session(&stage.at("work"));
    let (mut inner, inner_id) = stage.session(&stage.at("work/sub"));
    exchange(&stage, &mut outer, &outer_id, "mv sub old && mkdir sub && echo planted > sub/AGENTS.md");
    assert_refused(&stage, &mut inner, &inner_id);
}

#[test]
fn a_link_above_a_workspace_is_not_followed_either() {
    also_as_an_ordinary_user("exchanged::a_link_above_a_workspace_is_not_followed_either");
    let stage = Stage::new();
    fs::create_dir_all(stage.at("work/a/sub")).unwrap();
    fs::create_dir_all(stage.at("elsewhere/sub")).unwrap();
    let (mut outer, outer_id) = stage.session(&stage.at("work"));
    let (mut inner, inner_id) = stage.session(&stage.at("work/a/sub"));
    exchange(&stage, &mut outer, &outer_id, "mv a b && ln -s ../elsewhere a");
    assert_refused(&stage, &mut inner, &inner_id);
    assert_eq!(fs::read_dir(stage.at("elsewhere/sub")).unwrap().count(), 0);
}

#[test]
fn a_session_that_its_user_began_by_a_link_stays_where_the_link_led() {
    also_as_an_ordinary_user("exchanged::a_session_that_its_user_began_by_a_link_stays_where_the_link_led");
    let stage = Stage::new();
    symlink("work", stage.at("named")).unwrap();
    let (mut client, session) = stage.session(&stage.at("named"));
    stage.script(&[("sandbox_write_file", json!({"path": stage.at("named/f"), "content": "x"}))]);
    assert_eq!(results(&run(&mut client, &session, "write"))[0].0, "done");
    fs::remove_file(stage.at("named")).unwrap();
    symlink(".ssh", stage.at("named")).unwrap();
    stage.script(&[("sandbox_write_file", json!({"path": "g", "content": "x"}))]);
    assert_eq!(results(&run(&mut client, &session, "write"))[0].0, "done");
    assert!(stage.at("work/f").exists() && stage.at("work/g").exists());
    stage.assert_untouched();
}

#[test]
fn the_steps_of_a_playbook_are_held_against_the_rules_of_the_directory_that_the_session_began_in() {
    let stage = Stage::new();
    symlink("work", stage.at("named")).unwrap();
    fs::create_dir_all(stage.at("work/.push")).unwrap();
    let rules = "[approvals]\nrules = [\"deny: write(/precious)\"]\n";
    fs::write(stage.at("work/.push/config.toml"), rules).unwrap();
    let mut client = stage.daemon.connect();
    let start = json!({"cwd": stage.at("named"), "provider": "playbook", "environment": stage.environment()});
    let session = client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned();
    for path in [stage.at("work/precious"), stage.at("named/precious"), "precious".into()] {
        let events = run(&mut client, &session, &format!("$ echo x > {}\n", path.display()));
        assert_ne!(outcome(&events).0, "success", "{}", path.display());
        assert!(!stage.at("work/precious").exists(), "{}: {events:?}", path.display());
    }
}

#[test]
fn a_link_inside_a_home_leads_no_tool_to_credentials() {
    also_as_an_ordinary_user("exchanged::a_link_inside_a_home_leads_no_tool_to_credentials");
    let stage = Stage::new();
    symlink("../.ssh", stage.at("work/keys")).unwrap();
    symlink(".ssh", stage.at("keys")).unwrap();
    fs::hard_link(stage.at(".ssh/id_ed25519"), stage.at("work/copy")).unwrap();
    fs::write(stage.at(".netrc"), crate::stage::SECRET).unwrap();
    fs::hard_link(stage.at(".netrc"), stage.at("work/netrc")).unwrap();
    let (mut client, session) = stage.session(&stage.at(""));
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
    stage.script(&calls);
    let events = run(&mut client, &session, "go");
    for ((tool, args), (status, kind, said)) in calls.iter().zip(results(&events)) {
        assert_eq!(status, "failed", "{tool} {args}: {said}");
        assert!(["HIDDEN_PATH", "OUTSIDE_WORKSPACE"].contains(&kind.as_str()), "{tool} {args}: {kind}");
    }
    assert_eq!(results(&events).len(), calls.len());
    // No search finds the files behind the link either.
    stage.script(&[("sandbox_search", json!({"pattern": "private-key"}))]);
    let events = run(&mut client, &session, "search");
    let (_, _, said) = &results(&events)[0];
    assert!(!said.contains(".ssh/") && !said.contains(".netrc") && !said.contains("work/netrc"), "{said}");
}

/// Makes a session run a command, and approves it if asked.
fn exchange(stage: &Stage, client: &mut crate::daemon::Client, session: &str, command: &str) {
    stage.script(&[("sandbox_exec", json!({"command": command}))]);
    let events = run(client, session, "exchange it");
    let (status, _, said) = &results(&events)[0];
    assert_eq!(status, "done", "{said}");
}

/// Checks that a session does nothing in the place of its workspace.
fn assert_refused(stage: &Stage, client: &mut crate::daemon::Client, session: &str) -> u64 {
    stage.script(&[("sandbox_write_file", json!({"path": "escaped", "content": "x"}))]);
    let events = run(client, session, "write");
    let (ended, said) = outcome(&events);
    assert_eq!(ended, "failed", "{said}");
    assert!(said.contains("was replaced since the session started"), "{said}");
    stage.assert_untouched();
    crate::daemon::seq(events.last().unwrap())
}
