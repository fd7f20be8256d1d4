//! The reference model: the lifecycle events of a correct server.
//!
//! Lifecycle events arrive in the order in which the daemon decided. The model processes the received events: it takes
//! the order in which commands were admitted, started and ended from them, and compares everything that follows from
//! it. The effects of commands are not checked here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::pi_load::command::{Envelope, Request, Storage, overtakes};
use crate::pi_load::trace::{LifecycleEvent, Outcome, Phase};

/// How many outcomes the daemon keeps.
const REMEMBERED: usize = 2_000;
/// How many of them are certainly kept after a restart, which may change the order of some.
const CERTAIN: usize = 1_800;

/// The number of a tracked command: a first one, or a repetition under a new id.
pub(crate) type Number = usize;

/// A command with its identity and outcome.
#[derive(Debug, Clone)]
pub(crate) struct TrackedCommand {
    pub(crate) request: Request,
    pub(crate) envelope: Envelope,
    pub(crate) instance: usize,
    /// The command that it repeats; itself if it is no repetition.
    pub(crate) leader: Number,
    /// The positions of the events of its start and its end.
    pub(crate) started: Option<usize>,
    pub(crate) finished: Option<usize>,
    pub(crate) outcome: Option<Outcome>,
    /// The error that it must have, if that was known at admission.
    fault: Option<String>,
    /// Its dependencies, by their ids.
    awaited: Vec<(String, Number)>,
    storage: StorageState,
}

/// Whether the daemon has stored a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StorageState {
    Stored,
    /// The daemon was killed, and may or may not have written it.
    Uncertain,
    /// It was evicted.
    Evicted,
}

/// A command whose end was observed.
#[derive(Debug, Clone)]
pub(crate) struct EndedCommand {
    pub(crate) instance: usize,
    pub(crate) envelope: Envelope,
    pub(crate) outcome: Outcome,
    pub(crate) replayed: bool,
    /// The command whose outcome it is; none for a conflict.
    pub(crate) leader: Option<Number>,
}

/// The expected end of an admitted command.
#[derive(Debug, Clone)]
enum PendingEnd {
    /// Its own end.
    Own(Number),
    /// The end of another command, whose outcome it gets, possibly under a new id.
    Replay { of: Number, own: Option<Number> },
    /// A conflict.
    Conflict(String),
}

/// The reference model.
#[derive(Default)]
pub(crate) struct Model {
    /// The request of each envelope.
    requests: BTreeMap<Envelope, Request>,
    /// Commands that were sent to a killed daemon and not answered.
    interrupted: BTreeSet<Envelope>,
    pub(crate) known: Vec<TrackedCommand>,
    pub(crate) ended: Vec<EndedCommand>,
    ids: BTreeMap<String, Number>,
    keys: BTreeMap<(Option<String>, String), Number>,
    outcome_cache: VecDeque<Number>,
    pending: BTreeMap<(String, Envelope), Vec<PendingEnd>>,
    lanes: BTreeMap<Option<String>, Lane>,
    position: usize,
    instance: usize,
    /// The position at which the daemon was last killed.
    killed: usize,
    /// How often an admission was observed, by instance and envelope.
    pub(crate) admitted: BTreeMap<(usize, Envelope), usize>,
}

/// The execution order in a lane.
#[derive(Default)]
struct Lane {
    running: Option<Number>,
    latest: Option<Number>,
}

impl Model {
    pub(crate) fn new(requests: BTreeMap<Envelope, Request>, interrupted: BTreeSet<Envelope>) -> Self {
        Self { requests, interrupted, ..Self::default() }
    }

    /// Processes the events of one instance of the daemon.
    pub(crate) fn process(&mut self, trace: &[LifecycleEvent]) {
        for (at, event) in trace.iter().enumerate() {
            match &event.phase {
                Phase::Accepted => self.accepted(event, &trace[at + 1..]),
                Phase::Started => self.started(event),
                Phase::Finished { outcome, replayed } => self.finished(event, outcome, *replayed),
            }
            self.position += 1;
        }
    }

    /// Whether an admission of a command was observed.
    pub(crate) fn is_observed(&self, envelope: &Envelope) -> bool {
        (0..=self.instance).any(|instance| self.admitted.contains_key(&(instance, envelope.clone())))
    }

    /// Asserts that no command is pending.
    pub(crate) fn assert_idle(&self) {
        assert!(self.pending.is_empty(), "not everything ended: {:?}", self.pending);
    }

    fn accepted(&mut self, event: &LifecycleEvent, then: &[LifecycleEvent]) {
        let envelope = &event.envelope;
        *self.admitted.entry((self.instance, envelope.clone())).or_default() += 1;
        let request = self.requests.get(envelope).unwrap_or_else(|| panic!("no client sent {event:?}")).clone();
        let by_key =
            envelope.key.as_ref().and_then(|key| self.keys.get(&(envelope.session.clone(), key.clone())).copied());
        let by_id = envelope.id.as_ref().and_then(|id| self.ids.get(id)).copied();
        let first_new = self.known.len();
        let found = self.resolve_uncertain(event, &request, [by_key, by_id], then);
        let found = found.or_else(|| self.find_unobserved(event, &request, then));
        let pending = match found {
            None => PendingEnd::Own(self.admit(event, request)),
            Some((of, _)) if self.known[of].request == request => {
                let is_new = |number| of < first_new && !self.is_stored(number);
                let fresh_id = envelope.id.as_ref().filter(|_| is_new(by_id));
                let fresh_key = envelope.key.as_ref().filter(|_| is_new(by_key));
                let leader = self.known[of].leader;
                let own = (fresh_id.is_some() || fresh_key.is_some()).then(|| {
                    let (id, key) = (fresh_id.cloned(), fresh_key.cloned());
                    self.insert_command(TrackedCommand { leader, ..self.new_command(event, request) }, id, key)
                });
                PendingEnd::Replay { of: leader, own }
            }
            Some((of, word)) => {
                let name = if word == "id" { &event.name } else { envelope.key.as_ref().expect("a key") };
                let before = &self.known[of].request.kind;
                let now = &request.kind;
                PendingEnd::Conflict(format!(
                    "Conflicting {word} '{name}': previously used for '{before}', now used for '{now}'"
                ))
            }
        };
        self.pending.entry((event.name.clone(), envelope.clone())).or_default().push(pending);
    }

    fn is_stored(&self, known: Option<Number>) -> bool {
        known.is_some_and(|number| self.known[number].storage == StorageState::Stored)
    }

    /// Finds the command that a key or id refers to; the key has precedence. If it is uncertain after a restart, the
    /// following events decide.
    fn resolve_uncertain(
        &mut self,
        event: &LifecycleEvent,
        request: &Request,
        found: [Option<Number>; 2],
        then: &[LifecycleEvent],
    ) -> Option<(Number, &'static str)> {
        let mut found = found.into_iter().zip(["idempotencyKey", "id"]);
        found.find_map(|(number, word)| {
            let number = number?;
            if self.known[number].storage == StorageState::Uncertain {
                let same = self.known[number].request == *request;
                let known = was_known(event, same, then);
                self.known[number].storage = if known { StorageState::Stored } else { StorageState::Evicted };
                // Without its admission or its outcome, no change of it is stored either.
                let unfinished = self.known[number].finished.is_none();
                if !known && unfinished && Storage::of(&self.known[number].request.kind) != Storage::Later {
                    self.known[number].started = None;
                }
            }
            (self.known[number].storage == StorageState::Stored).then_some((number, word))
        })
    }

    /// Finds a command that a killed daemon wrote before its events were observed.
    fn find_unobserved(
        &mut self,
        event: &LifecycleEvent,
        request: &Request,
        then: &[LifecycleEvent],
    ) -> Option<(Number, &'static str)> {
        if self.instance == 0 || !self.interrupted.contains(&event.envelope) || !was_known(event, true, then) {
            return None;
        }
        let (instance, started) = (self.instance - 1, Some(self.killed));
        let known = TrackedCommand { instance, started, ..self.new_command(event, request.clone()) };
        let (id, key) = (event.envelope.id.clone(), event.envelope.key.clone());
        Some((self.insert_command(known, id, key), "id"))
    }

    fn new_command(&self, event: &LifecycleEvent, request: Request) -> TrackedCommand {
        TrackedCommand {
            request,
            envelope: event.envelope.clone(),
            instance: self.instance,
            leader: self.known.len(),
            started: None,
            finished: None,
            outcome: None,
            fault: None,
            awaited: Vec::new(),
            storage: StorageState::Stored,
        }
    }

    fn insert_command(&mut self, known: TrackedCommand, id: Option<String>, key: Option<String>) -> Number {
        let number = self.known.len();
        if let Some(id) = id {
            self.ids.insert(id, number);
        }
        if let Some(key) = key {
            self.keys.insert((known.request.session.clone(), key), number);
        }
        self.known.push(known);
        number
    }

    /// Tracks a new command: its dependencies, or the error that it must have.
    fn admit(&mut self, event: &LifecycleEvent, request: Request) -> Number {
        let mut known = self.new_command(event, request);
        match self.depend(&known) {
            Ok(awaited) => known.awaited = awaited,
            Err(fault) => known.fault = Some(fault),
        }
        let (id, key) = (known.envelope.id.clone(), known.envelope.key.clone());
        self.insert_command(known, id, key)
    }

    fn depend(&self, known: &TrackedCommand) -> Result<Vec<(String, Number)>, String> {
        let mut awaited = Vec::new();
        for id in &known.envelope.depends_on {
            if known.envelope.id.as_ref() == Some(id) {
                return Err(format!("Command '{id}' cannot depend on itself"));
            }
            let other = self.ids.get(id).filter(|other| self.is_stored(Some(**other)));
            let Some(other) = other.copied() else { return Err(format!("Dependency '{id}' is unknown")) };
            match &self.known[other].outcome {
                Some(Outcome { error: Some(error), .. }) => {
                    return Err(format!("Dependency '{id}' failed: {error}"));
                }
                Some(_) => {}
                None if self.known[other].request.session == known.request.session => {
                    return Err(format!(
                        "Dependency '{id}' is queued in the same lane and cannot be awaited from this command"
                    ));
                }
                None => awaited.push((id.clone(), self.known[other].leader)),
            }
        }
        Ok(awaited)
    }

    fn started(&mut self, event: &LifecycleEvent) {
        let pending = self.pending.get(&(event.name.clone(), event.envelope.clone()));
        let own = pending.into_iter().flatten().find_map(|pending| match pending {
            PendingEnd::Own(number) => Some(*number),
            PendingEnd::Replay { .. } | PendingEnd::Conflict(_) => None,
        });
        let Some(number) = own else { panic!("executed though it was known: {event:?}") };
        let known = &self.known[number];
        assert!(known.started.is_none(), "executed twice: {known:?}");
        assert!(known.fault.is_none(), "executed though it cannot succeed: {known:?}");
        for (id, other) in &known.awaited {
            let outcome = self.known[*other].outcome.as_ref();
            assert!(outcome.is_some_and(Outcome::is_success), "executed before '{id}' was done: {known:?}");
        }
        if !overtakes(&known.request.kind) {
            let lane = self.lanes.entry(known.request.session.clone()).or_default();
            assert_eq!(lane.running, None, "two at once in a lane: {known:?}");
            assert!(lane.latest.is_none_or(|latest| latest < number), "out of turn: {known:?}");
            (lane.running, lane.latest) = (Some(number), Some(number));
        }
        self.known[number].started = Some(self.position);
    }

    fn finished(&mut self, event: &LifecycleEvent, outcome: &Outcome, replayed: bool) {
        let key = (event.name.clone(), event.envelope.clone());
        let pending = self.pending.get_mut(&key).unwrap_or_else(|| panic!("ended before it was admitted: {event:?}"));
        let conflict = |pending: &PendingEnd| matches!(pending, PendingEnd::Conflict(text) if outcome.error.as_ref() == Some(text));
        let at = pending.iter().position(|pending| match pending {
            PendingEnd::Replay { .. } => replayed,
            PendingEnd::Own(_) => !replayed,
            PendingEnd::Conflict(_) => !replayed && conflict(pending),
        });
        let at = pending.iter().position(conflict).filter(|_| !replayed).or(at);
        let at = at.unwrap_or_else(|| panic!("an unexpected end: {event:?}, expected {pending:?}"));
        let pending_now = pending.remove(at);
        if pending.is_empty() {
            self.pending.remove(&key);
        }
        let leader = match pending_now {
            PendingEnd::Conflict(_) => None,
            PendingEnd::Own(number) => {
                self.apply_own_end(number, outcome);
                Some(number)
            }
            PendingEnd::Replay { of, own } => {
                self.apply_replay(event, of, own, outcome);
                Some(of)
            }
        };
        let (envelope, outcome) = (event.envelope.clone(), outcome.clone());
        self.ended.push(EndedCommand { instance: self.instance, envelope, outcome, replayed, leader });
    }

    fn apply_own_end(&mut self, number: Number, outcome: &Outcome) {
        let known = &self.known[number];
        assert!(known.outcome.is_none(), "ended twice: {known:?}");
        if known.started.is_none() {
            let expected = self.reasons_not_run(known);
            let error = outcome.error.as_deref().unwrap_or_default();
            assert!(expected.iter().any(|text| text == error), "{error}: not one of {expected:?}: {known:?}");
        }
        if let Some(lane) = self.lanes.get_mut(&known.request.session).filter(|lane| lane.running == Some(number)) {
            lane.running = None;
        }
        self.known[number].outcome = Some(outcome.clone());
        self.known[number].finished = Some(self.position);
        if self.known[number].envelope.id.is_some() || self.known[number].envelope.key.is_some() {
            self.cache_outcome(number);
        }
    }

    /// The errors with which a command may end without having started.
    fn reasons_not_run(&self, known: &TrackedCommand) -> Vec<String> {
        if let Some(fault) = &known.fault {
            return vec![fault.clone()];
        }
        let mut texts = Vec::new();
        for (id, other) in &known.awaited {
            // The dependency may have ended while its timeout was being written.
            texts.push(format!("Dependency '{id}' timed out after {}ms", crate::pi_load::DEPENDENCY_MILLIS));
            if let Some(Outcome { error: Some(error), .. }) = &self.known[*other].outcome {
                texts.push(format!("Dependency '{id}' failed: {error}"));
            }
        }
        texts
    }

    fn apply_replay(&mut self, event: &LifecycleEvent, of: Number, own: Option<Number>, outcome: &Outcome) {
        let known = &mut self.known[of];
        match &known.outcome {
            Some(stored) => assert_eq!(stored, outcome, "the outcome changed: {event:?}"),
            // It was waiting or running when the daemon was killed; this outcome is final.
            None if known.instance < self.instance => {
                known.outcome = Some(outcome.clone());
                if outcome.error.as_deref() != Some("interrupted by restart") {
                    known.finished = Some(self.killed);
                } else if Storage::of(&known.request.kind) == Storage::OneCommit {
                    // Its change would be stored with its outcome.
                    known.started = None;
                }
            }
            None => panic!("a repetition ended before what it repeats: {event:?}"),
        }
        if let Some(own) = own {
            self.known[own].outcome = Some(outcome.clone());
            self.known[own].finished = Some(self.position);
            self.cache_outcome(own);
        }
    }

    fn cache_outcome(&mut self, number: Number) {
        self.outcome_cache.push_back(number);
        if self.outcome_cache.len() > REMEMBERED
            && let Some(oldest) = self.outcome_cache.pop_front()
        {
            self.known[oldest].storage = StorageState::Evicted;
        }
    }

    /// The daemon was killed, and starts again with what it has stored.
    pub(crate) fn restart(&mut self) {
        let under_way: Vec<PendingEnd> = std::mem::take(&mut self.pending).into_values().flatten().collect();
        for pending in under_way {
            let number = match pending {
                PendingEnd::Own(number) => Some(number),
                PendingEnd::Replay { own, .. } => own,
                PendingEnd::Conflict(_) => None,
            };
            let Some(known) = number.map(|number| &mut self.known[number]) else { continue };
            // It is stored with its first change, which may not have been made.
            known.storage = StorageState::Uncertain;
            // The event of its start may have been lost with the connections, while its change was stored.
            if known.leader == number.unwrap_or(usize::MAX) && known.fault.is_none() {
                known.started = known.started.or(Some(self.position));
            }
        }
        // Evictions are written later, too.
        for known in self.known.iter_mut().filter(|known| known.storage == StorageState::Evicted) {
            known.storage = StorageState::Uncertain;
        }
        let certain = self.outcome_cache.len().saturating_sub(CERTAIN);
        for (at, number) in self.outcome_cache.drain(..).enumerate() {
            let known = &mut self.known[number];
            if Storage::of(&known.request.kind) == Storage::Later || at < certain {
                known.storage = StorageState::Uncertain;
            }
        }
        self.lanes.clear();
        self.instance += 1;
        self.killed = self.position;
    }
}

/// Returns whether the following events show that the daemon knew the command; `same` if it would be a repetition.
fn was_known(event: &LifecycleEvent, same: bool, then: &[LifecycleEvent]) -> bool {
    let own = |next: &&LifecycleEvent| next.name == event.name && next.envelope == event.envelope;
    then.iter().filter(own).find_map(|next| match &next.phase {
        Phase::Accepted => None,
        Phase::Started => Some(false),
        Phase::Finished { replayed, .. } if same => Some(*replayed),
        Phase::Finished { outcome, .. } => {
            Some(outcome.error.as_ref().is_some_and(|error| error.starts_with("Conflicting ")))
        }
    }) == Some(true)
}
