//! `sandbox_write_file`: creates or replaces a file.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;

use super::approval_question::describe_files;
use super::context::FsContext;
use super::edit::PlannedChange;
use super::error::{ToolError, ToolErrorKind};
use super::file_diff::{FileDiff, result_diff};
use super::{
    ApprovalDigest, CallDescription, Category, ExecutionResult, Tool, ToolContext, assess_writes, parse_arguments,
    schema,
};
use crate::kernel::event::Diff;
use crate::sandbox::Chunk;
use crate::sandbox::risk::{Escalation, PathContext, RiskAssessment};
use crate::sandbox::workspace::WorkspaceError;

pub(super) const NAME: &str = "sandbox_write_file";
const DESCRIPTION: &str = "Write a complete file of the workspace: create it, with its parent directories, or \
    replace an existing one, which keeps its mode. To change a part of a file, use sandbox_edit_file.";

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The file, relative to the workspace.
    path: String,
    /// The complete content.
    content: String,
}

/// The tool.
#[derive(Debug)]
pub(super) struct Write;

impl Tool for Write {
    type Args = Args;

    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        DESCRIPTION
    }

    fn schema(&self) -> Value {
        schema::<Args>()
    }

    fn category(&self) -> Category {
        Category::Write
    }

    fn parse(&self, args: &str) -> Result<Self::Args, ToolError> {
        parse_arguments(NAME, args)
    }

    fn paths<'a>(&self, args: &'a mut Self::Args) -> Vec<&'a mut String> {
        vec![&mut args.path]
    }

    fn assess(&self, args: &Self::Args, _escalation: Escalation, paths: &PathContext) -> RiskAssessment {
        assess_writes([args.path.as_str()], paths)
    }

    async fn describe(
        &self,
        args: &Self::Args,
        digest: ApprovalDigest,
        context: &ToolContext,
    ) -> Result<CallDescription, ToolError> {
        let args = args.clone();
        context.run_blocking(move |fs_context| Ok(describe_files(&[plan(args, fs_context)?], digest, fs_context))).await
    }

    async fn recompute_digest(
        &self,
        _args: &Self::Args,
        _digest: ApprovalDigest,
        _context: &ToolContext,
    ) -> Result<Option<ApprovalDigest>, ToolError> {
        // The contents of files are part of the digest, and are compared when they are written.
        Ok(None)
    }

    async fn run(&self, args: Self::Args, context: &ToolContext, _out: mpsc::Sender<Chunk>) -> ExecutionResult {
        context.run_blocking(move |fs_context| write(&args, fs_context)).await.into()
    }
}

fn write(args: &Args, fs_context: &FsContext) -> Result<(String, Option<Diff>), ToolError> {
    check_size(&args.path, args.content.len(), fs_context)?;
    let planned = plan(args.clone(), fs_context);
    if fs_context.was_approved() {
        fs_context.check_approval(&Write, args, std::slice::from_ref(planned.as_ref().map_err(Clone::clone)?))?;
    }
    // A file whose former content cannot be read, or is too large, can be replaced; it has no diff.
    let planned = planned.ok();
    let written = fs_context.workspace.replace(Path::new(&args.path), args.content.as_bytes())?;
    let verb = if written.created { "created" } else { "replaced" };
    let diff = planned.map(|planned| FileDiff::new(&planned).text);
    let diff = diff.and_then(|diff| result_diff(&diff, &fs_context.redact, fs_context.limits.diff_bytes));
    Ok((format!("{verb} {} ({} bytes)", args.path, written.bytes), diff))
}

/// Computes the change, without writing it.
fn plan(args: Args, fs_context: &FsContext) -> Result<PlannedChange, ToolError> {
    fs_context.workspace.check_change(Path::new(&args.path))?;
    check_size(&args.path, args.content.len(), fs_context)?;
    let before = match fs_context.workspace.read(Path::new(&args.path), fs_context.limits.file_bytes) {
        Ok(before) => Some(before),
        Err(WorkspaceError::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(PlannedChange { path: args.path, before, after: Some(args.content.into_bytes()) })
}

/// Refuses a content that is larger than the limit.
pub(super) fn check_size(path: &str, bytes: usize, fs_context: &FsContext) -> Result<(), ToolError> {
    let most = fs_context.limits.file_bytes;
    if bytes as u64 <= most {
        return Ok(());
    }
    Err(ToolError::new(ToolErrorKind::TooLarge, format!("{path} would have {bytes} bytes; the limit is {most}")))
}

#[cfg(test)]
mod tests {
    use super::super::limits::Limits;
    use super::*;

    #[test]
    fn a_file_is_created_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let fs_context = FsContext::test(dir.path(), Limits { file_bytes: 6, ..Limits::default() });
        let write =
            |path: &str, content: &str| write(&Args { path: path.into(), content: content.into() }, &fs_context);
        let written = |text: &str, diff: &str| {
            let diff = (!diff.is_empty()).then(|| Diff { text: diff.to_owned(), truncated: false });
            Ok((text.to_owned(), diff))
        };
        let diff = "--- /dev/null\n+++ a/b\n@@ -0,0 +1 @@\n+one\n";
        assert_eq!(write("a/b", "one\n"), written("created a/b (4 bytes)", diff));
        let diff = "--- a/b\n+++ a/b\n@@ -1 +1 @@\n-one\n+two\n\\ No newline at end of file\n";
        assert_eq!(write("a/b", "two"), written("replaced a/b (3 bytes)", diff));
        assert_eq!(write("a/b", "two"), written("replaced a/b (3 bytes)", ""), "nothing changed");
        assert_eq!(std::fs::read(dir.path().join("a/b")).unwrap(), b"two");
        assert_eq!(write("a/b", "too long").unwrap_err().kind, ToolErrorKind::TooLarge);
        assert_eq!(write("a", "x").unwrap_err().kind, ToolErrorKind::IsDirectory);
        assert_eq!(write("../x", "x").unwrap_err().kind, ToolErrorKind::OutsideWorkspace);
        assert_eq!(std::fs::read(dir.path().join("a/b")).unwrap(), b"two");
    }
}
