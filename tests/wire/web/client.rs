//! A daemon with an open port, raw HTTP requests, and WebSockets.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::client::Request;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, HandshakeError, Message, WebSocket};

use crate::support::daemon::{Daemon, TIMEOUT};

/// A daemon with a port for Pi.
pub(crate) struct PiDaemon {
    pub(crate) daemon: Daemon,
    pub(crate) address: SocketAddr,
}

impl PiDaemon {
    pub(crate) fn new() -> Self {
        Self::with("", &[])
    }

    /// With this `[pi]` configuration and these variables.
    pub(crate) fn with(pi: &str, variables: &[(&str, &str)]) -> Self {
        Self::from_daemon(Daemon::start_in(home_with_config(pi), variables, &["--pi=127.0.0.1:0"]))
    }

    pub(crate) fn from_daemon(daemon: Daemon) -> Self {
        let at = daemon.connect().get("get_metrics", json!({}))["pi"].as_str().expect("an address").parse();
        Self { daemon, address: at.expect("an address") }
    }

    /// Returns whether commands can be confined here.
    pub(crate) fn confines_commands(&self) -> bool {
        let metrics = self.daemon.connect().get("get_metrics", json!({"sandbox": true}));
        matches!(metrics["sandbox"]["strength"].as_str(), Some("full" | "partial"))
    }

    /// Sends a request and returns everything up to the close of the connection.
    pub(crate) fn answer(&self, request: &str) -> String {
        let mut stream = connect(self.address);
        stream.write_all(request.as_bytes()).expect("the daemon reads");
        read_to_close(&mut stream)
    }

    /// Sends an upgrade request with these extra headers, and returns the response head.
    pub(crate) fn upgrade_response(&self, path: &str, headers: &[(&str, &str)]) -> String {
        let mut request = format!("GET {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request += &format!("Host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        request += "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        let mut stream = connect(self.address);
        stream.write_all(request.as_bytes()).expect("the daemon reads");
        head(&mut stream)
    }

    /// Opens a WebSocket with these headers.
    pub(crate) fn socket(&self, path: &str, headers: &[(&'static str, &str)]) -> Socket {
        self.try_socket(path, headers).unwrap_or_else(|error| panic!("it is refused: {error}"))
    }

    pub(crate) fn try_socket(&self, path: &str, headers: &[(&'static str, &str)]) -> Result<Socket, Error> {
        let mut request: Request = format!("ws://{}{path}", self.address).into_client_request()?;
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().expect("a header"));
        }
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        match tungstenite::client::client_with_config(request, connect(self.address), Some(config)) {
            Ok((socket, _)) => Ok(Socket(socket)),
            Err(HandshakeError::Failure(error)) => Err(error),
            Err(HandshakeError::Interrupted(_)) => panic!("the daemon says nothing"),
        }
    }

    /// Runs the client in the same environment.
    pub(crate) fn push(&self, arguments: &[&str]) -> Output {
        self.daemon.command("push").args(arguments).output().expect("the client")
    }
}

/// A WebSocket to the daemon.
#[derive(Debug)]
pub(crate) struct Socket(pub(crate) WebSocket<TcpStream>);

impl Socket {
    /// Checks that the daemon has sent its greeting and answers.
    pub(crate) fn assert_ready(mut self) -> Self {
        assert_eq!(self.json()["type"], "server_ready");
        self.assert_answers();
        self
    }

    /// Checks that the daemon answers an invalid message.
    pub(crate) fn assert_answers(&mut self) {
        self.0.send(Message::text("not json")).expect("the daemon reads");
        let answer = self.json();
        assert_eq!((&answer["type"], &answer["error"]), (&json!("response"), &json!("Invalid JSON")));
    }

    pub(crate) fn json(&mut self) -> Value {
        let message = self.0.read().expect("a message");
        serde_json::from_str(message.to_text().expect("a text")).expect("JSON")
    }

    /// Reads up to the close frame, and returns its code.
    pub(crate) fn close_code(mut self) -> u16 {
        loop {
            match self.0.read() {
                Ok(Message::Close(reason)) => return reason.expect("a reason").code.into(),
                Ok(_) => {}
                Err(error) => panic!("no goodbye: {error}"),
            }
        }
    }
}

/// A home with this `[pi]` configuration.
pub(crate) fn home_with_config(pi: &str) -> TempDir {
    let home = TempDir::new().expect("a directory");
    configure(&home, &format!("[pi]\n{pi}\n"));
    home
}

pub(crate) fn configure(home: &TempDir, text: &str) {
    let folder = home.path().join(".config/push");
    fs::create_dir_all(&folder).expect("a directory");
    fs::write(folder.join("config.toml"), text).expect("a file");
}

/// Creates a token in a home, with or without a daemon.
pub(crate) fn create_token(home: &TempDir) -> String {
    let made = push_in(home, &["token", "new"]);
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).expect("text").trim().to_owned()
}

/// Runs the client in a home.
pub(crate) fn push_in(home: &TempDir, arguments: &[&str]) -> Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_push"));
    command.args(arguments).env_clear().env("HOME", home.path()).current_dir(home.path());
    command.stdin(Stdio::null()).output().expect("the client")
}

pub(crate) fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).expect("a connection");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a time limit");
    stream
}

/// Reads up to the close of the connection.
pub(crate) fn read_to_close(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the daemon does not hang up: {error}"),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The head of a response.
fn head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => bytes.extend_from_slice(&byte),
            Ok(_) => break,
            Err(error) => panic!("no answer: {error}"),
        }
    }
    String::from_utf8(bytes).expect("text")
}

/// The status code of a response.
pub(crate) fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("nothing")
}
