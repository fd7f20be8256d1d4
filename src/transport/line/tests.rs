//! Tests of the framing, on bytes in memory and over a duplex stream.

use super::*;

use tokio::io::AsyncWriteExt;

#[test]
fn both_line_ends_count_and_blank_lines_do_not() {
    assert_eq!(cut(8, &[b"one\ntwo\r\n\n\r\nthree\n"]), [whole("one"), whole("two"), whole("three")]);
}

#[test]
fn a_line_may_come_in_any_pieces() {
    let bytes = b"first\r\nsecond\nthird\r\n";
    for size in 1..bytes.len() {
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        assert_eq!(cut(6, &pieces), [whole("first"), whole("second"), whole("third")], "pieces of {size}");
    }
}

#[test]
fn a_line_of_exactly_the_limit_is_whole_and_one_byte_more_is_not() {
    for end in ["\n", "\r\n"] {
        for size in 1..12 {
            let bytes = format!("12345678{end}123456789{end}ok{end}");
            let pieces: Vec<&[u8]> = bytes.as_bytes().chunks(size).collect();
            let [first, second, third] = &cut(8, &pieces)[..] else { panic!("three lines, pieces of {size}") };
            assert_eq!((first, third), (&whole("12345678"), &whole("ok")), "pieces of {size}");
            assert!(matches!(second, Line::TooLong { bytes: 9 | 10, .. }), "{second:?}, pieces of {size}");
        }
    }
}

#[test]
fn a_carriage_return_inside_a_line_stays() {
    assert_eq!(cut(8, &[b"a\rb\n", b"c\r", b"d\n"]), [whole("a\rb"), whole("c\rd")]);
}

#[test]
fn a_long_line_is_reported_once_and_never_buffered() {
    let mut codec = LineCodec::new(8);
    let mut buffer = BytesMut::new();
    for _ in 0..1000 {
        buffer.extend_from_slice(&[b'x'; 1000]);
        assert_eq!(codec.next_line(&mut buffer), None);
        assert!(buffer.is_empty() && buffer.capacity() <= 64 * 1024);
    }
    buffer.extend_from_slice(b"\nafter\n");
    assert_eq!(codec.next_line(&mut buffer), Some(too_long(&vec![b'x'; 1_000_000])));
    assert_eq!(codec.next_line(&mut buffer), Some(whole("after")));
    assert_eq!(codec.next_line(&mut buffer), None);
}

#[test]
fn an_unfinished_last_line_is_dropped() {
    assert_eq!(cut(8, &[b"one\ntw"]), [whole("one")]);
    assert_eq!(cut(8, &[b"one\n", b"\r"]), [whole("one")]);
}

#[test]
fn an_unfinished_line_over_the_limit_is_still_reported() {
    assert_eq!(cut(4, &[b"123456", b"78"]), [too_long(b"12345678")]);
}

#[test]
fn a_quiet_connection_keeps_no_large_buffer() {
    let mut codec = LineCodec::new(4 << 20);
    let mut buffer = BytesMut::new();
    let mut large = vec![b'x'; 2 << 20];
    large.push(b'\n');
    buffer.extend_from_slice(&large);
    buffer.extend_from_slice(b"rest");
    assert!(matches!(codec.next_line(&mut buffer), Some(Line::Whole(line)) if line.len() == 2 << 20));
    assert_eq!(codec.next_line(&mut buffer), None);
    assert!(buffer.capacity() <= 1024, "{} bytes are kept", buffer.capacity());
    buffer.extend_from_slice(b" of it\n");
    assert_eq!(codec.next_line(&mut buffer), Some(whole("rest of it")));
}

#[tokio::test]
async fn lines_are_read_from_a_stream_until_it_ends() {
    let (near, mut far) = tokio::io::duplex(7);
    let writer = tokio::spawn(async move {
        far.write_all(b"{\"a\":1}\nmuch too long for here\n\n{}\r\nunfinis").await.unwrap();
    });
    let mut lines = Lines::new(near, 10);
    assert_eq!(lines.next().await.unwrap(), Some(whole("{\"a\":1}")));
    assert_eq!(lines.next().await.unwrap(), Some(too_long(b"much too long for here")));
    assert_eq!(lines.next().await.unwrap(), Some(whole("{}")));
    assert_eq!(lines.next().await.unwrap(), None);
    assert_eq!(lines.next().await.unwrap(), None);
    writer.await.unwrap();
}

#[tokio::test]
async fn a_cancelled_read_loses_nothing() {
    let (near, mut far) = tokio::io::duplex(64);
    let mut lines = Lines::new(near, 64);
    far.write_all(b"half").await.unwrap();
    tokio::select! {
        biased;
        line = lines.next() => panic!("no line has ended yet: {line:?}"),
        () = std::future::ready(()) => {}
    }
    far.write_all(b" and half\nnext\n").await.unwrap();
    assert_eq!(lines.next().await.unwrap(), Some(whole("half and half")));
    assert_eq!(lines.next_buffered(), Some(whole("next")));
    assert_eq!(lines.next_buffered(), None);
}

fn whole(text: &str) -> Line {
    Line::Whole(Bytes::copy_from_slice(text.as_bytes()))
}

fn cut(limit: usize, pieces: &[&[u8]]) -> Vec<Line> {
    let mut codec = LineCodec::new(limit);
    let mut buffer = BytesMut::new();
    let mut lines = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while let Some(line) = codec.decode(&mut buffer).unwrap() {
            lines.push(line);
        }
    }
    while let Some(line) = codec.decode_eof(&mut buffer).unwrap() {
        lines.push(line);
    }
    lines
}

fn too_long(line: &[u8]) -> Line {
    let mut excerpt = Excerpt::default();
    excerpt.push(line);
    Line::TooLong { bytes: line.len() as u64, excerpt }
}
