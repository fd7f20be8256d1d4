//! Restores the command log after a restart.

use std::sync::Arc;

use super::super::time::Now;
use super::fault::BookFault;
use super::names::Place;
use super::record::{Outcome, Settlement, Stored};
use super::shelf::Done;
use super::submission::Spell;
use super::{Book, BookLimits, Effect};

impl Book {
    /// Restores the log from the commands on disk, given in any order.
    ///
    /// A command without a known end fails as interrupted and is never run again automatically. The driver carries
    /// out the effects like any others. Row ids continue above the highest one found.
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
        // Of two commands that used one name, the name refers to the one admitted last.
        shelved.sort_by_key(|(record, _)| record.row);
        for (record, spot) in shelved.iter().filter(|(_, spot)| book.shelf.get(*spot).is_some()) {
            book.names.bind(record, Place::Shelved(*spot));
        }
        (book, fx)
    }
}
