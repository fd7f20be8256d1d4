//! The channel from a provider or a tool to its session: ordered, bounded, and redacted.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::turn_stream::PendingRetry;
use crate::kernel::effect::{CallRequest, FinishReport, GateRequest, Precondition, Report, RequestSubject};
use crate::kernel::event::{DenialEffect, Intention, Purpose, Retry, ToolError, TurnUsage};
use crate::kernel::gate::BudgetResource;
use crate::kernel::id::{CallId, GateId, Json, MessageId, RunId, Seq};
use crate::kernel::quorum::Quorum;
use crate::redact::{self, MaskError, Masker, RedactionStream, Redactor};

/// A report of a provider or a tool, with the data that the session must not store.
#[derive(Debug)]
pub struct ReportEnvelope {
    /// The owner of the report.
    pub owner: ReportOwner,
    /// The report, redacted for storage.
    pub report: Report,
    /// The unredacted arguments where the stored ones are redacted: of a call, or of each pending call.
    pub raw_args: Vec<Option<String>>,
    /// The share of the byte budget that a large text holds until the session receives it.
    pub byte_permit: Option<OwnedSemaphorePermit>,
}

impl ReportEnvelope {
    /// Creates an envelope for a report that contains no secret.
    pub const fn new(owner: ReportOwner, report: Report) -> Self {
        Self { owner, report, raw_args: Vec::new(), byte_permit: None }
    }
}

/// The owner of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportOwner {
    /// A run.
    Run(RunId),
    /// A command of the user outside any run.
    UserCommand(CallId),
    /// A requested compaction, identified by the event that started it.
    Compaction(Seq),
}

/// The session or the run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionClosed;

/// The generator of ids for a provider.
#[derive(Debug, Clone, Copy)]
pub struct IdSource {
    /// The id of a tool call.
    pub call: fn() -> CallId,
    /// The id of a gate.
    pub gate: fn() -> GateId,
    /// The id of an assistant message.
    pub message: fn() -> MessageId,
}

/// A question to the user that precedes a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The kind, for programs.
    pub kind: &'static str,
    /// The title, for people.
    pub title: String,
    /// The exact action to approve.
    pub summary: String,
    /// The details: a JSON object.
    pub details: String,
    /// The choices, if there are more than two; empty for approve or deny.
    pub choices: Vec<String>,
    /// The rule that an approval with a wider scope grants.
    pub grant_rule: Option<String>,
    /// The digest of the exact action.
    pub digest: Option<String>,
    /// The effect of a denial with a comment.
    pub denial: DenialEffect,
    /// The exhausted resource, if it asks for more budget.
    pub budget: Option<BudgetResource>,
    /// The form to fill in: a JSON object.
    pub form: Option<String>,
    /// The timeout of the question in milliseconds; `None` is the longest one.
    pub timeout_millis: Option<u64>,
    /// The comment of the denial in a run that cannot prompt: why an approval was needed, and how to allow the
    /// call.
    pub policy_comment: String,
}

/// The remedy in a run that cannot prompt, where no rule allows a call.
pub const APPROVE_REMEDY: &str = "`--approve ask` waits for an answer, and `--yes` approves whatever would ask";

impl Question {
    /// Creates a question with approve and deny, valid once; a denial ends the run.
    pub fn plain(kind: &'static str, title: String, summary: String, details: String) -> Self {
        Self {
            kind,
            title,
            summary,
            details,
            choices: Vec::new(),
            grant_rule: None,
            digest: None,
            denial: DenialEffect::EndRun,
            budget: None,
            form: None,
            timeout_millis: None,
            policy_comment: format!("this run cannot prompt for approval; {APPROVE_REMEDY}"),
        }
    }
}

/// The decision of the rules about a step that the user wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepDecision {
    /// The step is allowed.
    Allow,
    /// The step needs an approval first.
    Ask(Box<Question>),
    /// The step is denied.
    Deny(ToolError),
}

/// Checks steps, each a tool with its arguments, against the rules.
pub struct StepPolicy(Box<StepPolicyFn>);

type StepPolicyFn = dyn Fn(&str, &str) -> StepDecision + Send + Sync;

impl StepPolicy {
    /// Creates a policy from a function of a tool and its arguments.
    pub fn new(check: impl Fn(&str, &str) -> StepDecision + Send + Sync + 'static) -> Self {
        Self(Box::new(check))
    }

    /// Checks a step.
    pub fn check(&self, tool: &str, args: &str) -> StepDecision {
        (self.0)(tool, args)
    }
}

impl fmt::Debug for StepPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StepPolicy").finish_non_exhaustive()
    }
}

/// The sender of one provider's or tool's reports.
#[derive(Debug)]
pub struct ReportSender {
    owner: ReportOwner,
    sender: mpsc::Sender<Box<ReportEnvelope>>,
    redactor: Redactor,
    text_stream: Option<RedactionStream>,
    thinking_stream: Option<RedactionStream>,
    ids: IdSource,
    /// The channel bounds the number of reports; this bounds the bytes of large ones, such as tool output.
    byte_budget: Arc<Semaphore>,
    /// The rules that every call is checked against.
    step_policy: Option<StepPolicy>,
}

/// The maximum number of bytes of large texts in flight.
const MAX_BYTES_IN_FLIGHT: usize = 512 * 1024;
/// The size from which a text is large.
const LARGE_TEXT_BYTES: usize = 1024;

impl ReportSender {
    /// Creates a sender.
    pub fn new(
        owner: ReportOwner,
        sender: mpsc::Sender<Box<ReportEnvelope>>,
        redactor: Redactor,
        ids: IdSource,
    ) -> Self {
        Self {
            owner,
            sender,
            redactor,
            text_stream: None,
            thinking_stream: None,
            ids,
            byte_budget: Arc::new(Semaphore::new(MAX_BYTES_IN_FLIGHT)),
            step_policy: None,
        }
    }

    /// Checks every call against the rules of `step_policy`, if there are any.
    #[must_use]
    pub fn with_step_policy(mut self, step_policy: Option<StepPolicy>) -> Self {
        self.step_policy = step_policy;
        self
    }

    /// Sends a delta of thinking; a possible beginning of a secret is held back until the next delta.
    pub async fn send_thinking(&mut self, delta: &str) -> Result<(), SessionClosed> {
        let thinking = self.thinking_stream.get_or_insert_with(|| self.redactor.stream());
        let safe = thinking.push(delta);
        self.emit_thinking(safe).await
    }

    /// Sends a delta of text; a possible beginning of a secret is held back until the next delta.
    pub async fn send_text(&mut self, delta: &str) -> Result<(), SessionClosed> {
        self.end_thinking().await?;
        let stream = self.text_stream.get_or_insert_with(|| self.redactor.stream());
        let safe = stream.push(delta);
        self.emit_text(safe).await
    }

    /// Ends the text.
    pub async fn end_text(&mut self) -> Result<(), SessionClosed> {
        if let Some(mut stream) = self.text_stream.take() {
            let rest = stream.finish();
            self.emit_text(rest).await?;
        }
        self.send(Report::TextDone((self.ids.message)())).await
    }

    /// Ends the thinking, and the text if one has started.
    pub async fn end_output(&mut self) -> Result<(), SessionClosed> {
        self.end_thinking().await?;
        if self.text_stream.is_some() { self.end_text().await } else { Ok(()) }
    }

    /// Discards the held-back rest of an interrupted text.
    pub async fn discard_text(&mut self) -> Result<(), SessionClosed> {
        self.text_stream = None;
        self.end_thinking().await
    }

    /// Requests a tool call.
    pub async fn request_call(
        &self,
        tool: &str,
        args: String,
        purpose: Purpose,
        question: Option<Question>,
    ) -> Result<(), SessionClosed> {
        let decision = self.step_policy.as_ref().map_or(StepDecision::Allow, |policy| policy.check(tool, &args));
        let question = match decision {
            StepDecision::Allow => question,
            StepDecision::Ask(policy_question) => question.or(Some(*policy_question)),
            StepDecision::Deny(error) => return self.refuse_call_for(tool, args, purpose, error).await,
        };
        let Some(question) = question else {
            let args = self.redact_args(args);
            return self.send_call(tool, args, purpose, Precondition::Nothing).await;
        };
        match self.mask_question(&question, &args) {
            Ok((ask, shown)) => {
                let raw = redact::contains_marker(&shown).then_some(args);
                self.send_call(tool, (Json::new(shown), raw), purpose, Precondition::Ask(Box::new(ask))).await
            }
            // A call that cannot be displayed cannot be approved.
            Err(why) => self.refuse_call_for(tool, args, purpose, secret_in_call_error(why)).await,
        }
    }

    /// Reports a call that is refused, with the reason.
    pub async fn refuse_call(&self, tool: &str, args: String, error: ToolError) -> Result<(), SessionClosed> {
        self.refuse_call_for(tool, args, Purpose::Work, error).await
    }

    async fn refuse_call_for(
        &self,
        tool: &str,
        args: String,
        purpose: Purpose,
        error: ToolError,
    ) -> Result<(), SessionClosed> {
        let error = Box::new(self.redact_error(error));
        let args = self.redact_args(args);
        self.send_call(tool, args, purpose, Precondition::Refuse(error)).await
    }

    /// Sends a call with its redacted arguments, and with the raw ones if they differ.
    async fn send_call(
        &self,
        tool: &str,
        (args, raw): (Json, Option<String>),
        purpose: Purpose,
        before: Precondition,
    ) -> Result<(), SessionClosed> {
        let intention = Intention { call: (self.ids.call)(), tool: tool.to_owned(), args, purpose };
        let report = Report::CallRequested(Box::new(CallRequest { intention, precondition: before }));
        self.deliver(ReportEnvelope { raw_args: vec![raw], ..ReportEnvelope::new(self.owner.clone(), report) }).await
    }

    /// Reports the usage of a turn and its pending calls.
    pub async fn report_turn(&self, mut usage: TurnUsage) -> Result<(), SessionClosed> {
        // Provider state that the redactor changes is useless to the server, so it is dropped.
        usage.provider_state = usage.provider_state.filter(|state| self.redactor.redact(state) == *state);
        let mut raw_args = Vec::new();
        for call in &mut usage.pending {
            let (args, raw) = self.redact_args(call.args.as_str().to_owned());
            call.args = args;
            raw_args.push(raw);
        }
        let report = Report::TurnUsage(Box::new(usage));
        self.deliver(ReportEnvelope { raw_args, ..ReportEnvelope::new(self.owner.clone(), report) }).await
    }

    /// Redacts arguments for storage, and returns the raw ones if they differ.
    fn redact_args(&self, args: String) -> (Json, Option<String>) {
        let safe = self.redactor.redact_json(&args);
        let hides = redact::contains_marker(&safe);
        (Json::new(safe), hides.then_some(args))
    }

    /// Sends a warning for people; it may quote a server and is redacted.
    pub async fn warn(&self, code: &str, message: &str, detail: Option<&str>) -> Result<(), SessionClosed> {
        let safe = |text: &str| self.redactor.redact(text).into_owned();
        let (code, message, detail) = (code.to_owned(), safe(message), detail.map(safe));
        self.send(Report::Warned { code, message, detail }).await
    }

    /// Reports a scheduled retry; its error may quote a server and is redacted.
    pub async fn report_retry(&self, wait: &PendingRetry) -> Result<(), SessionClosed> {
        let message = self.redactor.redact(&wait.error.message).into_owned();
        let pause_millis = u64::try_from(wait.pause.as_millis()).unwrap_or(u64::MAX);
        let (attempt, most) = (wait.attempt, wait.max_retries);
        self.send(Report::RetryStarted(Box::new(Retry { attempt, max_attempts: most, pause_millis, message }))).await
    }

    /// Reports the outcome of a retry.
    pub async fn report_retry_result(&self, attempt: u32, failed: Option<&str>) -> Result<(), SessionClosed> {
        let message = failed.map(|message| self.redactor.redact(message).into_owned());
        self.send(Report::RetryEnded { succeeded: message.is_none(), attempt, message }).await
    }

    /// Ends the turn; another one follows.
    pub async fn end_turn(&self) -> Result<(), SessionClosed> {
        self.send(Report::TurnDone).await
    }

    /// Ends the provider's part of the run.
    pub async fn finish(&self, finish: FinishReport) -> Result<(), SessionClosed> {
        let summary = self.redactor.redact(&finish.summary).into_owned();
        let error = finish.error.map(|error| self.redact_error(error));
        self.send(Report::Finished(Box::new(FinishReport { summary, error, ..finish }))).await
    }

    /// Redacts an error, which may quote paths and commands.
    pub fn redact_error(&self, error: ToolError) -> ToolError {
        ToolError {
            message: self.redactor.redact(&error.message).into_owned(),
            detail: error.detail.map(|detail| self.redactor.redact(&detail).into_owned()),
            ..error
        }
    }

    /// Sends a report that is already redacted.
    pub async fn send(&self, report: Report) -> Result<(), SessionClosed> {
        self.deliver(ReportEnvelope::new(self.owner.clone(), report)).await
    }

    /// Replaces the redactor with one that knows more secrets.
    pub fn set_redactor(&mut self, redactor: Redactor) {
        self.redactor = redactor;
    }

    /// Returns the redactor.
    pub const fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    async fn end_thinking(&mut self) -> Result<(), SessionClosed> {
        match self.thinking_stream.take() {
            Some(mut thinking) => self.emit_thinking(thinking.finish()).await,
            None => Ok(()),
        }
    }

    async fn emit_thinking(&self, safe: String) -> Result<(), SessionClosed> {
        if safe.is_empty() { Ok(()) } else { self.send(Report::ThinkingDelta(safe)).await }
    }

    async fn emit_text(&self, safe: String) -> Result<(), SessionClosed> {
        if safe.is_empty() { Ok(()) } else { self.send(Report::TextDelta(safe)).await }
    }

    async fn deliver(&self, mut reported: ReportEnvelope) -> Result<(), SessionClosed> {
        let (Report::CallOutput { text, .. } | Report::TextDelta(text) | Report::ThinkingDelta(text)) =
            &reported.report
        else {
            return self.enqueue(reported).await;
        };
        if text.len() >= LARGE_TEXT_BYTES {
            let bytes = u32::try_from(text.len().min(MAX_BYTES_IN_FLIGHT)).unwrap_or(u32::MAX);
            let permit = Arc::clone(&self.byte_budget).acquire_many_owned(bytes).await;
            reported.byte_permit = Some(permit.map_err(|_| SessionClosed)?);
        }
        self.enqueue(reported).await
    }

    async fn enqueue(&self, reported: ReportEnvelope) -> Result<(), SessionClosed> {
        // Boxed, so that the channel of an idle session stays small.
        match self.sender.try_send(Box::new(reported)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(reported)) => self.sender.send(reported).await.map_err(|_| SessionClosed),
            Err(TrySendError::Closed(_)) => Err(SessionClosed),
        }
    }

    /// Returns a question as it is stored and displayed, and the arguments of its call as displayed beside it.
    ///
    /// Both are masked in the same way: the approver sees everything except known secret values, and the number of
    /// masked values.
    fn mask_question(&self, question: &Question, args: &str) -> Result<(GateRequest, String), MaskError> {
        let mut masker = Masker::new(&self.redactor);
        let title = masker.mask_text(&question.title)?;
        let summary = masker.mask_text(&question.summary)?;
        let details = masker.mask_json(&question.details)?;
        let form = question.form.as_ref().map(|form| masker.mask_json(form)).transpose()?;
        let args = masker.mask_json(args)?;
        let (title, details) = match masker.finish()? {
            0 => (title, details),
            1 => (format!("{title} (1 secret value masked)"), with_masked_count(&details, 1)?),
            masked => (format!("{title} ({masked} secret values masked)"), with_masked_count(&details, masked)?),
        };
        let ask = GateRequest {
            gate: (self.ids.gate)(),
            subject: match (form, question.budget) {
                (Some(form), _) => RequestSubject::Form { kind: question.kind.to_owned(), form: Json::new(form) },
                (None, Some(resource)) => RequestSubject::Budget(resource),
                (None, None) => RequestSubject::ToolCall { kind: question.kind.to_owned() },
            },
            title,
            summary,
            details: Json::new(details),
            choices: question.choices.clone(),
            quorum: Quorum::Any(1),
            // A rule that contains a secret cannot be stored, and without the secret it would be a different rule.
            grant_rule: question.grant_rule.clone().filter(|rule| self.redactor.redact(rule) == *rule),
            digest: question.digest.clone(),
            on_denial: question.denial,
            timeout_millis: question.timeout_millis,
            policy_comment: Some(self.redactor.redact(&question.policy_comment).into_owned()),
        };
        Ok((ask, args))
    }
}

/// Adds the number of masked values to the details of a question.
fn with_masked_count(details: &str, masked: usize) -> Result<String, MaskError> {
    let mut details: Value = serde_json::from_str(details).map_err(|_| MaskError::NotJson)?;
    let fields = details.as_object_mut().ok_or(MaskError::NotJson)?;
    fields.insert(MASKED_COUNT_KEY.to_owned(), masked.into());
    Ok(details.to_string())
}

/// The key of the number of masked values.
const MASKED_COUNT_KEY: &str = "maskedValues";

fn secret_in_call_error(why: MaskError) -> ToolError {
    ToolError { kind: "SECRET_IN_CALL".to_owned(), retryable: false, message: why.to_string(), detail: None }
}
