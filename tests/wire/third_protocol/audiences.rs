//! Messages for audiences at random: no byte of one reaches anybody else, by whatever way it is delivered.

use std::fs;
use std::path::Path;

use pushd::config::limits::Limits;
use serde_json::{Value, json};

use super::{SwitchedClient, WordDaemon};
use crate::support::daemon::Client;
use crate::support::random::Random;

/// The audiences of the walk, and who of `ann`, an approver, and `bob`, a driver, is in each.
const AUDIENCES: [(&str, &str); 9] = [
    ("all", "ann bob"),
    ("approver", "ann"),
    ("driver", "bob"),
    ("ann", "ann"),
    ("bob", "bob"),
    ("cid", ""),
    ("approver!", "ann"),
    ("bob!", "bob"),
    ("cid!", ""),
];

/// The last message of a walk, which everybody receives.
const LAST: &str = "the-end-of-the-walk";

#[test]
fn no_way_of_delivery_contains_a_message_outside_of_its_audience() {
    for seed in 0..3 {
        walk(seed, Limits::default());
    }
    walk(3, Limits { ring_bytes: 1, ..Limits::default() });
}

fn walk(seed: u64, limits: Limits) {
    let daemon = WordDaemon::start(limits);
    let mut random = Random::new(seed);
    let mut push = Client::connect(&daemon.socket);
    let session = push.start(daemon.home.path());
    let mut pi = SwitchedClient::connect(&daemon.socket, "pi");
    pi_request(&mut pi, &json!({"type": "switch_session", "id": "1", "sessionId": session}));
    let mut readers = ["approver ann", "driver bob"].map(|who| {
        let mut reader = SwitchedClient::words(&daemon.socket);
        reader.send(&format!("join {session} {who}"));
        assert_eq!(reader.line(), "join ok");
        reader.send(&format!("attach {session} 0"));
        assert_eq!(reader.line(), "attach ok");
        reader
    });
    push.run(&session, "$ echo said");
    let (mut posted, mut live) = (Vec::new(), [Vec::new(), Vec::new()]);
    for number in 0..40 {
        let (audience, members) = *random.pick(&AUDIENCES).unwrap();
        let marker = format!("marker-{seed}-{number}-for-{}-", audience.replace('!', "-now"));
        // The sender of a message may be outside of its audience.
        let sender = random.index(2);
        readers[sender].send(&format!("post {session} {audience} {marker}"));
        live[sender].extend(readers[sender].until(|line| line.starts_with("post ok")));
        posted.push((marker, audience, members));
    }
    readers[0].send(&format!("post {session} all {LAST}"));
    for ((reader, live), who) in readers.iter_mut().zip(&mut live).zip(["ann", "bob"]) {
        live.extend(reader.until(|line| line.contains(LAST)));
        check(&live.join("\n"), &posted, who, |_, members| members.contains(who));
    }
    let mut shown = String::new();
    while !shown.contains(LAST) {
        shown += &push.next().to_string();
    }
    check(&shown, &posted, "Push", |audience, _| audience == "all");

    // The conversation is found, and messages for an audience are not even in the index.
    assert!(search(&daemon, "said").contains(&session));
    check(&search(&daemon, "marker"), &posted, "search", |_, _| false);
    let state = daemon.home.path().join(".push/state");
    let stored = ["pushd.index", "pushd.index-wal"].map(|name| fs::read(state.join(name)).unwrap_or_default()).concat();
    // The index stores words without what they share with the word before.
    assert!(!stored.is_empty() && !stored.windows(5).any(|bytes| bytes == b"arker"), "the index has a message");

    let export = daemon.home.path().join("export.html");
    let exported = json!({"type": "export_html", "id": "2", "sessionId": session, "outputPath": export});
    let mut delivered = pi_request(&mut pi, &exported);
    for (id, kind) in ["get_messages", "get_state", "get_session_stats", "list_sessions"].into_iter().enumerate() {
        delivered += &pi_request(&mut pi, &json!({"type": kind, "id": format!("q{id}"), "sessionId": session}));
    }
    delivered += &fs::read_to_string(&export).unwrap();
    delivered += &files_below(&daemon.home.path().join(".pi"));
    assert!(delivered.contains("said"), "the files have the conversation");
    check(&delivered, &posted, "Pi", |_, _| false);

    // The history has what is stored: for the owner as one reader among others, and for the owner on record.
    for _ in 0..2 {
        let log = history(&daemon, "resume_session", &json!({"sessionId": session, "readOnly": true}));
        check(&log, &posted, "push log", |audience, _| audience == "all");
        let log = history(&daemon, "attach_session", &json!({"sessionId": session, "asOwner": true}));
        check(&log, &posted, "push log --as-owner", |audience, _| !audience.ends_with('!'));
    }
    drop((pi, readers));
    daemon.stop();
}

/// Checks which messages the delivered bytes contain: exactly those that the reader may see.
fn check(delivered: &str, posted: &[(String, &str, &str)], who: &str, may_see: impl Fn(&str, &str) -> bool) {
    for (marker, audience, members) in posted {
        assert_eq!(delivered.contains(marker), may_see(audience, members), "{who}: {marker}");
    }
}

fn pi_request(pi: &mut SwitchedClient, command: &Value) -> String {
    pi.send(&command.to_string());
    let id = format!(r#""id":{}"#, command["id"]);
    let lines = pi.until(|line| line.contains(r#""type":"response""#) && line.contains(&id));
    assert!(lines.last().unwrap().contains(r#""success":true"#), "{lines:?}");
    lines.join("\n")
}

/// Returns what `push log` receives: it is no child of the daemon, as a process of this test would be.
fn history(daemon: &WordDaemon, kind: &str, payload: &Value) -> String {
    let mut client = Client::connect(&daemon.socket);
    let newest = client.get(kind, payload.clone())["replay"]["toSeq"].as_u64();
    let mut log = String::new();
    loop {
        let event = client.next();
        let (is_last, is_end) = (event["seq"].as_u64() == newest, event["type"] == "session_snapshot");
        log += &event.to_string();
        if is_last || is_end {
            return log;
        }
    }
}

fn search(daemon: &WordDaemon, text: &str) -> String {
    Client::connect(&daemon.socket).get("search", json!({"text": text}))["hits"].to_string()
}

/// Returns the content of all files below a directory.
fn files_below(directory: &Path) -> String {
    let mut content = String::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        content += &if path.is_dir() { files_below(&path) } else { fs::read_to_string(&path).unwrap_or_default() };
    }
    content
}
