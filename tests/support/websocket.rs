//! A minimal WebSocket client, for load tests and benchmarks.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::daemon::TIMEOUT;

/// The sending half of a connection.
pub(crate) struct FrameSender(TcpStream);

/// The receiving half of a connection.
pub(crate) struct FrameReceiver(BufReader<TcpStream>);

/// Opens a connection, completes the handshake and reads the greeting; fails if the daemon is killed meanwhile.
pub(crate) fn open(at: SocketAddr) -> io::Result<(FrameSender, FrameReceiver)> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_nodelay(true)?;
    let request = format!(
        "GET /pi HTTP/1.1\r\nHost: {at}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut from = BufReader::with_capacity(64 * 1024, stream.try_clone()?);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "refused: {}", String::from_utf8_lossy(&head));
    let (mut receiver, mut greeting) = (FrameReceiver(from), Vec::new());
    if !receiver.read_message(&mut greeting)? {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed before the greeting"));
    }
    assert!(greeting.starts_with(b"{\"type\":\"server_ready\""), "no greeting");
    Ok((FrameSender(stream), receiver))
}

impl FrameSender {
    /// Sends a message.
    pub(crate) fn send_text(&mut self, text: &str) -> io::Result<()> {
        self.0.write_all(&frame(text))
    }

    /// Sends frames built by [`frame`], possibly several at once.
    #[allow(dead_code, reason = "not every user measures")]
    pub(crate) fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        self.0.write_all(frames)
    }
}

/// The frame of a message; its mask is zero, which the protocol permits.
pub(crate) fn frame(text: &str) -> Vec<u8> {
    let length = text.len();
    let mut frame = vec![0x81];
    match length {
        0..126 => frame.push(0x80 | length as u8),
        126..65_536 => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => panic!("no message of a test is that long"),
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(text.as_bytes());
    frame
}

impl FrameReceiver {
    /// Reads the next message; `false` when the connection is closed.
    pub(crate) fn read_message(&mut self, message: &mut Vec<u8>) -> io::Result<bool> {
        let mut head = [0; 2];
        match self.0.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if is_end(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.0.read_exact(&mut length)?;
                u64::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                self.0.read_exact(&mut length)?;
                u64::from_be_bytes(length)
            }
            short => u64::from(short),
        };
        message.resize(usize::try_from(length).expect("a length"), 0);
        match self.0.read_exact(message) {
            Ok(()) => Ok(head[0] == 0x81),
            Err(error) if is_end(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}
