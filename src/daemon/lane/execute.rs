//! One use of a tool, from its arguments to its settlement.

use tokio::sync::mpsc;

use super::memory::Whole;
use super::place::Place;
use crate::agent::RAISE_BUDGET;
use crate::daemon::clock::Clock;
use crate::kernel::effect::Report;
use crate::kernel::event::{Intention, OutputStream, Settlement};
use crate::kernel::id::CallId;
use crate::provider::{Gone, Reports};
use crate::redact;
use crate::sandbox::output::{Decoder, Excerpt};
use crate::sandbox::tools::{self, Bench, Fault, FaultKind, Outcome};
use crate::sandbox::{Chunk, Stream};

/// Everything one use of a tool needs.
pub(super) struct Job {
    pub(super) intention: Intention,
    pub(super) args: Whole<String>,
    /// What exactly was approved, as a digest; nothing where nobody was asked.
    pub(super) bound: Option<String>,
    pub(super) place: Place,
    pub(super) clock: Clock,
}

/// Uses the tool and reports how it ended.
pub(super) async fn execute(job: Job, reports: Reports) -> Result<(), Gone> {
    let settlement = settle(job, &reports).await?;
    reports.send(Report::Settled(Box::new(settlement))).await
}

/// Uses the tool and says how it ended; what it prints is reported as it comes.
pub(super) async fn settle(job: Job, reports: &Reports) -> Result<Settlement, Gone> {
    let started = job.clock.now();
    let outcome = match &job.args {
        Whole::Forgotten => {
            let message = "it held a secret, which is not kept over a restart";
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
    let bench = match job.place.bench(reports.redactor()).await {
        Ok(bench) => Bench { bound: job.bound.clone(), ..bench },
        Err(fault) => return Ok(Outcome::failed(fault)),
    };
    if job.place.environment.is_none() && request.starts_programs() {
        warn_about_environment(reports).await?;
    }
    let (chunks, mut output) = mpsc::channel(OUTPUT_CHUNKS);
    let mut printed = Printed::new(job.intention.call.clone(), reports, bench.limits.result_bytes);
    let print = async {
        while let Some(chunk) = output.recv().await {
            printed.take(&chunk, reports).await?;
        }
        printed.finish(reports).await
    };
    let (outcome, printed) = tokio::join!(tools::run(request, &bench, chunks), print);
    let printed = printed?;
    let text = if printed.is_empty() { outcome.text } else { printed };
    Ok(Outcome { text, ..outcome })
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

async fn warn_about_environment(reports: &Reports) -> Result<(), Gone> {
    let report = Report::Warned {
        code: "ENVIRONMENT_MISSING".to_owned(),
        message: "no client has sent its environment since the daemon started; a small default is used"
            .to_owned(),
        detail: None,
    };
    reports.send(report).await
}
