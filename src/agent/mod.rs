//! How a model works through a run: what it is told, what it may use, and what follows from what it says.
//!
//! Everything here is pure. A turn begins with the [`Context`], folded from the session's events alone, so that a
//! restart asks the same; [`Taking`] turns what a model says into what is to be done; a [`Breach`] of the budget, calls
//! that wait for those before them, and a conversation that has become too long are found here and acted on by the lane.

pub mod budget;
pub mod compaction;
pub mod context;
pub mod grouping;
pub mod inquiry;
pub mod policy;
pub mod price;
pub mod prompt;
pub mod taking;

pub use budget::Breach;
pub use context::Context;
pub use taking::{Act, Taking};

/// The name under which the raising of a budget stands among the calls of a run.
pub const RAISE_BUDGET: &str = "raise_budget";
