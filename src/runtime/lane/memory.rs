//! Values that a session needs and must not store: the user's environment, and texts before redaction.
//!
//! They live as long as the lane. After a restart the next client sends the environment again. A text that contained
//! a secret is lost; a run that needs it reports that instead of running something else.

mod hidden;
mod import;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

pub(super) use hidden::Hidden;

use crate::kernel::command::{Command, Prompt};
use crate::kernel::effect::{Report, Turn};
use crate::kernel::event::{Criterion, Intention, Opening};
use crate::kernel::id::{CallId, Fingerprint, Json, RunId};
use crate::kernel::state::State;
use crate::protocol::push::decode::Environment;
use crate::provider::{Starter, playbook, registry};
use crate::redact;
use crate::runtime::pi;

/// The unredacted values of one lane.
///
/// The type has no `Debug`, because hardly anything in it may appear in a log.
#[derive(Default)]
pub(super) struct Memory {
    /// The environment that a client sent last.
    environment: Option<Arc<Environment>>,
    /// The environment of programs if no client sent one, with the run that it was captured for.
    fallback: Option<(Option<RunId>, Arc<Environment>)>,
    /// The provider of the session.
    provider: String,
    /// Who sent the message that is being handled.
    prompter: Starter,
    /// The runs that a program started, not a person with the `push` client.
    of_programs: BTreeSet<RunId>,
    /// Notifies a run that waits for an environment; few sessions need it.
    told: OnceLock<watch::Sender<Option<Arc<Environment>>>>,
    /// The environment of the active run, if a client sent another one since the run started.
    of_run: Option<(RunId, Arc<Environment>)>,
    /// The secrets of all environments that clients sent.
    hidden: Hidden,
    /// By the run that a message starts: its id is fresh, so that no other message can replace the entry.
    messages: BTreeMap<RunId, Raw>,
    /// By the fingerprint of the steering message.
    steers: BTreeMap<Fingerprint, String>,
    args: BTreeMap<CallId, String>,
    /// The arguments of user commands.
    asides: BTreeMap<CallId, String>,
    /// The arguments of the calls that were pending after the last turn, in order.
    waiting: Vec<Option<String>>,
}

struct Raw {
    text: String,
    checks: Vec<String>,
}

/// An original value, or the fact that it is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whole<T> {
    /// The value as it was sent.
    Known(T),
    /// It contained a secret and was lost in a restart.
    Forgotten,
}

impl Memory {
    /// Sets the environment that a client sent, and collects its secrets.
    ///
    /// The active run keeps its own environment: a client that watches or approves it from another shell does not
    /// change its keys, servers or programs. The new environment applies from the next run.
    pub(super) fn learn(&mut self, environment: Arc<Environment>, state: &State) {
        // Clients send the same environment with every message, and scanning for secrets takes time.
        if self.environment.as_ref() == Some(&environment) {
            return;
        }
        // A substitute does not replace an environment that a client sent.
        if !environment.is_of_client() && self.environment.as_ref().is_some_and(|known| known.is_of_client())
        {
            return;
        }
        let variables = environment.variables().iter();
        let brought =
            redact::environment_secrets(variables.map(|(name, value)| (name.as_str(), value.as_str())));
        self.hidden.learn(brought);
        if let Some(told) = self.told.get() {
            told.send_replace(Some(Arc::clone(&environment)));
        }
        let before = self.environment.replace(environment);
        if let (Some(active), Some(before), None) = (&state.run, before, &self.of_run) {
            self.of_run = Some((active.id.clone(), before));
        }
    }

    /// Returns the environment that clients sent for a run.
    pub(super) fn environment(&self, run: &RunId) -> Option<Arc<Environment>> {
        let own =
            self.of_run.as_ref().filter(|(of, _)| of == run).map(|(_, environment)| environment.clone());
        own.or_else(|| self.environment.clone())
    }

    /// Sets the environment of the programs of a run, or outside of runs, while no client has sent one.
    ///
    /// It does not select the server of a model.
    pub(super) fn fall_back(&mut self, run: Option<RunId>, environment: Arc<Environment>) {
        let variables = environment.variables().iter();
        let secrets =
            redact::environment_secrets(variables.map(|(name, value)| (name.as_str(), value.as_str())));
        self.hidden.learn(secrets);
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
    pub(super) fn answered_by(&mut self, provider: String) {
        self.provider = provider;
    }

    /// Sets the protocol through which the next message arrives.
    pub(super) fn prompted_by(&mut self, source: &str) {
        self.prompter = if source == pi::SOURCE { Starter::Program } else { Starter::Person };
    }

    /// Returns who started a run; after a restart a person is assumed.
    pub(super) fn starter(&self, run: &RunId) -> Starter {
        if self.of_programs.contains(run) { Starter::Program } else { Starter::Person }
    }

    /// Returns a receiver of environments that clients send.
    pub(super) fn brought(&self) -> watch::Receiver<Option<Arc<Environment>>> {
        self.told.get_or_init(|| watch::Sender::new(self.environment.clone())).subscribe()
    }

    /// Returns the secrets of the session.
    pub(super) const fn hidden(&self) -> &Hidden {
        &self.hidden
    }

    /// Redacts a command, and keeps its original texts.
    pub(super) fn make_safe(&mut self, command: Command) -> Command {
        match command {
            Command::Open(opening) => {
                self.provider.clone_from(&opening.provider);
                Command::Open(Box::new(self.safe_opening(*opening)))
            }
            Command::Reopen(opening) => {
                self.provider.clone_from(&opening.provider);
                Command::Reopen(Box::new(self.safe_opening(*opening)))
            }
            Command::Prompt(prompt) => Command::Prompt(Box::new(self.safe_prompt(*prompt))),
            Command::Queue(prompt) => Command::Queue(Box::new(self.safe_prompt(*prompt))),
            Command::Steer(mut steer) => {
                self.learn_from(&steer.text);
                let text = self.safe(&steer.text);
                let raw = std::mem::replace(&mut steer.text, text);
                if redact::holds_marker(&steer.text) {
                    self.steers.insert(steer.fingerprint, raw);
                }
                Command::Steer(steer)
            }
            Command::Decide(mut vote) => {
                vote.comment = vote.comment.map(|comment| self.safe(&comment));
                vote.answer = vote.answer.map(|answer| self.safe_json(&answer));
                Command::Decide(vote)
            }
            Command::Touch { what } => Command::Touch { what: self.safe(&what) },
            Command::Aside(mut aside) => {
                let args = self.safe_json(&aside.args);
                let raw = std::mem::replace(&mut aside.args, args);
                if redact::holds_marker(aside.args.as_str()) {
                    self.asides.insert(aside.call.clone(), raw.as_str().to_owned());
                }
                Command::Aside(aside)
            }
            Command::Compact { instructions } => {
                Command::Compact { instructions: instructions.map(|text| self.safe(&text)) }
            }
            Command::Import(import) => {
                Command::Import(Box::new(import::make_safe(*import, &self.hidden.redactor())))
            }
            Command::Cancel { run, reason } => Command::Cancel { run, reason: self.safe(&reason) },
            Command::Rename { name } => Command::Rename { name: self.safe(&name) },
            Command::Load
            | Command::Adjust(_)
            | Command::StopAside { .. }
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
    pub(super) fn keep_args(&mut self, report: &Report, mut raw: Vec<Option<String>>) {
        match report {
            Report::Call(request) => {
                if let Some(raw) = raw.pop().flatten() {
                    self.args.insert(request.intention.call.clone(), raw);
                }
            }
            Report::Taken(_) => self.waiting = raw,
            Report::Status { .. }
            | Report::Thought(_)
            | Report::Said(_)
            | Report::SayingDone(_)
            | Report::Compacting(_)
            | Report::Compacted(_)
            | Report::CompactionFailed { .. }
            | Report::RetryBegan(_)
            | Report::RetryOver { .. }
            | Report::TurnDone
            | Report::Warned { .. }
            | Report::Output { .. }
            | Report::Settled(_)
            | Report::Finished(_)
            | Report::Stopped { .. } => {}
        }
    }

    /// Returns the original arguments of the calls that were pending after the last turn, where they were redacted.
    pub(super) fn waiting(&self) -> &[Option<String>] {
        &self.waiting
    }

    /// Drops the values of refused messages and of runs that have ended.
    pub(super) fn prune(&mut self, state: &State) {
        let active = state.run.as_ref();
        if active.is_none() {
            self.args.clear();
            self.waiting.clear();
        }
        self.asides.retain(|call, _| state.asides.contains_key(call));
        self.of_run = self.of_run.take().filter(|(run, _)| active.is_some_and(|active| active.id == *run));
        let known = |run: &RunId| {
            active.is_some_and(|active| active.id == *run)
                || state.queue.iter().any(|queued| queued.run == *run)
        };
        self.messages.retain(|run, _| known(run));
        self.of_programs.retain(known);
        self.steers.retain(|said, _| {
            active
                .is_some_and(|active| active.steers.iter().any(|(_, steering)| steering.fingerprint == *said))
        });
    }

    /// Returns a turn with its original texts.
    pub(super) fn whole_turn(&self, mut turn: Turn) -> Whole<Turn> {
        let Whole::Known(text) = whole(self.messages.get(&turn.run).map(|raw| &raw.text), &turn.text) else {
            return Whole::Forgotten;
        };
        turn.text = text;
        for (_, steering) in &mut turn.steers {
            let Whole::Known(text) = whole(self.steers.get(&steering.fingerprint), &steering.text) else {
                return Whole::Forgotten;
            };
            steering.text = text;
        }
        Whole::Known(turn)
    }

    /// Returns the original command of an acceptance check.
    pub(super) fn whole_check(&self, state: &State, index: u32, criterion: &Criterion) -> Whole<String> {
        let run = state.run.as_ref().map(|run| &run.id);
        let raw = run.and_then(|run| self.messages.get(run)?.checks.get(index as usize));
        whole(raw, &criterion.check)
    }

    /// Returns the original arguments of a call.
    pub(super) fn whole_args(&self, intention: &Intention) -> Whole<String> {
        let raw = self.args.get(&intention.call).or_else(|| self.asides.get(&intention.call));
        whole(raw, intention.args.as_str())
    }

    fn safe(&self, text: &str) -> String {
        self.hidden.redactor().text(text).into_owned()
    }

    fn safe_json(&self, json: &Json) -> Json {
        Json::new(self.hidden.redactor().json(json.as_str()))
    }

    /// Collects the tokens in a message that is itself the script to run.
    ///
    /// The author of a playbook also asks for its steps: a token in it is a value of the user and is masked in
    /// approval requests. Text that a model writes, or that is pasted for a model to read, is not scanned.
    fn learn_from(&self, text: &str) {
        if self.provider == playbook::NAME {
            let tokens = self.hidden.redactor().tokens(text);
            if !tokens.is_empty() {
                self.hidden.learn(tokens);
            }
        }
    }

    fn safe_prompt(&mut self, mut prompt: Prompt) -> Prompt {
        self.learn_from(&prompt.text);
        let text = self.safe(&prompt.text);
        let raw_checks: Vec<_> = prompt.criteria.iter().map(|criterion| criterion.check.clone()).collect();
        for criterion in &mut prompt.criteria {
            criterion.check = self.safe(&criterion.check);
            criterion.id = self.safe(&criterion.id);
            criterion.description = criterion.description.take().map(|description| self.safe(&description));
        }
        prompt.rules = prompt.rules.iter().map(|rule| self.safe(rule)).collect();
        prompt.needs_environment = self.environment_says_whom_to_ask();
        if self.prompter == Starter::Program {
            self.of_programs.insert(prompt.run.clone());
        }
        let hidden = prompt.criteria.iter().any(|criterion| redact::holds_marker(&criterion.check));
        let raw_text = std::mem::replace(&mut prompt.text, text);
        if hidden || redact::holds_marker(&prompt.text) {
            self.messages.insert(prompt.run.clone(), Raw { text: raw_text, checks: raw_checks });
        }
        prompt
    }

    /// Returns whether the environment sets the key or the URL of the session's provider.
    fn environment_says_whom_to_ask(&self) -> bool {
        let named = [registry::key_variable(&self.provider), registry::place_variable(&self.provider)];
        let says = |environment: &Arc<Environment>| {
            let values = named.iter().filter_map(|name| environment.variables().get(name));
            values.into_iter().any(|value| !value.trim().is_empty())
        };
        self.environment.as_ref().is_some_and(says)
    }

    fn safe_opening(&self, opening: Opening) -> Opening {
        let json = |json: Option<Json>| json.map(|json| self.safe_json(&json));
        Opening {
            repo: json(opening.repo),
            metadata: json(opening.metadata),
            name: opening.name.map(|name| self.safe(&name)),
            ..opening
        }
    }
}

/// Returns the original of a stored text, if it is known or nothing was redacted.
pub(super) fn whole(raw: Option<&String>, kept: &str) -> Whole<String> {
    match raw {
        Some(raw) => Whole::Known(raw.clone()),
        None if redact::holds_marker(kept) => Whole::Forgotten,
        None => Whole::Known(kept.to_owned()),
    }
}
