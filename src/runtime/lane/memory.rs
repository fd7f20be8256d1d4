//! What a session needs and must not keep: the user's environment, and texts as they were before redaction.
//!
//! It lives as long as the lane. After a restart the environment comes again with the next client; a text that held a
//! secret does not, and a run that needs it says so instead of running something else.

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

/// What is known in this life alone.
///
/// It cannot be written into a log, as hardly anything in it may.
#[derive(Default)]
pub(super) struct Memory {
    /// What was brought last.
    environment: Option<Arc<Environment>>,
    /// Who answers in this session.
    provider: String,
    /// Who sent the message that is being taken.
    prompter: Starter,
    /// The runs that no person has started with this program's own client.
    of_programs: BTreeSet<RunId>,
    /// Where a run hears of it that waits for one; hardly any session ever has it.
    told: OnceLock<watch::Sender<Option<Arc<Environment>>>>,
    /// What the active run has, where another was brought since it began.
    of_run: Option<(RunId, Arc<Environment>)>,
    /// What one client brought stays secret when another comes.
    hidden: Hidden,
    /// By the run that a message begins: its name is fresh, so that no other message can take its place.
    messages: BTreeMap<RunId, Raw>,
    /// By what was said.
    steers: BTreeMap<Fingerprint, String>,
    args: BTreeMap<CallId, String>,
    /// The arguments of tools that are used for the user.
    asides: BTreeMap<CallId, String>,
    /// The arguments of the calls that waited when the last turn was taken, in their order.
    waiting: Vec<Option<String>>,
}

struct Raw {
    text: String,
    checks: Vec<String>,
}

/// A text that can be used, or the news that it cannot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whole<T> {
    /// As it was sent.
    Known(T),
    /// It held a secret, and a restart has forgotten it.
    Forgotten,
}

impl Memory {
    /// Takes the environment that a client brought, and the secrets in it.
    ///
    /// The active run keeps the one it has: whoever watches or approves it from another shell does not change its keys, its
    /// servers or its programs. What was brought meanwhile holds for the next run.
    pub(super) fn learn(&mut self, environment: Arc<Environment>, state: &State) {
        // Clients send the same one with every message, and finding its secrets takes a moment.
        if self.environment.as_ref() == Some(&environment) {
            return;
        }
        // What stands in for a client's does not take its place.
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

    /// Returns the environment of a run.
    pub(super) fn environment(&self, run: &RunId) -> Option<Arc<Environment>> {
        let own =
            self.of_run.as_ref().filter(|(of, _)| of == run).map(|(_, environment)| environment.clone());
        own.or_else(|| self.environment.clone())
    }

    /// Returns the environment that was brought last.
    pub(super) fn latest_environment(&self) -> Option<Arc<Environment>> {
        self.environment.clone()
    }

    /// Notes who answers in the next run.
    pub(super) fn answered_by(&mut self, provider: String) {
        self.provider = provider;
    }

    /// Notes through which protocol the next message comes.
    pub(super) fn prompted_by(&mut self, source: &str) {
        self.prompter = if source == pi::SOURCE { Starter::Program } else { Starter::Person };
    }

    /// Returns who started a run; after a restart that is taken for a person.
    pub(super) fn starter(&self, run: &RunId) -> Starter {
        if self.of_programs.contains(run) { Starter::Program } else { Starter::Person }
    }

    /// Returns where it is heard that a client has brought its environment.
    pub(super) fn brought(&self) -> watch::Receiver<Option<Arc<Environment>>> {
        self.told.get_or_init(|| watch::Sender::new(self.environment.clone())).subscribe()
    }

    /// Returns what the session hides.
    pub(super) const fn hidden(&self) -> &Hidden {
        &self.hidden
    }

    /// Makes everything in a command safe to keep, and remembers what it was.
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

    /// Remembers the arguments of a call, or of those that wait, as they are to be used.
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

    /// Returns the arguments of the calls that waited when the last turn was taken, where they must not be kept.
    pub(super) fn waiting(&self) -> &[Option<String>] {
        &self.waiting
    }

    /// Forgets what belongs to no message that was taken, or to a run that is over.
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

    /// Returns a turn with its texts as they were sent.
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

    /// Returns the command of an acceptance check as it was sent.
    pub(super) fn whole_check(&self, state: &State, index: u32, criterion: &Criterion) -> Whole<String> {
        let run = state.run.as_ref().map(|run| &run.id);
        let raw = run.and_then(|run| self.messages.get(run)?.checks.get(index as usize));
        whole(raw, &criterion.check)
    }

    /// Returns the arguments of a call as they are to be used.
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

    /// Learns the tokens in a message that is itself what will be run.
    ///
    /// Its author is who asks for the steps in it: a token that stands there is a value of the user's, and is masked
    /// where a step is asked about. What a model writes is not, and neither is what is pasted for one to read.
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

    /// Tells whether the environment holds the key or the place of the session's provider.
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

/// Returns a text as it was before redaction, if that is known or nothing was hidden.
pub(super) fn whole(raw: Option<&String>, kept: &str) -> Whole<String> {
    match raw {
        Some(raw) => Whole::Known(raw.clone()),
        None if redact::holds_marker(kept) => Whole::Forgotten,
        None => Whole::Known(kept.to_owned()),
    }
}
