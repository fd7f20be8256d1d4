//! Records: the stored form of events and checkpoints, owned by no protocol.
//!
//! The record of an event is one line of compact JSON. It is identical to the event's line in the native protocol, so
//! that replay to such clients is a copy; no other code relies on that. The codec is lossless and pure.

pub mod checkpoint;
mod decode;
pub(crate) mod encode;
pub(crate) mod gate_compat;
pub(crate) mod json;
pub mod summary;
mod tool_compat;
pub(crate) mod wire;

use decode::is_known_kind;
pub(crate) use decode::{EventDecoder, gate_question, names_audience};
pub use decode::{RecordError, decode_event, seq_of};
pub use encode::event_line;
pub(crate) use tool_compat::strip_synthetic_run_id;
pub use tool_compat::user_command_run_id;
