//! A connection that is moved by whoever uses it, and what a server says over it.
//!
//! No task stands between the socket and the turn that waits for it: what arrives wakes the turn, which reads it itself.

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

use super::pool::{Origin, Pool};

/// What a connection goes over.
pub(super) type Wire = MaybeHttpsStream<TokioIo<TcpStream>>;
/// What is asked.
pub(super) type Question = Request<Full<Bytes>>;
/// What comes next of a body; nothing is its end.
pub(in crate::provider) type Arrival = Option<Result<Frame<Bytes>, hyper::Error>>;

/// A connection, on which one question is asked at a time.
#[derive(Debug)]
pub(super) struct Link {
    sender: SendRequest<Full<Bytes>>,
    /// Nothing once it is over.
    connection: Option<Connection<Wire, Full<Bytes>>>,
}

impl Link {
    pub(super) async fn over(wire: Wire) -> hyper::Result<Self> {
        let (sender, connection) = handshake(wire).await?;
        Ok(Self { sender, connection: Some(connection) })
    }

    /// Asks, and waits for the head of the answer. The error holds the question if nothing of it went out.
    pub(super) async fn ask(
        &mut self,
        question: Question,
    ) -> Result<Response<Incoming>, Box<TrySendError<Question>>> {
        let mut answer = pin!(self.sender.try_send_request(question));
        let connection = &mut self.connection;
        let asked = poll_fn(|context| {
            // If it is over, the answer is there, or why there is none.
            let _ = drive(connection, context);
            answer.as_mut().poll(context)
        });
        asked.await.map_err(Box::new)
    }

    /// Moves the connection as far as it goes now; ready when it is over.
    pub(super) fn drive(&mut self, context: &mut Context<'_>) -> Poll<()> {
        drive(&mut self.connection, context)
    }

    /// Waits until another question can be asked.
    fn poll_free(&mut self, context: &mut Context<'_>) -> Poll<Rest> {
        match self.drive(context) {
            Poll::Ready(()) => Poll::Ready(Rest::Broken),
            Poll::Pending => {
                self.sender.poll_ready(context).map(|free| free.map_or(Rest::Broken, |()| Rest::Read))
            }
        }
    }
}

fn drive(connection: &mut Option<Connection<Wire, Full<Bytes>>>, context: &mut Context<'_>) -> Poll<()> {
    if let Some(moved) = connection {
        // Whoever waits for an answer has been told what went wrong; nobody else needs to know.
        let _ = ready!(Pin::new(moved).poll(context));
        *connection = None;
    }
    Poll::Ready(())
}

/// The body of an answer, together with the connection that it comes over. Dropping it closes the connection.
#[derive(Debug)]
pub(in crate::provider) struct Stream {
    link: Link,
    body: Incoming,
    pool: Arc<Pool>,
    origin: Origin,
}

/// What became of the rest of a body.
enum Rest {
    /// It was read, and another question can be asked.
    Read,
    /// The connection is of no use any more.
    Broken,
}

impl Stream {
    pub(super) const fn new(link: Link, body: Incoming, pool: Arc<Pool>, origin: Origin) -> Self {
        Self { link, body, pool, origin }
    }

    /// Waits for the next frame. It may be dropped while it waits and called again.
    pub(in crate::provider) async fn frame(&mut self) -> Arrival {
        poll_fn(|context| self.poll_frame(context)).await
    }

    /// Waits for the next frame.
    pub(in crate::provider) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Arrival> {
        // A frame may lie in a buffer, where the runtime does not see that it is taken: a server that sends without end
        // must not keep the others of this thread from their work.
        let share = ready!(coop::poll_proceed(context));
        let mut arrival = self.look();
        if arrival.is_pending() {
            // Nothing is there: only now the task is to be woken when something comes.
            let _ = self.link.drive(context);
            arrival = self.take();
        }
        if arrival.is_ready() {
            share.made_progress();
        }
        arrival
    }

    /// Returns the next frame if it has arrived.
    pub(in crate::provider) fn arrived(&mut self) -> Poll<Arrival> {
        let share = ready!(coop::poll_proceed(&mut nobody()));
        let arrival = self.look();
        if arrival.is_ready() {
            share.made_progress();
        }
        arrival
    }

    /// Lets the connection be used again, after the rest of the body has been read in passing.
    pub(in crate::provider) fn give_back(mut self) {
        match self.poll_rest(&mut nobody()) {
            Poll::Ready(rest) => self.settle(&rest),
            Poll::Pending => {
                let rest = async move {
                    let rest = poll_fn(|context| self.poll_rest(context)).await;
                    self.settle(&rest);
                };
                tokio::spawn(timeout(GIVE_BACK, rest));
            }
        }
    }

    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<Rest> {
        loop {
            match ready!(self.poll_frame(context)) {
                Some(Ok(_)) => {}
                Some(Err(_)) => return Poll::Ready(Rest::Broken),
                None => return self.link.poll_free(context),
            }
        }
    }

    fn settle(self, rest: &Rest) {
        match rest {
            Rest::Read => self.pool.keep(self.origin, self.link),
            Rest::Broken => {}
        }
    }

    /// Takes the next frame if it has arrived, and wakes nobody.
    fn look(&mut self) -> Poll<Arrival> {
        let arrival = self.take();
        if arrival.is_ready() {
            return arrival;
        }
        let _ = self.link.drive(&mut nobody());
        self.take()
    }

    /// Takes the frame that the connection has read.
    ///
    /// Only moving the connection makes a frame, and that is done here. The task must not be woken by what it does
    /// itself: it would be run once more for nothing, and another thread be woken to see to it.
    fn take(&mut self) -> Poll<Arrival> {
        Pin::new(&mut self.body).poll_frame(&mut nobody())
    }
}

/// The context of a look that nobody is woken by.
const fn nobody() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// How long the end of an answer's body may take after the answer is whole.
const GIVE_BACK: Duration = Duration::from_secs(1);
