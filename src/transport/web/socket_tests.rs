//! Tests of the two halves over real connections, mostly with another implementation as the client.

use std::net::TcpStream as Plain;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tungstenite::protocol::{Role, WebSocket};
use tungstenite::{Error, Message};

use super::*;

#[tokio::test]
async fn messages_go_both_ways_in_order() {
    let (mut receiver, mut sender, mut client) = pair(LIMITS).await;
    let theirs = tokio::task::spawn_blocking(move || {
        for number in 0..100 {
            client.send(Message::text(format!("to {number}"))).unwrap();
        }
        for number in 0..100 {
            assert_eq!(client.read().unwrap(), Message::text(format!("from {number}")));
        }
        client.close(None).unwrap();
        assert!(matches!(client.read(), Ok(Message::Close(None))));
        assert!(matches!(client.read(), Err(Error::ConnectionClosed)));
    });
    for number in 0..100 {
        assert_eq!(receiver.next().await.unwrap(), Some(text_frame(&format!("to {number}"))));
    }
    let from: Vec<Bytes> = (0..100).map(|number| Bytes::from(format!("from {number}"))).collect();
    sender.send(&from).await.unwrap();
    assert_eq!(receiver.next().await.unwrap(), None);
    assert_eq!(receiver.next().await.unwrap(), None);
    theirs.await.unwrap();
    let refused = sender.send(&[Bytes::from_static(b"late")]).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn a_ping_is_answered_while_nothing_is_sent() {
    let (mut receiver, _sender, mut client) = pair(LIMITS).await;
    let reading = tokio::spawn(async move { receiver.next().await.unwrap() });
    let theirs = tokio::task::spawn_blocking(move || {
        client.send(Message::Ping(Bytes::from_static(b"there?"))).unwrap();
        assert_eq!(client.read().unwrap(), Message::Pong(Bytes::from_static(b"there?")));
        client.send(Message::text("done")).unwrap();
    });
    theirs.await.unwrap();
    assert_eq!(reading.await.unwrap(), Some(text_frame("done")));
}

#[tokio::test]
async fn a_ping_during_a_long_message_is_answered_behind_it() {
    let (mut receiver, mut sender, mut client) = pair(LIMITS).await;
    client.send(Message::Ping(Bytes::from_static(b"hm?"))).unwrap();
    client.send(Message::text("go on")).unwrap();
    // More than the socket buffers take before anybody reads.
    let long = Bytes::from(vec![b'l'; 32 << 20]);
    let sent = long.clone();
    let sending = tokio::spawn(async move { sender.send(&[sent]).await });
    while receiver.shared.out.try_lock().is_ok() {
        tokio::task::yield_now().await;
    }
    assert_eq!(receiver.next().await.unwrap(), Some(text_frame("go on")), "reading is not held up");
    let reading = tokio::spawn(async move { receiver.next().await });
    let theirs = tokio::task::spawn_blocking(move || {
        assert_eq!(client.read().unwrap().len(), long.len());
        assert_eq!(client.read().unwrap(), Message::Pong(Bytes::from_static(b"hm?")));
    });
    theirs.await.unwrap();
    sending.await.unwrap().unwrap();
    // The client closed without a close frame.
    assert!(matches!(reading.await.unwrap(), Ok(None) | Err(_)));
}

#[tokio::test]
async fn what_is_too_long_or_not_text_is_reported_and_the_connection_goes_on() {
    let (mut receiver, mut sender, mut client) = pair(SocketLimits { message: 8, ..LIMITS }).await;
    let theirs = tokio::task::spawn_blocking(move || {
        client.send(Message::text("x".repeat(1 << 20))).unwrap();
        client.send(Message::binary(vec![0; 1 << 20])).unwrap();
        client.send(Message::text("12345678")).unwrap();
        assert_eq!(client.read().unwrap(), Message::text("heard"));
    });
    assert!(matches!(
        receiver.next().await.unwrap(),
        Some(Frame::TooLong { bytes, excerpt }) if bytes == 1 << 20 && excerpt.head().starts_with(b"xx")
    ));
    assert_eq!(receiver.next().await.unwrap(), Some(Frame::Binary));
    assert_eq!(receiver.next().await.unwrap(), Some(text_frame("12345678")));
    assert!(receiver.buffer.capacity() <= KEPT_CAPACITY, "{}", receiver.buffer.capacity());
    sender.send(&[Bytes::from_static(b"heard")]).await.unwrap();
    theirs.await.unwrap();
}

#[tokio::test]
async fn a_protocol_violation_is_answered_with_its_close_code() {
    for (bytes, code) in [
        (&b"\x81\x02hi"[..], 1002),
        (b"\x81\x81\0\0\0\0\xff", 1007),
        (b"\xf1\x80\0\0\0\0", 1002),
        (b"\x80\x80\0\0\0\0", 1002),
    ] {
        let (mut receiver, _sender, client) = pair(LIMITS).await;
        let theirs = tokio::task::spawn_blocking(move || {
            use std::io::{Read, Write};
            let mut stream = client.get_ref();
            stream.write_all(bytes).unwrap();
            // Much more than the receiver reads.
            stream.write_all(&[0; 100_000]).unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            received
        });
        let error = receiver.next().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(receiver.next().await.unwrap(), None);
        let received = theirs.await.unwrap();
        assert_eq!((received[0], u16::from_be_bytes([received[2], received[3]])), (0x88, code));
    }
}

#[tokio::test]
async fn our_close_frame_carries_its_reason() {
    for (why, code) in
        [(CloseReason::Normal, 1000), (CloseReason::GoingAway, 1001), (CloseReason::PolicyViolation, 1008)]
    {
        let (_receiver, mut sender, mut client) = pair(LIMITS).await;
        sender.send(&[Bytes::from_static(b"last words")]).await.unwrap();
        sender.close(why).await.unwrap();
        assert!(sender.send(&[Bytes::from_static(b"more")]).await.is_err());
        let theirs = tokio::task::spawn_blocking(move || {
            assert_eq!(client.read().unwrap(), Message::text("last words"));
            let Message::Close(Some(reason)) = client.read().unwrap() else { panic!("a goodbye") };
            u16::from(reason.code)
        });
        assert_eq!(theirs.await.unwrap(), code);
    }
}

#[tokio::test]
async fn a_cancelled_read_loses_nothing() {
    let (mut receiver, _sender, client) = pair(LIMITS).await;
    let theirs = client.get_ref().try_clone().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let mut theirs = TcpStream::from_std(theirs).unwrap();
    for byte in *b"\x81\x83\0\0\0\0abc" {
        theirs.write_all(&[byte]).await.unwrap();
        // Polled at least once, then dropped.
        let given_up = timeout(Duration::from_millis(1), receiver.next()).await;
        if byte == b'c' {
            let frame = match given_up {
                Ok(frame) => frame,
                Err(_) => receiver.next().await,
            };
            assert_eq!(frame.unwrap(), Some(text_frame("abc")));
        } else {
            assert!(given_up.is_err());
        }
    }
}

#[tokio::test]
async fn a_stalled_peer_times_out_and_nothing_follows_a_partial_message() {
    let (receiver, mut sender, _client) =
        pair(SocketLimits { stall_timeout: Duration::from_millis(50), ..LIMITS }).await;
    let stalled = sender.send(&[Bytes::from(vec![b'x'; 64 << 20])]).await.unwrap_err();
    assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);
    assert_eq!(sender.send(&[Bytes::from_static(b"x")]).await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    assert!(sender.close(CloseReason::Normal).await.is_err());
    drop(receiver);
}

const LIMITS: SocketLimits =
    SocketLimits { message: 1 << 20, stall_timeout: Duration::from_secs(30), has_request_id: |_| false };

fn text_frame(text: &str) -> Frame {
    Frame::Text(Bytes::copy_from_slice(text.as_bytes()))
}

/// Returns both ends of a connection, as after a handshake.
async fn pair(limits: SocketLimits) -> (Receiver, Sender, WebSocket<Plain>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Plain::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let config = tungstenite::protocol::WebSocketConfig::default().max_frame_size(None).max_message_size(None);
    let (receiver, sender) = split(stream, Bytes::new(), limits);
    (receiver, sender, WebSocket::from_raw_socket(client, Role::Client, Some(config)))
}
