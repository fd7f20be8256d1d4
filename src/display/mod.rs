//! Text for people: what the line mode of the command line and the terminal client show alike.
//!
//! Pure: it turns events, approvals and results into text and typed answers into decisions. It prints nothing and
//! knows no terminal.

pub(crate) mod approval;
pub(crate) mod approval_view;
pub(crate) mod form;
pub(crate) mod format;
pub(crate) mod plan;
pub(crate) mod sanitize;
pub(crate) mod session_words;
pub(crate) mod style;
pub(crate) mod tool_results;
pub(crate) mod usage;
