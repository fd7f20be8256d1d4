//! `push backup` and `push restore`: everything that was acknowledged is there again, elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::home::Home;

#[test]
fn a_backup_under_load_restores_everything_that_was_acknowledged() {
    let home = Home::new();
    home.ok(&["run", "--yes", "--name", "first", "Prose.\n\n$ echo one\n"]);
    home.ok(&["run", "--yes", "--name", "second", "$ seq 1 500\n"]);
    home.ok(&["token", "new", "--name", "laptop"]);
    let before = events(&home);
    // A run that writes during the backup. Its first step is settled, and so stored, when the second one writes.
    let steps = "$ echo line\n$ while test ! -e stop; do echo more; done\n";
    let mut load = home.start(&["run", "--yes", "--name", "load", steps]);
    load.wait_for_line("more");
    let done = home.ok(&["backup", "all.backup"]);
    assert!(done.starts_with("3 sessions, "), "{done}");
    home.write("stop", "");
    load.wait_for_output();
    assert_eq!(fs::metadata(home.path().join("all.backup")).unwrap().permissions().mode() & 0o777, 0o600);
    let refused = home.push(&["backup", "all.backup"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("it exists already; name another file"), "{refused:?}");
    let missing = home.push(&["restore", "no-such-file"]);
    assert!(missing.code == Some(1) && missing.err.contains("cannot read no-such-file"), "{missing:?}");

    let elsewhere = Home::new();
    let file = home.path().join("all.backup");
    let restored = elsewhere.ok(&["restore", file.to_str().unwrap()]);
    assert!(restored.starts_with("restored 3 sessions, "), "{restored}");
    let after = events(&elsewhere);
    for (session, lines) in &before {
        assert_eq!(after.get(session), Some(lines), "events of {session}");
    }
    let loaded = after.keys().find(|session| !before.contains_key(*session)).expect("the session of the load");
    assert!(after[loaded].contains("\"line\\n"), "{}", after[loaded]);
    let health = elsewhere.push(&["doctor", "--full", "--json"]);
    assert_eq!(health.code, Some(0), "{health:?}");
    let proof = health.json()["journal"]["proof"].clone();
    assert_eq!(
        (&proof["sessions"], &proof["found"], &proof["problems"]),
        (&json!(3), &json!([]), &json!([])),
        "{proof}"
    );
    assert!(elsewhere.ok(&["token", "list"]).contains("laptop"));
    elsewhere.ok(&["run", "--yes", "--session", "first", "$ echo more"]);
}

#[test]
fn existing_data_is_refused_and_with_force_set_aside() {
    let home = Home::new();
    home.ok(&["run", "--yes", "--name", "old", "$ true"]);
    home.ok(&["backup", "old.backup"]);
    home.ok(&["run", "--yes", "--name", "new", "$ true"]);
    let refused = home.push(&["restore", "old.backup"]);
    assert_eq!(refused.code, Some(64), "{refused:?}");
    let replaced = home.push(&["restore", "old.backup", "--force"]);
    assert_eq!((replaced.code, replaced.out.as_str()), (Some(0), replaced.out.as_str()), "{replaced:?}");
    assert!(replaced.err.contains("state.replaced-"), "{replaced:?}");
    let names: Vec<Value> = sessions(&home).iter().map(|session| session["name"].clone()).collect();
    assert_eq!(names, ["old"]);
    let aside = fs::read_dir(home.push_path("")).unwrap().flatten();
    assert_eq!(aside.filter(|entry| entry.file_name().to_string_lossy().starts_with("state.replaced-")).count(), 1);
}

#[test]
fn a_damaged_or_foreign_file_is_refused_and_changes_nothing() {
    let home = Home::new();
    home.ok(&["run", "--yes", "$ true"]);
    home.ok(&["backup", "good.backup"]);
    let good = fs::read(home.path().join("good.backup")).unwrap();
    let elsewhere = Home::new();
    let mut flipped = good.clone();
    flipped[good.len() / 3] ^= 1;
    for (name, bytes) in
        [("cut", &good[..good.len() - 1]), ("flipped", &flipped[..]), ("empty", &[][..]), ("text", b"hello")]
    {
        fs::write(elsewhere.path().join(name), bytes).unwrap();
        let refused = elsewhere.push(&["restore", name]);
        assert_eq!(refused.code, Some(1), "{name}: {refused:?}");
        let left: Vec<_> = fs::read_dir(elsewhere.push_path("")).into_iter().flatten().flatten().collect();
        assert!(left.iter().all(|entry| !entry.file_name().to_string_lossy().starts_with("state")), "{name}: {left:?}");
    }
}

#[test]
fn a_backup_of_a_newer_schema_is_refused_and_says_so() {
    let home = Home::new();
    home.ok(&["run", "--yes", "$ true"]);
    home.ok(&["backup", "good.backup"]);
    let good = fs::read(home.path().join("good.backup")).unwrap();
    let newer = with_manifest(&good, |manifest| {
        manifest["schema"] = json!(999_001);
        manifest["version"] = json!("99.1.0");
    });
    let elsewhere = Home::new();
    for (name, bytes, why) in [
        ("newer", newer, "99.1.0"),
        ("format", with_manifest(&good, |manifest| manifest["format"] = json!("push.backup.v2")), "push.backup.v2"),
    ] {
        fs::write(elsewhere.path().join(name), bytes).unwrap();
        let refused = elsewhere.push(&["restore", name]);
        assert_eq!(refused.code, Some(1), "{name}: {refused:?}");
        assert!(refused.err.contains(why) && refused.err.contains("newer"), "{name}: {refused:?}");
        assert!(!elsewhere.push_path("state/pushd.db").exists(), "{name}");
    }
}

/// A backup with another manifest: the parts, the manifest, its length and the mark.
fn with_manifest(backup: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let (body, footer) = backup.split_at(backup.len() - 16);
    let length = u64::from_le_bytes(footer[..8].try_into().unwrap());
    let (parts, manifest) = body.split_at(body.len() - usize::try_from(length).unwrap());
    let mut manifest: Value = serde_json::from_slice(manifest).unwrap();
    change(&mut manifest);
    let manifest = manifest.to_string();
    [parts, manifest.as_bytes(), &(manifest.len() as u64).to_le_bytes(), &footer[8..]].concat()
}

fn sessions(home: &Home) -> Vec<Value> {
    home.json(&["sessions", "--all", "--json"])["sessions"].as_array().unwrap().clone()
}

/// The events of every session, by its id.
fn events(home: &Home) -> BTreeMap<String, String> {
    let ids = sessions(home).into_iter().map(|session| session["sessionId"].as_str().unwrap().to_owned());
    ids.map(|id| (id.clone(), home.ok(&["log", &id, "--jsonl"]))).collect()
}
