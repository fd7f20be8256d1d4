//! The context of a tool call, and its result.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::Value;

use super::Network;
use super::addresses::PinnedAddresses;
use super::approval_digest::ApprovalDigest;
use super::edit::PlannedChange;
use super::error::{ToolError, ToolErrorKind};
use super::limits::Limits;
use super::request::Request;
use super::tool::{Tool, call_text};
use crate::bounded_io::{FileTaskError, FileTasks};
use crate::kernel::event::{Diff, ToolOutcome};
use crate::sandbox::RunSandbox;
use crate::sandbox::risk::PathContext;
use crate::sandbox::workspace::WorkspaceDir;

/// Redacts a text. Tools call it before they truncate a text, so that no part of a secret remains.
pub type RedactFn = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Returns the last position at or before an index at which a text can be cut without splitting a secret.
pub type SafeCutFn = Arc<dyn Fn(&str, usize) -> usize + Send + Sync>;
/// The blocking threads for file operations of the tools of all runs.
///
/// The longest operation of a tool is a search, which has its own timeout. An operation that exceeds this deadline
/// waits for a file system that does not answer.
static FILE_TASKS: LazyLock<FileTasks> = LazyLock::new(|| FileTasks::new(64, Duration::from_secs(120)));

/// The context of the tools of a run.
#[derive(Clone)]
pub struct ToolContext {
    /// The workspace.
    pub workspace: WorkspaceDir,
    /// Runs the commands of the run.
    pub sandbox: Arc<dyn RunSandbox>,
    /// The complete environment of commands.
    pub env: Vec<(OsString, OsString)>,
    /// Directories that confined commands may write, in addition to the workspace.
    pub writable: Vec<PathBuf>,
    /// Whether network access is allowed.
    pub network: Network,
    /// The pinned addresses of host names.
    pub addresses: Arc<PinnedAddresses>,
    /// The limits.
    pub limits: Limits,
    /// Redacts secrets.
    pub redact: RedactFn,
    /// Finds a position at which a text for approval can be cut.
    pub safe_cut: SafeCutFn,
    /// The digest of the approved call; `None` if no approval was needed.
    pub approved_digest: Option<String>,
}

/// The environment contains secrets, so it is not shown.
impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}

impl ToolContext {
    /// Returns the context for the risk assessment of paths: the workspace, the user's homes, and the hidden
    /// entries in them.
    pub fn path_context(&self) -> PathContext {
        let workspace = &self.workspace;
        PathContext::new(workspace.path(), self.variable("HOME").map(Path::new))
            .with_alias(workspace.display_path())
            .with_homes(workspace.homes())
            .with_hidden_entries(workspace.hidden_entries().clone())
    }

    /// Returns the context with access to the hidden paths that a call names: they were approved, or are part of
    /// the question.
    pub(super) async fn with_approved_paths(&self, request: &Request) -> Result<Self, ToolError> {
        if self.workspace.hidden_entries().is_empty() {
            return Ok(self.clone());
        }
        let paths = request.named_paths();
        let workspace = self.run_blocking(move |site| Ok(site.workspace.clone().with_approved_paths(&paths))).await?;
        Ok(Self { workspace, ..self.clone() })
    }

    /// Runs blocking work off the async runtime; the work is cancelled when the future is dropped.
    pub(super) async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FsContext) -> Result<T, ToolError> + Send + 'static,
    ) -> Result<T, ToolError> {
        let stop = Arc::new(AtomicBool::new(false));
        let _when_dropped = StopGuard(Arc::clone(&stop));
        let site = FsContext {
            workspace: self.workspace.clone(),
            limits: self.limits,
            redact: Arc::clone(&self.redact),
            safe_cut: Arc::clone(&self.safe_cut),
            approved_digest: self.approved_digest.clone(),
            home: self.variable("HOME").map(PathBuf::from),
            config_home: self.variable("XDG_CONFIG_HOME").map(PathBuf::from),
            stop,
        };
        match FILE_TASKS.run_in(self.workspace.path(), move || work(&site)).await {
            Ok(done) => done,
            Err(FileTaskError::Panicked) => {
                Err(ToolError::new(ToolErrorKind::Internal, "the daemon failed while the tool was used"))
            }
            Err(late @ (FileTaskError::TimedOut(_) | FileTaskError::Busy)) => {
                Err(ToolError::new(ToolErrorKind::IoFailed, late.to_string()))
            }
        }
    }

    fn variable(&self, name: &str) -> Option<&OsStr> {
        let named = self.env.iter().find(|(known, _)| known == name);
        named.map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
    }
}

struct StopGuard(Arc<AtomicBool>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The part of the context that blocking file operations use.
pub(super) struct FsContext {
    pub(super) workspace: WorkspaceDir,
    pub(super) limits: Limits,
    pub(super) redact: RedactFn,
    pub(super) safe_cut: SafeCutFn,
    approved_digest: Option<String>,
    home: Option<PathBuf>,
    config_home: Option<PathBuf>,
    stop: Arc<AtomicBool>,
}

impl FsContext {
    /// Returns the user's home and its configuration directory, if they are known.
    pub(super) fn homes(&self) -> Option<(PathBuf, PathBuf)> {
        let home = self.home.clone().filter(|home| home.is_absolute())?;
        let config = self.config_home.clone().filter(|path| path.is_absolute());
        let config = config.unwrap_or_else(|| home.join(".config"));
        Some((home, config))
    }

    /// Refuses a change of files that differs from the approved one.
    pub(super) fn check_approval<T: Tool>(
        &self,
        tool: &T,
        args: &T::Args,
        files: &[PlannedChange],
    ) -> Result<(), ToolError> {
        let digest = ApprovalDigest::new(&call_text(tool, args), &self.workspace);
        files.iter().fold(digest, ApprovalDigest::add_file).verify(self.approved_digest.as_deref())
    }

    /// Returns whether the call was approved.
    pub(super) const fn was_approved(&self) -> bool {
        self.approved_digest.is_some()
    }

    /// Returns whether the caller no longer waits for the result.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn test(path: &std::path::Path, limits: Limits) -> Self {
        let workspace = WorkspaceDir::open(path, crate::sandbox::workspace::ReachPolicy::Workspace).unwrap();
        Self {
            workspace,
            limits,
            redact: Arc::new(str::to_owned),
            safe_cut: Arc::new(str::floor_char_boundary),
            approved_digest: None,
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
pub struct ExecutionResult {
    /// The outcome.
    pub outcome: ToolOutcome,
    /// The exit code of a command that exited.
    pub exit_code: Option<i32>,
    /// The bounded result, or the error message. The output of a command is not included: it was sent to the output
    /// channel.
    pub text: String,
    /// The error of a failed call.
    pub error: Option<ToolError>,
    /// What a successful call changed in files: redacted and bounded.
    pub diff: Option<Diff>,
}

impl From<Result<String, ToolError>> for ExecutionResult {
    fn from(result: Result<String, ToolError>) -> Self {
        match result {
            Ok(text) => Self { outcome: ToolOutcome::Succeeded, exit_code: None, text, error: None, diff: None },
            Err(error) => Self::failed(error),
        }
    }
}

/// The text of a successful call that changes files, and the diff of what it changed.
impl From<Result<(String, Option<Diff>), ToolError>> for ExecutionResult {
    fn from(result: Result<(String, Option<Diff>), ToolError>) -> Self {
        match result {
            Ok((text, diff)) => Self { diff, ..Self::from(Ok(text)) },
            Err(error) => Self::failed(error),
        }
    }
}

impl ExecutionResult {
    /// Creates the result of a call that failed with `error`.
    pub fn failed(error: ToolError) -> Self {
        let text = error.message.clone();
        Self { outcome: ToolOutcome::Failed, exit_code: None, text, error: Some(error), diff: None }
    }
}

/// A list of JSON values, bounded in items and bytes.
pub(super) struct BoundedItems {
    items: Vec<Value>,
    max_items: usize,
    bytes_left: usize,
    truncated: bool,
}

impl BoundedItems {
    pub(super) const fn new(max_items: usize, bytes_left: usize) -> Self {
        Self { items: Vec::new(), max_items, bytes_left, truncated: false }
    }

    /// Adds an item, unless the list is full; returns whether it was added.
    pub(super) fn push(&mut self, item: Value) -> bool {
        let bytes = item.to_string().len() + 1;
        if self.truncated || self.items.len() == self.max_items || bytes > self.bytes_left {
            self.truncated = true;
            return false;
        }
        self.bytes_left -= bytes;
        self.items.push(item);
        true
    }

    /// Marks the list as incomplete.
    pub(super) const fn mark_truncated(&mut self) {
        self.truncated = true;
    }

    pub(super) fn finish(self) -> (Vec<Value>, bool) {
        (self.items, self.truncated)
    }
}
