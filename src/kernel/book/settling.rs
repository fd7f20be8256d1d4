//! The end of a command: its outcome is written, cached and sent to everyone who waits for it, and the next commands
//! start.

use std::collections::VecDeque;
use std::sync::Arc;

use super::super::id::SessionId;
use super::super::time::Now;
use super::fault::BookFault;
use super::flight::{Flight, State};
use super::names::Place;
use super::record::{Outcome, Record, Settlement};
use super::shelf::Done;
use super::submission::{Keeping, Order, Ticket};
use super::{Book, Effect};

/// Commands that fail because a dependency failed.
type Failing = VecDeque<(Ticket, Outcome)>;

impl Book {
    pub(super) fn finished(&mut self, ticket: Ticket, outcome: Outcome, now: Now, fx: &mut Vec<Effect>) {
        if self.flights.get(&ticket).is_some_and(Flight::is_running) {
            self.conclude(ticket, outcome, false, now, fx);
        }
    }

    /// Fails a command whose admission could not be persisted. Nothing is cached, so that it can be sent again.
    pub(super) fn not_kept(&mut self, ticket: Ticket, now: Now, fx: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get(&ticket).filter(|flight| flight.is_waiting() && !flight.kept)
        else {
            return;
        };
        let outcome = Outcome::failed((flight.spell)(&BookFault::NotKept));
        // The record may be on disk nevertheless and would be found as interrupted.
        fx.push(Effect::Forget(flight.record.row));
        self.disown(ticket);
        self.conclude(ticket, outcome, false, now, fx);
    }

    /// The outcome was written or could not be; in both cases it is published.
    pub(super) fn settled(&mut self, ticket: Ticket, now: Now, fx: &mut Vec<Effect>) {
        let mut failing = Failing::new();
        self.release(ticket, now, &mut failing, fx);
        self.conclude_all(failing, now, fx);
    }

    /// Fails every command that has waited or run for too long.
    pub(super) fn expire(&mut self, now: Now, fx: &mut Vec<Effect>) {
        while let Some((at, ticket)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            self.deadlines.remove(&(at, ticket));
            let Some(flight) = self.flights.get_mut(&ticket) else { continue };
            flight.deadline = None;
            let (fault, ran) = match (&flight.state, flight.awaited.first()) {
                (State::Running, _) => {
                    let (name, kind) = (Arc::clone(&flight.name), flight.record.kind.clone());
                    (BookFault::TimedOut { name, kind, millis: flight.time_limit.unwrap_or(0) }, true)
                }
                (State::Waiting, Some(awaited)) => {
                    let (dependency, millis) = (Arc::clone(&awaited.id), self.limits.dependency_millis);
                    (BookFault::DependencyTimeout { dependency, millis }, false)
                }
                (State::Waiting, None) | (State::Settling { .. }, _) => continue,
            };
            let outcome = Outcome { timed_out: ran, ..Outcome::failed((flight.spell)(&fault)) };
            if ran {
                fx.push(Effect::Abandon(ticket));
            }
            self.conclude(ticket, outcome, false, now, fx);
        }
    }

    /// Removes everything about a session; commands in flight in it will not be cached.
    pub(super) fn erase(&mut self, session: &SessionId) {
        for (spot, done) in self.shelf.erase(session) {
            self.names.unbind(&done.record, Place::Shelved(spot));
        }
        let own = |flight: &Flight| flight.record.session.as_ref() == Some(session);
        let under_way: Vec<Ticket> =
            self.flights.iter().filter(|(_, flight)| own(flight)).map(|(ticket, _)| *ticket).collect();
        for ticket in under_way {
            self.disown(ticket);
        }
    }

    /// Completes a command, and fails those that depend on it if it failed.
    pub(super) fn conclude(
        &mut self,
        ticket: Ticket,
        outcome: Outcome,
        replayed: bool,
        now: Now,
        fx: &mut Vec<Effect>,
    ) {
        let mut failing = Failing::new();
        self.conclude_one(ticket, (outcome, replayed), now, &mut failing, fx);
        self.conclude_all(failing, now, fx);
    }

    /// Iterates over a queue, because a chain of dependent commands may be too long for recursion.
    fn conclude_all(&mut self, mut failing: Failing, now: Now, fx: &mut Vec<Effect>) {
        while let Some((ticket, outcome)) = failing.pop_front() {
            self.conclude_one(ticket, (outcome, false), now, &mut failing, fx);
        }
    }

    fn conclude_one(
        &mut self,
        ticket: Ticket,
        (outcome, replayed): (Outcome, bool),
        now: Now,
        failing: &mut Failing,
        fx: &mut Vec<Effect>,
    ) {
        self.set_deadline(ticket, None);
        let Some(flight) = self.flights.get_mut(&ticket).filter(|flight| !flight.is_settling()) else {
            // It has already failed for another reason in the same step.
            return;
        };
        let settlement =
            || Settlement { record: Arc::clone(&flight.record), outcome: outcome.clone(), at: now };
        let waits_for_the_disk = match (flight.remembered, flight.keeping) {
            (true, Keeping::Durable) => {
                fx.push(Effect::Settle(ticket, settlement()));
                true
            }
            (true, Keeping::Light) => {
                fx.push(Effect::SettleLater(settlement()));
                false
            }
            (false, _) => false,
        };
        let never_ran = flight.is_waiting();
        flight.state = State::Settling { outcome, replayed, at: now };
        if !waits_for_the_disk {
            self.release(ticket, now, failing, fx);
        } else if never_ran && flight.order != Order::Overtakes {
            // It blocks no other command while its outcome is written.
            let record = Arc::clone(&flight.record);
            self.leave_lane(&record, now, fx);
        }
    }

    /// Sends the outcome of a command to everyone who waits for it, and caches it.
    fn release(&mut self, ticket: Ticket, now: Now, failing: &mut Failing, fx: &mut Vec<Effect>) {
        if !self.flights.get(&ticket).is_some_and(Flight::is_settling) {
            return;
        }
        let Some(flight) = self.flights.remove(&ticket) else { return };
        let State::Settling { outcome, replayed, at } = flight.state else { return };
        if flight.remembered {
            let record = Arc::clone(&flight.record);
            let spot = self.shelf.put(Done { record, outcome: outcome.clone(), at }, &self.limits);
            self.names.rebind(&flight.record, Place::Flying(ticket), Place::Shelved(spot));
        }
        fx.push(Effect::Finished { ticket, outcome: outcome.clone(), replayed });
        self.forget_beyond_limit(fx);
        self.followers -= flight.followers.len();
        for follower in flight.followers {
            let Some(record) = follower.record.filter(|_| flight.remembered) else {
                let ticket = follower.ticket;
                fx.push(Effect::Finished { ticket, outcome: outcome.clone(), replayed: true });
                continue;
            };
            self.names.rebind(&record, Place::Flying(ticket), Place::Flying(follower.ticket));
            let repetition = Flight::repetition(follower.name, record, flight.keeping, flight.spell);
            self.flights.insert(follower.ticket, repetition);
            self.conclude_one(follower.ticket, (outcome.clone(), true), now, failing, fx);
        }
        for dependent in flight.dependents {
            self.resolve(dependent, ticket, &outcome, now, failing, fx);
        }
        if flight.order != Order::Overtakes {
            self.leave_lane(&flight.record, now, fx);
        }
    }

    /// Informs a command that one of its dependencies has ended.
    fn resolve(
        &mut self,
        ticket: Ticket,
        other: Ticket,
        outcome: &Outcome,
        now: Now,
        failing: &mut Failing,
        fx: &mut Vec<Effect>,
    ) {
        let Some(flight) = self.flights.get_mut(&ticket).filter(|flight| flight.is_waiting()) else { return };
        let Some(at) = flight.awaited.iter().position(|awaited| awaited.ticket == other) else { return };
        if outcome.success {
            flight.awaited.remove(at);
            return self.attend(ticket, now, fx);
        }
        // The failed dependency stays listed, so that the command does not start in the meantime.
        let (spell, id) = (flight.spell, flight.awaited.get(at).map(|awaited| Arc::clone(&awaited.id)));
        let fault = self.dependency_failed(id.unwrap_or_default(), outcome);
        failing.push_back((ticket, Outcome::failed(spell(&fault))));
    }

    fn leave_lane(&mut self, record: &Record, now: Now, fx: &mut Vec<Effect>) {
        for next in self.lanes.leave(record) {
            self.attend(next, now, fx);
        }
    }

    /// Evicts the oldest outcomes beyond the limit.
    pub(super) fn forget_beyond_limit(&mut self, fx: &mut Vec<Effect>) {
        while let Some((spot, oldest)) = self.shelf.pop_beyond(self.limits.outcomes) {
            self.names.unbind(&oldest.record, Place::Shelved(spot));
            fx.push(Effect::Forget(oldest.record.row));
        }
    }

    /// Removes the names of a command in flight and of its repetitions.
    fn disown(&mut self, ticket: Ticket) {
        let Some(flight) = self.flights.get_mut(&ticket) else { return };
        flight.remembered = false;
        let records = flight.followers.iter().filter_map(|follower| follower.record.clone());
        for record in records.chain([Arc::clone(&flight.record)]).collect::<Vec<_>>() {
            self.names.unbind(&record, Place::Flying(ticket));
        }
    }
}
