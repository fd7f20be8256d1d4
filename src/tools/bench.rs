//! The context of a tool call, and its result.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::Value;

use super::Network;
use super::addresses::Addresses;
use super::binding::Binding;
use super::edit::Planned;
use super::fault::{Fault, FaultKind};
use super::limits::Limits;
use super::request::Request;
use crate::bounded_io::{FileTasks, NoAnswer};
use crate::kernel::event::Ending;
use crate::sandbox::Room;
use crate::sandbox::ground::Ground;
use crate::sandbox::judge::Place;

/// Redacts a text. Tools call it before they truncate a text, so that no part of a secret remains.
pub type Safe = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Returns the last position at or before an index at which a text can be cut without splitting a secret.
pub type Cut = Arc<dyn Fn(&str, usize) -> usize + Send + Sync>;
/// The blocking threads for file operations of the tools of all runs.
///
/// The longest operation of a tool is a search, which has its own timeout. An operation that exceeds this deadline
/// waits for a file system that does not answer.
static FILES: LazyLock<FileTasks> = LazyLock::new(|| FileTasks::new(64, Duration::from_secs(120)));

/// The context of the tools of a run.
#[derive(Clone)]
pub struct Bench {
    /// The workspace.
    pub ground: Ground,
    /// Runs the commands of the run.
    pub tree: Arc<dyn Room>,
    /// The complete environment of commands.
    pub env: Vec<(OsString, OsString)>,
    /// Directories that confined commands may write, in addition to the workspace.
    pub writable: Vec<PathBuf>,
    /// Whether network access is allowed.
    pub network: Network,
    /// The pinned addresses of host names.
    pub addresses: Arc<Addresses>,
    /// The limits.
    pub limits: Limits,
    /// Redacts secrets.
    pub safe: Safe,
    /// Finds a position at which a text for approval can be cut.
    pub cut: Cut,
    /// The digest of the approved call; `None` if no approval was needed.
    pub bound: Option<String>,
}

/// The environment contains secrets, so it is not shown.
impl fmt::Debug for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext").field("workspace", &self.ground).finish_non_exhaustive()
    }
}

impl Bench {
    /// Returns the context for the risk assessment of paths: the workspace, the user's homes, and the hidden
    /// entries in them.
    pub fn path_context(&self) -> Place {
        let ground = &self.ground;
        Place::new(ground.path(), self.variable("HOME").map(Path::new))
            .also_named(ground.name())
            .with_homes(ground.homes())
            .with_hidden_entries(ground.hidden_entries().clone())
    }

    /// Returns the context with access to the hidden paths that a call names: they were approved, or are part of
    /// the question.
    pub(super) async fn approving(&self, request: &Request) -> Result<Self, Fault> {
        if self.ground.hidden_entries().is_empty() {
            return Ok(self.clone());
        }
        let paths = request.named_paths();
        let ground = self.away(move |site| Ok(site.ground.clone().approving(&paths))).await?;
        Ok(Self { ground, ..self.clone() })
    }

    /// Runs blocking work off the async runtime; the work is told to stop when the future is dropped.
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
            cut: Arc::clone(&self.cut),
            bound: self.bound.clone(),
            home: self.variable("HOME").map(PathBuf::from),
            config_home: self.variable("XDG_CONFIG_HOME").map(PathBuf::from),
            stop,
        };
        match FILES.run_in(self.ground.path(), move || work(&site)).await {
            Ok(done) => done,
            Err(NoAnswer::Failed) => {
                Err(Fault::new(FaultKind::Internal, "the daemon failed while the tool was used"))
            }
            Err(late @ (NoAnswer::Late(_) | NoAnswer::Busy)) => {
                Err(Fault::new(FaultKind::IoFailed, late.to_string()))
            }
        }
    }

    fn variable(&self, name: &str) -> Option<&OsStr> {
        let named = self.env.iter().find(|(known, _)| known == name);
        named.map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
    }
}

struct StopWhenDropped(Arc<AtomicBool>);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The part of the context that blocking file operations use.
pub(super) struct Site {
    pub(super) ground: Ground,
    pub(super) limits: Limits,
    pub(super) safe: Safe,
    pub(super) cut: Cut,
    bound: Option<String>,
    home: Option<PathBuf>,
    config_home: Option<PathBuf>,
    stop: Arc<AtomicBool>,
}

impl Site {
    /// Returns the user's home and its configuration directory, if they are known.
    pub(super) fn homes(&self) -> Option<(PathBuf, PathBuf)> {
        let home = self.home.clone().filter(|home| home.is_absolute())?;
        let config = self.config_home.clone().filter(|path| path.is_absolute());
        let config = config.unwrap_or_else(|| home.join(".config"));
        Some((home, config))
    }

    /// Refuses a change of files that differs from the approved one.
    pub(super) fn check(&self, request: &Request, files: &[Planned]) -> Result<(), Fault> {
        let binding = Binding::of(request, &self.ground);
        files.iter().fold(binding, Binding::file).check(self.bound.as_deref())
    }

    /// Returns whether the call was approved.
    pub(super) const fn is_bound(&self) -> bool {
        self.bound.is_some()
    }

    /// Returns whether the caller no longer waits for the result.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn test(path: &std::path::Path, limits: Limits) -> Self {
        let ground = Ground::open(path, crate::sandbox::ground::Reach::Workspace).unwrap();
        Self {
            ground,
            limits,
            safe: Arc::new(str::to_owned),
            cut: Arc::new(floor),
            bound: None,
            home: None,
            config_home: None,
            stop: Arc::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The outcome.
    pub ending: Ending,
    /// The exit code of a command that exited.
    pub exit_code: Option<i32>,
    /// The bounded result, or the error message. The output of a command is not included: it was sent to the output
    /// channel.
    pub text: String,
    /// The error of a failed call.
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
    /// Creates the result of a call that failed with `error`.
    pub fn failed(fault: Fault) -> Self {
        Self { ending: Ending::Failed, exit_code: None, text: fault.message.clone(), fault: Some(fault) }
    }
}

/// A list of JSON values, bounded in items and bytes.
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

    /// Adds an item, unless the list is full; returns whether it was added.
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

    /// Marks the list as incomplete.
    pub(super) const fn cut(&mut self) {
        self.truncated = true;
    }

    pub(super) fn finish(self) -> (Vec<Value>, bool) {
        (self.items, self.truncated)
    }
}

/// The last character boundary at or before `at`.
pub(super) fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}
