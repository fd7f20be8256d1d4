//! The search index: the searchable text and the figures of all sessions, derived from the journal.
//!
//! - [`document`]: folds the events of a session into documents and figures; pure.
//! - [`query`]: parses the text of a search, and makes excerpts; pure.
//! - [`store`]: the index in a SQLite database of its own, with full-text tables (FTS5).
//!
//! The index is a cache. A missing, old or damaged one is built again from the journal.

pub mod document;
pub mod query;
pub mod store;
