//! Providers: the backends that produce the turns of a run.
//!
//! A provider is asked for one turn at a time and receives only journaled facts, so that a turn can be requested
//! again after a restart. It reports the text and the tool calls of the model and executes nothing itself.
//!
//! [`registry::ModelRegistry`] resolves models on servers. Each server speaks one [`dialect`]. A turn is requested
//! with the types of [`model`] and is returned as a [`TurnStream`]. The registry also owns retries, circuit
//! breakers, keys and timeouts.

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

use crate::kernel::effect::{Finish, Turn};

pub use answering::{Answering, Step, Wait};
pub use circuit::{RunAdmission, Starter};
pub use reports::{APPROVE_REMEDY, Gone, Mint, Question, Reported, Reports, Screen, Screened, Whose};

/// The future of a turn in progress. It ends early with [`SessionClosed`] when the session no longer listens.
pub type Turning = Pin<Box<dyn Future<Output = Result<(), Gone>> + Send>>;

/// A backend that produces turns.
pub trait Provider: Send + Sync {
    /// Returns the name by which sessions select the provider.
    fn name(&self) -> &'static str;

    /// Runs one turn of a run and reports to `reports`.
    fn turn(&self, turn: Turn, reports: Reports) -> Turning;

    /// Returns how a run ends whose tools the stopping daemon has ended; none if the run continues after the restart.
    ///
    /// `turn` is the one that would come next. The daemon is closing: an implementation waits for nothing.
    fn finish_at_stop(&self, _turn: &Turn) -> Option<Finish> {
        None
    }
}
