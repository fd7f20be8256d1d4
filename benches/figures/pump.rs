//! Baseline: the same bytes over bare socket pairs, with one thread per end.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use super::reading;

/// The size of a write, as in the daemon.
const WRITE: usize = 256 * 1024;

/// Sends `lines` to `readers` in parallel and returns how long it took until all had received the last line.
pub(crate) fn pump(lines: &[u8], readers: usize) -> Duration {
    let lines: Arc<[u8]> = lines.into();
    let ready = Arc::new(Barrier::new(2 * readers + 1));
    let mut reading = Vec::new();
    let mut writing = Vec::new();
    for _ in 0..readers {
        let (mut to, mut from) = UnixStream::pair().expect("a pair of sockets");
        let (lines, begin) = (Arc::clone(&lines), Arc::clone(&ready));
        writing.push(thread::spawn(move || {
            begin.wait();
            for part in lines.chunks(WRITE) {
                to.write_all(part).expect("the reader reads");
            }
        }));
        let begin = Arc::clone(&ready);
        reading.push(thread::spawn(move || {
            begin.wait();
            reading::read_until(&mut from, b"\"type\":\"run_complete\"", None);
        }));
    }
    ready.wait();
    let begun = Instant::now();
    for thread in reading {
        thread.join().expect("a reader");
    }
    let took = begun.elapsed();
    for thread in writing {
        thread.join().expect("a writer");
    }
    took
}

/// Echoes a line and returns the duration of each round trip, in microseconds.
pub(crate) fn round_trips(line: &[u8], rounds: usize) -> Vec<f64> {
    let (mut here, mut there) = UnixStream::pair().expect("a pair of sockets");
    let length = line.len();
    let echo = thread::spawn(move || {
        let mut buffer = vec![0; length];
        while there.read_exact(&mut buffer).is_ok() {
            there.write_all(&buffer).expect("the other end");
        }
    });
    let mut buffer = vec![0; length];
    let times = (0..rounds).map(|_| {
        let begun = Instant::now();
        here.write_all(line).expect("the other end");
        here.read_exact(&mut buffer).expect("an echo");
        begun.elapsed().as_secs_f64() * 1e6
    });
    let times = times.collect();
    drop(here);
    echo.join().expect("the other end");
    times
}
