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

use super::circuit::{CircuitPermit, RunAdmission};
use super::dialect::{EncodedTurn, ResponseDecoder};
use super::error::{ModelError, ModelErrorKind};
use super::http::{BodyFrame, ResponseBody, body_error, read_body, timeout_error};
use super::limits::TurnLimits;
use super::model::{Delta, Request, StopReason, TurnEnd, Usage};
use super::retry::{RetryDecision, RetryPolicy};
use super::target::Target;
use crate::backoff::{Backoff, random_fraction};

/// A turn that is requested from a model.
pub struct TurnStream {
    state: State,
    request: Arc<PreparedRequest>,
    /// The admission of the run at the server's circuit breaker.
    run: Arc<RunAdmission>,
    /// Reports the outcome to the breaker; `None` before admission and after the end.
    permit: Option<CircuitPermit>,
    /// The number of the current attempt, from 1.
    attempt: u32,
    loading: Option<LoadingWait>,
}

/// The wait for a server that loads its model.
#[derive(Debug, Clone, Copy)]
struct LoadingWait {
    since: Instant,
    /// When the caller was last informed.
    reported_at: Instant,
    polls: u32,
}

/// The request, identical for every attempt.
struct PreparedRequest {
    target: Arc<Target>,
    policy: RetryPolicy,
    path: &'static str,
    body: Bytes,
    decoder: fn(TurnLimits, String) -> Box<dyn ResponseDecoder>,
    model: String,
    label: String,
}

/// An item of a [`TurnStream`].
#[derive(Debug, Clone, PartialEq)]
pub enum StreamItem {
    /// The next deltas.
    Deltas(Vec<Delta>),
    /// The attempt failed before the first delta; a retry follows after a pause that starts now.
    RetryScheduled(PendingRetry),
    /// The server has been loading the model for this long, and the stream waits for it.
    Loading(Duration),
    /// The turn has ended.
    End,
}

/// A retry that follows after a pause.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingRetry {
    /// The number of the retry, from 1.
    pub attempt: u32,
    /// The maximum number of retries.
    pub max_retries: u32,
    /// The length of the pause.
    pub pause: Duration,
    /// The error of the failed attempt.
    pub error: ModelError,
}

type AttemptFuture = Pin<Box<dyn Future<Output = Result<OpenResponse, ModelError>> + Send>>;

enum State {
    New,
    Attempting(AttemptFuture),
    Backoff(Instant, ModelError),
    Streaming(Box<OpenResponse>),
    Ended(TurnEnd),
    Failed(ModelError, TurnEnd),
}

/// What to do after a failed attempt.
enum FailureAction {
    Report(StreamItem),
    Continue,
    Fail(ModelError),
}

impl TurnStream {
    /// Prepares a turn; nothing is sent before the first call of [`TurnStream::next`] or [`TurnStream::next_item`].
    pub(super) fn new(target: Arc<Target>, request: &Request, policy: RetryPolicy, run: Arc<RunAdmission>) -> Self {
        let EncodedTurn { path, body, decoder } = target.encode(request);
        let body = Bytes::from(body.to_string());
        // Equal for every attempt, and different for every turn of a conversation.
        let label = format!("call_{}", request.entries.len());
        let model = request.model.clone();
        let request = Arc::new(PreparedRequest { target, policy, path, body, decoder, model, label });
        Self { state: State::New, request, run, permit: None, attempt: 1, loading: None }
    }

    /// Waits for the next deltas; `None` is the end of the turn.
    ///
    /// Text that arrived together is one delta. The future is cancel-safe. After an error every call returns the
    /// same error.
    pub async fn next(&mut self) -> Result<Option<Vec<Delta>>, ModelError> {
        loop {
            match self.next_item().await? {
                StreamItem::Deltas(pieces) => return Ok(Some(pieces)),
                StreamItem::RetryScheduled(_) | StreamItem::Loading(_) => {}
                StreamItem::End => return Ok(None),
            }
        }
    }

    /// Waits for the next item. Unlike [`TurnStream::next`] it also returns retries and loading reports when they
    /// start.
    pub async fn next_item(&mut self) -> Result<StreamItem, ModelError> {
        loop {
            let step = match &mut self.state {
                State::New => match self.request.target.circuit.admit(&self.run) {
                    Ok(pass) => {
                        self.permit = Some(pass);
                        self.state = self.start_attempt();
                        continue;
                    }
                    Err(wait) => Err((circuit_open_error(&self.request.target, wait), unfinished_end())),
                },
                State::Attempting(trying) => match trying.as_mut().await {
                    Ok(open) => {
                        self.permit.iter().for_each(CircuitPermit::record_response);
                        self.state = State::Streaming(Box::new(open));
                        continue;
                    }
                    Err(error) => match self.after_failure(error) {
                        FailureAction::Report(step) => return Ok(step),
                        FailureAction::Continue => continue,
                        FailureAction::Fail(error) => Err((error, unfinished_end())),
                    },
                },
                State::Backoff(until, _) => {
                    sleep_until(*until).await;
                    self.state = self.start_attempt();
                    continue;
                }
                State::Streaming(open) => match open.next().await {
                    Ok(Some(pieces)) => return Ok(StreamItem::Deltas(pieces)),
                    Ok(None) => Ok(open.reader.end()),
                    Err(error) => Err((error, open.reader.end())),
                },
                State::Ended(_) => return Ok(StreamItem::End),
                State::Failed(error, _) => return Err(error.clone()),
            };
            self.finish(step);
        }
    }

    /// Cancels a scheduled retry: the error of the last attempt becomes the result of the turn.
    pub fn cancel_retry(&mut self) {
        if let State::Backoff(_, error) = &self.state {
            self.finish(Err((error.clone(), unfinished_end())));
        }
    }

    fn start_attempt(&self) -> State {
        State::Attempting(Box::pin(attempt(Arc::clone(&self.request))))
    }

    /// Decides what follows a failed attempt.
    fn after_failure(&mut self, error: ModelError) -> FailureAction {
        if error.kind == ModelErrorKind::ModelLoading {
            return self.wait_for_loading(error);
        }
        match self.request.policy.decide(self.attempt, error.clone(), random_fraction()) {
            RetryDecision::RetryAfter(pause) => {
                FailureAction::Report(StreamItem::RetryScheduled(self.schedule_retry(pause, error)))
            }
            RetryDecision::Fail(error) => FailureAction::Fail(error),
        }
    }

    fn schedule_retry(&mut self, pause: Duration, error: ModelError) -> PendingRetry {
        let PreparedRequest { target, policy, .. } = &*self.request;
        let (attempt, most) = (self.attempt, policy.attempts.saturating_sub(1));
        info!(provider = %target.name, kind = %error.kind, attempt, ?pause, "retrying the model request");
        self.attempt += 1;
        self.state = State::Backoff(Instant::now() + pause, error.clone());
        PendingRetry { attempt, max_retries: most, pause, error }
    }

    /// Schedules the next poll of a server that loads its model, for at most the first-byte timeout in total.
    ///
    /// Loading is not a failure: it consumes no attempt, and the breaker does not count it.
    fn wait_for_loading(&mut self, error: ModelError) -> FailureAction {
        let (now, limit) = (Instant::now(), self.request.target.limits.first_byte_timeout);
        let first = LoadingWait { since: now, reported_at: now, polls: 0 };
        let loading = self.loading.get_or_insert(first);
        let waited = now.duration_since(loading.since);
        if waited >= limit {
            let message = format!("{}; gave up after {} s", error.message, limit.as_secs());
            return FailureAction::Fail(ModelError { message, ..error });
        }
        let pause = LOADING_POLL.step(loading.polls);
        loading.polls = loading.polls.saturating_add(1);
        self.state = State::Backoff(now + pause.min(limit.saturating_sub(waited)), error);
        if waited.is_zero() || now.duration_since(loading.reported_at) >= LOADING_REPORT_INTERVAL {
            loading.reported_at = now;
            return FailureAction::Report(StreamItem::Loading(waited));
        }
        FailureAction::Continue
    }

    /// Returns the end of the turn: complete after the last deltas, the usage so far before that.
    pub fn end(&self) -> TurnEnd {
        match &self.state {
            State::New | State::Attempting(_) | State::Backoff(..) => unfinished_end(),
            State::Streaming(open) => open.reader.end(),
            State::Ended(end) => end.clone(),
            State::Failed(_, end) => end.clone(),
        }
    }

    fn finish(&mut self, step: Result<TurnEnd, (ModelError, TurnEnd)>) {
        let over = match step {
            Ok(end) => State::Ended(end),
            Err((error, end)) => State::Failed(error, end),
        };
        let before = std::mem::replace(&mut self.state, over);
        let pass = self.permit.take();
        match (&self.state, before) {
            (State::Failed(error, _), _) => pass.into_iter().for_each(|pass| pass.record_failure(error)),
            (State::Ended(_), State::Streaming(open)) => {
                pass.into_iter().for_each(CircuitPermit::record_success);
                open.stream.release();
            }
            (State::New | State::Attempting(_) | State::Backoff(..) | State::Streaming(_) | State::Ended(_), _) => {}
        }
    }
}

impl std::fmt::Debug for TurnStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TurnStream").finish_non_exhaustive()
    }
}

/// A response that is being received.
struct OpenResponse {
    target: Arc<Target>,
    stream: ResponseBody,
    reader: Box<dyn ResponseDecoder>,
    /// Deltas that were decoded and not yet returned.
    ready: Vec<Delta>,
    /// The error that follows the ready deltas.
    error: Option<ModelError>,
    body_state: BodyState,
    /// When the server has been idle for too long; every frame extends it.
    idle_deadline: Instant,
    /// A timer that fires no later than `idle_deadline`. If it fires earlier it is reset, which happens less often
    /// than a frame.
    idle_timer: Pin<Box<Sleep>>,
}

/// Whether the body has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyState {
    Open,
    Ended,
}

impl OpenResponse {
    async fn next(&mut self) -> Result<Option<Vec<Delta>>, ModelError> {
        loop {
            if !self.ready.is_empty() {
                return Ok(Some(std::mem::take(&mut self.ready)));
            }
            if let Some(error) = self.error.take() {
                return Err(self.target.redact(error));
            }
            if self.body_state == BodyState::Ended || self.reader.is_done() {
                return Ok(None);
            }
            match self.next_frame().await {
                Some(arrival) => self.accept_frame(arrival),
                None => self.error = Some(timeout_error(self.target.limits.idle_timeout)),
            }
            self.drain_ready_frames();
        }
    }

    /// Waits for the next frame; `None` is the idle timeout.
    async fn next_frame(&mut self) -> Option<BodyFrame> {
        poll_fn(|context| match self.stream.poll_frame(context) {
            Poll::Ready(arrival) => Poll::Ready(Some(arrival)),
            Poll::Pending => self.poll_idle_timeout(context).map(|()| None),
        })
        .await
    }

    /// Restarts the idle timeout.
    fn reset_idle_deadline(&mut self) {
        self.idle_deadline = Instant::now() + self.target.limits.idle_timeout;
        if self.idle_deadline < self.idle_timer.deadline() {
            self.idle_timer.as_mut().reset(self.idle_deadline);
        }
    }

    /// Waits for the idle timeout.
    fn poll_idle_timeout(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.idle_timer.as_mut().poll(context));
            if self.idle_timer.deadline() >= self.idle_deadline {
                return Poll::Ready(());
            }
            self.idle_timer.as_mut().reset(self.idle_deadline);
        }
    }

    /// Decodes the frames that have already arrived, without waiting for more.
    fn drain_ready_frames(&mut self) {
        for _ in 0..MAX_FRAMES_PER_POLL {
            if self.error.is_some() || self.body_state == BodyState::Ended || self.reader.is_done() {
                return;
            }
            match self.stream.poll_buffered() {
                Poll::Ready(arrival) => self.accept_frame(arrival),
                Poll::Pending => return,
            }
        }
    }

    fn accept_frame(&mut self, arrival: BodyFrame) {
        let outcome = match arrival {
            Some(Ok(frame)) => {
                self.reset_idle_deadline();
                frame.data_ref().map_or(Ok(()), |data| self.reader.feed(data, &mut self.ready))
            }
            Some(Err(error)) => Err(body_error(&error)),
            None => {
                self.body_state = BodyState::Ended;
                self.reader.finish(&mut self.ready)
            }
        };
        self.error = outcome.err();
    }
}

/// Makes one attempt, up to the first delta.
async fn attempt(request: Arc<PreparedRequest>) -> Result<OpenResponse, ModelError> {
    let target = &request.target;
    let started = Instant::now();
    let response = send(&request).await.map_err(|error| target.redact(error))?;
    let patience = started + target.limits.first_byte_timeout;
    let mut open = OpenResponse {
        target: Arc::clone(target),
        stream: response.into_body(),
        reader: (request.decoder)(target.limits.turn, request.label.clone()),
        ready: Vec::new(),
        error: None,
        body_state: BodyState::Open,
        idle_deadline: patience,
        idle_timer: Box::pin(sleep_until(patience)),
    };
    open.ready = open.next().await?.unwrap_or_default();
    Ok(open)
}

/// Sends the request and checks the status and the content type of the response.
async fn send(request: &PreparedRequest) -> Result<Response<ResponseBody>, ModelError> {
    let PreparedRequest { target, path, body, model, .. } = request;
    let call = target.request(path, Some(body.clone()))?;
    let response = target.client.send(call, target.limits.first_byte_timeout).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    if !status.is_success() {
        // A body that cannot be read must not hide the failure itself.
        let body = read_body(response, ERROR_BODY_BYTES, target.limits.lookup_timeout).await.unwrap_or_default();
        return Err(target.error_from_response(status, &headers, &body, model));
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with("text/html") {
        let body = read_body(response, ERROR_BODY_BYTES, target.limits.lookup_timeout).await.unwrap_or_default();
        let base_url = &target.endpoint.base_url;
        let message = format!("{} answered with a web page; check that {base_url} is its base URL", target.name);
        return Err(ModelError::invalid_response(message, &body));
    }
    Ok(response)
}

fn circuit_open_error(target: &Target, wait: Duration) -> ModelError {
    let message = format!(
        "{} at {} failed too often in a row and its circuit breaker is open; the next attempt is possible in {} s",
        target.name,
        target.endpoint.base_url,
        wait.as_secs_f64().ceil()
    );
    ModelError { retry_after: Some(wait), ..ModelError::new(ModelErrorKind::CircuitOpen, message) }
}

fn unfinished_end() -> TurnEnd {
    TurnEnd { stop: StopReason::Other("unfinished".to_owned()), usage: Usage::default(), provider_state: None }
}

/// The interval between polls of a server that loads its model: the first, and the maximum to which it doubles.
const LOADING_POLL: Backoff = Backoff { first: Duration::from_millis(250), limit: Duration::from_secs(2) };
/// The interval between loading reports.
const LOADING_REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// How many buffered frames are decoded in one poll.
const MAX_FRAMES_PER_POLL: usize = 256;
/// How much of the body of an error response is read.
const ERROR_BODY_BYTES: usize = 64 * 1024;
