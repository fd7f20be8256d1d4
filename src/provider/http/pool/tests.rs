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

use super::super::link::Stream;
use super::super::{Call, Client, read_body};
use super::*;
use crate::provider::error::{Kind, ModelError};

/// A timeout that is long enough for every step.
const PATIENCE: Duration = Duration::from_secs(20);
const WHOLE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const BEGUN: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n";
const END: &str = "0\r\n\r\n";

struct World {
    listener: TcpListener,
    client: Client,
}

/// The server's end of a connection.
struct Peer(TcpStream);

impl World {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self { listener, client: Client::new(PATIENCE) }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn origin(&self) -> Origin {
        Origin::of(&format!("http://{}/", self.address()).parse().unwrap()).unwrap()
    }

    async fn ask(&self) -> Result<Response<Stream>, ModelError> {
        self.ask_by("http").await
    }

    async fn ask_by(&self, scheme: &str) -> Result<Response<Stream>, ModelError> {
        let url = format!("{scheme}://{}/question", self.address());
        self.client.send(Call { url, headers: HeaderMap::new(), body: None }, PATIENCE).await
    }

    async fn accept(&self) -> Peer {
        Peer(timeout(PATIENCE, self.listener.accept()).await.unwrap().unwrap().0)
    }

    /// Sends a request on a new connection, and answers it with `said`.
    async fn asked_anew(&self, said: &str) -> (Response<Stream>, Peer) {
        let (answer, peer) = tokio::join!(self.ask(), async {
            let mut peer = self.accept().await;
            peer.hears().await;
            peer.says(said).await;
            peer
        });
        (answer.unwrap(), peer)
    }

    /// Sends a request on the connection to this peer, and reads a complete response.
    async fn asked_again(&self, peer: &mut Peer) {
        let (answer, ()) = tokio::join!(self.ask(), async {
            peer.hears().await;
            peer.says(WHOLE).await;
        });
        assert_eq!(whole(answer.unwrap()).await, "ok");
    }

    fn idle(&self) -> usize {
        lock(&self.client.pool.idle).values().map(Vec::len).sum()
    }

    /// Yields until this many connections are idle.
    async fn until_idle(&self, count: usize) {
        until(|| self.idle() == count).await;
    }

    /// Stops the watchers of idle connections.
    fn unwatch(&self) {
        lock(&self.client.pool.idle).values().flatten().for_each(|idle| idle.watcher.abort());
    }
}

impl Peer {
    /// Reads one request.
    async fn hears(&mut self) {
        let mut heard = Vec::new();
        while !heard.ends_with(b"\r\n\r\n") {
            let read = timeout(PATIENCE, self.0.read_buf(&mut heard)).await.unwrap().unwrap();
            assert!(read > 0, "closed after {heard:?}");
        }
        assert!(heard.starts_with(b"GET /question HTTP/1.1\r\n"), "{heard:?}");
    }

    async fn says(&mut self, said: &str) {
        self.0.write_all(said.as_bytes()).await.unwrap();
    }

    /// Waits until the client has closed the connection.
    async fn closed(&mut self) {
        let read = timeout(PATIENCE, self.0.read(&mut [0; 64])).await.unwrap();
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
}

async fn until(mut is: impl FnMut() -> bool) {
    timeout(PATIENCE, async {
        while !is() {
            yield_now().await;
        }
    })
    .await
    .unwrap();
}

async fn whole(answer: Response<Stream>) -> String {
    String::from_utf8(read_body(answer, 1000, PATIENCE).await.unwrap()).unwrap()
}

async fn data(stream: &mut Stream) -> Vec<u8> {
    stream.frame().await.unwrap().unwrap().into_data().unwrap().to_vec()
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let world = World::new().await;
    let (answer, mut peer) = world.asked_anew(WHOLE).await;
    assert_eq!(whole(answer).await, "ok");
    for _ in 0..3 {
        assert_eq!(world.idle(), 1);
        world.asked_again(&mut peer).await;
    }
}

#[tokio::test]
async fn what_the_server_closes_while_it_is_idle_goes_at_once() {
    let world = World::new().await;
    let (answer, peer) = world.asked_anew(WHOLE).await;
    whole(answer).await;
    drop(peer);
    world.until_idle(0).await;
    let (answer, _peer) = world.asked_anew(WHOLE).await;
    assert_eq!(whole(answer).await, "ok");
}

#[tokio::test]
async fn what_is_closed_just_as_the_next_question_comes_is_replaced() {
    let world = World::new().await;
    let socket = std::net::TcpStream::connect(world.address()).unwrap();
    socket.set_nonblocking(true).unwrap();
    let eye = socket.try_clone().unwrap();
    let wire = MaybeHttpsStream::Http(TokioIo::new(TcpStream::from_std(socket).unwrap()));
    world.client.pool.keep(world.origin(), Link::over(wire).await.unwrap());
    let mut peer = world.accept().await;
    world.asked_again(&mut peer).await;
    world.unwatch();
    drop(peer);
    until(|| matches!(eye.peek(&mut [0]), Ok(0))).await;
    // Any I/O wait lets the runtime process the events of all sockets.
    let (_other, _) = tokio::join!(TcpStream::connect(world.address()), world.accept());
    assert_eq!(world.idle(), 1, "the closed connection is still pooled");
    let (answer, _peer) = world.asked_anew(WHOLE).await;
    assert_eq!(whole(answer).await, "ok");
}

#[tokio::test]
async fn what_is_over_is_replaced_even_if_nobody_has_removed_it() {
    let world = World::new().await;
    let (answer, peer) = world.asked_anew(WHOLE).await;
    whole(answer).await;
    world.unwatch();
    drop(peer);
    let slot = Arc::clone(&lock(&world.client.pool.idle)[&world.origin()][0].slot);
    let mut nobody = Context::from_waker(Waker::noop());
    until(|| lock(&slot).as_mut().unwrap().drive(&mut nobody).is_ready()).await;
    let (answer, _peer) = world.asked_anew(WHOLE).await;
    assert_eq!(whole(answer).await, "ok");
}

#[tokio::test]
async fn a_new_connection_that_is_closed_without_an_answer_is_a_failure() {
    let world = World::new().await;
    let (answer, ()) = tokio::join!(world.ask(), async { world.accept().await.hears().await });
    assert_eq!(answer.unwrap_err().kind, Kind::Cut);
}

#[tokio::test]
async fn the_newest_eight_are_kept() {
    let world = World::new().await;
    let mut streams = Vec::new();
    let mut peers = Vec::new();
    for _ in 0..10 {
        let (answer, peer) = world.asked_anew(WHOLE).await;
        streams.push(answer.into_body());
        peers.push(peer);
    }
    streams.into_iter().for_each(Stream::give_back);
    assert_eq!(world.idle(), 8);
    for mut old in peers.drain(..2) {
        old.closed().await;
    }
    let mut newest = peers.pop().unwrap();
    world.asked_again(&mut newest).await;
    world.asked_again(&mut newest).await;
    assert_eq!(world.idle(), 8);
}

#[tokio::test]
async fn what_has_been_idle_for_long_is_not_used() {
    let world = World::new().await;
    let (answer, mut old) = world.asked_anew(WHOLE).await;
    whole(answer).await;
    let long_ago = Instant::now().checked_sub(OLD).unwrap();
    lock(&world.client.pool.idle).values_mut().flatten().for_each(|idle| idle.since = long_ago);
    let (answer, _peer) = world.asked_anew(WHOLE).await;
    assert_eq!(whole(answer).await, "ok");
    old.closed().await;
}

#[tokio::test]
async fn idle_connections_end_with_the_pool() {
    let world = World::new().await;
    let (answer, mut peer) = world.asked_anew(WHOLE).await;
    whole(answer).await;
    drop(world);
    peer.closed().await;
}

#[tokio::test]
async fn what_is_dropped_closes_its_connection() {
    let world = World::new().await;
    let (answer, mut peer) = world.asked_anew(BEGUN).await;
    let mut stream = answer.into_body();
    assert_eq!(data(&mut stream).await, b"one");
    drop(stream);
    peer.closed().await;
    let mut unanswered = tokio::select! {
        answer = world.ask() => panic!("{answer:?}"),
        peer = async { let mut peer = world.accept().await; peer.hears().await; peer } => peer,
    };
    unanswered.closed().await;
    assert_eq!(world.idle(), 0);
}

#[tokio::test]
async fn an_end_that_comes_late_still_gives_the_connection_back() {
    let world = World::new().await;
    let (answer, mut peer) = world.asked_anew(BEGUN).await;
    let mut stream = answer.into_body();
    assert_eq!(data(&mut stream).await, b"one");
    stream.give_back();
    assert_eq!(world.idle(), 0);
    peer.says("3\r\ntwo\r\n").await;
    peer.says(END).await;
    world.until_idle(1).await;
    world.asked_again(&mut peer).await;
}

#[tokio::test]
async fn an_end_that_never_comes_closes_the_connection() {
    let world = World::new().await;
    let (answer, mut peer) = world.asked_anew(BEGUN).await;
    answer.into_body().give_back();
    peer.closed().await;
    assert_eq!(world.idle(), 0);
}

#[tokio::test]
async fn a_server_that_closes_after_its_answer_is_not_kept() {
    let world = World::new().await;
    let (answer, mut peer) =
        world.asked_anew("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok").await;
    assert_eq!(whole(answer).await, "ok");
    assert_eq!(world.idle(), 0);
    peer.closed().await;
}

#[tokio::test]
async fn a_server_without_tls_is_not_reached_by_https() {
    let world = World::new().await;
    let (answer, _peer) = tokio::join!(world.ask_by("https"), async {
        let mut peer = world.accept().await;
        let mut hello = [0; 3];
        peer.0.read_exact(&mut hello).await.unwrap();
        assert_eq!(hello[..2], [22, 3], "a TLS ClientHello");
        peer.says(WHOLE).await;
        peer
    });
    let error = answer.unwrap_err();
    assert_eq!(error.kind, Kind::Unreachable);
    assert!(error.message.starts_with(&format!("cannot reach {}: ", world.address())), "{error}");
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_frame_that_comes_alone_wakes_once() {
    let world = World::new().await;
    let (answer, mut peer) = world.asked_anew(BEGUN).await;
    let mut stream = answer.into_body();
    assert_eq!(data(&mut stream).await, b"one");
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut context = Context::from_waker(&waker);
    for count in 1..20 {
        assert!(stream.poll_frame(&mut context).is_pending());
        peer.says("3\r\ntwo\r\n").await;
        until(|| wakes.0.load(Ordering::Relaxed) == count).await;
        let Poll::Ready(Some(Ok(frame))) = stream.poll_frame(&mut context) else { panic!("no frame") };
        assert_eq!(frame.into_data().unwrap(), "two");
        assert!(stream.arrived().is_pending());
        assert_eq!(wakes.0.load(Ordering::Relaxed), count);
    }
}

#[tokio::test]
async fn a_flood_leaves_others_their_share() {
    const FRAMES: usize = 5000;
    let world = World::new().await;
    let (answer, mut peer) = world.asked_anew(BEGUN).await;
    let mut stream = answer.into_body();
    peer.says(&"3\r\ntwo\r\n".repeat(FRAMES)).await;
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            yield_now().await;
        }
    });
    for _ in 0..FRAMES {
        data(&mut stream).await;
    }
    other.abort();
    // A task may consume at most 128 budget units in a row.
    let turns = turns.load(Ordering::Relaxed);
    assert!(turns >= FRAMES / 128, "{turns} turns");
}
