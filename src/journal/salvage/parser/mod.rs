//! The page parser that reading through SQLite replaces, for a comparison of what both recover.
#![allow(dead_code, reason = "only the search is compared")]

mod frames;
mod images;
mod record;
mod rows;
mod scan;

use super::{SalvageContext, chain};
use crate::journal::checksum;
use crate::journal::files::RawFile;

/// Counts the events that the parser recovers.
pub(super) fn recovered_events(
    database: Box<dyn RawFile>,
    log: Box<dyn RawFile>,
    context: &SalvageContext<'_>,
) -> usize {
    let images = images::Images::open(Some(database), Some(log)).expect("files in memory");
    let mut events = 0;
    for candidates in scan::scan(&images, context).sessions.into_values() {
        let Some(best) = candidates.into_iter().max_by_key(scan::Candidate::score) else { continue };
        let heads: Vec<_> = best.blocks.keys().copied().collect();
        let history = chain::history(checksum::genesis(&best.id), &heads);
        events += history.into_iter().map(|at| heads[at].count as usize).sum::<usize>();
    }
    events
}
