//! `sandbox_edit_file`: replaces a text in a file, or applies a patch to several files, all or nothing.

use std::path::Path;

use memchr::memmem;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::approval_question::describe_files;
use super::context::FsContext;
use super::error::{ToolError, ToolErrorKind};
use super::file_diff::{FileDiff, result_diff};
use super::patch::{Change, FilePatch, Patch};
use super::write::check_size;
use super::{
    ApprovalDigest, CallDescription, Category, ExecutionResult, Tool, ToolContext, assess_writes, parse_arguments,
    schema,
};
use crate::kernel::event::Diff;
use crate::sandbox::Chunk;
use crate::sandbox::risk::{Escalation, PathContext, RiskAssessment};
use crate::sandbox::workspace::WorkspaceError;

pub(super) const NAME: &str = "sandbox_edit_file";
const DESCRIPTION: &str = "Edit parts of files in the workspace. Either `path`, `old` and `new`: the exact \
    text `old`, which must occur once (or use `all`), is replaced by `new`. Or `patch`: a unified diff of one or \
    several files, which may create and delete files; it is applied completely or not at all.";

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The file, relative to the workspace.
    path: Option<String>,
    /// The text to replace, exactly as it occurs in the file, with its line breaks and spaces.
    old: Option<String>,
    /// The replacement text.
    new: Option<String>,
    /// Replace every occurrence instead of the only one.
    all: Option<bool>,
    /// A unified diff, with `---`, `+++` and `@@` lines; instead of path, old and new.
    patch: Option<String>,
}

/// Which occurrences are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplaceMode {
    /// The only one; several are an error.
    Only,
    /// All of them.
    All,
}

/// A parsed edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EditOperation {
    /// Replaces a text.
    Replace {
        /// The file.
        path: String,
        /// The text to replace.
        old: String,
        /// The replacement.
        new: String,
        /// Which occurrences.
        which: ReplaceMode,
    },
    /// Applies a patch.
    Patch(Patch),
}

impl Args {
    /// Parses the arguments into one of the two forms.
    fn into_operation(self) -> Result<EditOperation, ToolError> {
        let bad = |message| Err(ToolError::new(ToolErrorKind::BadArguments, message));
        match self {
            Self { patch: Some(patch), path: None, old: None, new: None, all: None } => {
                Patch::parse(&patch).map(EditOperation::Patch)
            }
            Self { patch: Some(_), .. } => bad("give either patch, or path with old and new"),
            Self { path: Some(path), old: Some(old), new: Some(new), all, patch: None } => {
                if old.is_empty() {
                    return bad("old is empty; to write a whole file use sandbox_write_file");
                }
                if old == new {
                    return bad("old and new are the same");
                }
                let which = if all.unwrap_or(false) { ReplaceMode::All } else { ReplaceMode::Only };
                Ok(EditOperation::Replace { path, old, new, which })
            }
            Self { patch: None, .. } => bad("path, old and new are needed, or patch"),
        }
    }
}

/// The tool.
#[derive(Debug)]
pub(super) struct Edit;

impl Tool for Edit {
    type Args = EditOperation;

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
        parse_arguments::<Args>(NAME, args)?.into_operation()
    }

    fn paths<'a>(&self, args: &'a mut Self::Args) -> Vec<&'a mut String> {
        match args {
            EditOperation::Replace { path, .. } => vec![path],
            EditOperation::Patch(patch) => patch.files.iter_mut().map(|file| &mut file.path).collect(),
        }
    }

    fn assess(&self, args: &Self::Args, _escalation: Escalation, paths: &PathContext) -> RiskAssessment {
        match args {
            EditOperation::Replace { path, .. } => assess_writes([path.as_str()], paths),
            EditOperation::Patch(patch) => assess_writes(patch.files.iter().map(|file| file.path.as_str()), paths),
        }
    }

    async fn describe(
        &self,
        args: &Self::Args,
        digest: ApprovalDigest,
        context: &ToolContext,
    ) -> Result<CallDescription, ToolError> {
        let args = args.clone();
        context.run_blocking(move |fs_context| Ok(describe_files(&plan(&args, fs_context)?, digest, fs_context))).await
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
        context.run_blocking(move |fs_context| edit(&args, fs_context)).await.into()
    }
}

/// The planned change of one file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlannedChange {
    pub(super) path: String,
    /// The current content; `None` if the file does not exist.
    pub(super) before: Option<Vec<u8>>,
    /// The new content; `None` if the file is to be removed.
    pub(super) after: Option<Vec<u8>>,
}

/// Computes the changes, without writing them.
fn plan(operation: &EditOperation, fs_context: &FsContext) -> Result<Vec<PlannedChange>, ToolError> {
    match operation {
        EditOperation::Replace { path, old, new, which } => {
            fs_context.workspace.check_change(Path::new(path))?;
            let before = fs_context.workspace.read(Path::new(path), fs_context.limits.file_bytes)?;
            let after = replace_text(path, &before, old, new, *which)?;
            check_size(path, after.len(), fs_context)?;
            Ok(vec![PlannedChange { path: path.clone(), before: Some(before), after: Some(after) }])
        }
        EditOperation::Patch(patch) => patch.files.iter().map(|file| apply_patch(file, fs_context)).collect(),
    }
}

fn replace_text(path: &str, text: &[u8], old: &str, new: &str, which: ReplaceMode) -> Result<Vec<u8>, ToolError> {
    let mut found: Vec<usize> = memmem::find_iter(text, old).collect();
    let (mut old, mut new) = (old.to_owned(), new.to_owned());
    if found.is_empty() && old.contains('\n') && !old.contains('\r') {
        // A model does not see that a file has CRLF line ends.
        (old, new) = (old.replace('\n', "\r\n"), new.replace('\n', "\r\n"));
        found = memmem::find_iter(text, &old).collect();
    }
    match (found.len(), which) {
        (0, _) => {
            let message = format!("the text to replace does not occur in {path}");
            return Err(ToolError::new(ToolErrorKind::NoMatch, message));
        }
        (1, _) | (_, ReplaceMode::All) => {}
        (count, ReplaceMode::Only) => {
            let message = format!(
                "the text to replace occurs {count} times in {path}: include more of the surrounding text, or use all"
            );
            return Err(ToolError::new(ToolErrorKind::Ambiguous, message));
        }
    }
    let mut result = Vec::with_capacity(text.len());
    let mut done = 0;
    for at in found {
        result.extend_from_slice(&text[done..at]);
        result.extend_from_slice(new.as_bytes());
        done = at + old.len();
    }
    result.extend_from_slice(&text[done..]);
    Ok(result)
}

fn apply_patch(file: &FilePatch, fs_context: &FsContext) -> Result<PlannedChange, ToolError> {
    let path = Path::new(&file.path);
    fs_context.workspace.check_change(path)?;
    let before = match (fs_context.workspace.read(path, fs_context.limits.file_bytes), file.change) {
        (Err(WorkspaceError::NotFound { .. }), Change::Created) => None,
        (Ok(_), Change::Created) => {
            let message = format!("{} exists already, and the patch would create it", file.path);
            return Err(ToolError::new(ToolErrorKind::NoMatch, message));
        }
        (content, Change::Created | Change::Modified | Change::Deleted) => Some(content?),
    };
    let text = match before.as_deref().map(std::str::from_utf8) {
        None => "",
        Some(Ok(text)) => text,
        Some(Err(_)) => {
            return Err(ToolError::new(ToolErrorKind::BinaryFile, format!("{} is not a text file", file.path)));
        }
    };
    let text = file.apply(text)?;
    check_size(&file.path, text.len(), fs_context)?;
    let after = match file.change {
        Change::Created | Change::Modified => Some(text.into_bytes()),
        Change::Deleted if text.is_empty() => None,
        Change::Deleted => {
            let message = format!("{} has more lines than the patch deletes", file.path);
            return Err(ToolError::new(ToolErrorKind::NoMatch, message));
        }
    };
    Ok(PlannedChange { path: file.path.clone(), before, after })
}

fn edit(operation: &EditOperation, fs_context: &FsContext) -> Result<(String, Option<Diff>), ToolError> {
    let planned = plan(operation, fs_context)?;
    fs_context.check_approval(&Edit, operation, &planned)?;
    for (index, file) in planned.iter().enumerate() {
        if let Err(error) = write_or_remove(&file.path, file.after.as_deref(), fs_context) {
            return Err(roll_back(&planned[..index], fs_context, error.into()));
        }
    }
    let mut diff = String::new();
    let files: Vec<_> = planned
        .iter()
        .map(|file| {
            let change = match (&file.before, &file.after) {
                (None, _) => "created",
                (Some(_), None) => "deleted",
                (Some(_), Some(_)) => "modified",
            };
            let FileDiff { insertions, deletions, text } = FileDiff::new(file);
            diff.push_str(&text);
            json!({ "path": file.path, "change": change, "insertions": insertions, "deletions": deletions })
        })
        .collect();
    let diff = result_diff(&diff, &fs_context.redact, fs_context.limits.diff_bytes);
    Ok((json!({ "files": files }).to_string(), diff))
}

fn write_or_remove(path: &str, content: Option<&[u8]>, fs_context: &FsContext) -> Result<(), WorkspaceError> {
    match content {
        Some(content) => fs_context.workspace.replace(Path::new(path), content).map(drop),
        None => fs_context.workspace.remove(Path::new(path)),
    }
}

/// Restores the files that were changed before an error.
fn roll_back(done: &[PlannedChange], fs_context: &FsContext, error: ToolError) -> ToolError {
    let stuck: Vec<&str> = done
        .iter()
        .filter(|file| write_or_remove(&file.path, file.before.as_deref(), fs_context).is_err())
        .map(|file| file.path.as_str())
        .collect();
    if stuck.is_empty() {
        return error;
    }
    error.with_detail(format!("these files were changed and could not be restored: {}", stuck.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::limits::Limits;
    use super::*;

    #[test]
    fn the_only_occurrence_is_replaced() {
        let dir = test_dir(&[("f", "one two three\n")]);
        let result = run_edit(dir.path(), json!({ "path": "f", "old": "two", "new": "2" })).unwrap();
        assert_eq!(text(dir.path(), "f"), "one 2 three\n");
        assert_eq!(result["files"], json!([{ "path": "f", "change": "modified", "insertions": 1, "deletions": 1 }]));
    }

    #[test]
    fn an_absent_or_ambiguous_text_is_refused_and_nothing_changes() {
        let dir = test_dir(&[("f", "a b a b a")]);
        let absent = run_edit(dir.path(), json!({ "path": "f", "old": "c", "new": "d" })).unwrap_err();
        assert_eq!(absent.kind, ToolErrorKind::NoMatch);
        let twice = run_edit(dir.path(), json!({ "path": "f", "old": "a", "new": "d" })).unwrap_err();
        assert_eq!(twice.kind, ToolErrorKind::Ambiguous);
        assert!(twice.message.contains("3 times"), "{}", twice.message);
        assert_eq!(text(dir.path(), "f"), "a b a b a");
        run_edit(dir.path(), json!({ "path": "f", "old": "a", "new": "aa", "all": true })).unwrap();
        assert_eq!(text(dir.path(), "f"), "aa b aa b aa");
    }

    #[test]
    fn a_file_keeps_its_two_character_line_ends_and_its_odd_bytes() {
        let dir = test_dir(&[("f", "one\r\ntwo\r\nthree\r\n")]);
        run_edit(dir.path(), json!({ "path": "f", "old": "one\ntwo", "new": "1\n2\n2b" })).unwrap();
        assert_eq!(text(dir.path(), "f"), "1\r\n2\r\n2b\r\nthree\r\n");
        fs::write(dir.path().join("odd"), b"\xff a \xfe").unwrap();
        run_edit(dir.path(), json!({ "path": "odd", "old": "a", "new": "b" })).unwrap();
        assert_eq!(fs::read(dir.path().join("odd")).unwrap(), b"\xff b \xfe");
    }

    #[test]
    fn a_patch_changes_creates_and_deletes() {
        let dir = test_dir(&[("f", "one\ntwo\n"), ("gone", "x\n")]);
        let patch = "--- a/f\n+++ b/f\n@@ -1,2 +1,3 @@\n one\n-two\n+2\n+3\n\
            --- /dev/null\n+++ b/sub/new\n@@ -0,0 +1 @@\n+hello\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n";
        let result = run_edit(dir.path(), json!({ "patch": patch })).unwrap();
        assert_eq!(text(dir.path(), "f"), "one\n2\n3\n");
        assert_eq!(text(dir.path(), "sub/new"), "hello\n");
        assert!(!dir.path().join("gone").exists());
        let changes: Vec<_> = result["files"].as_array().unwrap().iter().map(|file| &file["change"]).collect();
        assert_eq!(changes, ["modified", "created", "deleted"]);
        assert_eq!((&result["files"][0]["insertions"], &result["files"][0]["deletions"]), (&json!(2), &json!(1)));
    }

    #[test]
    fn the_diff_of_an_edit_is_redacted_before_it_is_truncated() {
        let dir = test_dir(&[("f", "one\ntwo\n")]);
        let limits = Limits { diff_bytes: 45, ..Limits::default() };
        let redact = |text: &str| text.replace("secret", "[redacted]");
        let mut fs_context = FsContext::test(dir.path(), limits);
        fs_context.redact = std::sync::Arc::new(redact);
        let change = |old: &str, new: &str| {
            let args: Args = serde_json::from_value(json!({ "path": "f", "old": old, "new": new })).unwrap();
            edit(&args.into_operation().unwrap(), &fs_context).unwrap().1.unwrap()
        };
        let text = "--- f\n+++ f\n@@ -1,2 +1,2 @@\n one\n-two\n+[redac".to_owned();
        assert_eq!(change("two", "secret"), Diff { text, truncated: true });
        fs::write(dir.path().join("f"), "a\n").unwrap();
        let text = "--- f\n+++ f\n@@ -1 +1 @@\n-a\n+b\n".to_owned();
        assert_eq!(change("a", "b"), Diff { text, truncated: false });
        fs::write(dir.path().join("f"), "\0a\n").unwrap();
        assert_eq!(change("a", "b"), Diff { text: "binary file f changed\n".to_owned(), truncated: false });
    }

    #[test]
    fn a_patch_that_does_not_apply_everywhere_changes_nothing() {
        let dir = test_dir(&[("f", "one\n"), ("g", "two\n")]);
        let patch = "--- f\n+++ f\n@@ -1 +1 @@\n-one\n+1\n--- g\n+++ g\n@@ -1 +1 @@\n-three\n+3\n";
        let error = run_edit(dir.path(), json!({ "patch": patch })).unwrap_err();
        assert_eq!(error.kind, ToolErrorKind::NoMatch);
        assert!(error.message.starts_with("g: hunk 1"), "{}", error.message);
        assert_eq!(text(dir.path(), "f"), "one\n");
        let exists = "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n";
        let error = run_edit(dir.path(), json!({ "patch": exists })).unwrap_err();
        assert_eq!(error.kind, ToolErrorKind::NoMatch);
        let partly = "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n";
        fs::write(dir.path().join("f"), "one\nmore\n").unwrap();
        let error = run_edit(dir.path(), json!({ "patch": partly })).unwrap_err();
        assert_eq!(error.kind, ToolErrorKind::NoMatch);
        assert_eq!(text(dir.path(), "f"), "one\nmore\n");
    }

    #[test]
    fn earlier_changes_are_rolled_back_when_a_later_write_fails() {
        let dir = test_dir(&[("f", "one\n"), ("wall", "x\n")]);
        // A directory of the third file will exist as a file.
        let patch = "--- f\n+++ f\n@@ -1 +1 @@\n-one\n+1\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+n\n\
            --- /dev/null\n+++ b/later/x\n@@ -0,0 +1 @@\n+y\n";
        let fs_context = FsContext::test(dir.path(), Limits::default());
        let args: Args = serde_json::from_value(json!({ "patch": patch })).unwrap();
        let understood = args.into_operation().unwrap();
        let planned = plan(&understood, &fs_context).unwrap();
        assert_eq!(planned.len(), 3);
        fs::write(dir.path().join("later"), "in the way").unwrap();
        let error = edit(&understood, &fs_context).unwrap_err();
        assert_eq!(error.kind, ToolErrorKind::NotADirectory);
        assert_eq!(text(dir.path(), "f"), "one\n");
        assert!(!dir.path().join("new").exists());
        for file in &planned[..2] {
            write_or_remove(&file.path, file.after.as_deref(), &fs_context).unwrap();
        }
        assert_eq!(roll_back(&planned[..2], &fs_context, error.clone()), error);
        assert_eq!(text(dir.path(), "f"), "one\n");
        assert!(!dir.path().join("new").exists());
    }

    #[test]
    fn a_mixture_of_both_forms_is_refused() {
        for args in [
            json!({}),
            json!({ "path": "f", "old": "a" }),
            json!({ "path": "f", "old": "", "new": "b" }),
            json!({ "path": "f", "old": "a", "new": "a" }),
            json!({ "path": "f", "patch": "--- f\n+++ f\n@@ -1 +1 @@\n-a\n+b\n" }),
        ] {
            let parsed: Args = serde_json::from_value(args).unwrap();
            assert_eq!(parsed.into_operation().unwrap_err().kind, ToolErrorKind::BadArguments);
        }
    }

    #[test]
    fn nothing_outside_is_edited() {
        let dir = test_dir(&[("f", "x")]);
        let error = run_edit(dir.path(), json!({ "path": "../f", "old": "a", "new": "b" })).unwrap_err();
        assert_eq!(error.kind, ToolErrorKind::OutsideWorkspace);
        let patch = "--- /dev/null\n+++ b/../new\n@@ -0,0 +1 @@\n+hello\n";
        let error = run_edit(dir.path(), json!({ "patch": patch })).unwrap_err();
        assert_eq!(error.kind, ToolErrorKind::OutsideWorkspace);
    }

    fn test_dir(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn text(root: &Path, name: &str) -> String {
        fs::read_to_string(root.join(name)).unwrap()
    }

    fn run_edit(root: &Path, args: Value) -> Result<Value, ToolError> {
        let args: Args = serde_json::from_value(args).unwrap();
        let (result, _diff) = edit(&args.into_operation()?, &FsContext::test(root, Limits::default()))?;
        Ok(serde_json::from_str(&result).unwrap())
    }
}
