//! One use of a tool, from its arguments to its settlement.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use tokio::sync::mpsc;

use super::memory::Whole;
use crate::adapter::push::decode::Environment;
use crate::config::limits::Limits;
use crate::daemon::clock::Clock;
use crate::kernel::effect::Report;
use crate::kernel::event::{Ending, Fault, Intention, OutputStream, Settlement};
use crate::kernel::id::CallId;
use crate::provider::{Gone, Reports};
use crate::redact;
use crate::sandbox::output::{Decoder, Excerpt};
use crate::sandbox::{Chunk, RunTree, Step, StepEnd, StepError, Stream, files};

/// The tool that runs a command.
pub(super) const EXEC: &str = "sandbox_exec";
/// The tool that writes a file.
pub(super) const WRITE: &str = "sandbox_write_file";
/// The tool that reads a file.
pub(super) const READ: &str = "sandbox_read_file";

/// Everything one use of a tool needs.
pub(super) struct Job {
    pub(super) intention: Intention,
    pub(super) args: Whole<String>,
    pub(super) cwd: PathBuf,
    pub(super) environment: Option<Arc<Environment>>,
    pub(super) tree: RunTree,
    pub(super) limits: Limits,
    pub(super) clock: Clock,
}

/// How a tool ended, before it is dressed up as a settlement.
struct End {
    ending: Ending,
    exit_code: Option<i32>,
    text: String,
    fault: Option<Fault>,
}

/// Uses the tool and reports how it ended.
pub(super) async fn execute(job: Job, reports: Reports) -> Result<(), Gone> {
    let started = job.clock.now();
    let end = match &job.args {
        Whole::Forgotten => failed("SECRET_NOT_KEPT", "it held a secret, which is not kept over a restart"),
        Whole::Known(args) => match job.intention.tool.as_str() {
            EXEC => exec(&job, args, &reports).await?,
            WRITE => write(&job, args).await,
            READ => read(&job, args).await,
            other => failed("UNKNOWN_TOOL", &format!("there is no tool {other}")),
        },
    };
    let settlement = Settlement {
        call: job.intention.call,
        tool: job.intention.tool,
        purpose: job.intention.purpose,
        millis: job.clock.now().since(started),
        ending: end.ending,
        exit_code: end.exit_code,
        text: reports.redactor().text(&end.text).into_owned(),
        fault: end.fault.map(|fault| reports.safe_fault(fault)),
    };
    reports.send(Report::Settled(Box::new(settlement))).await
}

#[derive(Deserialize)]
struct ExecArgs {
    command: String,
}

async fn exec(job: &Job, args: &str, reports: &Reports) -> Result<End, Gone> {
    let Ok(args) = serde_json::from_str::<ExecArgs>(args) else { return Ok(bad_arguments()) };
    if job.environment.is_none() {
        warn_about_environment(reports).await?;
    }
    let step = Step {
        command: args.command,
        cwd: job.cwd.clone(),
        env: environment(job.environment.as_deref()),
        time_limit: job.limits.step,
    };
    let (chunks, mut output) = mpsc::channel(OUTPUT_CHUNKS);
    let mut printed = Printed::new(job.intention.call.clone(), reports, job.limits.result_bytes);
    let print = async {
        while let Some(chunk) = output.recv().await {
            printed.take(&chunk, reports).await?;
        }
        printed.finish(reports).await
    };
    let (end, text) = tokio::join!(job.tree.run(step, chunks), print);
    Ok(step_end(end, text?, job))
}

/// How many chunks of output wait for the session before the step waits.
const OUTPUT_CHUNKS: usize = 16;

/// The output of a step on its way: decoded, made safe, passed on, and excerpted for the result.
struct Printed {
    call: CallId,
    streams: [(OutputStream, Decoder, redact::Stream); 2],
    excerpt: Excerpt,
}

impl Printed {
    fn new(call: CallId, reports: &Reports, result_bytes: usize) -> Self {
        let stream = |which| (which, Decoder::new(), reports.redactor().stream());
        let streams = [stream(OutputStream::Out), stream(OutputStream::Err)];
        Self { call, streams, excerpt: Excerpt::new(result_bytes) }
    }

    async fn take(&mut self, chunk: &Chunk, reports: &Reports) -> Result<(), Gone> {
        let index = match chunk.stream {
            Stream::Stdout => 0,
            Stream::Stderr => 1,
        };
        let (which, utf8, safe) = &mut self.streams[index];
        let text = safe.push(&utf8.push(&chunk.bytes));
        let which = *which;
        self.pass_on(which, text, reports).await
    }

    async fn finish(mut self, reports: &Reports) -> Result<String, Gone> {
        for index in 0..self.streams.len() {
            let (which, utf8, safe) = &mut self.streams[index];
            let mut text = safe.push(&std::mem::take(utf8).finish());
            text.push_str(&safe.finish());
            let which = *which;
            self.pass_on(which, text, reports).await?;
        }
        Ok(self.excerpt.finish())
    }

    async fn pass_on(&mut self, stream: OutputStream, text: String, reports: &Reports) -> Result<(), Gone> {
        if text.is_empty() {
            return Ok(());
        }
        self.excerpt.push(&text);
        reports.send(Report::Output { call: self.call.clone(), stream, text }).await
    }
}

fn step_end(end: Result<StepEnd, StepError>, text: String, job: &Job) -> End {
    let seconds = job.limits.step.as_secs();
    let (exit_code, fault) = match end {
        Ok(StepEnd::Exited(0)) => return End { ending: Ending::Done, exit_code: Some(0), text, fault: None },
        Ok(StepEnd::Exited(code)) => (Some(code), fault("EXIT_CODE", false, format!("exit code {code}"))),
        Ok(StepEnd::Signaled(signal)) => (None, fault("SIGNAL", false, format!("ended by signal {signal}"))),
        Ok(StepEnd::TimedOut) => (None, fault("TIMEOUT", true, format!("ended after {seconds} seconds"))),
        Ok(StepEnd::Stopped) => {
            let fault = fault("CUT", false, "ended with its run".to_owned());
            return End { ending: Ending::Cut, exit_code: None, text, fault: Some(fault) };
        }
        Err(error @ StepError::Directory { .. }) => {
            (None, fault("SANDBOX_UNAVAILABLE", true, error.to_string()))
        }
        Err(error) => (None, fault("EXEC_FAILED", true, error.to_string())),
    };
    End { ending: Ending::Failed, exit_code, text, fault: Some(fault) }
}

#[derive(Deserialize)]
struct WriteArgs {
    path: String,
    content: String,
}

async fn write(job: &Job, args: &str) -> End {
    let Ok(args) = serde_json::from_str::<WriteArgs>(args) else { return bad_arguments() };
    let cwd = job.cwd.clone();
    let path = args.path.clone();
    let written =
        in_background(move || files::write_file(&cwd, Path::new(&args.path), args.content.as_bytes()));
    match written.await {
        Some(Ok(written)) => {
            let verb = if written.created { "created" } else { "replaced" };
            done(format!("{verb} {path} ({} bytes)", written.bytes))
        }
        Some(Err(error)) => failed("WRITE_FAILED", &error.to_string()),
        None => failed("WRITE_FAILED", "the write was interrupted"),
    }
}

#[derive(Deserialize)]
struct ReadArgs {
    path: String,
}

async fn read(job: &Job, args: &str) -> End {
    let Ok(args) = serde_json::from_str::<ReadArgs>(args) else { return bad_arguments() };
    let (cwd, limit) = (job.cwd.clone(), job.limits.read_bytes);
    match in_background(move || files::read_file(&cwd, Path::new(&args.path), limit)).await {
        Some(Ok(read)) => {
            let mut excerpt = Excerpt::new(job.limits.result_bytes);
            excerpt.push(&read.text);
            done(excerpt.finish())
        }
        Some(Err(error)) => failed("READ_FAILED", &error.to_string()),
        None => failed("READ_FAILED", "the read was interrupted"),
    }
}

async fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

/// The run's environment is its user's. Without one there is a small honest default, and a word about it.
fn environment(known: Option<&Environment>) -> Vec<(OsString, OsString)> {
    match known {
        Some(environment) => {
            environment.variables().iter().map(|(name, value)| (name.into(), value.into())).collect()
        }
        None => vec![
            ("PATH".into(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()),
            ("LANG".into(), "C.UTF-8".into()),
        ],
    }
}

async fn warn_about_environment(reports: &Reports) -> Result<(), Gone> {
    let report = Report::Warned {
        code: "ENVIRONMENT_MISSING".to_owned(),
        message: "no client has sent its environment since the daemon started; a small default is used"
            .to_owned(),
        detail: None,
    };
    reports.send(report).await
}

fn bad_arguments() -> End {
    failed("BAD_ARGUMENTS", "the arguments do not fit the tool")
}

const fn done(text: String) -> End {
    End { ending: Ending::Done, exit_code: None, text, fault: None }
}

fn failed(kind: &str, message: &str) -> End {
    let fault = fault(kind, false, message.to_owned());
    End { ending: Ending::Failed, exit_code: None, text: message.to_owned(), fault: Some(fault) }
}

fn fault(kind: &str, retryable: bool, message: String) -> Fault {
    Fault { kind: kind.to_owned(), retryable, message, detail: None }
}
