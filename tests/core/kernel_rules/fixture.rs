//! A session with a clock, and the recorded effects of its inputs.

use super::*;

/// A session, and the part of a driver that a scenario needs.
pub(crate) struct Fixture {
    pub(crate) session: Session,
    pub(crate) now: Now,
    pub(crate) kinds: Vec<EventKind>,
    pub(crate) events: Vec<pushd::kernel::event::Event>,
    pub(crate) private: Vec<PrivateEvent>,
    pub(crate) reserved: Seq,
    pub(crate) executed: u32,
    pub(crate) turns: u32,
    pub(crate) last_id: u64,
    pub(crate) gate: GateId,
    /// The rule that the next gate offers to grant, and the effect of its denial.
    pub(crate) remember: Option<String>,
    pub(crate) denial_effect: DenialEffect,
    /// The comment with which the policy of the run denies the next gate.
    pub(crate) policy_comment: Option<String>,
    /// The form of the next gate.
    pub(crate) form: Option<Json>,
    /// The only participants that vote on the next standing gate.
    pub(crate) eligible: Option<std::collections::BTreeSet<pushd::kernel::id::ParticipantId>>,
    /// The started user commands.
    pub(crate) user_commands: Vec<String>,
    /// The rules that were remembered for the repository.
    pub(crate) remembered_rules: Vec<String>,
    /// The granted rules of the last turn.
    pub(crate) granted_rules: Vec<String>,
}

impl Fixture {
    pub(crate) fn open() -> Self {
        let mut fixture = Self::new();
        fixture.send(Command::Open(Box::default())).unwrap();
        fixture
    }

    /// Creates a session without events.
    pub(crate) fn new() -> Self {
        Self {
            session: Session::new(Limits::default()),
            now: Now(1),
            kinds: Vec::new(),
            events: Vec::new(),
            private: Vec::new(),
            reserved: Seq::ZERO,
            executed: 0,
            turns: 0,
            last_id: 0,
            gate: GateId::new("none"),
            remember: None,
            denial_effect: DenialEffect::EndRun,
            policy_comment: None,
            form: None,
            eligible: None,
            user_commands: Vec::new(),
            remembered_rules: Vec::new(),
            granted_rules: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, command: Command) -> Reply {
        self.send_as("owner", command)
    }

    pub(crate) fn send_as(&mut self, source: &str, command: Command) -> Reply {
        let caller = Caller::owner(ConnectionId(1), source.into());
        self.apply(Input::Command { ticket: Ticket(0), caller, command, if_version: None }).expect("an answer")
    }

    pub(crate) fn apply(&mut self, input: Input) -> Option<Reply> {
        let mut reply = None;
        for effect in self.session.apply(input, self.now) {
            match effect {
                Effect::Persist(event) => {
                    self.kinds.push(event.kind.clone());
                    self.events.push(event);
                }
                Effect::Reserve(end) => self.reserved = end,
                Effect::Reply(_, answer, _) => reply = Some(answer),
                Effect::EmitTo(_, private) => self.private.push(private),
                Effect::Execute { .. } => self.executed += 1,
                Effect::ExecuteUserCommand(intention) => self.user_commands.push(intention.call.as_str().to_owned()),
                Effect::RequestTurn(turn) => {
                    self.turns += 1;
                    self.granted_rules = turn.granted;
                }
                Effect::StoreGrant { rule, by: _ } => self.remembered_rules.push(rule),
                _ => {}
            }
        }
        reply
    }

    pub(crate) fn message(&mut self, id: &str) -> Prompt {
        self.last_id += 1;
        Prompt {
            run: RunId::new(format!("run-{}", self.last_id)),
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
        self.send(Command::Prompt(Box::new(message)))
    }

    pub(crate) fn cancel(&mut self) -> Reply {
        self.send(Command::Cancel { run: None, reason: "enough".into() })
    }

    pub(crate) fn run(&self) -> RunId {
        self.session.state().run.as_ref().expect("an active run").id.clone()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.session.state().phase()
    }

    pub(crate) fn report(&mut self, report: Report) {
        let run = self.run();
        self.apply(Input::Report { run, report });
    }

    /// The provider requests a tool call, behind a gate when `needed` gives its quorum.
    pub(crate) fn call(&mut self, needed: Option<u32>) -> CallId {
        let call = self.request_call(Purpose::Work, needed);
        self.report(Report::TurnDone);
        call
    }

    pub(crate) fn request_call(&mut self, purpose: Purpose, needed: Option<u32>) -> CallId {
        self.last_id += 1;
        let call = CallId::new(format!("call-{}", self.last_id));
        self.gate = GateId::new(format!("gate-{}", self.last_id));
        let ask = needed.map(|needed| GateRequest {
            gate: self.gate.clone(),
            subject: match self.form.clone() {
                Some(form) => RequestSubject::Form { kind: "exec".into(), form },
                None => RequestSubject::ToolCall { kind: "exec".into() },
            },
            title: "t".into(),
            summary: "s".into(),
            details: Json::new("{}"),
            choices: Vec::new(),
            quorum: Quorum::Any(needed),
            grant_rule: self.remember.clone(),
            digest: Some("digest".into()),
            on_denial: self.denial_effect,
            timeout_millis: None,
            policy_comment: self.policy_comment.clone(),
        });
        let intention = Intention { call: call.clone(), tool: "tool".into(), args: Json::new("{}"), purpose };
        self.report(Report::CallRequested(Box::new(CallRequest { intention, precondition: precondition(ask) })));
        call
    }

    /// The provider finds its budget exhausted and opens a gate.
    pub(crate) fn request_budget(&mut self) -> CallId {
        self.last_id += 1;
        let call = CallId::new(format!("call-{}", self.last_id));
        self.gate = GateId::new(format!("gate-{}", self.last_id));
        let ask = Some(GateRequest {
            gate: self.gate.clone(),
            subject: RequestSubject::Budget(BudgetResource::Turns),
            title: "t".into(),
            summary: "s".into(),
            details: Json::new("{\"limit\":2,\"of\":\"turns\"}"),
            choices: gate::budget_choices(),
            quorum: Quorum::Any(1),
            grant_rule: None,
            digest: None,
            on_denial: DenialEffect::EndRun,
            timeout_millis: None,
            policy_comment: None,
        });
        let (tool, args) = ("tool".into(), Json::new("{}"));
        let intention = Intention { call: call.clone(), tool, args, purpose: Purpose::Work };
        self.report(Report::CallRequested(Box::new(CallRequest { intention, precondition: precondition(ask) })));
        self.report(Report::TurnDone);
        call
    }

    pub(crate) fn settle(&mut self, call: CallId, purpose: Purpose, exit_code: i32) {
        self.report(Report::CallSettled(Box::new(CallResult {
            call,
            tool: "tool".into(),
            purpose,
            millis: 1,
            outcome: if exit_code == 0 { ToolOutcome::Succeeded } else { ToolOutcome::Failed },
            exit_code: Some(exit_code),
            text: String::new(),
            error: None,
            diff: None,
        })));
    }

    /// Votes with a reason and a scope.
    pub(crate) fn vote_with(&mut self, decision: Decision, comment: Option<&str>, lasting: ApprovalScope) -> Reply {
        let (gate, comment) = (self.gate.clone(), comment.map(str::to_owned));
        let vote =
            GateVote { gate, run: None, decision, choice: None, comment, scope: lasting, rule: None, answer: None };
        self.send_as("ann", Command::Decide(Box::new(vote)))
    }

    pub(crate) fn vote(&mut self, who: &str, decision: Decision, choice: Option<&str>) -> Reply {
        let (gate, choice) = (self.gate.clone(), choice.map(str::to_owned));
        let vote = GateVote {
            gate,
            run: None,
            decision,
            choice,
            comment: None,
            scope: ApprovalScope::Once,
            rule: None,
            answer: None,
        };
        self.send_as(who, Command::Decide(Box::new(vote)))
    }

    pub(crate) fn stopped(&mut self) {
        self.report(Report::Stopped { survivors: None });
    }

    pub(crate) fn finish(&mut self, outcome: RunOutcome) {
        self.report(Report::Finished(Box::new(finish(outcome))));
        self.stopped();
    }

    pub(crate) fn crash(&mut self) {
        let limits = Limits::default();
        self.session = Session::restore(limits, State::default(), &self.events, self.reserved, HistoryGaps::default());
        self.executed = 0;
        self.gate = GateId::new("gate-after-crash");
        self.apply(Input::Recovered { gates: vec![self.gate.clone()] });
    }

    pub(crate) fn run_end(&self) -> (RunOutcome, u8) {
        self.last(|kind| match kind {
            EventKind::Run(RunEvent::Ended(report)) => Some((report.outcome, report.exit_code)),
            _ => None,
        })
    }

    pub(crate) fn last<T>(&self, find: impl Fn(&EventKind) -> Option<T>) -> T {
        self.kinds.iter().rev().find_map(find).expect("such an event")
    }
}

pub(crate) fn finish(outcome: RunOutcome) -> FinishReport {
    FinishReport { outcome, reason: None, summary: "over".into(), error: None }
}

pub(crate) fn precondition(ask: Option<GateRequest>) -> Precondition {
    ask.map_or(Precondition::Nothing, |ask| Precondition::Ask(Box::new(ask)))
}
