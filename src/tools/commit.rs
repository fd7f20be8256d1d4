//! `sandbox_git_commit`: commits the staged changes, some paths, or everything in the workspace.

use std::io::Read;
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::context::{FsContext, ToolContext};
use super::error::{ToolError, ToolErrorKind};
use super::file_diff::result_diff;
use super::git::{self, FileStat, GitScript};
use super::{ApprovalDigest, CallDescription, Category, ExecutionResult, Tool, parse_arguments, schema};
use crate::kernel::event::Diff;
use crate::sandbox::Chunk;
use crate::sandbox::risk::{self, Escalation, PathContext, ResourceAccess, Risk, RiskAssessment};

pub(super) const NAME: &str = "sandbox_git_commit";
const DESCRIPTION: &str = "Commit to the git repository: with `paths` the current state of these files and \
    directories, new and deleted files included; with `all` that of the whole workspace; with neither the staged \
    changes. Hooks are not run and the commit is not signed.";

/// The maximum length of a message.
const MESSAGE_MAX: usize = 16 * 1024;
/// The maximum number of paths.
const PATHS_MAX: usize = 500;
/// How many files a preview lists.
const LISTED_FILES_MAX: usize = 100;
/// How many uncommitted files an error names.
const NAMED_FILES_MAX: usize = 10;
/// How many untracked files a preview counts the lines of.
const COUNTED_FILES_MAX: usize = 1000;

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The commit message.
    message: String,
    /// Files and directories to commit, relative to the workspace.
    paths: Option<Vec<String>>,
    /// Commit everything in the workspace.
    all: Option<bool>,
}

impl Args {
    /// Refuses arguments that git would reject.
    fn validate(self) -> Result<Self, ToolError> {
        let bad = |message: &str| Err(ToolError::new(ToolErrorKind::BadArguments, message));
        let paths = self.paths.as_deref();
        if self.message.trim().is_empty() {
            return bad("the message is empty");
        }
        if self.message.len() > MESSAGE_MAX || self.message.contains('\0') {
            return bad("the message is longer than 16384 bytes, or contains a NUL");
        }
        if paths.is_some_and(<[String]>::is_empty) {
            return bad("paths is empty");
        }
        if paths.is_some_and(|paths| paths.len() > PATHS_MAX) {
            return bad("more than 500 paths; name their directories");
        }
        if paths.is_some() && self.all == Some(true) {
            return bad("give either paths or all");
        }
        Ok(self)
    }

    /// The paths to commit; empty to commit what is staged.
    async fn pathspecs(&self, context: &ToolContext) -> Result<Vec<String>, ToolError> {
        match (&self.paths, self.all) {
            (Some(paths), _) => git::check_pathspecs(paths, context).await,
            (None, Some(true)) => Ok(vec![".".to_owned()]),
            (None, Some(false) | None) => Ok(Vec::new()),
        }
    }
}

const NUMSTAT: [&str; 6] =
    ["--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"];

/// A diff for people.
const PATCH: [&str; 5] = ["--patch", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"];

/// A complete diff: with full object ids and binary files.
const FULL_DIFF: [&str; 6] =
    ["--full-index", "--binary", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty"];

/// The tool.
#[derive(Debug)]
pub(super) struct Commit;

impl Tool for Commit {
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
        Category::Git
    }

    fn parse(&self, args: &str) -> Result<Self::Args, ToolError> {
        parse_arguments::<Args>(NAME, args)?.validate()
    }

    fn paths<'a>(&self, args: &'a mut Self::Args) -> Vec<&'a mut String> {
        args.paths.iter_mut().flatten().collect()
    }

    fn assess(&self, args: &Self::Args, _escalation: Escalation, paths: &PathContext) -> RiskAssessment {
        let mut accesses = vec![(ResourceAccess::Git("commit".to_owned()), Risk::Medium)];
        // A commit shows a file to everybody who reads the repository, which matters for hidden files.
        let everything = (args.all == Some(true)).then_some(".");
        let named = args.paths.iter().flatten().map(String::as_str).chain(everything);
        let path_refs = named.map(|path| paths.resolve_file(path));
        let hidden = path_refs.filter(|path_ref| paths.hides(path_ref) || paths.contains_hidden(path_ref));
        accesses.extend(hidden.map(|path_ref| (ResourceAccess::Read(path_ref), Risk::High)));
        risk::assess_tool(Category::Git, accesses, Risk::Medium)
    }

    async fn describe(
        &self,
        args: &Self::Args,
        digest: ApprovalDigest,
        context: &ToolContext,
    ) -> Result<CallDescription, ToolError> {
        let CommitPreview { summary, content_digest } = preview(args, context).await?;
        let subject = args.message.trim().lines().next().unwrap_or_default();
        let digest = digest.add_bytes(summary.to_string().as_bytes()).add_bytes(&content_digest);
        Ok(CallDescription::new("Approve commit", subject, summary, digest))
    }

    async fn recompute_digest(
        &self,
        args: &Self::Args,
        digest: ApprovalDigest,
        context: &ToolContext,
    ) -> Result<Option<ApprovalDigest>, ToolError> {
        Ok(Some(self.describe(args, digest, context).await?.into_digest()))
    }

    async fn run(&self, args: Self::Args, context: &ToolContext, _out: mpsc::Sender<Chunk>) -> ExecutionResult {
        commit(&args, context).await.into()
    }

    fn starts_programs(&self) -> bool {
        true
    }

    fn covers_directories(&self) -> bool {
        true
    }

    fn takes_rule_pattern(&self) -> bool {
        false
    }
}

async fn commit(args: &Args, context: &ToolContext) -> Result<(String, Option<Diff>), ToolError> {
    let paths = args.pathspecs(context).await?;
    let mut words =
        vec!["commit", "--no-verify", "--no-gpg-sign", "--no-edit", "--cleanup=whitespace", "-m", &*args.message];
    let named: Vec<&str> = paths.iter().map(String::as_str).collect();
    // An empty commit would make git inspect nested repositories.
    let difference = [&["diff", "--cached", "--quiet", "--ignore-submodules=dirty", "--"][..], &named].concat();
    let script = if paths.is_empty() {
        GitScript::git(&["rev-parse", "--git-dir"]).output_to_stderr().if_changed(&difference).then(&words)
    } else {
        words.extend(["--only", "--"]);
        words.extend(&named);
        staging_script(args, &named).if_changed(&difference).then(&words)
    };
    let show = [&["show", "--format=%H", "--no-show-signature"][..], &NUMSTAT, &["HEAD"]].concat();
    let branch = ["rev-parse", "--abbrev-ref", "HEAD"];
    let printed = match script.output_to_stderr().then(&branch).then(&show).run_writable(context).await {
        Err(error) if error.kind == ToolErrorKind::NothingToCommit => {
            return Err(nothing_to_commit(args, context).await);
        }
        printed => printed?,
    };
    let text = String::from_utf8_lossy(&printed.bytes);
    let (branch, rest) = text.split_once('\n').unwrap_or_default();
    let (commit, stat) = rest.split_at_checked(rest.find(['\n', '\0']).unwrap_or(rest.len())).unwrap_or_default();
    let files = git::parse_numstat(stat.trim_start_matches(['\n', '\0']));
    let (insertions, deletions) = total_lines(&files);
    let result = json!({
        "commit": commit, "branch": branch, "filesChanged": files.len(),
        "insertions": insertions, "deletions": deletions,
    });
    Ok((result.to_string(), commit_diff(commit, context).await))
}

/// Returns the diff of a commit; none if git cannot show it.
async fn commit_diff(commit: &str, context: &ToolContext) -> Option<Diff> {
    let show = [&["show", "--format=", "--no-show-signature", "--no-color"][..], &PATCH, &[commit]].concat();
    let printed = GitScript::git(&show).run(context).await.ok()?;
    let text = String::from_utf8_lossy(&printed.bytes);
    let diff = result_diff(&text, &context.redact, context.limits.diff_bytes)?;
    Some(Diff { truncated: diff.truncated || printed.truncated, ..diff })
}

/// Stages the current state of these paths. `git add` would also enter nested repositories.
fn staging_script(args: &Args, paths: &[&str]) -> GitScript {
    let ls_files = |how: &[&'static str]| [&["ls-files", "-z"], how, UNTRACKED, &["--"], paths].concat();
    let present = ls_files(&["--modified", "--deleted"]);
    let update = ["update-index", "--add", "--remove", "--replace", "-z", "--stdin"];
    let script = match args.paths {
        // A named path must exist.
        Some(_) => GitScript::git(&ls_files(&["--error-unmatch", "--cached"])).discard_output().then(&present),
        None => GitScript::git(&present),
    };
    script.pipe_to(&update).output_to_stderr()
}

/// Untracked files, without ignored ones.
const UNTRACKED: &[&str] = &["--others", "--exclude-standard"];

/// A preview of a commit.
struct CommitPreview {
    /// Line counts and file names, for the approver.
    summary: Value,
    /// A digest of the complete content.
    content_digest: [u8; 32],
}

/// Computes what would be committed, without changing anything.
async fn preview(args: &Args, context: &ToolContext) -> Result<CommitPreview, ToolError> {
    let paths = args.pathspecs(context).await?;
    let (branch, tree) = branch_and_tree(context).await?;
    let mut about = if paths.is_empty() { vec!["--cached", &*tree] } else { vec!["--relative", &*tree, "--"] };
    about.extend(paths.iter().map(String::as_str));
    let mut files = numstat_of(&[&["diff"][..], &NUMSTAT, &about].concat(), context).await?;
    // The full diff identifies the content of every changed file, which the line counts do not.
    let whole = GitScript::git(&[&["diff"][..], &FULL_DIFF, &about].concat()).pipe_to(&["hash-object", "--stdin"]);
    let mut content_digest = Sha256::new_with_prefix(whole.run(context).await?.bytes);
    if !paths.is_empty() {
        let mut others = [&["ls-files", "-z"], UNTRACKED, &["--"]].concat();
        others.extend(paths.iter().map(String::as_str));
        let printed = GitScript::git(&others).run(context).await?;
        let text = String::from_utf8_lossy(&printed.bytes);
        // A nested repository is listed as a directory, and is not committed.
        let names = text.split_terminator('\0').filter(|name| !name.ends_with('/')).map(str::to_owned).collect();
        let (new, digest) = context.run_blocking(move |fs_context| Ok(count_new_files(names, fs_context))).await?;
        files.extend(new);
        content_digest.update(digest);
    }
    if files.is_empty() {
        return Err(nothing_to_commit(args, context).await);
    }
    let (insertions, deletions) = total_lines(&files);
    let listed: Vec<Value> = files
        .iter()
        .take(LISTED_FILES_MAX)
        .map(|file| json!({ "path": file.path, "insertions": file.insertions, "deletions": file.deletions }))
        .collect();
    let summary = json!({
        "filesChanged": files.len(), "insertions": insertions, "deletions": deletions,
        "message": args.message, "branch": branch, "files": listed,
    });
    Ok(CommitPreview { summary, content_digest: content_digest.finalize().into() })
}

/// Returns the error for an empty commit, with the files that could be committed.
async fn nothing_to_commit(args: &Args, context: &ToolContext) -> ToolError {
    let mut message = "there is nothing to commit".to_owned();
    if args.paths.is_none() && args.all != Some(true) {
        let mut found = Vec::new();
        for (what, how) in [("untracked", UNTRACKED), ("changed", &["--modified", "--deleted", "--deduplicate"][..])] {
            let printed = GitScript::git(&[&["ls-files", "-z"], how].concat()).run(context).await;
            let text = printed.map(|printed| String::from_utf8_lossy(&printed.bytes).into_owned());
            let names: Vec<String> = text.unwrap_or_default().split_terminator('\0').map(str::to_owned).collect();
            if !names.is_empty() {
                found.push(format!("{what}: {}", abbreviate(&names)));
            }
        }
        if !found.is_empty() {
            message = format!(
                "nothing is staged, and without `paths` or `all` only staged changes are committed; {}. Name files in \
                 `paths`, or commit everything with `all`",
                found.join("; ")
            );
        }
    }
    ToolError::new(ToolErrorKind::NothingToCommit, message)
}

/// The first names, and the number of further ones.
fn abbreviate(names: &[String]) -> String {
    let named = names.iter().take(NAMED_FILES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_FILES_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// The branch, and the tree that a commit is compared with: the empty tree before the first commit.
async fn branch_and_tree(context: &ToolContext) -> Result<(String, String), ToolError> {
    let symbolic = GitScript::git(&["rev-parse", "--git-dir"]).output_to_stderr();
    let head = symbolic.then(&["rev-parse", "--abbrev-ref", "HEAD"]).then(&["rev-parse", "HEAD^{tree}"]);
    let two_lines = |printed: &git::GitOutput| {
        let text = String::from_utf8_lossy(&printed.bytes).into_owned();
        let mut lines = text.lines().map(str::to_owned);
        (lines.next().unwrap_or_default(), lines.next().unwrap_or_default())
    };
    match head.run(context).await {
        Ok(printed) => Ok(two_lines(&printed)),
        Err(error) if error.kind == ToolErrorKind::GitFailed => {
            let empty = GitScript::git(&["symbolic-ref", "--short", "HEAD"]);
            let empty = empty.then(&["hash-object", "-t", "tree", "/dev/null"]);
            Ok(two_lines(&empty.run(context).await?))
        }
        Err(error) => Err(error),
    }
}

async fn numstat_of(words: &[&str], context: &ToolContext) -> Result<Vec<FileStat>, ToolError> {
    let printed = GitScript::git(words).run(context).await?;
    Ok(git::parse_numstat(&String::from_utf8_lossy(&printed.bytes)))
}

/// Untracked files with their line counts, and a digest of all of them.
///
/// Files beyond the maximum number contribute only their names, and large files only their beginning.
fn count_new_files(names: Vec<String>, fs_context: &FsContext) -> (Vec<FileStat>, [u8; 32]) {
    let mut content_digest = Sha256::new();
    let mut lines = |name: &str| {
        let file = fs_context.workspace.open_file(Path::new(name)).ok()?;
        let mut bytes = Vec::new();
        file.take(fs_context.limits.file_bytes).read_to_end(&mut bytes).ok()?;
        content_digest.update(Sha256::digest(&bytes));
        let is_binary = memchr::memchr(0, &bytes).is_some();
        let unended = bytes.last().is_some_and(|byte| *byte != b'\n');
        let ends = memchr::memchr_iter(b'\n', &bytes).count() as u64;
        Some(if is_binary { 0 } else { ends + u64::from(unended) })
    };
    let mut all = Sha256::new();
    let stat = |(index, path): (usize, String)| {
        all.update(Sha256::digest(&path));
        let within_limit = index < COUNTED_FILES_MAX && !fs_context.is_stopped();
        let insertions = if within_limit { lines(&path).unwrap_or(0) } else { 0 };
        FileStat { path, insertions, deletions: 0 }
    };
    let files = names.into_iter().enumerate().map(stat).collect();
    all.update(content_digest.finalize());
    (files, all.finalize().into())
}

fn total_lines(files: &[FileStat]) -> (u64, u64) {
    let sum = |count: fn(&FileStat) -> u64| files.iter().map(count).sum();
    (sum(|file| file.insertions), sum(|file| file.deletions))
}
