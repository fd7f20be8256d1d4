//! A connection that its user drives, and the response bodies that arrive on it.
//!
//! No task stands between the socket and the turn that waits for it: incoming data wakes the turn, which reads it
//! itself.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper::{Request, Response};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::coop;
use tokio::time::timeout;

use super::pool::{ConnectionPool, Origin};

/// The transport of a connection.
pub(super) type Transport = MaybeHttpsStream<TokioIo<TcpStream>>;
/// A request on the wire.
pub(super) type WireRequest = Request<Full<Bytes>>;
/// The next frame of a body; `None` is its end.
pub(in crate::provider) type BodyFrame = Option<Result<Frame<Bytes>, hyper::Error>>;

/// A connection that carries one request at a time.
#[derive(Debug)]
pub(super) struct HttpConnection {
    sender: SendRequest<Full<Bytes>>,
    /// `None` once it is closed.
    connection: Option<Connection<Transport, Full<Bytes>>>,
}

impl HttpConnection {
    pub(super) async fn handshake(wire: Transport) -> hyper::Result<Self> {
        let (sender, connection) = handshake(wire).await?;
        Ok(Self { sender, connection: Some(connection) })
    }

    /// Sends a request and waits for the head of the response. The error holds the request if nothing of it was
    /// sent.
    pub(super) async fn send(
        &mut self,
        question: WireRequest,
    ) -> Result<Response<Incoming>, Box<TrySendError<WireRequest>>> {
        let mut answer = pin!(self.sender.try_send_request(question));
        let connection = &mut self.connection;
        let response = poll_fn(|context| {
            // If the connection is closed, the response future holds the response or the error.
            let _ = drive(connection, context);
            answer.as_mut().poll(context)
        });
        response.await.map_err(Box::new)
    }

    /// Drives the connection as far as possible; ready when it is closed.
    pub(super) fn drive(&mut self, context: &mut Context<'_>) -> Poll<()> {
        drive(&mut self.connection, context)
    }

    /// Waits until another request can be sent.
    fn poll_reusable(&mut self, context: &mut Context<'_>) -> Poll<DrainOutcome> {
        match self.drive(context) {
            Poll::Ready(()) => Poll::Ready(DrainOutcome::Broken),
            Poll::Pending => self
                .sender
                .poll_ready(context)
                .map(|free| free.map_or(DrainOutcome::Broken, |()| DrainOutcome::Drained)),
        }
    }
}

fn drive(connection: &mut Option<Connection<Transport, Full<Bytes>>>, context: &mut Context<'_>) -> Poll<()> {
    if let Some(moved) = connection {
        // The response future reports the error; nothing else needs it.
        let _ = ready!(Pin::new(moved).poll(context));
        *connection = None;
    }
    Poll::Ready(())
}

/// The body of a response, together with its connection. Dropping it closes the connection.
#[derive(Debug)]
pub(in crate::provider) struct ResponseBody {
    link: HttpConnection,
    body: Incoming,
    pool: Arc<ConnectionPool>,
    origin: Origin,
}

/// The outcome of reading the rest of a body.
enum DrainOutcome {
    /// The rest was read, and the connection can be reused.
    Drained,
    /// The connection cannot be reused.
    Broken,
}

impl ResponseBody {
    pub(super) const fn new(link: HttpConnection, body: Incoming, pool: Arc<ConnectionPool>, origin: Origin) -> Self {
        Self { link, body, pool, origin }
    }

    /// Waits for the next frame. The future is cancel-safe.
    pub(in crate::provider) async fn frame(&mut self) -> BodyFrame {
        poll_fn(|context| self.poll_frame(context)).await
    }

    /// Polls for the next frame.
    pub(in crate::provider) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<BodyFrame> {
        // A buffered frame is invisible to the runtime's cooperative scheduling: a server that sends without pause
        // must not starve the other tasks of this thread.
        let share = ready!(coop::poll_proceed(context));
        let mut arrival = self.try_read_frame();
        if arrival.is_pending() {
            // No frame is buffered: register the waker only now.
            let _ = self.link.drive(context);
            arrival = self.take_frame();
        }
        if arrival.is_ready() {
            share.made_progress();
        }
        arrival
    }

    /// Returns the next frame if it has already arrived.
    pub(in crate::provider) fn poll_buffered(&mut self) -> Poll<BodyFrame> {
        let share = ready!(coop::poll_proceed(&mut noop_context()));
        let arrival = self.try_read_frame();
        if arrival.is_ready() {
            share.made_progress();
        }
        arrival
    }

    /// Returns the connection to the pool after the rest of the body has been read, in the background if necessary.
    pub(in crate::provider) fn release(mut self) {
        match self.poll_drain(&mut noop_context()) {
            Poll::Ready(rest) => self.return_to_pool(&rest),
            Poll::Pending => {
                let rest = async move {
                    let rest = poll_fn(|context| self.poll_drain(context)).await;
                    self.return_to_pool(&rest);
                };
                tokio::spawn(timeout(RELEASE_TIMEOUT, rest));
            }
        }
    }

    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<DrainOutcome> {
        loop {
            match ready!(self.poll_frame(context)) {
                Some(Ok(_)) => {}
                Some(Err(_)) => return Poll::Ready(DrainOutcome::Broken),
                None => return self.link.poll_reusable(context),
            }
        }
    }

    fn return_to_pool(self, rest: &DrainOutcome) {
        match rest {
            DrainOutcome::Drained => self.pool.insert(self.origin, self.link),
            DrainOutcome::Broken => {}
        }
    }

    /// Reads the next frame if it has arrived, without registering a waker.
    fn try_read_frame(&mut self) -> Poll<BodyFrame> {
        let arrival = self.take_frame();
        if arrival.is_ready() {
            return arrival;
        }
        let _ = self.link.drive(&mut noop_context());
        self.take_frame()
    }

    /// Takes a frame that the connection has already read.
    ///
    /// Only driving the connection produces a frame, and this task drives it. The task must not wake itself: it
    /// would be scheduled once more without work, and might wake another thread to run it.
    fn take_frame(&mut self) -> Poll<BodyFrame> {
        Pin::new(&mut self.body).poll_frame(&mut noop_context())
    }
}

/// Returns a context that wakes no task.
const fn noop_context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// How long the end of a body may take after the response is complete.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);
