//! Connections to a real server on this machine: reused, closed, replaced, returned to the pool.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use hyper::Response;
use hyper::header::HeaderMap;
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::super::connection::ResponseBody;
use super::super::{HttpClient, OutgoingRequest, read_body};
use super::*;
use crate::provider::error::{ModelError, ModelErrorKind};

/// A timeout that is long enough for every step.
const TIMEOUT: Duration = Duration::from_secs(20);
const COMPLETE_RESPONSE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const CHUNKED_START: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n";
const CHUNKED_END: &str = "0\r\n\r\n";

struct Fixture {
    listener: TcpListener,
    client: HttpClient,
}

/// The server's end of a connection.
struct Peer(TcpStream);

impl Fixture {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { listener, client: HttpClient::new(TIMEOUT) }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn origin(&self) -> Origin {
        Origin::from_uri(&format!("http://{}/", self.address()).parse().unwrap()).unwrap()
    }

    async fn request(&self) -> Result<Response<ResponseBody>, ModelError> {
        self.request_with_scheme("http").await
    }

    async fn request_with_scheme(&self, scheme: &str) -> Result<Response<ResponseBody>, ModelError> {
        let url = format!("{scheme}://{}/question", self.address());
        self.client.send(OutgoingRequest { url, headers: HeaderMap::new(), body: None }, TIMEOUT).await
    }

    async fn accept(&self) -> Peer {
        Peer(timeout(TIMEOUT, self.listener.accept()).await.unwrap().unwrap().0)
    }

    /// Sends a request on a new connection, and answers it with `response`.
    async fn request_on_new_connection(&self, response: &str) -> (Response<ResponseBody>, Peer) {
        let (answer, peer) = tokio::join!(self.request(), async {
            let mut peer = self.accept().await;
            peer.read_request().await;
            peer.write(response).await;
            peer
        });
        (answer.unwrap(), peer)
    }

    /// Sends a request on the connection to this peer, and reads a complete response.
    async fn request_on_idle_connection(&self, peer: &mut Peer) {
        let (answer, ()) = tokio::join!(self.request(), async {
            peer.read_request().await;
            peer.write(COMPLETE_RESPONSE).await;
        });
        assert_eq!(read_all(answer.unwrap()).await, "ok");
    }

    fn idle(&self) -> usize {
        lock(&self.client.pool.idle).values().map(Vec::len).sum()
    }

    /// Yields until this many connections are idle.
    async fn wait_for_idle(&self, count: usize) {
        wait_until(|| self.idle() == count).await;
    }

    /// Stops the watchers of idle connections.
    fn abort_watchers(&self) {
        lock(&self.client.pool.idle).values().flatten().for_each(|idle| idle.watcher.abort());
    }
}

impl Peer {
    /// Reads one request.
    async fn read_request(&mut self) {
        let mut received = Vec::new();
        while !received.ends_with(b"\r\n\r\n") {
            let read = timeout(TIMEOUT, self.0.read_buf(&mut received)).await.unwrap().unwrap();
            assert!(read > 0, "closed after {received:?}");
        }
        assert!(received.starts_with(b"GET /question HTTP/1.1\r\n"), "{received:?}");
    }

    async fn write(&mut self, response: &str) {
        self.0.write_all(response.as_bytes()).await.unwrap();
    }

    /// Waits until the client has closed the connection.
    async fn wait_closed(&mut self) {
        let read = timeout(TIMEOUT, self.0.read(&mut [0; 64])).await.unwrap();
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
}

async fn wait_until(mut is: impl FnMut() -> bool) {
    timeout(TIMEOUT, async {
        while !is() {
            yield_now().await;
        }
    })
    .await
    .unwrap();
}

async fn read_all(answer: Response<ResponseBody>) -> String {
    String::from_utf8(read_body(answer, 1000, TIMEOUT).await.unwrap()).unwrap()
}

async fn read_frame(stream: &mut ResponseBody) -> Vec<u8> {
    stream.frame().await.unwrap().unwrap().into_data().unwrap().to_vec()
}

#[tokio::test]
async fn a_connection_is_reused() {
    let fixture = Fixture::new().await;
    let (answer, mut peer) = fixture.request_on_new_connection(COMPLETE_RESPONSE).await;
    assert_eq!(read_all(answer).await, "ok");
    for _ in 0..3 {
        assert_eq!(fixture.idle(), 1);
        fixture.request_on_idle_connection(&mut peer).await;
    }
}

#[tokio::test]
async fn an_idle_connection_that_the_server_closes_is_removed_at_once() {
    let fixture = Fixture::new().await;
    let (answer, peer) = fixture.request_on_new_connection(COMPLETE_RESPONSE).await;
    read_all(answer).await;
    drop(peer);
    fixture.wait_for_idle(0).await;
    let (answer, _peer) = fixture.request_on_new_connection(COMPLETE_RESPONSE).await;
    assert_eq!(read_all(answer).await, "ok");
}

#[tokio::test]
async fn a_connection_that_closes_just_before_the_next_request_is_replaced() {
    let fixture = Fixture::new().await;
    let socket = std::net::TcpStream::connect(fixture.address()).unwrap();
    socket.set_nonblocking(true).unwrap();
    let eye = socket.try_clone().unwrap();
    let wire = MaybeHttpsStream::Http(TokioIo::new(TcpStream::from_std(socket).unwrap()));
    fixture.client.pool.insert(fixture.origin(), HttpConnection::handshake(wire).await.unwrap());
    let mut peer = fixture.accept().await;
    fixture.request_on_idle_connection(&mut peer).await;
    fixture.abort_watchers();
    drop(peer);
    wait_until(|| matches!(eye.peek(&mut [0]), Ok(0))).await;
    // Any I/O wait lets the runtime process the events of all sockets.
    let (_other, _) = tokio::join!(TcpStream::connect(fixture.address()), fixture.accept());
    assert_eq!(fixture.idle(), 1, "the closed connection is still pooled");
    let (answer, _peer) = fixture.request_on_new_connection(COMPLETE_RESPONSE).await;
    assert_eq!(read_all(answer).await, "ok");
}

#[tokio::test]
async fn a_closed_connection_is_replaced_even_if_it_is_still_pooled() {
    let fixture = Fixture::new().await;
    let (answer, peer) = fixture.request_on_new_connection(COMPLETE_RESPONSE).await;
    read_all(answer).await;
    fixture.abort_watchers();
    drop(peer);
    let slot = Arc::clone(&lock(&fixture.client.pool.idle)[&fixture.origin()][0].slot);
    let mut nobody = Context::from_waker(Waker::noop());
    wait_until(|| lock(&slot).as_mut().unwrap().drive(&mut nobody).is_ready()).await;
    let (answer, _peer) = fixture.request_on_new_connection(COMPLETE_RESPONSE).await;
    assert_eq!(read_all(answer).await, "ok");
}

#[tokio::test]
async fn a_new_connection_that_closes_without_a_response_is_an_error() {
    let fixture = Fixture::new().await;
    let (answer, ()) = tokio::join!(fixture.request(), async { fixture.accept().await.read_request().await });
    assert_eq!(answer.unwrap_err().kind, ModelErrorKind::Interrupted);
}

#[tokio::test]
async fn the_pool_keeps_the_newest_eight_connections() {
    let fixture = Fixture::new().await;
    let mut streams = Vec::new();
    let mut peers = Vec::new();
    for _ in 0..10 {
        let (answer, peer) = fixture.request_on_new_connection(COMPLETE_RESPONSE).await;
        streams.push(answer.into_body());
        peers.push(peer);
    }
    streams.into_iter().for_each(ResponseBody::release);
    assert_eq!(fixture.idle(), 8);
    for mut old in peers.drain(..2) {
        old.wait_closed().await;
    }
    let mut newest = peers.pop().unwrap();
    fixture.request_on_idle_connection(&mut newest).await;
    fixture.request_on_idle_connection(&mut newest).await;
    assert_eq!(fixture.idle(), 8);
}

#[tokio::test]
async fn a_connection_idle_for_too_long_is_not_reused() {
    let fixture = Fixture::new().await;
    let (answer, mut old) = fixture.request_on_new_connection(COMPLETE_RESPONSE).await;
    read_all(answer).await;
    let long_ago = Instant::now().checked_sub(MAX_IDLE_AGE).unwrap();
    lock(&fixture.client.pool.idle).values_mut().flatten().for_each(|idle| idle.since = long_ago);
    let (answer, _peer) = fixture.request_on_new_connection(COMPLETE_RESPONSE).await;
    assert_eq!(read_all(answer).await, "ok");
    old.wait_closed().await;
}

#[tokio::test]
async fn idle_connections_close_with_the_pool() {
    let fixture = Fixture::new().await;
    let (answer, mut peer) = fixture.request_on_new_connection(COMPLETE_RESPONSE).await;
    read_all(answer).await;
    drop(fixture);
    peer.wait_closed().await;
}

#[tokio::test]
async fn a_dropped_response_closes_its_connection() {
    let fixture = Fixture::new().await;
    let (answer, mut peer) = fixture.request_on_new_connection(CHUNKED_START).await;
    let mut stream = answer.into_body();
    assert_eq!(read_frame(&mut stream).await, b"one");
    drop(stream);
    peer.wait_closed().await;
    let mut unanswered = tokio::select! {
        answer = fixture.request() => panic!("{answer:?}"),
        peer = async { let mut peer = fixture.accept().await; peer.read_request().await; peer } => peer,
    };
    unanswered.wait_closed().await;
    assert_eq!(fixture.idle(), 0);
}

#[tokio::test]
async fn a_body_that_ends_late_still_returns_its_connection() {
    let fixture = Fixture::new().await;
    let (answer, mut peer) = fixture.request_on_new_connection(CHUNKED_START).await;
    let mut stream = answer.into_body();
    assert_eq!(read_frame(&mut stream).await, b"one");
    stream.release();
    assert_eq!(fixture.idle(), 0);
    peer.write("3\r\ntwo\r\n").await;
    peer.write(CHUNKED_END).await;
    fixture.wait_for_idle(1).await;
    fixture.request_on_idle_connection(&mut peer).await;
}

#[tokio::test]
async fn a_body_that_never_ends_closes_its_connection() {
    let fixture = Fixture::new().await;
    let (answer, mut peer) = fixture.request_on_new_connection(CHUNKED_START).await;
    answer.into_body().release();
    peer.wait_closed().await;
    assert_eq!(fixture.idle(), 0);
}

#[tokio::test]
async fn a_connection_that_closes_after_its_response_is_not_pooled() {
    let fixture = Fixture::new().await;
    let (answer, mut peer) =
        fixture.request_on_new_connection("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok").await;
    assert_eq!(read_all(answer).await, "ok");
    assert_eq!(fixture.idle(), 0);
    peer.wait_closed().await;
}

#[tokio::test]
async fn a_server_without_tls_is_not_reached_by_https() {
    let fixture = Fixture::new().await;
    let (answer, _peer) = tokio::join!(fixture.request_with_scheme("https"), async {
        let mut peer = fixture.accept().await;
        let mut hello = [0; 3];
        peer.0.read_exact(&mut hello).await.unwrap();
        assert_eq!(hello[..2], [22, 3], "a TLS ClientHello");
        peer.write(COMPLETE_RESPONSE).await;
        peer
    });
    let error = answer.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Unreachable);
    assert!(error.message.starts_with(&format!("cannot reach {}: ", fixture.address())), "{error}");
}

#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_single_frame_wakes_the_task_once() {
    let fixture = Fixture::new().await;
    let (answer, mut peer) = fixture.request_on_new_connection(CHUNKED_START).await;
    let mut stream = answer.into_body();
    assert_eq!(read_frame(&mut stream).await, b"one");
    let counter = Arc::new(WakeCounter::default());
    let waker = Waker::from(Arc::clone(&counter));
    let mut context = Context::from_waker(&waker);
    for count in 1..20 {
        assert!(stream.poll_frame(&mut context).is_pending());
        peer.write("3\r\ntwo\r\n").await;
        wait_until(|| counter.0.load(Ordering::Relaxed) == count).await;
        let Poll::Ready(Some(Ok(frame))) = stream.poll_frame(&mut context) else { panic!("no frame") };
        assert_eq!(frame.into_data().unwrap(), "two");
        assert!(stream.poll_buffered().is_pending());
        assert_eq!(counter.0.load(Ordering::Relaxed), count);
    }
}

#[tokio::test]
async fn a_continuous_stream_does_not_starve_other_tasks() {
    const FRAMES: usize = 5000;
    let fixture = Fixture::new().await;
    let (answer, mut peer) = fixture.request_on_new_connection(CHUNKED_START).await;
    let mut stream = answer.into_body();
    peer.write(&"3\r\ntwo\r\n".repeat(FRAMES)).await;
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            yield_now().await;
        }
    });
    for _ in 0..FRAMES {
        read_frame(&mut stream).await;
    }
    other.abort();
    // A task may consume at most 128 budget units in a row.
    let turns = turns.load(Ordering::Relaxed);
    assert!(turns >= FRAMES / 128, "{turns} turns");
}
