//! Hostile lines over every transport: each is answered with an error, or closes the connection that sent it, and
//! affects no other.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout};

use serde_json::{Value, json};
use tungstenite::Message;

use crate::support::daemon::Client;
use crate::web::client::{PiDaemon, Socket};
use crate::web::http::http_daemon;
use crate::web::messages::frame;
use crate::web::stdio::bridge;

/// A valid request of each protocol, without its braces.
const PUSH: &str = r#""v":"push.runtime.v1","kind":"request","requestId":"h","type":"ping""#;
const PI: &str = r#""id":"h","type":"health_check""#;

#[test]
fn hostile_lines_are_refused_on_every_transport_and_affect_no_other_connection() {
    let server = http_daemon();
    let (mut other, session) = server.daemon.session();
    for (transport, request) in [
        (Transport::LocalSocket, PUSH),
        (Transport::Web("/push"), PUSH),
        (Transport::Web("/pi"), PI),
        (Transport::StandardInput, PI),
    ] {
        for (what, line) in hostile_lines(request) {
            let mut connection = Connection::open(transport, &server);
            connection.send(&line);
            match connection.receive() {
                Received::Line(answer) => {
                    assert!(is_refused(&answer), "{what} over {transport:?}: {answer}");
                    connection.send(format!("{{{request}}}").as_bytes());
                    let Received::Line(answer) = connection.receive() else {
                        panic!("{what} over {transport:?} closes the connection after its answer")
                    };
                    assert!(answer["ok"] == true || answer["success"] == true, "after {what}: {answer}");
                }
                Received::Close(code) => {
                    // A WebSocket message that is no text violates the protocol.
                    assert_eq!((what, code), ("invalid UTF-8", 1007), "{transport:?}");
                }
            }
            other.ping();
        }
    }
    assert_eq!(other.run(&session, "$ true\n")["outcome"], "success");
}

fn hostile_lines(request: &str) -> Vec<(&'static str, Vec<u8>)> {
    let with = |value: &[u8]| [b"{", request.as_bytes(), b",\"payload\":{\"a\":", value, b"}}"].concat();
    let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    vec![
        ("invalid UTF-8", with(b"\"\xff\xfe\"")),
        ("more than the longest line", with(format!("\"{}\"", "x".repeat(11 << 20)).as_bytes())),
        ("deep nesting", with(&deep)),
        ("a NUL", with(b"\"\0\"")),
        ("duplicate keys", with(b"{\"b\":1,\"b\":2}")),
        ("a lone surrogate", with(b"\"\\ud800\"")),
    ]
}

/// Returns whether an answer of either protocol is an error with its reason.
fn is_refused(answer: &Value) -> bool {
    let reason = answer["error"]["message"].as_str().or(answer["error"].as_str());
    let failed = answer["ok"] == json!(false) || answer["success"] == json!(false);
    failed && reason.is_some_and(|reason| !reason.is_empty())
}

#[derive(Debug, Clone, Copy)]
enum Transport {
    LocalSocket,
    Web(&'static str),
    StandardInput,
}

enum Connection {
    Local(Client),
    Web(Socket),
    Bridge { process: Child, input: ChildStdin, output: BufReader<ChildStdout> },
}

enum Received {
    Line(Value),
    Close(u16),
}

impl Connection {
    fn open(transport: Transport, server: &PiDaemon) -> Self {
        let mut connection = match transport {
            Transport::LocalSocket => return Self::Local(server.daemon.connect()),
            Transport::Web("/push") => return Self::Web(server.socket("/push", &[])),
            Transport::Web(path) => Self::Web(server.socket(path, &[])),
            Transport::StandardInput => {
                let mut process = bridge(&server.daemon);
                let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
                Self::Bridge { process, input, output: BufReader::new(output) }
            }
        };
        let Received::Line(greeting) = connection.receive() else { panic!("no greeting") };
        assert_eq!(greeting["type"], "server_ready");
        connection
    }

    fn send(&mut self, line: &[u8]) {
        match self {
            Self::Local(client) => client.send_raw(&[line, b"\n"].concat()),
            Self::Web(socket) => socket.0.get_ref().write_all(&frame(0x81, line)).unwrap(),
            Self::Bridge { input, .. } => input.write_all(&[line, b"\n"].concat()).unwrap(),
        }
    }

    /// Returns the next line that is no event, or the code of the close.
    fn receive(&mut self) -> Received {
        loop {
            let line = match self {
                Self::Local(client) => client.next(),
                Self::Web(socket) => {
                    let message = socket.0.read().unwrap();
                    if let Message::Close(reason) = &message {
                        return Received::Close(reason.as_ref().unwrap().code.into());
                    }
                    serde_json::from_str(message.to_text().unwrap()).unwrap()
                }
                Self::Bridge { output, .. } => {
                    let mut line = String::new();
                    output.read_line(&mut line).unwrap();
                    serde_json::from_str(&line).unwrap()
                }
            };
            // Clients of Pi are notified of all commands.
            if line["type"] == "server_ready" || line["kind"] == "response" || line["type"] == "response" {
                return Received::Line(line);
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Self::Bridge { process, .. } = self {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
