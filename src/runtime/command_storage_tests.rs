//! Commands of the Pi protocol on disk: what each one syncs before it is acknowledged, and what a crash leaves of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::storage_tests::{pi_command, pi_response};
use super::test_daemon::{Client, TestDaemon, open};
use crate::journal::ListQuery;
use crate::kernel::command_log::StoredCommand;
use crate::kernel::id::{Seq, SessionId};

#[tokio::test]
async fn a_pi_prompt_is_acknowledged_after_one_sync_and_a_pi_read_after_none() {
    let (daemon, disk) = TestDaemon::on_test_disk();
    let mut client = daemon.client().await;
    client.get("speak", json!({"protocol": "pi", "cwd": "/"})).await;
    pi_command(&mut client, json!({"id": "create", "type": "create_session", "sessionId": "s"})).await;
    // Syncs everything that is written so far.
    let mut other = daemon.client().await;
    other.start().await;
    disk.hold();
    for kind in ["get_state", "get_messages", "get_session_stats", "health_check", "list_sessions"] {
        pi_command(&mut client, json!({"id": kind, "type": kind, "sessionId": "s"})).await;
    }
    client.send_line(&json!({"id": "p", "type": "prompt", "sessionId": "s", "message": "wait, then speak"})).await;
    disk.wait_until_held().await;
    disk.allow_one();
    let response = pi_response(&mut client).await;
    assert_eq!((&response["id"], &response["success"]), (&json!("p"), &json!(true)), "{response}");
    disk.recover();
    daemon.close().await;
}

#[tokio::test]
async fn a_pi_answer_that_grants_something_is_acknowledged_after_one_sync() {
    let (daemon, disk) = TestDaemon::on_test_disk();
    let mut client = daemon.client().await;
    client.get("speak", json!({"protocol": "pi", "cwd": "/"})).await;
    pi_command(&mut client, json!({"id": "create", "type": "create_session", "sessionId": "s"})).await;
    let prompt = json!({"id": "p", "type": "prompt", "sessionId": "s", "message": "ask, then speak"});
    pi_command(&mut client, prompt).await;
    let request = loop {
        let line = client.line().await;
        if line["event"]["type"] == "extension_ui_request" {
            break line["event"]["requestId"].clone();
        }
    };
    // Syncs everything that is written so far.
    let mut other = daemon.client().await;
    other.start().await;
    disk.hold();
    let granted = json!({"id": "grant", "type": "extension_ui_response", "sessionId": "s", "requestId": request,
        "response": {"method": "confirm", "confirmed": true}});
    client.send_line(&granted).await;
    disk.wait_until_held().await;
    disk.allow_one();
    let response = pi_response(&mut client).await;
    assert_eq!((&response["id"], &response["success"]), (&json!("grant"), &json!(true)), "{response}");
    disk.recover();
    daemon.close().await;
}

#[tokio::test]
async fn every_pi_write_is_acknowledged_after_one_sync() {
    let daemon = TestDaemon::without_background_syncs();
    let mut conversation = Conversation::start(&daemon).await;
    let syncs = || daemon.server.hub().services().journal.stats().syncs;
    // The first one opens a session, whose sequence numbers are reserved before its events are published, and then
    // imports the conversation.
    let mut syncs_of_load = 2;
    for (write, _) in conversation.writes() {
        let before = syncs();
        pi_command(&mut conversation.client, write.clone()).await;
        let expected = if write["type"] == "load_session" { std::mem::replace(&mut syncs_of_load, 1) } else { 1 };
        assert_eq!(syncs() - before, expected, "{write}");
    }
    daemon.close().await;
}

#[tokio::test]
async fn no_commit_holds_a_change_of_a_pi_write_without_its_command() {
    let copies = TempDir::new().unwrap();
    let (daemon, next) = TestDaemon::copying_commits(copies.path());
    let mut conversation = Conversation::start(&daemon).await;
    for (write, stored) in conversation.writes() {
        let first = commits(&daemon, &next).await;
        pi_command(&mut conversation.client, write.clone()).await;
        let end = commits(&daemon, &next).await;
        let before = StoredState::read(copies.path(), first - 1, &write).await;
        assert!(before.command.is_none(), "{write} is known before it is sent");
        let mut admitted_alone = false;
        for commit in first..end {
            let state = StoredState::read(copies.path(), commit, &write).await;
            assert!(state.command.is_some() || state.events == before.events, "{write} changes something unknown");
            admitted_alone |= state.command.as_ref().is_some_and(|command| command.settled.is_none());
            if commit + 1 == end {
                let settled = state.command.and_then(|command| command.settled);
                assert!(settled.is_some_and(|(outcome, _)| outcome.success), "{write} has no outcome");
                assert_ne!(state.events, before.events, "{write} changes nothing");
            }
        }
        assert_eq!(admitted_alone, stored == Stored::Batches, "{write}");
    }
    daemon.close().await;
}

/// How a command is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stored {
    /// Its change and its outcome are one commit.
    OneBatch,
    /// Its admission is in the commit of each change, and its outcome follows.
    Batches,
}

/// A connection of the Pi protocol, with a conversation that can be forked, compacted and loaded from its file.
struct Conversation {
    client: Client,
    entry: Value,
    file: String,
}

impl Conversation {
    async fn start(daemon: &TestDaemon) -> Self {
        let (root, cwd) = (daemon.root.path(), daemon.root.path().join("project"));
        std::fs::create_dir(&cwd).unwrap();
        let config = format!("[providers.ollama]\nbase_url = \"http://{}\"\n", serve_model().await);
        std::fs::write(root.join("config.toml"), config).unwrap();
        let mut client = daemon.client().await;
        client.get("speak", json!({"protocol": "pi", "cwd": cwd})).await;
        pi_command(&mut client, json!({"id": "create", "type": "create_session", "sessionId": "s"})).await;
        let model = json!({"id": "model", "type": "set_model", "sessionId": "s", "provider": "ollama", "modelId": "m"});
        pi_command(&mut client, model).await;
        for message in ["first", "second"] {
            let prompt = json!({"id": message, "type": "prompt", "sessionId": "s", "message": message});
            pi_command(&mut client, prompt).await;
            while client.line().await["event"]["type"] != "agent_end" {}
        }
        let state = pi_command(&mut client, json!({"id": "state", "type": "get_state", "sessionId": "s"})).await;
        let messages = json!({"id": "f", "type": "get_fork_messages", "sessionId": "s"});
        let entry = pi_command(&mut client, messages).await["messages"][0]["entryId"].clone();
        let file = state["sessionFile"].as_str().unwrap().to_owned();
        Self { client, entry, file }
    }

    /// Returns every kind of command that changes a session and runs no program, and how it is stored.
    fn writes(&self) -> Vec<(Value, Stored)> {
        use Stored::{Batches, OneBatch};
        let writes = [
            (json!({"type": "set_session_name", "name": "n"}), OneBatch),
            (json!({"type": "set_thinking_level", "level": "high"}), OneBatch),
            (json!({"type": "cycle_thinking_level"}), OneBatch),
            (json!({"type": "set_auto_compaction", "enabled": false}), OneBatch),
            (json!({"type": "set_auto_retry", "enabled": false}), OneBatch),
            (json!({"type": "cycle_model"}), OneBatch),
            (json!({"type": "set_model", "provider": "ollama", "modelId": "m"}), OneBatch),
            (json!({"type": "export_html"}), OneBatch),
            (json!({"type": "compact"}), Batches),
            (json!({"type": "create_session", "sessionId": "t"}), Batches),
            (json!({"type": "switch_session_file", "sessionId": "t", "sessionPath": self.file}), Batches),
            (json!({"type": "delete_session", "sessionId": "t"}), Batches),
            (json!({"type": "create_session", "sessionId": "t"}), Batches),
            (json!({"type": "load_session", "sessionId": "u", "sessionPath": self.file}), Batches),
            (json!({"type": "delete_session", "sessionId": "u"}), Batches),
            (json!({"type": "load_session", "sessionId": "u", "sessionPath": self.file}), Batches),
            (json!({"type": "prompt", "sessionId": "t", "message": "wait, then speak"}), OneBatch),
            (json!({"type": "follow_up", "sessionId": "t", "message": "and then"}), OneBatch),
            (json!({"type": "fork", "entryId": self.entry}), Batches),
            (json!({"type": "new_session"}), Batches),
        ];
        let named = writes.into_iter().enumerate().map(|(number, (mut write, stored))| {
            write["id"] = format!("w{number}").into();
            if write["sessionId"].is_null() {
                write["sessionId"] = "s".into();
            }
            (write, stored)
        });
        named.collect()
    }
}

/// Returns the number of commits, when all that is submitted is committed and copied.
async fn commits(daemon: &TestDaemon, next: &AtomicU32) -> u32 {
    daemon.server.hub().services().journal.barrier(SessionId::from("s")).await;
    next.load(Ordering::SeqCst)
}

/// What a daemon finds that starts with the files of a commit.
struct StoredState {
    command: Option<StoredCommand>,
    /// The events of each session.
    events: BTreeMap<SessionId, Vec<u8>>,
}

impl StoredState {
    async fn read(copies: &Path, commit: u32, command: &Value) -> Self {
        let journal = open(&copies.join(commit.to_string()));
        let id = command["id"].as_str();
        let mut commands = journal.load_commands().await.unwrap().into_iter();
        let command = commands.find(|stored| stored.record.id.as_deref() == id);
        let mut events = BTreeMap::new();
        let query = ListQuery { limit: 100, after: None, prefix: None };
        for session in journal.list(query).await.unwrap().into_iter().map(|meta| meta.session) {
            let page = journal.page(session.clone(), Seq::ZERO, usize::MAX).await.unwrap();
            events.insert(session, page.blocks.iter().flat_map(|block| block.bytes.to_vec()).collect());
        }
        journal.close().await.unwrap();
        Self { command, events }
    }
}

/// Serves a model with the same answer to every message; returns the address.
async fn serve_model() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_request(stream));
        }
    });
    address
}

async fn answer_request(mut stream: TcpStream) {
    let (mut request, mut part) = (Vec::new(), [0; 4096]);
    while !is_complete(&request) {
        let Ok(read @ 1..) = stream.read(&mut part).await else { return };
        request.extend_from_slice(&part[..read]);
    }
    let body = if request.starts_with(b"POST") {
        json!({"message": {"role": "assistant", "content": "the gist"}, "done": true, "done_reason": "stop"})
    } else {
        json!({"models": [{"name": "m"}, {"name": "n"}]})
    };
    let body = format!("{body}\n");
    let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    let _ = stream.write_all((head + &body).as_bytes()).await;
}

/// Returns whether a request has its whole body.
fn is_complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    request.len() >= head.len() + 4 + length.unwrap_or(0)
}
