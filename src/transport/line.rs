//! Framing: bytes become lines, each bounded.
//!
//! A line over the limit costs that line and nothing else: it is thrown away while it streams in, never gathered, and
//! reported once. The codec does not look into a line; whether it is UTF-8 or JSON is asked at the door
//! ([`compact`](super::compact)).

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::codec::Decoder;

use super::excerpt::Excerpt;

/// What arrived between two line ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A line within the limit, without its line end; never empty.
    Whole(Bytes),
    /// A line over the limit, of which nothing but its two ends was kept.
    TooLong {
        /// How many bytes it had before its `\n`.
        bytes: u64,
        /// Its two ends.
        excerpt: Excerpt,
    },
}

/// Cuts a stream of bytes at line ends, `\n` or `\r\n`.
///
/// Blank lines are skipped. A last line without its end is dropped: its sender died in the middle of it. The codec
/// itself never fails, so a stream goes on after any line.
#[derive(Debug)]
pub struct LineCodec {
    limit: usize,
    /// How much of the buffer is known to hold no line end.
    searched: usize,
    /// How much of an over-long line has been thrown away so far.
    dropped: Option<Box<Dropped>>,
    /// Whether the buffer has outgrown what a quiet connection may hold.
    swollen: bool,
}

impl LineCodec {
    /// Makes a codec for lines of at most `limit` bytes, line end not counted.
    pub const fn new(limit: usize) -> Self {
        Self { limit, searched: 0, dropped: None, swollen: false }
    }

    /// Takes the next line out of `source`, if its end has arrived.
    pub fn next_line(&mut self, source: &mut BytesMut) -> Option<Line> {
        self.swollen |= source.capacity() > KEPT_CAPACITY;
        loop {
            let Some(end) = memchr::memchr(b'\n', &source[self.searched..]).map(|at| at + self.searched)
            else {
                self.wait(source);
                return None;
            };
            self.searched = 0;
            let mut line = source.split_to(end);
            source.advance(1);
            let length = without_return(&line);
            if self.dropped.is_some() || length > self.limit {
                self.drop_bytes(&line);
                return self.reported();
            }
            if length > 0 {
                line.truncate(length);
                return Some(Line::Whole(line.freeze()));
            }
        }
    }

    /// Says what is left to report when no more bytes will come.
    pub fn last_line(&mut self, source: &mut BytesMut) -> Option<Line> {
        if let Some(line) = self.next_line(source) {
            return Some(line);
        }
        self.searched = 0;
        *source = BytesMut::new();
        self.reported()
    }

    /// Counts bytes of a line over the limit that are thrown away.
    fn drop_bytes(&mut self, bytes: &[u8]) {
        let dropped = self.dropped.get_or_insert_default();
        dropped.bytes += count(bytes);
        dropped.excerpt.push(bytes);
    }

    /// Returns the report of the line that was thrown away.
    fn reported(&mut self) -> Option<Line> {
        let Dropped { bytes, excerpt } = *self.dropped.take()?;
        Some(Line::TooLong { bytes, excerpt })
    }

    /// Keeps of an unfinished line only what may still become a whole one, and lets go of a large buffer.
    fn wait(&mut self, source: &mut BytesMut) {
        // A `\r` may be half of the line end, so that it does not count yet.
        let length = source.len() - usize::from(source.last() == Some(&b'\r'));
        if self.dropped.is_some() || length > self.limit {
            self.drop_bytes(source);
            source.clear();
        }
        self.searched = source.len();
        if self.swollen && source.len() <= KEPT_CAPACITY {
            // What was cut from a buffer keeps all of it alive: a copy of the rest is the way to give it back.
            *source = BytesMut::from(&source[..]);
            self.swollen = false;
        }
    }
}

impl Decoder for LineCodec {
    type Item = Line;
    type Error = io::Error;

    fn decode(&mut self, source: &mut BytesMut) -> io::Result<Option<Line>> {
        Ok(self.next_line(source))
    }

    fn decode_eof(&mut self, source: &mut BytesMut) -> io::Result<Option<Line>> {
        Ok(self.last_line(source))
    }
}

/// Reads lines from `R`, one at a time.
#[derive(Debug)]
pub struct Lines<R> {
    from: R,
    codec: LineCodec,
    buffer: BytesMut,
    read_size: usize,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Reads lines of at most `limit` bytes, with a small buffer, as suits many quiet connections.
    pub fn new(from: R, limit: usize) -> Self {
        Self::with_read_size(from, limit, SMALL_READ)
    }

    /// Reads lines of at most `limit` bytes and asks for `read_size` bytes at a time, as suits one busy connection.
    pub fn with_read_size(from: R, limit: usize, read_size: usize) -> Self {
        Self {
            from,
            codec: LineCodec::new(limit),
            buffer: BytesMut::new(),
            read_size: read_size.max(1),
            ended: false,
        }
    }

    /// Goes on with the same stream in another form, and with another limit; what has arrived is not lost.
    pub fn carried<T: AsyncRead + Unpin>(self, limit: usize, form: impl FnOnce(R) -> T) -> Lines<T> {
        let codec = LineCodec { limit, ..self.codec };
        let Self { from, buffer, read_size, ended, .. } = self;
        Lines { from: form(from), codec, buffer, read_size, ended }
    }

    /// Returns the next line, or `None` when the peer has ended.
    ///
    /// May be dropped half-way: nothing that was read is lost.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if self.ended {
                return Ok(self.codec.last_line(&mut self.buffer));
            }
            if let Some(line) = self.codec.next_line(&mut self.buffer) {
                return Ok(Some(line));
            }
            self.buffer.reserve(self.read_size);
            self.ended = self.from.read_buf(&mut self.buffer).await? == 0;
        }
    }

    /// Returns the next line that has already arrived, without reading.
    pub fn gathered(&mut self) -> Option<Line> {
        self.codec.next_line(&mut self.buffer)
    }
}

/// How much of an over-long line has been thrown away so far, and its two ends.
#[derive(Debug, Default)]
struct Dropped {
    bytes: u64,
    excerpt: Excerpt,
}

/// Returns the length of a line without the first half of its line end.
fn without_return(line: &[u8]) -> usize {
    line.len() - usize::from(line.last() == Some(&b'\r'))
}

fn count(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// The largest buffer that a connection keeps while it waits for its next line.
const KEPT_CAPACITY: usize = 64 * 1024;

/// How much is asked for at once on a connection that mostly says nothing.
const SMALL_READ: usize = 4 * 1024;

#[cfg(test)]
mod tests;
