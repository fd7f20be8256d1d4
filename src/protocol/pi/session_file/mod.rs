//! Sessions as files: JSON Lines that other programs write and read too, described in `docs/session-files.md`.
//!
//! Everything here is pure; `runtime::session_files` reads and writes the files. A file is untrusted: its size,
//! lines, depth and number of entries are bounded, and what cannot be believed is refused with a sentence that says why.
//! What is merely unknown (kinds of entries, fields, blocks) is passed over and counted.

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
