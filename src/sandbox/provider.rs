//! The seam between the daemon and whatever runs the commands of a run.
//!
//! A [`SandboxProvider`] opens a [`Room`] for each run; in a room commands are run and stopped. `local` runs them on this
//! machine behind as many walls as it has, `none` without any; one that runs them on another machine would be a third.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::confine::{Confinement, Way};
use super::pending_checks::PendingCheck;
use super::step::{Chunk, Left, Step, StepEnd, StepError};

/// Something that is done while others go on.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What runs commands.
pub trait SandboxProvider: Send + Sync {
    /// Returns the name by which it is chosen.
    fn name(&self) -> &'static str;

    /// Says what holds the commands of a model back.
    ///
    /// It is found out once, by running something, when somebody first needs to know; that takes some milliseconds.
    fn layers(&self) -> Doing<'_, Layers>;

    /// Opens a room for a run; nothing is started yet.
    fn open(&self, terms: Terms) -> Arc<dyn Room>;
}

/// Where the commands of one run are run.
///
/// When the last handle is dropped, everything in it is ended.
pub trait Room: Send + Sync {
    /// Runs one command and returns when it is over and its output has been passed on.
    ///
    /// Output goes to `out` as it comes; while `out` is full the command waits. A future that is dropped ends its command, and
    /// everything that started.
    fn run(&self, step: Step, out: mpsc::Sender<Chunk>) -> Doing<'_, Result<StepEnd, StepError>>;

    /// Says what a command that failed could not see, and which setting opens it; nothing where it was free to look.
    fn hints<'a>(
        &'a self,
        command: &'a str,
        home: Option<&'a Path>,
        printed: &'a str,
    ) -> Doing<'a, Vec<String>>;

    /// Says how its commands are confined, unless they are to run outside; nothing where they are not.
    fn way(&self) -> Doing<'_, Option<Way>>;

    /// Begins a check of what a command changes: the daemon does not end before what is returned is dropped.
    fn begin_check(&self) -> PendingCheck;

    /// Ends everything and waits until nothing is left, for at most `limit`.
    fn stop(&self, limit: Duration) -> Doing<'_, Result<(), Left>>;

    /// Orders everything to be ended, without waiting; nothing later is started.
    fn kill_now(&self);
}

/// Whose words the commands of a room are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Terms {
    /// The user's own: they may do what the user may.
    User,
    /// A model's: they are confined, and the daemon does not listen to them.
    Model(Box<Confinement>),
}

/// How much holds commands back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strength {
    /// All that is promised.
    Full,
    /// Something, with gaps.
    Partial,
    /// Nothing.
    Missing,
}

impl Strength {
    /// Returns the word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::Missing => "missing",
        }
    }
}

/// What holds the commands of a model back on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layers {
    /// How much.
    pub strength: Strength,
    /// The names of the layers in force.
    pub names: Vec<&'static str>,
    /// Why it is not all, in a sentence.
    pub why: Option<String>,
}
