//! A message steered into a run is handled before everything that has not started, whatever the provider was about to
//! do.

use pushd::kernel::command::{Caller, Command, Prompt, Steer};
use pushd::kernel::effect::{CallRequest, Effect, Precondition, Report, Ticket, TurnRequest};
use pushd::kernel::event::{Budget, EventKind, Intention, Purpose, RunEvent, ToolEvent};
use pushd::kernel::id::{CallId, ConnectionId, Fingerprint, Json, MessageId, RunId};
use pushd::kernel::limits::Limits;
use pushd::kernel::session::{Input, Session};
use pushd::kernel::time::Now;

#[test]
fn a_tool_call_chosen_before_a_steering_message_is_not_made() {
    let mut run = RunningSession::start();
    run.steer();
    assert_eq!(kinds(&run.report(call())), Vec::<&str>::new());
    let turns = turns(run.report(Report::TurnDone));
    assert_eq!(turns.len(), 1, "the provider is asked again");
    assert_eq!(turns[0].steers.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0]);
    assert_eq!(kinds(&run.report(call())), ["intended", "started"]);
}

#[test]
fn a_text_that_has_not_started_before_a_steering_message_is_dropped() {
    let mut run = RunningSession::start();
    run.steer();
    assert_eq!(kinds(&run.report(Report::TextDelta("late".into()))), Vec::<&str>::new());
    assert_eq!(kinds(&run.report(Report::TextDone(MessageId::new("a")))), Vec::<&str>::new());
    assert_eq!(turns(run.report(Report::TurnDone))[0].steps_done, 0);
}

#[test]
fn a_text_that_has_started_before_a_steering_message_is_completed() {
    let mut run = RunningSession::start();
    assert_eq!(kinds(&run.report(Report::TextDelta("one ".into()))), ["said"]);
    run.steer();
    assert_eq!(kinds(&run.report(Report::TextDelta("two".into()))), ["said"]);
    assert_eq!(kinds(&run.report(Report::TextDone(MessageId::new("a")))), ["done saying"]);
    let turn = turns(run.report(Report::TurnDone)).remove(0);
    assert_eq!((turn.steps_done, turn.steers[0].0), (1, 1));
}

/// A session whose provider is in its first turn.
struct RunningSession(Session);

impl RunningSession {
    fn start() -> Self {
        let mut running = Self(Session::new(Limits::default()));
        running.apply(Command::Open(Box::default()));
        let prompt = Prompt {
            run: run(),
            message: MessageId::new("m"),
            text: "text".into(),
            images: Vec::new(),
            criteria: Vec::new(),
            time_limit: None,
            budget: Budget::default(),
            rules: Vec::new(),
            needs_environment: false,
            fingerprint: Fingerprint(1),
        };
        assert_eq!(turns(running.apply(Command::Prompt(Box::new(prompt)))).len(), 1);
        running
    }

    fn steer(&mut self) {
        let steer = Steer {
            message: MessageId::new("s"),
            text: "first".into(),
            images: Vec::new(),
            fingerprint: Fingerprint(2),
        };
        assert!(turns(self.apply(Command::Steer(Box::new(steer)))).is_empty());
    }

    fn apply(&mut self, command: Command) -> Vec<Effect> {
        let caller = Caller::owner(ConnectionId(1), "cli".into());
        self.0.apply(Input::Command { ticket: Ticket(1), caller, command, if_version: None }, Now(1))
    }

    fn report(&mut self, report: Report) -> Vec<Effect> {
        self.0.apply(Input::Report { run: run(), report }, Now(1))
    }
}

fn run() -> RunId {
    RunId::new("r")
}

fn call() -> Report {
    let intention =
        Intention { call: CallId::new("c"), tool: "t".into(), args: Json::new("{}"), purpose: Purpose::Work };
    Report::CallRequested(Box::new(CallRequest { intention, precondition: Precondition::Nothing }))
}

fn turns(effects: Vec<Effect>) -> Vec<TurnRequest> {
    effects
        .into_iter()
        .filter_map(|effect| if let Effect::RequestTurn(turn) = effect { Some(*turn) } else { None })
        .collect()
}

fn kinds(effects: &[Effect]) -> Vec<&'static str> {
    let kept = effects.iter().filter_map(|effect| if let Effect::Persist(event) = effect { Some(event) } else { None });
    kept.map(|event| {
        let kind = &event.kind;
        let known = [
            (matches!(kind, EventKind::Run(RunEvent::TextDelta { .. })), "said"),
            (matches!(kind, EventKind::Run(RunEvent::TextDone { .. })), "done saying"),
            (matches!(kind, EventKind::Tool(ToolEvent::Intended(_))), "intended"),
            (matches!(kind, EventKind::Tool(ToolEvent::Started { .. })), "started"),
        ];
        known.iter().find(|(is, _)| *is).map_or("something else", |(_, word)| *word)
    })
    .collect()
}
