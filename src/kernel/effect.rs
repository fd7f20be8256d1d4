//! What the driver is to do, in order.

use super::command::{Private, Reply};
use super::event::{
    Adjustment, Budget, Compaction, CompactionReason, Criterion, Denial, Event, Fault, Intention, Outcome,
    OutputStream, Retry, Settlement, Steering, Taken,
};
use super::id::{CallId, MessageId, ParticipantId, RunId, Seq};
use super::state::Spent;

/// Names the command that an answer belongs to; the driver chooses the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Make sure, on disk, that no number up to this one is ever issued again.
    Reserve(Seq),
    /// Keep the event.
    Persist(Event),
    /// Show the kept event to all listeners; its `Persist` came before.
    Show(Seq),
    /// Show something to one listener.
    ShowTo(ParticipantId, Private),
    /// Feed a listener with the events after a position.
    Subscribe {
        /// Whom.
        who: ParticipantId,
        /// The last position not to be sent.
        after: Seq,
    },
    /// Feed a listener no longer.
    Unsubscribe(ParticipantId),
    /// Answer a command, and say which version the session has after it.
    Reply(Ticket, Reply, u64),
    /// Ask the provider for its next turn.
    Turn(Box<Turn>),
    /// Intend the tool call of the acceptance check at this position, and report it like a provider's.
    Check {
        /// For which run.
        run: RunId,
        /// Which check.
        index: u32,
        /// What it checks.
        criterion: Box<Criterion>,
    },
    /// Use the tool; its start is on disk.
    Execute {
        /// For which run.
        run: RunId,
        /// With what.
        intention: Box<Intention>,
        /// What exactly was approved, as a digest; nothing where nobody was asked.
        bound: Option<String>,
    },
    /// Remember for the repository what may go ahead unasked from now on.
    Remember {
        /// The rule.
        rule: String,
        /// Who granted it.
        by: String,
    },
    /// End everything the run has started, at once, and report when it is gone.
    Stop(RunId),
    /// Use a tool for the user; its start is on disk.
    Aside(Box<Intention>),
    /// End everything that a tool used for the user has started, at once, and report it as cut.
    StopAside(CallId),
    /// Have the provider make a summary, outside of any run.
    Compact(Box<Compact>),
    /// Make no summary, whoever needs it: a run, or nobody.
    StopCompaction(Option<RunId>),
    /// Ask the provider that the run waits for no more.
    StopRetry(RunId),
    /// Keep a checkpoint of the state as it is after everything before this.
    Checkpoint(Seq),
}

/// What the provider has to know for a summary that somebody asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compact {
    /// The event that says that it began, which names it.
    pub began: Seq,
    /// What the summary should heed.
    pub instructions: Option<String>,
    /// The first event of the session that is told word by word.
    pub context_from: Seq,
    /// The newest event of the session.
    pub last_seq: Seq,
    /// Who answers, and how.
    pub voice: Voice,
}

/// Who answers, and how: as the session began, and as it was adjusted since.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Voice {
    /// The provider.
    pub provider: String,
    /// Which model of it.
    pub model: Option<String>,
    /// How much the model thinks, in a word.
    pub thinking: Option<String>,
    /// Whether a conversation that becomes too long is summarised unasked.
    pub auto_compaction: bool,
    /// Whether a provider that does not answer is asked again unasked.
    pub auto_retry: bool,
}

impl Voice {
    /// Puts what is different in the place of how it began; another provider's model is never asked for.
    pub fn new(provider: String, model: Option<String>, adjusted: &Adjustment) -> Self {
        Self {
            provider,
            model,
            thinking: adjusted.thinking.clone(),
            auto_compaction: adjusted.auto_compaction.unwrap_or(true),
            auto_retry: adjusted.auto_retry.unwrap_or(true),
        }
    }
}

/// What the provider has to know for its next turn: journaled facts alone, so that a restart asks the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// The run.
    pub run: RunId,
    /// The message that began it, safe to keep.
    pub text: String,
    /// The message's id.
    pub message: MessageId,
    /// What was said into it, each with the number of steps begun by then.
    pub steers: Vec<(u32, Steering)>,
    /// How many steps are done: finished texts and settled calls.
    pub done: u32,
    /// How the last call ended.
    pub last: Option<Settlement>,
    /// Whether acceptance checks have begun: the provider had said that everything is done, and a restart has forgotten it.
    pub checking: bool,
    /// What the run may use before somebody is asked.
    pub budget: Budget,
    /// What it has used.
    pub spent: Spent,
    /// Whether the environment of its message's sender says whom to ask: without one nobody else may be asked.
    pub needs_environment: bool,
    /// The first event of the session that is told word by word.
    pub context_from: Seq,
    /// The newest event of the session.
    pub last_seq: Seq,
    /// Who answers, and how.
    pub voice: Voice,
    /// What was said of the run's calls when it began, as rules.
    pub rules: Vec<String>,
    /// What may go ahead unasked in this session and this run, as rules.
    pub granted: Vec<String>,
}

/// What the provider and the tools report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// What it is busy with.
    Status {
        /// Who says so.
        source: String,
        /// What it is doing.
        phase: String,
        /// To what.
        detail: Option<String>,
    },
    /// A piece of reasoning.
    Thought(String),
    /// A piece of text.
    Said(String),
    /// The text is whole.
    SayingDone(MessageId),
    /// What the turn used, and what remains to be done for it.
    Taken(Box<Taken>),
    /// A summary is being made.
    Compacting(CompactionReason),
    /// A summary stands for the older part of the conversation.
    Compacted(Box<Compaction>),
    /// No summary came of it.
    CompactionFailed {
        /// Why, safe to keep.
        message: String,
        /// Whether another attempt follows.
        again: bool,
    },
    /// The provider did not answer, and is asked again after a pause.
    RetryBegan(Box<Retry>),
    /// The provider has answered after all, or is asked no more.
    RetryOver {
        /// Whether it has answered.
        succeeded: bool,
        /// How often it was asked again.
        attempt: u32,
        /// What went wrong at last, safe to keep.
        message: Option<String>,
    },
    /// The provider's turn is over; it gets another when all its calls are settled.
    TurnDone,
    /// Something a person should know.
    Warned {
        /// A word for programs.
        code: String,
        /// A sentence for people.
        message: String,
        /// The particulars.
        detail: Option<String>,
    },
    /// A tool is to be used.
    Call(Box<CallRequest>),
    /// A piece of what a tool printed.
    Output {
        /// Which use.
        call: CallId,
        /// Where it was printed.
        stream: OutputStream,
        /// The piece.
        text: String,
    },
    /// A tool is done.
    Settled(Box<Settlement>),
    /// The provider has nothing more to do.
    Finished(Box<Finish>),
    /// Everything that the run had started is gone.
    Stopped {
        /// What could not be ended, in words.
        left: Option<String>,
    },
}

/// What a tool that is used for the user reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AsideReport {
    /// A piece of what it printed.
    Output {
        /// Where it was printed.
        stream: OutputStream,
        /// The piece.
        text: String,
    },
    /// Something a person should know.
    Warned {
        /// A word for programs.
        code: String,
        /// A sentence for people.
        message: String,
        /// The particulars.
        detail: Option<String>,
    },
    /// It is done.
    Settled(Box<Settlement>),
}

/// What came of a summary that somebody asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactionReport {
    /// What asking for it used.
    Used(Box<Taken>),
    /// The summary.
    Done(Box<Compaction>),
    /// There is none.
    Failed {
        /// Why, safe to keep.
        message: String,
    },
}

/// A use of a tool that a provider asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRequest {
    /// The use.
    pub intention: Intention,
    /// What comes before the use.
    pub before: Before,
}

/// What comes before a tool is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Before {
    /// Nothing.
    Nothing,
    /// A question.
    Ask(Box<Ask>),
    /// It is not used at all: it could not succeed, and nobody needs to be asked.
    Refuse(Box<Fault>),
}

/// What is to be asked before a tool is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The gate, freshly minted.
    pub gate: super::id::GateId,
    /// A word for programs.
    pub kind: String,
    /// A headline for people.
    pub title: String,
    /// What exactly is asked, safe to keep.
    pub summary: String,
    /// The particulars: a JSON object, safe to keep.
    pub details: super::id::Json,
    /// More than two answers; empty for plain yes or no.
    pub choices: Vec<String>,
    /// How many of those entitled must agree.
    pub needed: u32,
    /// What a yes may let go ahead later as well.
    pub remember: Option<String>,
    /// What exactly would be done, as a digest.
    pub digest: Option<String>,
    /// What a no with a comment means.
    pub denial: Denial,
    /// What is to be filled in: a JSON object, safe to keep.
    pub form: Option<super::id::Json>,
    /// How long the question stands, in milliseconds; as long as any when not said.
    pub millis: Option<u64>,
    /// The comment with which the policy of a run denies: why it would have been asked, and how to allow it; safe to keep.
    pub policy_comment: Option<String>,
}

/// How the provider ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    /// Success or failure, before acceptance.
    pub outcome: Outcome,
    /// A word for why it failed.
    pub reason: Option<String>,
    /// A sentence for people.
    pub summary: String,
    /// What to report as an error of the run.
    pub fault: Option<Fault>,
}

impl Finish {
    /// Ends as failed, for a reason that trying again does not change.
    pub fn for_good(kind: &str, message: impl Into<String>) -> Self {
        Self::failed(Fault { kind: kind.to_owned(), retryable: false, message: message.into(), detail: None })
    }

    /// Ends as failed, for the reason that the fault names.
    pub fn failed(fault: Fault) -> Self {
        Self {
            outcome: Outcome::Failed,
            reason: Some(fault.kind.to_lowercase()),
            summary: fault.message.clone(),
            fault: Some(fault),
        }
    }
}
