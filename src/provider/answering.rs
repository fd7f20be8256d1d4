//! A turn that is being asked: retries until the first piece, then pieces as they come.
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

use super::circuit::Pass;
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
    /// How often it was asked.
    attempt: u32,
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

type Trying = Pin<Box<dyn Future<Output = Result<Open, Tried>> + Send>>;

/// Why an attempt came to nothing.
enum Tried {
    /// Asking again may help.
    Failed(ModelError),
    /// The server is to be left alone: what went wrong before is what is told.
    InVain(ModelError),
}

enum State {
    Trying(Trying),
    Pausing(Instant, ModelError),
    Open(Box<Open>),
    Ended(TurnEnd),
    Failed(ModelError, TurnEnd),
}

impl Answering {
    /// Prepares a turn; nothing is sent before the first pieces are asked for.
    pub(super) fn new(target: Arc<Target>, request: &Request, policy: Policy) -> Self {
        let body = target.dialect.body(request, target.habits()).to_string();
        // The same for every attempt, and different for every turn of a conversation.
        let label = format!("call_{}", request.entries.len());
        let model = request.model.clone();
        let question = Arc::new(Asked { target, policy, body: Bytes::from(body), model, label });
        Self { state: State::Trying(Box::pin(attempt(Arc::clone(&question), None))), question, attempt: 1 }
    }

    /// Waits for the next pieces; `None` is the end of the turn.
    ///
    /// Text that arrived together comes as one piece. It may be dropped while it waits and called again. After an
    /// error it gives the same error again.
    pub async fn next(&mut self) -> Result<Option<Vec<Piece>>, ModelError> {
        loop {
            match self.step().await? {
                Step::Pieces(pieces) => return Ok(Some(pieces)),
                Step::Waits(_) => {}
                Step::End => return Ok(None),
            }
        }
    }

    /// Waits for whatever comes next; like [`Answering::next`], but a pause is told when it begins.
    pub async fn step(&mut self) -> Result<Step, ModelError> {
        loop {
            let step = match &mut self.state {
                State::Trying(trying) => match trying.as_mut().await {
                    Ok(open) => {
                        self.state = State::Open(Box::new(open));
                        continue;
                    }
                    Err(Tried::InVain(error)) => Err((error, unfinished())),
                    Err(Tried::Failed(error)) => {
                        match self.question.policy.after(self.attempt, error.clone(), chance()) {
                            Decision::Wait(pause) => return Ok(Step::Waits(self.pause(pause, error))),
                            Decision::GiveUp(error) => Err((error, unfinished())),
                        }
                    }
                },
                State::Pausing(until, error) => {
                    sleep_until(*until).await;
                    let before = Some(error.clone());
                    self.attempt += 1;
                    self.state = State::Trying(Box::pin(attempt(Arc::clone(&self.question), before)));
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
            self.state = State::Failed(error.clone(), unfinished());
        }
    }

    fn pause(&mut self, pause: Duration, error: ModelError) -> Wait {
        let Asked { target, policy, .. } = &*self.question;
        let (attempt, most) = (self.attempt, policy.attempts.saturating_sub(1));
        info!(provider = %target.name, kind = %error.kind, attempt, ?pause, "asking the model again");
        self.state = State::Pausing(Instant::now() + pause, error.clone());
        Wait { attempt, most, pause, error }
    }

    /// Returns what is known of the end: all of it after the last pieces, what was spent so far before.
    pub fn end(&self) -> TurnEnd {
        match &self.state {
            State::Trying(_) | State::Pausing(..) => unfinished(),
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
        if let State::Open(open) = std::mem::replace(&mut self.state, over) {
            match &self.state {
                State::Failed(error, _) => open.pass.failed(error),
                State::Ended(_) => {
                    open.pass.succeeded();
                    open.stream.give_back();
                }
                State::Trying(_) | State::Pausing(..) | State::Open(_) => {}
            }
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
    pass: Pass,
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

/// Asks once, unless the server is to be left alone.
async fn attempt(asked: Arc<Asked>, before: Option<ModelError>) -> Result<Open, Tried> {
    let Asked { target, body, model, label, .. } = &*asked;
    let pass = match (target.circuit.admit(), before) {
        (Ok(pass), _) => pass,
        (Err(_), Some(error)) => return Err(Tried::InVain(error)),
        (Err(wait), None) => return Err(Tried::InVain(left_alone(target, wait))),
    };
    try_once(target, body, model, label, pass).await.map_err(|error| Tried::Failed(target.hide(error)))
}

/// Asks once, up to the first piece.
async fn try_once(
    target: &Arc<Target>,
    body: &Bytes,
    model: &str,
    label: &str,
    pass: Pass,
) -> Result<Open, ModelError> {
    let asked = Instant::now();
    let response = match send(target, body, model).await {
        Ok(response) => response,
        Err(error) => {
            pass.failed(&error);
            return Err(error);
        }
    };
    let patience = asked + target.limits.first_byte;
    let mut open = Open {
        target: Arc::clone(target),
        pass,
        stream: response.into_body(),
        reader: Reader::new(target.dialect, target.limits.turn, label),
        ready: Vec::new(),
        failed: None,
        over: Over::No,
        patience,
        silence: Box::pin(sleep_until(patience)),
    };
    match open.next().await {
        Ok(pieces) => {
            open.pass.answered();
            open.ready = pieces.unwrap_or_default();
            Ok(open)
        }
        Err(error) => {
            open.pass.failed(&error);
            Err(error)
        }
    }
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

/// How many frames are taken at once that have arrived together.
const TOGETHER: usize = 256;
/// How much of an answer is read that says what went wrong.
const ERROR_BYTES: usize = 64 * 1024;
