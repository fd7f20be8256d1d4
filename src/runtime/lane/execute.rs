//! The execution of one tool call, from its arguments to its result.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::tool_context::ToolContextBuilder;
use super::unredacted::SentValue;
use crate::agent::RAISE_BUDGET;
use crate::kernel::effect::Report;
use crate::kernel::environment::Environment;
use crate::kernel::event::{CallResult, Diff, Intention, OutputStream, Purpose, ToolOutcome};
use crate::kernel::id::CallId;
use crate::provider::{ReportSender, SessionClosed};
use crate::redact;
use crate::runtime::services::Services;
use crate::sandbox::output::{Excerpt, Utf8Decoder};
use crate::sandbox::{Chunk, Stream};
use crate::tools::{self, ExecutionResult, ToolContext, ToolError, ToolErrorKind};

/// Everything that the execution of a tool call needs.
pub(super) struct ToolJob {
    pub(super) intention: Intention,
    pub(super) args: SentValue<String>,
    /// The digest of what was approved; `None` if no approval was needed.
    pub(super) approved_digest: Option<String>,
    pub(super) tool_context: ToolContextBuilder,
    pub(super) services: Arc<Services>,
}

/// Executes the call and reports its result.
pub(super) async fn execute(job: ToolJob, reports: ReportSender) -> Result<(), SessionClosed> {
    let settlement = run(job, &reports).await?;
    reports.send(Report::CallSettled(Box::new(settlement))).await
}

/// Executes the call and returns its result; its output is reported as it arrives.
pub(super) async fn run(job: ToolJob, reports: &ReportSender) -> Result<CallResult, SessionClosed> {
    let started = job.services.clock.now();
    let outcome = match &job.args {
        SentValue::Lost => {
            let message = "the arguments held a secret, which is not stored across a restart";
            ExecutionResult::failed(ToolError::new(ToolErrorKind::SecretNotPersisted, message))
        }
        SentValue::Known(args) => run_tool(&job, args, reports).await?,
    };
    Ok(CallResult {
        call: job.intention.call,
        tool: job.intention.tool,
        purpose: job.intention.purpose,
        millis: job.services.clock.now().since(started),
        outcome: outcome.outcome,
        exit_code: outcome.exit_code,
        text: reports.redactor().redact(&outcome.text).into_owned(),
        error: outcome.error.map(|error| reports.redact_error(error.into())),
        diff: outcome.diff.map(|diff| Diff { text: reports.redactor().redact(&diff.text).into_owned(), ..diff }),
    })
}

async fn run_tool(job: &ToolJob, args: &str, reports: &ReportSender) -> Result<ExecutionResult, SessionClosed> {
    if job.intention.tool == RAISE_BUDGET {
        return Ok(ExecutionResult::from(Ok("the budget of the run was raised".to_owned())));
    }
    let request = match job.services.tools.parse(&job.intention.tool, args) {
        Ok(request) => request,
        Err(error) => return Ok(ExecutionResult::failed(error)),
    };
    let context = match job.tool_context.build(reports.redactor()) {
        Ok(context) => ToolContext { approved_digest: job.approved_digest.clone(), ..context },
        Err(error) => return Ok(ExecutionResult::failed(error)),
    };
    if request.starts_programs() {
        warn_about_environment(job.tool_context.environment.as_deref(), reports).await?;
    }
    let (chunks, mut output) = mpsc::channel(OUTPUT_CHUNKS);
    let mut printed = ToolOutput::new(job.intention.call.clone(), reports, context.limits.result_bytes);
    let print = async {
        while let Some(chunk) = output.recv().await {
            printed.push(&chunk, reports).await?;
        }
        printed.finish(reports).await
    };
    let command = request.confined_command().map(str::to_owned);
    let request = match job.intention.purpose {
        Purpose::UserCommand { .. } => request.with_bash(),
        Purpose::Work | Purpose::Check(_) => request,
    };
    let (outcome, printed) = tokio::join!(tools::run(request, &context, chunks), print);
    let printed = printed?;
    let mut text = if printed.is_empty() { outcome.text } else { printed };
    if let Some(command) = command.filter(|_| outcome.outcome == ToolOutcome::Failed) {
        add_hints(&mut text, &command, &context).await;
    }
    Ok(ExecutionResult { text, ..outcome })
}

/// Appends hints about paths that a failed command could not access, and the settings that open them.
async fn add_hints(text: &mut String, command: &str, context: &ToolContext) {
    let home = context.env.iter().find(|(name, _)| name == "HOME").map(|(_, home)| Path::new(home));
    let hints = context.sandbox.hints(command, home, text).await;
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
struct ToolOutput {
    call: CallId,
    streams: [(OutputStream, Utf8Decoder, redact::RedactionStream); 2],
    excerpt: Excerpt,
}

impl ToolOutput {
    fn new(call: CallId, reports: &ReportSender, result_bytes: usize) -> Self {
        let stream = |which| (which, Utf8Decoder::new(), reports.redactor().stream());
        let streams = [stream(OutputStream::Stdout), stream(OutputStream::Stderr)];
        Self { call, streams, excerpt: Excerpt::new(result_bytes) }
    }

    async fn push(&mut self, chunk: &Chunk, reports: &ReportSender) -> Result<(), SessionClosed> {
        let index = match chunk.stream {
            Stream::Stdout => 0,
            Stream::Stderr => 1,
        };
        let (which, utf8, safe) = &mut self.streams[index];
        let text = safe.push(&utf8.push(&chunk.bytes));
        let which = *which;
        self.report(which, text, reports).await
    }

    async fn finish(mut self, reports: &ReportSender) -> Result<String, SessionClosed> {
        for index in 0..self.streams.len() {
            let (which, utf8, safe) = &mut self.streams[index];
            let mut text = safe.push(&std::mem::take(utf8).finish());
            text.push_str(&safe.finish());
            let which = *which;
            self.report(which, text, reports).await?;
        }
        Ok(self.excerpt.finish())
    }

    async fn report(
        &mut self,
        stream: OutputStream,
        text: String,
        reports: &ReportSender,
    ) -> Result<(), SessionClosed> {
        if text.is_empty() {
            return Ok(());
        }
        self.excerpt.push(&text);
        reports.send(Report::CallOutput { call: self.call.clone(), stream, text }).await
    }
}

/// Reports that programs do not have their user's environment.
async fn warn_about_environment(known: Option<&Environment>, reports: &ReportSender) -> Result<(), SessionClosed> {
    match known.and_then(Environment::warning) {
        Some(why) => reports.warn("LOGIN_ENVIRONMENT_FAILED", why, None).await,
        None => Ok(()),
    }
}
