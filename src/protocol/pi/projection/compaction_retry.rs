//! Compactions and retries.

use super::event_sink::EventSink;
use super::ui;
use super::{Projection, entry};
use crate::kernel::event::{CompactionFailure, CompactionReason, Event, Retry};
use crate::kernel::id::Seq;
use crate::record::json;

impl Projection {
    /// Handles the start of a compaction. A manual one is answered to the client that requested it, and shown as a
    /// status to the others.
    pub(super) fn begin_compaction(&mut self, seq: Seq, reason: CompactionReason, out: &mut EventSink) {
        self.compacting = Some(reason);
        let word = match reason {
            CompactionReason::Manual => return ui::status(COMPACTION, "compacting", seq, out),
            CompactionReason::Threshold => "threshold",
            CompactionReason::Overflow => "overflow",
        };
        out.emit("auto_compaction_start", |object| object.text("reason", word).end());
    }

    /// Handles a completed compaction.
    pub(super) fn compact(&mut self, event: &Event, out: &mut EventSink) {
        if self.compacting.is_none() {
            // Without a start event, the compaction was an automatic one.
            self.begin_compaction(event.seq, CompactionReason::Threshold, out);
        }
        let reason = self.compacting.take();
        self.context_tokens = None;
        if reason == Some(CompactionReason::Manual) {
            return ui::status(COMPACTION, "", event.seq, out);
        }
        let summary = entry::summary(&self.conversation);
        out.emit("auto_compaction_end", |object| {
            object
                .with("result", |body| json::value(body, &summary))
                .flag("aborted", false)
                .flag("willRetry", reason == Some(CompactionReason::Overflow))
                .end();
        });
    }

    /// Handles the end of a compaction without a summary.
    pub(super) fn end_compaction(
        &mut self,
        seq: Seq,
        (ending, message, again): (CompactionFailure, Option<&str>, bool),
        out: &mut EventSink,
    ) {
        match self.compacting.take() {
            Some(CompactionReason::Manual) => ui::status(COMPACTION, "", seq, out),
            Some(CompactionReason::Threshold | CompactionReason::Overflow) | None => {
                let aborted = ending == CompactionFailure::Aborted;
                let why = message.filter(|_| !aborted);
                out.emit("auto_compaction_end", |object| {
                    object.flag("aborted", aborted).flag("willRetry", again).optional_text("errorMessage", why).end();
                });
            }
        }
    }
}

/// Emits the start of a retry pause.
pub(super) fn begin_retry(retry: &Retry, out: &mut EventSink) {
    out.emit("auto_retry_start", |object| {
        object
            .number("attempt", u64::from(retry.attempt))
            .number("maxAttempts", u64::from(retry.max_attempts))
            .number("delayMs", retry.pause_millis)
            .text("errorMessage", &retry.message)
            .end();
    });
}

/// Emits the end of the retries: the model answered, or the attempts are used up.
pub(super) fn end_retry(succeeded: bool, attempt: u32, message: Option<&str>, out: &mut EventSink) {
    let why = message.filter(|_| !succeeded);
    out.emit("auto_retry_end", |object| {
        object.flag("success", succeeded).number("attempt", u64::from(attempt)).optional_text("finalError", why).end();
    });
}

const COMPACTION: &str = "compaction";
