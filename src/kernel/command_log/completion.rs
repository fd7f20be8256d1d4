//! The end of a command: its outcome is written, cached and sent to everyone who waits for it, and the next commands
//! start.

use std::collections::VecDeque;
use std::sync::Arc;

use super::super::id::SessionId;
use super::super::time::Now;
use super::active::{ActiveCommand, CommandState};
use super::error::CommandError;
use super::name_index::Location;
use super::outcome_cache::FinishedCommand;
use super::record::{CommandOutcome, CommandRecord, OutcomeRecord};
use super::submission::{Persistence, Scheduling, SubmissionId};
use super::{CommandLog, Effect};

/// Commands that fail because a dependency failed.
type FailureQueue = VecDeque<(SubmissionId, CommandOutcome)>;

impl CommandLog {
    pub(super) fn handle_finished(
        &mut self,
        ticket: SubmissionId,
        outcome: CommandOutcome,
        now: Now,
        fx: &mut Vec<Effect>,
    ) {
        if self.active.get(&ticket).is_some_and(ActiveCommand::is_running) {
            self.complete(ticket, outcome, false, now, fx);
        }
    }

    pub(super) fn handle_finished_with_effect(
        &mut self,
        ticket: SubmissionId,
        outcome: CommandOutcome,
        now: Now,
        fx: &mut Vec<Effect>,
    ) {
        if let Some(command) = self.active.get_mut(&ticket).filter(|command| command.is_running()) {
            command.outcome_committed = true;
            self.complete(ticket, outcome, false, now, fx);
        }
    }

    /// The outcome was written or could not be; in both cases it is published.
    pub(super) fn outcome_persisted(&mut self, ticket: SubmissionId, now: Now, fx: &mut Vec<Effect>) {
        let mut failing = FailureQueue::new();
        self.publish(ticket, now, &mut failing, fx);
        self.complete_all(failing, now, fx);
    }

    /// Fails every command that has waited or run for too long.
    pub(super) fn expire(&mut self, now: Now, fx: &mut Vec<Effect>) {
        while let Some((at, ticket)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            self.deadlines.remove(&(at, ticket));
            let Some(command) = self.active.get_mut(&ticket) else { continue };
            command.deadline = None;
            let (error, ran) = match (&command.state, command.unmet.first()) {
                (CommandState::Running, _) => {
                    let (name, kind) = (Arc::clone(&command.name), command.record.kind.clone());
                    (CommandError::TimedOut { name, kind, millis: command.time_limit.unwrap_or(0) }, true)
                }
                (CommandState::Waiting, Some(unmet)) => {
                    let (dependency, millis) = (Arc::clone(&unmet.id), self.limits.dependency_millis);
                    (CommandError::DependencyTimeout { dependency, millis }, false)
                }
                (CommandState::Waiting, None) | (CommandState::Settling { .. }, _) => continue,
            };
            let outcome = CommandOutcome { timed_out: ran, ..CommandOutcome::failed((command.format_error)(&error)) };
            if ran {
                fx.push(Effect::Abandon(ticket));
            }
            self.complete(ticket, outcome, false, now, fx);
        }
    }

    /// Removes everything about a session; commands in flight in it will not be cached.
    pub(super) fn forget_session(&mut self, session: &SessionId) {
        for (slot, done) in self.outcomes.remove_session(session) {
            self.names.unbind(&done.record, Location::Finished(slot));
        }
        let own = |command: &ActiveCommand| command.record.session.as_ref() == Some(session);
        let under_way: Vec<SubmissionId> =
            self.active.iter().filter(|(_, command)| own(command)).map(|(ticket, _)| *ticket).collect();
        for ticket in under_way {
            self.forget_names(ticket);
        }
    }

    /// Completes a command, and fails those that depend on it if it failed.
    pub(super) fn complete(
        &mut self,
        ticket: SubmissionId,
        outcome: CommandOutcome,
        replayed: bool,
        now: Now,
        fx: &mut Vec<Effect>,
    ) {
        let mut failing = FailureQueue::new();
        self.complete_one(ticket, (outcome, replayed), now, &mut failing, fx);
        self.complete_all(failing, now, fx);
    }

    /// Iterates over a queue, because a chain of dependent commands may be too long for recursion.
    fn complete_all(&mut self, mut failing: FailureQueue, now: Now, fx: &mut Vec<Effect>) {
        while let Some((ticket, outcome)) = failing.pop_front() {
            self.complete_one(ticket, (outcome, false), now, &mut failing, fx);
        }
    }

    fn complete_one(
        &mut self,
        ticket: SubmissionId,
        (outcome, replayed): (CommandOutcome, bool),
        now: Now,
        failing: &mut FailureQueue,
        fx: &mut Vec<Effect>,
    ) {
        self.set_deadline(ticket, None);
        let Some(command) = self.active.get_mut(&ticket).filter(|command| !command.is_settling()) else {
            // It has already failed for another reason in the same step.
            return;
        };
        let settlement = || OutcomeRecord { record: Arc::clone(&command.record), outcome: outcome.clone(), at: now };
        let waits_for_the_disk = match (command.retained, command.persistence) {
            (true, Persistence::WithEffect) if command.outcome_committed => false,
            (true, Persistence::WithEffect) => {
                fx.push(Effect::PersistOutcome(ticket, settlement()));
                true
            }
            (true, Persistence::Relaxed) => {
                fx.push(Effect::PersistOutcomeLater(settlement()));
                false
            }
            (true, Persistence::Cached) | (false, _) => false,
        };
        let never_ran = command.is_waiting();
        command.state = CommandState::Settling { outcome, replayed, at: now };
        if !waits_for_the_disk {
            self.publish(ticket, now, failing, fx);
        } else if never_ran && command.scheduling != Scheduling::Bypass {
            // It blocks no other command while its outcome is written.
            let record = Arc::clone(&command.record);
            self.leave_lane(&record, now, fx);
        }
    }

    /// Sends the outcome of a command to everyone who waits for it, and caches it.
    fn publish(&mut self, ticket: SubmissionId, now: Now, failing: &mut FailureQueue, fx: &mut Vec<Effect>) {
        if !self.active.get(&ticket).is_some_and(ActiveCommand::is_settling) {
            return;
        }
        let Some(command) = self.active.remove(&ticket) else { return };
        let CommandState::Settling { outcome, replayed, at } = command.state else { return };
        if command.retained {
            let record = Arc::clone(&command.record);
            let stored = command.persistence != Persistence::Cached;
            let finished = FinishedCommand { record, outcome: outcome.clone(), at, stored };
            let slot = self.outcomes.insert(finished, &self.limits);
            self.names.rebind(&command.record, Location::Active(ticket), Location::Finished(slot));
        }
        fx.push(Effect::Finish { ticket, outcome: outcome.clone(), replayed });
        self.evict_beyond_limit(fx);
        self.waiting_duplicates -= command.duplicates.len();
        for duplicate in command.duplicates {
            let Some(record) = duplicate.record.filter(|_| command.retained) else {
                let ticket = duplicate.ticket;
                fx.push(Effect::Finish { ticket, outcome: outcome.clone(), replayed: true });
                continue;
            };
            self.names.rebind(&record, Location::Active(ticket), Location::Active(duplicate.ticket));
            let repetition =
                ActiveCommand::duplicate(duplicate.name, record, command.persistence, command.format_error);
            self.active.insert(duplicate.ticket, repetition);
            self.complete_one(duplicate.ticket, (outcome.clone(), true), now, failing, fx);
        }
        for dependent in command.dependents {
            self.resolve_dependency(dependent, ticket, &outcome, now, failing, fx);
        }
        if command.scheduling != Scheduling::Bypass {
            self.leave_lane(&command.record, now, fx);
        }
    }

    /// Informs a command that one of its dependencies has ended.
    fn resolve_dependency(
        &mut self,
        ticket: SubmissionId,
        other: SubmissionId,
        outcome: &CommandOutcome,
        now: Now,
        failing: &mut FailureQueue,
        fx: &mut Vec<Effect>,
    ) {
        let Some(command) = self.active.get_mut(&ticket).filter(|command| command.is_waiting()) else {
            return;
        };
        let Some(at) = command.unmet.iter().position(|unmet| unmet.ticket == other) else { return };
        if outcome.success {
            command.unmet.remove(at);
            return self.try_start(ticket, now, fx);
        }
        // The failed dependency stays listed, so that the command does not start in the meantime.
        let (format_error, id) = (command.format_error, command.unmet.get(at).map(|unmet| Arc::clone(&unmet.id)));
        let error = self.dependency_failed(id.unwrap_or_default(), outcome);
        failing.push_back((ticket, CommandOutcome::failed(format_error(&error))));
    }

    fn leave_lane(&mut self, record: &CommandRecord, now: Now, fx: &mut Vec<Effect>) {
        for next in self.lanes.leave(record) {
            self.try_start(next, now, fx);
        }
    }

    /// Evicts the oldest outcomes beyond the limit.
    pub(super) fn evict_beyond_limit(&mut self, fx: &mut Vec<Effect>) {
        while let Some((slot, oldest)) = self.outcomes.evict_beyond(self.limits.outcomes) {
            self.names.unbind(&oldest.record, Location::Finished(slot));
            if oldest.stored {
                fx.push(Effect::DeleteRecord(oldest.record.row));
            }
        }
    }

    /// Removes the names of a command in flight and of its repetitions.
    fn forget_names(&mut self, ticket: SubmissionId) {
        let Some(command) = self.active.get_mut(&ticket) else { return };
        command.retained = false;
        let records = command.duplicates.iter().filter_map(|duplicate| duplicate.record.clone());
        for record in records.chain([Arc::clone(&command.record)]).collect::<Vec<_>>() {
            self.names.unbind(&record, Location::Active(ticket));
        }
    }
}
