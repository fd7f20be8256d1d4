//! Read commands over the Pi protocol, compared with an echo over the same WebSocket code in this process.
//!
//! The daemon sends four messages for a read: accepted, started, finished, and the response. One echo baseline sends
//! one message per request, the other one four messages of the same sizes.

use std::fs::File;
use std::io::{Seek, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pushd::transport::frames::{self, Frame};
use pushd::transport::web::SocketLimits;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::daemon::Home;
use super::table::{Table, median};
use super::wire::{self, FrameReceiver, FrameSender, frame};

const ROUNDS: usize = 7;
/// The number of requests, one at a time and pipelined.
const SINGLE: usize = 3_000;
const MANY: usize = 20_000;
/// The number of requests in flight when pipelined.
const IN_FLIGHT: usize = 64;
/// The number of prompts, and the pause after each.
const PROMPTS: usize = 150;
const PAUSE: Duration = Duration::from_millis(2);
/// What the journal appends for a small commit, and the size of the file into which it is written here.
const COMMIT: [u8; 3 * 4_120] = [b'x'; 3 * 4_120];
const FILE_BYTES: u64 = 1024 * 1024;

/// Measures reads per second on one connection.
pub(crate) fn measure(table: &mut Table) {
    let mut home = Home::new();
    home.pi = true;
    home.start();
    let at = home.connect().request("get_metrics", json!({}))["pi"].clone();
    let at: SocketAddr = at.as_str().expect("an address").parse().expect("an address");
    let mut asker = PiClient::new(at);
    let cwd = home.dir.path();
    asker.ask(&json!({"type": "create_session", "sessionId": "measured", "cwd": cwd}).to_string());
    for kind in ["get_state", "health_check"] {
        let mut echoes = [PiClient::new(echo(Vec::new())), PiClient::new(echo(asker.messages(kind)))];
        for (way, count, at_once) in [("one at a time", SINGLE, 1), ("64 at once", MANY, IN_FLIGHT)] {
            let (mut reads, mut plain, mut whole) = (Vec::new(), Vec::new(), Vec::new());
            let mut processor = 0.0;
            for _ in 0..ROUNDS {
                let before = home.processor();
                reads.push(asker.rate(kind, count, at_once));
                processor += home.processor() - before;
                plain.push(echoes[0].rate(kind, count, at_once));
                whole.push(echoes[1].rate(kind, count, at_once));
            }
            let (reads, plain, whole) = (median(reads), median(plain), median(whole));
            table.compare(format!("{kind}, {way}"), "reads/s", reads, ("an echo of the request", plain));
            table.compare(format!("{kind}, {way}"), "reads/s", reads, ("an echo of as many messages", whole));
            let each = processor / (ROUNDS * count) as f64 * 1e6;
            table.single(format!("{kind}, {way}: processor time of the daemon a read"), "µs", each);
        }
    }
    acknowledgement(table, &home, &mut asker);
}

/// Measures the time from a prompt to its response, by which it is on disk.
fn acknowledgement(table: &mut Table, home: &Home, client: &mut PiClient) {
    let mut file = File::create(home.dir.path().join("raw")).expect("a file");
    file.set_len(FILE_BYTES).expect("space");
    file.sync_all().expect("a disk");
    let (mut prompts, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..PROMPTS {
        let begun = Instant::now();
        client.ask(&json!({"type": "prompt", "sessionId": "measured", "message": "hello"}).to_string());
        prompts.push(begun.elapsed().as_secs_f64() * 1e6);
        client.wait_for_event("agent_end");
        // What follows the end of a run is on disk before the next measurement.
        thread::sleep(PAUSE);
        if file.stream_position().expect("a file") + COMMIT.len() as u64 > FILE_BYTES {
            file.rewind().expect("a file");
        }
        let begun = Instant::now();
        file.write_all(&COMMIT).and_then(|()| file.sync_data()).expect("a disk");
        raw.push(begun.elapsed().as_secs_f64() * 1e6);
        thread::sleep(PAUSE);
    }
    let name = "three pages written into a file, and fdatasync";
    table.compare("prompt, on disk and acknowledged", "µs", median(prompts), (name, median(raw)));
}

/// A client that counts responses.
struct PiClient {
    writer: FrameSender,
    reader: FrameReceiver,
    line: Vec<u8>,
    requests: usize,
}

impl PiClient {
    fn new(at: SocketAddr) -> Self {
        let (writer, reader) = wire::open(at).expect("a connection");
        Self { writer, reader, line: Vec::new(), requests: 0 }
    }

    fn ask(&mut self, text: &str) {
        self.writer.send_text(text).expect("the daemon reads");
        self.wait_for_replies(1);
    }

    /// Waits for an event of a session.
    fn wait_for_event(&mut self, kind: &str) {
        let kind = format!("\"type\":\"{kind}\"");
        loop {
            assert!(self.reader.read_message(&mut self.line).expect("an event"), "the connection ended");
            if String::from_utf8_lossy(&self.line).contains(&kind) {
                return;
            }
        }
    }

    /// Waits for so many responses.
    fn wait_for_replies(&mut self, mut count: usize) {
        while count > 0 {
            assert!(self.reader.read_message(&mut self.line).expect("an answer"), "the connection ended");
            // A response starts with its id or with its type; other messages start with another type.
            let is_answer = self.line.starts_with(b"{\"id\":") || self.line.starts_with(b"{\"type\":\"response\"");
            count -= usize::from(is_answer);
        }
    }

    fn request(&mut self, kind: &str) -> String {
        self.requests += 1;
        let id = format!("r{:08}", self.requests);
        format!("{{\"id\":\"{id}\",\"type\":\"{kind}\",\"sessionId\":\"measured\"}}")
    }

    /// Returns the messages that the daemon sends for one read.
    fn messages(&mut self, kind: &str) -> Vec<Bytes> {
        let request = self.request(kind);
        self.writer.send_text(&request).expect("the daemon reads");
        let mut messages = Vec::new();
        loop {
            assert!(self.reader.read_message(&mut self.line).expect("an answer"), "the connection ended");
            let message: Value = serde_json::from_slice(&self.line).expect("JSON");
            let kind = message["type"].as_str().expect("a type");
            if kind.starts_with("command_") || kind == "response" {
                messages.push(Bytes::copy_from_slice(&self.line));
            }
            if kind == "response" {
                return messages;
            }
        }
    }

    /// Sends `count` requests with at most `at_once` in flight and returns the responses per second.
    fn rate(&mut self, kind: &str, count: usize, at_once: usize) -> f64 {
        let begun = Instant::now();
        // Half of the window is sent at a time, so that the other half keeps the daemon busy.
        let step = at_once.div_ceil(2);
        let mut waiting = 0;
        let mut left = count;
        while left > 0 {
            let now = step.min(left);
            let frames: Vec<u8> = (0..now).flat_map(|_| frame(&self.request(kind))).collect();
            self.writer.send(&frames).expect("the daemon reads");
            (left, waiting) = (left - now, waiting + now);
            let most = at_once - step;
            self.wait_for_replies(waiting.saturating_sub(most));
            waiting = waiting.min(most);
        }
        self.wait_for_replies(waiting);
        count as f64 / begun.elapsed().as_secs_f64()
    }
}

/// Starts an echo server and returns its address; it replies with `messages` if there are any, else with the request.
fn echo(messages: Vec<Bytes>) -> SocketAddr {
    let (sender, address) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            sender.send(listener.local_addr().expect("an address")).expect("somebody measures");
            let (stream, _) = listener.accept().await.expect("a connection");
            // As the daemon does: otherwise a reply may wait for the delayed acknowledgement of the one before.
            stream.set_nodelay(true).expect("an option");
            // Like the daemon: one task per connection.
            tokio::spawn(serve(stream, messages)).await.expect("an echo");
        });
    });
    address.recv().expect("an address")
}

async fn serve(mut stream: TcpStream, messages: Vec<Bytes>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a request"));
    }
    stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").await.expect("a client");
    let limits =
        SocketLimits { message: 10 * 1024 * 1024, stall_timeout: Duration::from_secs(60), has_request_id: |_| false };
    let (mut from, mut to) = frames::web_socket(stream, Bytes::new(), limits);
    let greeting = Bytes::from_static(b"{\"type\":\"server_ready\"}");
    to.send(&[greeting]).await.expect("a client");
    while let Ok(Some(Frame::Text(text))) = from.next().await {
        let echoed = if messages.is_empty() { std::slice::from_ref(&text) } else { messages.as_slice() };
        if to.send(echoed).await.is_err() {
            return;
        }
    }
}
