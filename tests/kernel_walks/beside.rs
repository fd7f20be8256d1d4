//! The part of a walk outside of runs: versions, user commands, requested compactions, branches, imports.

use super::*;
use pushd::kernel::command::{Answer, Aside, Reply};
use pushd::kernel::effect::{AsideReport, CompactionReport};
use pushd::kernel::event::{Adjustment, Branch};
use pushd::kernel::import::{Import, Imported, ImportedCall, ImportedRun, ImportedTurn, Kept, Provenance};
use pushd::kernel::refusal::Refusal;

/// The version before an input, and the change that the input may make.
pub(super) struct Before {
    version: u64,
    /// The version after a change; `None` where the input may not change it.
    next: Option<u64>,
    if_version: Option<u64>,
    /// Whether the input always increments the version.
    counts: bool,
}

impl Walk {
    pub(super) fn beside(&mut self) -> Command {
        match self.random.below(12) {
            0 => Command::Touch { what: "w".into() },
            1 if self.random.one_in(3) => Command::Load,
            1..=2 => Command::Adjust(Box::new(self.adjustment())),
            3..=4 => Command::Aside(Box::new(Aside {
                call: CallId::new(format!("aside-{}", self.mint())),
                tool: "tool".into(),
                args: Json::new("{}"),
                told: self.random.one_in(2),
            })),
            5 => {
                let open: Vec<_> = self.live.state().asides.keys().cloned().collect();
                Command::StopAside { call: self.random.pick(&open).cloned() }
            }
            6..=7 => Command::Compact { instructions: self.random.one_in(2).then(|| "briefly".into()) },
            8 => Command::StopCompaction,
            9 => Command::StopRetry,
            10 => {
                let newest = self.newest.number() + 2;
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
            0 => Imported::Aside { call: self.imported_call(), told: self.random.one_in(2) },
            1 => {
                let kept = match self.random.below(3) {
                    0 => Kept::Nothing,
                    1 => Kept::Since(Seq::new(self.random.below(9))),
                    _ => Kept::Entry(format!("entry-{}", self.random.below(5))),
                };
                Imported::Summary { text: "sum".into(), tokens_before: 5, kept, source: self.provenance() }
            }
            _ => Imported::Run(self.imported_run()),
        });
        Import { turns: turns.collect(), ..Import::default() }
    }

    fn imported_run(&mut self) -> ImportedRun {
        let turns = self.random.below(3);
        let turn = |walk: &mut Self| ImportedTurn {
            thought: if walk.random.one_in(2) { "hm".into() } else { String::new() },
            text: if walk.random.one_in(2) { "so".into() } else { String::new() },
            message: MessageId::new(format!("asst-{}", walk.mint())),
            taken: taken(1),
            calls: (0..walk.random.below(3)).map(|_| walk.imported_call()).collect(),
            source: walk.provenance(),
        };
        ImportedRun {
            run: RunId::new(format!("run-{}", self.mint())),
            message: MessageId::new(format!("old-{}", self.mint())),
            text: "said before".into(),
            images: self.images(),
            turns: (0..turns).map(|_| turn(self)).collect(),
            source: self.provenance(),
        }
    }

    fn imported_call(&mut self) -> ImportedCall {
        ImportedCall {
            call: CallId::new(format!("call-{}", self.mint())),
            tool: "tool".into(),
            args: Json::new("{}"),
            millis: 1,
            ending: Ending::Done,
            exit_code: Some(0),
            text: "printed".into(),
            fault: None,
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
    pub(super) fn owe_beside(&mut self, effect: Effect, what: &str) {
        match effect {
            Effect::Aside(intention) => {
                let times = self.executed.entry(intention.call.clone()).or_default();
                *times += 1;
                assert_eq!(*times, 1, "an aside was begun twice, {what}");
                let call = intention.call.clone();
                let (stream, text) = (OutputStream::Out, "o".into());
                let output = AsideReport::Output { stream, text };
                self.owed.push(Input::AsideReport { call: call.clone(), report: output });
                let done = settlement(call.clone(), intention.purpose, Ending::Done);
                self.owed.push(Input::AsideReport { call, report: AsideReport::Settled(Box::new(done)) });
            }
            Effect::StopAside(call) => {
                let cut = settlement(call.clone(), Purpose::Work, Ending::Cut);
                self.owed.push(Input::AsideReport { call, report: AsideReport::Settled(Box::new(cut)) });
            }
            Effect::Compact(compact) => {
                assert_eq!(compact.last_seq, compact.began, "{what}");
                let used = CompactionReport::Used(Box::new(taken(1)));
                self.owed.push(Input::CompactionReport { began: compact.began, report: used });
                let report = if self.random.one_in(3) {
                    CompactionReport::Failed { message: "no".into() }
                } else {
                    let (summary, kept_from) = ("s".into(), compact.began);
                    CompactionReport::Done(Box::new(Compaction { summary, kept_from, tokens_before: 9 }))
                };
                self.owed.push(Input::CompactionReport { began: compact.began, report });
            }
            // No report: the kernel ignores the result of a stopped compaction.
            Effect::StopCompaction(_) => {}
            Effect::StopRetry(run) => {
                let report = Report::RetryOver { succeeded: false, attempt: 1, message: Some("no".into()) };
                self.owed.push(Input::Report { run, report });
            }
            other => panic!("unexpected {other:?}, {what}"),
        }
    }

    pub(super) fn before(&self, input: &Input) -> Before {
        let version = self.live.state().version;
        let (next, if_version, counts) = match input {
            Input::Command { command, if_version, .. } => {
                let next = match command {
                    Command::Load => Some(0),
                    command => command.makes_version().then_some(version + 1),
                };
                let counts =
                    matches!(command, Command::Touch { .. } | Command::Load | Command::Rename { .. });
                (next, *if_version, counts)
            }
            _ => (None, None, false),
        };
        Before { version, next, if_version, counts }
    }

    /// A change increments the version once, at its first event; nothing else does.
    pub(super) fn check_version(
        &self,
        before: &Before,
        answered: Option<(Reply, u64)>,
        versions: &[u64],
        what: &str,
    ) {
        let now = self.live.state().version;
        assert!(versions.len() <= 1, "a change counted twice, {what}");
        assert_eq!(now, versions.first().copied().unwrap_or(before.version), "{what}");
        assert!(versions.iter().all(|version| Some(*version) == before.next), "{what}");
        let Some((reply, told)) = answered else { return };
        assert_eq!(told, now, "the answer tells another version, {what}");
        let stale = before.if_version.filter(|expected| *expected != before.version);
        if let Some(expected) = stale {
            let found = before.version;
            assert_eq!(reply, Err(Refusal::Stale { expected, found }), "{what}");
        } else {
            assert!(!matches!(reply, Err(Refusal::Stale { .. })), "{what}");
        }
        if reply.is_err() {
            assert!(versions.is_empty(), "a refusal changed something, {what}");
        }
        if let Ok(answer) = reply {
            assert!(!before.counts || versions.len() == 1, "{answer:?} did not count, {what}");
            let looks = matches!(answer, Answer::Described(_) | Answer::Attached { .. } | Answer::Queue(_));
            assert!(!looks || versions.is_empty(), "a look counted, {what}");
        }
    }

    pub(super) fn check_beside(&self, what: &str) {
        let state = self.live.state();
        assert!(state.asides.len() <= LIMITS.asides, "{what}");
        if let Some(compaction) = state.compaction {
            let manual = compaction.reason == CompactionReason::Manual;
            assert_eq!(
                manual,
                state.run.is_none(),
                "a summary outlived its run, or a run began in one, {what}"
            );
        }
        let waits = !state.asides.is_empty() || state.compaction.is_some();
        assert!(!waits || !self.live.is_idle(), "it would leave memory in the middle of something, {what}");
        assert!(state.context_from <= state.last_seq.next(), "told from the future, {what}");
        if let Some(run) = &state.run {
            let voice = state.voice();
            assert_eq!(run.voice.thinking, voice.thinking, "{what}");
            assert!(run.voice.provider != voice.provider || run.voice == voice, "{what}");
        }
    }
}
