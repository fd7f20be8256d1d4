//! A reference model of the command log, as simple as possible: one list of commands with linear search.
//!
//! It decides nothing. It sees each input with the effects of the command log, and checks that they were allowed in
//! that order, and that no required effect is missing.

use std::fmt::Debug;
use std::sync::Arc;

use pushd::kernel::book::record::mention;
use pushd::kernel::book::{
    Body, BookFault, BookLimits, BookRefusal, Counting, Effect, Identity, Input, Keeping, Order, Outcome,
    Record, Settlement, Stored, Submission, Ticket,
};
use pushd::kernel::id::{Fingerprint, SessionId};
use pushd::kernel::rate::TooFast;
use pushd::kernel::time::Now;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Running,
    /// Its outcome is known and not yet reported; `has_turn` says whether it still has its turn.
    Ended {
        has_turn: bool,
    },
    Over,
    /// The server was restarted, or the command was evicted.
    Gone,
}

#[derive(Debug)]
struct Cmd {
    ticket: Option<Ticket>,
    /// The names that currently resolve to this command.
    id: Option<Arc<str>>,
    key: Option<Arc<str>>,
    /// The names under which it was recorded.
    recorded: (Option<Arc<str>>, Option<Arc<str>>),
    name: Arc<str>,
    kind: String,
    session: Option<SessionId>,
    fingerprint: Fingerprint,
    order: Order,
    keeping: Keeping,
    limit: Option<u64>,
    phase: Phase,
    kept: bool,
    remembered: bool,
    awaits: Vec<(usize, Arc<str>)>,
    repeats: Option<usize>,
    doomed: Option<BookFault>,
    outcome: Option<Outcome>,
    turn_since: Option<Now>,
    started: Option<Now>,
    ended: Now,
    row: Option<u64>,
    runs: u32,
}

pub(crate) struct Model {
    limits: BookLimits,
    cmds: Vec<Cmd>,
    /// The cached finished commands, in the order of completion.
    shelf: Vec<usize>,
    counted: Vec<(Now, Option<SessionId>)>,
    shutting_down: bool,
    now: Now,
    /// The row that this step may evict beyond the limit.
    forgettable: Option<u64>,
    pub(crate) ran: u64,
    pub(crate) replayed: u64,
}

/// The expected first effect of a submission.
enum First {
    Refuse(BookRefusal),
    Conflict(BookFault),
    Accept,
}

impl Model {
    pub(crate) fn new(limits: BookLimits) -> Self {
        Self {
            limits,
            cmds: Vec::new(),
            shelf: Vec::new(),
            counted: Vec::new(),
            shutting_down: false,
            now: Now(0),
            forgettable: None,
            ran: 0,
            replayed: 0,
        }
    }

    /// Restarts from the rows on disk.
    pub(crate) fn restart(&mut self, disk: &[Stored], now: Now, effects: &[Effect]) {
        let (ran, replayed) = (self.ran, self.replayed);
        *self = Self { now, ran, replayed, ..Self::new(self.limits) };
        let mut later: Vec<&Settlement> = Vec::new();
        let mut forgotten = Vec::new();
        for effect in effects {
            match effect {
                Effect::SettleLater(settlement) => later.push(settlement),
                Effect::Forget(row) => forgotten.push(row.0),
                other => panic!("a restart has no business with {other:?}"),
            }
        }
        for stored in disk {
            let cmd = restored(stored, now);
            if stored.settled.is_none() {
                let own = later.iter().find(|it| *it.record == stored.record).expect("it is settled");
                assert_eq!(Some(&own.outcome), cmd.outcome.as_ref());
            }
            self.cmds.push(cmd);
        }
        assert_eq!(later.len(), disk.iter().filter(|it| it.settled.is_none()).count());
        let mut order: Vec<usize> = (0..self.cmds.len()).collect();
        order.sort_by_key(|at| (self.cmds[*at].ended, self.cmds[*at].row));
        let beyond = order.len().saturating_sub(self.limits.outcomes);
        let rows: Vec<u64> = order.drain(..beyond).map(|at| self.cmds[at].row.expect("a row")).collect();
        assert_eq!(rows, forgotten);
        for cmd in &mut self.cmds {
            if rows.contains(&cmd.row.expect("a row")) {
                cmd.phase = Phase::Gone;
            }
        }
        self.shelf = order;
        // The commands are in row order: a name belongs to the last one that uses it.
        let mut by_row = self.shelf.clone();
        by_row.sort_unstable();
        for at in by_row {
            let (id, key) = self.cmds[at].recorded.clone();
            self.take_names(at, id, key);
        }
    }

    /// Checks one step of the command log.
    pub(crate) fn see(&mut self, input: &Input, now: Now, effects: &[Effect]) {
        self.now = now;
        self.forgettable = None;
        let mut rest = effects;
        match input {
            Input::Submit(asked) => {
                let (first, others) = effects.split_first().expect("a submission is answered");
                rest = others;
                match self.judge(asked) {
                    First::Refuse(refusal) => {
                        same(first, &Effect::Refuse(asked.ticket, refusal));
                        assert!(rest.is_empty(), "a refusal is all: {rest:?}");
                    }
                    First::Conflict(fault) => {
                        same(first, &Effect::Accepted(asked.ticket));
                        let outcome = Outcome::failed(spell(&fault));
                        let finished = Effect::Finished { ticket: asked.ticket, outcome, replayed: false };
                        same(rest.first().expect("a conflict ends at once"), &finished);
                        rest = &rest[1..];
                        assert!(rest.is_empty(), "a conflict changes nothing: {rest:?}");
                    }
                    First::Accept => same(first, &Effect::Accepted(asked.ticket)),
                }
            }
            Input::Kept(ticket) => {
                if let Some(at) = self.under_way(*ticket) {
                    self.cmds[at].kept = true;
                }
            }
            Input::NotKept(ticket) => {
                if let Some(at) = self.under_way(*ticket).filter(|at| self.cmds[*at].phase == Phase::Waiting)
                {
                    self.forgettable = self.cmds[at].row;
                    self.disown(at);
                    self.cmds[at].doomed = Some(BookFault::NotKept);
                }
            }
            Input::Erased(session) => self.erase(session),
            Input::ShuttingDown => self.shutting_down = true,
            Input::Finished(..) | Input::Settled(_) | Input::NotSettled(_) | Input::Deadline => {}
        }
        for effect in rest {
            self.allow(input, effect);
        }
        self.expect_nothing_left(input, effects);
    }

    /// Returns the time of the next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Now> {
        let one = |cmd: &Cmd| match cmd.phase {
            Phase::Running => Some(cmd.started?.after(cmd.limit?)),
            Phase::Waiting if self.unresolved(cmd).is_some() => {
                Some(cmd.turn_since?.after(self.limits.dependency_millis))
            }
            Phase::Waiting | Phase::Ended { .. } | Phase::Over | Phase::Gone => None,
        };
        self.cmds.iter().filter_map(one).min()
    }

    /// Returns the number of active commands.
    pub(crate) fn in_flight(&self) -> usize {
        self.cmds.iter().filter(|cmd| is_under_way(cmd)).count()
    }

    pub(crate) fn remembered(&self) -> usize {
        self.shelf.len()
    }

    fn judge(&mut self, asked: &Submission) -> First {
        let limits = self.limits;
        if self.shutting_down {
            return First::Refuse(BookRefusal::ShuttingDown);
        }
        if asked.depends_on.len() > limits.dependencies {
            return First::Refuse(BookRefusal::TooManyDependencies { limit: limits.dependencies });
        }
        let by_key = asked.key.as_ref().and_then(|key| self.known_key(&asked.session, key));
        let by_id = asked.name.given().and_then(|id| self.known_id(id));
        let busy = self.in_flight() >= limits.in_flight;
        let busy = busy.then_some(BookRefusal::Busy { limit: limits.in_flight });
        let found = by_key.or(by_id);
        let conflicts = found.filter(|at| self.cmds[*at].fingerprint != asked.fingerprint);
        if found.is_none()
            && let Some(busy) = busy
        {
            return First::Refuse(busy);
        }
        if (found.is_none() || conflicts.is_some()) && asked.counting == Counting::Counted {
            if let Some(fast) = self.too_fast(&asked.session) {
                return First::Refuse(BookRefusal::TooFast(fast));
            }
            self.counted.push((self.now, asked.session.clone()));
        }
        if let Some(at) = conflicts {
            let (identity, name) = match by_key {
                Some(_) => (Identity::Key, asked.key.clone().expect("a key")),
                None => (Identity::Id, Arc::clone(asked.name.text())),
            };
            let earlier = self.cmds[at].kind.clone().into();
            return First::Conflict(BookFault::Conflict {
                identity,
                name,
                earlier,
                asked: asked.kind.clone(),
            });
        }
        let id = asked.name.given().filter(|_| by_id.is_none()).cloned();
        let key = asked.key.clone().filter(|_| by_key.is_none());
        let leader = found.map(|at| self.stands_for(at));
        let joins = leader.is_some_and(|at| !is_over(&self.cmds[at]));
        if found.is_some()
            && (joins || id.is_some() || key.is_some())
            && let Some(busy) = busy
        {
            return First::Refuse(busy);
        }
        self.accept(asked, (id, key), leader);
        First::Accept
    }

    /// The original command of a duplicate, while that is active.
    fn stands_for(&self, at: usize) -> usize {
        self.cmds[at].repeats.filter(|leader| is_under_way(&self.cmds[*leader])).unwrap_or(at)
    }

    fn accept(
        &mut self,
        asked: &Submission,
        (id, key): (Option<Arc<str>>, Option<Arc<str>>),
        leader: Option<usize>,
    ) {
        let mut awaits = Vec::new();
        let doomed = if leader.is_none() { self.depend(asked, &mut awaits).err() } else { None };
        let remembered = id.is_some() || key.is_some();
        let keeping = leader.filter(|at| !is_over(&self.cmds[*at])).map(|at| self.cmds[at].keeping);
        self.cmds.push(Cmd {
            ticket: Some(asked.ticket),
            recorded: (id.clone(), key.clone()),
            id: None,
            key: None,
            name: Arc::clone(asked.name.text()),
            kind: asked.kind.to_string(),
            session: asked.session.clone(),
            fingerprint: asked.fingerprint,
            order: asked.order,
            keeping: keeping.unwrap_or(asked.keeping),
            limit: asked.time_limit,
            phase: Phase::Waiting,
            kept: asked.keeping == Keeping::Light || !remembered,
            remembered,
            awaits,
            repeats: leader,
            doomed,
            outcome: None,
            turn_since: None,
            started: None,
            ended: Now(0),
            row: None,
            runs: 0,
        });
        self.take_names(self.cmds.len() - 1, id, key);
    }

    fn depend(&self, asked: &Submission, awaits: &mut Vec<(usize, Arc<str>)>) -> Result<(), BookFault> {
        for id in &asked.depends_on {
            let dependency = Arc::clone(id);
            if asked.name.given() == Some(id) {
                return Err(BookFault::SelfDependency { name: dependency });
            }
            let Some(at) = self.known_id(id) else {
                return Err(BookFault::UnknownDependency { dependency });
            };
            let cmd = &self.cmds[at];
            match &cmd.outcome {
                Some(outcome) if is_over(cmd) => {
                    if !outcome.success {
                        return Err(self.dependency_failed(dependency, outcome));
                    }
                }
                Some(_) | None if cmd.session == asked.session => {
                    return Err(BookFault::SameLane { dependency });
                }
                Some(_) | None => {
                    let at = self.stands_for(at);
                    if awaits.iter().all(|(other, _)| *other != at) {
                        awaits.push((at, dependency));
                    }
                }
            }
        }
        Ok(())
    }

    fn allow(&mut self, input: &Input, effect: &Effect) {
        match effect {
            Effect::Keep(ticket, record) => {
                let at = self.under_way(*ticket).expect("it is under way");
                assert!(
                    !self.cmds[at].kept && self.cmds[at].doomed.is_none() && self.cmds[at].repeats.is_none()
                );
                self.recorded_as(at, record);
            }
            Effect::Run(ticket) => {
                let at = self.under_way(*ticket).expect("it is under way");
                assert!(self.may_run(at), "{:?} must not run", self.cmds[at]);
                self.cmds[at].phase = Phase::Running;
                self.cmds[at].started = Some(self.now);
                self.cmds[at].runs += 1;
                assert_eq!(self.cmds[at].runs, 1, "it ran before");
                self.ran += 1;
            }
            Effect::Abandon(ticket) => {
                let at = self.under_way(*ticket).expect("it is under way");
                assert!(self.is_late(&self.cmds[at]) && matches!(input, Input::Deadline));
            }
            Effect::Settle(ticket, settlement) => {
                let at = self.under_way(*ticket).expect("it is under way");
                assert_eq!(self.cmds[at].keeping, Keeping::Durable);
                self.settles(input, at, settlement);
            }
            Effect::SettleLater(settlement) => {
                let names = (settlement.record.id.clone(), settlement.record.key.clone());
                let own = |cmd: &Cmd| {
                    cmd.recorded == names
                        && cmd.session == settlement.record.session
                        && matches!(cmd.phase, Phase::Waiting | Phase::Running)
                        && cmd.remembered
                };
                let at = self.cmds.iter().position(own).expect("it is under way");
                assert_eq!(self.cmds[at].keeping, Keeping::Light);
                self.settles(input, at, settlement);
            }
            Effect::Finished { ticket, outcome, replayed } => {
                self.finishes(input, *ticket, outcome, *replayed)
            }
            Effect::Forget(row) => {
                if self.forgettable.take_if(|own| own == &row.0).is_some() {
                    return;
                }
                assert!(self.shelf.len() > self.limits.outcomes, "there is room for {row:?}");
                let oldest = self.shelf.remove(0);
                assert_eq!(self.cmds[oldest].row, Some(row.0), "another is the oldest");
                self.cmds[oldest].phase = Phase::Gone;
            }
            Effect::Refuse(..) | Effect::Accepted(_) => panic!("{effect:?} in the midst of it"),
        }
    }

    fn settles(&mut self, input: &Input, at: usize, settlement: &Settlement) {
        assert!(self.cmds[at].remembered, "nobody asked to keep {:?}", self.cmds[at]);
        self.recorded_as(at, &settlement.record);
        assert_eq!(settlement.at, self.now);
        self.ends(input, at, &settlement.outcome);
    }

    /// A command has an outcome: there must be a reason for exactly this one.
    fn ends(&mut self, input: &Input, at: usize, outcome: &Outcome) {
        let cmd = &self.cmds[at];
        let failed = |fault: &BookFault| Outcome::failed(spell(fault));
        let reason = match (cmd.phase, &cmd.doomed, cmd.repeats) {
            (Phase::Running, ..) => match input {
                Input::Finished(ticket, reported) => Some(*ticket) == cmd.ticket && reported == outcome,
                Input::Deadline => {
                    let (name, kind) = (Arc::clone(&cmd.name), cmd.kind.clone().into());
                    let fault = BookFault::TimedOut { name, kind, millis: cmd.limit.unwrap_or(0) };
                    self.is_late(cmd) && Outcome { timed_out: true, ..failed(&fault) } == *outcome
                }
                _ => false,
            },
            (Phase::Waiting, Some(fault), _) => failed(fault) == *outcome,
            (Phase::Waiting, None, Some(leader)) => {
                !is_under_way(&self.cmds[leader]) && self.cmds[leader].outcome.as_ref() == Some(outcome)
            }
            (Phase::Waiting, None, None) => {
                let lost = |(other, id): &(usize, Arc<str>)| {
                    let other =
                        self.cmds[*other].outcome.clone().filter(|_| !is_under_way(&self.cmds[*other]));
                    let other = other.filter(|outcome| !outcome.success);
                    other.is_some_and(|other| {
                        failed(&self.dependency_failed(Arc::clone(id), &other)) == *outcome
                    })
                };
                cmd.awaits.iter().any(lost)
                    || (matches!(input, Input::Deadline) && self.waited_in_vain(cmd, outcome))
            }
            (Phase::Ended { .. } | Phase::Over | Phase::Gone, ..) => false,
        };
        assert!(reason, "no reason for {outcome:?} of {cmd:?}");
        let has_turn = cmd.phase == Phase::Running && cmd.order != Order::Overtakes;
        let cmd = &mut self.cmds[at];
        cmd.phase = Phase::Ended { has_turn };
        cmd.outcome = Some(outcome.clone());
        cmd.ended = self.now;
    }

    fn waited_in_vain(&self, cmd: &Cmd, outcome: &Outcome) -> bool {
        let Some((_, id)) = self.unresolved(cmd) else { return false };
        let millis = self.limits.dependency_millis;
        let fault = BookFault::DependencyTimeout { dependency: Arc::clone(id), millis };
        let over = cmd.turn_since.is_some_and(|since| since.after(millis) <= self.now);
        over && Outcome::failed(spell(&fault)) == *outcome
    }

    /// The sender of a command gets its outcome.
    fn finishes(&mut self, input: &Input, ticket: Ticket, outcome: &Outcome, replayed: bool) {
        let at = self.under_way(ticket).expect("it is under way");
        if !self.cmds[at].remembered && !matches!(self.cmds[at].phase, Phase::Ended { .. }) {
            self.ends(input, at, outcome);
        }
        let cmd = &self.cmds[at];
        assert!(matches!(cmd.phase, Phase::Ended { .. }), "{cmd:?} is told before it is written");
        assert_eq!(cmd.outcome.as_ref(), Some(outcome));
        assert_eq!(replayed, cmd.repeats.is_some());
        if cmd.remembered && cmd.keeping == Keeping::Durable {
            let told = matches!(input, Input::Settled(own) | Input::NotSettled(own) if *own == ticket);
            assert!(told, "{cmd:?} is told before it is written");
        }
        self.replayed += u64::from(replayed);
        self.cmds[at].phase = if self.cmds[at].remembered { Phase::Over } else { Phase::Gone };
        if self.cmds[at].remembered {
            self.shelf.push(at);
        }
    }

    fn expect_nothing_left(&mut self, input: &Input, effects: &[Effect]) {
        for at in 0..self.cmds.len() {
            let cmd = &self.cmds[at];
            assert!(!self.may_run(at), "{cmd:?} should run, after {input:?}: {effects:?}");
            if cmd.phase == Phase::Waiting {
                assert!(cmd.doomed.is_none(), "{cmd:?} should have failed");
                let leader = cmd.repeats.map(|leader| &self.cmds[leader]);
                assert!(
                    leader.is_none_or(|leader| leader.outcome.is_none() || is_under_way(leader)),
                    "{cmd:?}"
                );
                let lost = |(other, _): &(usize, Arc<str>)| {
                    let other = &self.cmds[*other];
                    !is_under_way(other) && other.outcome.as_ref().is_some_and(|outcome| !outcome.success)
                };
                assert!(!cmd.awaits.iter().any(lost), "{cmd:?} should have failed with a dependency");
                if cmd.turn_since.is_none() && self.unresolved(cmd).is_some() && self.has_turn(at) {
                    self.cmds[at].turn_since = Some(self.now);
                }
            }
            if matches!(self.cmds[at].phase, Phase::Ended { .. }) {
                assert_eq!(
                    self.cmds[at].keeping,
                    Keeping::Durable,
                    "nothing is in its way: {:?}",
                    self.cmds[at]
                );
            }
        }
        assert!(self.shelf.len() <= self.limits.outcomes);
        assert_eq!(self.forgettable, None, "what cannot be kept is forgotten");
        if matches!(input, Input::Deadline) {
            assert!(self.next_deadline().is_none_or(|at| at > self.now), "something is late and goes on");
        }
    }

    fn may_run(&self, at: usize) -> bool {
        let cmd = &self.cmds[at];
        cmd.phase == Phase::Waiting
            && cmd.kept
            && cmd.repeats.is_none()
            && cmd.doomed.is_none()
            && self.has_turn(at)
            && cmd.awaits.iter().all(|(other, _)| {
                let other = &self.cmds[*other];
                !is_under_way(other) && other.outcome.as_ref().is_some_and(|outcome| outcome.success)
            })
    }

    fn has_turn(&self, at: usize) -> bool {
        let cmd = &self.cmds[at];
        let in_its_way = |other: &Cmd| {
            let holds = match other.phase {
                Phase::Waiting => other.doomed.is_none(),
                Phase::Running => true,
                Phase::Ended { has_turn } => has_turn,
                Phase::Over | Phase::Gone => false,
            };
            let has_begun = matches!(other.phase, Phase::Running | Phase::Ended { .. });
            let blocks = match (cmd.order, other.order) {
                (_, Order::Overtakes) | (Order::Overtakes, _) | (Order::Reads, Order::Reads) => false,
                (Order::Reads, Order::Long) => !has_begun,
                (Order::Reads, Order::Waits) | (Order::Waits | Order::Long, _) => true,
            };
            holds && blocks && other.repeats.is_none() && other.session == cmd.session
        };
        cmd.order == Order::Overtakes || !self.cmds[..at].iter().any(in_its_way)
    }

    fn unresolved<'a>(&self, cmd: &'a Cmd) -> Option<&'a (usize, Arc<str>)> {
        cmd.awaits.iter().find(|(other, _)| is_under_way(&self.cmds[*other]))
    }

    fn is_late(&self, cmd: &Cmd) -> bool {
        let until = cmd.started.and_then(|started| Some(started.after(cmd.limit?)));
        cmd.phase == Phase::Running && until.is_some_and(|until| until <= self.now)
    }

    fn dependency_failed(&self, dependency: Arc<str>, outcome: &Outcome) -> BookFault {
        let text = outcome.body.text().unwrap_or_default();
        let error: String = text.chars().take(self.limits.error_bytes).collect();
        BookFault::DependencyFailed { dependency, error: error.into() }
    }

    fn too_fast(&self, session: &Option<SessionId>) -> Option<TooFast> {
        let rate = self.limits.rate;
        let counts = |of: &dyn Fn(&Option<SessionId>) -> bool| {
            let young =
                |(at, whose): &&(Now, Option<SessionId>)| self.now.since(*at) < rate.millis && of(whose);
            self.counted.iter().filter(young).count()
        };
        if counts(&|_| true) >= rate.overall {
            return Some(TooFast::Overall(rate));
        }
        let own = session.is_some() && counts(&|whose| whose == session) >= rate.session;
        own.then_some(TooFast::Session(rate))
    }

    fn erase(&mut self, session: &SessionId) {
        let words = mention(session);
        for at in 0..self.cmds.len() {
            let own = self.cmds[at].session.as_ref() == Some(session);
            if own && self.cmds[at].phase == Phase::Over {
                self.cmds[at].phase = Phase::Gone;
                self.shelf.retain(|other| *other != at);
            } else if own && is_under_way(&self.cmds[at]) {
                self.disown(at);
            } else if self.cmds[at].phase == Phase::Over
                && let Some(outcome) = &mut self.cmds[at].outcome
                && outcome.body.text().is_some_and(|text| text.contains(&words))
            {
                outcome.body = Body::Gone;
            }
        }
    }

    /// Excludes an active command and its duplicates from the cache.
    fn disown(&mut self, at: usize) {
        for (other, cmd) in self.cmds.iter_mut().enumerate() {
            if other == at || (cmd.repeats == Some(at) && cmd.phase == Phase::Waiting) {
                (cmd.remembered, cmd.id, cmd.key) = (false, None, None);
            }
        }
    }

    fn take_names(&mut self, at: usize, id: Option<Arc<str>>, key: Option<Arc<str>>) {
        let session = self.cmds[at].session.clone();
        for cmd in &mut self.cmds {
            if id.is_some() && cmd.id == id {
                cmd.id = None;
            }
            if key.is_some() && cmd.key == key && cmd.session == session {
                cmd.key = None;
            }
        }
        (self.cmds[at].id, self.cmds[at].key) = (id, key);
    }

    fn known_id(&self, id: &Arc<str>) -> Option<usize> {
        self.cmds.iter().position(|cmd| cmd.id.as_ref() == Some(id) && cmd.phase != Phase::Gone)
    }

    fn known_key(&self, session: &Option<SessionId>, key: &Arc<str>) -> Option<usize> {
        let known = |cmd: &Cmd| {
            let young = !is_over(cmd) || self.now.since(cmd.ended) < self.limits.key_millis;
            cmd.key.as_ref() == Some(key) && cmd.session == *session && cmd.phase != Phase::Gone && young
        };
        self.cmds.iter().position(known)
    }

    fn under_way(&self, ticket: Ticket) -> Option<usize> {
        self.cmds.iter().position(|cmd| cmd.ticket == Some(ticket) && is_under_way(cmd))
    }

    fn recorded_as(&mut self, at: usize, record: &Record) {
        let cmd = &mut self.cmds[at];
        same(&record.id, &cmd.recorded.0);
        same(&record.key, &cmd.recorded.1);
        same(&record.session, &cmd.session);
        same(&record.fingerprint, &cmd.fingerprint);
        assert!(cmd.row.is_none_or(|row| row == record.row.0), "one command has one row");
        cmd.row = Some(record.row.0);
        let twice = self.cmds.iter().filter(|other| other.row == Some(record.row.0)).count();
        assert_eq!(twice, 1, "one row has one command");
    }
}

fn restored(stored: &Stored, now: Now) -> Cmd {
    let record = &stored.record;
    let interrupted = || (Outcome::failed(spell(&BookFault::Interrupted)), now);
    let (outcome, ended) = stored.settled.clone().unwrap_or_else(interrupted);
    Cmd {
        ticket: None,
        id: None,
        key: None,
        recorded: (record.id.clone(), record.key.clone()),
        name: record.id.clone().unwrap_or_default(),
        kind: record.kind.to_string(),
        session: record.session.clone(),
        fingerprint: record.fingerprint,
        order: Order::Overtakes,
        keeping: Keeping::Durable,
        limit: None,
        phase: Phase::Over,
        kept: true,
        remembered: true,
        awaits: Vec::new(),
        repeats: None,
        doomed: None,
        outcome: Some(outcome),
        turn_since: None,
        started: None,
        ended,
        row: Some(record.row.0),
        runs: 0,
    }
}

fn is_over(cmd: &Cmd) -> bool {
    matches!(cmd.phase, Phase::Over)
}

fn is_under_way(cmd: &Cmd) -> bool {
    matches!(cmd.phase, Phase::Waiting | Phase::Running | Phase::Ended { .. })
}

fn same<T: PartialEq + Debug>(left: &T, right: &T) {
    assert_eq!(left, right);
}

pub(crate) fn spell(fault: &BookFault) -> String {
    format!("{fault:?}")
}
