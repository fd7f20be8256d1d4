//! Restores the command log after a restart.

use std::sync::Arc;

use super::super::time::Now;
use super::error::CommandError;
use super::name_index::Location;
use super::outcome_cache::FinishedCommand;
use super::record::{CommandOutcome, OutcomeRecord, StoredCommand};
use super::submission::ErrorFormatter;
use super::{CommandLog, CommandLogLimits, Effect};

impl CommandLog {
    /// Restores the log from the commands on disk, given in any order.
    ///
    /// A command without a known end fails as interrupted and is never run again automatically. The driver carries
    /// out the effects like any others. Row ids continue above the highest one found.
    #[must_use = "dropping effects loses outcomes"]
    pub fn restore(
        limits: CommandLogLimits,
        mut stored: Vec<StoredCommand>,
        format_error: ErrorFormatter,
        now: Now,
    ) -> (Self, Vec<Effect>) {
        let mut log = Self::new(limits);
        let mut fx = Vec::new();
        let end = |stored: &StoredCommand| stored.settled.as_ref().map_or(now, |(_, at)| (*at).min(now));
        stored.sort_by_key(|stored| (end(stored), stored.record.row));
        let mut restored = Vec::with_capacity(stored.len());
        for stored in stored {
            let at = end(&stored);
            let record = Arc::new(stored.record);
            log.next_row = log.next_row.max(record.row.0.saturating_add(1));
            let outcome = match stored.settled {
                Some((outcome, _)) => outcome,
                None => {
                    let outcome = CommandOutcome::failed(format_error(&CommandError::Interrupted));
                    let record = Arc::clone(&record);
                    fx.push(Effect::PersistOutcomeLater(OutcomeRecord { record, outcome: outcome.clone(), at }));
                    outcome
                }
            };
            let slot = log
                .outcomes
                .insert(FinishedCommand { record: Arc::clone(&record), outcome, at, stored: true }, &log.limits);
            restored.push((record, slot));
        }
        log.evict_beyond_limit(&mut fx);
        // Of two commands that used one name, the name refers to the one admitted last.
        restored.sort_by_key(|(record, _)| record.row);
        for (record, slot) in restored.iter().filter(|(_, slot)| log.outcomes.get(*slot).is_some()) {
            log.names.bind(record, Location::Finished(*slot));
        }
        (log, fx)
    }
}
