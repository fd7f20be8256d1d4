//! Values that a session needs and must not store: the user's environment, and texts before redaction.
//!
//! They live as long as the lane. After a restart the next client sends the environment again. A text that contained
//! a secret is lost; a run that needs it reports that instead of running something else.

mod import;
mod secrets;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

pub(super) use secrets::SessionSecrets;

use crate::kernel::command::{Command, GateProposal, Post, Prompt, Steer, UserCommand};
use crate::kernel::effect::{Report, TurnRequest};
use crate::kernel::environment::Environment;
use crate::kernel::event::{Criterion, Intention, Opening};
use crate::kernel::fork::Fork;
use crate::kernel::id::{CallId, Fingerprint, Json, RunId};
use crate::kernel::state::State;
use crate::provider::{Starter, playbook, registry};
use crate::redact;

/// The unredacted values of one lane.
///
/// The type has no `Debug`, because hardly anything in it may appear in a log.
#[derive(Default)]
pub(super) struct Unredacted {
    /// The environment that a client sent last.
    environment: Option<Arc<Environment>>,
    /// The environment of programs if no client sent one, with the run that it was captured for.
    fallback: Option<(Option<RunId>, Arc<Environment>)>,
    /// The provider of the session.
    provider: String,
    /// Who sent the message that is being handled.
    prompt_starter: Starter,
    /// The runs that a program started, not a person with the `push` client.
    program_runs: BTreeSet<RunId>,
    /// Notifies a run that waits for an environment; few sessions need it.
    environment_updates: OnceLock<watch::Sender<Option<Arc<Environment>>>>,
    /// The environment of the active run, if a client sent another one since the run started.
    run_environment: Option<(RunId, Arc<Environment>)>,
    /// The secrets of all environments that clients sent.
    secrets: SessionSecrets,
    /// By the run that a message starts: its id is fresh, so that no other message can replace the entry.
    messages: BTreeMap<RunId, RawMessage>,
    /// By the fingerprint of the steering message.
    steers: BTreeMap<Fingerprint, String>,
    args: BTreeMap<CallId, String>,
    /// The arguments of user commands.
    user_command_args: BTreeMap<CallId, String>,
    /// The arguments of the calls that were pending after the last turn, in order.
    pending_args: Vec<Option<String>>,
}

struct RawMessage {
    text: String,
    checks: Vec<String>,
}

/// A value as it was sent, or the fact that it is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SentValue<T> {
    /// The value as it was sent.
    Known(T),
    /// It contained a secret and was lost in a restart.
    Lost,
}

impl Unredacted {
    /// Sets the environment that a client sent, and collects its secrets.
    ///
    /// The active run keeps its own environment: a client that watches or approves it from another shell does not
    /// change its keys, servers or programs. The new environment applies from the next run.
    pub(super) fn set_environment(&mut self, environment: Arc<Environment>, state: &State) {
        // Clients send the same environment with every message, and scanning for secrets takes time.
        if self.environment.as_ref() == Some(&environment) {
            return;
        }
        // A substitute does not replace an environment that a client sent.
        if !environment.is_from_client() && self.environment.as_ref().is_some_and(|known| known.is_from_client()) {
            return;
        }
        let variables = environment.variables().iter();
        let secrets = redact::environment_secrets(variables.map(|(name, value)| (name.as_str(), value.as_str())));
        self.secrets.add(secrets);
        if let Some(updates) = self.environment_updates.get() {
            updates.send_replace(Some(Arc::clone(&environment)));
        }
        let before = self.environment.replace(environment);
        if let (Some(active), Some(before), None) = (&state.run, before, &self.run_environment) {
            self.run_environment = Some((active.id.clone(), before));
        }
    }

    /// Returns the environment that clients sent for a run.
    pub(super) fn environment(&self, run: &RunId) -> Option<Arc<Environment>> {
        let own = self.run_environment.as_ref().filter(|(of, _)| of == run).map(|(_, environment)| environment.clone());
        own.or_else(|| self.environment.clone())
    }

    /// Sets the environment of the programs of a run, or outside of runs, while no client has sent one.
    ///
    /// It does not select the server of a model.
    pub(super) fn set_fallback_environment(&mut self, run: Option<RunId>, environment: Arc<Environment>) {
        let variables = environment.variables().iter();
        let secrets = redact::environment_secrets(variables.map(|(name, value)| (name.as_str(), value.as_str())));
        self.secrets.add(secrets);
        self.fallback = Some((run, environment));
    }

    /// Returns whether the programs of a run have an environment; outside of runs only one that a client sent counts.
    pub(super) fn has_environment(&self, run: Option<&RunId>) -> bool {
        let is_of_run = |(of, _): &(Option<RunId>, _)| run.is_some() && of.as_ref() == run;
        self.environment.is_some() || self.fallback.as_ref().is_some_and(is_of_run)
    }

    /// Returns the environment of the programs of a run, or outside of runs.
    pub(super) fn program_environment(&self, run: Option<&RunId>) -> Option<Arc<Environment>> {
        let sent = run.map_or_else(|| self.latest_environment(), |run| self.environment(run));
        sent.or_else(|| self.fallback.as_ref().map(|(_, environment)| Arc::clone(environment)))
    }

    /// Returns the environment that a client sent last.
    pub(super) fn latest_environment(&self) -> Option<Arc<Environment>> {
        self.environment.clone()
    }

    /// Sets the provider of the next run.
    pub(super) fn set_provider(&mut self, provider: String) {
        self.provider = provider;
    }

    /// Sets who starts the next run.
    pub(super) const fn set_starter(&mut self, starter: Starter) {
        self.prompt_starter = starter;
    }

    /// Returns who started a run; after a restart a person is assumed.
    pub(super) fn starter(&self, run: &RunId) -> Starter {
        if self.program_runs.contains(run) { Starter::Program } else { Starter::Person }
    }

    /// Returns a receiver of environments that clients send.
    pub(super) fn environment_updates(&self) -> watch::Receiver<Option<Arc<Environment>>> {
        self.environment_updates.get_or_init(|| watch::Sender::new(self.environment.clone())).subscribe()
    }

    /// Returns the secrets of the session.
    pub(super) const fn secrets(&self) -> &SessionSecrets {
        &self.secrets
    }

    fn redact_proposal(&self, mut proposal: Box<GateProposal>) -> Box<GateProposal> {
        proposal.title = self.redact(&proposal.title);
        proposal.summary = self.redact(&proposal.summary);
        proposal.details = self.redact_json(&proposal.details);
        proposal
    }

    fn redact_steer(&mut self, mut steer: Box<Steer>) -> Box<Steer> {
        self.learn_tokens(&steer.text);
        let text = self.redact(&steer.text);
        let raw = std::mem::replace(&mut steer.text, text);
        if redact::contains_marker(&steer.text) {
            self.steers.insert(steer.fingerprint, raw);
        }
        steer
    }

    fn redact_user_command(&mut self, mut command: Box<UserCommand>) -> Box<UserCommand> {
        let args = self.redact_json(&command.args);
        let raw = std::mem::replace(&mut command.args, args);
        if redact::contains_marker(command.args.as_str()) {
            self.user_command_args.insert(command.call.clone(), raw.as_str().to_owned());
        }
        command
    }

    /// Redacts a command, and keeps its original texts.
    pub(super) fn redact_command(&mut self, command: Command) -> Command {
        match command {
            Command::Open(opening) => Command::Open(Box::new(self.redact_opening(*opening))),
            Command::Reopen(opening) => Command::Reopen(Box::new(self.redact_opening(*opening))),
            Command::OpenFork(fork) => Command::OpenFork(self.redact_fork(fork)),
            Command::Prompt(prompt) => Command::Prompt(Box::new(self.redact_prompt(*prompt))),
            Command::Queue(prompt) => Command::Queue(Box::new(self.redact_prompt(*prompt))),
            Command::Steer(steer) => Command::Steer(self.redact_steer(steer)),
            Command::Decide(mut vote) => {
                vote.comment = vote.comment.map(|comment| self.redact(&comment));
                vote.answer = vote.answer.map(|answer| self.redact_json(&answer));
                Command::Decide(vote)
            }
            Command::BumpVersion { change: what } => Command::BumpVersion { change: self.redact(&what) },
            Command::UserCommand(command) => Command::UserCommand(self.redact_user_command(command)),
            Command::Compact { instructions } => {
                Command::Compact { instructions: instructions.map(|text| self.redact(&text)) }
            }
            Command::Import(import) => {
                Command::Import(Box::new(import::redact_import(*import, &self.secrets.redactor())))
            }
            Command::Cancel { run, reason } => Command::Cancel { run, reason: self.redact(&reason) },
            Command::Rename { name } => Command::Rename { name: self.redact(&name) },
            Command::Join(mut participant) => {
                participant.name = self.redact(&participant.name);
                Command::Join(participant)
            }
            Command::Leave { reason } => Command::Leave { reason: reason.map(|reason| self.redact(&reason)) },
            Command::Remove { participant, reason } => {
                Command::Remove { participant, reason: reason.map(|reason| self.redact(&reason)) }
            }
            Command::Post(post) => Command::Post(Box::new(Post { body: self.redact_json(&post.body), ..*post })),
            Command::OpenGate(proposal) => Command::OpenGate(self.redact_proposal(proposal)),
            Command::PrepareFork { .. }
            | Command::ChangeRoles { .. }
            | Command::GrantApproval { .. }
            | Command::Audit { .. }
            | Command::ListParticipants
            | Command::Load
            | Command::Adjust(_)
            | Command::StopUserCommand { .. }
            | Command::StopCompaction
            | Command::StopRetry
            | Command::Branch(_)
            | Command::Unqueue { .. }
            | Command::ListQueue
            | Command::Attach { .. }
            | Command::Resume { .. }
            | Command::Detach
            | Command::Describe
            | Command::ListGates
            | Command::End => command,
        }
    }

    /// Keeps the original arguments of a call, or of the pending calls of a turn.
    pub(super) fn store_args(&mut self, report: &Report, mut raw: Vec<Option<String>>) {
        match report {
            Report::CallRequested(request) => {
                if let Some(raw) = raw.pop().flatten() {
                    self.args.insert(request.intention.call.clone(), raw);
                }
            }
            Report::TurnUsage(_) => self.pending_args = raw,
            Report::Status { .. }
            | Report::ThinkingDelta(_)
            | Report::TextDelta(_)
            | Report::TextDone(_)
            | Report::CompactionStarted(_)
            | Report::Compacted(_)
            | Report::CompactionFailed { .. }
            | Report::RetryStarted(_)
            | Report::RetryEnded { .. }
            | Report::TurnDone
            | Report::Warned { .. }
            | Report::CallOutput { .. }
            | Report::CallSettled(_)
            | Report::Finished(_)
            | Report::Stopped { .. } => {}
        }
    }

    /// Returns the original arguments of the calls that were pending after the last turn, where they were redacted.
    pub(super) fn pending_args(&self) -> &[Option<String>] {
        &self.pending_args
    }

    /// Drops the values of refused messages and of runs that have ended.
    pub(super) fn prune(&mut self, state: &State) {
        let active = state.run.as_ref();
        if active.is_none() {
            self.args.clear();
            self.pending_args.clear();
        }
        self.user_command_args.retain(|call, _| state.user_commands.contains_key(call));
        self.run_environment =
            self.run_environment.take().filter(|(run, _)| active.is_some_and(|active| active.id == *run));
        let known = |run: &RunId| {
            active.is_some_and(|active| active.id == *run) || state.queue.iter().any(|queued| queued.run == *run)
        };
        self.messages.retain(|run, _| known(run));
        self.program_runs.retain(known);
        self.steers.retain(|fingerprint, _| {
            active.is_some_and(|active| active.steers.iter().any(|(_, steering)| steering.fingerprint == *fingerprint))
        });
    }

    /// Returns a turn with its original texts.
    pub(super) fn original_turn(&self, mut turn: TurnRequest) -> SentValue<TurnRequest> {
        let SentValue::Known(text) = original(self.messages.get(&turn.run).map(|raw| &raw.text), &turn.text) else {
            return SentValue::Lost;
        };
        turn.text = text;
        for (_, steering) in &mut turn.steers {
            let SentValue::Known(text) = original(self.steers.get(&steering.fingerprint), &steering.text) else {
                return SentValue::Lost;
            };
            steering.text = text;
        }
        SentValue::Known(turn)
    }

    /// Returns the original command of an acceptance check.
    pub(super) fn original_check(&self, state: &State, index: u32, criterion: &Criterion) -> SentValue<String> {
        let run = state.run.as_ref().map(|run| &run.id);
        let raw = run.and_then(|run| self.messages.get(run)?.checks.get(index as usize));
        original(raw, &criterion.check)
    }

    /// Returns the original arguments of a call.
    pub(super) fn original_args(&self, intention: &Intention) -> SentValue<String> {
        let raw = self.args.get(&intention.call).or_else(|| self.user_command_args.get(&intention.call));
        original(raw, intention.args.as_str())
    }

    pub(super) fn redact(&self, text: &str) -> String {
        self.secrets.redactor().redact(text).into_owned()
    }

    fn redact_json(&self, json: &Json) -> Json {
        Json::new(self.secrets.redactor().redact_json(json.as_str()))
    }

    /// Collects the tokens in a message that is itself the script to run.
    ///
    /// The author of a playbook also asks for its steps: a token in it is a value of the user and is masked in
    /// approval requests. Text that a model writes, or that is pasted for a model to read, is not scanned.
    fn learn_tokens(&self, text: &str) {
        if self.provider == playbook::NAME {
            let tokens = self.secrets.redactor().find_tokens(text);
            if !tokens.is_empty() {
                self.secrets.add(tokens);
            }
        }
    }

    fn redact_prompt(&mut self, mut prompt: Prompt) -> Prompt {
        self.learn_tokens(&prompt.text);
        let text = self.redact(&prompt.text);
        let raw_checks: Vec<_> = prompt.criteria.iter().map(|criterion| criterion.check.clone()).collect();
        for criterion in &mut prompt.criteria {
            criterion.check = self.redact(&criterion.check);
            criterion.id = self.redact(&criterion.id);
            criterion.description = criterion.description.take().map(|description| self.redact(&description));
        }
        prompt.rules = prompt.rules.iter().map(|rule| self.redact(rule)).collect();
        prompt.needs_environment = self.environment_selects_server();
        if self.prompt_starter == Starter::Program {
            self.program_runs.insert(prompt.run.clone());
        }
        let hidden = prompt.criteria.iter().any(|criterion| redact::contains_marker(&criterion.check));
        let raw_text = std::mem::replace(&mut prompt.text, text);
        if hidden || redact::contains_marker(&prompt.text) {
            self.messages.insert(prompt.run.clone(), RawMessage { text: raw_text, checks: raw_checks });
        }
        prompt
    }

    /// Returns whether the environment sets the key or the URL of the session's provider.
    fn environment_selects_server(&self) -> bool {
        let named = [registry::key_variable(&self.provider), registry::base_url_variable(&self.provider)];
        let says = |environment: &Arc<Environment>| {
            let values = named.iter().filter_map(|name| environment.variables().get(name));
            values.into_iter().any(|value| !value.trim().is_empty())
        };
        self.environment.as_ref().is_some_and(says)
    }

    /// Redacts the opening of a fork. What a fork inherits is redacted: its parent has stored it.
    fn redact_fork(&mut self, mut fork: Box<Fork>) -> Box<Fork> {
        fork.opening = self.redact_opening(fork.opening);
        fork
    }

    /// Redacts the opening of a session, and keeps its provider.
    fn redact_opening(&mut self, opening: Opening) -> Opening {
        self.provider.clone_from(&opening.provider);
        let json = |json: Option<Json>| json.map(|json| self.redact_json(&json));
        Opening {
            repo: json(opening.repo),
            metadata: json(opening.metadata),
            name: opening.name.map(|name| self.redact(&name)),
            ..opening
        }
    }
}

/// Returns the original of a stored text, if it is known or nothing was redacted.
pub(super) fn original(raw: Option<&String>, stored: &str) -> SentValue<String> {
    match raw {
        Some(raw) => SentValue::Known(raw.clone()),
        None if redact::contains_marker(stored) => SentValue::Lost,
        None => SentValue::Known(stored.to_owned()),
    }
}
