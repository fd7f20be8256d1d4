//! Line framing: splits a byte stream into lines of bounded length.
//!
//! A line over the limit is discarded while it arrives, never buffered, and reported once; the stream continues after
//! it. The codec does not inspect lines; [`canonical_json`](super::canonical_json) validates them.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::codec::Decoder;

use super::excerpt::Excerpt;

/// A line of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A line within the limit, without its line end; never empty.
    Whole(Bytes),
    /// A line over the limit, of which only the head and the tail were kept.
    TooLong {
        /// How many bytes it had before its `\n`.
        bytes: u64,
        /// Its head and tail.
        excerpt: Excerpt,
    },
}

/// Cuts a stream of bytes at line ends, `\n` or `\r\n`.
///
/// Blank lines are skipped. A last line without its line end is dropped, because its sender died while writing it.
/// The codec never fails, so a stream continues after any line.
#[derive(Debug)]
pub struct LineCodec {
    limit: usize,
    /// How much of the buffer is known to contain no line end.
    searched: usize,
    /// The discarded part of an overlong line.
    discarded: Option<Box<DiscardedLine>>,
    /// Whether the buffer has outgrown what an idle connection may hold.
    oversized: bool,
}

impl LineCodec {
    /// Creates a codec for lines of at most `limit` bytes, line end not counted.
    pub const fn new(limit: usize) -> Self {
        Self { limit, searched: 0, discarded: None, oversized: false }
    }

    /// Takes the next complete line out of `source`.
    pub fn next_line(&mut self, source: &mut BytesMut) -> Option<Line> {
        self.oversized |= source.capacity() > KEPT_CAPACITY;
        loop {
            let Some(end) = memchr::memchr(b'\n', &source[self.searched..]).map(|at| at + self.searched) else {
                self.keep_partial_line(source);
                return None;
            };
            self.searched = 0;
            let mut line = source.split_to(end);
            source.advance(1);
            let length = without_return(&line);
            if self.discarded.is_some() || length > self.limit {
                self.discard(&line);
                return self.take_report();
            }
            if length > 0 {
                line.truncate(length);
                return Some(Line::Whole(line.freeze()));
            }
        }
    }

    /// Returns what is left to report at the end of the stream.
    pub fn last_line(&mut self, source: &mut BytesMut) -> Option<Line> {
        if let Some(line) = self.next_line(source) {
            return Some(line);
        }
        self.searched = 0;
        *source = BytesMut::new();
        self.take_report()
    }

    /// Counts discarded bytes of a line over the limit.
    fn discard(&mut self, bytes: &[u8]) {
        let dropped = self.discarded.get_or_insert_default();
        dropped.bytes += count(bytes);
        dropped.excerpt.push(bytes);
    }

    /// Returns the report of the discarded line.
    fn take_report(&mut self) -> Option<Line> {
        let DiscardedLine { bytes, excerpt } = *self.discarded.take()?;
        Some(Line::TooLong { bytes, excerpt })
    }

    /// Keeps an incomplete line only while it is within the limit, and releases a large buffer.
    fn keep_partial_line(&mut self, source: &mut BytesMut) {
        // A `\r` may be the first half of the line end, so it does not count yet.
        let length = source.len() - usize::from(source.last() == Some(&b'\r'));
        if self.discarded.is_some() || length > self.limit {
            self.discard(source);
            source.clear();
        }
        self.searched = source.len();
        if self.oversized && source.len() <= KEPT_CAPACITY {
            // Slices of a buffer keep all of it alive; copying the rest releases it.
            *source = BytesMut::from(&source[..]);
            self.oversized = false;
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
    /// Reads lines of at most `limit` bytes with a small buffer, for many idle connections.
    pub fn new(from: R, limit: usize) -> Self {
        Self::with_read_size(from, limit, SMALL_READ)
    }

    /// Reads lines of at most `limit` bytes, `read_size` bytes at a time, for one busy connection.
    pub fn with_read_size(from: R, limit: usize, read_size: usize) -> Self {
        Self { from, codec: LineCodec::new(limit), buffer: BytesMut::new(), read_size: read_size.max(1), ended: false }
    }

    /// Continues with another limit; buffered bytes are kept.
    pub fn with_limit(self, limit: usize) -> Self {
        Self { codec: LineCodec { limit, ..self.codec }, ..self }
    }

    /// Returns the next line, or `None` when the peer has closed.
    ///
    /// Cancel safe: no received byte is lost.
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

    /// Returns the next line from the buffer, without reading.
    pub fn next_buffered(&mut self) -> Option<Line> {
        self.codec.next_line(&mut self.buffer)
    }
}

/// The length of the discarded part of an overlong line, and its head and tail.
#[derive(Debug, Default)]
struct DiscardedLine {
    bytes: u64,
    excerpt: Excerpt,
}

/// Returns the length of a line without a trailing carriage return.
fn without_return(line: &[u8]) -> usize {
    line.len() - usize::from(line.last() == Some(&b'\r'))
}

fn count(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// The largest buffer that an idle connection keeps.
const KEPT_CAPACITY: usize = 64 * 1024;

/// The read size of a connection that is mostly idle.
const SMALL_READ: usize = 4 * 1024;

#[cfg(test)]
mod tests;
