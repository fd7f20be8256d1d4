//! A scripted daemon on a real socket, for tests.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};

use super::test_events::complete;
use super::*;
use crate::transport::local::DirectoryKind;

/// A daemon whose replies the test sends itself.
pub(crate) struct ScriptedDaemon {
    pub(crate) dir: TempDir,
    pub(crate) socket: PathBuf,
    listener: UnixListener,
    notices: Arc<Mutex<Vec<Notice>>>,
}

impl ScriptedDaemon {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("pushd.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        Self { dir, socket, listener, notices: Arc::default() }
    }

    /// Moves the socket away, as if no daemon listened.
    pub(crate) fn hide_socket(&self) -> PathBuf {
        let away = self.dir.path().join("away.sock");
        std::fs::rename(&self.socket, &away).unwrap();
        away
    }

    pub(crate) fn config(&self) -> ClientConfig {
        let notices = Arc::clone(&self.notices);
        ClientConfig {
            endpoint: self.endpoint(MissingDaemon::Fail),
            version: "0.0.1",
            environment: Some(Environment::new()),
            reconnect_timeout: Duration::from_secs(20),
            on_notice: Box::new(move |notice| notices.lock().unwrap().push(notice)),
        }
    }

    /// Its endpoint.
    pub(crate) fn endpoint(&self, on_missing: MissingDaemon) -> Endpoint {
        let address = Address {
            socket: self.socket.clone(),
            lock: self.dir.path().join("pushd.lock"),
            pid: self.pid_file(),
            directory: DirectoryKind::Custom,
        };
        Endpoint::Local(LocalEndpoint { address, on_missing })
    }

    /// The path of its pid file.
    pub(crate) fn pid_file(&self) -> PathBuf {
        self.dir.path().join("pushd.pid")
    }

    pub(crate) fn notices(&self) -> Vec<Notice> {
        self.notices.lock().unwrap().clone()
    }

    pub(crate) async fn handshake(&self, version: &str) -> Peer {
        let (stream, _) = self.listener.accept().await.unwrap();
        let mut peer = Peer::new(stream);
        let hello = peer.request("hello").await;
        peer.answer(&hello, json!({"runtimeName": "pushd", "runtimeVersion": version})).await;
        peer
    }
}

/// One connection, from the daemon's side.
pub(crate) struct Peer {
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

impl Peer {
    pub(crate) fn new(stream: UnixStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self { lines: BufReader::new(reader).lines(), writer }
    }

    pub(crate) async fn request(&mut self, kind: &str) -> Value {
        let line = self.lines.next_line().await.unwrap().expect("a request");
        let request: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(request["type"], kind);
        request
    }

    pub(crate) async fn answer(&mut self, request: &Value, payload: Value) {
        self.send(json!({"v": "push.runtime.v1", "kind": "response", "requestId": request["requestId"],
            "type": request["type"], "ok": true, "payload": payload, "error": null}))
            .await;
    }

    pub(crate) async fn refuse(&mut self, request: &Value, code: &str) {
        self.send(json!({"v": "push.runtime.v1", "kind": "response", "requestId": request["requestId"],
            "type": request["type"], "ok": false, "payload": {},
            "error": {"code": code, "message": "no", "retryable": false}}))
            .await;
    }

    pub(crate) async fn event(&mut self, seq: u64) {
        self.send(json!({"v": "push.runtime.v1", "kind": "event", "sessionId": "s", "seq": seq, "ts": 1,
            "type": "status", "payload": complete("status", json!({}))}))
            .await;
    }

    /// Sends an event of the run `r` of the session `s`.
    pub(crate) async fn run_event(&mut self, seq: u64, kind: &str, payload: Value) {
        self.send(json!({"v": "push.runtime.v1", "kind": "event", "sessionId": "s", "runId": "r", "seq": seq,
            "ts": 1, "type": kind, "payload": complete(kind, payload)}))
            .await;
    }

    pub(crate) async fn send(&mut self, message: Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }
}

/// Returns the `replay` object of an attach reply without a gap.
pub(crate) fn replay(from: u64, to: u64) -> Value {
    json!({"fromSeq": from, "toSeq": to, "completed": true, "gap": false})
}

/// Returns a start command that runs a shell script.
pub(crate) fn shell(script: &str) -> MissingDaemon {
    MissingDaemon::Start(DaemonCommand { program: "/bin/sh".into(), arguments: vec!["-c".into(), script.into()] })
}

/// Waits for a future with a timeout.
pub(crate) async fn with_timeout<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), work).await.expect("the test timed out")
}
