//! `sandbox_git_diff`: shows uncommitted changes.

use schemars::JsonSchema;
use serde::Deserialize;

use super::context::ToolContext;
use super::error::ToolError;
use super::git::{self, GitScript};
use crate::sandbox::output::Excerpt;

pub(super) const NAME: &str = "sandbox_git_diff";
pub(super) const DESCRIPTION: &str = "Show uncommitted changes of the git repository as a unified diff: those in the \
    working tree against the index, or with `staged` those in the index against the last commit. Untracked files do \
    not appear; sandbox_git_status lists them.";

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Args {
    /// Show what is staged instead of what is not.
    pub staged: Option<bool>,
    /// Files and directories to show, relative to the workspace; all when left out.
    pub paths: Option<Vec<String>>,
}

pub(super) async fn diff(args: &Args, context: &ToolContext) -> Result<String, ToolError> {
    let paths = git::check_pathspecs(args.paths.as_deref().unwrap_or_default(), context).await?;
    let mut arguments = vec!["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--relative"];
    arguments.push("--ignore-submodules=dirty");
    if args.staged.unwrap_or(false) {
        arguments.push("--cached");
    }
    arguments.push("--");
    arguments.extend(paths.iter().map(String::as_str));
    // Outside of a repository, `git diff` compares any two files.
    let output = GitScript::git(&["rev-parse", "--git-dir"]).output_to_stderr().then(&arguments).run(context).await?;
    if output.bytes.is_empty() {
        return Ok("no changes\n".to_owned());
    }
    let mut excerpt = Excerpt::new(context.limits.result_bytes);
    excerpt.push(&(context.redact)(&String::from_utf8_lossy(&output.bytes)));
    let mut text = excerpt.finish();
    if output.truncated {
        text.push_str("\n[... the rest is omitted; request fewer paths ...]\n");
    }
    Ok(text)
}
