//! Bad messages: each is refused, or closes the connection that violates the protocol, and affects no other connection.

use std::io::Write;

use tungstenite::Message;

use crate::support::daemon::wait_until;
use crate::web::client::PiDaemon;

#[test]
fn a_message_over_the_limit_is_answered_and_the_connection_goes_on() {
    let server = PiDaemon::new();
    let mut socket = server.socket("/", &[]).assert_ready();
    let limit = 10 * 1024 * 1024;
    socket.0.send(Message::text("x".repeat(limit + 1))).unwrap();
    let answer = socket.json();
    assert_eq!((&answer["type"], &answer["success"]), (&"response".into(), &false.into()), "{answer}");
    socket.assert_answers();
    // One byte less is accepted, and is not JSON.
    socket.0.send(Message::text("x".repeat(limit))).unwrap();
    assert_eq!(socket.json()["error"], "Invalid JSON");
    // In fragments, none of which is too long.
    let mut stream = socket.0.get_ref().try_clone().unwrap();
    let piece = vec![b'x'; 1 << 20];
    for number in 0..=10 {
        let first = if number == 0 {
            0x01
        } else if number == 10 {
            0x80
        } else {
            0x00
        };
        stream.write_all(&frame(first, &piece)).unwrap();
    }
    assert_eq!(socket.json()["success"], false);
    socket.assert_answers();
}

#[test]
fn a_message_that_can_be_read_in_two_ways_or_is_nested_too_deeply_is_refused() {
    let server = PiDaemon::new();
    let mut socket = server.socket("/", &[]).assert_ready();
    let deep = format!(r#"{{"id":"deep","type":"health_check","x":{}1{}}}"#, "[".repeat(64), "]".repeat(64));
    let twice = r#"{"id":"twice","type":"get_state","sessionId":"s","type":"abort"}"#.to_owned();
    for (id, message, why) in [("twice", twice, "duplicate key"), ("deep", deep, "nested more than 64 deep")] {
        socket.0.send(Message::text(message)).unwrap();
        let answer = socket.json();
        assert_eq!((&answer["id"], &answer["success"]), (&id.into(), &false.into()), "{answer}");
        assert!(answer["error"].as_str().is_some_and(|error| error.contains(why)), "{answer}");
    }
    socket.assert_answers();
}

#[test]
fn an_oversized_message_is_refused_by_its_id_before_it_is_complete() {
    let server = PiDaemon::new();
    let mut socket = server.socket("/", &[]).assert_ready();
    let declared = 1_u64 << 40;
    let begun = format!("{{\"id\":\"big\",\"type\":\"prompt\",\"message\":\"{}", "x".repeat(1024));
    let mut stream = socket.0.get_ref().try_clone().unwrap();
    let head = [&[0x81, 0xff][..], &declared.to_be_bytes(), &[0; 4]].concat();
    stream.write_all(&[&head, begun.as_bytes()].concat()).unwrap();
    let answer = socket.json();
    assert_eq!((&answer["id"], &answer["command"]), (&"big".into(), &"prompt".into()), "{answer}");
    assert_eq!(answer["error"], format!("Message too large: {declared} bytes (max 10485760)"));
}

#[test]
fn a_binary_message_is_answered_and_the_connection_goes_on() {
    let server = PiDaemon::new();
    let mut socket = server.socket("/", &[]).assert_ready();
    for size in [0, 3, 1 << 20] {
        socket.0.send(Message::binary(vec![b'{'; size])).unwrap();
        let answer = socket.json();
        assert_eq!((&answer["type"], &answer["success"]), (&"response".into(), &false.into()), "{answer}");
    }
    socket.assert_answers();
}

#[test]
fn a_protocol_violation_closes_the_connection_with_a_reason() {
    let server = PiDaemon::new();
    let mut other = server.socket("/", &[]).assert_ready();
    let unmasked = [&[0x81, 2][..], b"{}"].concat();
    for (what, bytes, code) in [
        ("bad UTF-8", frame(0x81, b"{\"a\":\"\xff\"}"), 1007),
        ("half a character", frame(0x81, b"\xe2\x82"), 1007),
        ("an unmasked frame", unmasked, 1002),
        ("a reserved bit", frame(0xc1, b"{}"), 1002),
        ("an unknown kind", frame(0x83, b"{}"), 1002),
        ("a long ping", frame(0x89, &[0; 126]), 1002),
        ("a continuation of nothing", frame(0x80, b"{}"), 1002),
        ("a negative length", [&[0x81, 0xff][..], &[0xff; 12]].concat(), 1002),
    ] {
        let socket = server.socket("/pi", &[]).assert_ready();
        let mut stream = socket.0.get_ref();
        stream.write_all(&bytes).unwrap();
        assert_eq!(socket.close_code(), code, "{what}");
        other.assert_answers();
    }
}

#[test]
fn pings_and_close_frames_are_answered() {
    let server = PiDaemon::new();
    let mut socket = server.socket("/", &[]).assert_ready();
    socket.0.send(Message::Ping(b"there?".to_vec().into())).unwrap();
    assert_eq!(socket.0.read().unwrap(), Message::Pong(b"there?".to_vec().into()));
    socket.0.close(None).unwrap();
    assert!(matches!(socket.0.read(), Ok(Message::Close(_))));
    assert!(matches!(socket.0.read(), Err(tungstenite::Error::ConnectionClosed)));
}

#[test]
fn connections_that_end_in_any_way_are_removed() {
    let server = PiDaemon::new();
    let connections = || server.daemon.connect().get("get_metrics", serde_json::json!({}))["connections"].clone();
    for _ in 0..20 {
        let socket = server.socket("/", &[]).assert_ready();
        let mut stream = socket.0.get_ref();
        // In the middle of a message.
        stream.write_all(&frame(0x81, &[b'x'; 1000])[..500]).unwrap();
    }
    wait_until("only the asking one is left", || connections() == 1);
}

/// A frame of a client.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..126 => bytes.push(0x80 | u8::try_from(length).unwrap()),
        length @ 126..0x1_0000 => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend_from_slice(&u64::try_from(length).unwrap().to_be_bytes());
        }
    }
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(payload);
    bytes
}
