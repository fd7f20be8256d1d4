//! The interface between the daemon and the sandbox that runs the commands of a run.
//!
//! A [`SandboxProvider`] opens a [`RunSandbox`] for each run, which runs and stops commands. The provider `local` runs
//! them on this machine, confined as far as the machine supports it; `none` runs them without confinement. A provider
//! that runs commands on another machine would be a third.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::confinement::{Confinement, Mechanism};
use super::pending_checks::PendingCheck;
use super::step::{Chunk, Step, StepEnd, StepError, StopTimeoutError};

/// A boxed future that can be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Opens sandboxes for runs.
pub trait SandboxProvider: Send + Sync {
    /// Returns the name that selects it in the configuration.
    fn name(&self) -> &'static str;

    /// Returns the layers that confine the commands of a model.
    ///
    /// They are determined once, by running a probe on the first call, which takes some milliseconds.
    fn layers(&self) -> BoxFuture<'_, Layers>;

    /// Opens a sandbox for a run; no process is started yet.
    fn open(&self, terms: ExecutionPolicy) -> Arc<dyn RunSandbox>;
}

/// Runs the commands of one run.
///
/// When the last handle is dropped, all processes in it are killed.
pub trait RunSandbox: Send + Sync {
    /// Runs one command and returns when it has ended and its output has been forwarded.
    ///
    /// Output is sent to `out` as it arrives; while `out` is full the command blocks. Dropping the future kills the
    /// command and every process it started.
    fn run(&self, step: Step, out: mpsc::Sender<Chunk>) -> BoxFuture<'_, Result<StepEnd, StepError>>;

    /// Explains which paths a failed command could not access and which setting opens them; empty if the command was
    /// not confined.
    fn hints<'a>(&'a self, command: &'a str, home: Option<&'a Path>, printed: &'a str) -> BoxFuture<'a, Vec<String>>;

    /// Returns the mechanism that confines its commands, apart from commands that are approved to run unconfined;
    /// `None` if they are not confined.
    fn mechanism(&self) -> BoxFuture<'_, Option<Mechanism>>;

    /// Starts a check of what a command changes: the daemon does not exit before the returned guard is dropped.
    fn begin_check(&self) -> PendingCheck;

    /// Kills all processes and waits until none remains, for at most `limit`.
    fn stop(&self, limit: Duration) -> BoxFuture<'_, Result<(), StopTimeoutError>>;

    /// Requests that all processes are killed, without waiting; no later command is started.
    fn kill_now(&self);
}

/// Who chose the commands of a run, and how they are confined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecutionPolicy {
    /// The user chose them: they may do whatever the user may do.
    User,
    /// A model chose them: they are confined, and the daemon refuses connections from them.
    Model(Box<Confinement>),
}

/// How strongly commands are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfinementStrength {
    /// Every layer that the documentation promises is in force.
    Full,
    /// Some layers are in force, with gaps.
    Partial,
    /// No layer is in force.
    Missing,
}

impl ConfinementStrength {
    /// Returns the name of the value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::Missing => "missing",
        }
    }
}

/// The layers that confine the commands of a model on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layers {
    /// How strongly they confine.
    pub strength: ConfinementStrength,
    /// The names of the layers in force.
    pub names: Vec<&'static str>,
    /// Why the confinement is not complete, as a sentence.
    pub reason: Option<String>,
}
