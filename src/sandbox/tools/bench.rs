//! What a tool works with, and the shape of what it leaves.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::Network;
use super::binding::Binding;
use super::edit::Planned;
use super::fault::{Fault, FaultKind};
use super::limits::Limits;
use super::request::Request;
use crate::kernel::event::Ending;
use crate::sandbox::Room;
use crate::sandbox::ground::Ground;

/// Takes the secrets out of a text. Tools call it before they cut a text, so that no half of a secret is left over.
pub type Safe = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Everything that the tools of a run work with.
#[derive(Clone)]
pub struct Bench {
    /// The workspace.
    pub ground: Ground,
    /// Where the commands of the run are run.
    pub tree: Arc<dyn Room>,
    /// The whole environment of commands.
    pub env: Vec<(OsString, OsString)>,
    /// Whether other machines may be talked to.
    pub network: Network,
    /// The bounds.
    pub limits: Limits,
    /// Takes secrets out.
    pub safe: Safe,
    /// What exactly was approved, as a digest; nothing where nobody was asked.
    pub bound: Option<String>,
}

/// An environment holds secrets, so it is not shown.
impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bench").field("ground", &self.ground).finish_non_exhaustive()
    }
}

impl Bench {
    /// Does something that blocks, off the loop; it is told to stop when nobody waits for it any more.
    pub(super) async fn away<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Site) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let stop = Arc::new(AtomicBool::new(false));
        let _when_dropped = StopWhenDropped(Arc::clone(&stop));
        let site = Site {
            ground: self.ground.clone(),
            limits: self.limits,
            safe: Arc::clone(&self.safe),
            bound: self.bound.clone(),
            stop,
        };
        match tokio::task::spawn_blocking(move || work(&site)).await {
            Ok(done) => done,
            Err(_) => Err(Fault::new(FaultKind::Internal, "the daemon failed while the tool was used")),
        }
    }
}

struct StopWhenDropped(Arc<AtomicBool>);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What blocking work has of the bench.
pub(super) struct Site {
    pub(super) ground: Ground,
    pub(super) limits: Limits,
    pub(super) safe: Safe,
    bound: Option<String>,
    stop: Arc<AtomicBool>,
}

impl Site {
    /// Refuses a change of files that is not the one which was approved.
    pub(super) fn check(&self, request: &Request, files: &[Planned]) -> Result<(), Fault> {
        let binding = Binding::of(request, self.ground.path());
        files.iter().fold(binding, Binding::file).check(self.bound.as_deref())
    }

    /// Tells whether somebody was asked.
    pub(super) const fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    /// Tells whether nobody waits any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn test(path: &std::path::Path, limits: Limits) -> Self {
        let ground = Ground::open(path, crate::sandbox::ground::Reach::Workspace).unwrap();
        Self { ground, limits, safe: Arc::new(str::to_owned), bound: None, stop: Arc::default() }
    }

    #[cfg(test)]
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// How a use of a tool ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// In one word.
    pub ending: Ending,
    /// The exit code of a command that ended by itself.
    pub exit_code: Option<i32>,
    /// The result, bounded; what went wrong, where something did. What a command printed is not in it: that went to
    /// whoever listened.
    pub text: String,
    /// What went wrong.
    pub fault: Option<Fault>,
}

impl From<Result<String, Fault>> for Outcome {
    fn from(result: Result<String, Fault>) -> Self {
        match result {
            Ok(text) => Self { ending: Ending::Done, exit_code: None, text, fault: None },
            Err(fault) => Self::failed(fault),
        }
    }
}

impl Outcome {
    /// A tool that failed with `fault`.
    pub fn failed(fault: Fault) -> Self {
        Self { ending: Ending::Failed, exit_code: None, text: fault.message.clone(), fault: Some(fault) }
    }
}

/// A list of JSON values that may have so many items and so many bytes.
pub(super) struct Items {
    items: Vec<Value>,
    most: usize,
    room: usize,
    truncated: bool,
}

impl Items {
    pub(super) const fn new(most: usize, room: usize) -> Self {
        Self { items: Vec::new(), most, room, truncated: false }
    }

    /// Adds an item, unless the list is full; whether it was added.
    pub(super) fn push(&mut self, item: Value) -> bool {
        let bytes = item.to_string().len() + 1;
        if self.truncated || self.items.len() == self.most || bytes > self.room {
            self.truncated = true;
            return false;
        }
        self.room -= bytes;
        self.items.push(item);
        true
    }

    /// Notes that something is missing.
    pub(super) const fn cut(&mut self) {
        self.truncated = true;
    }

    pub(super) fn finish(self) -> (Vec<Value>, bool) {
        (self.items, self.truncated)
    }
}

/// The last boundary between characters at or before `at`.
pub(super) fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}
