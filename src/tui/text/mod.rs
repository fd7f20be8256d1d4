//! Text as styled terminal rows: wrapping, Markdown, diffs and syntax colours.
//!
//! Pure: text in, [`ratatui::text::Line`]s out. Callers sanitize untrusted text first. Nothing here panics on any input,
//! and no row is wider than the width that was asked for. Right-to-left text stays in logical order: terminals reorder it.

mod block_syntax;
mod blocks;
mod containers;
pub(crate) mod diff;
pub(crate) mod highlight;
mod inline;
pub(crate) mod markdown;
mod syntaxes;
mod table;
#[cfg(test)]
mod test_text;
pub(crate) mod theme;
pub(crate) mod wrap;
