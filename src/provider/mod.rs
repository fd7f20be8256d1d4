//! Who answers a message.
//!
//! A provider is asked for one turn at a time and told journaled facts alone, so that it can be asked again after a
//! restart. It reports what it says and which tools it wants used, and does nothing itself.
//!
//! Models on servers stand behind [`registry::Models`]: a server speaks one of the [`dialect`]s, a turn is asked in the
//! terms of [`model`] and comes back as an [`Answering`]. Retries, circuit breakers, keys and time limits are theirs.

mod answering;
mod anthropic;
pub mod breaker;
mod circuit;
mod complaint;
mod configured;
pub mod dialect;
pub mod error;
mod http;
pub mod keys;
pub mod limits;
mod lines;
pub mod model;
mod ollama;
mod openai;
pub mod place;
pub mod playbook;
pub mod registry;
mod reports;
pub mod retry;
#[cfg(test)]
mod samples;
mod target;
mod turn;
mod window;

use std::future::Future;
use std::pin::Pin;

use crate::kernel::effect::Turn;

pub use answering::{Answering, Step, Wait};
pub use circuit::{RunAdmission, Starter};
pub use reports::{APPROVE_REMEDY, Gone, Mint, Question, Reported, Reports, Screen, Screened, Whose};

/// A turn under way; it ends early, and quietly, when nobody listens any more.
pub type Turning = Pin<Box<dyn Future<Output = Result<(), Gone>> + Send>>;

/// Somebody who answers messages.
pub trait Provider: Send + Sync {
    /// Returns the name under which sessions choose it.
    fn name(&self) -> &'static str;

    /// Takes one turn of a run.
    fn turn(&self, turn: Turn, reports: Reports) -> Turning;
}
