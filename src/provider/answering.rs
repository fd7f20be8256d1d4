//! A turn that is being asked: retries until the first piece, then pieces as they come. A server that loads its model is
//! waited for.
//!
//! Nothing runs behind it: it moves only while it is asked for the next pieces, and dropping it closes the stream.

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

/// A turn that is being asked of a model.
pub struct Answering {
    state: State,
    question: Arc<Asked>,
    /// The run that asks, for the server's circuit breaker.
    run: Arc<RunAdmission>,
    /// What says to the breaker what came of it; none before it is asked and after it is over.
    pass: Option<Pass>,
    /// Which attempt this is.
    attempt: u32,
    loading: Option<Loading>,
}

/// How long the server has been loading the model.
#[derive(Debug, Clone, Copy)]
struct Loading {
    since: Instant,
    /// When that was told last.
    told: Instant,
    pause: Duration,
}

/// What is asked, the same at every attempt.
struct Asked {
    target: Arc<Target>,
    policy: Policy,
    body: Bytes,
    model: String,
    label: String,
}

/// What a turn has come to.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The next pieces.
    Pieces(Vec<Piece>),
    /// It failed before anything came, and is asked again after a pause that begins now.
    Waits(Wait),
    /// The server has been loading the model for so long, and is waited for.
    Loading(Duration),
    /// It is over.
    End,
}

/// A pause before a question is asked again.
#[derive(Debug, Clone, PartialEq)]
pub struct Wait {
    /// Which repetition follows, counted from one.
    pub attempt: u32,
    /// How many there are at most.
    pub most: u32,
    /// How long it is.
    pub pause: Duration,
    /// What went wrong.
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

/// What follows a failed attempt.
enum Next {
    Told(Step),
    Quiet,
    GiveUp(ModelError),
}

impl Answering {
    /// Prepares a turn; nothing is sent before the first pieces are asked for.
    pub(super) fn new(
        target: Arc<Target>,
        request: &Request,
        policy: Policy,
        run: Arc<RunAdmission>,
    ) -> Self {
        let body = target.dialect.body(request, target.habits()).to_string();
        // The same for every attempt, and different for every turn of a conversation.
        let label = format!("call_{}", request.entries.len());
        let model = request.model.clone();
        let question = Arc::new(Asked { target, policy, body: Bytes::from(body), model, label });
        Self { state: State::New, question, run, pass: None, attempt: 1, loading: None }
    }

    /// Waits for the next pieces; `None` is the end of the turn.
    ///
    /// Text that arrived together comes as one piece. It may be dropped while it waits and called again. After an
    /// error it gives the same error again.
    pub async fn next(&mut self) -> Result<Option<Vec<Piece>>, ModelError> {
        loop {
            match self.step().await? {
                Step::Pieces(pieces) => return Ok(Some(pieces)),
                Step::Waits(_) | Step::Loading(_) => {}
                Step::End => return Ok(None),
            }
        }
    }

    /// Waits for whatever comes next; like [`Answering::next`], but a pause is told when it begins.
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

    /// Asks no more if it is waiting to: the error it had becomes the last one.
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
        info!(provider = %target.name, kind = %error.kind, attempt, ?pause, "asking the model again");
        self.attempt += 1;
        self.state = State::Pausing(Instant::now() + pause, error.clone());
        Wait { attempt, most, pause, error }
    }

    /// Waits for a server that loads its model, as long as for the first bytes of an answer.
    ///
    /// That is no failure: it takes none of the attempts, and the breaker counts nothing.
    fn load(&mut self, error: ModelError) -> Next {
        let (now, limit) = (Instant::now(), self.question.target.limits.first_byte);
        let first = Loading { since: now, told: now, pause: FIRST_LOOK };
        let loading = self.loading.get_or_insert(first);
        let waited = now.duration_since(loading.since);
        if waited >= limit {
            let message = format!("{}; it was waited for {} s", error.message, limit.as_secs());
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

    /// Returns what is known of the end: all of it after the last pieces, what was spent so far before.
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
        f.debug_tuple("Answering").finish_non_exhaustive()
    }
}

/// An answer that comes in.
struct Open {
    target: Arc<Target>,
    stream: Stream,
    reader: Reader,
    /// What was read before anybody asked for it.
    ready: Vec<Piece>,
    /// What went wrong after that.
    failed: Option<ModelError>,
    over: Over,
    /// Until when the server may be silent; put off with every frame.
    patience: Instant,
    /// Ends no later than that. When it ends earlier it is set anew, which is rarer than a frame.
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

    /// Waits for the next frame; nothing means that the server has been silent for too long.
    async fn arrival(&mut self) -> Option<Arrival> {
        poll_fn(|context| match self.stream.poll_frame(context) {
            Poll::Ready(arrival) => Poll::Ready(Some(arrival)),
            Poll::Pending => self.poll_silence(context).map(|()| None),
        })
        .await
    }

    /// Lets the server be silent from now on for as long as it may.
    fn be_patient(&mut self) {
        self.patience = Instant::now() + self.target.limits.silence;
        if self.patience < self.silence.deadline() {
            self.silence.as_mut().reset(self.patience);
        }
    }

    /// Waits until the server has been silent for too long.
    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.silence.as_mut().poll(context));
            if self.silence.deadline() >= self.patience {
                return Poll::Ready(());
            }
            self.silence.as_mut().reset(self.patience);
        }
    }

    /// Takes what has arrived together with the last frame, without waiting for more.
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

/// Asks once, up to the first piece.
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

/// Sends the question and looks at the head of the answer.
async fn send(target: &Target, body: &Bytes, model: &str) -> Result<Response<Stream>, ModelError> {
    let call = target.call(target.dialect.chat_path(), Some(body.clone()))?;
    let response = target.client.send(call, target.limits.first_byte).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    if !status.is_success() {
        // What it says is worth less than that it fails.
        let said = read_body(response, ERROR_BYTES, target.limits.lookup).await.unwrap_or_default();
        return Err(target.refusal(status, &headers, &said, model));
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with("text/html") {
        let said = read_body(response, ERROR_BYTES, target.limits.lookup).await.unwrap_or_default();
        let place = &target.place.base;
        let message = format!("{} answered with a web page; is {place} its base URL?", target.name);
        return Err(ModelError::garbage(message, &said));
    }
    Ok(response)
}

fn left_alone(target: &Target, wait: Duration) -> ModelError {
    let message = format!(
        "{} at {} failed too often in a row and is left alone; it is tried again in {} s",
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

/// How soon a server that loads its model is asked again at first, and how far that doubles.
const FIRST_LOOK: Duration = Duration::from_millis(250);
const LONGEST_LOOK: Duration = Duration::from_secs(2);
/// How often it is told that the model is being loaded.
const TELL_LOADING: Duration = Duration::from_secs(5);
/// How many frames are taken at once that have arrived together.
const TOGETHER: usize = 256;
/// How much of an answer is read that says what went wrong.
const ERROR_BYTES: usize = 64 * 1024;
