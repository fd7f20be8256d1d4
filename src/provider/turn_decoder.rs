//! Decodes a streamed response. How it is divided into events and what an event means is up to the dialect.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::api_error::ApiError;
use super::dialect::{ResponseDecoder, classify_trailing_error, interrupted_error};
use super::error::ModelError;
use super::model::{Delta, TurnEnd};
use super::turn_builder::TurnBuilder;

/// Divides the bytes of a response into events.
pub(super) trait EventFraming: fmt::Debug + Send {
    /// Passes the data of every event that `bytes` completes to `each`.
    fn feed(&mut self, bytes: &[u8], each: impl FnMut(&[u8]) -> Result<(), ModelError>) -> Result<(), ModelError>;

    /// Passes the rest to `each` at the end of the input.
    fn finish(&mut self, each: impl FnMut(&[u8]) -> Result<(), ModelError>) -> Result<(), ModelError>;
}

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
pub(super) struct TurnDecoder<F, H> {
    events: F,
    handler: H,
}

impl<F, H> TurnDecoder<F, H> {
    pub(super) const fn with_parts(events: F, handler: H) -> Self {
        Self { events, handler }
    }
}

impl<F: EventFraming, H: EventHandler> ResponseDecoder for TurnDecoder<F, H> {
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

/// Parses the data of an event.
pub(super) fn parse_event<T: DeserializeOwned>(data: &[u8]) -> Result<T, ModelError> {
    serde_json::from_slice(data).map_err(|error| {
        ModelError::invalid_response(format!("the server sent an event that cannot be read: {error}"), data)
    })
}

/// Returns the error object of an event as an error.
pub(super) fn check_error(error: Option<Box<RawValue>>) -> Result<(), ModelError> {
    let Some(error) = error else { return Ok(()) };
    Err(ApiError::from_json(&serde_json::from_str(error.get()).unwrap_or_default()).to_stream_error())
}
