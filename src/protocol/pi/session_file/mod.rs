//! The Pi session file format: JSON Lines that other programs read and write too, documented in
//! `docs/session-files.md`.
//!
//! Everything here is pure; `runtime::session_files` does the I/O. A file is untrusted input: its size, lines, nesting
//! depth and number of entries are bounded, and an invalid file is refused with an error that says why. Unknown entry
//! kinds, fields and blocks are skipped and counted.

mod branch;
mod entry;
mod entry_parser;
mod fields;
mod import;
mod message;
mod read;
mod sync_plan;
#[cfg(test)]
mod tests;
mod wire;
mod write;

pub use branch::{AppliedCompaction, BranchMessage, Conversation};
pub use entry::{Change, Entry, Header, ParsedSession};
pub use import::{IdGenerator, ImportResult, import};
pub use message::{
    Assistant, Bash, Block, BranchSummary, CompactionSummary, Content, Cost, Custom, Message, StopReason, ToolResult,
    Usage, User,
};
pub(crate) use read::lines_with_id;
pub use read::{FileSummary, Limits, ParseError, parse, summarize};
pub(in crate::protocol::pi) use sync_plan::SyncPlan;
pub use write::{WriteError, render, render_entries};

pub use super::timestamp::{parse_rfc3339, to_rfc3339};
