//! The one table of what clients can ask for: the right that each action needs, the queue it waits in, what it does to
//! stored state, and whether a repetition has an effect.
//!
//! A command of a session, a request of a connection and an operation of the command log each name their action.
//! Everything else that the daemon must know before it handles one of them follows from the row.

use super::Command;
use crate::kernel::command_log::{Persistence, RateClass, Scheduling};
use crate::kernel::event::Decision;
use crate::kernel::participant::Right;

/// What the daemon has to know about an action before it handles it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandPolicy {
    /// Its name in the log.
    pub name: &'static str,
    /// The right that its sender needs.
    pub right: Right,
    /// The queue in which it waits.
    pub queue: Queue,
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

/// The queue in which an action waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// None: it is answered as soon as it is read.
    Immediate,
    /// Handled before everything else, whatever is running.
    Control,
    /// Changes, in order of arrival.
    Change,
    /// Changes, too; reads do not wait for one that is running.
    LongChange,
    /// Reads: they wait for earlier changes of their sender, and no change waits for them.
    Read,
}

/// What an action does to stored state. When storage fails, reading and stopping stay possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessKind {
    /// It only reads.
    ReadOnly,
    /// It only stops something.
    Stop,
    /// It adds something; its reply waits until that is on disk.
    Write,
}

/// The effect of a repeated command. In a command log, where commands have ids, a repetition never has one.
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
    const fn new(right: Right, queue: Queue, access: AccessKind) -> Self {
        Self {
            name: "",
            right,
            queue,
            access,
            idempotency: Idempotency::None,
            bumps_version: matches!(access, AccessKind::Stop | AccessKind::Write),
            needs_environment: false,
            subscribes: false,
        }
    }

    const fn read() -> Self {
        Self::new(Right::Read, Queue::Read, AccessKind::ReadOnly).natural()
    }

    const fn stop() -> Self {
        Self::new(Right::Interrupt, Queue::Control, AccessKind::Stop).natural()
    }

    const fn write(right: Right) -> Self {
        Self::new(right, Queue::Change, AccessKind::Write)
    }

    /// It stores nothing, and is handled in order with changes.
    const fn in_order() -> Self {
        Self { queue: Queue::Change, ..Self::read() }
    }

    const fn immediate() -> Self {
        Self { queue: Queue::Immediate, ..Self::read() }
    }

    const fn for_right(self, right: Right) -> Self {
        Self { right, ..self }
    }

    const fn control(self) -> Self {
        Self { queue: Queue::Control, ..self }
    }

    const fn long(self) -> Self {
        Self { queue: Queue::LongChange, ..self }
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

    /// Returns how a command log orders the action.
    pub const fn scheduling(&self) -> Scheduling {
        match self.queue {
            Queue::Immediate | Queue::Control => Scheduling::Bypass,
            Queue::Change => Scheduling::Write,
            Queue::LongChange => Scheduling::LongWrite,
            Queue::Read => Scheduling::Read,
        }
    }

    /// Returns how durably a command log stores the action.
    pub const fn persistence(&self) -> Persistence {
        match self.access {
            AccessKind::ReadOnly => Persistence::Cached,
            AccessKind::Stop => Persistence::Relaxed,
            AccessKind::Write => Persistence::WithEffect,
        }
    }

    /// Returns how the rate limiter of a command log counts the action: stops, ends and decisions are possible while too
    /// much else is sent.
    pub const fn rate_class(&self) -> RateClass {
        match self.right {
            Right::Interrupt | Right::Decide | Right::EndSession => RateClass::Control,
            Right::Read
            | Right::Prompt
            | Right::Steer
            | Right::Fork
            | Right::AddContext
            | Right::ManageParticipants
            | Right::Configure
            | Right::Own => RateClass::Ordinary,
        }
    }
}

macro_rules! actions {
    ($($(#[$comment:meta])* $action:ident, $name:literal, $policy:expr;)+) => {
        /// What a client asks for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Action {
            $(#[doc = $name] $(#[$comment])* $action,)+
        }

        impl Action {
            /// Returns the row of the table.
            pub const fn policy(self) -> CommandPolicy {
                match self {
                    $(Self::$action => CommandPolicy { name: $name, ..$policy },)+
                }
            }
        }
    };
}

type Policy = CommandPolicy;

actions! {
    // Commands of sessions. Requests and operations that become one of them have its row.

    /// Who may create sessions is decided by `Start`.
    Open, "open", Policy::write(Right::Read).keeps_version().with_environment().subscribing();
    Prompt, "prompt", Policy::write(Right::Prompt).keyed().with_environment().subscribing();
    Queue, "queue", Policy::write(Right::Prompt).keyed().with_environment();
    Unqueue, "unqueue", Policy::write(Right::Prompt).natural();
    ListQueue, "list queue", Policy::read();
    Steer, "steer", Policy::write(Right::Steer).control().keyed().with_environment();
    Approve, "approve", Policy::write(Right::Decide).control().natural().with_environment();
    /// A denial only stops something.
    Deny, "deny", Policy::stop().for_right(Right::Decide).with_environment();
    Cancel, "cancel", Policy::stop();
    Attach, "attach", Policy::in_order().with_environment().subscribing();
    Resume, "resume", Policy::in_order().with_environment().subscribing();
    Detach, "detach", Policy::in_order();
    Describe, "describe", Policy::read();
    ListGates, "list gates", Policy::read();
    Rename, "rename", Policy::write(Right::Configure);
    End, "end", Policy::write(Right::EndSession).natural();
    BumpVersion, "bump version", Policy::write(Right::Configure);
    Load, "load", Policy::write(Right::Configure);
    Reopen, "reopen", Policy::write(Right::Own).with_environment();
    Adjust, "adjust", Policy::write(Right::Configure);
    /// It runs a tool as the owner, without a gate.
    UserCommand, "user command", Policy::write(Right::Own).long().keeps_version().with_environment();
    StopUserCommand, "stop user command", Policy::stop();
    Compact, "compact", Policy::write(Right::Prompt).long().keeps_version().with_environment();
    StopCompaction, "stop compaction", Policy::stop();
    StopRetry, "stop retry", Policy::stop();
    Branch, "branch", Policy::write(Right::Fork);
    Import, "import", Policy::write(Right::Own).keeps_version();
    Join, "join", Policy::write(Right::ManageParticipants).natural();
    Leave, "leave", Policy::stop().for_right(Right::Read);
    Remove, "remove", Policy::stop().for_right(Right::ManageParticipants);
    ChangeRoles, "change roles", Policy::write(Right::ManageParticipants).natural();
    GrantApproval, "grant approval", Policy::write(Right::Own).natural();
    RevokeApproval, "revoke approval", Policy::stop().for_right(Right::Own);
    ListParticipants, "list participants", Policy::read();
    Post, "post", Policy::write(Right::AddContext).keeps_version();
    Audit, "audit", Policy::write(Right::Read).keeps_version().subscribing();
    PrepareFork, "prepare fork", Policy::read().for_right(Right::Fork);
    OpenFork, "open fork", Policy::write(Right::Read).keeps_version();
    OpenGate, "open gate", Policy::write(Right::AddContext).keeps_version().natural();

    // Requests to the daemon, and operations that are several commands or none.

    /// Introduces a client, tests a connection, or is handled by something else that has rows of its own.
    Connection, "connection", Policy::immediate();
    Query, "query", Policy::read();
    Start, "start", Policy::write(Right::Prompt);
    Fork, "fork", Policy::write(Right::Fork);
    /// Stops everything in a session and hides it from the clients of a protocol.
    Unload, "unload", Policy::write(Right::EndSession);
    /// It removes the history for everybody.
    Delete, "delete", Policy::write(Right::Own);
    /// It reads files of the owner, or leaves the conversation for another.
    ReplaceConversation, "replace conversation", Policy::write(Right::Own);
    /// It writes a file of the owner.
    Export, "export", Policy::write(Right::Own);
    /// Only the owner may see what applies to all sessions.
    Inspect, "inspect", Policy::read().for_right(Right::Own);
    /// Only the owner may change what applies to all sessions.
    Administer, "administer", Policy::write(Right::Own);
}

impl Command {
    /// Returns the action of the command.
    pub const fn action(&self) -> Action {
        match self {
            Self::Open(_) => Action::Open,
            Self::Prompt(_) => Action::Prompt,
            Self::Queue(_) => Action::Queue,
            Self::Unqueue { .. } => Action::Unqueue,
            Self::ListQueue => Action::ListQueue,
            Self::Steer(_) => Action::Steer,
            Self::Decide(vote) => Action::of_decision(vote.decision),
            Self::Cancel { .. } => Action::Cancel,
            Self::Attach { .. } => Action::Attach,
            Self::Resume { .. } => Action::Resume,
            Self::Detach => Action::Detach,
            Self::Describe => Action::Describe,
            Self::ListGates => Action::ListGates,
            Self::Rename { .. } => Action::Rename,
            Self::End => Action::End,
            Self::BumpVersion { .. } => Action::BumpVersion,
            Self::Load => Action::Load,
            Self::Reopen(_) => Action::Reopen,
            Self::Adjust(_) => Action::Adjust,
            Self::UserCommand(_) => Action::UserCommand,
            Self::StopUserCommand { .. } => Action::StopUserCommand,
            Self::Compact { .. } => Action::Compact,
            Self::StopCompaction => Action::StopCompaction,
            Self::StopRetry => Action::StopRetry,
            Self::Branch(_) => Action::Branch,
            Self::Import(_) => Action::Import,
            Self::Join(_) => Action::Join,
            Self::Leave { .. } => Action::Leave,
            Self::Remove { .. } => Action::Remove,
            Self::ChangeRoles { .. } => Action::ChangeRoles,
            Self::GrantApproval { granted, .. } => Action::of_grant(*granted),
            Self::ListParticipants => Action::ListParticipants,
            Self::Post(_) => Action::Post,
            Self::Audit { .. } => Action::Audit,
            Self::PrepareFork { .. } => Action::PrepareFork,
            Self::OpenFork(_) => Action::OpenFork,
            Self::OpenGate(_) => Action::OpenGate,
        }
    }

    /// Returns the policy of the command.
    pub const fn policy(&self) -> CommandPolicy {
        self.action().policy()
    }
}

impl Action {
    /// Returns the action of a vote.
    pub const fn of_decision(decision: Decision) -> Self {
        match decision {
            Decision::Approve => Self::Approve,
            Decision::Deny => Self::Deny,
        }
    }

    /// Returns the action of a change of the right to approve.
    pub const fn of_grant(granted: bool) -> Self {
        if granted { Self::GrantApproval } else { Self::RevokeApproval }
    }
}
