//! Builds the question for an approval: what exactly a call would do, in the current workspace.

use serde_json::{Value, json};
use similar::TextDiff;

use super::bench::{Bench, Site};
use super::binding::Binding;
use super::commit::{self, Preview};
use super::edit::{self, Planned};
use super::exec::{self, Approval};
use super::fault::Fault;
use super::fetch;
use super::git_access;
use super::request::Request;
use super::resolve;
use super::write;
use crate::sandbox::judge::Risk;

/// The question for an approval.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
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

pub(super) async fn of(request: &Request, bench: &Bench) -> Result<Question, Fault> {
    // The approver also sees hidden paths.
    let bench = &bench.approving(request).await?;
    resolve::check_closed(request, bench).await?;
    let ((kind, title, summary, mut details), digest) = parts(request, bench).await?;
    let mut place = bench.path_context();
    if let Request::Fetch(args) = request {
        place = place.with_addresses(fetch::decided(args, bench).await?);
    }
    let risk = request.judge(request.wish(), &place).risk;
    details["tool"] = request.tool().into();
    details["risk"] = risk.word().into();
    Ok(Question { kind, title, summary, details, risk, digest })
}

/// The kind, the title, the summary and the details.
type Parts = (&'static str, String, String, Value);

/// Returns the parts of the question, and the digest of the call.
async fn parts(request: &Request, bench: &Bench) -> Result<(Parts, String), Fault> {
    let looking =
        |title: &str, summary: &str, details| ("read", title.to_owned(), summary.to_owned(), details);
    let binding = Binding::of(request, &bench.ground);
    let parts = match request {
        Request::Read(args) => looking("Approve reading", &args.path, json!({ "path": args.path })),
        Request::List(args) => {
            let path = args.path.as_deref().unwrap_or(".");
            looking("Approve listing", path, json!({ "path": path }))
        }
        Request::Search(args) => {
            let wanted = args.pattern.as_deref().or(args.glob.as_deref()).unwrap_or_default();
            let details = json!({ "pattern": args.pattern, "glob": args.glob, "path": args.path });
            looking("Approve searching", wanted, details)
        }
        Request::Status(_) => looking("Approve git status", "git status", json!({})),
        Request::Diff(args) => {
            looking("Approve git diff", "git diff", json!({ "staged": args.staged, "paths": args.paths }))
        }
        Request::Write(args) => {
            let args = args.clone();
            return bench.away(move |site| Ok(of_files(&[write::plan(args, site)?], binding, site))).await;
        }
        Request::Edit(edit) => {
            let edit = edit.clone();
            return bench.away(move |site| Ok(of_files(&edit::plan(&edit, site)?, binding, site))).await;
        }
        Request::Exec(args) => {
            let cwd = args.cwd.as_deref().unwrap_or(".");
            let mut details =
                json!({ "command": args.command, "cwd": cwd, "timeoutSeconds": args.timeout_seconds });
            let wish = request.wish();
            let git = git_access::is_wanted(args, bench).await?;
            let network = wish.network || exec::needs_network(args, bench, Approval::Given);
            for (name, wanted) in [("network", network), ("outside", wish.outside), ("gitDirectory", git)] {
                if wanted {
                    details[name] = json!(true);
                }
            }
            ("exec", "Approve command".to_owned(), args.command.clone(), details)
        }
        Request::Commit(args) => {
            let Preview { shown, seal } = commit::preview(args, bench).await?;
            let subject = args.message.trim().lines().next().unwrap_or_default().to_owned();
            let digest = binding.part(shown.to_string().as_bytes()).part(&seal).finish();
            return Ok((("commit", "Approve commit".to_owned(), subject, shown), digest));
        }
        Request::Fetch(args) => {
            let found = fetch::decided(args, bench).await?;
            let details = json!({ "url": args.url, "addresses": found });
            let parts = ("network", "Approve fetching".to_owned(), format!("GET {}", args.url), details);
            return Ok((parts, fetch::bound(binding, &found).finish()));
        }
    };
    Ok((parts, binding.finish()))
}

/// The question for a change of files, with a digest of their current and new contents.
fn of_files(files: &[Planned], binding: Binding, site: &Site) -> (Parts, String) {
    (shown(files, site), files.iter().fold(binding, Binding::file).finish())
}

fn shown(files: &[Planned], site: &Site) -> Parts {
    let (mut insertions, mut deletions) = (0, 0);
    let mut diff = String::new();
    for file in files {
        let (more, less) = counts(file);
        insertions += more;
        deletions += less;
        diff.push_str(&unified(file));
    }
    // The diff is not redacted here; known values are masked when the complete question is.
    let cut = (site.cut)(&diff, site.limits.diff_bytes);
    let truncated = cut < diff.len();
    diff.truncate(cut);
    let (what, path) = match files {
        [file] => (file.path.clone(), Some(&file.path)),
        _ => (format!("{} files", files.len()), None),
    };
    let bytes = files.iter().filter_map(|file| file.after.as_ref()).map(Vec::len).sum::<usize>();
    let verb = match files {
        [Planned { before: None, .. }] => "create",
        [Planned { after: None, .. }] => "delete",
        _ => "change",
    };
    let summary =
        format!("{verb} {what}: {}, {}", counted(insertions, "insertion"), counted(deletions, "deletion"));
    let names: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let details = json!({
        "path": path, "files": names, "filesChanged": files.len(), "insertions": insertions,
        "deletions": deletions, "bytes": bytes, "diff": diff, "diffTruncated": truncated,
    });
    ("write", format!("Approve writing {what}"), summary, details)
}

/// A number with its noun in singular or plural.
fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// The numbers of lines that a change inserts and deletes.
pub(super) fn counts(file: &Planned) -> (usize, usize) {
    let (before, after) = texts(file);
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(&before, &after);
    diff.iter_all_changes().fold((0, 0), |(more, less), change| match change.tag() {
        similar::ChangeTag::Insert => (more + 1, less),
        similar::ChangeTag::Delete => (more, less + 1),
        similar::ChangeTag::Equal => (more, less),
    })
}

fn unified(file: &Planned) -> String {
    let (before, after) = texts(file);
    if before.contains('\0') || after.contains('\0') {
        return format!("binary file {}\n", file.path);
    }
    let name = |side: &Option<Vec<u8>>| {
        if side.is_some() { file.path.clone() } else { "/dev/null".to_owned() }
    };
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(&before, &after);
    diff.unified_diff().context_radius(3).header(&name(&file.before), &name(&file.after)).to_string()
}

fn texts(file: &Planned) -> (String, String) {
    let text =
        |side: &Option<Vec<u8>>| String::from_utf8_lossy(side.as_deref().unwrap_or_default()).into_owned();
    (text(&file.before), text(&file.after))
}

/// How long a minimal diff is searched; after that a larger one is used.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::super::limits::Limits;
    use super::*;

    #[test]
    fn a_change_is_shown_as_a_difference_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let site = Site::test(dir.path(), Limits::default());
        let file = planned("f", Some("one\ntwo\nthree\n"), Some("one\n2\n2b\nthree\n"));
        let (_, title, summary, details) = shown(&[file], &site);
        assert_eq!(title, "Approve writing f");
        assert_eq!(summary, "change f: 2 insertions, 1 deletion");
        let diff = "--- f\n+++ f\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n+2b\n three\n";
        assert_eq!((&details["diff"], &details["diffTruncated"]), (&json!(diff), &json!(false)));
        assert_eq!(details["path"], "f");
    }

    #[test]
    fn several_files_are_shown_together_and_a_long_difference_is_cut() {
        let dir = tempfile::tempdir().unwrap();
        let site = Site::test(dir.path(), Limits { diff_bytes: 30, ..Limits::default() });
        let files = [planned("new", None, Some("a\n")), planned("old", Some("b\n"), None)];
        let (_, title, summary, details) = shown(&files, &site);
        assert_eq!(title, "Approve writing 2 files");
        assert_eq!(summary, "change 2 files: 1 insertion, 1 deletion");
        assert_eq!(details["files"], json!(["new", "old"]));
        assert_eq!(details["diff"].as_str().unwrap(), "--- /dev/null\n+++ new\n@@ -0,0 ");
        assert_eq!(details["diffTruncated"], true);
        let binary = planned("b", None, Some("\0\n"));
        assert_eq!(unified(&binary), "binary file b\n");
    }

    fn planned(path: &str, before: Option<&str>, after: Option<&str>) -> Planned {
        let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
        Planned { path: path.into(), before: bytes(before), after: bytes(after) }
    }
}
