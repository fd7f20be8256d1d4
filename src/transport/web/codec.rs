//! The WebSocket frame codec (RFC 6455), server side.
//!
//! It works on bytes in memory and does no IO. A text is buffered up to its limit; of a longer one only the head and
//! the tail are kept. A long text is reported as soon as its head contains the request id, else at its end. A binary
//! message is reported when it starts and skipped while it arrives. No extension is supported, so a reserved bit is
//! an error.

use bytes::{Buf, Bytes, BytesMut};

use crate::transport::excerpt::Excerpt;

/// A decoded message or control frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Inbound {
    /// A complete text message.
    Text(Bytes),
    /// A text over the limit, which was discarded.
    TooLong {
        /// Its length, as far as it is known.
        bytes: u64,
        /// Its head and tail; only the head if it is reported early.
        excerpt: Excerpt,
    },
    /// A binary message, the rest of which is skipped.
    Binary,
    /// A ping with its payload.
    Ping(Bytes),
    /// A pong.
    Pong,
    /// A close frame, with its code if it has one.
    Close(Option<u16>),
}

/// A protocol violation of the peer; the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("a frame of a client is not masked")]
    Unmasked,
    #[error("a reserved bit is set, but no extension was agreed upon")]
    Reserved,
    #[error("a frame has an unknown opcode")]
    UnknownKind,
    #[error("a control frame is fragmented")]
    SplitControl,
    #[error("a control frame is too long")]
    LongControl,
    #[error("a length is not minimally encoded")]
    Length,
    #[error("a continuation frame without a message")]
    NothingToContinue,
    #[error("a message starts inside another")]
    Interleaved,
    #[error("a text is not UTF-8")]
    NotUtf8,
    #[error("a close frame is malformed")]
    BadClose,
}

impl FrameError {
    /// Returns the close code that the peer gets.
    pub(super) const fn code(self) -> u16 {
        match self {
            Self::NotUtf8 => code::NOT_UTF8,
            Self::Unmasked
            | Self::Reserved
            | Self::UnknownKind
            | Self::SplitControl
            | Self::LongControl
            | Self::Length
            | Self::NothingToContinue
            | Self::Interleaved
            | Self::BadClose => code::PROTOCOL,
        }
    }
}

/// Close codes.
pub(super) mod code {
    pub(in super::super) const NORMAL: u16 = 1000;
    pub(in super::super) const GOING_AWAY: u16 = 1001;
    pub(in super::super) const PROTOCOL: u16 = 1002;
    pub(in super::super) const NOT_UTF8: u16 = 1007;
    pub(in super::super) const POLICY: u16 = 1008;
}

/// Decodes a byte stream into messages and control frames.
#[derive(Debug)]
pub(super) struct Codec {
    limit: u64,
    /// Whether the head of a text that is too long contains the request id, so that it can be refused before its end.
    has_request_id: fn(&[u8]) -> bool,
    state: DecodeState,
    message: Message,
}

/// The position in the stream.
#[derive(Debug, Clone, Copy)]
enum DecodeState {
    /// Before a frame.
    Head,
    /// In a frame whose payload is needed completely.
    Payload(FrameHeader),
    /// In a frame that is skipped; `passed` bytes of it were.
    Skip { head: FrameHeader, passed: u64 },
}

/// The message that data frames belong to.
#[derive(Debug)]
enum Message {
    /// No message has started.
    None,
    /// A text whose end has not arrived.
    Text(BytesMut),
    /// A text over the limit, which is skipped to its end and reported there, unless its head suffices.
    TooLong { bytes: u64, excerpt: Excerpt, head_checked: bool },
    /// A message that is skipped to its end.
    Skipped,
}

#[derive(Debug, Clone, Copy)]
struct FrameHeader {
    last: bool,
    kind: Kind,
    length: u64,
    mask: [u8; 4],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Codec {
    /// Creates a codec for texts of at most `limit` bytes.
    pub(super) const fn new(limit: u64, has_request_id: fn(&[u8]) -> bool) -> Self {
        Self { limit, has_request_id, state: DecodeState::Head, message: Message::None }
    }

    /// Takes the next message or control frame out of `source`, if enough of it has arrived.
    ///
    /// After an error the rest of the stream is meaningless.
    pub(super) fn next(&mut self, source: &mut BytesMut) -> Result<Option<Inbound>, FrameError> {
        loop {
            match self.state {
                DecodeState::Head => {
                    let Some(head) = parse_header(source)? else { return Ok(None) };
                    if let Some(event) = self.begin_frame(head)? {
                        return Ok(Some(event));
                    }
                }
                DecodeState::Skip { head, passed } => {
                    if let Some(event) = self.report_early(head, passed) {
                        return Ok(Some(event));
                    }
                    let here = (head.length - passed).min(source.len() as u64).min(self.until_whole_head());
                    // Bounded by `source.len()`, so the cast loses nothing.
                    self.pass_over(&mut source.split_to(here as usize), head, passed);
                    if passed + here < head.length {
                        self.state = DecodeState::Skip { head, passed: passed + here };
                        if source.is_empty() && self.until_whole_head() > 0 {
                            return Ok(None);
                        }
                        continue;
                    }
                    self.state = DecodeState::Head;
                    if head.last
                        && let Message::TooLong { bytes, excerpt, head_checked: _ } =
                            std::mem::replace(&mut self.message, Message::None)
                    {
                        return Ok(Some(Inbound::TooLong { bytes, excerpt }));
                    }
                }
                DecodeState::Payload(head) => {
                    if (source.len() as u64) < head.length {
                        return Ok(None);
                    }
                    self.state = DecodeState::Head;
                    // The payload has arrived, so its length fits.
                    let mut payload = source.split_to(head.length as usize);
                    unmask(&mut payload, head.mask);
                    if let Some(event) = self.end_frame(head, payload)? {
                        return Ok(Some(event));
                    }
                }
            }
        }
    }

    /// Decides how a frame is decoded, from its header; returns an event that the header alone determines.
    fn begin_frame(&mut self, head: FrameHeader) -> Result<Option<Inbound>, FrameError> {
        let buffered = match (head.kind, &self.message) {
            (Kind::Close | Kind::Ping | Kind::Pong, _) => {
                self.state = DecodeState::Payload(head);
                return Ok(None);
            }
            (Kind::Text | Kind::Binary, Message::Text(_) | Message::TooLong { .. } | Message::Skipped) => {
                return Err(FrameError::Interleaved);
            }
            (Kind::Continuation, Message::None) => return Err(FrameError::NothingToContinue),
            (Kind::Binary, Message::None) => {
                self.skip_message(head);
                return Ok(Some(Inbound::Binary));
            }
            (Kind::Continuation, Message::Skipped) => {
                self.skip_message(head);
                return Ok(None);
            }
            (Kind::Continuation, Message::TooLong { .. }) => {
                self.state = DecodeState::Skip { head, passed: 0 };
                return Ok(None);
            }
            (Kind::Text, Message::None) => 0,
            (Kind::Continuation, Message::Text(buffered)) => buffered.len() as u64,
        };
        let bytes = buffered.saturating_add(head.length);
        if bytes > self.limit {
            let mut excerpt = Excerpt::default();
            if let Message::Text(buffered) = &self.message {
                excerpt.push(buffered);
            }
            self.message = Message::TooLong { bytes: buffered, excerpt, head_checked: false };
            self.state = DecodeState::Skip { head, passed: 0 };
            return Ok(None);
        }
        self.state = DecodeState::Payload(head);
        Ok(None)
    }

    /// Returns how many bytes may be skipped before the head of a text that is too long is complete.
    fn until_whole_head(&self) -> u64 {
        match &self.message {
            Message::TooLong { excerpt, head_checked: false, .. } => excerpt.missing_of_head() as u64,
            Message::TooLong { .. } | Message::None | Message::Text(_) | Message::Skipped => u64::MAX,
        }
    }

    /// Reports a text that is too long as soon as its head is complete and contains the request id.
    fn report_early(&mut self, head: FrameHeader, passed: u64) -> Option<Inbound> {
        if self.until_whole_head() > 0 {
            return None;
        }
        let Message::TooLong { bytes, excerpt, head_checked } = &mut self.message else {
            return None;
        };
        *head_checked = true;
        if !(self.has_request_id)(excerpt.head()) {
            return None;
        }
        let bytes = bytes.saturating_add(head.length - passed);
        let excerpt = std::mem::take(excerpt);
        self.message = if head.last { Message::None } else { Message::Skipped };
        Some(Inbound::TooLong { bytes, excerpt })
    }

    fn skip_message(&mut self, head: FrameHeader) {
        self.state = DecodeState::Skip { head, passed: 0 };
        self.message = if head.last { Message::None } else { Message::Skipped };
    }

    /// Skips bytes of a frame; of a text that is too long the head and the tail are kept.
    fn pass_over(&mut self, payload: &mut [u8], head: FrameHeader, passed: u64) {
        if let Message::TooLong { bytes, excerpt, head_checked: _ } = &mut self.message {
            let mut mask = head.mask;
            mask.rotate_left((passed % 4) as usize);
            unmask(payload, mask);
            *bytes = bytes.saturating_add(payload.len() as u64);
            excerpt.push(payload);
        }
    }

    /// Handles a complete frame; returns an event if the frame completes one.
    fn end_frame(&mut self, head: FrameHeader, payload: BytesMut) -> Result<Option<Inbound>, FrameError> {
        match head.kind {
            Kind::Ping => return Ok(Some(Inbound::Ping(payload.freeze()))),
            Kind::Pong => return Ok(Some(Inbound::Pong)),
            Kind::Close => return close_code(&payload).map(|code| Some(Inbound::Close(code))),
            Kind::Continuation | Kind::Text | Kind::Binary => {}
        }
        let text = match std::mem::replace(&mut self.message, Message::None) {
            Message::Text(mut buffered) => {
                buffered.extend_from_slice(&payload);
                buffered
            }
            Message::None | Message::TooLong { .. } | Message::Skipped => payload,
        };
        if !head.last {
            self.message = Message::Text(text);
            return Ok(None);
        }
        if std::str::from_utf8(&text).is_err() {
            return Err(FrameError::NotUtf8);
        }
        Ok(Some(Inbound::Text(text.freeze())))
    }
}

/// Parses a frame header if it has arrived completely; an error is returned as soon as it is visible.
fn parse_header(source: &mut BytesMut) -> Result<Option<FrameHeader>, FrameError> {
    let [first, second, ..] = source[..] else { return Ok(None) };
    if first & 0x70 != 0 {
        return Err(FrameError::Reserved);
    }
    let (last, short) = (first & 0x80 != 0, second & 0x7f);
    let kind = match first & 0x0f {
        0x0 => Kind::Continuation,
        0x1 => Kind::Text,
        0x2 => Kind::Binary,
        0x8 => Kind::Close,
        0x9 => Kind::Ping,
        0xa => Kind::Pong,
        _ => return Err(FrameError::UnknownKind),
    };
    if second & 0x80 == 0 {
        return Err(FrameError::Unmasked);
    }
    if matches!(kind, Kind::Close | Kind::Ping | Kind::Pong) {
        match (last, short) {
            (false, _) => return Err(FrameError::SplitControl),
            (true, 126..) => return Err(FrameError::LongControl),
            (true, _) => {}
        }
    }
    let more = match short {
        0..=125 => 0,
        126 => 2,
        127.. => 8,
    };
    let Some(rest) = source.get(2..2 + more + 4) else { return Ok(None) };
    let (written, mask) = rest.split_at(more);
    let length = match short {
        0..=125 => u64::from(short),
        126.. => written.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
    };
    let shortest = match short {
        0..=125 => true,
        126 => length > 125,
        127.. => length > 0xffff && length >> 63 == 0,
    };
    if !shortest {
        return Err(FrameError::Length);
    }
    let mask = [mask[0], mask[1], mask[2], mask[3]];
    source.advance(2 + more + 4);
    Ok(Some(FrameHeader { last, kind, length, mask }))
}

fn unmask(payload: &mut [u8], mask: [u8; 4]) {
    let mut blocks = payload.chunks_exact_mut(8);
    for block in &mut blocks {
        for (byte, key) in block.iter_mut().zip(mask.iter().chain(&mask)) {
            *byte ^= key;
        }
    }
    for (byte, key) in blocks.into_remainder().iter_mut().zip(mask.iter().chain(&mask)) {
        *byte ^= key;
    }
}

/// Parses the payload of a close frame.
fn close_code(payload: &[u8]) -> Result<Option<u16>, FrameError> {
    match payload {
        [] => Ok(None),
        [high, low, words @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
                return Err(FrameError::BadClose);
            }
            std::str::from_utf8(words).map_err(|_| FrameError::NotUtf8)?;
            Ok(Some(code))
        }
        [_] => Err(FrameError::BadClose),
    }
}

/// The header of an outgoing frame.
pub(super) struct OutgoingHeader {
    bytes: [u8; 10],
    length: usize,
}

impl OutgoingHeader {
    /// Returns the header of a text of `length` bytes.
    pub(super) const fn text(length: usize) -> Self {
        Self::of(0x81, length as u64)
    }

    const fn of(first: u8, length: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = length.to_be_bytes();
        match length {
            // The length fits into the chosen field in each case.
            0..=125 => Self { bytes: [first, h, 0, 0, 0, 0, 0, 0, 0, 0], length: 2 },
            126..=0xffff => Self { bytes: [first, 126, g, h, 0, 0, 0, 0, 0, 0], length: 4 },
            0x1_0000.. => Self { bytes: [first, 127, a, b, c, d, e, f, g, h], length: 10 },
        }
    }
}

impl AsRef<[u8]> for OutgoingHeader {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Encodes a pong.
pub(super) fn pong(payload: &[u8]) -> Bytes {
    control(0x8a, payload)
}

/// Encodes a close frame, with a code if there is one.
pub(super) fn close(code: Option<u16>, words: &str) -> Bytes {
    match code {
        Some(code) => control(0x88, &[&code.to_be_bytes(), words.as_bytes()].concat()),
        None => control(0x88, b""),
    }
}

/// Encodes a control frame; its payload is short, because the protocol limits it or this module creates it.
fn control(first: u8, payload: &[u8]) -> Bytes {
    let payload = &payload[..payload.len().min(125)];
    let head = OutgoingHeader::of(first, payload.len() as u64);
    Bytes::from([head.as_ref(), payload].concat())
}

#[cfg(test)]
#[path = "codec_tests.rs"]
mod tests;
