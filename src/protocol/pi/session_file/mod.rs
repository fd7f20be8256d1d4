//! The Pi session file format: JSON Lines that other programs read and write too, documented in
//! `docs/session-files.md`.
//!
//! Everything here is pure; `runtime::session_files` does the I/O. A file is untrusted input: its size, lines, nesting
//! depth and number of entries are bounded, and an invalid file is refused with an error that says why. Unknown entry
//! kinds, fields and blocks are skipped and counted.

mod branch;
mod entry;
mod fields;
mod import;
mod message;
mod moment;
mod read;
mod says;
#[cfg(test)]
mod tests;
mod wire;
mod write;

pub use branch::{Compacted, Conversation, Told};
pub use entry::{Change, Entry, Header, Stored};
pub use import::{Names, TakenIn, import};
pub use message::{
    Assistant, Bash, Block, BranchSummary, CompactionSummary, Content, Cost, Custom, Message, Stop,
    ToolResult, Usage, User,
};
pub use moment::{moment, spelled};
pub(crate) use read::identified;
pub use read::{Limits, ParseError, Summary, parse, summary};
pub use write::{WriteError, lines, render};
