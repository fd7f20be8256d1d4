//! Admission of a command: whether it is accepted, whether it repeats another, its dependencies, and when it runs.

use std::sync::Arc;

use super::super::time::Now;
use super::fault::{BookFault, BookRefusal, Identity};
use super::flight::{Awaited, Flight, Follower, State};
use super::names::Place;
use super::record::{Body, Kind, Outcome, Record};
use super::shelf::Done;
use super::submission::{Counting, Order, Submission, Ticket};
use super::{Book, Effect};

/// The classification of a submission.
enum Judged {
    /// A new command.
    New,
    /// A repetition of a known command, possibly under some new names.
    Repetition(Place, Fresh),
    /// Another command under a known name.
    Conflict(BookFault),
}

/// The names of a submission that are not known yet.
struct Fresh {
    id: Option<Arc<str>>,
    key: Option<Arc<str>>,
}

impl Fresh {
    const fn is_empty(&self) -> bool {
        self.id.is_none() && self.key.is_none()
    }
}

impl Book {
    pub(super) fn submit(&mut self, asked: Submission, now: Now, fx: &mut Vec<Effect>) {
        let ticket = asked.ticket;
        let judged = match self.judge(&asked, now) {
            Ok(judged) => judged,
            Err(refusal) => {
                if matches!(refusal, BookRefusal::Busy { .. }) {
                    self.refused_as_busy += 1;
                }
                return fx.push(Effect::Refuse(ticket, refusal));
            }
        };
        fx.push(Effect::Accepted(ticket));
        match judged {
            Judged::New => self.admit(asked, now, fx),
            Judged::Repetition(place, fresh) => self.repeat(&asked, place, fresh, now, fx),
            Judged::Conflict(fault) => {
                let outcome = Outcome::failed((asked.spell)(&fault));
                fx.push(Effect::Finished { ticket, outcome, replayed: false });
            }
        }
    }

    fn judge(&mut self, asked: &Submission, now: Now) -> Result<Judged, BookRefusal> {
        if self.shutting_down {
            return Err(BookRefusal::ShuttingDown);
        }
        if asked.depends_on.len() > self.limits.dependencies {
            return Err(BookRefusal::TooManyDependencies { limit: self.limits.dependencies });
        }
        let by_key = self.place_of_key(asked, now);
        let by_id = asked.name.given().and_then(|id| self.names.id(id));
        // The key takes precedence over the id.
        let found = by_key.map(|place| (place, Identity::Key)).or(by_id.map(|place| (place, Identity::Id)));
        let known = found.and_then(|(place, identity)| Some((place, identity, self.record_at(place)?)));
        let Some((place, identity, known)) = known else {
            self.take_room()?;
            self.count(asked, now)?;
            return Ok(Judged::New);
        };
        if known.fingerprint != asked.fingerprint {
            let earlier = known.kind.clone();
            self.count(asked, now)?;
            return Ok(Judged::Conflict(conflict(asked, identity, earlier)));
        }
        let fresh = Fresh {
            id: asked.name.given().filter(|_| by_id.is_none()).cloned(),
            key: asked.key.clone().filter(|_| by_key.is_none()),
        };
        if matches!(place, Place::Flying(_)) || !fresh.is_empty() {
            self.take_room()?;
        }
        Ok(Judged::Repetition(place, fresh))
    }

    /// Finds a command by its key, unless the key has expired.
    fn place_of_key(&self, asked: &Submission, now: Now) -> Option<Place> {
        let place = self.names.key(asked.session.as_ref(), asked.key.as_ref()?)?;
        match place {
            Place::Flying(_) => Some(place),
            Place::Shelved(spot) => {
                let age = now.since(self.shelf.get(spot)?.at);
                (age < self.limits.key_millis).then_some(place)
            }
        }
    }

    fn record_at(&self, place: Place) -> Option<&Arc<Record>> {
        match place {
            Place::Flying(ticket) => self.flights.get(&ticket).map(|flight| &flight.record),
            Place::Shelved(spot) => self.shelf.get(spot).map(|done| &done.record),
        }
    }

    fn take_room(&self) -> Result<(), BookRefusal> {
        let limit = self.limits.in_flight;
        if self.in_flight() < limit { Ok(()) } else { Err(BookRefusal::Busy { limit }) }
    }

    fn count(&mut self, asked: &Submission, now: Now) -> Result<(), BookRefusal> {
        match asked.counting {
            Counting::Counted => self.rate.take(asked.session.as_ref(), now).map_err(BookRefusal::TooFast),
            Counting::Control => {
                self.control_rate.take(asked.session.as_ref(), now).map_err(BookRefusal::TooFast)
            }
            Counting::Free => Ok(()),
        }
    }

    /// Replies with the known outcome, or waits for it together with the first command.
    fn repeat(&mut self, asked: &Submission, place: Place, fresh: Fresh, now: Now, fx: &mut Vec<Effect>) {
        let record = (!fresh.is_empty()).then(|| self.record(asked, fresh, now));
        match place {
            Place::Flying(leader) => {
                if let Some(record) = &record {
                    self.names.bind(record, place);
                }
                if let Some(flight) = self.flights.get_mut(&leader) {
                    let name = Arc::clone(asked.name.text());
                    flight.followers.push(Follower { ticket: asked.ticket, name, record });
                    self.followers += 1;
                }
            }
            Place::Shelved(spot) => {
                let Some(Done { outcome, .. }) = self.shelf.get(spot) else { return };
                let (ticket, outcome) = (asked.ticket, outcome.clone());
                let Some(record) = record else {
                    return fx.push(Effect::Finished { ticket, outcome, replayed: true });
                };
                self.names.bind(&record, Place::Flying(ticket));
                let name = Arc::clone(asked.name.text());
                let flight = Flight::repetition(name, record, asked.keeping, asked.spell);
                self.flights.insert(ticket, flight);
                self.conclude(ticket, outcome, true, now, fx);
            }
        }
    }

    fn record(&mut self, asked: &Submission, names: Fresh, now: Now) -> Arc<Record> {
        Arc::new(Record {
            row: self.take_row(),
            id: names.id,
            key: names.key,
            kind: asked.kind.clone(),
            session: asked.session.clone(),
            fingerprint: asked.fingerprint,
            admitted: now,
        })
    }

    fn admit(&mut self, asked: Submission, now: Now, fx: &mut Vec<Effect>) {
        let ticket = asked.ticket;
        let names = Fresh { id: asked.name.given().cloned(), key: asked.key.clone() };
        let record = self.record(&asked, names, now);
        let judged = self.depend(&asked);
        self.names.bind(&record, Place::Flying(ticket));
        let awaited = match judged {
            Ok(awaited) => awaited,
            Err(fault) => {
                let outcome = Outcome::failed((asked.spell)(&fault));
                self.flights.insert(ticket, Flight::new(&asked, record, Vec::new()));
                return self.conclude(ticket, outcome, false, now, fx);
            }
        };
        for Awaited { ticket: other, .. } in &awaited {
            if let Some(other) = self.flights.get_mut(other) {
                other.dependents.push(ticket);
            }
        }
        let flight = Flight::new(&asked, record, awaited);
        if !flight.kept {
            fx.push(Effect::Keep(ticket, Arc::clone(&flight.record)));
        }
        self.lanes.enter(&flight.record, ticket, flight.order);
        self.flights.insert(ticket, flight);
        self.attend(ticket, now, fx);
    }

    /// Returns the unmet dependencies of a new command, or why it cannot succeed.
    fn depend(&self, asked: &Submission) -> Result<Vec<Awaited>, BookFault> {
        let mut awaited: Vec<Awaited> = Vec::new();
        for id in &asked.depends_on {
            let dependency = Arc::clone(id);
            if asked.name.given() == Some(id) {
                return Err(BookFault::SelfDependency { name: dependency });
            }
            match self.names.id(id) {
                None => return Err(BookFault::UnknownDependency { dependency }),
                Some(Place::Shelved(spot)) => {
                    let Some(done) = self.shelf.get(spot) else {
                        return Err(BookFault::UnknownDependency { dependency });
                    };
                    if !done.outcome.success {
                        return Err(self.dependency_failed(dependency, &done.outcome));
                    }
                }
                Some(Place::Flying(ticket)) => {
                    let other = self.flights.get(&ticket);
                    if other.is_some_and(|other| other.record.session == asked.session) {
                        return Err(BookFault::SameLane { dependency });
                    }
                    if awaited.iter().all(|other| other.ticket != ticket) {
                        awaited.push(Awaited { ticket, id: dependency });
                    }
                }
            }
        }
        Ok(awaited)
    }

    pub(super) fn dependency_failed(&self, dependency: Arc<str>, outcome: &Outcome) -> BookFault {
        let error = match &outcome.body {
            Body::Text(text) if text.len() <= self.limits.error_bytes => Arc::clone(text),
            Body::Text(text) => beginning(text, self.limits.error_bytes).into(),
            Body::TooLarge(_) => "".into(),
            Body::Gone => "".into(),
        };
        BookFault::DependencyFailed { dependency, error }
    }

    pub(super) fn kept(&mut self, ticket: Ticket, now: Now, fx: &mut Vec<Effect>) {
        if let Some(flight) = self.flights.get_mut(&ticket) {
            flight.kept = true;
            self.attend(ticket, now, fx);
        }
    }

    /// Starts a command that waits for nothing more, or starts the dependency timeout of one that waits for others.
    pub(super) fn attend(&mut self, ticket: Ticket, now: Now, fx: &mut Vec<Effect>) {
        let Some(flight) = self.flights.get_mut(&ticket) else { return };
        let has_turn =
            flight.order == Order::Overtakes || self.lanes.is_turn_of(&flight.record, flight.order);
        if !flight.is_waiting() || !has_turn {
            return;
        }
        if !flight.awaited.is_empty() {
            if flight.deadline.is_none() {
                self.set_deadline(ticket, Some(now.after(self.limits.dependency_millis)));
            }
            return;
        }
        if !flight.kept {
            return self.set_deadline(ticket, None);
        }
        flight.state = State::Running;
        let limit = flight.time_limit.map(|millis| now.after(millis));
        let reads = self.lanes.start(&flight.record);
        self.set_deadline(ticket, limit);
        fx.push(Effect::Run(ticket));
        for read in reads {
            self.attend(read, now, fx);
        }
    }

    pub(super) fn set_deadline(&mut self, ticket: Ticket, deadline: Option<Now>) {
        let Some(flight) = self.flights.get_mut(&ticket) else { return };
        if let Some(before) = std::mem::replace(&mut flight.deadline, deadline) {
            self.deadlines.remove(&(before, ticket));
        }
        if let Some(at) = deadline {
            self.deadlines.insert((at, ticket));
        }
    }
}

fn conflict(asked: &Submission, identity: Identity, earlier: Kind) -> BookFault {
    let name = match (identity, &asked.key) {
        (Identity::Key, Some(key)) => Arc::clone(key),
        (Identity::Key, None) | (Identity::Id, _) => Arc::clone(asked.name.text()),
    };
    BookFault::Conflict { identity, name, earlier, asked: asked.kind.clone() }
}

/// Returns the beginning of a text, at most `most` bytes, cut at a character boundary.
fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}
