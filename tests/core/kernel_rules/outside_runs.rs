//! Kernel rules of versions, user commands, compaction, reopening, imports and questions, one scenario each.

use super::*;
use pushd::kernel::command::UserCommand;
use pushd::kernel::effect::{CompactionReport, UserCommandReport};
use pushd::kernel::event::{
    Adjustment, Branch, Compaction, CompactionFailure, CompactionReason, ContextEvent, Opening, OutputStream, Retry,
    RunEvent, ToolEvent,
};
use pushd::kernel::import::{Import, ImportedPart, ImportedRun, Provenance};

#[test]
fn a_change_increments_the_version_and_a_read_or_duplicate_does_not() {
    let mut fixture = Fixture::open();
    assert_eq!(version(&fixture), 0);
    fixture.prompt("one").unwrap();
    assert_eq!(version(&fixture), 1);
    fixture.prompt("one").unwrap();
    fixture.send(Command::Describe).unwrap();
    fixture.report(Report::TextDelta("hello".into()));
    fixture.finish(RunOutcome::Success);
    assert_eq!(version(&fixture), 1, "only commands count");
    fixture.send(Command::BumpVersion { change: "w".into() }).unwrap();
    assert_eq!(version(&fixture), 2);
    fixture.crash();
    assert_eq!(version(&fixture), 2);
    fixture.send(Command::Load).unwrap();
    assert_eq!(version(&fixture), 0);
}

#[test]
fn a_command_with_a_stale_version_changes_nothing() {
    let mut fixture = Fixture::open();
    let caller = Caller::owner(ConnectionId(1), "owner".into());
    let mut ask = |command, if_version| {
        let caller = caller.clone();
        let input = Input::Command { ticket: Ticket(0), caller, command, if_version };
        fixture.apply(input).expect("an answer")
    };
    assert_eq!(ask(Command::Rename { name: "a".into() }, Some(0)), Ok(Answer::Renamed));
    let stale = Err(Refusal::Stale { expected: 0, actual: 1 });
    assert_eq!(ask(Command::Rename { name: "b".into() }, Some(0)), stale);
    assert_eq!(ask(Command::Describe, Some(0)).err(), stale.err(), "before anything else");
    assert_eq!(fixture.session.state().name.as_deref(), Some("a"));
}

#[test]
fn a_user_command_runs_during_a_run_and_belongs_to_none() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    let call = start_user_command(&mut fixture, "a");
    assert_eq!(fixture.user_commands, ["a"]);
    let output = UserCommandReport::Output { stream: OutputStream::Stdout, text: "o".into() };
    fixture.apply(Input::UserCommandReport { call: call.clone(), report: output.clone() });
    fixture.finish(RunOutcome::Success);
    assert!(!fixture.session.is_idle());
    settle_user_command(&mut fixture, &call, ToolOutcome::Succeeded);
    fixture.apply(Input::UserCommandReport { call, report: output });
    let (of_none, last) = (fixture.events.iter().filter(|event| event.run.is_none()).count(), fixture.events.last());
    assert_eq!(of_none, 5, "opened, intended, started, printed, settled");
    assert!(matches!(last.unwrap().kind, EventKind::Tool(ToolEvent::Settled(_))), "what comes later is not heard");
}

#[test]
fn user_commands_are_limited_cancellable_and_never_started_twice() {
    let mut fixture = Fixture::open();
    let calls: Vec<_> = (0..8).map(|number| start_user_command(&mut fixture, &format!("a{number}"))).collect();
    assert_eq!(fixture.send(user_command("more")), Err(Refusal::TooManyUserCommands));
    let stop = Command::StopUserCommand { call: Some(CallId::new("none")) };
    assert_eq!(fixture.send(stop), Err(Refusal::NoUserCommand));
    assert_eq!(
        fixture.send(Command::StopUserCommand { call: Some(calls[0].clone()) }),
        Ok(Answer::StoppingUserCommand)
    );
    settle_user_command(&mut fixture, &calls[0], ToolOutcome::Aborted);
    assert_eq!(fixture.session.state().user_commands.len(), 7);
    fixture.user_commands.clear();
    fixture.crash();
    assert!(fixture.user_commands.is_empty() && fixture.session.state().user_commands.is_empty());
    let cut = fixture.last(|kind| match kind {
        EventKind::Tool(ToolEvent::Settled(settlement)) => {
            Some((settlement.outcome, settlement.error.clone().unwrap().message))
        }
        _ => None,
    });
    assert_eq!(cut, (ToolOutcome::Aborted, "the daemon stopped before it ended".to_owned()));
}

#[test]
fn a_compaction_starts_only_when_idle_and_defers_messages() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    assert_eq!(fixture.send(compact()), Err(Refusal::RunActive));
    fixture.finish(RunOutcome::Success);
    let Ok(Answer::CompactionStarted(began)) = fixture.send(compact()) else { panic!("it begins") };
    assert_eq!(fixture.send(compact()), Err(Refusal::Compacting));
    assert_eq!(fixture.prompt("two"), Err(Refusal::Compacting));
    assert_eq!(fixture.send(Command::End), Err(Refusal::Compacting), "what waits behind it would never begin");
    let queued = Command::Queue(Box::new(fixture.message("three")));
    assert!(matches!(fixture.send(queued), Ok(Answer::Queued { position: 1, .. })));
    let done = |began: Seq| {
        let compaction = Compaction { summary: "s".into(), kept_from: began, tokens_before: 9 };
        Input::CompactionReport { start_seq: began, report: CompactionReport::Done(Box::new(compaction)) }
    };
    fixture.apply(done(Seq::new(1)));
    assert!(fixture.session.state().compaction.is_some(), "that was another one");
    fixture.apply(done(began));
    assert_eq!(fixture.session.state().context_from, began);
    assert_eq!(fixture.phase(), Phase::Running, "what waited begins");
    fixture.apply(done(began));
    fixture.finish(RunOutcome::Success);
    fixture.send(compact()).unwrap();
    assert_eq!(fixture.send(Command::StopCompaction), Ok(Answer::CompactionStopped));
    assert_eq!(fixture.send(Command::StopCompaction), Err(Refusal::NoCompaction));
    let over = fixture.last(|kind| match kind {
        EventKind::Context(ContextEvent::CompactionFailed { failure: ending, message, will_retry: again }) => {
            Some((*ending, message.clone(), *again))
        }
        _ => None,
    });
    assert_eq!(over, (CompactionFailure::Aborted, Some("stopped by owner".into()), false));
}

#[test]
fn retries_and_compactions_end_with_their_run() {
    let retry = || Box::new(Retry { attempt: 1, max_attempts: 3, pause_millis: 5, message: "no".into() });
    let mut fixture = Fixture::open();
    assert_eq!(fixture.send(Command::StopRetry), Err(Refusal::NoRetry));
    for end in ["cancel", "crash", "finish"] {
        fixture.prompt(end).unwrap();
        fixture.report(Report::RetryStarted(retry()));
        fixture.report(Report::CompactionStarted(CompactionReason::Threshold));
        assert_eq!(fixture.send(Command::StopRetry), Ok(Answer::RetryStopped));
        match end {
            "cancel" => {
                fixture.cancel().unwrap();
                fixture.stopped();
            }
            "crash" => {
                fixture.crash();
                fixture.finish(RunOutcome::Success);
            }
            _ => fixture.finish(RunOutcome::Success),
        }
        let run = fixture.events.last().unwrap().run.clone();
        let of_run: Vec<_> = fixture.events.iter().filter(|event| event.run == run).map(|event| &event.kind).collect();
        let retried =
            of_run.iter().filter(|kind| matches!(kind, EventKind::Run(RunEvent::RetryEnded { succeeded: false, .. })));
        let aborted = of_run.iter().filter(|kind| {
            matches!(
                kind,
                EventKind::Context(ContextEvent::CompactionFailed { failure: CompactionFailure::Aborted, .. })
            )
        });
        assert_eq!((retried.count(), aborted.count()), (1, 1), "{end}");
        assert!(matches!(of_run.last(), Some(EventKind::Run(RunEvent::Ended(_)))), "{end}");
    }
}

#[test]
fn a_cancelled_compaction_of_a_run_is_not_applied() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    fixture.report(Report::CompactionStarted(CompactionReason::Overflow));
    fixture.send(Command::StopCompaction).unwrap();
    let before = fixture.session.state().context_from;
    let compaction = Compaction { summary: "s".into(), kept_from: Seq::new(9), tokens_before: 9 };
    fixture.report(Report::Compacted(Box::new(compaction)));
    assert_eq!(fixture.session.state().context_from, before);
    assert_eq!(fixture.phase(), Phase::Running);
}

#[test]
fn a_reopened_session_starts_fresh() {
    let mut fixture = Fixture::open();
    fixture.send(Command::Rename { name: "old".into() }).unwrap();
    let adjustment = Adjustment { thinking: Some("high".into()), unloaded: Some(true), ..Adjustment::default() };
    fixture.send(Command::Adjust(Box::new(adjustment))).unwrap();
    let opening = Opening { cwd: "/other".into(), ..Opening::default() };
    fixture.send(Command::Reopen(Box::new(opening.clone()))).unwrap();
    let state = fixture.session.state();
    assert_eq!((state.opening.as_ref(), state.name.as_ref()), (Some(&opening), None));
    assert_eq!((state.version, state.context_from), (0, state.last_seq));
    assert_eq!(state.adjusted, Adjustment::default());
    fixture.prompt("one").unwrap();
    assert_eq!(fixture.send(Command::Reopen(Box::default())), Err(Refusal::RunActive));
}

#[test]
fn a_reopened_session_inherits_no_approval_and_no_message() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    fixture.report(Report::TextDelta("said".into()));
    fixture.remember = Some("rule".into());
    let call = fixture.call(Some(1));
    fixture.vote_with(Decision::Approve, None, ApprovalScope::Session).unwrap();
    fixture.settle(call, Purpose::Work, 0);
    fixture.finish(RunOutcome::Success);
    let before = fixture.session.state();
    assert!(!before.granted.is_empty() && !before.idempotency.is_empty() && before.last_run.is_some());
    fixture.send(Command::Reopen(Box::new(Opening { cwd: "/other".into(), ..Opening::default() }))).unwrap();
    let state = fixture.session.state();
    assert!(state.granted.is_empty() && state.queue.is_empty() && state.idempotency.is_empty());
    assert_eq!((state.last_text.as_str(), state.last_message.as_str()), ("", ""));
    assert_eq!((state.last_run.as_ref(), state.phase()), (None, Phase::Idle));
    // The same key is a new message.
    fixture.prompt("one").unwrap();
    assert_eq!(fixture.granted_rules, Vec::<String>::new());
}

#[test]
fn loading_clears_the_unloaded_setting() {
    let mut fixture = Fixture::open();
    let unloaded = Adjustment { unloaded: Some(true), ..Adjustment::default() };
    fixture.send(Command::Adjust(Box::new(unloaded))).unwrap();
    assert_eq!(fixture.session.snapshot().adjusted.unloaded, Some(true));
    fixture.send(Command::Load).unwrap();
    assert_eq!(fixture.session.snapshot().adjusted.unloaded, None);
}

#[test]
fn a_run_keeps_its_provider_and_adopts_all_other_settings() {
    let mut fixture = Fixture::open();
    let adjust = |fixture: &mut Fixture, adjustment| fixture.send(Command::Adjust(Box::new(adjustment))).unwrap();
    let to = |provider: Option<&str>, model: Option<&str>, thinking: Option<&str>| Adjustment {
        provider: provider.map(Into::into),
        model: model.map(Into::into),
        thinking: thinking.map(Into::into),
        ..Adjustment::default()
    };
    adjust(&mut fixture, to(Some("p"), Some("m"), None));
    adjust(&mut fixture, Adjustment::default());
    assert_eq!(version(&fixture), 1, "nothing changes nothing");
    fixture.prompt("one").unwrap();
    adjust(&mut fixture, to(None, Some("n"), Some("high")));
    let voice = |fixture: &Fixture| fixture.session.state().run.as_ref().unwrap().model_choice.clone();
    assert_eq!(voice(&fixture).model.as_deref(), Some("n"));
    adjust(&mut fixture, to(Some("q"), None, Some("low")));
    let now = voice(&fixture);
    assert_eq!((now.provider.as_str(), now.model.as_deref(), now.thinking.as_deref()), ("p", Some("n"), Some("low")));
    fixture.finish(RunOutcome::Success);
    fixture.prompt("two").unwrap();
    assert_eq!((voice(&fixture).provider.as_str(), voice(&fixture).model), ("q", None));
}

#[test]
fn a_branch_starts_only_at_an_existing_point() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    let branch = |until, from| Command::Branch(Branch { until: Seq::new(until), from: Seq::new(from) });
    assert_eq!(fixture.send(branch(1, 1)), Err(Refusal::RunActive));
    fixture.finish(RunOutcome::Success);
    let newest = fixture.session.state().last_seq.number();
    for (until, from) in [(newest + 1, 1), (1, 2), (1, 0), (0, newest + 2)] {
        assert_eq!(fixture.send(branch(until, from)), Err(Refusal::UnknownPosition), "{until} {from}");
    }
    assert_eq!(fixture.send(branch(2, 1)), Ok(Answer::Branched));
    assert_eq!(fixture.session.state().context_from, Seq::new(1));
    assert_eq!(fixture.send(branch(0, newest)), Ok(Answer::Branched));
}

#[test]
fn imports_are_finished_bounded_and_free_of_effects() {
    let mut fixture = Fixture::open();
    let run = |number: usize, text: String| {
        ImportedPart::Run(ImportedRun {
            run: format!("old-{number}").into(),
            message: format!("m-{number}").into(),
            text,
            images: Vec::new(),
            turns: Vec::new(),
            source: Provenance::default(),
        })
    };
    let turns = vec![run(1, "one".into()), run(2, "two".into())];
    assert_eq!(
        fixture.send(Command::Import(Box::new(Import { parts: turns, ..Import::default() }))),
        Ok(Answer::Imported)
    );
    assert_eq!((fixture.turns, fixture.executed, fixture.phase()), (0, 0, Phase::Completed));
    assert_eq!((fixture.kinds.len(), version(&fixture)), (5, 0), "a load or a branch comes with it, and counts");
    let long = Import { parts: vec![run(3, "x".repeat(Limits::default().import_bytes + 1))], ..Import::default() };
    assert_eq!(fixture.send(Command::Import(Box::new(long))), Err(Refusal::ImportTooLarge));
    let many = (0..=Limits::default().import_steps).map(|number| run(number, String::new())).collect();
    assert_eq!(
        fixture.send(Command::Import(Box::new(Import { parts: many, ..Import::default() }))),
        Err(Refusal::ImportTooLarge)
    );
    assert_eq!(fixture.kinds.len(), 5, "all of it or nothing");
    fixture.prompt("three").unwrap();
    let import = Command::Import(Box::default());
    assert_eq!(fixture.send(import), Err(Refusal::RunActive));
}

#[test]
fn a_question_is_answered_dismissed_or_expires_and_the_run_continues() {
    let mut fixture = Fixture::open();
    fixture.prompt("one").unwrap();
    fixture.form = Some(Json::new(r#"{"method":"input"}"#));
    fixture.denial_effect = DenialEffect::Dismiss;
    fixture.call(Some(1));
    assert_eq!(fixture.vote("ann", Decision::Approve, None), Err(Refusal::AnswerNeeded));
    assert_eq!(answer(&mut fixture, Decision::Deny, Some("\"x\"")), Err(Refusal::UnknownAnswer));
    assert_eq!(answer(&mut fixture, Decision::Approve, Some("\"blue\"")), Ok(Answer::Decided));
    assert_eq!(last_result(&fixture), (ToolOutcome::Succeeded, "\"blue\"".to_owned(), None));
    fixture.call(Some(1));
    assert_eq!(answer(&mut fixture, Decision::Deny, None), Ok(Answer::Decided));
    assert_eq!(last_result(&fixture), (ToolOutcome::Failed, String::new(), Some("DISMISSED".to_owned())));
    fixture.call(Some(1));
    fixture.now = fixture.now.after(Limits::default().gate_millis);
    fixture.apply(Input::Deadline);
    assert_eq!(last_result(&fixture), (ToolOutcome::Failed, String::new(), Some("TIMED_OUT".to_owned())));
    assert_eq!((fixture.executed, fixture.phase()), (0, Phase::Running));
    fixture.form = None;
    fixture.call(Some(1));
    assert_eq!(answer(&mut fixture, Decision::Approve, Some("1")), Err(Refusal::UnknownAnswer));
}

fn version(fixture: &Fixture) -> u64 {
    fixture.session.state().version
}

fn compact() -> Command {
    Command::Compact { instructions: None }
}

fn user_command(name: &str) -> Command {
    let (call, tool, args) = (CallId::new(name), "tool".into(), Json::new("{}"));
    Command::UserCommand(Box::new(UserCommand { call, tool, args, in_context: true }))
}

fn start_user_command(fixture: &mut Fixture, name: &str) -> CallId {
    let before = version(fixture);
    assert_eq!(fixture.send(user_command(name)), Ok(Answer::UserCommandStarted(CallId::new(name))));
    assert_eq!(version(fixture), before, "whoever asked counts it when it has succeeded");
    CallId::new(name)
}

fn settle_user_command(fixture: &mut Fixture, call: &CallId, ending: ToolOutcome) {
    let settlement = CallResult {
        call: call.clone(),
        tool: "tool".into(),
        purpose: Purpose::Work,
        millis: 1,
        outcome: ending,
        exit_code: None,
        text: String::new(),
        error: None,
        diff: None,
    };
    let report = UserCommandReport::Settled(Box::new(settlement));
    fixture.apply(Input::UserCommandReport { call: call.clone(), report });
}

fn answer(fixture: &mut Fixture, decision: Decision, answer: Option<&str>) -> Reply {
    let (gate, answer) = (fixture.gate.clone(), answer.map(Json::new));
    let (choice, comment, lasting) = (None, None, ApprovalScope::Once);
    let vote = GateVote { gate, run: None, decision, choice, comment, scope: lasting, rule: None, answer };
    fixture.send_as("ann", Command::Decide(Box::new(vote)))
}

fn last_result(fixture: &Fixture) -> (ToolOutcome, String, Option<String>) {
    fixture.last(|kind| match kind {
        EventKind::Tool(ToolEvent::Settled(settlement)) => {
            let fault = settlement.error.as_ref().map(|fault| fault.kind.clone());
            Some((settlement.outcome, settlement.text.clone(), fault))
        }
        _ => None,
    })
}
