//! The one table of commands: the right that each needs, the queue it waits in, and what it does to stored state.

use super::Command;
use crate::kernel::event::Decision;
use crate::kernel::participant::Right;

/// What the daemon has to know about a command before it handles it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandPolicy {
    /// Its name in the log.
    pub name: &'static str,
    /// The right that its sender needs.
    pub right: Right,
    /// The queue in which it waits.
    pub urgency: Urgency,
    /// What it does to stored state.
    pub access: AccessKind,
    /// Whether a repetition has an effect.
    pub idempotency: Idempotency,
    /// Whether the events that it records give the session a new version.
    ///
    /// A command that only starts a task does not: its sender learns when the task has succeeded and then sends
    /// `BumpVersion`. An import does not either, because it comes with a `Branch` or a `Load`, which do.
    pub bumps_version: bool,
    /// Whether it may need an environment: it starts work, or lets work continue that waits for one.
    pub needs_environment: bool,
    /// Whether its sender receives the events of the session from here on.
    pub subscribes: bool,
}

/// The queue in which a command waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Handled before all ordinary commands, whatever is running.
    Control,
    /// Handled in order of arrival.
    Ordinary,
}

/// What a command does to stored state. When storage fails, reading and stopping stay possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessKind {
    /// It only reads.
    ReadOnly,
    /// It only stops something.
    Stop,
    /// It adds something; its reply waits until that is on disk.
    Write,
}

/// The effect of a repeated command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idempotency {
    /// A repetition with the same message id has no effect and gets the same reply.
    ByMessageId,
    /// A repetition records nothing.
    Natural,
    /// A repetition is a command of its own.
    None,
}

impl CommandPolicy {
    const fn new(name: &'static str, right: Right, urgency: Urgency, access: AccessKind) -> Self {
        Self {
            name,
            right,
            urgency,
            access,
            idempotency: Idempotency::None,
            bumps_version: matches!(access, AccessKind::Stop | AccessKind::Write),
            needs_environment: false,
            subscribes: false,
        }
    }

    const fn read(name: &'static str) -> Self {
        Self::new(name, Right::Read, Urgency::Ordinary, AccessKind::ReadOnly).natural()
    }

    const fn stop(name: &'static str) -> Self {
        Self::new(name, Right::Interrupt, Urgency::Control, AccessKind::Stop).natural()
    }

    const fn write(name: &'static str, right: Right) -> Self {
        Self::new(name, right, Urgency::Ordinary, AccessKind::Write)
    }

    const fn control(self) -> Self {
        Self { urgency: Urgency::Control, ..self }
    }

    const fn natural(self) -> Self {
        Self { idempotency: Idempotency::Natural, ..self }
    }

    const fn keyed(self) -> Self {
        Self { idempotency: Idempotency::ByMessageId, ..self }
    }

    const fn keeps_version(self) -> Self {
        Self { bumps_version: false, ..self }
    }

    const fn with_environment(self) -> Self {
        Self { needs_environment: true, ..self }
    }

    const fn subscribing(self) -> Self {
        Self { subscribes: true, ..self }
    }
}

impl Command {
    /// Returns the policy of the command.
    pub fn policy(&self) -> CommandPolicy {
        type Policy = CommandPolicy;
        match self {
            // Who may create sessions is decided where connections are admitted.
            Self::Open(_) => Policy::write("open", Right::Read).keeps_version().with_environment().subscribing(),
            Self::Prompt(_) => Policy::write("prompt", Right::Prompt).keyed().with_environment().subscribing(),
            Self::Queue(_) => Policy::write("queue", Right::Prompt).keyed().with_environment(),
            Self::Unqueue { .. } => Policy::write("unqueue", Right::Prompt).natural(),
            Self::ListQueue => Policy::read("list queue"),
            Self::Steer(_) => Policy::write("steer", Right::Steer).control().keyed().with_environment(),
            // A denial only stops something.
            Self::Decide(vote) if vote.decision == Decision::Deny => {
                Policy { right: Right::Decide, ..Policy::stop("decide") }.with_environment()
            }
            Self::Decide(_) => Policy::write("decide", Right::Decide).control().natural().with_environment(),
            Self::Cancel { .. } => Policy::stop("cancel"),
            Self::Attach { .. } => Policy::read("attach").with_environment().subscribing(),
            Self::Resume { .. } => Policy::read("resume").with_environment().subscribing(),
            Self::Detach => Policy::read("detach"),
            Self::Describe => Policy::read("describe"),
            Self::ListGates => Policy::read("list gates"),
            Self::Rename { .. } => Policy::write("rename", Right::Configure),
            Self::End => Policy::write("end", Right::EndSession).natural(),
            Self::BumpVersion { .. } => Policy::write("bump version", Right::Configure),
            Self::Load => Policy::write("load", Right::Configure),
            Self::Reopen(_) => Policy::write("reopen", Right::Own).with_environment(),
            Self::Adjust(_) => Policy::write("adjust", Right::Configure),
            // It runs a tool as the owner, without a gate.
            Self::UserCommand(_) => Policy::write("user command", Right::Own).keeps_version().with_environment(),
            Self::StopUserCommand { .. } => Policy::stop("stop user command"),
            Self::Compact { .. } => Policy::write("compact", Right::Prompt).keeps_version().with_environment(),
            Self::StopCompaction => Policy::stop("stop compaction"),
            Self::StopRetry => Policy::stop("stop retry"),
            Self::Branch(_) => Policy::write("branch", Right::Fork),
            Self::Import(_) => Policy::write("import", Right::Own).keeps_version(),
            Self::Join(_) => Policy::write("join", Right::ManageParticipants).natural(),
            Self::Leave { .. } => Policy { right: Right::Read, ..Policy::stop("leave") },
            Self::Remove { .. } => Policy { right: Right::ManageParticipants, ..Policy::stop("remove") },
            Self::ChangeRoles { .. } => Policy::write("change roles", Right::ManageParticipants).natural(),
            Self::GrantApproval { granted: false, .. } => {
                Policy { right: Right::Own, ..Policy::stop("revoke approval") }
            }
            Self::GrantApproval { .. } => Policy::write("grant approval", Right::Own).natural(),
            Self::ListParticipants => Policy::read("list participants"),
            Self::Post(_) => Policy::write("post", Right::AddContext).keeps_version(),
            Self::Audit { .. } => Policy::write("audit", Right::Read).keeps_version().subscribing(),
            Self::PrepareFork { .. } => Policy { right: Right::Fork, ..Policy::read("prepare fork") },
            Self::OpenFork(_) => Policy::write("open fork", Right::Read).keeps_version(),
            Self::OpenGate(_) => Policy::write("open gate", Right::AddContext).keeps_version().natural(),
        }
    }
}
