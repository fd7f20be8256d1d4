//! Behaviour that existing Push clients rely on beyond the message formats.

use serde_json::{Value, json};

use super::test_daemon::TestDaemon;

#[tokio::test]
async fn resume_shows_the_state_of_the_session_after_the_replay_and_before_live_events() {
    let daemon = TestDaemon::new();
    let mut client = daemon.client().await;
    let session = client.start().await;
    client.run(&session, "speak").await;
    let mut other = daemon.client().await;
    let resumed = other.get("resume_session", json!({"sessionId": session, "lastSeenSeq": 1})).await;
    let last = resumed["replay"]["toSeq"].as_u64().unwrap();
    assert_eq!(resumed["replay"]["gap"], false);
    client.get("rename_session", json!({"sessionId": session, "name": "later"})).await;
    let mut events = other.until("session_snapshot").await;
    let summary = events.pop().unwrap();
    assert_eq!(summary["payload"]["state"], "completed");
    assert_eq!(summary["payload"]["lastAssistantText"], "said");
    assert_eq!(numbers(&events), (2..=last).collect::<Vec<_>>(), "missed events come first");
    let live = other.until("session_renamed").await;
    assert_eq!(live.len(), 1, "{live:?}");
    assert!(numbers(&live)[0] > summary["seq"].as_u64().unwrap());
    assert!(summary["seq"].as_u64().unwrap() > last);
}

#[tokio::test]
async fn resume_shows_the_state_also_when_nothing_was_missed_and_attach_does_not() {
    let daemon = TestDaemon::new();
    let mut client = daemon.client().await;
    let session = client.start().await;
    let last = client.run(&session, "speak").await["seq"].as_u64().unwrap();
    let mut other = daemon.client().await;
    let seen = json!({"sessionId": session, "lastSeenSeq": last});
    other.get("attach_session", seen.clone()).await;
    client.get("rename_session", json!({"sessionId": session, "name": "one"})).await;
    assert_eq!(other.until("session_renamed").await.len(), 1);
    other.get("resume_session", json!({"sessionId": session, "lastSeenSeq": last + 1})).await;
    assert_eq!(other.until("session_snapshot").await.len(), 1);
}

#[tokio::test]
async fn a_resume_across_a_gap_shows_the_state_once() {
    let daemon = TestDaemon::new();
    let mut client = daemon.client().await;
    let session = client.start().await;
    client.run(&session, "speak").await;
    let mut other = daemon.client().await;
    let resumed = other.get("resume_session", json!({"sessionId": session, "lastSeenSeq": 1_000_000})).await;
    assert_eq!(resumed["replay"]["gap"], true);
    client.get("rename_session", json!({"sessionId": session, "name": "later"})).await;
    let events = other.until("session_renamed").await;
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["warning", "session_snapshot", "session_renamed"]);
}

#[tokio::test]
async fn ended_sessions_are_listed_only_on_request_and_marked() {
    let daemon = TestDaemon::new();
    let mut client = daemon.client().await;
    let mut started = Vec::new();
    for _ in 0..7 {
        started.push(client.start().await);
    }
    // Every second session ends, so that each page omits some.
    for ended in started.iter().step_by(2) {
        client.get("end_session", json!({"sessionId": ended})).await;
    }
    let (mut open, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let page = client.get("list_sessions", json!({"limit": 2, "cursor": cursor})).await;
        let items = page["sessions"].as_array().unwrap();
        assert!(items.iter().all(|item| item.get("ended").is_none()), "{page}");
        open.extend(items.iter().map(|item| item["sessionId"].as_str().unwrap().to_owned()));
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
        assert_eq!(items.len(), 2, "a page is full while there is more");
    }
    open.sort();
    let mut expected: Vec<_> = started.iter().skip(1).step_by(2).cloned().collect();
    expected.sort();
    assert_eq!(open, expected);
    let all = client.get("list_sessions", json!({"includeEnded": true})).await;
    let all = all["sessions"].as_array().unwrap();
    assert_eq!(all.len(), started.len());
    for item in all {
        let ended = !expected.iter().any(|open| item["sessionId"] == open.as_str());
        assert_eq!(item["ended"] == true, ended, "{item}");
    }
}

#[tokio::test]
async fn the_root_of_a_listed_repository_is_the_directory_of_the_session() {
    let daemon = TestDaemon::new();
    let mut client = daemon.client().await;
    client.get("start_session", json!({"cwd": "/"})).await;
    client.get("start_session", json!({"repo": {"rootPath": "/", "currentBranch": "main"}})).await;
    client.get("start_session", json!({"cwd": "/", "repo": {"rootPath": "/elsewhere", "currentBranch": "main"}})).await;
    let listed = client.get("list_sessions", json!({})).await;
    let listed = listed["sessions"].as_array().unwrap();
    assert_eq!(listed.len(), 3);
    assert!(listed.iter().all(|item| item["repo"]["rootPath"] == "/"), "{listed:?}");
    assert_eq!(listed.iter().filter(|item| item["repo"]["currentBranch"] == "main").count(), 2);
}

fn numbers(events: &[Value]) -> Vec<u64> {
    events.iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}
