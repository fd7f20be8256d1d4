//! The way back from a provider to its session: in order, bounded, and past the redactor.

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

/// What a provider or a tool says, with what the session may not keep.
#[derive(Debug)]
pub struct Reported {
    /// What it belongs to.
    pub whose: Whose,
    /// What it says, safe to keep.
    pub report: Report,
    /// The arguments as they are to be used where what is kept hides a part of them: of a call, or of each that waits.
    pub raw_args: Vec<Option<String>>,
    /// What a long text holds of the room on the way, until it is taken.
    pub room: Option<OwnedSemaphorePermit>,
}

impl Reported {
    /// Makes a report that is safe to keep and hides nothing.
    pub const fn new(whose: Whose, report: Report) -> Self {
        Self { whose, report, raw_args: Vec::new(), room: None }
    }
}

/// What a report belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// A run.
    Run(RunId),
    /// A tool that is used for the user, beside any run.
    Aside(CallId),
    /// A summary that somebody asked for: the event that says that it began.
    Compaction(Seq),
}

/// The session has ended, or the run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// How a provider gets fresh names.
#[derive(Debug, Clone, Copy)]
pub struct Mint {
    /// A use of a tool.
    pub call: fn() -> CallId,
    /// A gate.
    pub gate: fn() -> GateId,
    /// A message of the assistant.
    pub message: fn() -> MessageId,
}

/// What is to be asked before a tool is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// A word for programs.
    pub kind: &'static str,
    /// A headline for people.
    pub title: String,
    /// What exactly is asked.
    pub summary: String,
    /// The particulars: a JSON object.
    pub details: String,
    /// More than two answers; empty for plain yes or no.
    pub choices: Vec<String>,
    /// What a yes may let go ahead later as well, as a rule.
    pub remember: Option<String>,
    /// What exactly would be done, as a digest.
    pub digest: Option<String>,
    /// What a no with a comment means.
    pub denial: Denial,
    /// What is to be filled in: a JSON object.
    pub form: Option<String>,
    /// How long the question stands, in milliseconds; as long as any when not said.
    pub millis: Option<u64>,
    /// What is said where a run may ask nobody: why this would have been asked, and how to allow it.
    pub policy_comment: String,
}

/// What to do where a run may ask nobody and no rule allows a call.
pub const APPROVE_REMEDY: &str =
    "`push run --approve ask` waits for an answer, and `push run --yes` approves whatever would ask";

impl Question {
    /// Asks for a plain yes or no, which holds once; a no ends the run.
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
            policy_comment: format!("nobody can be asked in this run; {APPROVE_REMEDY}"),
        }
    }
}

/// What rules say about a step that is its user's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Screened {
    /// It goes ahead.
    Free,
    /// It is asked about first.
    Ask(Box<Question>),
    /// It does not happen.
    Refuse(Fault),
}

/// Holds steps, each a tool with its arguments, against the rules.
pub struct Screen(Box<Look>);

type Look = dyn Fn(&str, &str) -> Screened + Send + Sync;

impl Screen {
    /// Looks at steps in this way.
    pub fn new(look: impl Fn(&str, &str) -> Screened + Send + Sync + 'static) -> Self {
        Self(Box::new(look))
    }

    /// Looks at a step.
    pub fn look(&self, tool: &str, args: &str) -> Screened {
        (self.0)(tool, args)
    }
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Screen").finish_non_exhaustive()
    }
}

/// One provider's or tool's way back.
#[derive(Debug)]
pub struct Reports {
    whose: Whose,
    sender: mpsc::Sender<Box<Reported>>,
    redactor: Redactor,
    saying: Option<Stream>,
    thinking: Option<Stream>,
    mint: Mint,
    /// The channel counts reports, of which a tool's output makes long ones: those are counted by their bytes as well.
    room: Arc<Semaphore>,
    /// What every call is held against.
    screen: Option<Screen>,
}

/// How many bytes of long texts may be on the way at once.
const ROOM: usize = 512 * 1024;
/// From how many bytes on a text is long.
const LONG: usize = 1024;

impl Reports {
    /// Opens a way back.
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

    /// Holds every call against rules, where there are any.
    #[must_use]
    pub fn screened(mut self, screen: Option<Screen>) -> Self {
        self.screen = screen;
        self
    }

    /// Passes a piece of reasoning on; what might be the beginning of a secret waits for the next piece.
    pub async fn think(&mut self, piece: &str) -> Result<(), Gone> {
        let thinking = self.thinking.get_or_insert_with(|| self.redactor.stream());
        let safe = thinking.push(piece);
        self.thought(safe).await
    }

    /// Passes a piece of text on; what might be the beginning of a secret waits for the next piece.
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

    /// Ends the text, if one has begun, and the reasoning.
    pub async fn done_speaking(&mut self) -> Result<(), Gone> {
        self.done_thinking().await?;
        if self.saying.is_some() { self.done_saying().await } else { Ok(()) }
    }

    /// Lets go of a text that was cut; nothing of it is said any more.
    pub async fn cut_text(&mut self) -> Result<(), Gone> {
        self.saying = None;
        self.done_thinking().await
    }

    /// Asks for a tool to be used.
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
            // Nobody can approve what cannot be shown.
            Err(why) => self.refuse_for(tool, args, purpose, secret_in_call(why)).await,
        }
    }

    /// Says that a tool was to be used, and why that could not succeed.
    pub async fn refuse(&self, tool: &str, args: String, fault: Fault) -> Result<(), Gone> {
        self.refuse_for(tool, args, Purpose::Work, fault).await
    }

    async fn refuse_for(&self, tool: &str, args: String, purpose: Purpose, fault: Fault) -> Result<(), Gone> {
        let fault = Box::new(self.safe_fault(fault));
        let args = self.safe_args(args);
        self.intend(tool, args, purpose, Before::Refuse(fault)).await
    }

    /// Passes a call on, with its arguments as they are kept, and as they are to be used where that differs.
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

    /// Says what a turn used, and what it wants used that has to wait.
    pub async fn taken(&self, mut taken: Taken) -> Result<(), Gone> {
        // What would be changed on its way into the journal is of no use to the server any more.
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

    /// Makes arguments safe to keep, and returns them as they were where that hides anything.
    fn safe_args(&self, args: String) -> (Json, Option<String>) {
        let safe = self.redactor.json(&args);
        let hides = redact::holds_marker(&safe);
        (Json::new(safe), hides.then_some(args))
    }

    /// Says what a person should know; it may quote a server, and is made safe to keep.
    pub async fn warn(&self, code: &str, message: &str, detail: Option<&str>) -> Result<(), Gone> {
        let safe = |text: &str| self.redactor.text(text).into_owned();
        let (code, message, detail) = (code.to_owned(), safe(message), detail.map(safe));
        self.send(Report::Warned { code, message, detail }).await
    }

    /// Says that the provider is asked again after a pause; what went wrong may quote a server, and is made safe to keep.
    pub async fn retry(&self, wait: &Wait) -> Result<(), Gone> {
        let message = self.redactor.text(&wait.error.message).into_owned();
        let pause_millis = u64::try_from(wait.pause.as_millis()).unwrap_or(u64::MAX);
        let (attempt, most) = (wait.attempt, wait.most);
        self.send(Report::RetryBegan(Box::new(Retry { attempt, most, pause_millis, message }))).await
    }

    /// Says what came of asking again.
    pub async fn retried(&self, attempt: u32, failed: Option<&str>) -> Result<(), Gone> {
        let message = failed.map(|message| self.redactor.text(message).into_owned());
        self.send(Report::RetryOver { succeeded: message.is_none(), attempt, message }).await
    }

    /// Ends the turn; another follows.
    pub async fn turn_done(&self) -> Result<(), Gone> {
        self.send(Report::TurnDone).await
    }

    /// Ends the provider's part of the run.
    pub async fn finish(&self, finish: Finish) -> Result<(), Gone> {
        let summary = self.redactor.text(&finish.summary).into_owned();
        let fault = finish.fault.map(|fault| self.safe_fault(fault));
        self.send(Report::Finished(Box::new(Finish { summary, fault, ..finish }))).await
    }

    /// Makes what went wrong safe to keep: it may quote paths and commands.
    pub fn safe_fault(&self, fault: Fault) -> Fault {
        Fault {
            message: self.redactor.text(&fault.message).into_owned(),
            detail: fault.detail.map(|detail| self.redactor.text(&detail).into_owned()),
            ..fault
        }
    }

    /// Passes a report on that is safe to keep.
    pub async fn send(&self, report: Report) -> Result<(), Gone> {
        self.deliver(Reported::new(self.whose.clone(), report)).await
    }

    /// Makes text safe with another redactor, which knows more.
    pub fn hide_with(&mut self, redactor: Redactor) {
        self.redactor = redactor;
    }

    /// Returns what makes text safe.
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
        // In a box, so that the channel of a session that waits for nothing stays small.
        match self.sender.try_send(Box::new(reported)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(reported)) => self.sender.send(reported).await.map_err(|_| Gone),
            Err(TrySendError::Closed(_)) => Err(Gone),
        }
    }

    /// Returns a question as it is kept and shown, and the arguments of its call as they are shown beside it.
    ///
    /// Both are masked in the same way: whoever approves sees everything but known secret values, and how many of those
    /// were masked.
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
            // A rule that holds a secret cannot be kept, and without the secret it would be another.
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

/// Says in the particulars of a question how many values were masked in it.
fn with_masked(details: &str, masked: usize) -> Result<String, Unmaskable> {
    let mut details: Value = serde_json::from_str(details).map_err(|_| Unmaskable::NotJson)?;
    let fields = details.as_object_mut().ok_or(Unmaskable::NotJson)?;
    fields.insert(MASKED.to_owned(), masked.into());
    Ok(details.to_string())
}

/// The particular that says how many values were masked.
const MASKED: &str = "maskedValues";

fn secret_in_call(why: Unmaskable) -> Fault {
    Fault { kind: "SECRET_IN_CALL".to_owned(), retryable: false, message: why.to_string(), detail: None }
}
