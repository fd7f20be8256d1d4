//! A reference model of the command log, as simple as possible: one list of commands with linear search.
//!
//! It decides nothing. It sees each input with the effects of the command log, and checks that they were allowed in
//! that order, and that no required effect is missing.

use std::fmt::Debug;
use std::sync::Arc;

use pushd::kernel::command_log::record::quoted_id;
use pushd::kernel::command_log::{
    AdmissionRefusal, CommandError, CommandLogLimits, CommandOutcome, CommandRecord, Effect, Input, MatchedBy,
    OutcomeRecord, Persistence, RateClass, ReplyBody, Scheduling, StoredCommand, Submission, SubmissionId,
};
use pushd::kernel::id::{Fingerprint, SessionId};
use pushd::kernel::rate::RateExceeded;
use pushd::kernel::time::Now;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Running,
    /// Its outcome is known and not yet reported; `has_turn` says whether it still has its turn.
    Ended {
        has_turn: bool,
    },
    Finished,
    /// The server was restarted, or the command was evicted.
    Gone,
}

#[derive(Debug)]
struct Cmd {
    ticket: Option<SubmissionId>,
    /// The names that currently resolve to this command.
    id: Option<Arc<str>>,
    key: Option<Arc<str>>,
    /// The names under which it was recorded.
    recorded: (Option<Arc<str>>, Option<Arc<str>>),
    name: Arc<str>,
    kind: String,
    session: Option<SessionId>,
    fingerprint: Fingerprint,
    scheduling: Scheduling,
    persistence: Persistence,
    limit: Option<u64>,
    phase: Phase,
    remembered: bool,
    dependencies: Vec<(usize, Arc<str>)>,
    duplicate_of: Option<usize>,
    failure: Option<CommandError>,
    outcome: Option<CommandOutcome>,
    turn_since: Option<Now>,
    started: Option<Now>,
    ended: Now,
    row: Option<u64>,
    runs: u32,
}

pub(crate) struct Model {
    limits: CommandLogLimits,
    cmds: Vec<Cmd>,
    /// The cached finished commands, in the order of completion.
    finished: Vec<usize>,
    rate_events: Vec<(Now, RateClass, Option<SessionId>)>,
    shutting_down: bool,
    now: Now,
    pub(crate) ran: u64,
    pub(crate) replayed: u64,
}

/// The expected first effect of a submission.
enum Admission {
    Refuse(AdmissionRefusal),
    Conflict(CommandError),
    Accept,
}

impl Model {
    pub(crate) fn new(limits: CommandLogLimits) -> Self {
        Self {
            limits,
            cmds: Vec::new(),
            finished: Vec::new(),
            rate_events: Vec::new(),
            shutting_down: false,
            now: Now(0),
            ran: 0,
            replayed: 0,
        }
    }

    /// Restarts from the rows on disk.
    pub(crate) fn restart(&mut self, disk: &[StoredCommand], now: Now, effects: &[Effect]) {
        let (ran, replayed) = (self.ran, self.replayed);
        *self = Self { now, ran, replayed, ..Self::new(self.limits) };
        let mut later: Vec<&OutcomeRecord> = Vec::new();
        let mut forgotten = Vec::new();
        for effect in effects {
            match effect {
                Effect::PersistOutcomeLater(settlement) => later.push(settlement),
                Effect::DeleteRecord(row) => forgotten.push(row.0),
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
        self.finished = order;
        // The commands are in row order: a name belongs to the last one that uses it.
        let mut by_row = self.finished.clone();
        by_row.sort_unstable();
        for at in by_row {
            let (id, key) = self.cmds[at].recorded.clone();
            self.register_names(at, id, key);
        }
    }

    /// Checks one step of the command log.
    pub(crate) fn observe(&mut self, input: &Input, now: Now, effects: &[Effect]) {
        self.now = now;
        let mut rest = effects;
        match input {
            Input::Submit(submission) => {
                let (first, others) = effects.split_first().expect("a submission is answered");
                rest = others;
                match self.admit(submission) {
                    Admission::Refuse(refusal) => {
                        assert_same(first, &Effect::Refuse(submission.ticket, refusal));
                        assert!(rest.is_empty(), "a refusal is all: {rest:?}");
                    }
                    Admission::Conflict(fault) => {
                        assert_same(first, &Effect::Accept(submission.ticket));
                        let outcome = CommandOutcome::failed(format_error(&fault));
                        let finished = Effect::Finish { ticket: submission.ticket, outcome, replayed: false };
                        assert_same(rest.first().expect("a conflict ends at once"), &finished);
                        rest = &rest[1..];
                        assert!(rest.is_empty(), "a conflict changes nothing: {rest:?}");
                    }
                    Admission::Accept => assert_same(first, &Effect::Accept(submission.ticket)),
                }
            }
            Input::SessionDeleted(session) => self.delete_session(session),
            Input::ShuttingDown => self.shutting_down = true,
            Input::Finished(..)
            | Input::FinishedWithEffect(..)
            | Input::OutcomePersisted(_)
            | Input::OutcomeFailed(_)
            | Input::Deadline => {}
        }
        for effect in rest {
            self.check_effect(input, effect);
        }
        self.check_nothing_pending(input, effects);
    }

    /// Returns the time of the next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Now> {
        let one = |cmd: &Cmd| match cmd.phase {
            Phase::Running => Some(cmd.started?.after(cmd.limit?)),
            Phase::Waiting if self.unresolved(cmd).is_some() => {
                Some(cmd.turn_since?.after(self.limits.dependency_millis))
            }
            Phase::Waiting | Phase::Ended { .. } | Phase::Finished | Phase::Gone => None,
        };
        self.cmds.iter().filter_map(one).min()
    }

    /// Returns the number of active commands.
    pub(crate) fn in_flight(&self) -> usize {
        self.cmds.iter().filter(|cmd| is_active(cmd)).count()
    }

    pub(crate) fn remembered(&self) -> usize {
        self.finished.len()
    }

    fn admit(&mut self, submission: &Submission) -> Admission {
        let limits = self.limits;
        if self.shutting_down {
            return Admission::Refuse(AdmissionRefusal::ShuttingDown);
        }
        if submission.depends_on.len() > limits.dependencies {
            return Admission::Refuse(AdmissionRefusal::TooManyDependencies { limit: limits.dependencies });
        }
        let by_key = submission.key.as_ref().and_then(|key| self.known_key(&submission.session, key));
        let by_id = submission.name.client_id().and_then(|id| self.known_id(id));
        let busy = self.in_flight() >= limits.in_flight;
        let busy = busy.then_some(AdmissionRefusal::Busy { limit: limits.in_flight });
        let found = by_key.or(by_id);
        let conflicts = found.filter(|at| self.cmds[*at].fingerprint != submission.fingerprint);
        if found.is_none()
            && let Some(busy) = busy
        {
            return Admission::Refuse(busy);
        }
        if found.is_none() || conflicts.is_some() {
            if let Some(fast) = self.rate_exceeded(submission.rate_class, &submission.session) {
                return Admission::Refuse(AdmissionRefusal::RateLimited(fast));
            }
            self.rate_events.push((self.now, submission.rate_class, submission.session.clone()));
        }
        if let Some(at) = conflicts {
            let (identity, name) = match by_key {
                Some(_) => (MatchedBy::Key, submission.key.clone().expect("a key")),
                None => (MatchedBy::Id, Arc::clone(submission.name.text())),
            };
            let earlier = self.cmds[at].kind.clone().into();
            return Admission::Conflict(CommandError::Conflict {
                matched_by: identity,
                name,
                earlier,
                requested: submission.kind.clone(),
            });
        }
        let id = submission.name.client_id().filter(|_| by_id.is_none()).cloned();
        let key = submission.key.clone().filter(|_| by_key.is_none());
        let leader = found.map(|at| self.original_of(at));
        let joins = leader.is_some_and(|at| !is_finished(&self.cmds[at]));
        if found.is_some()
            && (joins || id.is_some() || key.is_some())
            && let Some(busy) = busy
        {
            return Admission::Refuse(busy);
        }
        self.accept(submission, (id, key), leader);
        Admission::Accept
    }

    /// The original command of a duplicate, while that is active.
    fn original_of(&self, at: usize) -> usize {
        self.cmds[at].duplicate_of.filter(|leader| is_active(&self.cmds[*leader])).unwrap_or(at)
    }

    fn accept(
        &mut self,
        submission: &Submission,
        (id, key): (Option<Arc<str>>, Option<Arc<str>>),
        leader: Option<usize>,
    ) {
        let mut awaits = Vec::new();
        let doomed = if leader.is_none() { self.resolve_dependencies(submission, &mut awaits).err() } else { None };
        let remembered = id.is_some() || key.is_some();
        let keeping = leader.filter(|at| !is_finished(&self.cmds[*at])).map(|at| self.cmds[at].persistence);
        self.cmds.push(Cmd {
            ticket: Some(submission.ticket),
            recorded: (id.clone(), key.clone()),
            id: None,
            key: None,
            name: Arc::clone(submission.name.text()),
            kind: submission.kind.to_string(),
            session: submission.session.clone(),
            fingerprint: submission.fingerprint,
            scheduling: submission.scheduling,
            persistence: keeping.unwrap_or(submission.persistence),
            limit: submission.time_limit,
            phase: Phase::Waiting,
            remembered,
            dependencies: awaits,
            duplicate_of: leader,
            failure: doomed,
            outcome: None,
            turn_since: None,
            started: None,
            ended: Now(0),
            row: None,
            runs: 0,
        });
        self.register_names(self.cmds.len() - 1, id, key);
    }

    fn resolve_dependencies(
        &self,
        submission: &Submission,
        awaits: &mut Vec<(usize, Arc<str>)>,
    ) -> Result<(), CommandError> {
        for id in &submission.depends_on {
            let dependency = Arc::clone(id);
            if submission.name.client_id() == Some(id) {
                return Err(CommandError::SelfDependency { name: dependency });
            }
            let Some(at) = self.known_id(id) else {
                return Err(CommandError::UnknownDependency { dependency });
            };
            let cmd = &self.cmds[at];
            match &cmd.outcome {
                Some(outcome) if is_finished(cmd) => {
                    if !outcome.success {
                        return Err(self.dependency_failed(dependency, outcome));
                    }
                }
                Some(_) | None if cmd.session == submission.session => {
                    return Err(CommandError::SameLane { dependency });
                }
                Some(_) | None => {
                    let at = self.original_of(at);
                    if awaits.iter().all(|(other, _)| *other != at) {
                        awaits.push((at, dependency));
                    }
                }
            }
        }
        Ok(())
    }

    fn check_effect(&mut self, input: &Input, effect: &Effect) {
        match effect {
            Effect::PersistAdmission(record) => {
                let at = self.cmds.len() - 1;
                assert!(matches!(input, Input::Submit(_)), "only a new command is stored before it has run");
                let stored = self.cmds[at].persistence == Persistence::WithEffect && self.cmds[at].remembered;
                assert!(stored && self.cmds[at].phase == Phase::Waiting, "{:?}", self.cmds[at]);
                assert!(self.cmds[at].failure.is_none() && self.cmds[at].duplicate_of.is_none());
                self.check_record(at, record);
            }
            Effect::Run { ticket, record } => {
                let at = self.active(*ticket).expect("it is under way");
                let with_effect = self.cmds[at].remembered && self.cmds[at].persistence == Persistence::WithEffect;
                assert_eq!(record.is_some(), with_effect, "{:?}", self.cmds[at]);
                if let Some(record) = record {
                    self.check_record(at, record);
                }
                assert!(self.may_run(at), "{:?} must not run", self.cmds[at]);
                self.cmds[at].phase = Phase::Running;
                self.cmds[at].started = Some(self.now);
                self.cmds[at].runs += 1;
                assert_eq!(self.cmds[at].runs, 1, "it ran before");
                self.ran += 1;
            }
            Effect::Abandon(ticket) => {
                let at = self.active(*ticket).expect("it is under way");
                assert!(self.is_late(&self.cmds[at]) && matches!(input, Input::Deadline));
            }
            Effect::PersistOutcome(ticket, settlement) => {
                let at = self.active(*ticket).expect("it is under way");
                assert_eq!(self.cmds[at].persistence, Persistence::WithEffect);
                assert!(!matches!(input, Input::FinishedWithEffect(own, _) if own == ticket), "it is stored");
                self.check_settled(input, at, settlement);
            }
            Effect::PersistOutcomeLater(settlement) => {
                let names = (settlement.record.id.clone(), settlement.record.key.clone());
                let own = |cmd: &Cmd| {
                    cmd.recorded == names
                        && cmd.session == settlement.record.session
                        && matches!(cmd.phase, Phase::Waiting | Phase::Running)
                        && cmd.remembered
                };
                let at = self.cmds.iter().position(own).expect("it is under way");
                assert_eq!(self.cmds[at].persistence, Persistence::Relaxed);
                self.check_settled(input, at, settlement);
            }
            Effect::Finish { ticket, outcome, replayed } => self.check_finished(input, *ticket, outcome, *replayed),
            Effect::DeleteRecord(row) => {
                assert!(self.finished.len() > self.limits.outcomes, "there is room for {row:?}");
                let oldest = self.finished.remove(0);
                assert_eq!(self.cmds[oldest].row, Some(row.0), "another is the oldest");
                self.cmds[oldest].phase = Phase::Gone;
            }
            Effect::Refuse(..) | Effect::Accept(_) => panic!("{effect:?} in the midst of it"),
        }
    }

    fn check_settled(&mut self, input: &Input, at: usize, settlement: &OutcomeRecord) {
        assert!(self.cmds[at].remembered, "nobody asked to keep {:?}", self.cmds[at]);
        self.check_record(at, &settlement.record);
        assert_eq!(settlement.at, self.now);
        self.check_outcome(input, at, &settlement.outcome);
    }

    /// A command has an outcome: there must be a reason for exactly this one.
    fn check_outcome(&mut self, input: &Input, at: usize, outcome: &CommandOutcome) {
        let cmd = &self.cmds[at];
        let failed = |fault: &CommandError| CommandOutcome::failed(format_error(fault));
        let reason = match (cmd.phase, &cmd.failure, cmd.duplicate_of) {
            (Phase::Running, ..) => match input {
                Input::Finished(ticket, reported) | Input::FinishedWithEffect(ticket, reported) => {
                    Some(*ticket) == cmd.ticket && reported == outcome
                }
                Input::Deadline => {
                    let (name, kind) = (Arc::clone(&cmd.name), cmd.kind.clone().into());
                    let fault = CommandError::TimedOut { name, kind, millis: cmd.limit.unwrap_or(0) };
                    self.is_late(cmd) && CommandOutcome { timed_out: true, ..failed(&fault) } == *outcome
                }
                _ => false,
            },
            (Phase::Waiting, Some(fault), _) => failed(fault) == *outcome,
            (Phase::Waiting, None, Some(leader)) => {
                !is_active(&self.cmds[leader]) && self.cmds[leader].outcome.as_ref() == Some(outcome)
            }
            (Phase::Waiting, None, None) => {
                let lost = |(other, id): &(usize, Arc<str>)| {
                    let other = self.cmds[*other].outcome.clone().filter(|_| !is_active(&self.cmds[*other]));
                    let other = other.filter(|outcome| !outcome.success);
                    other.is_some_and(|other| failed(&self.dependency_failed(Arc::clone(id), &other)) == *outcome)
                };
                cmd.dependencies.iter().any(lost)
                    || (matches!(input, Input::Deadline) && self.dependency_timed_out(cmd, outcome))
            }
            (Phase::Ended { .. } | Phase::Finished | Phase::Gone, ..) => false,
        };
        assert!(reason, "no reason for {outcome:?} of {cmd:?}");
        let has_turn = cmd.phase == Phase::Running && cmd.scheduling != Scheduling::Bypass;
        let cmd = &mut self.cmds[at];
        cmd.phase = Phase::Ended { has_turn };
        cmd.outcome = Some(outcome.clone());
        cmd.ended = self.now;
    }

    fn dependency_timed_out(&self, cmd: &Cmd, outcome: &CommandOutcome) -> bool {
        let Some((_, id)) = self.unresolved(cmd) else { return false };
        let millis = self.limits.dependency_millis;
        let fault = CommandError::DependencyTimeout { dependency: Arc::clone(id), millis };
        let over = cmd.turn_since.is_some_and(|since| since.after(millis) <= self.now);
        over && CommandOutcome::failed(format_error(&fault)) == *outcome
    }

    /// The sender of a command gets its outcome.
    fn check_finished(&mut self, input: &Input, ticket: SubmissionId, outcome: &CommandOutcome, replayed: bool) {
        let at = self.active(ticket).expect("it is under way");
        let committed = matches!(input, Input::FinishedWithEffect(own, _) if *own == ticket);
        let unwritten = !self.cmds[at].remembered || self.cmds[at].persistence == Persistence::Cached || committed;
        if unwritten && !matches!(self.cmds[at].phase, Phase::Ended { .. }) {
            self.check_outcome(input, at, outcome);
        }
        let cmd = &self.cmds[at];
        assert!(matches!(cmd.phase, Phase::Ended { .. }), "{cmd:?} is told before it is written");
        assert_eq!(cmd.outcome.as_ref(), Some(outcome));
        assert_eq!(replayed, cmd.duplicate_of.is_some());
        let waits = cmd.persistence == Persistence::WithEffect && !committed;
        if cmd.remembered && waits {
            let reported = matches!(input, Input::OutcomePersisted(own) | Input::OutcomeFailed(own) if *own == ticket);
            assert!(reported, "{cmd:?} is told before it is written");
        }
        self.replayed += u64::from(replayed);
        self.cmds[at].phase = if self.cmds[at].remembered { Phase::Finished } else { Phase::Gone };
        if self.cmds[at].remembered {
            self.finished.push(at);
        }
        // A cached outcome has no row to delete.
        while self.finished.len() > self.limits.outcomes
            && self.cmds[self.finished[0]].persistence == Persistence::Cached
        {
            let oldest = self.finished.remove(0);
            self.cmds[oldest].phase = Phase::Gone;
        }
    }

    fn check_nothing_pending(&mut self, input: &Input, effects: &[Effect]) {
        for at in 0..self.cmds.len() {
            let cmd = &self.cmds[at];
            assert!(!self.may_run(at), "{cmd:?} should run, after {input:?}: {effects:?}");
            if cmd.phase == Phase::Waiting {
                assert!(cmd.failure.is_none(), "{cmd:?} should have failed");
                let leader = cmd.duplicate_of.map(|leader| &self.cmds[leader]);
                assert!(leader.is_none_or(|leader| leader.outcome.is_none() || is_active(leader)), "{cmd:?}");
                let lost = |(other, _): &(usize, Arc<str>)| {
                    let other = &self.cmds[*other];
                    !is_active(other) && other.outcome.as_ref().is_some_and(|outcome| !outcome.success)
                };
                assert!(!cmd.dependencies.iter().any(lost), "{cmd:?} should have failed with a dependency");
                if cmd.turn_since.is_none() && self.unresolved(cmd).is_some() && self.has_turn(at) {
                    self.cmds[at].turn_since = Some(self.now);
                }
            }
            if matches!(self.cmds[at].phase, Phase::Ended { .. }) {
                let waits = self.cmds[at].persistence == Persistence::WithEffect;
                assert!(waits, "nothing is in its way: {:?}", self.cmds[at]);
            }
        }
        assert!(self.finished.len() <= self.limits.outcomes);
        if matches!(input, Input::Deadline) {
            assert!(self.next_deadline().is_none_or(|at| at > self.now), "something is late and goes on");
        }
    }

    fn may_run(&self, at: usize) -> bool {
        let cmd = &self.cmds[at];
        cmd.phase == Phase::Waiting
            && cmd.duplicate_of.is_none()
            && cmd.failure.is_none()
            && self.has_turn(at)
            && cmd.dependencies.iter().all(|(other, _)| {
                let other = &self.cmds[*other];
                !is_active(other) && other.outcome.as_ref().is_some_and(|outcome| outcome.success)
            })
    }

    fn has_turn(&self, at: usize) -> bool {
        let cmd = &self.cmds[at];
        let in_its_way = |other: &Cmd| {
            let holds = match other.phase {
                Phase::Waiting => other.failure.is_none(),
                Phase::Running => true,
                Phase::Ended { has_turn } => has_turn,
                Phase::Finished | Phase::Gone => false,
            };
            let has_begun = matches!(other.phase, Phase::Running | Phase::Ended { .. });
            let blocks = match (cmd.scheduling, other.scheduling) {
                (_, Scheduling::Bypass) | (Scheduling::Bypass, _) | (Scheduling::Read, Scheduling::Read) => false,
                (Scheduling::Read, Scheduling::LongWrite) => !has_begun,
                (Scheduling::Read, Scheduling::Write) | (Scheduling::Write | Scheduling::LongWrite, _) => true,
            };
            holds && blocks && other.duplicate_of.is_none() && other.session == cmd.session
        };
        cmd.scheduling == Scheduling::Bypass || !self.cmds[..at].iter().any(in_its_way)
    }

    fn unresolved<'a>(&self, cmd: &'a Cmd) -> Option<&'a (usize, Arc<str>)> {
        cmd.dependencies.iter().find(|(other, _)| is_active(&self.cmds[*other]))
    }

    fn is_late(&self, cmd: &Cmd) -> bool {
        let until = cmd.started.and_then(|started| Some(started.after(cmd.limit?)));
        cmd.phase == Phase::Running && until.is_some_and(|until| until <= self.now)
    }

    fn dependency_failed(&self, dependency: Arc<str>, outcome: &CommandOutcome) -> CommandError {
        let text = outcome.body.text().unwrap_or_default();
        let error: String = text.chars().take(self.limits.error_bytes).collect();
        CommandError::DependencyFailed { dependency, error: error.into() }
    }

    fn rate_exceeded(&self, class: RateClass, session: &Option<SessionId>) -> Option<RateExceeded> {
        let rate = self.limits.rate;
        let counts = |of: &dyn Fn(&Option<SessionId>) -> bool| {
            let young = |at: Now| self.now.since(at) < rate.window_millis;
            self.rate_events.iter().filter(|(at, own, whose)| young(*at) && *own == class && of(whose)).count()
        };
        if counts(&|_| true) >= rate.overall {
            return Some(RateExceeded::Overall(rate));
        }
        let own = session.is_some() && counts(&|whose| whose == session) >= rate.session;
        own.then_some(RateExceeded::Session(rate))
    }

    fn delete_session(&mut self, session: &SessionId) {
        let words = quoted_id(session);
        for at in 0..self.cmds.len() {
            let own = self.cmds[at].session.as_ref() == Some(session);
            if own && self.cmds[at].phase == Phase::Finished {
                self.cmds[at].phase = Phase::Gone;
                self.finished.retain(|other| *other != at);
            } else if own && is_active(&self.cmds[at]) {
                self.forget_active(at);
            } else if self.cmds[at].phase == Phase::Finished
                && let Some(outcome) = &mut self.cmds[at].outcome
                && outcome.body.text().is_some_and(|text| text.contains(&words))
            {
                outcome.body = ReplyBody::Removed;
            }
        }
    }

    /// Excludes an active command and its duplicates from the cache.
    fn forget_active(&mut self, at: usize) {
        for (other, cmd) in self.cmds.iter_mut().enumerate() {
            if other == at || (cmd.duplicate_of == Some(at) && cmd.phase == Phase::Waiting) {
                (cmd.remembered, cmd.id, cmd.key) = (false, None, None);
            }
        }
    }

    fn register_names(&mut self, at: usize, id: Option<Arc<str>>, key: Option<Arc<str>>) {
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
            let young = !is_finished(cmd) || self.now.since(cmd.ended) < self.limits.key_millis;
            cmd.key.as_ref() == Some(key) && cmd.session == *session && cmd.phase != Phase::Gone && young
        };
        self.cmds.iter().position(known)
    }

    fn active(&self, ticket: SubmissionId) -> Option<usize> {
        self.cmds.iter().position(|cmd| cmd.ticket == Some(ticket) && is_active(cmd))
    }

    fn check_record(&mut self, at: usize, record: &CommandRecord) {
        let cmd = &mut self.cmds[at];
        assert_same(&record.id, &cmd.recorded.0);
        assert_same(&record.key, &cmd.recorded.1);
        assert_same(&record.session, &cmd.session);
        assert_same(&record.fingerprint, &cmd.fingerprint);
        assert!(cmd.row.is_none_or(|row| row == record.row.0), "one command has one row");
        cmd.row = Some(record.row.0);
        let twice = self.cmds.iter().filter(|other| other.row == Some(record.row.0)).count();
        assert_eq!(twice, 1, "one row has one command");
    }
}

fn restored(stored: &StoredCommand, now: Now) -> Cmd {
    let record = &stored.record;
    let interrupted = || (CommandOutcome::failed(format_error(&CommandError::Interrupted)), now);
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
        scheduling: Scheduling::Bypass,
        persistence: Persistence::WithEffect,
        limit: None,
        phase: Phase::Finished,
        remembered: true,
        dependencies: Vec::new(),
        duplicate_of: None,
        failure: None,
        outcome: Some(outcome),
        turn_since: None,
        started: None,
        ended,
        row: Some(record.row.0),
        runs: 0,
    }
}

fn is_finished(cmd: &Cmd) -> bool {
    matches!(cmd.phase, Phase::Finished)
}

fn is_active(cmd: &Cmd) -> bool {
    matches!(cmd.phase, Phase::Waiting | Phase::Running | Phase::Ended { .. })
}

fn assert_same<T: PartialEq + Debug>(left: &T, right: &T) {
    assert_eq!(left, right);
}

pub(crate) fn format_error(fault: &CommandError) -> String {
    format!("{fault:?}")
}
