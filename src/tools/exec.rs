//! `sandbox_exec`: a command, with everything it starts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::bench::{Bench, Outcome};
use super::fault::{Fault, FaultKind};
use super::git_access::{self, GitAccess};
use crate::kernel::event::Ending;
use crate::sandbox::confine::Leave;
use crate::sandbox::ground::Reach;
use crate::sandbox::judge::Risk;
use crate::sandbox::judge::{self, Part, What, Wish};
use crate::sandbox::shell::Limits;
use crate::sandbox::{Chunk, Outputs, Step, StepEnd, StepError};

pub(super) const NAME: &str = "sandbox_exec";
pub(super) const DESCRIPTION: &str = "Run a command with /bin/sh in the workspace and return what it prints. Standard \
    input is empty; nothing is remembered from one command to the next. Of long output the beginning and the end are \
    returned. The command is confined: it writes only in the workspace, except .git and .push, and in /tmp; of the home it \
    sees toolchains alone; there is no network, and what it leaves in the background ends with it. Where that does not do, \
    say so with `network` or `outside`; both may be asked about. Git commands work, except rebase, submodule, worktree and \
    config, which need `outside`.";

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Args {
    /// The command, as for `/bin/sh -c`.
    pub command: String,
    /// The directory to run it in, relative to the workspace; the workspace itself when left out.
    pub cwd: Option<String>,
    /// After how many seconds it is ended; never later than the limit of the session.
    pub timeout_seconds: Option<u64>,
    /// True if it needs the network.
    pub network: Option<bool>,
    /// True if it must run outside of the sandbox, with all rights of the user.
    pub outside: Option<bool>,
    /// What runs it, which no caller says.
    #[serde(skip)]
    pub(super) shell: Shell,
}

/// What runs a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Shell {
    /// `/bin/sh`.
    #[default]
    Sh,
    /// Bash where that is installed, and else `/bin/sh`.
    Bash,
}

impl Shell {
    /// What `/bin/sh` is given to have a command run.
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
    /// What the command is to be allowed beyond its room.
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
        // A model reads what a person would see on a terminal.
        Reach::Workspace => Outputs::Joined,
        Reach::Anywhere => Outputs::Apart,
    };
    // Only now: what a command may do is told by its own words.
    let command = args.shell.wrap(args.command);
    let mut step = Step { command, cwd, env: bench.env.clone(), time_limit, leave, outputs };
    let end = match git {
        Some(git) => {
            git_access::add_settings(&mut step.env);
            git_access::trust_path(&mut step.env, bench).await?;
            git.run(step, bench, out).await?
        }
        None => bench.tree.run(step, out).await,
    };
    Ok(ended(end, time_limit))
}

/// Whether somebody has seen a command and approved it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Approval {
    /// Somebody has, or is asked to.
    Given,
    /// Rules let it go ahead.
    NotNeeded,
}

/// Tells whether a command is given the network because its words say that it talks to other machines.
///
/// Whoever approves it approves that. Where nobody was asked, because a rule allows it, nothing else may run beside it: a
/// program of which nothing is known goes ahead only because it has no network.
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

/// Where the command runs: a directory of the workspace, which exists.
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

/// What shells add to the number of the signal that ended a command.
const SIGNALED: i32 = 128;

const OUT_OF_MEMORY: &str = "ended because it used more memory than `sandbox.memory_mb` allows; have it use less, or raise \
    the limit in your own configuration";

/// Says how a command ended; what it printed is elsewhere.
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
