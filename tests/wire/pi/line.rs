//! One connection of a client, with all lines and commands on it.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};

use serde_json::Value;
use tungstenite::client::IntoClientRequest;
use tungstenite::{Message, WebSocket};

use crate::pi::rules::SentCommand;
use crate::pi::schema;
use crate::support::daemon::{Daemon, TIMEOUT};

/// The transport of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Web,
    Stdio,
}

/// A connection.
pub(crate) struct Connection {
    channel: Channel,
    /// The received lines, in order.
    pub(crate) log: Vec<Value>,
    /// The sent commands, in order.
    pub(crate) sent: Vec<SentCommand>,
}

enum Channel {
    Web(Box<WebSocket<TcpStream>>),
    Stdio { child: Child, input: Option<ChildStdin>, lines: Receiver<String> },
}

impl Connection {
    /// Connects and waits for the first line.
    pub(crate) fn connect(transport: Transport, daemon: &Daemon, address: &str) -> Self {
        let channel = match transport {
            Transport::Web => Channel::Web(Box::new(web(address))),
            Transport::Stdio => stdio(daemon),
        };
        let mut line = Self { channel, log: Vec::new(), sent: Vec::new() };
        assert!(line.receive(), "no first line");
        line
    }

    /// Sends a text as one message.
    pub(crate) fn send_text(&mut self, text: &str) {
        match &mut self.channel {
            Channel::Web(socket) => socket.send(Message::text(text)).expect("the daemon reads"),
            Channel::Stdio { input, .. } => {
                let input = input.as_mut().expect("a standard input");
                input.write_all(format!("{text}\n").as_bytes()).expect("push pi --stdio reads");
            }
        }
    }

    pub(crate) fn send(&mut self, command: Value) {
        self.send_text(&command.to_string());
        self.sent.push(SentCommand { command, at: self.log.len() });
    }

    /// Waits for the next line; `false` if the connection is closed.
    pub(crate) fn receive(&mut self) -> bool {
        let Some(text) = self.next_text() else { return false };
        let line: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        schema::assert_valid_line(&line);
        self.log.push(line);
        true
    }

    fn next_text(&mut self) -> Option<String> {
        match &mut self.channel {
            Channel::Web(socket) => loop {
                match socket.read() {
                    Ok(Message::Text(text)) => return Some(text.as_str().to_owned()),
                    Ok(Message::Binary(bytes)) => panic!("a binary message: {bytes:?}"),
                    Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                    Ok(Message::Close(_)) => return None,
                    Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                        panic!("no line before the timeout")
                    }
                    Err(_) => return None,
                }
            },
            Channel::Stdio { lines, .. } => match lines.recv_timeout(TIMEOUT) {
                Ok(line) => Some(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => None,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("no line before the timeout"),
            },
        }
    }

    /// Closes the sending side and reads to the end; returns the exit code of `push pi --stdio`.
    pub(crate) fn finish(&mut self) -> Option<i32> {
        match &mut self.channel {
            Channel::Web(socket) => drop(socket.close(None)),
            Channel::Stdio { input, .. } => drop(input.take()),
        }
        self.read_to_end()
    }

    /// Reads to the end; returns the exit code of `push pi --stdio`.
    pub(crate) fn read_to_end(&mut self) -> Option<i32> {
        while self.receive() {}
        match &mut self.channel {
            Channel::Web(_) => None,
            Channel::Stdio { child, .. } => child.wait().expect("push pi --stdio ends").code(),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Channel::Stdio { child, .. } = &mut self.channel {
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

fn stdio(daemon: &Daemon) -> Channel {
    let mut command = daemon.command("push");
    command.args(["pi", "--stdio"]).stdin(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().expect("push pi --stdio");
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
    Channel::Stdio { child, input, lines }
}
