//! Framing: however the bytes arrive, the lines are those of a plain split, and no more than the limit is buffered.
//!
//! The first byte of an input is the limit, the second seeds the chunk sizes, the rest is the data.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::BytesMut;
use pushd::transport::excerpt::Excerpt;
use pushd::transport::line::{Line, LineCodec, Lines};
use tokio::io::{AsyncRead, ReadBuf};

use super::random::Random;

/// Checks one input.
pub(crate) fn check(input: &[u8]) {
    let [limit, seed, bytes @ ..] = input else { return };
    let limit = usize::from(limit % 48);
    let expected = split_reference(bytes, limit);
    assert_eq!(from_codec(bytes, limit, u64::from(*seed)), expected, "limit {limit}, codec");
    assert_eq!(from_reader(bytes, limit, u64::from(*seed)), expected, "limit {limit}, reader");
}

/// The lines of a reader that has the complete text.
fn split_reference(bytes: &[u8], limit: usize) -> Vec<Line> {
    let mut pieces: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let unfinished = pieces.pop().unwrap_or_default();
    let too_long = |piece: &[u8]| {
        let mut excerpt = Excerpt::default();
        excerpt.push(piece);
        Line::TooLong { bytes: piece.len() as u64, excerpt }
    };
    let mut lines: Vec<Line> = pieces
        .into_iter()
        .filter_map(|piece| match without_return(piece) {
            line if line.len() > limit => Some(too_long(piece)),
            [] => None,
            line => Some(Line::Whole(line.to_vec().into())),
        })
        .collect();
    if without_return(unfinished).len() > limit {
        lines.push(too_long(unfinished));
    }
    lines
}

fn without_return(piece: &[u8]) -> &[u8] {
    piece.strip_suffix(b"\r").unwrap_or(piece)
}

fn from_codec(bytes: &[u8], limit: usize, seed: u64) -> Vec<Line> {
    let mut random = Random::new(seed);
    let mut codec = LineCodec::new(limit);
    let (mut buffer, mut lines, mut rest) = (BytesMut::new(), Vec::new(), bytes);
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(next_chunk(&mut random, rest.len()));
        buffer.extend_from_slice(piece);
        rest = after;
        while let Some(line) = codec.next_line(&mut buffer) {
            lines.push(line);
        }
        assert!(buffer.len() <= limit + 1, "{} bytes are held for lines of {limit}", buffer.len());
    }
    lines.extend(codec.last_line(&mut buffer));
    assert!(buffer.is_empty() && codec.last_line(&mut buffer).is_none(), "something follows the end");
    lines
}

fn from_reader(bytes: &[u8], limit: usize, seed: u64) -> Vec<Line> {
    let pieces = ChunkedReader { rest: bytes, random: Random::new(!seed) };
    let mut reader = Lines::with_read_size(pieces, limit, 1 + seed as usize % 64);
    let mut lines = Vec::new();
    loop {
        // A new future each time: reading a line must be cancellation-safe.
        match pin!(reader.next()).poll_once() {
            Poll::Pending => {}
            Poll::Ready(Ok(Some(line))) => lines.push(line),
            Poll::Ready(Ok(None)) => return lines,
            Poll::Ready(Err(error)) => panic!("the pieces never fail, and yet: {error}"),
        }
    }
}

/// Bytes that arrive in chunks, with pauses.
struct ChunkedReader<'a> {
    rest: &'a [u8],
    random: Random,
}

impl AsyncRead for ChunkedReader<'_> {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.random.one_in(3) {
            return Poll::Pending;
        }
        let most = this.rest.len().min(into.remaining());
        let (piece, after) = this.rest.split_at(next_chunk(&mut this.random, most));
        into.put_slice(piece);
        this.rest = after;
        Poll::Ready(Ok(()))
    }
}

/// The length of the next chunk, at most `most` bytes; zero only at the end.
fn next_chunk(random: &mut Random, most: usize) -> usize {
    let largest = [1, 2, 7, 64][random.below(4) as usize];
    most.min(1 + random.below(largest) as usize)
}

trait PollOnce: Future {
    fn poll_once(self: Pin<&mut Self>) -> Poll<Self::Output> {
        self.poll(&mut Context::from_waker(Waker::noop()))
    }
}

impl<F: Future> PollOnce for F {}
