//! The reference: what a server that keeps to the rules of commands would have told everybody, step by step.
//!
//! Everybody hears of commands in the order in which the daemon decided on them. So the reference is walked along what
//! was heard: the order in which commands were admitted, began and ended is taken from there, and everything that follows
//! from it is compared. What a command does is not judged here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::pi_crowd::command::{Asks, Envelope, is_light, overtakes};
use crate::pi_crowd::trace::{Outcome, Step, Told};

/// How many outcomes the daemon remembers.
const REMEMBERED: usize = 2_000;
/// How many of them are certain to be remembered after a restart, which may put some in another order.
const CERTAIN: usize = 1_800;

/// The number of an identity: a command, or a repetition that made a new name for one.
pub(crate) type Number = usize;

/// Something that has a name and an outcome.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) asks: Asks,
    pub(crate) envelope: Envelope,
    pub(crate) life: usize,
    /// The command that it repeats; itself if it is no repetition.
    pub(crate) leader: Number,
    /// When it began, when it ended, as numbers of what was told.
    pub(crate) started: Option<usize>,
    pub(crate) finished: Option<usize>,
    pub(crate) outcome: Option<Outcome>,
    /// What it must come to, if that was clear when it came.
    fault: Option<String>,
    /// What it waits for, by the names it was asked for.
    awaited: Vec<(String, Number)>,
    certainty: Certainty,
}

/// Whether the daemon knows of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certainty {
    Sure,
    /// The daemon died, and it may have been written down or not.
    Perhaps,
    /// It was forgotten.
    Gone,
}

/// Something of which everybody heard that it ended.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) life: usize,
    pub(crate) envelope: Envelope,
    pub(crate) outcome: Outcome,
    pub(crate) replayed: bool,
    /// The command whose outcome it is; none if it was refused for its name.
    pub(crate) leader: Option<Number>,
}

/// What a command that was admitted waits for.
#[derive(Debug, Clone)]
enum Due {
    /// Its own end.
    Own(Number),
    /// The end of another, whose outcome it gets; perhaps under a name of its own.
    Replay { of: Number, own: Option<Number> },
    /// To be told that its name is taken.
    Conflict(String),
}

/// The reference.
#[derive(Default)]
pub(crate) struct Model {
    /// What is asked under an envelope.
    asks: BTreeMap<Envelope, Asks>,
    /// What was sent to a daemon that died, and not answered.
    cut: BTreeSet<Envelope>,
    pub(crate) known: Vec<Known>,
    pub(crate) ended: Vec<Ended>,
    ids: BTreeMap<String, Number>,
    keys: BTreeMap<(Option<String>, String), Number>,
    shelf: VecDeque<Number>,
    due: BTreeMap<(String, Envelope), Vec<Due>>,
    lanes: BTreeMap<Option<String>, Lane>,
    told: usize,
    life: usize,
    /// When the daemon was killed last.
    killed: usize,
    /// How often an admission was heard of, by envelope and life.
    pub(crate) admitted: BTreeMap<(usize, Envelope), usize>,
}

/// Who takes turns.
#[derive(Default)]
struct Lane {
    running: Option<Number>,
    latest: Option<Number>,
}

impl Model {
    pub(crate) fn new(asks: BTreeMap<Envelope, Asks>, cut: BTreeSet<Envelope>) -> Self {
        Self { asks, cut, ..Self::default() }
    }

    /// Walks along a life of the daemon.
    pub(crate) fn walk(&mut self, trace: &[Told]) {
        for (at, told) in trace.iter().enumerate() {
            match &told.step {
                Step::Accepted => self.accepted(told, &trace[at + 1..]),
                Step::Started => self.started(told),
                Step::Finished { outcome, replayed } => self.finished(told, outcome, *replayed),
            }
            self.told += 1;
        }
    }

    /// Whether anybody heard of a command in any life.
    pub(crate) fn is_heard_of(&self, envelope: &Envelope) -> bool {
        (0..=self.life).any(|life| self.admitted.contains_key(&(life, envelope.clone())))
    }

    /// Nothing is under way any more.
    pub(crate) fn is_at_rest(&self) {
        assert!(self.due.is_empty(), "not everything ended: {:?}", self.due);
    }

    fn accepted(&mut self, told: &Told, then: &[Told]) {
        let envelope = &told.envelope;
        *self.admitted.entry((self.life, envelope.clone())).or_default() += 1;
        let asks = self.asks.get(envelope).unwrap_or_else(|| panic!("nobody sent {told:?}")).clone();
        let by_key =
            envelope.key.as_ref().and_then(|key| self.keys.get(&(envelope.session.clone(), key.clone())).copied());
        let by_id = envelope.id.as_ref().and_then(|id| self.ids.get(id)).copied();
        let first_new = self.known.len();
        let found = self.settle_doubt(told, &asks, [by_key, by_id], then);
        let found = found.or_else(|| self.never_heard_of(told, &asks, then));
        let due = match found {
            None => Due::Own(self.admit(told, asks)),
            Some((of, _)) if self.known[of].asks == asks => {
                let is_new = |number| of < first_new && !self.is_there(number);
                let fresh_id = envelope.id.as_ref().filter(|_| is_new(by_id));
                let fresh_key = envelope.key.as_ref().filter(|_| is_new(by_key));
                let leader = self.known[of].leader;
                let own = (fresh_id.is_some() || fresh_key.is_some()).then(|| {
                    let (id, key) = (fresh_id.cloned(), fresh_key.cloned());
                    self.enter(Known { leader, ..self.stranger(told, asks) }, id, key)
                });
                Due::Replay { of: leader, own }
            }
            Some((of, word)) => {
                let name = if word == "id" { &told.name } else { envelope.key.as_ref().expect("a key") };
                let before = &self.known[of].asks.kind;
                let now = &asks.kind;
                Due::Conflict(format!(
                    "Conflicting {word} '{name}': previously used for '{before}', now used for '{now}'"
                ))
            }
        };
        self.due.entry((told.name.clone(), envelope.clone())).or_default().push(due);
    }

    fn is_there(&self, known: Option<Number>) -> bool {
        known.is_some_and(|number| self.known[number].certainty == Certainty::Sure)
    }

    /// Finds what a command is known by: the key counts before the id. Where a restart left a doubt, what was told next
    /// settles it.
    fn settle_doubt(
        &mut self,
        told: &Told,
        asks: &Asks,
        found: [Option<Number>; 2],
        then: &[Told],
    ) -> Option<(Number, &'static str)> {
        let mut found = found.into_iter().zip(["idempotencyKey", "id"]);
        found.find_map(|(number, word)| {
            let number = number?;
            if self.known[number].certainty == Certainty::Perhaps {
                let same = self.known[number].asks == *asks;
                let known = was_known(told, same, then);
                self.known[number].certainty = if known { Certainty::Sure } else { Certainty::Gone };
            }
            (self.known[number].certainty == Certainty::Sure).then_some((number, word))
        })
    }

    /// Finds what a daemon wrote down that died before anybody heard of it.
    fn never_heard_of(&mut self, told: &Told, asks: &Asks, then: &[Told]) -> Option<(Number, &'static str)> {
        if self.life == 0 || !self.cut.contains(&told.envelope) || !was_known(told, true, then) {
            return None;
        }
        let (life, started) = (self.life - 1, Some(self.killed));
        let known = Known { life, started, ..self.stranger(told, asks.clone()) };
        let (id, key) = (told.envelope.id.clone(), told.envelope.key.clone());
        Some((self.enter(known, id, key), "id"))
    }

    fn stranger(&self, told: &Told, asks: Asks) -> Known {
        Known {
            asks,
            envelope: told.envelope.clone(),
            life: self.life,
            leader: self.known.len(),
            started: None,
            finished: None,
            outcome: None,
            fault: None,
            awaited: Vec::new(),
            certainty: Certainty::Sure,
        }
    }

    fn enter(&mut self, known: Known, id: Option<String>, key: Option<String>) -> Number {
        let number = self.known.len();
        if let Some(id) = id {
            self.ids.insert(id, number);
        }
        if let Some(key) = key {
            self.keys.insert((known.asks.session.clone(), key), number);
        }
        self.known.push(known);
        number
    }

    /// Something new: whether it can succeed, and what it waits for.
    fn admit(&mut self, told: &Told, asks: Asks) -> Number {
        let mut known = self.stranger(told, asks);
        match self.depend(&known) {
            Ok(awaited) => known.awaited = awaited,
            Err(fault) => known.fault = Some(fault),
        }
        let (id, key) = (known.envelope.id.clone(), known.envelope.key.clone());
        self.enter(known, id, key)
    }

    fn depend(&self, known: &Known) -> Result<Vec<(String, Number)>, String> {
        let mut awaited = Vec::new();
        for id in &known.envelope.depends_on {
            if known.envelope.id.as_ref() == Some(id) {
                return Err(format!("Command '{id}' cannot depend on itself"));
            }
            let other = self.ids.get(id).filter(|other| self.is_there(Some(**other)));
            let Some(other) = other.copied() else { return Err(format!("Dependency '{id}' is unknown")) };
            match &self.known[other].outcome {
                Some(Outcome { error: Some(error), .. }) => {
                    return Err(format!("Dependency '{id}' failed: {error}"));
                }
                Some(_) => {}
                None if self.known[other].asks.session == known.asks.session => {
                    return Err(format!(
                        "Dependency '{id}' is queued in the same lane and cannot be awaited from this command"
                    ));
                }
                None => awaited.push((id.clone(), self.known[other].leader)),
            }
        }
        Ok(awaited)
    }

    fn started(&mut self, told: &Told) {
        let due = self.due.get(&(told.name.clone(), told.envelope.clone()));
        let own = due.into_iter().flatten().find_map(|due| match due {
            Due::Own(number) => Some(*number),
            Due::Replay { .. } | Due::Conflict(_) => None,
        });
        let Some(number) = own else { panic!("executed though it was known: {told:?}") };
        let known = &self.known[number];
        assert!(known.started.is_none(), "executed twice: {known:?}");
        assert!(known.fault.is_none(), "executed though it cannot succeed: {known:?}");
        for (id, other) in &known.awaited {
            let outcome = self.known[*other].outcome.as_ref();
            assert!(outcome.is_some_and(Outcome::is_success), "executed before '{id}' was done: {known:?}");
        }
        if !overtakes(&known.asks.kind) {
            let lane = self.lanes.entry(known.asks.session.clone()).or_default();
            assert_eq!(lane.running, None, "two at once in a lane: {known:?}");
            assert!(lane.latest.is_none_or(|latest| latest < number), "out of turn: {known:?}");
            (lane.running, lane.latest) = (Some(number), Some(number));
        }
        self.known[number].started = Some(self.told);
    }

    fn finished(&mut self, told: &Told, outcome: &Outcome, replayed: bool) {
        let key = (told.name.clone(), told.envelope.clone());
        let due = self.due.get_mut(&key).unwrap_or_else(|| panic!("ended before it was admitted: {told:?}"));
        let conflict = |due: &Due| matches!(due, Due::Conflict(text) if outcome.error.as_ref() == Some(text));
        let at = due.iter().position(|due| match due {
            Due::Replay { .. } => replayed,
            Due::Own(_) => !replayed,
            Due::Conflict(_) => !replayed && conflict(due),
        });
        let at = due.iter().position(conflict).filter(|_| !replayed).or(at);
        let at = at.unwrap_or_else(|| panic!("nothing would end like that: {told:?}, rather {due:?}"));
        let due_now = due.remove(at);
        if due.is_empty() {
            self.due.remove(&key);
        }
        let leader = match due_now {
            Due::Conflict(_) => None,
            Due::Own(number) => {
                self.own_end(number, outcome);
                Some(number)
            }
            Due::Replay { of, own } => {
                self.replay(told, of, own, outcome);
                Some(of)
            }
        };
        let (envelope, outcome) = (told.envelope.clone(), outcome.clone());
        self.ended.push(Ended { life: self.life, envelope, outcome, replayed, leader });
    }

    fn own_end(&mut self, number: Number, outcome: &Outcome) {
        let known = &self.known[number];
        assert!(known.outcome.is_none(), "ended twice: {known:?}");
        if known.started.is_none() {
            let expected = self.why_not_run(known);
            let error = outcome.error.as_deref().unwrap_or_default();
            assert!(expected.iter().any(|text| text == error), "{error}: not one of {expected:?}: {known:?}");
        }
        if let Some(lane) = self.lanes.get_mut(&known.asks.session).filter(|lane| lane.running == Some(number)) {
            lane.running = None;
        }
        self.known[number].outcome = Some(outcome.clone());
        self.known[number].finished = Some(self.told);
        if self.known[number].envelope.id.is_some() || self.known[number].envelope.key.is_some() {
            self.shelve(number);
        }
    }

    /// Why a command may have ended without having begun.
    fn why_not_run(&self, known: &Known) -> Vec<String> {
        if let Some(fault) = &known.fault {
            return vec![fault.clone()];
        }
        let mut texts = Vec::new();
        for (id, other) in &known.awaited {
            // It may have ended while it was being written down that it had not in time.
            texts.push(format!("Dependency '{id}' timed out after {}ms", crate::pi_crowd::DEPENDENCY_MILLIS));
            if let Some(Outcome { error: Some(error), .. }) = &self.known[*other].outcome {
                texts.push(format!("Dependency '{id}' failed: {error}"));
            }
        }
        texts
    }

    fn replay(&mut self, told: &Told, of: Number, own: Option<Number>, outcome: &Outcome) {
        let known = &mut self.known[of];
        match &known.outcome {
            Some(stored) => assert_eq!(stored, outcome, "the outcome changed: {told:?}"),
            // It was under way when the daemon died; from here on it is what it is.
            None if known.life < self.life => known.outcome = Some(outcome.clone()),
            None => panic!("a repetition ended before what it repeats: {told:?}"),
        }
        if let Some(own) = own {
            self.known[own].outcome = Some(outcome.clone());
            self.known[own].finished = Some(self.told);
            self.shelve(own);
        }
    }

    fn shelve(&mut self, number: Number) {
        self.shelf.push_back(number);
        if self.shelf.len() > REMEMBERED
            && let Some(oldest) = self.shelf.pop_front()
        {
            self.known[oldest].certainty = Certainty::Gone;
        }
    }

    /// The daemon was killed, and begins again with what it wrote down.
    pub(crate) fn restart(&mut self) {
        let under_way: Vec<Due> = std::mem::take(&mut self.due).into_values().flatten().collect();
        for due in under_way {
            let number = match due {
                Due::Own(number) => Some(number),
                Due::Replay { own, .. } => own,
                Due::Conflict(_) => None,
            };
            let Some(known) = number.map(|number| &mut self.known[number]) else { continue };
            // What began was written down before, unless it is light.
            let written = known.started.is_some() && !is_light(&known.asks.kind);
            known.certainty = if written { Certainty::Sure } else { Certainty::Perhaps };
            // The news that it began may have been lost with the connections, and what it changed was kept all the same.
            if known.leader == number.unwrap_or(usize::MAX) && known.fault.is_none() {
                known.started = known.started.or(Some(self.told));
            }
        }
        // To be forgotten is written down some time later too.
        for known in self.known.iter_mut().filter(|known| known.certainty == Certainty::Gone) {
            known.certainty = Certainty::Perhaps;
        }
        let certain = self.shelf.len().saturating_sub(CERTAIN);
        for (at, number) in self.shelf.drain(..).enumerate() {
            let known = &mut self.known[number];
            if is_light(&known.asks.kind) || at < certain {
                known.certainty = Certainty::Perhaps;
            }
        }
        self.lanes.clear();
        self.life += 1;
        self.killed = self.told;
    }
}

/// Tells from what was told next whether the daemon knew a command; `same` if it would be a repetition.
fn was_known(told: &Told, same: bool, then: &[Told]) -> bool {
    let own = |next: &&Told| next.name == told.name && next.envelope == told.envelope;
    then.iter().filter(own).find_map(|next| match &next.step {
        Step::Accepted => None,
        Step::Started => Some(false),
        Step::Finished { replayed, .. } if same => Some(*replayed),
        Step::Finished { outcome, .. } => {
            Some(outcome.error.as_ref().is_some_and(|error| error.starts_with("Conflicting ")))
        }
    }) == Some(true)
}
