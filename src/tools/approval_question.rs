//! Builds the question for an approval: what exactly a call would do, in the current workspace.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::Category;
use super::approval_digest::ApprovalDigest;
use super::context::{FsContext, ToolContext};
use super::edit::PlannedChange;
use super::error::ToolError;
use super::file_diff::FileDiff;
use super::request::Request;
use super::resolve;
use crate::sandbox::risk::Risk;

/// The question for an approval.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalQuestion {
    /// The kind for programs: `read`, `write`, `exec`, `commit` or `network`.
    pub kind: &'static str,
    /// A title for people.
    pub title: String,
    /// A summary: one line, or the command.
    pub summary: String,
    /// The details: an object that includes `risk` and `tool`.
    pub details: Value,
    /// The risk of the call.
    pub risk: Risk,
    /// The digest of the call.
    pub digest: String,
}

/// What a tool says about a call to the approver.
#[derive(Debug)]
pub struct CallDescription {
    title: String,
    summary: String,
    details: Value,
    digest: ApprovalDigest,
    addresses: Vec<IpAddr>,
}

impl CallDescription {
    /// Creates a description: a title, a summary, details that are an object, and the digest of everything that the
    /// approval depends on.
    pub fn new(title: impl Into<String>, summary: impl Into<String>, details: Value, digest: ApprovalDigest) -> Self {
        Self { title: title.into(), summary: summary.into(), details, digest, addresses: Vec::new() }
    }

    /// Adds the addresses that the host of the call resolved to, for the assessment of its risk.
    #[must_use]
    pub fn with_addresses(self, addresses: Vec<IpAddr>) -> Self {
        Self { addresses, ..self }
    }

    pub(super) fn into_digest(self) -> ApprovalDigest {
        self.digest
    }
}

pub(super) async fn build(request: &Request, context: &ToolContext) -> Result<ApprovalQuestion, ToolError> {
    // The approver also sees hidden paths.
    let context = &context.with_approved_paths(request).await?;
    resolve::check_reachable(request.named_paths(), context).await?;
    let CallDescription { title, summary, mut details, digest, addresses } = request.describe(context).await?;
    let path_context = context.path_context().with_addresses(addresses);
    let risk = request.assess_risk(request.escalation(), &path_context).risk;
    details["tool"] = request.tool().into();
    details["risk"] = risk.as_str().into();
    let kind = question_kind(request.category());
    Ok(ApprovalQuestion { kind, title, summary, details, risk, digest: digest.finish() })
}

/// The kind of the question for calls of a category.
const fn question_kind(category: Category) -> &'static str {
    match category {
        Category::Read => "read",
        Category::Write => "write",
        Category::Exec => "exec",
        Category::Git => "commit",
        Category::Network => "network",
    }
}

/// Describes a change of files, with a digest of their current and new contents.
pub(super) fn describe_files(
    files: &[PlannedChange],
    digest: ApprovalDigest,
    fs_context: &FsContext,
) -> CallDescription {
    let (mut insertions, mut deletions) = (0, 0);
    let mut diff = String::new();
    for file in files {
        let file = FileDiff::new(file);
        insertions += file.insertions;
        deletions += file.deletions;
        diff.push_str(&file.text);
    }
    // The diff is not redacted here; known values are masked when the complete question is.
    let cut = (fs_context.safe_cut)(&diff, fs_context.limits.diff_bytes);
    let truncated = cut < diff.len();
    diff.truncate(cut);
    let (what, path) = match files {
        [file] => (file.path.clone(), Some(&file.path)),
        _ => (format!("{} files", files.len()), None),
    };
    let bytes = files.iter().filter_map(|file| file.after.as_ref()).map(Vec::len).sum::<usize>();
    let verb = match files {
        [PlannedChange { before: None, .. }] => "create",
        [PlannedChange { after: None, .. }] => "delete",
        _ => "change",
    };
    let summary =
        format!("{verb} {what}: {}, {}", pluralize(insertions, "insertion"), pluralize(deletions, "deletion"));
    let names: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let details = json!({
        "path": path, "files": names, "filesChanged": files.len(), "insertions": insertions,
        "deletions": deletions, "bytes": bytes, "diff": diff, "diffTruncated": truncated,
    });
    let digest = files.iter().fold(digest, ApprovalDigest::add_file);
    CallDescription::new(format!("Approve writing {what}"), summary, details, digest)
}

/// A number with its noun in singular or plural.
fn pluralize(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::super::limits::Limits;
    use super::*;

    #[test]
    fn a_change_is_shown_as_a_diff_with_line_counts() {
        let dir = tempfile::tempdir().unwrap();
        let fs_context = FsContext::test(dir.path(), Limits::default());
        let file = planned("f", Some("one\ntwo\nthree\n"), Some("one\n2\n2b\nthree\n"));
        let CallDescription { title, summary, details, .. } = describe(&[file], &fs_context);
        assert_eq!(title, "Approve writing f");
        assert_eq!(summary, "change f: 2 insertions, 1 deletion");
        let diff = "--- f\n+++ f\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n+2b\n three\n";
        assert_eq!((&details["diff"], &details["diffTruncated"]), (&json!(diff), &json!(false)));
        assert_eq!(details["path"], "f");
    }

    #[test]
    fn several_files_are_shown_together_and_a_long_diff_is_truncated() {
        let dir = tempfile::tempdir().unwrap();
        let fs_context = FsContext::test(dir.path(), Limits { diff_bytes: 30, ..Limits::default() });
        let files = [planned("new", None, Some("a\n")), planned("old", Some("b\n"), None)];
        let CallDescription { title, summary, details, .. } = describe(&files, &fs_context);
        assert_eq!(title, "Approve writing 2 files");
        assert_eq!(summary, "change 2 files: 1 insertion, 1 deletion");
        assert_eq!(details["files"], json!(["new", "old"]));
        assert_eq!(details["diff"].as_str().unwrap(), "--- /dev/null\n+++ new\n@@ -0,0 ");
        assert_eq!(details["diffTruncated"], true);
        let binary = planned("b", None, Some("\0\n"));
        assert_eq!(FileDiff::new(&binary).text, "binary file b changed\n");
    }

    fn describe(files: &[PlannedChange], fs_context: &FsContext) -> CallDescription {
        describe_files(files, ApprovalDigest::new("call", &fs_context.workspace), fs_context)
    }

    fn planned(path: &str, before: Option<&str>, after: Option<&str>) -> PlannedChange {
        let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
        PlannedChange { path: path.into(), before: bytes(before), after: bytes(after) }
    }
}
