//! A command ends: its outcome is written, remembered and told to all who wait for it, and others get their turn.

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

/// Commands that end because another did.
type Failing = VecDeque<(Ticket, Outcome)>;

impl Book {
    pub(super) fn finished(&mut self, ticket: Ticket, outcome: Outcome, now: Now, fx: &mut Vec<Effect>) {
        if self.flights.get(&ticket).is_some_and(Flight::is_running) {
            self.conclude(ticket, outcome, false, now, fx);
        }
    }

    /// Ends a command that could not be kept; nothing is remembered of it, so that it can be sent again.
    pub(super) fn not_kept(&mut self, ticket: Ticket, now: Now, fx: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get(&ticket).filter(|flight| flight.is_waiting() && !flight.kept)
        else {
            return;
        };
        let outcome = Outcome::failed((flight.spell)(&BookFault::NotKept));
        // It may be on disk in spite of all, and would then be found as interrupted.
        fx.push(Effect::Forget(flight.record.row));
        self.disown(ticket);
        self.conclude(ticket, outcome, false, now, fx);
    }

    /// The outcome of a command is written, or cannot be: either way it is told.
    pub(super) fn settled(&mut self, ticket: Ticket, now: Now, fx: &mut Vec<Effect>) {
        let mut failing = Failing::new();
        self.release(ticket, now, &mut failing, fx);
        self.conclude_all(failing, now, fx);
    }

    /// Ends whatever has waited or run for too long.
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

    /// Forgets everything of a session, and that what is under way in it was to be remembered.
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

    /// Ends a command, and all that cannot succeed without it.
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

    /// Works a list off, as a chain of commands may be longer than a stack is deep.
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
            // It failed for another reason in the same step.
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
            // It holds nobody up while its outcome is written.
            let record = Arc::clone(&flight.record);
            self.leave_lane(&record, now, fx);
        }
    }

    /// Tells the outcome of a command to all who wait for it, and remembers it.
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

    /// Tells a command that one which it depends on is over.
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
        // What it waits for stays, so that it is not run in the meantime.
        let (spell, id) = (flight.spell, flight.awaited.get(at).map(|awaited| Arc::clone(&awaited.id)));
        let fault = self.dependency_failed(id.unwrap_or_default(), outcome);
        failing.push_back((ticket, Outcome::failed(spell(&fault))));
    }

    fn leave_lane(&mut self, record: &Record, now: Now, fx: &mut Vec<Effect>) {
        for next in self.lanes.leave(record) {
            self.attend(next, now, fx);
        }
    }

    /// Forgets the oldest outcomes for which there is no room.
    pub(super) fn forget_beyond_limit(&mut self, fx: &mut Vec<Effect>) {
        while let Some((spot, oldest)) = self.shelf.pop_beyond(self.limits.outcomes) {
            self.names.unbind(&oldest.record, Place::Shelved(spot));
            fx.push(Effect::Forget(oldest.record.row));
        }
    }

    /// Takes a command under way, and those who repeat it, their names.
    fn disown(&mut self, ticket: Ticket) {
        let Some(flight) = self.flights.get_mut(&ticket) else { return };
        flight.remembered = false;
        let records = flight.followers.iter().filter_map(|follower| follower.record.clone());
        for record in records.chain([Arc::clone(&flight.record)]).collect::<Vec<_>>() {
            self.names.unbind(&record, Place::Flying(ticket));
        }
    }
}
