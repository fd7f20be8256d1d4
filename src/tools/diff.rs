//! `sandbox_git_diff`: shows uncommitted changes.

use schemars::JsonSchema;
use serde::Deserialize;

use super::bench::Bench;
use super::fault::Fault;
use super::git::{self, Script};
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

pub(super) async fn diff(args: &Args, bench: &Bench) -> Result<String, Fault> {
    let paths = git::inside(args.paths.as_deref().unwrap_or_default(), bench).await?;
    let mut words = vec!["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--relative"];
    words.push("--ignore-submodules=dirty");
    if args.staged.unwrap_or(false) {
        words.push("--cached");
    }
    words.push("--");
    words.extend(paths.iter().map(String::as_str));
    // Outside of a repository, `git diff` compares any two files.
    let printed = Script::git(&["rev-parse", "--git-dir"]).quietly().then(&words).run(bench).await?;
    if printed.bytes.is_empty() {
        return Ok("no changes\n".to_owned());
    }
    let mut excerpt = Excerpt::new(bench.limits.result_bytes);
    excerpt.push(&(bench.safe)(&String::from_utf8_lossy(&printed.bytes)));
    let mut text = excerpt.finish();
    if printed.truncated {
        text.push_str("\n[... the rest is omitted; request fewer paths ...]\n");
    }
    Ok(text)
}
