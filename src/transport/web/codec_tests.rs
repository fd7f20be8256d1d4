//! Tests of the frame codec, on bytes in memory: the rules, every split of a stream, and another implementation.

use tungstenite::protocol::{Role, WebSocket};
use tungstenite::{Message as Theirs, protocol::frame::coding::CloseCode};

use super::*;
use crate::random::Random;

#[test]
fn texts_come_whole_whatever_pieces_they_are_sent_in() {
    let stream = [
        frame(0x81, b"one"),
        frame(0x01, b"tw"),
        frame(0x89, b"there?"),
        frame(0x00, b""),
        frame(0x80, "o\u{e4}".as_bytes()),
        frame(0x8a, b""),
        frame(0x81, b""),
        frame(0x88, b"\x03\xe8bye"),
    ]
    .concat();
    let expected = [
        text("one"),
        Inbound::Ping(Bytes::from_static(b"there?")),
        text("two\u{e4}"),
        Inbound::Pong,
        text(""),
        Inbound::Close(Some(1000)),
    ];
    for size in 1..=stream.len() {
        assert_eq!(decode_in_pieces(9, &stream, size).unwrap(), expected, "pieces of {size}");
    }
}

#[test]
fn a_long_text_is_reported_and_never_buffered() {
    let long = frame(0x81, &[b'x'; 300]);
    let stream = [long, frame(0x01, b"12345"), frame(0x80, b"6789"), frame(0x81, b"fine")].concat();
    for size in 1..=stream.len() {
        let expected = [too_long(&[b'x'; 300]), too_long(b"123456789"), text("fine")];
        assert_eq!(decode_in_pieces(8, &stream, size).unwrap(), expected, "pieces of {size}");
    }
    let mut codec = Codec::new(8, |_| false);
    let mut source = BytesMut::from(&[0x81, 0xff, 0, 0, 0, 0x10, 0, 0, 0, 0, 1, 2, 3, 4][..]);
    assert_eq!(codec.next(&mut source), Ok(None), "it is reported at its end");
    for _ in 0..100 {
        source.extend_from_slice(&[7; 1000]);
        assert_eq!(codec.next(&mut source), Ok(None));
        assert!(source.is_empty() && source.capacity() <= 64 * 1024);
    }
}

#[test]
fn a_long_text_with_a_request_id_is_reported_early() {
    let declared = 1_u64 << 40;
    let mask = [0; 4];
    let mut stream = [&[0x81, 0xff][..], &declared.to_be_bytes(), &mask, b"{\"id\""].concat();
    stream.resize(stream.len() + 1020, b'x');
    let mut whole = stream[14..].to_vec();
    whole.truncate(1024);
    let mut excerpt = Excerpt::default();
    excerpt.push(&whole);
    for size in [1, 3, 1000, stream.len()] {
        let expected = [Inbound::TooLong { bytes: declared, excerpt: excerpt.clone() }];
        assert_eq!(decode_in_pieces(8, &stream, size).unwrap(), expected, "pieces of {size}");
    }
}

#[test]
fn a_long_text_is_reported_once_and_the_next_message_is_decoded() {
    let named = [&b"{\"id\""[..], &[b'x'; 3000]].concat();
    for stream in [
        [frame(0x81, &named), frame(0x81, b"next")].concat(),
        [frame(0x01, &named), frame(0x00, &named), frame(0x80, b"end"), frame(0x81, b"next")].concat(),
        [frame(0x01, &named[..7]), frame(0x80, &named[7..]), frame(0x81, b"next")].concat(),
    ] {
        for size in [1, 3, 1000, stream.len()] {
            let got = decode_in_pieces(8, &stream, size).unwrap();
            let [Inbound::TooLong { bytes: 3005, excerpt }, next] = &got[..] else { panic!("{got:?}") };
            assert_eq!((excerpt.head(), next), (&named[..1024], &text("next")), "pieces of {size}");
        }
    }
}

/// A text that is reported as too long.
fn too_long(message: &[u8]) -> Inbound {
    let mut excerpt = Excerpt::default();
    excerpt.push(message);
    Inbound::TooLong { bytes: message.len() as u64, excerpt }
}

#[test]
fn what_is_not_text_is_reported_once_and_passed_over() {
    let stream = [frame(0x02, b"\xff\xff"), frame(0x89, b""), frame(0x80, b"\xff"), frame(0x81, b"t")];
    let expected = [Inbound::Binary, Inbound::Ping(Bytes::new()), text("t")];
    assert_eq!(decode_in_pieces(1, &stream.concat(), 3).unwrap(), expected);
    assert_eq!(decode_in_pieces(1, &frame(0x82, &[0; 70_000]), 999).unwrap(), [Inbound::Binary]);
}

#[test]
fn a_text_of_exactly_the_limit_is_whole() {
    for length in [0, 1, 125, 126, 0xffff, 0x1_0000] {
        let sent = vec![b'a'; length];
        let got = decode_in_pieces(length as u64, &frame(0x81, &sent), 4096).unwrap();
        assert_eq!(got, [Inbound::Text(Bytes::from(sent))], "{length}");
    }
}

#[test]
fn every_protocol_violation_is_detected_and_has_its_close_code() {
    let unmasked = [0x81, 0x03, b'a', b'b', b'c'].to_vec();
    let cases: [(&str, Vec<u8>, FrameError, u16); 16] = [
        ("unmasked", unmasked, FrameError::Unmasked, 1002),
        ("a reserved bit", frame(0xc1, b"x"), FrameError::Reserved, 1002),
        ("kind 3", frame(0x83, b"x"), FrameError::UnknownKind, 1002),
        ("kind 11", frame(0x8b, b"x"), FrameError::UnknownKind, 1002),
        ("a ping in pieces", frame(0x09, b"x"), FrameError::SplitControl, 1002),
        ("a long ping", frame(0x89, &[0; 126]), FrameError::LongControl, 1002),
        ("two bytes for 5", [0x81, 0xfe, 0, 5, 0, 0, 0, 0].to_vec(), FrameError::Length, 1002),
        ("eight for 5", [&[0x81, 0xff][..], &[0; 7], &[5], &[0; 4]].concat(), FrameError::Length, 1002),
        ("a negative length", [&[0x81, 0xff][..], &[0xff; 8], &[0; 4]].concat(), FrameError::Length, 1002),
        ("continued nothing", frame(0x80, b"x"), FrameError::NothingToContinue, 1002),
        ("one in another", [frame(0x01, b"x"), frame(0x81, b"y")].concat(), FrameError::Interleaved, 1002),
        ("one in a binary", [frame(0x02, b"x"), frame(0x82, b"y")].concat(), FrameError::Interleaved, 1002),
        ("no UTF-8", frame(0x81, b"ok\xff"), FrameError::NotUtf8, 1007),
        ("half a character", frame(0x81, b"\xc3"), FrameError::NotUtf8, 1007),
        ("a short close", frame(0x88, b"\x03"), FrameError::BadClose, 1002),
        ("a secret code", frame(0x88, b"\x03\xed"), FrameError::BadClose, 1002),
    ];
    for (what, stream, error, code) in cases {
        for size in [1, 3, stream.len()] {
            assert_eq!(decode_in_pieces(64, &stream, size), Err(error), "{what}, pieces of {size}");
        }
        assert_eq!(error.code(), code, "{what}");
        assert!(error.to_string().len() <= 123, "it fits into a close frame");
    }
}

#[test]
fn another_implementation_reads_what_we_write() {
    let mut stream = Vec::new();
    for length in [0, 125, 126, 0xffff, 0x1_0000] {
        stream.extend_from_slice(OutgoingHeader::text(length).as_ref());
        stream.extend(std::iter::repeat_n(b'z', length));
    }
    stream.extend_from_slice(&pong(b"here"));
    stream.extend_from_slice(&close(Some(code::GOING_AWAY), "words"));
    let mut theirs = WebSocket::from_raw_socket(io(stream), Role::Client, None);
    for length in [0, 125, 126, 0xffff, 0x1_0000] {
        assert_eq!(theirs.read().unwrap(), Theirs::text("z".repeat(length)));
    }
    assert_eq!(theirs.read().unwrap(), Theirs::Pong(Bytes::from_static(b"here")));
    let Theirs::Close(Some(reason)) = theirs.read().unwrap() else { panic!("it closes") };
    assert_eq!((reason.code, reason.reason.as_str()), (CloseCode::Away, "words"));
}

#[test]
fn we_read_what_another_implementation_writes() {
    let mut theirs = WebSocket::from_raw_socket(io(Vec::new()), Role::Client, None);
    for length in [0, 7, 8, 9, 125, 126, 0xffff, 0x1_0000, 200_000] {
        theirs.write(Theirs::text("y".repeat(length))).unwrap();
    }
    theirs.write(Theirs::binary(vec![1, 2, 3])).unwrap();
    theirs.flush().unwrap();
    let written = theirs.get_ref().written.clone();
    let got = decode_in_pieces(200_000, &written, 777).unwrap();
    let lengths: Vec<usize> = got
        .iter()
        .filter_map(|frame| match frame {
            Inbound::Text(text) => Some(text.len()).filter(|_| text.iter().all(|byte| *byte == b'y')),
            Inbound::TooLong { .. } | Inbound::Binary | Inbound::Ping(_) | Inbound::Pong | Inbound::Close(_) => None,
        })
        .collect();
    assert_eq!(lengths, [0, 7, 8, 9, 125, 126, 0xffff, 0x1_0000, 200_000]);
    assert_eq!(got.last(), Some(&Inbound::Binary));
}

#[test]
fn random_bytes_decode_the_same_in_any_pieces() {
    for seed in 0..3_000_u64 {
        let mut chance = Random::new(seed);
        let mut stream = Vec::new();
        for _ in 0..chance.below(6) {
            let first = [0x81, 0x01, 0x00, 0x80, 0x82, 0x89, 0x88, 0x8a][chance.below(8) as usize];
            let length = [0, 3, 125, 126, 300][chance.below(5) as usize];
            let payload: Vec<u8> = (0..length).map(|_| b"a\xc3\xa4{"[chance.below(4) as usize]).collect();
            stream.extend(frame(first, &payload));
        }
        // Some are truncated, and some have a changed byte.
        stream.truncate(stream.len() - (chance.below(3) as usize).min(stream.len()));
        if chance.below(2) == 0 && !stream.is_empty() {
            let at = chance.below(stream.len() as u64) as usize;
            stream[at] = chance.below(256) as u8;
        }
        let whole = decode_in_pieces(200, &stream, stream.len().max(1));
        for size in [1, 2, 7, 64] {
            assert_eq!(decode_in_pieces(200, &stream, size), whole, "seed {seed}, pieces of {size}");
        }
    }
}

/// Whether a text contains a request id.
fn has_request_id(head: &[u8]) -> bool {
    head.starts_with(b"{\"id\"")
}

/// Decodes a stream that arrives in pieces.
fn decode_in_pieces(limit: u64, stream: &[u8], size: usize) -> Result<Vec<Inbound>, FrameError> {
    let (mut codec, mut source, mut all) = (Codec::new(limit, has_request_id), BytesMut::new(), Vec::new());
    for chunk in stream.chunks(size) {
        source.extend_from_slice(chunk);
        while let Some(frame) = codec.next(&mut source)? {
            all.push(frame);
        }
    }
    Ok(all)
}

fn text(text: &str) -> Inbound {
    Inbound::Text(Bytes::copy_from_slice(text.as_bytes()))
}

/// Encodes a frame of a client.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0xa5, 0x00, 0x3c, 0xff];
    let mut bytes = OutgoingHeader::of(first, payload.len() as u64).as_ref().to_vec();
    bytes[1] |= 0x80;
    bytes.extend_from_slice(&mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    bytes
}

/// A stream with bytes to read and a buffer for writes.
struct Pipe {
    read: std::io::Cursor<Vec<u8>>,
    written: Vec<u8>,
}

const fn io(read: Vec<u8>) -> Pipe {
    Pipe { read: std::io::Cursor::new(read), written: Vec::new() }
}

impl std::io::Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.read.read(into)
    }
}

impl std::io::Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
