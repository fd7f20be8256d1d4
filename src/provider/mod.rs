//! Providers: the backends that produce the turns of a run.
//!
//! A provider is asked for one turn at a time and receives only journaled facts, so that a turn can be requested
//! again after a restart. It reports the text and the tool calls of the model and executes nothing itself.
//!
//! [`registry::ModelRegistry`] resolves models on servers. Each server speaks one [`dialect`]. A turn is requested
//! with the types of [`model`] and is returned as a [`TurnStream`]. The registry also owns retries, circuit
//! breakers, keys and timeouts.

mod anthropic;
mod api_error;
pub mod breaker;
mod circuit;
mod configuration;
pub mod dialect;
pub mod endpoint;
pub mod error;
mod http;
pub mod keys;
pub mod limits;
mod lines;
pub mod model;
mod ollama;
mod openai;
pub mod playbook;
pub mod registry;
mod reports;
pub mod retry;
#[cfg(test)]
mod samples;
mod target;
mod turn_builder;
mod turn_decoder;
mod turn_stream;
mod window;

use std::future::Future;
use std::pin::Pin;

use crate::kernel::effect::{FinishReport, TurnRequest};

pub use circuit::{RunAdmission, Starter};
pub use ollama::RunningOllama;
pub use reports::{
    APPROVE_REMEDY, IdSource, Question, ReportEnvelope, ReportOwner, ReportSender, SessionClosed, StepDecision,
    StepPolicy,
};
pub use turn_stream::{PendingRetry, StreamItem, TurnStream};

/// The future of a turn in progress. It ends early with [`SessionClosed`] when the session no longer listens.
pub type TurnFuture = Pin<Box<dyn Future<Output = Result<(), SessionClosed>> + Send>>;

/// A backend that produces turns.
pub trait Provider: Send + Sync {
    /// Returns the name by which sessions select the provider.
    fn name(&self) -> &'static str;

    /// Runs one turn of a run and reports to `reports`.
    fn turn(&self, turn: TurnRequest, reports: ReportSender) -> TurnFuture;

    /// Returns how a run ends whose tools the stopping daemon has ended; none if the run continues after the restart.
    ///
    /// `turn` is the one that would come next. The daemon is closing: an implementation waits for nothing.
    fn finish_at_stop(&self, _turn: &TurnRequest) -> Option<FinishReport> {
        None
    }
}
