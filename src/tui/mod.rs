//! The terminal client: an inline view of one session, and a full-screen dashboard of all.
//!
//! Finished output is written into the terminal's own scrollback; only a region at the bottom is drawn again. The state
//! ([`model`]), its changes ([`update`]) and its rows ([`view`]) are pure; [`app`] reads keys, talks to the daemon and
//! writes to the terminal.

mod activity;
mod app;
mod call_log;
mod card;
mod card_view;
mod client_task;
mod clock;
mod commands;
mod completion;
mod composer;
pub(crate) mod dashboard;
mod editor;
mod files;
mod key_reader;
mod keys;
mod model;
mod options;
mod painted;
mod palette;
mod row_log;
mod screen_writer;
mod scrolled;
mod search;
mod session_events;
mod signals;
mod status;
mod terminal;
mod text;
mod transcript;
mod update;
mod view;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use app::run;
pub(crate) use options::{Options, StartPosition, SwitchTarget, TuiError, ViewExit};
pub(crate) use terminal::is_usable;
pub(crate) use text::theme::Theme;
