//! Builds the question for an approval: what exactly a call would do, in the current workspace.

use serde_json::{Value, json};
use similar::TextDiff;

use super::approval_digest::ApprovalDigest;
use super::commit::{self, CommitPreview};
use super::context::{FsContext, ToolContext};
use super::edit::{self, PlannedChange};
use super::error::ToolError;
use super::exec::{self, Approval};
use super::fetch;
use super::git_access;
use super::request::Request;
use super::resolve;
use super::write;
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

pub(super) async fn build(request: &Request, context: &ToolContext) -> Result<ApprovalQuestion, ToolError> {
    // The approver also sees hidden paths.
    let context = &context.with_approved_paths(request).await?;
    resolve::check_not_denied(request, context).await?;
    let ((kind, title, summary, mut details), digest) = question_parts(request, context).await?;
    let mut path_context = context.path_context();
    if let Request::Fetch(args) = request {
        path_context = path_context.with_addresses(fetch::pinned_addresses(args, context).await?);
    }
    let risk = request.assess_risk(request.escalation(), &path_context).risk;
    details["tool"] = request.tool().into();
    details["risk"] = risk.as_str().into();
    Ok(ApprovalQuestion { kind, title, summary, details, risk, digest })
}

/// The kind, the title, the summary and the details.
type QuestionParts = (&'static str, String, String, Value);

/// Returns the parts of the question, and the digest of the call.
async fn question_parts(request: &Request, context: &ToolContext) -> Result<(QuestionParts, String), ToolError> {
    let reading = |title: &str, summary: &str, details| ("read", title.to_owned(), summary.to_owned(), details);
    let call_digest = ApprovalDigest::new(request, &context.workspace);
    let parts = match request {
        Request::Read(args) => reading("Approve reading", &args.path, json!({ "path": args.path })),
        Request::List(args) => {
            let path = args.path.as_deref().unwrap_or(".");
            reading("Approve listing", path, json!({ "path": path }))
        }
        Request::Search(args) => {
            let wanted = args.pattern.as_deref().or(args.glob.as_deref()).unwrap_or_default();
            let details = json!({ "pattern": args.pattern, "glob": args.glob, "path": args.path });
            reading("Approve searching", wanted, details)
        }
        Request::Status(_) => reading("Approve git status", "git status", json!({})),
        Request::Diff(args) => {
            reading("Approve git diff", "git diff", json!({ "staged": args.staged, "paths": args.paths }))
        }
        Request::Write(args) => {
            let args = args.clone();
            return context
                .run_blocking(move |fs_context| {
                    Ok(file_question(&[write::plan(args, fs_context)?], call_digest, fs_context))
                })
                .await;
        }
        Request::Edit(edit) => {
            let edit = edit.clone();
            return context
                .run_blocking(move |fs_context| {
                    Ok(file_question(&edit::plan(&edit, fs_context)?, call_digest, fs_context))
                })
                .await;
        }
        Request::Exec(args) => {
            let cwd = args.cwd.as_deref().unwrap_or(".");
            let mut details = json!({ "command": args.command, "cwd": cwd, "timeoutSeconds": args.timeout_seconds });
            mark_escalations(&mut details, request, args, context).await?;
            ("exec", "Approve command".to_owned(), args.command.clone(), details)
        }
        Request::Commit(args) => {
            let CommitPreview { summary: shown, content_digest } = commit::preview(args, context).await?;
            let subject = args.message.trim().lines().next().unwrap_or_default().to_owned();
            let digest = call_digest.add_bytes(shown.to_string().as_bytes()).add_bytes(&content_digest).finish();
            return Ok((("commit", "Approve commit".to_owned(), subject, shown), digest));
        }
        Request::Fetch(args) => {
            let found = fetch::pinned_addresses(args, context).await?;
            let details = json!({ "url": args.url, "addresses": found });
            let parts = ("network", "Approve fetching".to_owned(), format!("GET {}", args.url), details);
            return Ok((parts, fetch::bind_address_class(call_digest, &found).finish()));
        }
    };
    Ok((parts, call_digest.finish()))
}

/// Adds what a command gets beyond its confinement to the details of its question.
async fn mark_escalations(
    details: &mut Value,
    request: &Request,
    args: &exec::Args,
    context: &ToolContext,
) -> Result<(), ToolError> {
    let escalation = request.escalation();
    let git = git_access::needs_git_write(args, context).await?;
    let network = escalation.network || exec::needs_network(args, context, Approval::Given);
    for (name, wanted) in [("network", network), ("outside", escalation.unconfined), ("gitDirectory", git)] {
        if wanted {
            details[name] = json!(true);
        }
    }
    Ok(())
}

/// The question for a change of files, with a digest of their current and new contents.
fn file_question(
    files: &[PlannedChange],
    call_digest: ApprovalDigest,
    fs_context: &FsContext,
) -> (QuestionParts, String) {
    (describe_files(files, fs_context), files.iter().fold(call_digest, ApprovalDigest::add_file).finish())
}

fn describe_files(files: &[PlannedChange], fs_context: &FsContext) -> QuestionParts {
    let (mut insertions, mut deletions) = (0, 0);
    let mut diff = String::new();
    for file in files {
        let (more, less) = line_counts(file);
        insertions += more;
        deletions += less;
        diff.push_str(&unified_diff(file));
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
    ("write", format!("Approve writing {what}"), summary, details)
}

/// A number with its noun in singular or plural.
fn pluralize(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// The numbers of lines that a change inserts and deletes.
pub(super) fn line_counts(file: &PlannedChange) -> (usize, usize) {
    let (before, after) = decode_sides(file);
    let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_lines(&before, &after);
    diff.iter_all_changes().fold((0, 0), |(more, less), change| match change.tag() {
        similar::ChangeTag::Insert => (more + 1, less),
        similar::ChangeTag::Delete => (more, less + 1),
        similar::ChangeTag::Equal => (more, less),
    })
}

fn unified_diff(file: &PlannedChange) -> String {
    let (before, after) = decode_sides(file);
    if before.contains('\0') || after.contains('\0') {
        return format!("binary file {}\n", file.path);
    }
    let name = |side: &Option<Vec<u8>>| {
        if side.is_some() { file.path.clone() } else { "/dev/null".to_owned() }
    };
    let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_lines(&before, &after);
    diff.unified_diff().context_radius(3).header(&name(&file.before), &name(&file.after)).to_string()
}

fn decode_sides(file: &PlannedChange) -> (String, String) {
    let text = |side: &Option<Vec<u8>>| String::from_utf8_lossy(side.as_deref().unwrap_or_default()).into_owned();
    (text(&file.before), text(&file.after))
}

/// How long a minimal diff is searched; after that a larger one is used.
const DIFF_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::super::limits::Limits;
    use super::*;

    #[test]
    fn a_change_is_shown_as_a_diff_with_line_counts() {
        let dir = tempfile::tempdir().unwrap();
        let fs_context = FsContext::test(dir.path(), Limits::default());
        let file = planned("f", Some("one\ntwo\nthree\n"), Some("one\n2\n2b\nthree\n"));
        let (_, title, summary, details) = describe_files(&[file], &fs_context);
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
        let (_, title, summary, details) = describe_files(&files, &fs_context);
        assert_eq!(title, "Approve writing 2 files");
        assert_eq!(summary, "change 2 files: 1 insertion, 1 deletion");
        assert_eq!(details["files"], json!(["new", "old"]));
        assert_eq!(details["diff"].as_str().unwrap(), "--- /dev/null\n+++ new\n@@ -0,0 ");
        assert_eq!(details["diffTruncated"], true);
        let binary = planned("b", None, Some("\0\n"));
        assert_eq!(unified_diff(&binary), "binary file b\n");
    }

    fn planned(path: &str, before: Option<&str>, after: Option<&str>) -> PlannedChange {
        let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
        PlannedChange { path: path.into(), before: bytes(before), after: bytes(after) }
    }
}
