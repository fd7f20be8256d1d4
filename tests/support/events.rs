//! Events of every kind, generated from a seed.

use std::collections::BTreeSet;

use pushd::kernel::audience::Audience;
use pushd::kernel::event::{
    Adjustment, ApprovalScope, Branch, Budget, CallResult, CheckResult, Compaction, CompactionFailure,
    CompactionReason, ContextEvent, Criterion, Decision, DenialEffect, Diff, Event, EventKind, GateDecision, GateEvent,
    GateQuestion, Image, Intention, LossCause, Message, NoticeEvent, Opening, OutputStream, ParticipantEvent,
    PendingCall, PostedMessage, Purpose, QueuedMessage, RecoveredPhase, Retry, RunEvent, RunOutcome, RunReport,
    SessionEvent, Steering, TokenUsage, ToolError, ToolEvent, ToolOutcome, TurnUsage, WorkspaceIdentity,
};
use pushd::kernel::gate::{self, BudgetResource, GateSubject};
use pushd::kernel::id::{Fingerprint, Json, Seq};
use pushd::kernel::participant::{Authentication, Participant, ParticipantKind, Rights, Role};
use pushd::kernel::quorum::Quorum;
use pushd::kernel::time::Now;

use super::random::Random;

/// The number of kinds of events.
pub(crate) const KINDS: u64 = 40;

/// How far a generated event may differ from those of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Anything the types allow: empty names, events without a run, numbers up to the maximum.
    Anything,
    /// Only what a client may be shown.
    Shown,
}

/// A generator of events.
pub(crate) struct Events {
    random: Random,
    shape: Shape,
}

impl Events {
    /// Creates a generator from a seed.
    pub(crate) fn new(seed: u64, shape: Shape) -> Self {
        Self { random: Random::new(seed), shape }
    }

    /// Generates an event of one kind, counted from zero.
    pub(crate) fn event(&mut self, kind: u64) -> Event {
        let kind = self.kind(kind % KINDS);
        let run = match self.shape {
            Shape::Anything => self.maybe(Self::name),
            Shape::Shown => in_a_run(&kind).then(|| self.name()),
        };
        let origin = match self.shape {
            Shape::Anything => self.maybe(Self::name),
            Shape::Shown => None,
        };
        Event {
            seq: Seq::new(self.wide().max(1)),
            at: Now(self.wide()),
            run: run.map(Into::into),
            version: self.maybe(Self::wide),
            origin,
            audience: self.audience(),
            kind,
        }
    }

    /// Generates a question.
    pub(crate) fn question(&mut self) -> GateQuestion {
        let choices = self.below(3);
        let question = GateQuestion {
            gate: self.name().into(),
            subject: self.subject(),
            kind: self.name(),
            title: self.text(),
            summary: self.text(),
            details: self.object(),
            choices: (0..choices).map(|_| self.name()).collect(),
            quorum: self.quorum(),
            eligible: self.maybe(|events| (0..events.below(3)).map(|_| events.name().into()).collect()),
            expires: Now(self.wide()),
            grant_rule: self.maybe(Self::text),
            digest: self.maybe(Self::name),
            on_denial: self.pick([DenialEffect::EndRun, DenialEffect::InformModel, DenialEffect::Dismiss]),
        };
        match question.subject {
            GateSubject::Budget { .. } => GateQuestion { kind: gate::BUDGET.into(), ..question },
            GateSubject::UnknownCall { .. } => GateQuestion { kind: gate::UNKNOWN_CALL.into(), ..question },
            GateSubject::ToolCall { .. } | GateSubject::Form { .. } | GateSubject::Other => question,
        }
    }

    fn subject(&mut self) -> GateSubject {
        let call = self.name().into();
        match self.below(5) {
            0 => GateSubject::ToolCall { call },
            1 => {
                let resource = self.pick(BudgetResource::ALL);
                GateSubject::Budget { call, resource: Some(resource) }
            }
            2 => GateSubject::Form { call, form: self.object() },
            3 => GateSubject::UnknownCall { call },
            _ => GateSubject::Other,
        }
    }

    fn quorum(&mut self) -> Quorum {
        let count = match self.shape {
            Shape::Anything => self.narrow(),
            Shape::Shown => 1 + self.narrow() % 3,
        };
        match self.below(8) {
            0 => Quorum::All,
            1 => Quorum::Majority,
            2 => Quorum::Specific((0..1 + self.below(3)).map(|_| self.name().into()).collect()),
            3 => Quorum::Role { role: self.pick(Role::ALL), count },
            _ => Quorum::Any(count),
        }
    }

    fn approval_scope(&mut self) -> ApprovalScope {
        [ApprovalScope::Once, ApprovalScope::Run, ApprovalScope::Session, ApprovalScope::Always][self.below(4) as usize]
    }

    /// Generates an opening.
    pub(crate) fn opening(&mut self) -> Opening {
        Opening {
            mode: self.name(),
            provider: self.name(),
            model: self.maybe(Self::name),
            sandbox: self.name(),
            confinement: self.maybe(Self::object),
            cwd: self.name(),
            workspace: self.maybe(Self::workspace),
            repo: self.maybe(Self::object),
            metadata: self.maybe(Self::object),
            name: self.maybe(Self::name),
            parent: self.maybe(Self::name).map(Into::into),
            forked_at: self.maybe(|random| Seq::new(random.below(1_000))),
        }
    }

    fn workspace(&mut self) -> WorkspaceIdentity {
        WorkspaceIdentity { path: self.name(), file_id: self.name(), boot: self.text() }
    }

    /// Generates a number below a bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// Generates a text that may be empty and may contain anything.
    pub(crate) fn text(&mut self) -> String {
        const PIECES: [&str; 16] = [
            "",
            "plain words",
            "\"",
            "\\",
            "\n",
            "\r\n",
            "\t",
            "\u{0}",
            "\u{1f}",
            "\u{7f}",
            "ä",
            "\u{2028}",
            "🦀",
            "\u{10ffff}",
            "}",
            "\",\"choices\":[",
        ];
        (0..self.below(5)).map(|_| PIECES[self.below(16) as usize]).collect()
    }

    /// Generates a text, not empty where the shape needs one.
    pub(crate) fn name(&mut self) -> String {
        match self.shape {
            Shape::Anything => self.text(),
            Shape::Shown => format!("{}x", self.text()),
        }
    }

    /// Generates a JSON object, compact, with its fields in any order.
    pub(crate) fn object(&mut self) -> Json {
        Json::new(self.object_text(2))
    }

    /// Generates a value or `None`.
    pub(crate) fn maybe<T>(&mut self, make: fn(&mut Self) -> T) -> Option<T> {
        (self.below(2) == 0).then(|| make(self))
    }

    fn kind(&mut self, kind: u64) -> EventKind {
        match kind {
            0 => EventKind::Session(SessionEvent::Opened(Box::new(self.opening()))),
            1 => EventKind::Session(SessionEvent::Renamed { name: self.name() }),
            2 => EventKind::Session(SessionEvent::Ended { by: self.name() }),
            3 => EventKind::Run(RunEvent::Started(Box::new(self.message()))),
            4 => EventKind::Run(RunEvent::MessageQueued(Box::new(QueuedMessage {
                run: self.name().into(),
                message: self.message(),
            }))),
            5 => EventKind::Run(RunEvent::MessageUnqueued { message: self.name().into(), by: self.name() }),
            6 => EventKind::Run(RunEvent::Steered(Box::new(Steering {
                message: self.name().into(),
                text: self.text(),
                images: self.images(),
                fingerprint: self.fingerprint(),
                by: self.name(),
            }))),
            7 => EventKind::Notice(NoticeEvent::Status {
                source: self.text(),
                phase: self.text(),
                detail: self.maybe(Self::text),
            }),
            8 => EventKind::Run(RunEvent::ThinkingDelta { text: self.text() }),
            9 => EventKind::Run(RunEvent::TextDelta { text: self.text() }),
            10 => EventKind::Run(RunEvent::TextDone { message: self.name().into() }),
            11 => EventKind::Tool(ToolEvent::Intended(Box::new(self.intention()))),
            12 => EventKind::Tool(ToolEvent::Started { call: self.name().into(), tool: self.text() }),
            13 => EventKind::Tool(ToolEvent::Output {
                call: self.name().into(),
                stream: self.pick([OutputStream::Stdout, OutputStream::Stderr]),
                text: self.text(),
            }),
            14 => EventKind::Tool(ToolEvent::Settled(Box::new(self.call_result()))),
            15 => EventKind::Gate(GateEvent::Opened(Box::new(self.question()))),
            16 => EventKind::Gate(GateEvent::Voted {
                gate: self.name().into(),
                decision: self.decision(),
                by: self.name(),
                participant: self.maybe(Self::name).map(Into::into),
            }),
            17 => EventKind::Gate(GateEvent::Settled(Box::new(GateDecision {
                gate: self.name().into(),
                decision: self.decision(),
                choice: self.maybe(Self::name),
                by: self.name(),
                participant: self.maybe(Self::name).map(Into::into),
                comment: self.maybe(Self::text),
                scope: self.approval_scope(),
                rule: self.maybe(Self::text),
                answer: self.maybe(Self::object),
            }))),
            18 => EventKind::Notice(NoticeEvent::Warned {
                code: self.name(),
                message: self.text(),
                detail: self.maybe(Self::text),
            }),
            19 => self.failed(),
            20 => EventKind::Run(RunEvent::Stopping { outcome: self.outcome(), reason: self.text(), by: self.name() }),
            21 => EventKind::Run(RunEvent::Recovered {
                phase: self.pick([
                    RecoveredPhase::Working,
                    RecoveredPhase::Waiting,
                    RecoveredPhase::Unknown,
                    RecoveredPhase::Stopping,
                ]),
            }),
            22 => EventKind::Notice(NoticeEvent::EventsLost {
                after: Seq::new(self.wide()),
                cause: self.pick([LossCause::Damage, LossCause::PowerLoss, LossCause::Retention]),
            }),
            23 => EventKind::Run(RunEvent::TurnUsage(Box::new(self.turn_usage()))),
            24 => EventKind::Context(ContextEvent::Compacted(Box::new(Compaction {
                summary: self.text(),
                kept_from: Seq::new(self.wide()),
                tokens_before: self.wide(),
            }))),
            25..33 => self.change(kind),
            33..39 => EventKind::Participant(self.participant_event(kind)),
            _ => EventKind::Run(RunEvent::Ended(Box::new(self.report()))),
        }
    }

    fn participant_event(&mut self, kind: u64) -> ParticipantEvent {
        let (participant, by) = (self.name().into(), self.name());
        match kind {
            33 => ParticipantEvent::Joined {
                participant: Box::new(Participant {
                    id: participant,
                    kind: self.pick([ParticipantKind::Human, ParticipantKind::Agent, ParticipantKind::Service]),
                    name: self.text(),
                    roles: self.roles(),
                    capabilities: self.capabilities(),
                    authentication: match self.maybe(Self::name) {
                        Some(name) => Authentication::Token { name },
                        None => Authentication::LocalUser,
                    },
                    approval_granted: self.below(2) == 0,
                }),
                by,
            },
            37 => ParticipantEvent::Posted(Box::new(PostedMessage {
                kind: self.name(),
                body: self.object(),
                by,
                participant: Some(participant),
            })),
            38 => ParticipantEvent::Audited { by },
            34 => ParticipantEvent::Left { participant, reason: self.maybe(Self::text), by },
            35 => {
                let (roles, capabilities) = (self.roles(), self.capabilities());
                ParticipantEvent::RolesChanged { participant, roles, capabilities, by }
            }
            _ => ParticipantEvent::ApprovalGranted { participant, granted: self.below(2) == 0, by },
        }
    }

    fn audience(&mut self) -> Audience {
        match self.below(8) {
            0 => Audience::Participants((0..self.below(3)).map(|_| self.name().into()).collect()),
            1 => Audience::Role(self.pick(Role::ALL)),
            _ => Audience::All,
        }
    }

    fn roles(&mut self) -> BTreeSet<Role> {
        Role::ALL.into_iter().filter(|_| self.below(2) == 0).collect()
    }

    fn capabilities(&mut self) -> Rights {
        let held: Vec<_> = Rights::CAPABILITIES.into_iter().filter(|_| self.below(2) == 0).collect();
        Rights::of(&held)
    }

    fn change(&mut self, kind: u64) -> EventKind {
        match kind {
            25 => EventKind::Session(SessionEvent::VersionBumped { change: self.name(), by: self.name() }),
            26 => EventKind::Session(SessionEvent::Loaded { by: self.name() }),
            27 => {
                let adjustment = Adjustment {
                    provider: self.maybe(Self::name),
                    model: self.maybe(Self::name),
                    thinking: self.maybe(Self::name),
                    auto_compaction: self.maybe(|events| events.below(2) == 0),
                    auto_retry: self.maybe(|events| events.below(2) == 0),
                    workspace: self.maybe(Self::workspace),
                    unloaded: self.maybe(|events| events.below(2) == 0),
                };
                EventKind::Session(SessionEvent::Adjusted { adjustment: Box::new(adjustment), by: self.name() })
            }
            28 => {
                let branch = Branch { until: Seq::new(self.wide()), from: Seq::new(self.wide()) };
                EventKind::Context(ContextEvent::Branched { branch, by: self.name() })
            }
            29 => EventKind::Context(ContextEvent::CompactionStarted {
                reason: self.pick([CompactionReason::Manual, CompactionReason::Threshold, CompactionReason::Overflow]),
                by: self.maybe(Self::name),
            }),
            30 => EventKind::Context(ContextEvent::CompactionFailed {
                failure: self.pick([CompactionFailure::Failed, CompactionFailure::Aborted]),
                message: self.maybe(Self::text),
                will_retry: self.below(2) == 0,
            }),
            31 => EventKind::Run(RunEvent::RetryStarted(Box::new(Retry {
                attempt: self.narrow(),
                max_attempts: self.narrow(),
                pause_millis: self.wide(),
                message: self.text(),
            }))),
            _ => EventKind::Run(RunEvent::RetryEnded {
                succeeded: self.below(2) == 0,
                attempt: self.narrow(),
                message: self.maybe(Self::text),
            }),
        }
    }

    fn images(&mut self) -> Vec<Image> {
        (0..self.below(3)).map(|_| Image { mime: self.name(), data: self.name() }).collect()
    }

    fn turn_usage(&mut self) -> TurnUsage {
        let pending = self.below(3);
        TurnUsage {
            model: self.text(),
            usage: TokenUsage {
                input: self.wide(),
                output: self.wide(),
                cache_read: self.below(2),
                cache_write: self.below(2),
                cost: self.maybe(Self::wide),
                estimated: self.below(2) == 1,
            },
            provider_state: self.maybe(Self::text),
            pending: (0..pending).map(|_| PendingCall { tool: self.text(), args: self.object() }).collect(),
        }
    }

    fn message(&mut self) -> Message {
        let criteria = self.below(3);
        Message {
            message: self.name().into(),
            text: self.text(),
            images: self.images(),
            criteria: (0..criteria).map(|_| self.criterion()).collect(),
            time_limit: self.maybe(Self::wide),
            budget: Budget {
                cost: self.maybe(Self::count),
                turns: self.maybe(Self::count),
                tokens: self.maybe(Self::count),
            },
            rules: (0..self.below(3)).map(|_| self.text()).collect(),
            needs_environment: self.below(2) == 1,
            fingerprint: self.fingerprint(),
            by: self.name(),
        }
    }

    fn criterion(&mut self) -> Criterion {
        Criterion {
            id: self.name(),
            check: self.name(),
            exit_code: self.exit_code(),
            description: self.maybe(Self::text),
        }
    }

    fn intention(&mut self) -> Intention {
        let args = match self.shape {
            Shape::Anything => Json::new(self.value_text(2)),
            Shape::Shown => self.object(),
        };
        Intention { call: self.name().into(), tool: self.name(), args, purpose: self.purpose() }
    }

    fn call_result(&mut self) -> CallResult {
        CallResult {
            call: self.name().into(),
            tool: self.name(),
            purpose: self.purpose(),
            millis: self.wide(),
            outcome: self.pick([
                ToolOutcome::Succeeded,
                ToolOutcome::Failed,
                ToolOutcome::Skipped,
                ToolOutcome::Aborted,
            ]),
            exit_code: self.maybe(Self::exit_code),
            text: self.text(),
            error: self.maybe(Self::tool_error),
            diff: self.maybe(|random| Diff { text: random.text(), truncated: random.below(2) == 1 }),
        }
    }

    fn tool_error(&mut self) -> ToolError {
        ToolError {
            kind: self.name(),
            retryable: self.below(2) == 0,
            message: self.text(),
            detail: self.maybe(Self::text),
        }
    }

    fn failed(&mut self) -> EventKind {
        EventKind::Notice(NoticeEvent::Failed {
            code: self.name(),
            message: self.text(),
            retryable: self.below(2) == 0,
            detail: self.maybe(Self::text),
        })
    }

    fn report(&mut self) -> RunReport {
        let outcome = self.outcome();
        let checks = self.below(3);
        RunReport {
            outcome,
            reason: self.maybe(Self::name),
            summary: self.text(),
            checks: (0..checks).map(|_| self.check_result()).collect(),
            checks_requested: self.narrow(),
            exit_code: match (self.shape, outcome) {
                (Shape::Anything, _) => self.below(256) as u8,
                (Shape::Shown, RunOutcome::Success) => 0,
                (Shape::Shown, RunOutcome::Failed) => self.pick([1, 4]),
                (Shape::Shown, RunOutcome::Cancelled) => 2,
                (Shape::Shown, RunOutcome::Denied) => 3,
            },
        }
    }

    fn check_result(&mut self) -> CheckResult {
        CheckResult {
            id: self.name(),
            passed: self.below(2) == 0,
            exit_code: self.maybe(Self::exit_code),
            output: self.text(),
        }
    }

    fn purpose(&mut self) -> Purpose {
        match self.below(3) {
            0 => Purpose::Work,
            1 => Purpose::Check(self.narrow()),
            _ => Purpose::UserCommand { in_context: self.below(2) == 0 },
        }
    }

    fn decision(&mut self) -> Decision {
        self.pick([Decision::Approve, Decision::Deny])
    }

    fn outcome(&mut self) -> RunOutcome {
        self.pick([RunOutcome::Success, RunOutcome::Failed, RunOutcome::Cancelled, RunOutcome::Denied])
    }

    fn fingerprint(&mut self) -> Fingerprint {
        let high = self.wide();
        Fingerprint(u128::from(high) << 64 | u128::from(self.wide()))
    }

    fn exit_code(&mut self) -> i32 {
        let some = self.random.next() as i32;
        self.pick([0, 1, -1, i32::MIN, i32::MAX, some])
    }

    fn narrow(&mut self) -> u32 {
        let some = self.random.next() as u32;
        self.pick([0, 1, 2, u32::MAX, some])
    }

    fn count(&mut self) -> u64 {
        self.wide().max(1)
    }

    fn wide(&mut self) -> u64 {
        let some = self.random.next();
        self.pick([0, 1, 1_760_000_000_000, u64::MAX, some])
    }

    fn pick<T: Copy, const N: usize>(&mut self, choices: [T; N]) -> T {
        choices[self.below(N as u64) as usize]
    }

    fn object_text(&mut self, depth: u32) -> String {
        let fields: Vec<String> = (0..self.below(4))
            .map(|at| {
                // Numbered backwards, so that the order of the fields is not the order of their names.
                let name = quoted(&format!("{}{}", 9 - at, self.text()));
                format!("{name}:{}", self.value_text(depth))
            })
            .collect();
        format!("{{{}}}", fields.join(","))
    }

    fn value_text(&mut self, depth: u32) -> String {
        const PLAIN: [&str; 7] = ["null", "true", "-0.0", "1e2", "12345678901234567890123", "[]", "\"\\u00e4\\/\""];
        match self.below(4) {
            0 if depth > 0 => self.object_text(depth - 1),
            1 if depth > 0 => format!("[{},{}]", self.value_text(depth - 1), self.value_text(depth - 1)),
            2 => quoted(&self.text()),
            _ => PLAIN[self.below(7) as usize].to_owned(),
        }
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn in_a_run(kind: &EventKind) -> bool {
    match kind {
        EventKind::Session(SessionEvent::Opened(_))
        | EventKind::Session(SessionEvent::Renamed { .. })
        | EventKind::Session(SessionEvent::Ended { .. })
        | EventKind::Session(SessionEvent::VersionBumped { .. })
        | EventKind::Session(SessionEvent::Loaded { .. })
        | EventKind::Session(SessionEvent::Adjusted { .. })
        | EventKind::Context(ContextEvent::Branched { .. })
        | EventKind::Participant(_)
        | EventKind::Run(RunEvent::MessageQueued(_))
        | EventKind::Run(RunEvent::MessageUnqueued { .. })
        | EventKind::Notice(NoticeEvent::EventsLost { .. })
        | EventKind::Notice(NoticeEvent::Unknown(_)) => false,
        EventKind::Gate(GateEvent::Opened(question)) => question.call().is_some(),
        EventKind::Tool(ToolEvent::Intended(intention)) => !matches!(intention.purpose, Purpose::UserCommand { .. }),
        EventKind::Tool(ToolEvent::Settled(settlement)) => !matches!(settlement.purpose, Purpose::UserCommand { .. }),
        EventKind::Run(RunEvent::Started(_))
        | EventKind::Run(RunEvent::Steered(_))
        | EventKind::Notice(NoticeEvent::Status { .. })
        | EventKind::Run(RunEvent::ThinkingDelta { .. })
        | EventKind::Run(RunEvent::TextDelta { .. })
        | EventKind::Run(RunEvent::TextDone { .. })
        | EventKind::Run(RunEvent::TurnUsage(_))
        | EventKind::Context(ContextEvent::CompactionStarted { .. })
        | EventKind::Context(ContextEvent::Compacted(_))
        | EventKind::Context(ContextEvent::CompactionFailed { .. })
        | EventKind::Run(RunEvent::RetryStarted(_))
        | EventKind::Run(RunEvent::RetryEnded { .. })
        | EventKind::Tool(ToolEvent::Started { .. })
        | EventKind::Tool(ToolEvent::Output { .. })
        | EventKind::Gate(GateEvent::Voted { .. })
        | EventKind::Gate(GateEvent::Settled(_))
        | EventKind::Notice(NoticeEvent::Warned { .. })
        | EventKind::Notice(NoticeEvent::Failed { .. })
        | EventKind::Run(RunEvent::Stopping { .. })
        | EventKind::Run(RunEvent::Recovered { .. })
        | EventKind::Run(RunEvent::Ended(_)) => true,
    }
}
