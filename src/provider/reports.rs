//! The channel from a provider or a tool to its session: ordered, bounded, and redacted.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::answering::Wait;
use crate::kernel::effect::{Ask, Before, CallRequest, Finish, Report};
use crate::kernel::event::{Denial, Fault, Intention, Purpose, Retry, Taken};
use crate::kernel::id::{CallId, GateId, Json, MessageId, RunId, Seq};
use crate::redact::{self, Masker, Redactor, Stream, Unmaskable};

/// A report of a provider or a tool, with the data that the session must not store.
#[derive(Debug)]
pub struct Reported {
    /// The owner of the report.
    pub whose: Whose,
    /// The report, redacted for storage.
    pub report: Report,
    /// The unredacted arguments where the stored ones are redacted: of a call, or of each pending call.
    pub raw_args: Vec<Option<String>>,
    /// The share of the byte budget that a large text holds until the session receives it.
    pub room: Option<OwnedSemaphorePermit>,
}

impl Reported {
    /// Creates an envelope for a report that contains no secret.
    pub const fn new(whose: Whose, report: Report) -> Self {
        Self { whose, report, raw_args: Vec::new(), room: None }
    }
}

/// The owner of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// A run.
    Run(RunId),
    /// A command of the user outside any run.
    Aside(CallId),
    /// A requested compaction, identified by the event that started it.
    Compaction(Seq),
}

/// The session or the run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// The generator of ids for a provider.
#[derive(Debug, Clone, Copy)]
pub struct Mint {
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
    pub remember: Option<String>,
    /// The digest of the exact action.
    pub digest: Option<String>,
    /// The effect of a denial with a comment.
    pub denial: Denial,
    /// The form to fill in: a JSON object.
    pub form: Option<String>,
    /// The timeout of the question in milliseconds; `None` is the longest one.
    pub millis: Option<u64>,
    /// The comment of the denial in a run that cannot prompt: why an approval was needed, and how to allow the
    /// call.
    pub policy_comment: String,
}

/// The remedy in a run that cannot prompt, where no rule allows a call.
pub const APPROVE_REMEDY: &str =
    "`push run --approve ask` waits for an answer, and `push run --yes` approves whatever would ask";

impl Question {
    /// Creates a question with approve and deny, valid once; a denial ends the run.
    pub fn plain(kind: &'static str, title: String, summary: String, details: String) -> Self {
        Self {
            kind,
            title,
            summary,
            details,
            choices: Vec::new(),
            remember: None,
            digest: None,
            denial: Denial::Ends,
            form: None,
            millis: None,
            policy_comment: format!("this run cannot prompt for approval; {APPROVE_REMEDY}"),
        }
    }
}

/// The decision of the rules about a step that the user wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Screened {
    /// The step is allowed.
    Free,
    /// The step needs an approval first.
    Ask(Box<Question>),
    /// The step is denied.
    Refuse(Fault),
}

/// Checks steps, each a tool with its arguments, against the rules.
pub struct Screen(Box<Look>);

type Look = dyn Fn(&str, &str) -> Screened + Send + Sync;

impl Screen {
    /// Creates a screen from a function of a tool and its arguments.
    pub fn new(look: impl Fn(&str, &str) -> Screened + Send + Sync + 'static) -> Self {
        Self(Box::new(look))
    }

    /// Checks a step.
    pub fn look(&self, tool: &str, args: &str) -> Screened {
        (self.0)(tool, args)
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Screen").finish_non_exhaustive()
    }
}

/// The sender of one provider's or tool's reports.
#[derive(Debug)]
pub struct Reports {
    whose: Whose,
    sender: mpsc::Sender<Box<Reported>>,
    redactor: Redactor,
    saying: Option<Stream>,
    thinking: Option<Stream>,
    mint: Mint,
    /// The channel bounds the number of reports; this bounds the bytes of large ones, such as tool output.
    room: Arc<Semaphore>,
    /// The rules that every call is checked against.
    screen: Option<Screen>,
}

/// The maximum number of bytes of large texts in flight.
const ROOM: usize = 512 * 1024;
/// The size from which a text is large.
const LONG: usize = 1024;

impl Reports {
    /// Creates a sender.
    pub fn new(whose: Whose, sender: mpsc::Sender<Box<Reported>>, redactor: Redactor, mint: Mint) -> Self {
        Self {
            whose,
            sender,
            redactor,
            saying: None,
            thinking: None,
            mint,
            room: Arc::new(Semaphore::new(ROOM)),
            screen: None,
        }
    }

    /// Checks every call against the rules of `screen`, if there are any.
    #[must_use]
    pub fn screened(mut self, screen: Option<Screen>) -> Self {
        self.screen = screen;
        self
    }

    /// Sends a delta of thinking; a possible beginning of a secret is held back until the next delta.
    pub async fn think(&mut self, piece: &str) -> Result<(), Gone> {
        let thinking = self.thinking.get_or_insert_with(|| self.redactor.stream());
        let safe = thinking.push(piece);
        self.thought(safe).await
    }

    /// Sends a delta of text; a possible beginning of a secret is held back until the next delta.
    pub async fn say(&mut self, piece: &str) -> Result<(), Gone> {
        self.done_thinking().await?;
        let saying = self.saying.get_or_insert_with(|| self.redactor.stream());
        let safe = saying.push(piece);
        self.said(safe).await
    }

    /// Ends the text.
    pub async fn done_saying(&mut self) -> Result<(), Gone> {
        if let Some(mut saying) = self.saying.take() {
            let rest = saying.finish();
            self.said(rest).await?;
        }
        self.send(Report::SayingDone((self.mint.message)())).await
    }

    /// Ends the thinking, and the text if one has started.
    pub async fn done_speaking(&mut self) -> Result<(), Gone> {
        self.done_thinking().await?;
        if self.saying.is_some() { self.done_saying().await } else { Ok(()) }
    }

    /// Discards the held-back rest of an interrupted text.
    pub async fn cut_text(&mut self) -> Result<(), Gone> {
        self.saying = None;
        self.done_thinking().await
    }

    /// Requests a tool call.
    pub async fn call(
        &self,
        tool: &str,
        args: String,
        purpose: Purpose,
        question: Option<Question>,
    ) -> Result<(), Gone> {
        let screened = self.screen.as_ref().map_or(Screened::Free, |screen| screen.look(tool, &args));
        let question = match screened {
            Screened::Free => question,
            Screened::Ask(asked) => question.or(Some(*asked)),
            Screened::Refuse(fault) => return self.refuse_for(tool, args, purpose, fault).await,
        };
        let Some(question) = question else {
            let args = self.safe_args(args);
            return self.intend(tool, args, purpose, Before::Nothing).await;
        };
        match self.ask(&question, &args) {
            Ok((ask, shown)) => {
                let raw = redact::holds_marker(&shown).then_some(args);
                self.intend(tool, (Json::new(shown), raw), purpose, Before::Ask(Box::new(ask))).await
            }
            // A call that cannot be displayed cannot be approved.
            Err(why) => self.refuse_for(tool, args, purpose, secret_in_call(why)).await,
        }
    }

    /// Reports a call that is refused, with the reason.
    pub async fn refuse(&self, tool: &str, args: String, fault: Fault) -> Result<(), Gone> {
        self.refuse_for(tool, args, Purpose::Work, fault).await
    }

    async fn refuse_for(&self, tool: &str, args: String, purpose: Purpose, fault: Fault) -> Result<(), Gone> {
        let fault = Box::new(self.safe_fault(fault));
        let args = self.safe_args(args);
        self.intend(tool, args, purpose, Before::Refuse(fault)).await
    }

    /// Sends a call with its redacted arguments, and with the raw ones if they differ.
    async fn intend(
        &self,
        tool: &str,
        (args, raw): (Json, Option<String>),
        purpose: Purpose,
        before: Before,
    ) -> Result<(), Gone> {
        let intention = Intention { call: (self.mint.call)(), tool: tool.to_owned(), args, purpose };
        let report = Report::Call(Box::new(CallRequest { intention, before }));
        self.deliver(Reported { raw_args: vec![raw], ..Reported::new(self.whose.clone(), report) }).await
    }

    /// Reports the usage of a turn and its pending calls.
    pub async fn taken(&self, mut taken: Taken) -> Result<(), Gone> {
        // Provider state that the redactor changes is useless to the server, so it is dropped.
        taken.carry = taken.carry.filter(|carry| self.redactor.text(carry) == *carry);
        let mut raw_args = Vec::new();
        for wanted in &mut taken.pending {
            let (args, raw) = self.safe_args(wanted.args.as_str().to_owned());
            wanted.args = args;
            raw_args.push(raw);
        }
        let report = Report::Taken(Box::new(taken));
        self.deliver(Reported { raw_args, ..Reported::new(self.whose.clone(), report) }).await
    }

    /// Redacts arguments for storage, and returns the raw ones if they differ.
    fn safe_args(&self, args: String) -> (Json, Option<String>) {
        let safe = self.redactor.json(&args);
        let hides = redact::holds_marker(&safe);
        (Json::new(safe), hides.then_some(args))
    }

    /// Sends a warning for people; it may quote a server and is redacted.
    pub async fn warn(&self, code: &str, message: &str, detail: Option<&str>) -> Result<(), Gone> {
        let safe = |text: &str| self.redactor.text(text).into_owned();
        let (code, message, detail) = (code.to_owned(), safe(message), detail.map(safe));
        self.send(Report::Warned { code, message, detail }).await
    }

    /// Reports a scheduled retry; its error may quote a server and is redacted.
    pub async fn retry(&self, wait: &Wait) -> Result<(), Gone> {
        let message = self.redactor.text(&wait.error.message).into_owned();
        let pause_millis = u64::try_from(wait.pause.as_millis()).unwrap_or(u64::MAX);
        let (attempt, most) = (wait.attempt, wait.most);
        self.send(Report::RetryBegan(Box::new(Retry { attempt, most, pause_millis, message }))).await
    }

    /// Reports the outcome of a retry.
    pub async fn retried(&self, attempt: u32, failed: Option<&str>) -> Result<(), Gone> {
        let message = failed.map(|message| self.redactor.text(message).into_owned());
        self.send(Report::RetryOver { succeeded: message.is_none(), attempt, message }).await
    }

    /// Ends the turn; another one follows.
    pub async fn turn_done(&self) -> Result<(), Gone> {
        self.send(Report::TurnDone).await
    }

    /// Ends the provider's part of the run.
    pub async fn finish(&self, finish: Finish) -> Result<(), Gone> {
        let summary = self.redactor.text(&finish.summary).into_owned();
        let fault = finish.fault.map(|fault| self.safe_fault(fault));
        self.send(Report::Finished(Box::new(Finish { summary, fault, ..finish }))).await
    }

    /// Redacts an error, which may quote paths and commands.
    pub fn safe_fault(&self, fault: Fault) -> Fault {
        Fault {
            message: self.redactor.text(&fault.message).into_owned(),
            detail: fault.detail.map(|detail| self.redactor.text(&detail).into_owned()),
            ..fault
        }
    }

    /// Sends a report that is already redacted.
    pub async fn send(&self, report: Report) -> Result<(), Gone> {
        self.deliver(Reported::new(self.whose.clone(), report)).await
    }

    /// Replaces the redactor with one that knows more secrets.
    pub fn hide_with(&mut self, redactor: Redactor) {
        self.redactor = redactor;
    }

    /// Returns the redactor.
    pub const fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    async fn done_thinking(&mut self) -> Result<(), Gone> {
        match self.thinking.take() {
            Some(mut thinking) => self.thought(thinking.finish()).await,
            None => Ok(()),
        }
    }

    async fn thought(&self, safe: String) -> Result<(), Gone> {
        if safe.is_empty() { Ok(()) } else { self.send(Report::Thought(safe)).await }
    }

    async fn said(&self, safe: String) -> Result<(), Gone> {
        if safe.is_empty() { Ok(()) } else { self.send(Report::Said(safe)).await }
    }

    async fn deliver(&self, mut reported: Reported) -> Result<(), Gone> {
        let (Report::Output { text, .. } | Report::Said(text) | Report::Thought(text)) = &reported.report
        else {
            return self.pass_on(reported).await;
        };
        if text.len() >= LONG {
            let bytes = u32::try_from(text.len().min(ROOM)).unwrap_or(u32::MAX);
            let room = Arc::clone(&self.room).acquire_many_owned(bytes).await;
            reported.room = Some(room.map_err(|_| Gone)?);
        }
        self.pass_on(reported).await
    }

    async fn pass_on(&self, reported: Reported) -> Result<(), Gone> {
        // Boxed, so that the channel of an idle session stays small.
        match self.sender.try_send(Box::new(reported)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(reported)) => self.sender.send(reported).await.map_err(|_| Gone),
            Err(TrySendError::Closed(_)) => Err(Gone),
        }
    }

    /// Returns a question as it is stored and displayed, and the arguments of its call as displayed beside it.
    ///
    /// Both are masked in the same way: the approver sees everything except known secret values, and the number of
    /// masked values.
    fn ask(&self, question: &Question, args: &str) -> Result<(Ask, String), Unmaskable> {
        let mut masker = Masker::new(&self.redactor);
        let title = masker.text(&question.title)?;
        let summary = masker.text(&question.summary)?;
        let details = masker.json(&question.details)?;
        let form = question.form.as_ref().map(|form| masker.json(form)).transpose()?;
        let args = masker.json(args)?;
        let (title, details) = match masker.finish()? {
            0 => (title, details),
            1 => (format!("{title} (1 secret value masked)"), with_masked(&details, 1)?),
            masked => (format!("{title} ({masked} secret values masked)"), with_masked(&details, masked)?),
        };
        let ask = Ask {
            gate: (self.mint.gate)(),
            kind: question.kind.to_owned(),
            title,
            summary,
            details: Json::new(details),
            choices: question.choices.clone(),
            needed: 1,
            // A rule that contains a secret cannot be stored, and without the secret it would be a different rule.
            remember: question.remember.clone().filter(|rule| self.redactor.text(rule) == *rule),
            digest: question.digest.clone(),
            denial: question.denial,
            form: form.map(Json::new),
            millis: question.millis,
            policy_comment: Some(self.redactor.text(&question.policy_comment).into_owned()),
        };
        Ok((ask, args))
    }
}

/// Adds the number of masked values to the details of a question.
fn with_masked(details: &str, masked: usize) -> Result<String, Unmaskable> {
    let mut details: Value = serde_json::from_str(details).map_err(|_| Unmaskable::NotJson)?;
    let fields = details.as_object_mut().ok_or(Unmaskable::NotJson)?;
    fields.insert(MASKED.to_owned(), masked.into());
    Ok(details.to_string())
}

/// The key of the number of masked values.
const MASKED: &str = "maskedValues";

fn secret_in_call(why: Unmaskable) -> Fault {
    Fault { kind: "SECRET_IN_CALL".to_owned(), retryable: false, message: why.to_string(), detail: None }
}
