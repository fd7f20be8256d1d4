//! Baseline for the path of a token: the same hops without processing.
//!
//! A token passes through the daemon, which stores it, and the client, which prints it. Here a thread takes the place
//! of each: the first one writes as much as the journal does for a small block (two pages with headers) and forwards
//! the bytes over a local socket, the second one forwards them over a pipe.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::thread;

/// Connects the relays to a connection and returns the reading end.
pub(crate) fn connect_relays(mut stream: TcpStream) -> impl Read {
    let file = tempfile::tempfile().expect("a file");
    let (mut store_tx, mut store_rx) = UnixStream::pair().expect("a pair of sockets");
    let (end, mut pipe_writer) = io::pipe().expect("a pipe");
    thread::spawn(move || {
        let mut at = 0;
        copy(&mut stream, &mut store_tx, || {
            for piece in [&[0; 24][..], &[0; 4096]].iter().cycle().take(4) {
                file.write_all_at(piece, at).expect("room for it");
                at += piece.len() as u64;
            }
        });
    });
    thread::spawn(move || copy(&mut store_rx, &mut pipe_writer, || {}));
    end
}

fn copy(from: &mut impl Read, to: &mut impl Write, mut before: impl FnMut()) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        before();
        if to.write_all(&buffer[..bytes]).is_err() {
            return;
        }
    }
}
