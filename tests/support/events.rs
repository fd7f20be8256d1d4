//! Events of every kind, generated from a seed.

use pushd::kernel::event::{
    Adjustment, ApprovalScope, Branch, Budget, CallResult, CheckResult, Compaction, CompactionFailure,
    CompactionReason, Criterion, Decision, DenialEffect, Event, EventKind, GateDecision, GateQuestion, Image,
    Intention, LossCause, Message, Opening, OutputStream, PendingCall, Purpose, QueuedMessage, RecoveredPhase, Retry,
    RunOutcome, RunReport, Steering, TokenUsage, ToolError, ToolOutcome, TurnUsage, WorkspaceIdentity,
};
use pushd::kernel::id::{Fingerprint, Json, Seq};
use pushd::kernel::time::Now;

use super::random::Random;

/// The number of kinds of events.
pub(crate) const KINDS: u64 = 34;

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
            kind,
        }
    }

    /// Generates a question.
    pub(crate) fn question(&mut self) -> GateQuestion {
        let choices = self.below(3);
        GateQuestion {
            gate: self.name().into(),
            call: self.name().into(),
            kind: self.name(),
            title: self.text(),
            summary: self.text(),
            details: self.object(),
            choices: (0..choices).map(|_| self.name()).collect(),
            quorum: match self.shape {
                Shape::Anything => self.narrow(),
                Shape::Shown => 1 + self.narrow() % 3,
            },
            expires: Now(self.wide()),
            grant_rule: self.maybe(Self::text),
            digest: self.maybe(Self::name),
            on_denial: self.pick([DenialEffect::EndRun, DenialEffect::InformModel, DenialEffect::Dismiss]),
            form: self.maybe(Self::object),
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
            0 => EventKind::SessionOpened(Box::new(self.opening())),
            1 => EventKind::SessionRenamed { name: self.name() },
            2 => EventKind::SessionEnded { by: self.name() },
            3 => EventKind::RunStarted(Box::new(self.message())),
            4 => EventKind::MessageQueued(Box::new(QueuedMessage { run: self.name().into(), message: self.message() })),
            5 => EventKind::MessageUnqueued { message: self.name().into(), by: self.name() },
            6 => EventKind::Steered(Box::new(Steering {
                message: self.name().into(),
                text: self.text(),
                images: self.images(),
                fingerprint: self.fingerprint(),
                by: self.name(),
            })),
            7 => EventKind::Status { source: self.text(), phase: self.text(), detail: self.maybe(Self::text) },
            8 => EventKind::ThinkingDelta { text: self.text() },
            9 => EventKind::TextDelta { text: self.text() },
            10 => EventKind::TextDone { message: self.name().into() },
            11 => EventKind::CallIntended(Box::new(self.intention())),
            12 => EventKind::CallStarted { call: self.name().into(), tool: self.text() },
            13 => EventKind::CallOutput {
                call: self.name().into(),
                stream: self.pick([OutputStream::Stdout, OutputStream::Stderr]),
                text: self.text(),
            },
            14 => EventKind::CallSettled(Box::new(self.call_result())),
            15 => EventKind::GateOpened(Box::new(self.question())),
            16 => EventKind::GateVoted { gate: self.name().into(), decision: self.decision(), by: self.name() },
            17 => EventKind::GateSettled(Box::new(GateDecision {
                gate: self.name().into(),
                decision: self.decision(),
                choice: self.maybe(Self::name),
                by: self.name(),
                comment: self.maybe(Self::text),
                scope: self.approval_scope(),
                answer: self.maybe(Self::object),
            })),
            18 => EventKind::Warned { code: self.name(), message: self.text(), detail: self.maybe(Self::text) },
            19 => self.failed(),
            20 => EventKind::RunStopping { outcome: self.outcome(), reason: self.text(), by: self.name() },
            21 => EventKind::RunRecovered {
                phase: self.pick([
                    RecoveredPhase::Working,
                    RecoveredPhase::Waiting,
                    RecoveredPhase::Unknown,
                    RecoveredPhase::Stopping,
                ]),
            },
            22 => EventKind::EventsLost {
                after: Seq::new(self.wide()),
                cause: self.pick([LossCause::Damage, LossCause::PowerLoss, LossCause::Retention]),
            },
            23 => EventKind::TurnUsage(Box::new(self.turn_usage())),
            24 => EventKind::Compacted(Box::new(Compaction {
                summary: self.text(),
                kept_from: Seq::new(self.wide()),
                tokens_before: self.wide(),
            })),
            25..33 => self.change(kind),
            _ => EventKind::RunEnded(Box::new(self.report())),
        }
    }

    fn change(&mut self, kind: u64) -> EventKind {
        match kind {
            25 => EventKind::VersionBumped { change: self.name(), by: self.name() },
            26 => EventKind::Loaded { by: self.name() },
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
                EventKind::Adjusted { adjustment: Box::new(adjustment), by: self.name() }
            }
            28 => {
                let branch = Branch { until: Seq::new(self.wide()), from: Seq::new(self.wide()) };
                EventKind::Branched { branch, by: self.name() }
            }
            29 => EventKind::CompactionStarted {
                reason: self.pick([CompactionReason::Manual, CompactionReason::Threshold, CompactionReason::Overflow]),
                by: self.maybe(Self::name),
            },
            30 => EventKind::CompactionFailed {
                failure: self.pick([CompactionFailure::Failed, CompactionFailure::Aborted]),
                message: self.maybe(Self::text),
                will_retry: self.below(2) == 0,
            },
            31 => EventKind::RetryStarted(Box::new(Retry {
                attempt: self.narrow(),
                max_attempts: self.narrow(),
                pause_millis: self.wide(),
                message: self.text(),
            })),
            _ => EventKind::RetryEnded {
                succeeded: self.below(2) == 0,
                attempt: self.narrow(),
                message: self.maybe(Self::text),
            },
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
        EventKind::Failed {
            code: self.name(),
            message: self.text(),
            retryable: self.below(2) == 0,
            detail: self.maybe(Self::text),
        }
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
        EventKind::SessionOpened(_)
        | EventKind::SessionRenamed { .. }
        | EventKind::SessionEnded { .. }
        | EventKind::VersionBumped { .. }
        | EventKind::Loaded { .. }
        | EventKind::Adjusted { .. }
        | EventKind::Branched { .. }
        | EventKind::MessageQueued(_)
        | EventKind::MessageUnqueued { .. }
        | EventKind::EventsLost { .. }
        | EventKind::Unknown(_) => false,
        EventKind::CallIntended(intention) => !matches!(intention.purpose, Purpose::UserCommand { .. }),
        EventKind::CallSettled(settlement) => !matches!(settlement.purpose, Purpose::UserCommand { .. }),
        EventKind::RunStarted(_)
        | EventKind::Steered(_)
        | EventKind::Status { .. }
        | EventKind::ThinkingDelta { .. }
        | EventKind::TextDelta { .. }
        | EventKind::TextDone { .. }
        | EventKind::TurnUsage(_)
        | EventKind::CompactionStarted { .. }
        | EventKind::Compacted(_)
        | EventKind::CompactionFailed { .. }
        | EventKind::RetryStarted(_)
        | EventKind::RetryEnded { .. }
        | EventKind::CallStarted { .. }
        | EventKind::CallOutput { .. }
        | EventKind::GateOpened(_)
        | EventKind::GateVoted { .. }
        | EventKind::GateSettled(_)
        | EventKind::Warned { .. }
        | EventKind::Failed { .. }
        | EventKind::RunStopping { .. }
        | EventKind::RunRecovered { .. }
        | EventKind::RunEnded(_) => true,
    }
}
