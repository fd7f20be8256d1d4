//! Admission of a command: whether it is accepted, whether it repeats another, its dependencies, and when it runs.

use std::sync::Arc;

use super::super::time::Now;
use super::active::{ActiveCommand, CommandState, Dependency, Duplicate};
use super::error::{AdmissionRefusal, CommandError, MatchedBy};
use super::name_index::Location;
use super::outcome_cache::FinishedCommand;
use super::record::{CommandOutcome, CommandRecord, Kind, ReplyBody};
use super::submission::{Persistence, RateClass, Scheduling, Submission, SubmissionId};
use super::{CommandLog, Effect};

/// The classification of a submission.
enum Classification {
    /// A new command.
    New,
    /// A repetition of a known command, possibly under some new names.
    Repetition(Location, NewNames),
    /// Another command under a known name.
    Conflict(CommandError),
}

/// The names of a submission that are not known yet.
struct NewNames {
    id: Option<Arc<str>>,
    key: Option<Arc<str>>,
}

impl NewNames {
    const fn is_empty(&self) -> bool {
        self.id.is_none() && self.key.is_none()
    }
}

impl CommandLog {
    pub(super) fn submit(&mut self, submission: Submission, now: Now, fx: &mut Vec<Effect>) {
        let ticket = submission.ticket;
        let checked = match self.classify(&submission, now) {
            Ok(checked) => checked,
            Err(refusal) => {
                if matches!(refusal, AdmissionRefusal::Busy { .. }) {
                    self.refused_as_busy += 1;
                }
                return fx.push(Effect::Refuse(ticket, refusal));
            }
        };
        fx.push(Effect::Accept(ticket));
        match checked {
            Classification::New => self.admit(submission, now, fx),
            Classification::Repetition(location, new_names) => {
                self.answer_duplicate(&submission, location, new_names, now, fx)
            }
            Classification::Conflict(error) => {
                let outcome = CommandOutcome::failed((submission.format_error)(&error));
                fx.push(Effect::Finish { ticket, outcome, replayed: false });
            }
        }
    }

    fn classify(&mut self, submission: &Submission, now: Now) -> Result<Classification, AdmissionRefusal> {
        if self.shutting_down {
            return Err(AdmissionRefusal::ShuttingDown);
        }
        if submission.depends_on.len() > self.limits.dependencies {
            return Err(AdmissionRefusal::TooManyDependencies { limit: self.limits.dependencies });
        }
        let by_key = self.locate_key(submission, now);
        let by_id = submission.name.client_id().and_then(|id| self.names.id(id));
        // The key takes precedence over the id.
        let found =
            by_key.map(|location| (location, MatchedBy::Key)).or(by_id.map(|location| (location, MatchedBy::Id)));
        let known = found.and_then(|(location, matched_by)| Some((location, matched_by, self.record_at(location)?)));
        let Some((location, matched_by, known)) = known else {
            self.check_capacity()?;
            self.charge_rate(submission, now)?;
            return Ok(Classification::New);
        };
        if known.fingerprint != submission.fingerprint {
            let earlier = known.kind.clone();
            self.charge_rate(submission, now)?;
            return Ok(Classification::Conflict(conflict(submission, matched_by, earlier)));
        }
        let new_names = NewNames {
            id: submission.name.client_id().filter(|_| by_id.is_none()).cloned(),
            key: submission.key.clone().filter(|_| by_key.is_none()),
        };
        if matches!(location, Location::Active(_)) || !new_names.is_empty() {
            self.check_capacity()?;
        }
        Ok(Classification::Repetition(location, new_names))
    }

    /// Finds a command by its key, unless the key has expired.
    fn locate_key(&self, submission: &Submission, now: Now) -> Option<Location> {
        let location = self.names.key(submission.session.as_ref(), submission.key.as_ref()?)?;
        match location {
            Location::Active(_) => Some(location),
            Location::Finished(slot) => {
                let age = now.since(self.outcomes.get(slot)?.at);
                (age < self.limits.key_millis).then_some(location)
            }
        }
    }

    fn record_at(&self, location: Location) -> Option<&Arc<CommandRecord>> {
        match location {
            Location::Active(ticket) => self.active.get(&ticket).map(|command| &command.record),
            Location::Finished(slot) => self.outcomes.get(slot).map(|done| &done.record),
        }
    }

    fn check_capacity(&self) -> Result<(), AdmissionRefusal> {
        let limit = self.limits.in_flight;
        if self.in_flight() < limit { Ok(()) } else { Err(AdmissionRefusal::Busy { limit }) }
    }

    fn charge_rate(&mut self, submission: &Submission, now: Now) -> Result<(), AdmissionRefusal> {
        match submission.rate_class {
            RateClass::Ordinary => {
                self.rate.try_acquire(submission.session.as_ref(), now).map_err(AdmissionRefusal::RateLimited)
            }
            RateClass::Control => {
                self.control_rate.try_acquire(submission.session.as_ref(), now).map_err(AdmissionRefusal::RateLimited)
            }
        }
    }

    /// Replies with the known outcome, or waits for it together with the first command.
    fn answer_duplicate(
        &mut self,
        submission: &Submission,
        location: Location,
        new_names: NewNames,
        now: Now,
        fx: &mut Vec<Effect>,
    ) {
        let record = (!new_names.is_empty()).then(|| self.new_record(submission, new_names, now));
        match location {
            Location::Active(leader) => {
                if let Some(record) = &record {
                    self.names.bind(record, location);
                }
                if let Some(command) = self.active.get_mut(&leader) {
                    let name = Arc::clone(submission.name.text());
                    command.duplicates.push(Duplicate { ticket: submission.ticket, name, record });
                    self.waiting_duplicates += 1;
                }
            }
            Location::Finished(slot) => {
                let Some(FinishedCommand { outcome, .. }) = self.outcomes.get(slot) else { return };
                let (ticket, outcome) = (submission.ticket, outcome.clone());
                let Some(record) = record else {
                    return fx.push(Effect::Finish { ticket, outcome, replayed: true });
                };
                self.names.bind(&record, Location::Active(ticket));
                let name = Arc::clone(submission.name.text());
                let command = ActiveCommand::duplicate(name, record, submission.persistence, submission.format_error);
                self.active.insert(ticket, command);
                self.complete(ticket, outcome, true, now, fx);
            }
        }
    }

    fn new_record(&mut self, submission: &Submission, names: NewNames, now: Now) -> Arc<CommandRecord> {
        Arc::new(CommandRecord {
            row: self.allocate_row(),
            id: names.id,
            key: names.key,
            kind: submission.kind.clone(),
            session: submission.session.clone(),
            fingerprint: submission.fingerprint,
            admitted_at: now,
        })
    }

    fn admit(&mut self, submission: Submission, now: Now, fx: &mut Vec<Effect>) {
        let ticket = submission.ticket;
        let names = NewNames { id: submission.name.client_id().cloned(), key: submission.key.clone() };
        let record = self.new_record(&submission, names, now);
        let checked = self.resolve_dependencies(&submission);
        self.names.bind(&record, Location::Active(ticket));
        let unmet = match checked {
            Ok(unmet) => unmet,
            Err(error) => {
                let outcome = CommandOutcome::failed((submission.format_error)(&error));
                self.active.insert(ticket, ActiveCommand::new(&submission, record, Vec::new()));
                return self.complete(ticket, outcome, false, now, fx);
            }
        };
        for Dependency { ticket: other, .. } in &unmet {
            if let Some(other) = self.active.get_mut(other) {
                other.dependents.push(ticket);
            }
        }
        let command = ActiveCommand::new(&submission, record, unmet);
        self.lanes.enter(&command.record, ticket, command.scheduling);
        self.active.insert(ticket, command);
        self.try_start(ticket, now, fx);
        // A command that waits must be known after a restart, although nothing waits for that.
        let waits = |command: &&ActiveCommand| {
            command.retained && command.persistence == Persistence::WithEffect && command.is_waiting()
        };
        if let Some(command) = self.active.get(&ticket).filter(waits) {
            fx.push(Effect::PersistAdmission(Arc::clone(&command.record)));
        }
    }

    /// Returns the unmet dependencies of a new command, or why it cannot succeed.
    fn resolve_dependencies(&self, submission: &Submission) -> Result<Vec<Dependency>, CommandError> {
        let mut unmet: Vec<Dependency> = Vec::new();
        for id in &submission.depends_on {
            let dependency = Arc::clone(id);
            if submission.name.client_id() == Some(id) {
                return Err(CommandError::SelfDependency { name: dependency });
            }
            match self.names.id(id) {
                None => return Err(CommandError::UnknownDependency { dependency }),
                Some(Location::Finished(slot)) => {
                    let Some(done) = self.outcomes.get(slot) else {
                        return Err(CommandError::UnknownDependency { dependency });
                    };
                    if !done.outcome.success {
                        return Err(self.dependency_failed(dependency, &done.outcome));
                    }
                }
                Some(Location::Active(ticket)) => {
                    let other = self.active.get(&ticket);
                    if other.is_some_and(|other| other.record.session == submission.session) {
                        return Err(CommandError::SameLane { dependency });
                    }
                    if unmet.iter().all(|other| other.ticket != ticket) {
                        unmet.push(Dependency { ticket, id: dependency });
                    }
                }
            }
        }
        Ok(unmet)
    }

    pub(super) fn dependency_failed(&self, dependency: Arc<str>, outcome: &CommandOutcome) -> CommandError {
        let error = match &outcome.body {
            ReplyBody::Text(text) if text.len() <= self.limits.error_bytes => Arc::clone(text),
            ReplyBody::Text(text) => prefix(text, self.limits.error_bytes).into(),
            ReplyBody::TooLarge(_) => "".into(),
            ReplyBody::Removed => "".into(),
        };
        CommandError::DependencyFailed { dependency, error }
    }

    /// Starts a command that waits for nothing more, or starts the dependency timeout of one that waits for others.
    pub(super) fn try_start(&mut self, ticket: SubmissionId, now: Now, fx: &mut Vec<Effect>) {
        let Some(command) = self.active.get_mut(&ticket) else { return };
        let has_turn =
            command.scheduling == Scheduling::Bypass || self.lanes.is_turn_of(&command.record, command.scheduling);
        if !command.is_waiting() || !has_turn {
            return;
        }
        if !command.unmet.is_empty() {
            if command.deadline.is_none() {
                self.set_deadline(ticket, Some(now.after(self.limits.dependency_millis)));
            }
            return;
        }
        command.state = CommandState::Running;
        let limit = command.time_limit.map(|millis| now.after(millis));
        let reads = self.lanes.start(&command.record);
        let with_effect = command.retained && command.persistence == Persistence::WithEffect;
        let record = with_effect.then(|| Arc::clone(&command.record));
        self.set_deadline(ticket, limit);
        fx.push(Effect::Run { ticket, record });
        for read in reads {
            self.try_start(read, now, fx);
        }
    }

    pub(super) fn set_deadline(&mut self, ticket: SubmissionId, deadline: Option<Now>) {
        let Some(command) = self.active.get_mut(&ticket) else { return };
        if let Some(before) = std::mem::replace(&mut command.deadline, deadline) {
            self.deadlines.remove(&(before, ticket));
        }
        if let Some(at) = deadline {
            self.deadlines.insert((at, ticket));
        }
    }
}

fn conflict(submission: &Submission, matched_by: MatchedBy, earlier: Kind) -> CommandError {
    let name = match (matched_by, &submission.key) {
        (MatchedBy::Key, Some(key)) => Arc::clone(key),
        (MatchedBy::Key, None) | (MatchedBy::Id, _) => Arc::clone(submission.name.text()),
    };
    CommandError::Conflict { matched_by, name, earlier, requested: submission.kind.clone() }
}

/// Returns the beginning of a text, at most `most` bytes, cut at a character boundary.
fn prefix(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
