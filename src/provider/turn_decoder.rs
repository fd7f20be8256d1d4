//! Decodes a response that is a stream of server-sent events. What an event means is up to the dialect.

use std::fmt;

use super::dialect::{ResponseDecoder, classify_trailing_error, interrupted_error};
use super::error::ModelError;
use super::lines::SseDecoder;
use super::model::{Delta, TurnEnd};
use super::turn_builder::TurnBuilder;

/// Interprets the events of one response.
pub(super) trait EventHandler: fmt::Debug + Send {
    /// Applies the data of an event.
    fn accept_event(&mut self, data: &[u8]) -> Result<(), ModelError>;

    /// Returns the turn that the events build.
    fn turn(&mut self) -> &mut TurnBuilder;

    /// Returns whether the response is complete.
    fn is_complete(&self) -> bool;

    /// Returns the end of the turn as far as it is known.
    fn end(&self) -> TurnEnd;
}

/// The decoder of one response.
#[derive(Debug)]
pub(super) struct SseTurnDecoder<H> {
    events: SseDecoder,
    handler: H,
}

impl<H: EventHandler> SseTurnDecoder<H> {
    pub(super) fn with_handler(handler: H, max_line_bytes: usize) -> Self {
        Self { events: SseDecoder::new(max_line_bytes), handler }
    }
}

impl<H: EventHandler> ResponseDecoder for SseTurnDecoder<H> {
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<Delta>) -> Result<(), ModelError> {
        let Self { events, handler } = self;
        handler.turn().swap_deltas(out);
        let outcome = events.feed(bytes, |data| handler.accept_event(data));
        handler.turn().swap_deltas(out);
        outcome
    }

    fn finish(&mut self, out: &mut Vec<Delta>) -> Result<(), ModelError> {
        let Self { events, handler } = self;
        handler.turn().swap_deltas(out);
        let outcome = events.finish(|data| handler.accept_event(data));
        handler.turn().swap_deltas(out);
        outcome.map_err(classify_trailing_error)?;
        // Some servers close the stream without a last event.
        if handler.turn().has_stopped() { Ok(()) } else { Err(interrupted_error()) }
    }

    fn is_done(&self) -> bool {
        self.handler.is_complete()
    }

    fn end(&self) -> TurnEnd {
        self.handler.end()
    }
}
