//! Splits a byte stream into lines and server-sent events, independently of chunk boundaries.
//!
//! Only complete lines are interpreted, so a character that is split between chunks is not a problem. Input that
//! exceeds its limit ends the response.

use memchr::memchr;

use super::error::ModelError;

/// Splits bytes into lines.
#[derive(Debug)]
pub(super) struct Lines {
    held: Vec<u8>,
    limit: usize,
}

impl Lines {
    /// Creates an empty one.
    pub(super) const fn new(limit: usize) -> Self {
        Self { held: Vec::new(), limit }
    }

    /// Passes every line that `bytes` completes to `each`, without its line end.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        while let Some((line, rest)) = memchr(b'\n', bytes).and_then(|end| bytes.split_at_checked(end)) {
            bytes = rest.get(1..).unwrap_or_default();
            if self.held.is_empty() {
                each(plain(self.fits(line)?))?;
            } else {
                self.hold(line)?;
                let whole = std::mem::take(&mut self.held);
                each(plain(&whole))?;
                self.held = whole;
                self.held.clear();
            }
        }
        self.hold(bytes)
    }

    /// Passes the rest to `each` at the end of the input.
    pub(super) fn finish(
        &mut self,
        each: impl FnOnce(&[u8]) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let rest = std::mem::take(&mut self.held);
        if rest.is_empty() { Ok(()) } else { each(plain(&rest)) }
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), ModelError> {
        if self.held.len() + bytes.len() > self.limit {
            return Err(too_long(&self.held, self.limit));
        }
        self.held.extend_from_slice(bytes);
        Ok(())
    }

    fn fits<'a>(&self, line: &'a [u8]) -> Result<&'a [u8], ModelError> {
        if line.len() > self.limit { Err(too_long(line, self.limit)) } else { Ok(line) }
    }
}

/// Decodes server-sent events.
#[derive(Debug)]
pub(super) struct Events {
    lines: Lines,
    gathered: Gathered,
}

#[derive(Debug)]
struct Gathered {
    data: Vec<u8>,
    any: Any,
    limit: usize,
}

/// Whether an event has data yet; an empty `data` line counts as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Any {
    Nothing,
    Data,
}

impl Events {
    /// Creates an empty one.
    pub(super) const fn new(limit: usize) -> Self {
        let gathered = Gathered { data: Vec::new(), any: Any::Nothing, limit };
        Self { lines: Lines::new(limit), gathered }
    }

    /// Passes the data of every event that `bytes` completes to `each`.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let Self { lines, gathered } = self;
        lines.feed(bytes, |line| gathered.line(line, &mut each))
    }

    /// Passes the rest to `each`: some servers omit the empty line after their last event.
    pub(super) fn finish(
        &mut self,
        mut each: impl FnMut(&[u8]) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let Self { lines, gathered } = self;
        lines.finish(|line| gathered.line(line, &mut each))?;
        gathered.line(b"", &mut each)
    }
}

impl Gathered {
    fn line(
        &mut self,
        line: &[u8],
        each: &mut impl FnMut(&[u8]) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        if line.is_empty() {
            if self.any == Any::Nothing {
                return Ok(());
            }
            self.any = Any::Nothing;
            let outcome = each(&self.data);
            self.data.clear();
            return outcome;
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            return self.data(data.strip_prefix(b" ").unwrap_or(data));
        }
        if line.first() == Some(&b'{') {
            // Not an event: the server answers with plain JSON, normally an error object.
            return each(line);
        }
        let known: [&[u8]; 4] = [b":", b"event", b"id", b"retry"];
        if known.iter().any(|field| line.starts_with(field)) {
            return Ok(());
        }
        Err(ModelError::garbage("the server's response is not a stream of server-sent events", line))
    }

    fn data(&mut self, data: &[u8]) -> Result<(), ModelError> {
        if self.data.len() + data.len() > self.limit {
            return Err(too_long(&self.data, self.limit));
        }
        if self.any == Any::Data {
            self.data.push(b'\n');
        }
        self.any = Any::Data;
        self.data.extend_from_slice(data);
        Ok(())
    }
}

fn plain(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn too_long(line: &[u8], limit: usize) -> ModelError {
    ModelError::garbage(format!("the server sent a line of more than {limit} bytes"), line)
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[cfg(test)]
mod tests {
    use super::super::error::Kind;
    use super::*;

    #[test]
    fn lines_come_out_whole_however_the_bytes_are_cut() {
        let bytes = "one\r\n\ntwo €\nrest".as_bytes();
        for size in 1..=bytes.len() {
            let mut lines = Lines::new(16);
            let mut seen = Vec::new();
            for chunk in bytes.chunks(size) {
                lines.feed(chunk, |line| keep(&mut seen, line)).unwrap();
            }
            lines.finish(|line| keep(&mut seen, line)).unwrap();
            assert_eq!(seen, ["one", "", "two €", "rest"], "in chunks of {size}");
        }
    }

    #[test]
    fn a_line_past_the_limit_is_refused_however_it_arrives() {
        for size in 1..=10 {
            for (bytes, fits) in [(&b"12345678\n"[..], true), (b"123456789\n", false)] {
                let mut lines = Lines::new(8);
                let outcome = bytes.chunks(size).try_for_each(|chunk| lines.feed(chunk, |_| Ok(())));
                assert_eq!(outcome.is_ok(), fits, "{size}");
                assert!(lines.held.len() <= 8);
            }
        }
    }

    #[test]
    fn events_are_their_data_and_nothing_else() {
        let text = "\u{feff}: hello\nevent: x\r\ndata: one\r\n\r\n\n: ping\n\nid: 7\nretry: 5\ndata:two\ndata: three\n\ndata:\n\nevent: empty\n\ndata: last";
        for size in 1..=text.len() {
            let mut events = Events::new(64);
            let mut seen = Vec::new();
            for chunk in text.as_bytes().chunks(size) {
                events.feed(chunk, |data| keep(&mut seen, data)).unwrap();
            }
            events.finish(|data| keep(&mut seen, data)).unwrap();
            assert_eq!(seen, ["one", "two\nthree", "", "last"], "in chunks of {size}");
        }
    }

    #[test]
    fn what_is_no_stream_of_events_is_said_to_be_none() {
        let mut seen = Vec::new();
        let mut events = Events::new(64);
        events.feed(b"{\"error\":1}\n", |data| keep(&mut seen, data)).unwrap();
        assert_eq!(seen, ["{\"error\":1}"]);
        let error = events.feed(b"<html>\n", |_| Ok(())).unwrap_err();
        assert_eq!((error.kind, error.detail.as_deref()), (Kind::Garbage, Some("<html>")));
    }

    #[test]
    fn an_event_of_many_lines_is_bounded_as_one() {
        let mut events = Events::new(16);
        let outcome = (0..4).try_for_each(|_| events.feed(b"data: 12345\n", |_| Ok(())));
        assert_eq!(outcome.unwrap_err().kind, Kind::Garbage);
    }

    fn keep(seen: &mut Vec<String>, bytes: &[u8]) -> Result<(), ModelError> {
        seen.push(String::from_utf8(bytes.to_vec()).expect("what is whole is text"));
        Ok(())
    }
}
