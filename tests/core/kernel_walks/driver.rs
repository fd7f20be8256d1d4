//! The driver of a walk: reports of providers and tools, and commands of users.

use super::*;

impl Walk {
    /// Schedules the report for an effect.
    pub(super) fn schedule_report(&mut self, effect: Effect, what: &str) {
        let (run, report) = match effect {
            Effect::RequestTurn(turn) => (turn.run.clone(), self.provider_report()),
            Effect::RunCheck { run, index, criterion: _ } => {
                (run, Report::CallRequested(Box::new(self.call(Purpose::Check(index)))))
            }
            Effect::Execute { run, intention, approved_digest: bound } => {
                let times = self.executed.entry(intention.call.clone()).or_default();
                *times += 1;
                assert_eq!(
                    bound,
                    self.approval_digests.get(&intention.call).cloned().flatten(),
                    "not what was asked, {what}"
                );
                assert!(*times <= self.allowed[&intention.call], "executed without being asked to, {what}");
                assert!(!self.forms.contains(&intention.call), "a question was executed, {what}");
                let ending = if self.random.one_in(3) { ToolOutcome::Failed } else { ToolOutcome::Succeeded };
                (run, Report::CallSettled(Box::new(call_result(intention.call.clone(), intention.purpose, ending))))
            }
            Effect::StopRun(run) => {
                let left = self.random.one_in(9).then(|| "pid 1".to_owned());
                (run, Report::Stopped { survivors: left })
            }
            Effect::StoreGrant { rule, .. } => {
                assert!(rule.starts_with("rule-"), "{what}");
                return;
            }
            other => return self.schedule_outside_run_report(other, what),
        };
        if matches!(report, Report::CompactionStarted(_)) {
            let kept_from = self.last_seq;
            let done = match self.random.below(3) {
                0 => Report::CompactionFailed { message: "no".into(), will_retry: self.random.one_in(2) },
                _ => {
                    let (summary, tokens_before) = ("s".into(), 9);
                    Report::Compacted(Box::new(Compaction { summary, kept_from, tokens_before }))
                }
            };
            self.pending_inputs.push(Input::Report { run: run.clone(), report: done });
        }
        if matches!(report, Report::RetryStarted(_)) && self.random.one_in(2) {
            let succeeded = self.random.one_in(2);
            let over = Report::RetryEnded { succeeded, attempt: 1, message: None };
            self.pending_inputs.push(Input::Report { run: run.clone(), report: over });
        }
        if matches!(report, Report::CallRequested(_) | Report::CompactionStarted(_) | Report::RetryStarted(_)) {
            self.pending_inputs.push(Input::Report { run: run.clone(), report: Report::TurnDone });
        }
        if matches!(report, Report::CallRequested(_) | Report::Finished(_)) && self.random.one_in(2) {
            let taken = Report::TurnUsage(Box::new(turn_usage(self.random.below(9))));
            self.pending_inputs.push(Input::Report { run: run.clone(), report: taken });
        }
        self.pending_inputs.push(Input::Report { run, report });
    }

    pub(super) fn provider_report(&mut self) -> Report {
        match self.random.below(7) {
            0 if self.random.one_in(2) => Report::CompactionStarted(CompactionReason::Threshold),
            6 if self.random.one_in(2) => Report::RetryStarted(Box::new(Retry {
                attempt: 1 + self.random.below(3) as u32,
                max_attempts: 3,
                pause_millis: 5,
                message: "not there".into(),
            })),
            0 => Report::TurnDone,
            1 => Report::Finished(Box::new(finish(RunOutcome::Failed))),
            2 => Report::Finished(Box::new(finish(RunOutcome::Success))),
            _ => Report::CallRequested(Box::new(self.call(Purpose::Work))),
        }
    }

    pub(super) fn call(&mut self, purpose: Purpose) -> CallRequest {
        let call = CallId::new(format!("call-{}", self.next_id()));
        let of_budget = self.random.one_in(3);
        let details = match self.random.below(3) {
            0 => r#"{"of":"turns"}"#,
            1 => r#"{"of":"tokens"}"#,
            _ => "{}",
        };
        let resource = self.random.pick(&BudgetResource::ALL).copied().filter(|_| of_budget);
        let quorum = self.quorum();
        let ask = (purpose == Purpose::Work && self.random.one_in(2)).then(|| GateRequest {
            gate: GateId::new(format!("gate-{}", self.next_id())),
            subject: match resource {
                Some(resource) => RequestSubject::Budget(resource),
                None if self.random.one_in(3) => {
                    RequestSubject::Form { kind: "ask".into(), form: Json::new("{\"method\":\"input\"}") }
                }
                None => RequestSubject::ToolCall { kind: "exec".into() },
            },
            title: "t".into(),
            summary: "s".into(),
            details: Json::new(details),
            choices: if of_budget { gate::budget_choices() } else { Vec::new() },
            quorum,
            grant_rule: (!of_budget && self.random.one_in(2)).then(|| format!("rule-{}", self.random.below(5))),
            digest: self.random.one_in(2).then(|| format!("digest-{}", self.random.below(9))),
            on_denial: if of_budget || self.random.one_in(2) {
                DenialEffect::EndRun
            } else {
                DenialEffect::InformModel
            },
            timeout_millis: self.random.one_in(3).then_some(7),
            policy_comment: self.random.one_in(2).then(|| "why".into()),
        });
        let intention = Intention { call, tool: "tool".into(), args: Json::new("{}"), purpose };
        let before = match ask {
            Some(ask) => Precondition::Ask(Box::new(ask)),
            None if purpose == Purpose::Work && self.random.one_in(9) => {
                let (kind, message) = ("e".into(), "m".into());
                Precondition::Refuse(Box::new(ToolError { kind, retryable: false, message, detail: None }))
            }
            None => Precondition::Nothing,
        };
        CallRequest { intention, precondition: before }
    }

    pub(super) fn prompt(&mut self) -> Prompt {
        let criterion = Criterion { id: "c".into(), check: "true".into(), exit_code: 0, description: None };
        Prompt {
            run: RunId::new(format!("run-{}", self.next_id())),
            message: self.message(),
            text: "do it".into(),
            images: self.images(),
            criteria: vec![criterion; self.random.below(3) as usize],
            time_limit: self.random.one_in(4).then_some(40),
            budget: Budget { cost: self.random.one_in(3).then_some(9), turns: None, tokens: Some(7) },
            rules: self.random.one_in(3).then(|| "rule".to_owned()).into_iter().collect(),
            needs_environment: self.random.one_in(2),
            fingerprint: Fingerprint(u128::from(self.random.below(2))),
        }
    }

    pub(super) fn message(&mut self) -> MessageId {
        MessageId::new(format!("msg-{}", self.random.below(9)))
    }

    pub(super) fn vote(&mut self) -> GateVote {
        let open: Vec<_> = self.session.state().gates.keys().cloned().collect();
        let gates = if self.random.one_in(4) { &self.gates } else { &open };
        let gate = self.random.pick(gates).cloned().unwrap_or_else(|| GateId::new("gate-unknown"));
        let choice =
            self.random.pick(&["run_again", "skip", "raise", "stop", "other"]).map(|choice| (*choice).to_owned());
        GateVote {
            gate,
            run: if self.random.one_in(3) { self.some_run() } else { None },
            decision: if self.random.one_in(3) { Decision::Deny } else { Decision::Approve },
            choice: if self.random.one_in(2) { choice } else { None },
            comment: self.random.one_in(2).then(|| "why".to_owned()),
            scope: [ApprovalScope::Once, ApprovalScope::Run, ApprovalScope::Session, ApprovalScope::Always]
                [if self.random.one_in(2) { 0 } else { self.random.below(4) as usize }],
            rule: self.random.one_in(4).then(|| "allow: exec".to_owned()),
            answer: self.random.one_in(3).then(|| Json::new("\"blue\"")),
        }
    }

    pub(super) fn some_run(&mut self) -> Option<RunId> {
        self.random.pick(&self.runs).cloned()
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

pub(super) fn turn_usage(number: u64) -> TurnUsage {
    let used = TokenUsage {
        input: number,
        output: 1,
        cache_read: 2,
        cache_write: 3,
        cost: Some(number),
        ..TokenUsage::default()
    };
    let pending = vec![PendingCall { tool: "t".into(), args: Json::new("{}") }];
    TurnUsage { model: "m".into(), usage: used, provider_state: Some("c".into()), pending }
}

pub(super) fn finish(outcome: RunOutcome) -> FinishReport {
    FinishReport { outcome, reason: None, summary: "over".into(), error: None }
}

pub(super) fn call_result(call: CallId, purpose: Purpose, ending: ToolOutcome) -> CallResult {
    CallResult {
        call,
        tool: "tool".into(),
        purpose,
        millis: 1,
        outcome: ending,
        exit_code: Some(i32::from(ending == ToolOutcome::Failed)),
        text: String::new(),
        error: None,
        diff: None,
    }
}
