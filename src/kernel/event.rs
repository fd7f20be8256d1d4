//! What has happened to a session: the only thing that is journaled, shown and folded.

use super::id::{CallId, Fingerprint, GateId, Json, MessageId, RunId, Seq, SessionId};
use super::time::Now;

/// One fact with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Strictly rising within the session, never reused.
    pub seq: Seq,
    /// When it was decided.
    pub at: Now,
    /// The run it belongs to, if any.
    pub run: Option<RunId>,
    /// The session's version from here on, where a command has changed the session: the first event of what followed has it.
    pub version: Option<u64>,
    /// The entry of a session file that it was imported from; empty for what an import added that stands in no file.
    pub origin: Option<String>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind {
    /// The session exists.
    SessionOpened(Box<Opening>),
    /// The session has another name.
    SessionRenamed {
        /// The new name.
        name: String,
    },
    /// The session takes no more messages.
    SessionEnded {
        /// Who ended it.
        by: String,
    },
    /// Somebody has changed something of the session that leaves no other trace in it.
    Touched {
        /// What, in the word of whoever did.
        what: String,
        /// Who.
        by: String,
    },
    /// The session was brought in from outside: its versions count anew, and it takes messages, also if it had ended.
    Loaded {
        /// Who brought it.
        by: String,
    },
    /// From here on somebody else answers, or in another way.
    Adjusted {
        /// What is different.
        adjustment: Box<Adjustment>,
        /// Who wanted it so.
        by: String,
    },
    /// From here on the conversation goes on from an earlier point.
    Branched {
        /// From which.
        branch: Branch,
        /// Who wanted it so.
        by: String,
    },
    /// A message was taken and its run has begun.
    RunStarted(Box<Message>),
    /// A message was taken and waits for the active run to end.
    MessageQueued(Box<QueuedMessage>),
    /// A waiting message was taken back.
    MessageUnqueued {
        /// Which one.
        message: MessageId,
        /// Who took it back.
        by: String,
    },
    /// A message reached the active run.
    Steered(Box<Steering>),
    /// What the run is busy with, for people.
    Status {
        /// Who says so.
        source: String,
        /// What it is doing.
        phase: String,
        /// To what.
        detail: Option<String>,
    },
    /// A piece of the provider's reasoning.
    Thought {
        /// The piece.
        text: String,
    },
    /// A piece of the assistant's text.
    Said {
        /// The piece.
        text: String,
    },
    /// The assistant's text is whole.
    SayingDone {
        /// The assistant's message.
        message: MessageId,
    },
    /// The provider has taken a turn.
    TurnTaken(Box<Taken>),
    /// A summary of the older part of the conversation is being made.
    CompactionBegan {
        /// Why.
        reason: CompactionReason,
        /// Who asked for it; nobody where a run needs it.
        by: Option<String>,
    },
    /// From here on a summary stands for the older part of the conversation.
    Compacted(Box<Compaction>),
    /// No summary came of it, and the conversation is as it was.
    CompactionOver {
        /// How it ended.
        ending: CompactionEnding,
        /// Why, for people.
        message: Option<String>,
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
        /// What went wrong at last.
        message: Option<String>,
    },
    /// A tool is to be used; nothing has happened yet.
    CallIntended(Box<Intention>),
    /// The tool is being used; from here on the outside world may have changed.
    CallStarted {
        /// Which use.
        call: CallId,
        /// Which tool, for people.
        tool: String,
    },
    /// A piece of what the tool prints.
    CallOutput {
        /// Which use.
        call: CallId,
        /// Where it was printed.
        stream: OutputStream,
        /// The piece.
        text: String,
    },
    /// The tool is done, or is known never to run.
    CallSettled(Box<Settlement>),
    /// The run waits for a verdict.
    GateOpened(Box<Question>),
    /// Somebody voted and the gate is still open.
    GateVoted {
        /// Which gate.
        gate: GateId,
        /// Yes or no.
        decision: Decision,
        /// Who voted.
        by: String,
    },
    /// The gate is closed for good.
    GateSettled(Box<Verdict>),
    /// Something a person should know.
    Warned {
        /// A word for programs.
        code: String,
        /// A sentence for people.
        message: String,
        /// The particulars.
        detail: Option<String>,
    },
    /// Something went wrong.
    Failed {
        /// A word for programs.
        code: String,
        /// A sentence for people.
        message: String,
        /// Whether trying again may help.
        retryable: bool,
        /// The particulars.
        detail: Option<String>,
    },
    /// The run is being stopped; what it had started is being ended.
    Stopping {
        /// How the run will end.
        outcome: Outcome,
        /// A word for why.
        reason: String,
        /// Who asked.
        by: String,
    },
    /// The daemon came back and found the run unfinished.
    RunRecovered {
        /// What the run was doing.
        found: Found,
    },
    /// The run is over; no event of it follows.
    RunEnded(Box<RunReport>),
    /// Events that stood between `after` and this one are gone; its position is the last of theirs.
    Lost {
        /// The last position before them.
        after: Seq,
        /// Why.
        cause: LossCause,
    },
}

/// What went wrong with a tool that the daemon ended because it was told to stop.
pub const STOPPED_WITH_DAEMON: &str = "STOPPED";

/// The code of the warning that says that the text before it was cut: it does not count, and is said again.
pub const TURN_CUT: &str = "MODEL_TURN_CUT";

/// Why events are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// They were found changed, or are missing though they had been on disk.
    Damage,
    /// They may have been shown, and were not on disk when the machine stopped.
    Power,
    /// They were removed on purpose.
    Retention,
}

/// How a session begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Opening {
    /// How its user works with it, in the client's word.
    pub mode: String,
    /// Who answers.
    pub provider: String,
    /// Which model of the provider.
    pub model: Option<String>,
    /// Where tools run.
    pub sandbox: String,
    /// What holds a model's commands back there: a JSON object.
    pub walls: Option<Json>,
    /// The directory of its tools; an absolute path.
    pub cwd: String,
    /// Which directory that was; sessions that began before this was noted have none.
    pub workspace: Option<WorkspaceIdentity>,
    /// What the client said of the repository.
    pub repo: Option<Json>,
    /// What the client wants remembered.
    pub metadata: Option<Json>,
    /// A name for people.
    pub name: Option<String>,
    /// The session that it goes on from.
    pub parent: Option<SessionId>,
}

/// Which directory a session works in, so that another one in its place is noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceIdentity {
    /// Its absolute path, without links.
    pub path: String,
    /// What the file system calls it: two numbers with a colon between them.
    pub file_id: String,
    /// Since which start of the machine these numbers hold; empty where the system has no name for that.
    pub boot: String,
}

/// What is different from how a session began; nothing where it is as it was.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Adjustment {
    /// Who answers.
    pub provider: Option<String>,
    /// Which model of the provider.
    pub model: Option<String>,
    /// How much the model thinks, in a word.
    pub thinking: Option<String>,
    /// Whether a conversation that becomes too long is summarised unasked.
    pub auto_compaction: Option<bool>,
    /// Whether a provider that does not answer is asked again unasked.
    pub auto_retry: Option<bool>,
    /// Which directory it works in, noted after it began.
    pub workspace: Option<WorkspaceIdentity>,
    /// Whether it was unloaded by a client of a protocol that has active sessions: those do not see it until it is loaded.
    pub unloaded: Option<bool>,
}

impl Adjustment {
    /// Adds a later one; a provider of its own comes with its own model, or with none.
    pub fn add(&mut self, later: &Self) {
        if later.provider.is_some() {
            self.provider.clone_from(&later.provider);
            self.model = None;
        }
        if later.model.is_some() {
            self.model.clone_from(&later.model);
        }
        if later.thinking.is_some() {
            self.thinking.clone_from(&later.thinking);
        }
        self.auto_compaction = later.auto_compaction.or(self.auto_compaction);
        self.auto_retry = later.auto_retry.or(self.auto_retry);
        if later.workspace.is_some() {
            self.workspace.clone_from(&later.workspace);
        }
        self.unloaded = later.unloaded.or(self.unloaded);
    }
}

/// An earlier point from which a conversation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Branch {
    /// The last event that still counts; nothing of the conversation does before the first.
    pub until: Seq,
    /// The first event that is told word by word, as it was at that point.
    pub from: Seq,
}

/// Why a summary is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionReason {
    /// Somebody asked for it.
    Manual,
    /// The conversation has become long.
    Threshold,
    /// The provider's server found it too long.
    Overflow,
}

/// How the making of a summary ended that there is none of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionEnding {
    /// It could not be made.
    Failed,
    /// Somebody stopped it, or the daemon did.
    Aborted,
}

/// A pause before a provider is asked again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Which repetition follows, counted from one.
    pub attempt: u32,
    /// How many there are at most.
    pub most: u32,
    /// How long the pause is, in milliseconds.
    pub pause_millis: u64,
    /// What went wrong, safe to keep.
    pub message: String,
}

/// A picture that goes with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// What kind of picture, as mail names it.
    pub mime: String,
    /// The picture, in base64.
    pub data: String,
}

/// A user's message, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its id, which is also its idempotency key.
    pub message: MessageId,
    /// Its text, safe to keep.
    pub text: String,
    /// The pictures that go with it.
    pub images: Vec<Image>,
    /// What must hold after the run.
    pub criteria: Vec<Criterion>,
    /// How long the run may take, in milliseconds.
    pub time_limit: Option<u64>,
    /// What the run may use before somebody is asked.
    pub budget: Budget,
    /// Rules for its calls, safe to keep.
    pub rules: Vec<String>,
    /// Whether its sender's environment says whom to ask: without one nobody else may be asked.
    pub needs_environment: bool,
    /// What the id stands for.
    pub fingerprint: Fingerprint,
    /// Where it came from.
    pub by: String,
}

/// What a run may use before somebody is asked whether it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Money, in millionths of a US dollar.
    pub cost: Option<u64>,
    /// Turns of the provider.
    pub turns: Option<u64>,
    /// Tokens, read and written.
    pub tokens: Option<u64>,
}

/// What a turn of a provider used, and what is still to be done for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taken {
    /// The model that answered.
    pub model: String,
    /// What it used.
    pub used: Used,
    /// What the model wants back with its words, as it came.
    pub carry: Option<String>,
    /// Tools that it wants used, in order: all of the turn if some have to wait for others, else none.
    pub pending: Vec<Wanted>,
}

/// What was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// Tokens read, those of the provider's cache included.
    pub input: u64,
    /// Tokens written, those of its reasoning included.
    pub output: u64,
    /// How many of those read came from the provider's cache.
    pub cache_read: u64,
    /// How many of those read went into it.
    pub cache_write: u64,
    /// Money, in millionths of a US dollar, where it is known.
    pub cost: Option<u64>,
    /// Whether the tokens are estimated, because nobody counted them.
    pub estimated: bool,
}

/// A tool that a provider wants used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The tool.
    pub tool: String,
    /// Its arguments, safe to keep.
    pub args: Json,
}

/// A summary that stands for the older part of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// The summary, safe to keep.
    pub summary: String,
    /// The first event that is still told word by word.
    pub kept_from: Seq,
    /// How many tokens the conversation had before, about.
    pub tokens_before: u64,
}

/// A message that waits, with the run it will begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedMessage {
    /// The run it will begin.
    pub run: RunId,
    /// The message.
    pub message: Message,
}

/// A message into a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steering {
    /// Its id, which is also its idempotency key.
    pub message: MessageId,
    /// Its text, safe to keep.
    pub text: String,
    /// The pictures that go with it.
    pub images: Vec<Image>,
    /// What the id stands for.
    pub fingerprint: Fingerprint,
    /// Where it came from.
    pub by: String,
}

/// A check that must pass after the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Criterion {
    /// Its name in the report.
    pub id: String,
    /// The command.
    pub check: String,
    /// The exit code that passes.
    pub exit_code: i32,
    /// What it shows, for people.
    pub description: Option<String>,
}

/// A tool and what it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intention {
    /// This use.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// Its arguments, safe to keep.
    pub args: Json,
    /// What it is used for.
    pub purpose: Purpose,
}

/// What a tool is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The provider's work.
    Work,
    /// The acceptance check at this position.
    Check(u32),
    /// The user's own, beside any run.
    Aside {
        /// Whether the provider is told of it.
        told: bool,
    },
}

/// Where a tool printed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// How a use of a tool ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// Which use.
    pub call: CallId,
    /// Which tool.
    pub tool: String,
    /// What it was used for.
    pub purpose: Purpose,
    /// How long it took.
    pub millis: u64,
    /// Success, failure, or something in between.
    pub ending: Ending,
    /// The exit code of a command that ended by itself.
    pub exit_code: Option<i32>,
    /// What it printed, bounded and safe to keep.
    pub text: String,
    /// What went wrong.
    pub fault: Option<Fault>,
}

/// How a use of a tool ended, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It did what it was asked to.
    Done,
    /// It failed.
    Failed,
    /// The user chose to go on without it.
    Skipped,
    /// It was cut short, or never began.
    Cut,
}

/// What went wrong with a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// A word for programs.
    pub kind: String,
    /// Whether trying again may help.
    pub retryable: bool,
    /// A sentence for people.
    pub message: String,
    /// The particulars.
    pub detail: Option<String>,
}

/// What a gate asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The gate.
    pub gate: GateId,
    /// The use of a tool that waits for it.
    pub call: CallId,
    /// A word for programs.
    pub kind: String,
    /// A headline for people.
    pub title: String,
    /// What exactly is asked, safe to keep.
    pub summary: String,
    /// The particulars: a JSON object, safe to keep.
    pub details: Json,
    /// More than two answers; empty for plain yes or no. Yes is the first, no is the last.
    pub choices: Vec<String>,
    /// How many of those entitled must agree.
    pub needed: u32,
    /// When it counts as denied.
    pub expires: Now,
    /// What a yes may let go ahead later as well, as a rule; nothing where a yes holds once.
    pub remember: Option<String>,
    /// What exactly would be done, as a digest; it is compared when it is done.
    pub digest: Option<String>,
    /// What a no with a comment means.
    pub denial: Denial,
    /// What is to be filled in: a JSON object. The answer is then the result of the use, which itself never happens.
    pub form: Option<Json>,
}

/// What becomes of a run when somebody says no and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// It ends, as it does without a comment.
    Ends,
    /// The provider is told, and the run goes on.
    Told,
    /// The run goes on without an answer, with a comment or without, also when the time is up.
    Dismissed,
}

/// How long a yes holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lasting {
    /// For this use.
    Once,
    /// Until the run ends.
    Run,
    /// Until the session ends.
    Session,
    /// In this repository, until it is revoked.
    Always,
}

/// How a gate was settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Which gate.
    pub gate: GateId,
    /// Yes or no.
    pub decision: Decision,
    /// Which of its choices.
    pub choice: Option<String>,
    /// Who decided, derived from the connection.
    pub by: String,
    /// What they said.
    pub comment: Option<String>,
    /// How long a yes holds.
    pub lasting: Lasting,
    /// What was filled in, safe to keep.
    pub answer: Option<Json>,
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// Go ahead.
    Approve,
    /// Do not.
    Deny,
}

/// What a returning daemon found a run doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The provider was working; it is asked again.
    Working,
    /// It waited for a verdict and still does.
    Waiting,
    /// A tool had been started and nobody knows how it ended.
    Unknown,
    /// It was being stopped.
    Stopping,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunReport {
    /// In one word.
    pub outcome: Outcome,
    /// A word for why, where the outcome alone does not say it.
    pub reason: Option<String>,
    /// A sentence for people.
    pub summary: String,
    /// The acceptance checks that were run, in order.
    pub checks: Vec<CheckResult>,
    /// How many checks were asked for.
    pub checks_asked: u32,
    /// The exit code for scripts.
    pub exit_code: u8,
}

/// How an acceptance check ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckResult {
    /// The criterion.
    pub id: String,
    /// Whether it passed.
    pub passed: bool,
    /// The exit code, if the command ended by itself.
    pub exit_code: Option<i32>,
    /// What it printed, bounded and safe to keep.
    pub output: String,
}

/// How a run ended, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was done.
    Success,
    /// Something failed.
    Failed,
    /// Somebody stopped it.
    Cancelled,
    /// Somebody said no.
    Denied,
}
