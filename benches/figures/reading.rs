//! A line reader with minimal overhead, so that the benchmark does not measure the reader.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;

/// Reads until the last line contains `mark` and returns the number of lines; all bytes are appended to `keep`.
pub(crate) fn read_until(stream: &mut UnixStream, mark: &[u8], mut keep: Option<&mut Vec<u8>>) -> usize {
    let mut buffer = vec![0; 64 * 1024];
    let mut lines = 0;
    let mut tail: Vec<u8> = Vec::new();
    loop {
        let read = match stream.read(&mut buffer) {
            Ok(0) => panic!("the peer has closed after {lines} lines"),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => panic!("nothing came after {lines} lines: {error}"),
        };
        let bytes = &buffer[..read];
        lines += memchr::memchr_iter(b'\n', bytes).count();
        if let Some(keep) = keep.as_deref_mut() {
            keep.extend_from_slice(bytes);
        }
        // Only the last line can contain the mark.
        match memchr::memrchr(b'\n', &bytes[..read - 1]) {
            Some(at) => {
                tail.clear();
                tail.extend_from_slice(&bytes[at + 1..]);
            }
            None => tail.extend_from_slice(bytes),
        }
        if bytes[read - 1] == b'\n' && memchr::memmem::find(&tail, mark).is_some() {
            return lines;
        }
    }
}
