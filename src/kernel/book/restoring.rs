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
        let mut shelved = Vec::with_capacity(stored.len());
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
            let spot = book.shelf.put(Done { record: Arc::clone(&record), outcome, at }, &book.limits);
            shelved.push((record, spot));
        }
        book.forget_beyond_limit(&mut fx);
        // Of two commands that used one name, the one that was admitted last has it.
        shelved.sort_by_key(|(record, _)| record.row);
        for (record, spot) in shelved.iter().filter(|(_, spot)| book.shelf.get(*spot).is_some()) {
            book.names.bind(record, Place::Shelved(*spot));
        }
        (book, fx)
    }
}
