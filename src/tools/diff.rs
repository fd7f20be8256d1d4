//! `sandbox_git_diff`: shows uncommitted changes.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::context::ToolContext;
use super::error::ToolError;
use super::git::{self, GitScript};
use super::{ApprovalDigest, CallDescription, Category, ExecutionResult, Tool, assess_reads, parse_arguments, schema};
use crate::sandbox::Chunk;
use crate::sandbox::output::Excerpt;
use crate::sandbox::risk::{Escalation, PathContext, RiskAssessment};

pub(super) const NAME: &str = "sandbox_git_diff";
const DESCRIPTION: &str = "Show uncommitted changes of the git repository as a unified diff: those in the \
    working tree against the index, or with `staged` those in the index against the last commit. Untracked files do \
    not appear; sandbox_git_status lists them.";

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Show what is staged instead of what is not.
    staged: Option<bool>,
    /// Files and directories to show, relative to the workspace; all when left out.
    paths: Option<Vec<String>>,
}

/// The tool.
#[derive(Debug)]
pub(super) struct Diff;

impl Tool for Diff {
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
        Category::Read
    }

    fn parse(&self, args: &str) -> Result<Self::Args, ToolError> {
        parse_arguments(NAME, args)
    }

    fn paths<'a>(&self, args: &'a mut Self::Args) -> Vec<&'a mut String> {
        args.paths.iter_mut().flatten().collect()
    }

    fn assess(&self, args: &Self::Args, _escalation: Escalation, paths: &PathContext) -> RiskAssessment {
        let named = args.paths.iter().flatten().map(String::as_str);
        let everything = args.paths.as_deref().unwrap_or_default().is_empty().then_some(".");
        assess_reads(named.chain(everything), paths)
    }

    async fn describe(
        &self,
        args: &Self::Args,
        digest: ApprovalDigest,
        _context: &ToolContext,
    ) -> Result<CallDescription, ToolError> {
        let details = json!({ "staged": args.staged, "paths": args.paths });
        Ok(CallDescription::new("Approve git diff", "git diff", details, digest))
    }

    async fn run(&self, args: Self::Args, context: &ToolContext, _out: mpsc::Sender<Chunk>) -> ExecutionResult {
        diff(&args, context).await.into()
    }

    fn starts_programs(&self) -> bool {
        true
    }

    fn covers_directories(&self) -> bool {
        true
    }
}

async fn diff(args: &Args, context: &ToolContext) -> Result<String, ToolError> {
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
