//! Messages, aborts, and answers to questions.

use std::sync::Arc;

use super::{Execution, OperationReply, Result, StopTrace};
use crate::kernel::command::{Command, GateVote, Prompt, Steer};
use crate::kernel::event::{ApprovalScope, Budget, Decision};
use crate::kernel::id::{Fingerprint, GateId};
use crate::kernel::refusal::Refusal;
use crate::protocol::command_protocol::Vote;
use crate::protocol::operation::{Delivery, UiResponse, UserInput};
use crate::protocol::operation_result::{OperationError, OperationResult};
use crate::provider::breaker::BreakerState;
use crate::runtime::commands::session_requests::SessionReply;
use crate::runtime::commands::session_view::SessionView;
use crate::runtime::commands::session_views::ViewLease;
use crate::runtime::generate;

impl Execution {
    pub(super) async fn prompt(&self, input: &UserInput, during_run: Option<Delivery>) -> Result {
        let view = self.view().await?;
        self.refuse_open_circuit(&view).await?;
        self.synchronize(&view).await;
        let input = &self.expanded(&view, input).await?;
        let prompted = self.request(&view, Command::Prompt(Box::new(prompt(input)))).await;
        let reply = match (prompted, during_run) {
            (Err(OperationError::Refused(Refusal::RunActive)), Some(Delivery::Steer)) => {
                self.steer_or_begin(&view, input).await?
            }
            (Err(OperationError::Refused(Refusal::RunActive)), Some(Delivery::Queue)) => {
                self.request(&view, Command::Queue(Box::new(prompt(input)))).await?
            }
            (Err(OperationError::Refused(Refusal::RunActive)), None) => return Err(OperationError::RunActive),
            (reply, _) => reply?,
        };
        Ok(OperationReply::at(OperationResult::None, reply.version))
    }

    pub(super) async fn steer(&self, input: &UserInput) -> Result {
        let view = self.view().await?;
        let reply = self.steer_or_begin(&view, &self.expanded(&view, input).await?).await?;
        Ok(OperationReply::at(OperationResult::None, reply.version))
    }

    pub(super) async fn queue(&self, input: &UserInput) -> Result {
        let view = self.view().await?;
        self.refuse_open_circuit(&view).await?;
        self.synchronize(&view).await;
        let input = self.expanded(&view, input).await?;
        let reply = self.request(&view, Command::Queue(Box::new(prompt(&input)))).await?;
        Ok(OperationReply::at(OperationResult::None, reply.version))
    }

    pub(super) async fn cancel(&self) -> Result {
        let command = Command::Cancel { run: None, reason: "abort".to_owned() };
        self.stop(command, StopTrace::Event).await
    }

    /// Answers a question of the session.
    pub(super) async fn answer(&self, request: &str, response: &UiResponse) -> Result {
        let view = self.view().await?;
        self.describe(&view).await?;
        let gate = GateId::from(request);
        let voted = view.read(|projection| projection.vote(&gate, response));
        let Vote { decision, choice, answer } = match voted {
            Some(vote) => vote.map_err(OperationError::message)?,
            // The session knows whether the question ever existed, whatever the vote.
            None => Vote { decision: Decision::Deny, choice: None, answer: None },
        };
        let (run, comment, scope) = (None, None, ApprovalScope::Once);
        let vote = GateVote { gate: gate.clone(), run, decision, choice, comment, scope, rule: None, answer };
        let reply = self.request(&view, Command::Decide(Box::new(vote))).await;
        let reply = reply.map_err(|error| self.question_error(error, &gate, &view))?;
        Ok(OperationReply::at(OperationResult::None, reply.version))
    }

    /// Returns why a question cannot be answered.
    fn question_error(&self, error: OperationError, gate: &GateId, view: &Arc<SessionView>) -> OperationError {
        let request = gate.as_str().to_owned();
        if error == OperationError::Refused(Refusal::GateClosed) {
            OperationError::QuestionSettled(request)
        } else if error != OperationError::Refused(Refusal::UnknownGate) {
            error
        } else if self.is_asked_elsewhere(gate, view) {
            OperationError::QuestionOfOtherSession(request)
        } else {
            OperationError::UnknownQuestion(request)
        }
    }

    fn is_asked_elsewhere(&self, gate: &GateId, here: &Arc<SessionView>) -> bool {
        let views = self.service.views();
        let others = views.sessions().into_iter().filter(|session| session != here.session());
        let asks = |view: ViewLease| view.read(|projection| projection.has_question(gate));
        others.filter_map(|session| views.get(&session)).any(asks)
    }

    /// Steers the active run, or starts one if none is active.
    async fn steer_or_begin(&self, view: &Arc<SessionView>, input: &UserInput) -> Result<SessionReply> {
        let steer = Steer {
            message: generate::message(),
            text: input.message.clone(),
            images: input.images.clone(),
            fingerprint: fingerprint(input),
        };
        match self.request(view, Command::Steer(Box::new(steer))).await {
            Err(OperationError::Refused(Refusal::NoActiveRun)) => {
                self.synchronize(view).await;
                self.request(view, Command::Queue(Box::new(prompt(input)))).await
            }
            reply => reply,
        }
    }

    /// Refuses a run while the circuit breaker of its provider is open.
    async fn refuse_open_circuit(&self, view: &Arc<SessionView>) -> Result<()> {
        let (snapshot, _) = self.service.describe(view, None, &self.peer).await?;
        let model_config = &self.service.server().hub().services().model_config;
        // The run reports a configuration that cannot be read.
        let Ok(settings) = model_config.settings() else { return Ok(()) };
        let environment = self.service.environment(&self.peer).await.unwrap_or_default();
        let state = model_config.registry(&settings).circuit_state(snapshot.provider(), environment.variables());
        if state == Some(BreakerState::Open) { Err(OperationError::ProviderCircuitOpen) } else { Ok(()) }
    }
}

fn prompt(input: &UserInput) -> Prompt {
    Prompt {
        run: generate::run(),
        message: generate::message(),
        text: input.message.clone(),
        images: input.images.clone(),
        criteria: Vec::new(),
        time_limit: None,
        budget: Budget::default(),
        rules: Vec::new(),
        // The lane sets it.
        needs_environment: false,
        fingerprint: fingerprint(input),
    }
}

fn fingerprint(input: &UserInput) -> Fingerprint {
    let images = input.images.iter().flat_map(|image| [image.mime.as_str(), image.data.as_str()]);
    generate::fingerprint(["message", input.message.as_str()].into_iter().chain(images))
}
