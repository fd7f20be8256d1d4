//! Protocols, as translations of lines into commands and of events into lines; no IO.

pub mod push;
