//! `sandbox_exec`: runs a command with all its child processes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::context::{ExecutionResult, ToolContext};
use super::error::{ToolError, ToolErrorKind};
use super::git_access::{self, GitAccess};
use super::git_config_notice::ConfigNotice;
use super::{ApprovalDigest, CallDescription, Category, Tool, parse_arguments, schema};
use crate::kernel::event::ToolOutcome;
use crate::sandbox::confinement::StepPermissions;
use crate::sandbox::risk::{self, Escalation, Operation, PathContext, ResourceAccess, Risk, RiskAssessment};
use crate::sandbox::shell::Limits;
use crate::sandbox::workspace::ReachPolicy;
use crate::sandbox::{Chunk, OutputMode, Step, StepEnd, StepError};

pub(super) const NAME: &str = "sandbox_exec";
const DESCRIPTION: &str = "Run a command with /bin/sh in the workspace and return its output. Standard input \
    is empty, and no state is kept between commands. Of long output the beginning and the end are returned. The \
    command is confined: it can write only in the workspace, except .git and .push, and in /tmp; of the home it sees \
    only toolchains; it has no network, and its background processes end with it. If it needs more, set `network` or \
    `outside`; both may need an approval. Git commands work, except rebase, submodule, worktree and config, which need \
    `outside`.";

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Args {
    /// The command, as for `/bin/sh -c`.
    pub(super) command: String,
    /// The directory to run it in, relative to the workspace; the workspace itself when left out.
    pub(super) cwd: Option<String>,
    /// The timeout in seconds; at most the limit of the session.
    pub(super) timeout_seconds: Option<u64>,
    /// True if it needs the network.
    pub(super) network: Option<bool>,
    /// True if it must run outside of the sandbox, with all rights of the user.
    pub(super) outside: Option<bool>,
    /// The shell that runs it; callers cannot set it.
    #[serde(skip)]
    shell: Shell,
}

/// The shell that runs a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Shell {
    /// `/bin/sh`.
    #[default]
    Sh,
    /// Bash if it is installed, and `/bin/sh` otherwise.
    Bash,
}

impl Shell {
    /// Returns the command line for `/bin/sh`.
    fn wrap(self, command: String) -> String {
        match self {
            Self::Sh => command,
            Self::Bash => {
                let quoted = command.replace('\'', r"'\''");
                format!(
                    "command_text='{quoted}'; command -v bash >/dev/null 2>&1 && exec bash -c \"$command_text\"; \
                     exec /bin/sh -c \"$command_text\""
                )
            }
        }
    }
}

impl Args {
    /// The permissions that the arguments request beyond the sandbox.
    fn permissions(&self) -> StepPermissions {
        StepPermissions {
            network: self.network.unwrap_or(false),
            unconfined: self.outside.unwrap_or(false),
            ..StepPermissions::default()
        }
    }
}

/// The tool.
#[derive(Debug)]
pub(super) struct Exec;

impl Tool for Exec {
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
        Category::Exec
    }

    fn parse(&self, args: &str) -> Result<Self::Args, ToolError> {
        parse_arguments(NAME, args)
    }

    fn assess(&self, args: &Self::Args, escalation: Escalation, paths: &PathContext) -> RiskAssessment {
        risk::assess_command(&args.command, args.cwd.as_deref(), escalation, paths, Limits::default())
    }

    fn escalation(&self, args: &Self::Args) -> Escalation {
        Escalation { network: args.network.unwrap_or(false), unconfined: args.outside.unwrap_or(false) }
    }

    async fn describe(
        &self,
        args: &Self::Args,
        digest: ApprovalDigest,
        context: &ToolContext,
    ) -> Result<CallDescription, ToolError> {
        let cwd = args.cwd.as_deref().unwrap_or(".");
        let mut details = json!({ "command": args.command, "cwd": cwd, "timeoutSeconds": args.timeout_seconds });
        // What the command gets beyond its confinement.
        let escalation = self.escalation(args);
        let git = git_access::needs_git_write(args, context).await?;
        let network = escalation.network || needs_network(args, context, Approval::Given);
        for (name, requested) in [("network", network), ("outside", escalation.unconfined), ("gitDirectory", git)] {
            if requested {
                details[name] = json!(true);
            }
        }
        Ok(CallDescription::new("Approve command", &args.command, details, digest))
    }

    async fn run(&self, args: Self::Args, context: &ToolContext, out: mpsc::Sender<Chunk>) -> ExecutionResult {
        run_command(args, context, out).await.unwrap_or_else(ExecutionResult::failed)
    }

    fn starts_programs(&self) -> bool {
        true
    }

    fn confined_command<'a>(&self, args: &'a Self::Args) -> Option<&'a str> {
        (args.outside != Some(true)).then_some(args.command.as_str())
    }

    fn with_bash(&self, args: Self::Args) -> Self::Args {
        Args { shell: Shell::Bash, ..args }
    }
}

async fn run_command(
    args: Args,
    context: &ToolContext,
    out: mpsc::Sender<Chunk>,
) -> Result<ExecutionResult, ToolError> {
    let mut permissions = args.permissions();
    let approval = if context.approved_digest.is_some() { Approval::Given } else { Approval::NotNeeded };
    permissions.network |= needs_network(&args, context, approval);
    let git = GitAccess::for_command(&args, context).await?;
    let cwd = resolve_cwd(args.cwd, context).await?;
    let requested = args.timeout_seconds.map_or(Duration::MAX, Duration::from_secs);
    let time_limit = requested.min(context.limits.step_timeout);
    let outputs = match context.workspace.reach() {
        // A model gets one merged output, as on a terminal.
        ReachPolicy::Workspace => OutputMode::Merged,
        ReachPolicy::Anywhere => OutputMode::Separate,
    };
    // The command is wrapped last: the assessments above need its own text.
    let command = args.shell.wrap(args.command);
    let mut step = Step { command, cwd, env: context.env.clone(), time_limit, permissions, output_mode: outputs };
    let end = match git {
        Some(git) => {
            git_access::add_git_config(&mut step.env);
            git_access::set_trusted_path(&mut step.env, context).await?;
            run_git(git, step, context, out).await?
        }
        None => context.sandbox.run(step, out).await,
    };
    Ok(result_of(end, time_limit))
}

/// Runs a command that changes the repository, and explains configuration errors of a command that succeeded.
async fn run_git(
    git: GitAccess,
    step: Step,
    context: &ToolContext,
    out: mpsc::Sender<Chunk>,
) -> Result<Result<StepEnd, StepError>, ToolError> {
    let mut notice = ConfigNotice::default();
    let (printing, mut printed) = mpsc::channel(1);
    let (end, ()) = tokio::join!(git.run(step, context, printing), notice.forward(&mut printed, &out));
    let end = end?;
    if let (Ok(StepEnd::Exited(0)), Some(explanation)) = (&end, notice.explanation()) {
        // The receiver may be gone.
        let _ = out.send(explanation).await;
    }
    Ok(end)
}

/// Whether a command was approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Approval {
    /// It was approved, or the question is being built.
    Given,
    /// A rule or preset allowed it.
    NotNeeded,
}

/// Returns whether a command gets network access because the risk assessment finds that it uses the network.
///
/// An approval includes it. Without an approval, because a rule allows the command, nothing else may run with it:
/// an unknown program is allowed only because it has no network.
fn needs_network(args: &Args, context: &ToolContext, approval: Approval) -> bool {
    let (cwd, path_context) = (args.cwd.as_deref(), context.path_context());
    let assessment = risk::assess_command(&args.command, cwd, Escalation::default(), &path_context, Limits::default());
    let uses_network =
        |part: &Operation| part.accesses.iter().any(|assessed| matches!(assessed.access, ResourceAccess::Network(_)));
    let runs_alone = || assessment.operations.iter().all(|part| uses_network(part) || part.total_risk() == Risk::Low);
    let may = match approval {
        Approval::Given => true,
        Approval::NotNeeded => assessment.uncertainty.is_none() && runs_alone(),
    };
    may && assessment.operations.iter().any(uses_network)
}

/// Resolves the working directory, which must exist in the workspace.
async fn resolve_cwd(cwd: Option<String>, context: &ToolContext) -> Result<PathBuf, ToolError> {
    let Some(cwd) = cwd else { return Ok(context.workspace.path().to_owned()) };
    let path = context.workspace.path().join(&cwd);
    match context.workspace.reach() {
        ReachPolicy::Anywhere => Ok(path),
        ReachPolicy::Workspace => context
            .run_blocking(move |fs_context| Ok(fs_context.workspace.open_directory(Path::new(&cwd)).map(drop)?))
            .await
            .map(|()| path),
    }
}

/// Shells add this to the number of the signal that ended a command.
const SIGNAL_EXIT_BASE: i32 = 128;

const OUT_OF_MEMORY: &str = "ended because it used more memory than `sandbox.memory_mb` allows, or had more than 100,000 \
    descriptors open; have it use less, or raise `sandbox.memory_mb` in your own configuration";

/// Converts the end of a step into a result, without its output.
pub(super) fn result_of(end: Result<StepEnd, StepError>, time_limit: Duration) -> ExecutionResult {
    let silent = |outcome, exit_code, error| {
        let text = String::new();
        ExecutionResult { outcome, exit_code, text, error, diff: None }
    };
    let failed =
        |exit_code, kind, message: String| silent(ToolOutcome::Failed, exit_code, Some(ToolError::new(kind, message)));
    match end {
        Ok(StepEnd::Exited(0)) => silent(ToolOutcome::Succeeded, Some(0), None),
        Ok(StepEnd::Exited(code)) => failed(Some(code), ToolErrorKind::ExitCode, format!("exit code {code}")),
        Ok(StepEnd::Signaled(signal)) => {
            failed(Some(SIGNAL_EXIT_BASE + signal), ToolErrorKind::Signal, format!("ended by signal {signal}"))
        }
        Ok(StepEnd::TimedOut) => {
            failed(None, ToolErrorKind::TimeLimit, format!("ended after {} seconds", time_limit.as_secs()))
        }
        Ok(StepEnd::OutOfMemory) => failed(None, ToolErrorKind::MemoryLimit, OUT_OF_MEMORY.to_owned()),
        Ok(StepEnd::Stopped) => silent(
            ToolOutcome::Aborted,
            None,
            Some(ToolError::new(ToolErrorKind::Aborted, "the call was aborted because its run ended")),
        ),
        Err(error @ (StepError::Directory { .. } | StepError::Confinement { .. })) => {
            failed(None, ToolErrorKind::SandboxUnavailable, error.to_string())
        }
        Err(
            error @ (StepError::Invalid { .. }
            | StepError::SupervisorSpawn { .. }
            | StepError::Shell { .. }
            | StepError::SupervisorLost),
        ) => failed(None, ToolErrorKind::ExecFailed, error.to_string()),
    }
}
