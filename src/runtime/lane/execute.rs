//! The execution of one tool call, from its arguments to its result.

use std::path::Path;

use tokio::sync::mpsc;

use super::memory::Whole;
use super::place::Place;
use crate::agent::RAISE_BUDGET;
use crate::kernel::effect::Report;
use crate::kernel::event::{Ending, Intention, OutputStream, Purpose, Settlement};
use crate::kernel::id::CallId;
use crate::protocol::push::decode::Environment;
use crate::provider::{Gone, Reports};
use crate::redact;
use crate::runtime::clock::Clock;
use crate::sandbox::output::{Decoder, Excerpt};
use crate::sandbox::{Chunk, Stream};
use crate::tools::{self, Bench, Fault, FaultKind, Outcome};

/// Everything that the execution of a tool call needs.
pub(super) struct Job {
    pub(super) intention: Intention,
    pub(super) args: Whole<String>,
    /// The digest of what was approved; `None` if no approval was needed.
    pub(super) bound: Option<String>,
    pub(super) place: Place,
    pub(super) clock: Clock,
}

/// Executes the call and reports its result.
pub(super) async fn execute(job: Job, reports: Reports) -> Result<(), Gone> {
    let settlement = settle(job, &reports).await?;
    reports.send(Report::Settled(Box::new(settlement))).await
}

/// Executes the call and returns its result; its output is reported as it arrives.
pub(super) async fn settle(job: Job, reports: &Reports) -> Result<Settlement, Gone> {
    let started = job.clock.now();
    let outcome = match &job.args {
        Whole::Forgotten => {
            let message = "the arguments held a secret, which is not stored across a restart";
            Outcome::failed(Fault::new(FaultKind::SecretNotKept, message))
        }
        Whole::Known(args) => used(&job, args, reports).await?,
    };
    Ok(Settlement {
        call: job.intention.call,
        tool: job.intention.tool,
        purpose: job.intention.purpose,
        millis: job.clock.now().since(started),
        ending: outcome.ending,
        exit_code: outcome.exit_code,
        text: reports.redactor().text(&outcome.text).into_owned(),
        fault: outcome.fault.map(|fault| reports.safe_fault(fault.into())),
    })
}

async fn used(job: &Job, args: &str, reports: &Reports) -> Result<Outcome, Gone> {
    if job.intention.tool == RAISE_BUDGET {
        return Ok(Outcome::from(Ok("the budget of the run was raised".to_owned())));
    }
    let request = match tools::parse(&job.intention.tool, args) {
        Ok(request) => request,
        Err(fault) => return Ok(Outcome::failed(fault)),
    };
    let bench = match job.place.bench(reports.redactor()) {
        Ok(bench) => Bench { bound: job.bound.clone(), ..bench },
        Err(fault) => return Ok(Outcome::failed(fault)),
    };
    if request.starts_programs() {
        warn_about_environment(job.place.environment.as_deref(), reports).await?;
    }
    let (chunks, mut output) = mpsc::channel(OUTPUT_CHUNKS);
    let mut printed = Printed::new(job.intention.call.clone(), reports, bench.limits.result_bytes);
    let print = async {
        while let Some(chunk) = output.recv().await {
            printed.take(&chunk, reports).await?;
        }
        printed.finish(reports).await
    };
    let command = request.confined_command().map(str::to_owned);
    let request = match job.intention.purpose {
        Purpose::Aside { .. } => request.by_bash(),
        Purpose::Work | Purpose::Check(_) => request,
    };
    let (outcome, printed) = tokio::join!(tools::run(request, &bench, chunks), print);
    let printed = printed?;
    let mut text = if printed.is_empty() { outcome.text } else { printed };
    if let Some(command) = command.filter(|_| outcome.ending == Ending::Failed) {
        add_hints(&mut text, &command, &bench).await;
    }
    Ok(Outcome { text, ..outcome })
}

/// Appends hints about paths that a failed command could not access, and the settings that open them.
async fn add_hints(text: &mut String, command: &str, bench: &Bench) {
    let home = bench.env.iter().find(|(name, _)| name == "HOME").map(|(_, home)| Path::new(home));
    let hints = bench.tree.hints(command, home, text).await;
    for hint in hints {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&hint);
        text.push('\n');
    }
}

/// The number of output chunks that may wait for the session before the step blocks.
const OUTPUT_CHUNKS: usize = 16;

/// The output of a step: decoded, redacted, reported, and excerpted for the result.
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

/// Reports that programs do not have their user's environment.
async fn warn_about_environment(known: Option<&Environment>, reports: &Reports) -> Result<(), Gone> {
    match known.and_then(Environment::warning) {
        Some(why) => reports.warn("LOGIN_ENVIRONMENT_FAILED", why, None).await,
        None => Ok(()),
    }
}
