//! The part of a walk outside of runs: versions, user commands, requested compactions, branches, imports.

use super::*;
use pushd::kernel::command::{Answer, Reply, UserCommand};
use pushd::kernel::effect::{CompactionReport, UserCommandReport};
use pushd::kernel::event::{Adjustment, Branch};
use pushd::kernel::import::{ContextStart, Import, ImportedCall, ImportedPart, ImportedRun, ImportedTurn, Provenance};
use pushd::kernel::refusal::Refusal;

/// The version before an input, and the change that the input may make.
pub(super) struct VersionContext {
    version: u64,
    /// The version after a change; `None` where the input may not change it.
    next: Option<u64>,
    if_version: Option<u64>,
    /// Whether the input always increments the version.
    always_increments: bool,
}

impl Walk {
    pub(super) fn outside_run_command(&mut self) -> Command {
        match self.random.below(12) {
            0 => Command::BumpVersion { change: "w".into() },
            1 if self.random.one_in(3) => Command::Load,
            1..=2 => Command::Adjust(Box::new(self.adjustment())),
            3..=4 => Command::UserCommand(Box::new(UserCommand {
                call: CallId::new(format!("aside-{}", self.next_id())),
                tool: "tool".into(),
                args: Json::new("{}"),
                in_context: self.random.one_in(2),
            })),
            5 => {
                let open: Vec<_> = self.session.state().user_commands.keys().cloned().collect();
                Command::StopUserCommand { call: self.random.pick(&open).cloned() }
            }
            6..=7 => Command::Compact { instructions: self.random.one_in(2).then(|| "briefly".into()) },
            8 => Command::StopCompaction,
            9 => Command::StopRetry,
            10 => {
                let newest = self.last_seq.number() + 2;
                let [until, from] = [(); 2].map(|()| Seq::new(self.random.below(newest)));
                Command::Branch(Branch { until, from })
            }
            _ => Command::Import(Box::new(self.import())),
        }
    }

    pub(super) fn images(&mut self) -> Vec<Image> {
        let image = || Image { mime: "image/png".into(), data: "aGk=".into() };
        self.random.one_in(4).then(image).into_iter().collect()
    }

    fn adjustment(&mut self) -> Adjustment {
        Adjustment {
            provider: self.random.one_in(3).then(|| format!("p{}", self.random.below(2))),
            model: self.random.one_in(3).then(|| format!("m{}", self.random.below(2))),
            thinking: self.random.one_in(3).then(|| "high".into()),
            auto_compaction: self.random.one_in(3).then(|| self.random.one_in(2)),
            auto_retry: self.random.one_in(3).then(|| self.random.one_in(2)),
            workspace: None,
            unloaded: None,
        }
    }

    fn import(&mut self) -> Import {
        let parts = self.random.below(5);
        let turns = (0..parts).map(|_| match self.random.below(4) {
            0 => ImportedPart::UserCommand { call: self.imported_call(), in_context: self.random.one_in(2) },
            1 => {
                let kept = match self.random.below(3) {
                    0 => ContextStart::AfterSummary,
                    1 => ContextStart::Event(Seq::new(self.random.below(9))),
                    _ => ContextStart::Entry(format!("entry-{}", self.random.below(5))),
                };
                ImportedPart::Summary {
                    text: "sum".into(),
                    tokens_before: 5,
                    context_start: kept,
                    source: self.provenance(),
                }
            }
            _ => ImportedPart::Run(self.imported_run()),
        });
        Import { parts: turns.collect(), ..Import::default() }
    }

    fn imported_run(&mut self) -> ImportedRun {
        let turns = self.random.below(3);
        let turn = |walk: &mut Self| ImportedTurn {
            thinking: if walk.random.one_in(2) { "hm".into() } else { String::new() },
            text: if walk.random.one_in(2) { "so".into() } else { String::new() },
            message: MessageId::new(format!("asst-{}", walk.next_id())),
            usage: turn_usage(1),
            calls: (0..walk.random.below(3)).map(|_| walk.imported_call()).collect(),
            source: walk.provenance(),
        };
        ImportedRun {
            run: RunId::new(format!("run-{}", self.next_id())),
            message: MessageId::new(format!("old-{}", self.next_id())),
            text: "said before".into(),
            images: self.images(),
            turns: (0..turns).map(|_| turn(self)).collect(),
            source: self.provenance(),
        }
    }

    fn imported_call(&mut self) -> ImportedCall {
        ImportedCall {
            call: CallId::new(format!("call-{}", self.next_id())),
            tool: "tool".into(),
            args: Json::new("{}"),
            millis: 1,
            outcome: ToolOutcome::Succeeded,
            exit_code: Some(0),
            text: "printed".into(),
            error: None,
            source: self.provenance(),
        }
    }

    fn provenance(&mut self) -> Provenance {
        Provenance {
            at: self.random.one_in(2).then(|| Now(self.random.below(1_000))),
            entry: self.random.one_in(2).then(|| format!("entry-{}", self.random.below(5))),
        }
    }

    /// Schedules the report for an effect outside of runs.
    pub(super) fn schedule_outside_run_report(&mut self, effect: Effect, what: &str) {
        match effect {
            Effect::ExecuteUserCommand(intention) => {
                let times = self.executed.entry(intention.call.clone()).or_default();
                *times += 1;
                assert_eq!(*times, 1, "an aside was begun twice, {what}");
                let call = intention.call.clone();
                let (stream, text) = (OutputStream::Stdout, "o".into());
                let output = UserCommandReport::Output { stream, text };
                self.pending_inputs.push(Input::UserCommandReport { call: call.clone(), report: output });
                let done = call_result(call.clone(), intention.purpose, ToolOutcome::Succeeded);
                self.pending_inputs
                    .push(Input::UserCommandReport { call, report: UserCommandReport::Settled(Box::new(done)) });
            }
            Effect::StopUserCommand(call) => {
                let cut = call_result(call.clone(), Purpose::Work, ToolOutcome::Aborted);
                self.pending_inputs
                    .push(Input::UserCommandReport { call, report: UserCommandReport::Settled(Box::new(cut)) });
            }
            Effect::Compact(compact) => {
                assert_eq!(compact.last_seq, compact.start_seq, "{what}");
                let used = CompactionReport::Usage(Box::new(turn_usage(1)));
                self.pending_inputs.push(Input::CompactionReport { start_seq: compact.start_seq, report: used });
                let report = if self.random.one_in(3) {
                    CompactionReport::Failed { message: "no".into() }
                } else {
                    let (summary, kept_from) = ("s".into(), compact.start_seq);
                    CompactionReport::Done(Box::new(Compaction { summary, kept_from, tokens_before: 9 }))
                };
                self.pending_inputs.push(Input::CompactionReport { start_seq: compact.start_seq, report });
            }
            // No report: the kernel ignores the result of a stopped compaction.
            Effect::StopCompaction(_) => {}
            Effect::StopRetry(run) => {
                let report = Report::RetryEnded { succeeded: false, attempt: 1, message: Some("no".into()) };
                self.pending_inputs.push(Input::Report { run, report });
            }
            other => panic!("unexpected {other:?}, {what}"),
        }
    }

    pub(super) fn version_context(&self, input: &Input) -> VersionContext {
        let version = self.session.state().version;
        let (next, if_version, counts) = match input {
            Input::Command { command, if_version, .. } => {
                let next = match command {
                    Command::Load => Some(0),
                    Command::OpenFork(fork) => Some(fork.version),
                    command => command.policy().bumps_version.then_some(version + 1),
                };
                let counts = matches!(command, Command::BumpVersion { .. } | Command::Load | Command::Rename { .. });
                (next, *if_version, counts)
            }
            _ => (None, None, false),
        };
        VersionContext { version, next, if_version, always_increments: counts }
    }

    /// A change increments the version once, at its first event; nothing else does.
    pub(super) fn check_version(
        &self,
        before: &VersionContext,
        answered: Option<(Reply, u64)>,
        versions: &[u64],
        what: &str,
    ) {
        let now = self.session.state().version;
        assert!(versions.len() <= 1, "a change counted twice, {what}");
        assert_eq!(now, versions.first().copied().unwrap_or(before.version), "{what}");
        assert!(versions.iter().all(|version| Some(*version) == before.next), "{what}");
        let Some((reply, version)) = answered else { return };
        assert_eq!(version, now, "the answer tells another version, {what}");
        let stale = before.if_version.filter(|expected| *expected != before.version);
        if let Some(expected) = stale {
            let actual = before.version;
            assert_eq!(reply, Err(Refusal::Stale { expected, actual }), "{what}");
        } else {
            assert!(!matches!(reply, Err(Refusal::Stale { .. })), "{what}");
        }
        if reply.is_err() {
            assert!(versions.is_empty(), "a refusal changed something, {what}");
        }
        if let Ok(answer) = reply {
            assert!(!before.always_increments || versions.len() == 1, "{answer:?} did not count, {what}");
            let looks = matches!(answer, Answer::Described(_) | Answer::Attached { .. } | Answer::Queue(_));
            assert!(!looks || versions.is_empty(), "a look counted, {what}");
        }
    }

    pub(super) fn check_outside_runs(&self, what: &str) {
        let state = self.session.state();
        assert!(state.user_commands.len() <= LIMITS.user_commands, "{what}");
        if let Some(compaction) = state.compaction {
            let manual = compaction.reason == CompactionReason::Manual;
            assert_eq!(manual, state.run.is_none(), "a summary outlived its run, or a run began in one, {what}");
        }
        let waits = !state.user_commands.is_empty() || state.compaction.is_some();
        assert!(!waits || !self.session.is_idle(), "it would leave memory in the middle of something, {what}");
        assert!(state.context_from <= state.last_seq.next(), "told from the future, {what}");
        if let Some(run) = &state.run {
            let voice = state.model_choice();
            assert_eq!(run.model_choice.thinking, voice.thinking, "{what}");
            assert!(run.model_choice.provider != voice.provider || run.model_choice == voice, "{what}");
        }
    }
}
