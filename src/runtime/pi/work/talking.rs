//! Messages, the end of a run, and answers to questions.

use std::sync::Arc;

use super::{Done, Job, Result};
use crate::kernel::command::{Command, GateVote, Prompt, Steer};
use crate::kernel::event::{ApprovalScope, Budget, Decision};
use crate::kernel::id::{Fingerprint, GateId};
use crate::kernel::refusal::Refusal;
use crate::protocol::pi::encode;
use crate::protocol::pi::error_text;
use crate::protocol::pi::projection::{self, Vote};
use crate::protocol::pi::request::{StreamingBehavior, UiResponse, UserInput};
use crate::provider::breaker::State;
use crate::runtime::generate;
use crate::runtime::pi::desk::{Answered, Failure};
use crate::runtime::pi::seat::Seat;
use crate::runtime::pi::seats::Sitting;

impl Job {
    pub(super) async fn prompt(&self, words: &UserInput, streaming: Option<StreamingBehavior>) -> Result {
        let seat = self.seat().await?;
        self.refuse_open_circuit(&seat).await?;
        self.synchronize(&seat).await;
        let words = &self.expanded(&seat, words).await?;
        let prompted = self.ask(&seat, Command::Prompt(Box::new(prompt(words)))).await;
        let answered = match (prompted, streaming) {
            (Err(Failure::Refused(Refusal::RunActive)), Some(StreamingBehavior::Steer)) => {
                self.steer_or_begin(&seat, words).await?
            }
            (Err(Failure::Refused(Refusal::RunActive)), Some(StreamingBehavior::FollowUp)) => {
                self.ask(&seat, Command::Queue(Box::new(prompt(words)))).await?
            }
            (Err(Failure::Refused(Refusal::RunActive)), None) => return Err(Failure::said(STREAMING)),
            (answered, _) => answered?,
        };
        Ok(Done::at(encode::no_data(), answered.version))
    }

    pub(super) async fn steer(&self, words: &UserInput) -> Result {
        let seat = self.seat().await?;
        let answered = self.steer_or_begin(&seat, &self.expanded(&seat, words).await?).await?;
        Ok(Done::at(encode::no_data(), answered.version))
    }

    pub(super) async fn follow_up(&self, words: &UserInput) -> Result {
        let seat = self.seat().await?;
        self.refuse_open_circuit(&seat).await?;
        self.synchronize(&seat).await;
        let words = self.expanded(&seat, words).await?;
        let answered = self.ask(&seat, Command::Queue(Box::new(prompt(&words)))).await?;
        Ok(Done::at(encode::no_data(), answered.version))
    }

    pub(super) async fn abort(&self) -> Result {
        let seat = self.seat().await?;
        let command = Command::Cancel { run: None, reason: "abort".to_owned() };
        let version = match self.ask(&seat, command).await {
            Ok(Answered { version, .. }) => version,
            // There is nothing to stop, which is what was wanted.
            Err(Failure::Refused(Refusal::NoActiveRun)) => self.touch_unstopped(&seat).await?,
            Err(failure) => return Err(failure),
        };
        Ok(Done::at(encode::no_data(), version))
    }

    /// Answers a question of the session.
    pub(super) async fn answer(&self, request: &str, response: &UiResponse) -> Result {
        let seat = self.seat().await?;
        self.describe(&seat).await?;
        let gate = GateId::from(request);
        let voted = seat.tell(|story| story.question(&gate).map(|question| projection::vote(question, response)));
        let Vote { decision, choice, answer } = match voted {
            Some(vote) => vote.map_err(Failure::said)?,
            // Whatever is voted, the session knows whether it was ever asked.
            None => Vote { decision: Decision::Deny, choice: None, answer: None },
        };
        let (run, comment, lasting) = (None, None, ApprovalScope::Once);
        let vote = GateVote { gate: gate.clone(), run, decision, choice, comment, scope: lasting, answer };
        let answered = self.ask(&seat, Command::Decide(Box::new(vote))).await.map_err(|failure| match failure {
            Failure::Refused(Refusal::GateClosed) => Failure::said(error_text::request_settled(request)),
            Failure::Refused(Refusal::UnknownGate) if self.is_asked_elsewhere(&gate, &seat) => {
                Failure::said(error_text::request_of_other_session(request))
            }
            Failure::Refused(Refusal::UnknownGate) => Failure::said(error_text::no_such_request(request)),
            other @ (Failure::Refused(_) | Failure::Said(_)) => other,
        })?;
        Ok(Done::at(encode::no_data(), answered.version))
    }

    fn is_asked_elsewhere(&self, gate: &GateId, here: &Arc<Seat>) -> bool {
        let seats = self.bureau.seats();
        let others = seats.sessions().into_iter().filter(|session| session != here.session());
        let asks = |seat: Sitting| seat.tell(|story| story.question(gate).is_some());
        others.filter_map(|session| seats.get(&session)).any(asks)
    }

    /// Speaks into the active run; what comes when it is over begins one.
    async fn steer_or_begin(&self, seat: &Arc<Seat>, words: &UserInput) -> Result<Answered> {
        let steer = Steer {
            message: generate::message(),
            text: words.message.clone(),
            images: words.images.clone(),
            fingerprint: fingerprint(words),
        };
        match self.ask(seat, Command::Steer(Box::new(steer))).await {
            Err(Failure::Refused(Refusal::NoActiveRun)) => {
                self.synchronize(seat).await;
                self.ask(seat, Command::Queue(Box::new(prompt(words)))).await
            }
            answered => answered,
        }
    }

    /// A run that could only fail is not begun.
    async fn refuse_open_circuit(&self, seat: &Arc<Seat>) -> Result<()> {
        let (snapshot, _) = self.bureau.describe(seat, None, &self.peer).await?;
        let house = &self.bureau.server().hub().services().model_config;
        // A configuration that cannot be read is told by the run.
        let Ok(settings) = house.settings() else { return Ok(()) };
        let environment = self.bureau.environment(&self.peer).await.unwrap_or_default();
        let state = house.registry(&settings).circuit_state(snapshot.provider(), environment.variables());
        if state == Some(State::Open) { Err(Failure::said(error_text::CIRCUIT_OPEN)) } else { Ok(()) }
    }
}

/// A message while a run is active, when nobody said what becomes of it.
const STREAMING: &str =
    "Agent is already processing. Specify streamingBehavior ('steer' or 'followUp') to queue the message.";

fn prompt(words: &UserInput) -> Prompt {
    Prompt {
        run: generate::run(),
        message: generate::message(),
        text: words.message.clone(),
        images: words.images.clone(),
        criteria: Vec::new(),
        time_limit: None,
        budget: Budget::default(),
        rules: Vec::new(),
        // The lane knows the environment.
        needs_environment: false,
        fingerprint: fingerprint(words),
    }
}

fn fingerprint(words: &UserInput) -> Fingerprint {
    let images = words.images.iter().flat_map(|image| [image.mime.as_str(), image.data.as_str()]);
    generate::fingerprint(["message", words.message.as_str()].into_iter().chain(images))
}
