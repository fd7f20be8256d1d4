//! The stream of a turn: retries until the first delta, then deltas as they arrive. While a server loads its model
//! the stream polls it.
//!
//! No background task exists: the stream makes progress only while its caller polls it, and dropping it closes the
//! connection.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::header::CONTENT_TYPE;
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::info;

use super::circuit::{Pass, RunAdmission};
use super::dialect::Reader;
use super::error::{Kind, ModelError};
use super::http::{Arrival, Stream, broken, read_body, silent};
use super::model::{Piece, Request, Stop, TurnEnd, Usage};
use super::retry::{Decision, Policy};
use super::target::Target;

/// A turn that is requested from a model.
pub struct Answering {
    state: State,
    question: Arc<Asked>,
    /// The admission of the run at the server's circuit breaker.
    run: Arc<RunAdmission>,
    /// Reports the outcome to the breaker; `None` before admission and after the end.
    pass: Option<Pass>,
    /// The number of the current attempt, from 1.
    attempt: u32,
    loading: Option<Loading>,
}

/// The wait for a server that loads its model.
#[derive(Debug, Clone, Copy)]
struct Loading {
    since: Instant,
    /// When the caller was last informed.
    told: Instant,
    pause: Duration,
}

/// The request, identical for every attempt.
struct Asked {
    target: Arc<Target>,
    policy: Policy,
    body: Bytes,
    model: String,
    label: String,
}

/// An item of a [`TurnStream`].
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The next deltas.
    Pieces(Vec<Piece>),
    /// The attempt failed before the first delta; a retry follows after a pause that starts now.
    Waits(Wait),
    /// The server has been loading the model for this long, and the stream waits for it.
    Loading(Duration),
    /// The turn has ended.
    End,
}

/// A retry that follows after a pause.
#[derive(Debug, Clone, PartialEq)]
pub struct Wait {
    /// The number of the retry, from 1.
    pub attempt: u32,
    /// The maximum number of retries.
    pub most: u32,
    /// The length of the pause.
    pub pause: Duration,
    /// The error of the failed attempt.
    pub error: ModelError,
}

type Trying = Pin<Box<dyn Future<Output = Result<Open, ModelError>> + Send>>;

enum State {
    New,
    Trying(Trying),
    Pausing(Instant, ModelError),
    Open(Box<Open>),
    Ended(TurnEnd),
    Failed(ModelError, TurnEnd),
}

/// What to do after a failed attempt.
enum Next {
    Told(Step),
    Quiet,
    GiveUp(ModelError),
}

impl Answering {
    /// Prepares a turn; nothing is sent before the first call of [`TurnStream::next`] or [`TurnStream::next_item`].
    pub(super) fn new(
        target: Arc<Target>,
        request: &Request,
        policy: Policy,
        run: Arc<RunAdmission>,
    ) -> Self {
        let body = target.dialect.body(request, target.habits()).to_string();
        // Equal for every attempt, and different for every turn of a conversation.
        let label = format!("call_{}", request.entries.len());
        let model = request.model.clone();
        let question = Arc::new(Asked { target, policy, body: Bytes::from(body), model, label });
        Self { state: State::New, question, run, pass: None, attempt: 1, loading: None }
    }

    /// Waits for the next deltas; `None` is the end of the turn.
    ///
    /// Text that arrived together is one delta. The future is cancel-safe. After an error every call returns the
    /// same error.
    pub async fn next(&mut self) -> Result<Option<Vec<Piece>>, ModelError> {
        loop {
            match self.step().await? {
                Step::Pieces(pieces) => return Ok(Some(pieces)),
                Step::Waits(_) | Step::Loading(_) => {}
                Step::End => return Ok(None),
            }
        }
    }

    /// Waits for the next item. Unlike [`TurnStream::next`] it also returns retries and loading reports when they
    /// start.
    pub async fn step(&mut self) -> Result<Step, ModelError> {
        loop {
            let step = match &mut self.state {
                State::New => match self.question.target.circuit.admit(&self.run) {
                    Ok(pass) => {
                        self.pass = Some(pass);
                        self.state = self.try_now();
                        continue;
                    }
                    Err(wait) => Err((left_alone(&self.question.target, wait), unfinished())),
                },
                State::Trying(trying) => match trying.as_mut().await {
                    Ok(open) => {
                        self.pass.iter().for_each(Pass::answered);
                        self.state = State::Open(Box::new(open));
                        continue;
                    }
                    Err(error) => match self.after(error) {
                        Next::Told(step) => return Ok(step),
                        Next::Quiet => continue,
                        Next::GiveUp(error) => Err((error, unfinished())),
                    },
                },
                State::Pausing(until, _) => {
                    sleep_until(*until).await;
                    self.state = self.try_now();
                    continue;
                }
                State::Open(open) => match open.next().await {
                    Ok(Some(pieces)) => return Ok(Step::Pieces(pieces)),
                    Ok(None) => Ok(open.reader.end()),
                    Err(error) => Err((error, open.reader.end())),
                },
                State::Ended(_) => return Ok(Step::End),
                State::Failed(error, _) => return Err(error.clone()),
            };
            self.settle(step);
        }
    }

    /// Cancels a scheduled retry: the error of the last attempt becomes the result of the turn.
    pub fn give_up(&mut self) {
        if let State::Pausing(_, error) = &self.state {
            self.settle(Err((error.clone(), unfinished())));
        }
    }

    fn try_now(&self) -> State {
        State::Trying(Box::pin(attempt(Arc::clone(&self.question))))
    }

    /// Decides what follows a failed attempt.
    fn after(&mut self, error: ModelError) -> Next {
        if error.kind == Kind::ModelLoading {
            return self.load(error);
        }
        match self.question.policy.after(self.attempt, error.clone(), chance()) {
            Decision::Wait(pause) => Next::Told(Step::Waits(self.pause(pause, error))),
            Decision::GiveUp(error) => Next::GiveUp(error),
        }
    }

    fn pause(&mut self, pause: Duration, error: ModelError) -> Wait {
        let Asked { target, policy, .. } = &*self.question;
        let (attempt, most) = (self.attempt, policy.attempts.saturating_sub(1));
        info!(provider = %target.name, kind = %error.kind, attempt, ?pause, "retrying the model request");
        self.attempt += 1;
        self.state = State::Pausing(Instant::now() + pause, error.clone());
        Wait { attempt, most, pause, error }
    }

    /// Schedules the next poll of a server that loads its model, for at most the first-byte timeout in total.
    ///
    /// Loading is not a failure: it consumes no attempt, and the breaker does not count it.
    fn load(&mut self, error: ModelError) -> Next {
        let (now, limit) = (Instant::now(), self.question.target.limits.first_byte);
        let first = Loading { since: now, told: now, pause: FIRST_LOOK };
        let loading = self.loading.get_or_insert(first);
        let waited = now.duration_since(loading.since);
        if waited >= limit {
            let message = format!("{}; gave up after {} s", error.message, limit.as_secs());
            return Next::GiveUp(ModelError { message, ..error });
        }
        let pause = loading.pause;
        loading.pause = (pause * 2).min(LONGEST_LOOK);
        self.state = State::Pausing(now + pause.min(limit.saturating_sub(waited)), error);
        if waited.is_zero() || now.duration_since(loading.told) >= TELL_LOADING {
            loading.told = now;
            return Next::Told(Step::Loading(waited));
        }
        Next::Quiet
    }

    /// Returns the end of the turn: complete after the last deltas, the usage so far before that.
    pub fn end(&self) -> TurnEnd {
        match &self.state {
            State::New | State::Trying(_) | State::Pausing(..) => unfinished(),
            State::Open(open) => open.reader.end(),
            State::Ended(end) => end.clone(),
            State::Failed(_, end) => end.clone(),
        }
    }

    fn settle(&mut self, step: Result<TurnEnd, (ModelError, TurnEnd)>) {
        let over = match step {
            Ok(end) => State::Ended(end),
            Err((error, end)) => State::Failed(error, end),
        };
        let before = std::mem::replace(&mut self.state, over);
        let pass = self.pass.take();
        match (&self.state, before) {
            (State::Failed(error, _), _) => pass.into_iter().for_each(|pass| pass.failed(error)),
            (State::Ended(_), State::Open(open)) => {
                pass.into_iter().for_each(Pass::succeeded);
                open.stream.give_back();
            }
            (State::New | State::Trying(_) | State::Pausing(..) | State::Open(_) | State::Ended(_), _) => {}
        }
    }
}

impl std::fmt::Debug for Answering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TurnStream").finish_non_exhaustive()
    }
}

/// A response that is being received.
struct Open {
    target: Arc<Target>,
    stream: Stream,
    reader: Reader,
    /// Deltas that were decoded and not yet returned.
    ready: Vec<Piece>,
    /// The error that follows the ready deltas.
    failed: Option<ModelError>,
    over: Over,
    /// When the server has been idle for too long; every frame extends it.
    patience: Instant,
    /// A timer that fires no later than `idle_deadline`. If it fires earlier it is reset, which happens less often
    /// than a frame.
    silence: Pin<Box<Sleep>>,
}

/// Whether the body has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    No,
    Yes,
}

impl Open {
    async fn next(&mut self) -> Result<Option<Vec<Piece>>, ModelError> {
        loop {
            if !self.ready.is_empty() {
                return Ok(Some(std::mem::take(&mut self.ready)));
            }
            if let Some(error) = self.failed.take() {
                return Err(self.target.hide(error));
            }
            if self.over == Over::Yes || self.reader.is_done() {
                return Ok(None);
            }
            match self.arrival().await {
                Some(arrival) => self.take(arrival),
                None => self.failed = Some(silent(self.target.limits.silence)),
            }
            self.gather();
        }
    }

    /// Waits for the next frame; `None` is the idle timeout.
    async fn arrival(&mut self) -> Option<Arrival> {
        poll_fn(|context| match self.stream.poll_frame(context) {
            Poll::Ready(arrival) => Poll::Ready(Some(arrival)),
            Poll::Pending => self.poll_silence(context).map(|()| None),
        })
        .await
    }

    /// Restarts the idle timeout.
    fn be_patient(&mut self) {
        self.patience = Instant::now() + self.target.limits.silence;
        if self.patience < self.silence.deadline() {
            self.silence.as_mut().reset(self.patience);
        }
    }

    /// Waits for the idle timeout.
    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.silence.as_mut().poll(context));
            if self.silence.deadline() >= self.patience {
                return Poll::Ready(());
            }
            self.silence.as_mut().reset(self.patience);
        }
    }

    /// Decodes the frames that have already arrived, without waiting for more.
    fn gather(&mut self) {
        for _ in 0..TOGETHER {
            if self.failed.is_some() || self.over == Over::Yes || self.reader.is_done() {
                return;
            }
            match self.stream.arrived() {
                Poll::Ready(arrival) => self.take(arrival),
                Poll::Pending => return,
            }
        }
    }

    fn take(&mut self, arrival: Arrival) {
        let outcome = match arrival {
            Some(Ok(frame)) => {
                self.be_patient();
                frame.data_ref().map_or(Ok(()), |data| self.reader.feed(data, &mut self.ready))
            }
            Some(Err(error)) => Err(broken(&error)),
            None => {
                self.over = Over::Yes;
                self.reader.finish(&mut self.ready)
            }
        };
        self.failed = outcome.err();
    }
}

/// Makes one attempt, up to the first delta.
async fn attempt(asked: Arc<Asked>) -> Result<Open, ModelError> {
    let Asked { target, body, model, label, .. } = &*asked;
    let started = Instant::now();
    let response = send(target, body, model).await.map_err(|error| target.hide(error))?;
    let patience = started + target.limits.first_byte;
    let mut open = Open {
        target: Arc::clone(target),
        stream: response.into_body(),
        reader: Reader::new(target.dialect, target.limits.turn, label),
        ready: Vec::new(),
        failed: None,
        over: Over::No,
        patience,
        silence: Box::pin(sleep_until(patience)),
    };
    open.ready = open.next().await?.unwrap_or_default();
    Ok(open)
}

/// Sends the request and checks the status and the content type of the response.
async fn send(target: &Target, body: &Bytes, model: &str) -> Result<Response<Stream>, ModelError> {
    let call = target.call(target.dialect.chat_path(), Some(body.clone()))?;
    let response = target.client.send(call, target.limits.first_byte).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    if !status.is_success() {
        // A body that cannot be read must not hide the failure itself.
        let said = read_body(response, ERROR_BYTES, target.limits.lookup).await.unwrap_or_default();
        return Err(target.refusal(status, &headers, &said, model));
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with("text/html") {
        let said = read_body(response, ERROR_BYTES, target.limits.lookup).await.unwrap_or_default();
        let place = &target.place.base;
        let message = format!("{} answered with a web page; check that {place} is its base URL", target.name);
        return Err(ModelError::garbage(message, &said));
    }
    Ok(response)
}

fn left_alone(target: &Target, wait: Duration) -> ModelError {
    let message = format!(
        "{} at {} failed too often in a row and its circuit breaker is open; the next attempt is possible in {} s",
        target.name,
        target.place.base,
        wait.as_secs_f64().ceil()
    );
    ModelError { retry_after: Some(wait), ..ModelError::new(Kind::CircuitOpen, message) }
}

fn chance() -> f64 {
    getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX))
}

fn unfinished() -> TurnEnd {
    TurnEnd { stop: Stop::Other("unfinished".to_owned()), usage: Usage::default(), carry: None }
}

/// The interval between polls of a server that loads its model: the first, and the maximum to which it doubles.
const FIRST_LOOK: Duration = Duration::from_millis(250);
const LONGEST_LOOK: Duration = Duration::from_secs(2);
/// The interval between loading reports.
const TELL_LOADING: Duration = Duration::from_secs(5);
/// How many buffered frames are decoded in one poll.
const TOGETHER: usize = 256;
/// How much of the body of an error response is read.
const ERROR_BYTES: usize = 64 * 1024;
