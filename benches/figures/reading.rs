//! Reading as cheaply as it can be done, so that it is not the reader who is measured.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;

/// Reads lines until the last one read holds `mark`, and returns how many there were; all bytes go to `keep`, if any.
pub(crate) fn until(stream: &mut UnixStream, mark: &[u8], mut keep: Option<&mut Vec<u8>>) -> usize {
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
        // Only the last line can hold the mark: what is before it need not be looked at.
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
