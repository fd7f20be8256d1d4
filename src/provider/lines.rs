//! Splits a byte stream into lines and server-sent events, independently of chunk boundaries.
//!
//! Only complete lines are interpreted, so a character that is split between chunks is not a problem. Input that
//! exceeds its limit ends the response.

use memchr::memchr;

use super::error::ModelError;
use super::turn_decoder::EventFraming;

/// Splits bytes into lines.
#[derive(Debug)]
pub(super) struct LineSplitter {
    partial: Vec<u8>,
    limit: usize,
}

impl LineSplitter {
    /// Creates an empty one.
    pub(super) const fn new(limit: usize) -> Self {
        Self { partial: Vec::new(), limit }
    }

    fn append_partial(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        if self.partial.len() + bytes.len() > self.limit {
            return Err(line_too_long(&self.partial, self.limit));
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    fn check_length<'a>(&self, line: &'a [u8]) -> Result<&'a [u8], ModelError> {
        if line.len() > self.limit { Err(line_too_long(line, self.limit)) } else { Ok(line) }
    }
}

/// A line without its end is an event.
impl EventFraming for LineSplitter {
    fn feed(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        while let Some((line, rest)) = memchr(b'\n', bytes).and_then(|end| bytes.split_at_checked(end)) {
            bytes = rest.get(1..).unwrap_or_default();
            if self.partial.is_empty() {
                each(strip_cr(self.check_length(line)?))?;
            } else {
                self.append_partial(line)?;
                let whole = std::mem::take(&mut self.partial);
                each(strip_cr(&whole))?;
                self.partial = whole;
                self.partial.clear();
            }
        }
        self.append_partial(bytes)
    }

    fn finish(&mut self, mut each: impl FnMut(&[u8]) -> Result<(), ModelError>) -> Result<(), ModelError> {
        let rest = std::mem::take(&mut self.partial);
        if rest.is_empty() { Ok(()) } else { each(strip_cr(&rest)) }
    }
}

/// Decodes server-sent events.
#[derive(Debug)]
pub(super) struct SseDecoder {
    lines: LineSplitter,
    buffer: EventBuffer,
}

#[derive(Debug)]
struct EventBuffer {
    data: Vec<u8>,
    data_state: DataState,
    limit: usize,
}

/// Whether an event has data yet; an empty `data` line counts as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataState {
    Empty,
    Present,
}

impl SseDecoder {
    /// Creates an empty one.
    pub(super) const fn new(limit: usize) -> Self {
        let buffer = EventBuffer { data: Vec::new(), data_state: DataState::Empty, limit };
        Self { lines: LineSplitter::new(limit), buffer }
    }
}

impl EventFraming for SseDecoder {
    fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8]) -> Result<(), ModelError>) -> Result<(), ModelError> {
        let Self { lines, buffer } = self;
        lines.feed(bytes, |line| buffer.accept_line(line, &mut each))
    }

    /// Some servers omit the empty line after their last event.
    fn finish(&mut self, mut each: impl FnMut(&[u8]) -> Result<(), ModelError>) -> Result<(), ModelError> {
        let Self { lines, buffer } = self;
        lines.finish(|line| buffer.accept_line(line, &mut each))?;
        buffer.accept_line(b"", &mut each)
    }
}

impl EventBuffer {
    fn accept_line(
        &mut self,
        line: &[u8],
        each: &mut impl FnMut(&[u8]) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        if line.is_empty() {
            if self.data_state == DataState::Empty {
                return Ok(());
            }
            self.data_state = DataState::Empty;
            let outcome = each(&self.data);
            self.data.clear();
            return outcome;
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            return self.append_data(data.strip_prefix(b" ").unwrap_or(data));
        }
        if line.first() == Some(&b'{') {
            // Not an event: the server answers with plain JSON, normally an error object.
            return each(line);
        }
        let known: [&[u8]; 4] = [b":", b"event", b"id", b"retry"];
        if known.iter().any(|field| line.starts_with(field)) {
            return Ok(());
        }
        Err(ModelError::invalid_response("the server's response is not a stream of server-sent events", line))
    }

    fn append_data(&mut self, data: &[u8]) -> Result<(), ModelError> {
        if self.data.len() + data.len() > self.limit {
            return Err(line_too_long(&self.data, self.limit));
        }
        if self.data_state == DataState::Present {
            self.data.push(b'\n');
        }
        self.data_state = DataState::Present;
        self.data.extend_from_slice(data);
        Ok(())
    }
}

fn strip_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn line_too_long(line: &[u8], limit: usize) -> ModelError {
    ModelError::invalid_response(format!("the server sent a line of more than {limit} bytes"), line)
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[cfg(test)]
mod tests {
    use super::super::error::ModelErrorKind;
    use super::*;

    #[test]
    fn lines_are_split_identically_at_every_chunk_size() {
        let bytes = "one\r\n\ntwo €\nrest".as_bytes();
        for size in 1..=bytes.len() {
            let mut lines = LineSplitter::new(16);
            let mut seen = Vec::new();
            for chunk in bytes.chunks(size) {
                lines.feed(chunk, |line| collect(&mut seen, line)).unwrap();
            }
            lines.finish(|line| collect(&mut seen, line)).unwrap();
            assert_eq!(seen, ["one", "", "two €", "rest"], "in chunks of {size}");
        }
    }

    #[test]
    fn a_line_over_the_limit_is_rejected_at_every_chunk_size() {
        for size in 1..=10 {
            for (bytes, fits) in [(&b"12345678\n"[..], true), (b"123456789\n", false)] {
                let mut lines = LineSplitter::new(8);
                let outcome = bytes.chunks(size).try_for_each(|chunk| lines.feed(chunk, |_| Ok(())));
                assert_eq!(outcome.is_ok(), fits, "{size}");
                assert!(lines.partial.len() <= 8);
            }
        }
    }

    #[test]
    fn only_the_data_of_events_is_passed_on() {
        let text = "\u{feff}: hello\nevent: x\r\ndata: one\r\n\r\n\n: ping\n\nid: 7\nretry: 5\ndata:two\ndata: three\n\ndata:\n\nevent: empty\n\ndata: last";
        for size in 1..=text.len() {
            let mut events = SseDecoder::new(64);
            let mut seen = Vec::new();
            for chunk in text.as_bytes().chunks(size) {
                events.feed(chunk, |data| collect(&mut seen, data)).unwrap();
            }
            events.finish(|data| collect(&mut seen, data)).unwrap();
            assert_eq!(seen, ["one", "two\nthree", "", "last"], "in chunks of {size}");
        }
    }

    #[test]
    fn a_response_that_is_not_an_event_stream_is_rejected() {
        let mut seen = Vec::new();
        let mut events = SseDecoder::new(64);
        events.feed(b"{\"error\":1}\n", |data| collect(&mut seen, data)).unwrap();
        assert_eq!(seen, ["{\"error\":1}"]);
        let error = events.feed(b"<html>\n", |_| Ok(())).unwrap_err();
        assert_eq!((error.kind, error.detail.as_deref()), (ModelErrorKind::InvalidResponse, Some("<html>")));
    }

    #[test]
    fn a_multi_line_event_is_bounded_as_a_whole() {
        let mut events = SseDecoder::new(16);
        let outcome = (0..4).try_for_each(|_| events.feed(b"data: 12345\n", |_| Ok(())));
        assert_eq!(outcome.unwrap_err().kind, ModelErrorKind::InvalidResponse);
    }

    fn collect(seen: &mut Vec<String>, bytes: &[u8]) -> Result<(), ModelError> {
        seen.push(String::from_utf8(bytes.to_vec()).expect("what is whole is text"));
        Ok(())
    }
}
