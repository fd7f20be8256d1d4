//! A session with a clock, and the recorded effects of its inputs.

use super::*;

/// A session, and the part of a driver that a scenario needs.
pub(crate) struct Scene {
    pub(crate) session: Session,
    pub(crate) now: Now,
    pub(crate) kinds: Vec<EventKind>,
    pub(crate) events: Vec<pushd::kernel::event::Event>,
    pub(crate) private: Vec<Private>,
    pub(crate) reserved: Seq,
    pub(crate) executed: u32,
    pub(crate) turns: u32,
    pub(crate) minted: u64,
    pub(crate) gate: GateId,
    /// The rule that the next gate offers to grant, and the effect of its denial.
    pub(crate) remember: Option<String>,
    pub(crate) denial: Denial,
    /// The comment with which the policy of the run denies the next gate.
    pub(crate) policy_comment: Option<String>,
    /// The form of the next gate.
    pub(crate) form: Option<Json>,
    /// The started user commands.
    pub(crate) asides: Vec<String>,
    /// The rules that were remembered for the repository.
    pub(crate) kept: Vec<String>,
    /// The granted rules of the last turn.
    pub(crate) granted: Vec<String>,
}

impl Scene {
    pub(crate) fn open() -> Self {
        let mut scene = Self {
            session: Session::new(Limits::default()),
            now: Now(1),
            kinds: Vec::new(),
            events: Vec::new(),
            private: Vec::new(),
            reserved: Seq::ZERO,
            executed: 0,
            turns: 0,
            minted: 0,
            gate: GateId::new("none"),
            remember: None,
            denial: Denial::Ends,
            policy_comment: None,
            form: None,
            asides: Vec::new(),
            kept: Vec::new(),
            granted: Vec::new(),
        };
        scene.ask(Command::Open(Box::default())).unwrap();
        scene
    }

    pub(crate) fn ask(&mut self, command: Command) -> Reply {
        self.ask_as("owner", command)
    }

    pub(crate) fn ask_as(&mut self, source: &str, command: Command) -> Reply {
        let caller = Caller { id: ParticipantId(1), source: source.into(), rights: Rights::ALL };
        self.give(Input::Command { ticket: Ticket(0), caller, command, if_version: None }).expect("an answer")
    }

    pub(crate) fn give(&mut self, input: Input) -> Option<Reply> {
        let mut reply = None;
        for effect in self.session.apply(input, self.now) {
            match effect {
                Effect::Persist(event) => {
                    self.kinds.push(event.kind.clone());
                    self.events.push(event);
                }
                Effect::Reserve(end) => self.reserved = end,
                Effect::Reply(_, answer, _) => reply = Some(answer),
                Effect::ShowTo(_, private) => self.private.push(private),
                Effect::Execute { .. } => self.executed += 1,
                Effect::Aside(intention) => self.asides.push(intention.call.as_str().to_owned()),
                Effect::Turn(turn) => {
                    self.turns += 1;
                    self.granted = turn.granted;
                }
                Effect::Remember { rule, by: _ } => self.kept.push(rule),
                _ => {}
            }
        }
        reply
    }

    pub(crate) fn message(&mut self, id: &str) -> Prompt {
        self.minted += 1;
        Prompt {
            run: RunId::new(format!("run-{}", self.minted)),
            message: MessageId::new(id),
            text: id.into(),
            images: Vec::new(),
            criteria: Vec::new(),
            time_limit: None,
            budget: Budget::default(),
            rules: Vec::new(),
            needs_environment: false,
            fingerprint: Fingerprint(7),
        }
    }

    pub(crate) fn prompt(&mut self, id: &str) -> Reply {
        let message = self.message(id);
        self.ask(Command::Prompt(Box::new(message)))
    }

    pub(crate) fn cancel(&mut self) -> Reply {
        self.ask(Command::Cancel { run: None, reason: "enough".into() })
    }

    pub(crate) fn run(&self) -> RunId {
        self.session.state().run.as_ref().expect("an active run").id.clone()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.session.state().phase()
    }

    pub(crate) fn report(&mut self, report: Report) {
        let run = self.run();
        self.give(Input::Report { run, report });
    }

    /// The provider requests a tool call, behind a gate when `needed` gives its quorum.
    pub(crate) fn call(&mut self, needed: Option<u32>) -> CallId {
        let call = self.intend(Purpose::Work, needed);
        self.report(Report::TurnDone);
        call
    }

    pub(crate) fn intend(&mut self, purpose: Purpose, needed: Option<u32>) -> CallId {
        self.minted += 1;
        let call = CallId::new(format!("call-{}", self.minted));
        self.gate = GateId::new(format!("gate-{}", self.minted));
        let ask = needed.map(|needed| Ask {
            gate: self.gate.clone(),
            kind: "exec".into(),
            title: "t".into(),
            summary: "s".into(),
            details: Json::new("{}"),
            choices: Vec::new(),
            needed,
            remember: self.remember.clone(),
            digest: Some("digest".into()),
            denial: self.denial,
            form: self.form.clone(),
            millis: None,
            policy_comment: self.policy_comment.clone(),
        });
        let intention = Intention { call: call.clone(), tool: "tool".into(), args: Json::new("{}"), purpose };
        self.report(Report::Call(Box::new(CallRequest { intention, before: before(ask) })));
        call
    }

    /// The provider finds its budget exhausted and opens a gate.
    pub(crate) fn ask_for_more(&mut self) -> CallId {
        self.minted += 1;
        let call = CallId::new(format!("call-{}", self.minted));
        self.gate = GateId::new(format!("gate-{}", self.minted));
        let ask = Some(Ask {
            gate: self.gate.clone(),
            kind: gate::BUDGET.into(),
            title: "t".into(),
            summary: "s".into(),
            details: Json::new("{\"limit\":2,\"of\":\"turns\"}"),
            choices: gate::budget_choices(),
            needed: 1,
            remember: None,
            digest: None,
            denial: Denial::Ends,
            form: None,
            millis: None,
            policy_comment: None,
        });
        let (tool, args) = ("tool".into(), Json::new("{}"));
        let intention = Intention { call: call.clone(), tool, args, purpose: Purpose::Work };
        self.report(Report::Call(Box::new(CallRequest { intention, before: before(ask) })));
        self.report(Report::TurnDone);
        call
    }

    pub(crate) fn settle(&mut self, call: CallId, purpose: Purpose, exit_code: i32) {
        self.report(Report::Settled(Box::new(Settlement {
            call,
            tool: "tool".into(),
            purpose,
            millis: 1,
            ending: if exit_code == 0 { Ending::Done } else { Ending::Failed },
            exit_code: Some(exit_code),
            text: String::new(),
            fault: None,
        })));
    }

    /// Votes with a reason and a scope.
    pub(crate) fn vote_with(&mut self, decision: Decision, comment: Option<&str>, lasting: Lasting) -> Reply {
        let (gate, comment) = (self.gate.clone(), comment.map(str::to_owned));
        let vote = Decide { gate, run: None, decision, choice: None, comment, lasting, answer: None };
        self.ask_as("ann", Command::Decide(Box::new(vote)))
    }

    pub(crate) fn vote(&mut self, who: &str, decision: Decision, choice: Option<&str>) -> Reply {
        let (gate, choice) = (self.gate.clone(), choice.map(str::to_owned));
        let vote =
            Decide { gate, run: None, decision, choice, comment: None, lasting: Lasting::Once, answer: None };
        self.ask_as(who, Command::Decide(Box::new(vote)))
    }

    pub(crate) fn stopped(&mut self) {
        self.report(Report::Stopped { left: None });
    }

    pub(crate) fn finish(&mut self, outcome: Outcome) {
        self.report(Report::Finished(Box::new(finish(outcome))));
        self.stopped();
    }

    pub(crate) fn crash(&mut self) {
        let limits = Limits::default();
        self.session =
            Session::restore(limits, State::default(), &self.events, self.reserved, Missing::default());
        self.executed = 0;
        self.gate = GateId::new("gate-after-crash");
        self.give(Input::Recovered { gates: vec![self.gate.clone()] });
    }

    pub(crate) fn ended(&self) -> (Outcome, u8) {
        self.last(|kind| match kind {
            EventKind::RunEnded(report) => Some((report.outcome, report.exit_code)),
            _ => None,
        })
    }

    pub(crate) fn last<T>(&self, find: impl Fn(&EventKind) -> Option<T>) -> T {
        self.kinds.iter().rev().find_map(find).expect("such an event")
    }
}

pub(crate) fn finish(outcome: Outcome) -> Finish {
    Finish { outcome, reason: None, summary: "over".into(), fault: None }
}

pub(crate) fn before(ask: Option<Ask>) -> Before {
    ask.map_or(Before::Nothing, |ask| Before::Ask(Box::new(ask)))
}
