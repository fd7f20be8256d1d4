//! `sandbox_exec`: runs a command with all its child processes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::bench::{Bench, Outcome};
use super::fault::{Fault, FaultKind};
use super::git_access::{self, GitAccess};
use super::git_config_notice::ConfigNotice;
use crate::kernel::event::Ending;
use crate::sandbox::confine::Leave;
use crate::sandbox::ground::Reach;
use crate::sandbox::judge::Risk;
use crate::sandbox::judge::{self, Part, What, Wish};
use crate::sandbox::shell::Limits;
use crate::sandbox::{Chunk, Outputs, Step, StepEnd, StepError};

pub(super) const NAME: &str = "sandbox_exec";
pub(super) const DESCRIPTION: &str = "Run a command with /bin/sh in the workspace and return its output. Standard input \
    is empty, and no state is kept between commands. Of long output the beginning and the end are returned. The \
    command is confined: it can write only in the workspace, except .git and .push, and in /tmp; of the home it sees \
    only toolchains; it has no network, and its background processes end with it. If it needs more, set `network` or \
    `outside`; both may need an approval. Git commands work, except rebase, submodule, worktree and config, which need \
    `outside`.";

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Args {
    /// The command, as for `/bin/sh -c`.
    pub command: String,
    /// The directory to run it in, relative to the workspace; the workspace itself when left out.
    pub cwd: Option<String>,
    /// The timeout in seconds; at most the limit of the session.
    pub timeout_seconds: Option<u64>,
    /// True if it needs the network.
    pub network: Option<bool>,
    /// True if it must run outside of the sandbox, with all rights of the user.
    pub outside: Option<bool>,
    /// The shell that runs it; callers cannot set it.
    #[serde(skip)]
    pub(super) shell: Shell,
}

/// The shell that runs a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Shell {
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
    fn leave(&self) -> Leave {
        Leave {
            network: self.network.unwrap_or(false),
            outside: self.outside.unwrap_or(false),
            ..Leave::default()
        }
    }
}

pub(super) async fn exec(args: Args, bench: &Bench, out: mpsc::Sender<Chunk>) -> Outcome {
    run(args, bench, out).await.unwrap_or_else(Outcome::failed)
}

async fn run(args: Args, bench: &Bench, out: mpsc::Sender<Chunk>) -> Result<Outcome, Fault> {
    let mut leave = args.leave();
    let approval = if bench.bound.is_some() { Approval::Given } else { Approval::NotNeeded };
    leave.network |= needs_network(&args, bench, approval);
    let git = GitAccess::of_command(&args, bench).await?;
    let cwd = directory(args.cwd, bench).await?;
    let wanted = args.timeout_seconds.map_or(Duration::MAX, Duration::from_secs);
    let time_limit = wanted.min(bench.limits.step);
    let outputs = match bench.ground.reach() {
        // A model gets one merged output, as on a terminal.
        Reach::Workspace => Outputs::Joined,
        Reach::Anywhere => Outputs::Apart,
    };
    // The command is wrapped last: the assessments above need its own text.
    let command = args.shell.wrap(args.command);
    let mut step = Step { command, cwd, env: bench.env.clone(), time_limit, leave, outputs };
    let end = match git {
        Some(git) => {
            git_access::add_settings(&mut step.env);
            git_access::trust_path(&mut step.env, bench).await?;
            run_git(git, step, bench, out).await?
        }
        None => bench.tree.run(step, out).await,
    };
    Ok(ended(end, time_limit))
}

/// Runs a command that changes the repository, and explains configuration errors of a command that succeeded.
async fn run_git(
    git: GitAccess,
    step: Step,
    bench: &Bench,
    out: mpsc::Sender<Chunk>,
) -> Result<Result<StepEnd, StepError>, Fault> {
    let mut notice = ConfigNotice::default();
    let (printing, mut printed) = mpsc::channel(1);
    let (end, ()) = tokio::join!(git.run(step, bench, printing), notice.pass_on(&mut printed, &out));
    let end = end?;
    if let (Ok(StepEnd::Exited(0)), Some(explanation)) = (&end, notice.explanation()) {
        // The receiver may be gone.
        let _ = out.send(explanation).await;
    }
    Ok(end)
}

/// Whether a command was approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Approval {
    /// It was approved, or the question is being built.
    Given,
    /// A rule or preset allowed it.
    NotNeeded,
}

/// Returns whether a command gets network access because the risk assessment finds that it uses the network.
///
/// An approval includes it. Without an approval, because a rule allows the command, nothing else may run with it:
/// an unknown program is allowed only because it has no network.
pub(super) fn needs_network(args: &Args, bench: &Bench, approval: Approval) -> bool {
    let (cwd, place) = (args.cwd.as_deref(), bench.path_context());
    let judged = judge::command(&args.command, cwd, Wish::default(), &place, Limits::default());
    let talks = |part: &Part| part.touches.iter().any(|touch| matches!(touch.what, What::Network(_)));
    let alone = || judged.parts.iter().all(|part| talks(part) || part.whole_risk() == Risk::Low);
    let may = match approval {
        Approval::Given => true,
        Approval::NotNeeded => judged.unclear.is_none() && alone(),
    };
    may && judged.parts.iter().any(talks)
}

/// Resolves the working directory, which must exist in the workspace.
async fn directory(cwd: Option<String>, bench: &Bench) -> Result<PathBuf, Fault> {
    let Some(cwd) = cwd else { return Ok(bench.ground.path().to_owned()) };
    let path = bench.ground.path().join(&cwd);
    match bench.ground.reach() {
        Reach::Anywhere => Ok(path),
        Reach::Workspace => {
            bench.away(move |site| Ok(site.ground.folder(Path::new(&cwd)).map(drop)?)).await.map(|()| path)
        }
    }
}

/// Shells add this to the number of the signal that ended a command.
const SIGNALED: i32 = 128;

const OUT_OF_MEMORY: &str = "ended because it used more memory than `sandbox.memory_mb` allows, or had more than 100,000 \
    descriptors open; have it use less, or raise `sandbox.memory_mb` in your own configuration";

/// Converts the end of a step into a result, without its output.
pub(super) fn ended(end: Result<StepEnd, StepError>, time_limit: Duration) -> Outcome {
    let silent = |ending, exit_code, fault| Outcome { ending, exit_code, text: String::new(), fault };
    let failed =
        |exit_code, kind, message: String| silent(Ending::Failed, exit_code, Some(Fault::new(kind, message)));
    match end {
        Ok(StepEnd::Exited(0)) => silent(Ending::Done, Some(0), None),
        Ok(StepEnd::Exited(code)) => failed(Some(code), FaultKind::ExitCode, format!("exit code {code}")),
        Ok(StepEnd::Signaled(signal)) => {
            failed(Some(SIGNALED + signal), FaultKind::Signal, format!("ended by signal {signal}"))
        }
        Ok(StepEnd::TimedOut) => {
            failed(None, FaultKind::TimeLimit, format!("ended after {} seconds", time_limit.as_secs()))
        }
        Ok(StepEnd::OutOfMemory) => failed(None, FaultKind::MemoryLimit, OUT_OF_MEMORY.to_owned()),
        Ok(StepEnd::Stopped) => {
            silent(Ending::Cut, None, Some(Fault::new(FaultKind::Cut, "ended with its run")))
        }
        Err(error @ (StepError::Directory { .. } | StepError::Walls { .. })) => {
            failed(None, FaultKind::SandboxUnavailable, error.to_string())
        }
        Err(
            error @ (StepError::Unusable { .. }
            | StepError::Keeper { .. }
            | StepError::Shell { .. }
            | StepError::KeeperLost),
        ) => failed(None, FaultKind::ExecFailed, error.to_string()),
    }
}
