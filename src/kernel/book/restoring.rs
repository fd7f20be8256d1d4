//! The book after a restart, from what was kept.

use std::sync::Arc;

use super::super::time::Now;
use super::fault::BookFault;
use super::names::Place;
use super::record::{Outcome, Settlement, Stored};
use super::shelf::Done;
use super::submission::Spell;
use super::{Book, BookLimits, Effect};

impl Book {
    /// Opens the book from what was found on disk, in any order.
    ///
    /// A command whose end is not known has failed as interrupted; it is never run again by itself. The effects are to
    /// be carried out like any others. Numbers go on above the highest that was found.
    #[must_use = "dropping effects loses outcomes"]
    pub fn restore(
        limits: BookLimits,
        mut stored: Vec<Stored>,
        spell: Spell,
        now: Now,
    ) -> (Self, Vec<Effect>) {
        let mut book = Self::new(limits);
        let mut fx = Vec::new();
        let end = |stored: &Stored| stored.settled.as_ref().map_or(now, |(_, at)| (*at).min(now));
        stored.sort_by_key(|stored| (end(stored), stored.record.row));
        for stored in stored {
            let at = end(&stored);
            let record = Arc::new(stored.record);
            book.next_row = book.next_row.max(record.row.0.saturating_add(1));
            let outcome = match stored.settled {
                Some((outcome, _)) => outcome,
                None => {
                    let outcome = Outcome::failed(spell(&BookFault::Interrupted));
                    let record = Arc::clone(&record);
                    fx.push(Effect::SettleLater(Settlement { record, outcome: outcome.clone(), at }));
                    outcome
                }
            };
            book.reshelve(Done { record, outcome, at }, &mut fx);
        }
        (book, fx)
    }

    /// Puts an old outcome back; of two commands that used one name, the one that was admitted last has it.
    fn reshelve(&mut self, done: Done, fx: &mut Vec<Effect>) {
        let record = Arc::clone(&done.record);
        let mut names = (*record).clone();
        let older = |place: Option<Place>, book: &Self| match place {
            Some(Place::Shelved(spot)) => {
                book.shelf.get(spot).is_none_or(|other| other.record.row < record.row)
            }
            Some(Place::Flying(_)) | None => true,
        };
        names.id = names.id.filter(|id| older(self.names.id(id), self));
        names.key = names.key.filter(|key| older(self.names.key(record.session.as_ref(), key), self));
        let spot = self.shelf.put(done, &self.limits);
        self.names.bind(&names, Place::Shelved(spot));
        self.forget_beyond_limit(fx);
    }
}
