//! One connection of a client, and everything that was said on it.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};

use serde_json::Value;
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, WebSocket};

use crate::pi::judge;
use crate::pi::rules::Sent;
use crate::support::daemon::{Daemon, TIMEOUT};

/// How a client is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    Web,
    Stdio,
}

/// A connection.
pub(crate) struct Line {
    wire: Wire,
    /// Every line that came, in order.
    pub(crate) log: Vec<Value>,
    /// The commands that were sent, in order.
    pub(crate) sent: Vec<Sent>,
}

enum Wire {
    Web(Box<WebSocket<TcpStream>>),
    Stdio { child: Child, input: Option<ChildStdin>, lines: Receiver<String> },
}

impl Line {
    /// Connects, and waits for the first line.
    pub(crate) fn connect(via: Via, daemon: &Daemon, address: &str) -> Self {
        let wire = match via {
            Via::Web => Wire::Web(Box::new(web(address))),
            Via::Stdio => stdio(daemon),
        };
        let mut line = Self { wire, log: Vec::new(), sent: Vec::new() };
        assert!(line.hear(), "a connection that is not greeted");
        line
    }

    /// Sends a text as one message.
    pub(crate) fn send_text(&mut self, text: &str) {
        match &mut self.wire {
            Wire::Web(socket) => socket.send(Message::text(text)).expect("the daemon reads"),
            Wire::Stdio { input, .. } => {
                let input = input.as_mut().expect("a standard input");
                input.write_all(format!("{text}\n").as_bytes()).expect("the bridge reads");
            }
        }
    }

    pub(crate) fn send(&mut self, command: Value) {
        self.send_text(&command.to_string());
        self.sent.push(Sent { command, at: self.log.len() });
    }

    /// Waits for one more line; `false` when the connection is over.
    pub(crate) fn hear(&mut self) -> bool {
        let Some(text) = self.next_text() else { return false };
        let line: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        judge::line_of_the_server(&line);
        self.log.push(line);
        true
    }

    fn next_text(&mut self) -> Option<String> {
        match &mut self.wire {
            Wire::Web(socket) => loop {
                match socket.read() {
                    Ok(Message::Text(text)) => return Some(text.as_str().to_owned()),
                    Ok(Message::Binary(bytes)) => panic!("a binary message: {bytes:?}"),
                    Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                    Ok(Message::Close(_)) => return None,
                    Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                        panic!("nothing more came")
                    }
                    Err(_) => return None,
                }
            },
            Wire::Stdio { lines, .. } => match lines.recv_timeout(TIMEOUT) {
                Ok(line) => Some(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => None,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("nothing more came"),
            },
        }
    }

    /// Says that nothing more will be sent, and reads to the end; returns how a bridge exits.
    pub(crate) fn finish(&mut self) -> Option<i32> {
        match &mut self.wire {
            Wire::Web(socket) => drop(socket.close(None)),
            Wire::Stdio { input, .. } => drop(input.take()),
        }
        self.until_closed()
    }

    /// Reads to the end; returns how a bridge exits.
    pub(crate) fn until_closed(&mut self) -> Option<i32> {
        while self.hear() {}
        match &mut self.wire {
            Wire::Web(_) => None,
            Wire::Stdio { child, .. } => child.wait().expect("the bridge ends").code(),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Wire::Stdio { child, .. } = &mut self.wire {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Opens a WebSocket at an address of this machine.
fn web(address: &str) -> WebSocket<TcpStream> {
    let request = format!("ws://{address}/pi").into_client_request().expect("a request");
    let stream = TcpStream::connect(address).expect("the daemon listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a time limit");
    let (socket, _) = tungstenite::client(request, stream).expect("a WebSocket");
    socket
}

fn stdio(daemon: &Daemon) -> Wire {
    let mut command = daemon.command("push");
    command.args(["pi", "--stdio"]).stdin(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().expect("the bridge");
    let output = BufReader::new(child.stdout.take().expect("its output"));
    let input = child.stdin.take();
    let (tell, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in output.lines() {
            let Ok(line) = line else { return };
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    Wire::Stdio { child, input, lines }
}
