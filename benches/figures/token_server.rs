//! A model server with minimal overhead: its answers are prepared, and it records when it sends each token.
//!
//! It sends the same answer to every request and ends with the program.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::model::{Reply, ServerDialect, Turn, say, spoken};
use super::relay;

/// A running server.
pub(crate) struct TokenServer {
    address: SocketAddr,
    parts: Vec<Vec<u8>>,
    /// What a part with a token contains.
    mark: &'static str,
    sent_times: Receiver<Vec<Instant>>,
}

/// The pace of an answer.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// As fast as the client reads.
    Fast,
    /// One part at a time with this pause.
    Every(Duration),
    /// One part at a time, so many a second on average.
    Rate(u32),
}

/// The text of every token.
pub(crate) const TOKEN: &str = "words ";

impl TokenServer {
    /// Starts a server whose answers have so many tokens.
    pub(crate) fn start(speaks: ServerDialect, tokens: usize, pace: Pace) -> Self {
        Self::speak(speaks, (0..tokens).map(|_| TOKEN.to_owned()), TOKEN, pace)
    }

    /// Starts a server whose answers have these tokens; `mark` is in every part that contains one.
    pub(crate) fn speak(
        speaks: ServerDialect,
        tokens: impl Iterator<Item = String>,
        mark: &'static str,
        pace: Pace,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let parts = spoken(speaks, &turn(tokens));
        let (note, sent_times) = channel();
        let prepared = match pace {
            Pace::Fast => vec![parts.concat()],
            Pace::Every(_) | Pace::Rate(_) => parts.clone(),
        };
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (prepared, note) = (prepared.clone(), note.clone());
                thread::spawn(move || serve_answers(stream.expect("a connection"), &prepared, pace, &note));
            }
        });
        Self { address, parts, mark, sent_times }
    }

    /// Returns its base URL for a provider.
    pub(crate) fn base_url(&self, speaks: ServerDialect) -> String {
        match speaks {
            ServerDialect::Ollama | ServerDialect::Anthropic => format!("http://{}", self.address),
            ServerDialect::OpenAi => format!("http://{}/v1", self.address),
        }
    }

    /// Returns when the tokens of the next answer were sent; of a fast answer, when it started.
    pub(crate) fn sent_times(&self) -> Vec<Instant> {
        let times = self.sent_times.recv().expect("an answer");
        let is_token = |part: &Vec<u8>| memchr::memmem::find(part, self.mark.as_bytes()).is_some();
        if times.len() < self.parts.len() {
            return times;
        }
        times.into_iter().zip(&self.parts).filter(|(_, part)| is_token(part)).map(|(time, _)| time).collect()
    }

    /// Reads an answer over a bare connection and returns when each token arrived.
    pub(crate) fn read_bare(&self) -> Vec<Instant> {
        self.read(self.ask())
    }

    /// Reads an answer through the relays and returns when each token arrived.
    pub(crate) fn read_relayed(&self) -> Vec<Instant> {
        self.read(relay::connect_relays(self.ask()))
    }

    fn ask(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("the server");
        stream.write_all(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n").expect("the server reads");
        stream
    }

    fn read(&self, mut from: impl Read) -> Vec<Instant> {
        let mut ends = Vec::new();
        let mut length = 0;
        for part in &self.parts {
            length += part.len();
            if memchr::memmem::find(part, self.mark.as_bytes()).is_some() {
                ends.push(length);
            }
        }
        let (mut read, mut times) = (0, Vec::new());
        let mut buffer = vec![0; 64 * 1024];
        while read < length {
            read += from.read(&mut buffer).expect("more of the answer");
            let now = Instant::now();
            while times.len() < ends.len() && ends[times.len()] <= read {
                times.push(now);
            }
        }
        times
    }
}

fn turn(tokens: impl Iterator<Item = String>) -> Turn {
    let reply = Reply::turn(tokens.map(|token| say(&token)));
    let Reply::Turn(turn) = reply else { panic!("{reply:?} is no turn") };
    turn
}

/// Answers every request on a connection.
fn serve_answers(stream: TcpStream, parts: &[Vec<u8>], pace: Pace, note: &Sender<Vec<Instant>>) {
    stream.set_nodelay(true).expect("an option");
    let mut writing = stream.try_clone().expect("another handle");
    let mut reading = BufReader::new(stream);
    while read_request(&mut reading).is_some() {
        let mut times = Vec::with_capacity(parts.len());
        let begun = Instant::now();
        for (part, number) in parts.iter().zip(0..) {
            match pace {
                Pace::Fast => {}
                Pace::Every(pause) => thread::sleep(pause),
                Pace::Rate(rate) => {
                    let due = begun + Duration::from_secs(1) * number / rate;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                }
            }
            times.push(Instant::now());
            if writing.write_all(part).is_err() {
                // The run was cancelled.
                return;
            }
        }
        note.send(times).expect("somebody measures");
    }
}

/// Reads a request; none when the client has closed the connection.
fn read_request(reading: &mut BufReader<TcpStream>) -> Option<()> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reading.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        if line.is_empty() {
            break;
        }
    }
    reading.read_exact(&mut vec![0; length]).ok()
}
