//! `sandbox_exec`: a command, with everything it starts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::bench::{Bench, Outcome};
use super::fault::{Fault, FaultKind};
use crate::kernel::event::Ending;
use crate::sandbox::confine::Leave;
use crate::sandbox::ground::Reach;
use crate::sandbox::{Chunk, Step, StepEnd, StepError};

pub(super) const NAME: &str = "sandbox_exec";
pub(super) const DESCRIPTION: &str = "Run a command with /bin/sh in the workspace and return what it prints. Standard \
    input is empty; nothing is remembered from one command to the next. Of long output the beginning and the end are \
    returned. The command is confined: it writes only in the workspace, except .git and .push, and in /tmp; there is no \
    network, and what it leaves in the background ends with it. Where that does not do, say so with `network` or `outside`; \
    both may be asked about.";

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
    let leave = args.leave();
    let cwd = match directory(args.cwd, bench).await {
        Ok(cwd) => cwd,
        Err(fault) => return Outcome::failed(fault),
    };
    let wanted = args.timeout_seconds.map_or(Duration::MAX, Duration::from_secs);
    let time_limit = wanted.min(bench.limits.step);
    let step = Step { command: args.command, cwd, env: bench.env.clone(), time_limit, leave };
    ended(bench.tree.run(step, out).await, time_limit)
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

/// Says how a command ended; what it printed is elsewhere.
pub(super) fn ended(end: Result<StepEnd, StepError>, time_limit: Duration) -> Outcome {
    let silent = |ending, exit_code, fault| Outcome { ending, exit_code, text: String::new(), fault };
    let failed =
        |exit_code, kind, message: String| silent(Ending::Failed, exit_code, Some(Fault::new(kind, message)));
    match end {
        Ok(StepEnd::Exited(0)) => silent(Ending::Done, Some(0), None),
        Ok(StepEnd::Exited(code)) => failed(Some(code), FaultKind::ExitCode, format!("exit code {code}")),
        Ok(StepEnd::Signaled(signal)) => failed(None, FaultKind::Signal, format!("ended by signal {signal}")),
        Ok(StepEnd::TimedOut) => {
            failed(None, FaultKind::TimeLimit, format!("ended after {} seconds", time_limit.as_secs()))
        }
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
