//! Kernel rules of versions, user commands, compaction, reopening, imports and questions, one scenario each.

use super::*;
use pushd::kernel::command::Aside;
use pushd::kernel::effect::{AsideReport, CompactionReport};
use pushd::kernel::event::{
    Adjustment, Branch, Compaction, CompactionEnding, CompactionReason, Opening, OutputStream, Retry,
};
use pushd::kernel::import::{Import, Imported, ImportedRun, Provenance};

#[test]
fn a_change_makes_a_version_and_a_look_or_a_repetition_does_not() {
    let mut scene = Scene::open();
    assert_eq!(version(&scene), 0);
    scene.prompt("one").unwrap();
    assert_eq!(version(&scene), 1);
    scene.prompt("one").unwrap();
    scene.ask(Command::Describe).unwrap();
    scene.report(Report::Said("hello".into()));
    scene.finish(Outcome::Success);
    assert_eq!(version(&scene), 1, "only commands count");
    scene.ask(Command::Touch { what: "w".into() }).unwrap();
    assert_eq!(version(&scene), 2);
    scene.crash();
    assert_eq!(version(&scene), 2);
    scene.ask(Command::Load).unwrap();
    assert_eq!(version(&scene), 0);
}

#[test]
fn what_believes_in_another_version_changes_nothing() {
    let mut scene = Scene::open();
    let caller = Caller { id: ParticipantId(1), source: "owner".into(), rights: Rights::ALL };
    let mut ask = |command, if_version| {
        let caller = caller.clone();
        let input = Input::Command { ticket: Ticket(0), caller, command, if_version };
        scene.give(input).expect("an answer")
    };
    assert_eq!(ask(Command::Rename { name: "a".into() }, Some(0)), Ok(Answer::Renamed));
    let stale = Err(Refusal::Stale { expected: 0, found: 1 });
    assert_eq!(ask(Command::Rename { name: "b".into() }, Some(0)), stale);
    assert_eq!(ask(Command::Describe, Some(0)).err(), stale.err(), "before anything else");
    assert_eq!(scene.session.state().name.as_deref(), Some("a"));
}

#[test]
fn a_tool_of_the_user_runs_beside_a_run_and_is_of_none() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    let call = aside(&mut scene, "a");
    assert_eq!(scene.asides, ["a"]);
    let output = AsideReport::Output { stream: OutputStream::Out, text: "o".into() };
    scene.give(Input::AsideReport { call: call.clone(), report: output.clone() });
    scene.finish(Outcome::Success);
    assert!(!scene.session.is_idle());
    settle(&mut scene, &call, Ending::Done);
    scene.give(Input::AsideReport { call, report: output });
    let (of_none, last) =
        (scene.events.iter().filter(|event| event.run.is_none()).count(), scene.events.last());
    assert_eq!(of_none, 5, "opened, intended, started, printed, settled");
    assert!(matches!(last.unwrap().kind, EventKind::CallSettled(_)), "what comes later is not heard");
}

#[test]
fn a_tool_of_the_user_is_bounded_stopped_and_never_begun_twice() {
    let mut scene = Scene::open();
    let calls: Vec<_> = (0..8).map(|number| aside(&mut scene, &format!("a{number}"))).collect();
    assert_eq!(scene.ask(aside_command("more")), Err(Refusal::TooManyAsides));
    let stop = Command::StopAside { call: Some(CallId::new("none")) };
    assert_eq!(scene.ask(stop), Err(Refusal::NoAside));
    assert_eq!(scene.ask(Command::StopAside { call: Some(calls[0].clone()) }), Ok(Answer::StoppingAside));
    settle(&mut scene, &calls[0], Ending::Cut);
    assert_eq!(scene.session.state().asides.len(), 7);
    scene.asides.clear();
    scene.crash();
    assert!(scene.asides.is_empty() && scene.session.state().asides.is_empty());
    let cut = scene.last(|kind| match kind {
        EventKind::CallSettled(settlement) => {
            Some((settlement.ending, settlement.fault.clone().unwrap().message))
        }
        _ => None,
    });
    assert_eq!(cut, (Ending::Cut, "the daemon stopped before it ended".to_owned()));
}

#[test]
fn a_summary_is_made_only_at_rest_and_holds_messages_back() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    assert_eq!(scene.ask(compact()), Err(Refusal::RunActive));
    scene.finish(Outcome::Success);
    let Ok(Answer::CompactionBegan(began)) = scene.ask(compact()) else { panic!("it begins") };
    assert_eq!(scene.ask(compact()), Err(Refusal::Compacting));
    assert_eq!(scene.prompt("two"), Err(Refusal::Compacting));
    assert_eq!(scene.ask(Command::End), Err(Refusal::Compacting), "what waits behind it would never begin");
    let queued = Command::Queue(Box::new(scene.message("three")));
    assert!(matches!(scene.ask(queued), Ok(Answer::Queued { ahead: 1, .. })));
    let done = |began: Seq| {
        let compaction = Compaction { summary: "s".into(), kept_from: began, tokens_before: 9 };
        Input::CompactionReport { began, report: CompactionReport::Done(Box::new(compaction)) }
    };
    scene.give(done(Seq::new(1)));
    assert!(scene.session.state().compaction.is_some(), "that was another one");
    scene.give(done(began));
    assert_eq!(scene.session.state().context_from, began);
    assert_eq!(scene.phase(), Phase::Running, "what waited begins");
    scene.give(done(began));
    scene.finish(Outcome::Success);
    scene.ask(compact()).unwrap();
    assert_eq!(scene.ask(Command::StopCompaction), Ok(Answer::CompactionStopped));
    assert_eq!(scene.ask(Command::StopCompaction), Err(Refusal::NoCompaction));
    let over = scene.last(|kind| match kind {
        EventKind::CompactionOver { ending, message, again } => Some((*ending, message.clone(), *again)),
        _ => None,
    });
    assert_eq!(over, (CompactionEnding::Aborted, Some("stopped by owner".into()), false));
}

#[test]
fn what_a_run_waits_for_ends_with_it() {
    let retry = || Box::new(Retry { attempt: 1, most: 3, pause_millis: 5, message: "no".into() });
    let mut scene = Scene::open();
    assert_eq!(scene.ask(Command::StopRetry), Err(Refusal::NoRetry));
    for end in ["cancel", "crash", "finish"] {
        scene.prompt(end).unwrap();
        scene.report(Report::RetryBegan(retry()));
        scene.report(Report::Compacting(CompactionReason::Threshold));
        assert_eq!(scene.ask(Command::StopRetry), Ok(Answer::RetryStopped));
        match end {
            "cancel" => {
                scene.cancel().unwrap();
                scene.stopped();
            }
            "crash" => {
                scene.crash();
                scene.finish(Outcome::Success);
            }
            _ => scene.finish(Outcome::Success),
        }
        let run = scene.events.last().unwrap().run.clone();
        let of_run: Vec<_> =
            scene.events.iter().filter(|event| event.run == run).map(|event| &event.kind).collect();
        let retried =
            of_run.iter().filter(|kind| matches!(kind, EventKind::RetryOver { succeeded: false, .. }));
        let aborted = of_run.iter().filter(|kind| {
            matches!(kind, EventKind::CompactionOver { ending: CompactionEnding::Aborted, .. })
        });
        assert_eq!((retried.count(), aborted.count()), (1, 1), "{end}");
        assert!(matches!(of_run.last(), Some(EventKind::RunEnded(_))), "{end}");
    }
}

#[test]
fn a_summary_of_a_run_that_was_stopped_no_longer_counts() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    scene.report(Report::Compacting(CompactionReason::Overflow));
    scene.ask(Command::StopCompaction).unwrap();
    let before = scene.session.state().context_from;
    let compaction = Compaction { summary: "s".into(), kept_from: Seq::new(9), tokens_before: 9 };
    scene.report(Report::Compacted(Box::new(compaction)));
    assert_eq!(scene.session.state().context_from, before);
    assert_eq!(scene.phase(), Phase::Running);
}

#[test]
fn a_session_that_is_opened_again_is_as_new() {
    let mut scene = Scene::open();
    scene.ask(Command::Rename { name: "old".into() }).unwrap();
    let adjustment =
        Adjustment { thinking: Some("high".into()), unloaded: Some(true), ..Adjustment::default() };
    scene.ask(Command::Adjust(Box::new(adjustment))).unwrap();
    let opening = Opening { cwd: "/other".into(), ..Opening::default() };
    scene.ask(Command::Reopen(Box::new(opening.clone()))).unwrap();
    let state = scene.session.state();
    assert_eq!((state.opening.as_ref(), state.name.as_ref()), (Some(&opening), None));
    assert_eq!((state.version, state.context_from), (0, state.last_seq));
    assert_eq!(state.adjusted, Adjustment::default());
    scene.prompt("one").unwrap();
    assert_eq!(scene.ask(Command::Reopen(Box::default())), Err(Refusal::RunActive));
}

#[test]
fn a_session_that_is_opened_again_inherits_no_approval_and_no_message() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    scene.report(Report::Said("said".into()));
    scene.remember = Some("rule".into());
    let call = scene.call(Some(1));
    scene.vote_with(Decision::Approve, None, Lasting::Session).unwrap();
    scene.settle(call, Purpose::Work, 0);
    scene.finish(Outcome::Success);
    let before = scene.session.state();
    assert!(!before.granted.is_empty() && !before.ledger.is_empty() && before.last_run.is_some());
    scene.ask(Command::Reopen(Box::new(Opening { cwd: "/other".into(), ..Opening::default() }))).unwrap();
    let state = scene.session.state();
    assert!(state.granted.is_empty() && state.queue.is_empty() && state.ledger.is_empty());
    assert_eq!((state.last_text.as_str(), state.last_message.as_str()), ("", ""));
    assert_eq!((state.last_run.as_ref(), state.phase()), (None, Phase::Idle));
    // The same key is a new message.
    scene.prompt("one").unwrap();
    assert_eq!(scene.granted, Vec::<String>::new());
}

#[test]
fn a_session_that_is_loaded_is_not_unloaded_any_more() {
    let mut scene = Scene::open();
    let unloaded = Adjustment { unloaded: Some(true), ..Adjustment::default() };
    scene.ask(Command::Adjust(Box::new(unloaded))).unwrap();
    assert_eq!(scene.session.snapshot().adjusted.unloaded, Some(true));
    scene.ask(Command::Load).unwrap();
    assert_eq!(scene.session.snapshot().adjusted.unloaded, None);
}

#[test]
fn a_run_keeps_its_provider_and_takes_everything_else() {
    let mut scene = Scene::open();
    let adjust = |scene: &mut Scene, adjustment| scene.ask(Command::Adjust(Box::new(adjustment))).unwrap();
    let to = |provider: Option<&str>, model: Option<&str>, thinking: Option<&str>| Adjustment {
        provider: provider.map(Into::into),
        model: model.map(Into::into),
        thinking: thinking.map(Into::into),
        ..Adjustment::default()
    };
    adjust(&mut scene, to(Some("p"), Some("m"), None));
    adjust(&mut scene, Adjustment::default());
    assert_eq!(version(&scene), 1, "nothing changes nothing");
    scene.prompt("one").unwrap();
    adjust(&mut scene, to(None, Some("n"), Some("high")));
    let voice = |scene: &Scene| scene.session.state().run.as_ref().unwrap().voice.clone();
    assert_eq!(voice(&scene).model.as_deref(), Some("n"));
    adjust(&mut scene, to(Some("q"), None, Some("low")));
    let now = voice(&scene);
    assert_eq!(
        (now.provider.as_str(), now.model.as_deref(), now.thinking.as_deref()),
        ("p", Some("n"), Some("low"))
    );
    scene.finish(Outcome::Success);
    scene.prompt("two").unwrap();
    assert_eq!((voice(&scene).provider.as_str(), voice(&scene).model), ("q", None));
}

#[test]
fn a_conversation_goes_back_only_to_where_it_has_been() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    let branch = |until, from| Command::Branch(Branch { until: Seq::new(until), from: Seq::new(from) });
    assert_eq!(scene.ask(branch(1, 1)), Err(Refusal::RunActive));
    scene.finish(Outcome::Success);
    let newest = scene.session.state().last_seq.number();
    for (until, from) in [(newest + 1, 1), (1, 2), (1, 0), (0, newest + 2)] {
        assert_eq!(scene.ask(branch(until, from)), Err(Refusal::UnknownPosition), "{until} {from}");
    }
    assert_eq!(scene.ask(branch(2, 1)), Ok(Answer::Branched));
    assert_eq!(scene.session.state().context_from, Seq::new(1));
    assert_eq!(scene.ask(branch(0, newest)), Ok(Answer::Branched));
}

#[test]
fn what_is_taken_in_is_over_bounded_and_causes_nothing() {
    let mut scene = Scene::open();
    let run = |number: usize, text: String| {
        Imported::Run(ImportedRun {
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
        scene.ask(Command::Import(Box::new(Import { turns, ..Import::default() }))),
        Ok(Answer::Imported)
    );
    assert_eq!((scene.turns, scene.executed, scene.phase()), (0, 0, Phase::Completed));
    assert_eq!((scene.kinds.len(), version(&scene)), (5, 0), "a load or a branch comes with it, and counts");
    let long =
        Import { turns: vec![run(3, "x".repeat(Limits::default().import_bytes + 1))], ..Import::default() };
    assert_eq!(scene.ask(Command::Import(Box::new(long))), Err(Refusal::TooMuch));
    let many = (0..=Limits::default().import_steps).map(|number| run(number, String::new())).collect();
    assert_eq!(
        scene.ask(Command::Import(Box::new(Import { turns: many, ..Import::default() }))),
        Err(Refusal::TooMuch)
    );
    assert_eq!(scene.kinds.len(), 5, "all of it or nothing");
    scene.prompt("three").unwrap();
    let import = Command::Import(Box::default());
    assert_eq!(scene.ask(import), Err(Refusal::RunActive));
}

#[test]
fn a_question_is_answered_dismissed_or_runs_out_and_the_run_goes_on() {
    let mut scene = Scene::open();
    scene.prompt("one").unwrap();
    scene.form = Some(Json::new(r#"{"method":"input"}"#));
    scene.denial = Denial::Dismissed;
    scene.call(Some(1));
    assert_eq!(scene.vote("ann", Decision::Approve, None), Err(Refusal::AnswerNeeded));
    assert_eq!(answer(&mut scene, Decision::Deny, Some("\"x\"")), Err(Refusal::UnknownAnswer));
    assert_eq!(answer(&mut scene, Decision::Approve, Some("\"blue\"")), Ok(Answer::Decided));
    assert_eq!(settled(&scene), (Ending::Done, "\"blue\"".to_owned(), None));
    scene.call(Some(1));
    assert_eq!(answer(&mut scene, Decision::Deny, None), Ok(Answer::Decided));
    assert_eq!(settled(&scene), (Ending::Failed, String::new(), Some("DISMISSED".to_owned())));
    scene.call(Some(1));
    scene.now = scene.now.after(Limits::default().gate_millis);
    scene.give(Input::Deadline);
    assert_eq!(settled(&scene), (Ending::Failed, String::new(), Some("TIMED_OUT".to_owned())));
    assert_eq!((scene.executed, scene.phase()), (0, Phase::Running));
    scene.form = None;
    scene.call(Some(1));
    assert_eq!(answer(&mut scene, Decision::Approve, Some("1")), Err(Refusal::UnknownAnswer));
}

fn version(scene: &Scene) -> u64 {
    scene.session.state().version
}

fn compact() -> Command {
    Command::Compact { instructions: None }
}

fn aside_command(name: &str) -> Command {
    let (call, tool, args) = (CallId::new(name), "tool".into(), Json::new("{}"));
    Command::Aside(Box::new(Aside { call, tool, args, told: true }))
}

fn aside(scene: &mut Scene, name: &str) -> CallId {
    let before = version(scene);
    assert_eq!(scene.ask(aside_command(name)), Ok(Answer::AsideBegan(CallId::new(name))));
    assert_eq!(version(scene), before, "whoever asked counts it when it has succeeded");
    CallId::new(name)
}

fn settle(scene: &mut Scene, call: &CallId, ending: Ending) {
    let settlement = Settlement {
        call: call.clone(),
        tool: "tool".into(),
        purpose: Purpose::Work,
        millis: 1,
        ending,
        exit_code: None,
        text: String::new(),
        fault: None,
    };
    let report = AsideReport::Settled(Box::new(settlement));
    scene.give(Input::AsideReport { call: call.clone(), report });
}

fn answer(scene: &mut Scene, decision: Decision, answer: Option<&str>) -> Reply {
    let (gate, answer) = (scene.gate.clone(), answer.map(Json::new));
    let (choice, comment, lasting) = (None, None, Lasting::Once);
    let vote = Decide { gate, run: None, decision, choice, comment, lasting, answer };
    scene.ask_as("ann", Command::Decide(Box::new(vote)))
}

fn settled(scene: &Scene) -> (Ending, String, Option<String>) {
    scene.last(|kind| match kind {
        EventKind::CallSettled(settlement) => {
            let fault = settlement.fault.as_ref().map(|fault| fault.kind.clone());
            Some((settlement.ending, settlement.text.clone(), fault))
        }
        _ => None,
    })
}
