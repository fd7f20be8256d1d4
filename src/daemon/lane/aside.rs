//! What is done beside the active run: tools for the user, and summaries that somebody asked for.

use super::memory::Memory;
use super::working::{Use, Work};
use crate::kernel::effect::Compact;
use crate::kernel::id::{CallId, RunId};
use crate::kernel::state::State;

impl Work {
    pub(super) fn aside(&mut self, _use: Use, _memory: &Memory, _state: &State) {}

    pub(super) fn stop_aside(&mut self, _call: CallId) {}

    pub(super) fn compact(&mut self, _compact: Compact, _memory: &Memory, _state: &State) {}

    pub(super) fn stop_compaction(&mut self, _run: Option<&RunId>) {}

    pub(super) fn stop_retry(&mut self, _run: &RunId) {}
}
