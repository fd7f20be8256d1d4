//! The agent loop of a run as pure functions: context, tools, policy, budget and compaction.
//!
//! A turn starts with the [`Context`], a view of the conversation that the kernel folds from the session's events
//! alone, so that a restart produces the same request. [`TurnMachine`] turns the output of a model into actions. This module detects a [`ExceededLimit`] of
//! the budget, calls that must wait for earlier ones, and a conversation that is too long; the lane acts on them.

pub mod budget;
pub mod compaction;
pub mod context;
pub mod grouping;
pub mod inquiry;
pub mod policy;
pub mod price;
pub mod prompt;
pub mod turn_machine;

pub use budget::ExceededLimit;
pub use context::Context;
pub use turn_machine::{Action, TurnMachine};

pub use crate::kernel::gate::RAISE_BUDGET;
