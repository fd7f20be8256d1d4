//! The driver of a walk: reports of providers and tools, and commands of users.

use super::*;

impl Walk {
    /// Schedules the report for an effect.
    pub(super) fn owe(&mut self, effect: Effect, what: &str) {
        let (run, report) = match effect {
            Effect::Turn(turn) => (turn.run.clone(), self.provider_answer()),
            Effect::Check { run, index, criterion: _ } => {
                (run, Report::Call(Box::new(self.call(Purpose::Check(index)))))
            }
            Effect::Execute { run, intention, bound } => {
                let times = self.executed.entry(intention.call.clone()).or_default();
                *times += 1;
                assert_eq!(
                    bound,
                    self.bound.get(&intention.call).cloned().flatten(),
                    "not what was asked, {what}"
                );
                assert!(*times <= self.allowed[&intention.call], "executed without being asked to, {what}");
                assert!(!self.forms.contains(&intention.call), "a question was executed, {what}");
                let ending = if self.random.one_in(3) { Ending::Failed } else { Ending::Done };
                (
                    run,
                    Report::Settled(Box::new(settlement(intention.call.clone(), intention.purpose, ending))),
                )
            }
            Effect::Stop(run) => {
                let left = self.random.one_in(9).then(|| "pid 1".to_owned());
                (run, Report::Stopped { left })
            }
            Effect::Remember { rule, .. } => {
                assert!(rule.starts_with("rule-"), "{what}");
                return;
            }
            other => return self.owe_beside(other, what),
        };
        if matches!(report, Report::Compacting(_)) {
            let kept_from = self.newest;
            let done = match self.random.below(3) {
                0 => Report::CompactionFailed { message: "no".into(), again: self.random.one_in(2) },
                _ => {
                    let (summary, tokens_before) = ("s".into(), 9);
                    Report::Compacted(Box::new(Compaction { summary, kept_from, tokens_before }))
                }
            };
            self.owed.push(Input::Report { run: run.clone(), report: done });
        }
        if matches!(report, Report::RetryBegan(_)) && self.random.one_in(2) {
            let succeeded = self.random.one_in(2);
            let over = Report::RetryOver { succeeded, attempt: 1, message: None };
            self.owed.push(Input::Report { run: run.clone(), report: over });
        }
        if matches!(report, Report::Call(_) | Report::Compacting(_) | Report::RetryBegan(_)) {
            self.owed.push(Input::Report { run: run.clone(), report: Report::TurnDone });
        }
        if matches!(report, Report::Call(_) | Report::Finished(_)) && self.random.one_in(2) {
            let taken = Report::Taken(Box::new(taken(self.random.below(9))));
            self.owed.push(Input::Report { run: run.clone(), report: taken });
        }
        self.owed.push(Input::Report { run, report });
    }

    pub(super) fn provider_answer(&mut self) -> Report {
        match self.random.below(7) {
            0 if self.random.one_in(2) => Report::Compacting(CompactionReason::Threshold),
            6 if self.random.one_in(2) => Report::RetryBegan(Box::new(Retry {
                attempt: 1 + self.random.below(3) as u32,
                most: 3,
                pause_millis: 5,
                message: "not there".into(),
            })),
            0 => Report::TurnDone,
            1 => Report::Finished(Box::new(finish(Outcome::Failed))),
            2 => Report::Finished(Box::new(finish(Outcome::Success))),
            _ => Report::Call(Box::new(self.call(Purpose::Work))),
        }
    }

    pub(super) fn call(&mut self, purpose: Purpose) -> CallRequest {
        let call = CallId::new(format!("call-{}", self.mint()));
        let of_budget = self.random.one_in(3);
        let details = match self.random.below(3) {
            0 => r#"{"of":"turns"}"#,
            1 => r#"{"of":"tokens"}"#,
            _ => "{}",
        };
        let ask = (purpose == Purpose::Work && self.random.one_in(2)).then(|| Ask {
            gate: GateId::new(format!("gate-{}", self.mint())),
            kind: if of_budget { gate::BUDGET } else { "exec" }.into(),
            title: "t".into(),
            summary: "s".into(),
            details: Json::new(details),
            choices: if of_budget { gate::budget_choices() } else { Vec::new() },
            needed: 1 + self.random.below(2) as u32,
            remember: (!of_budget && self.random.one_in(2)).then(|| format!("rule-{}", self.random.below(5))),
            digest: self.random.one_in(2).then(|| format!("digest-{}", self.random.below(9))),
            denial: if of_budget || self.random.one_in(2) { Denial::Ends } else { Denial::Told },
            form: (!of_budget && self.random.one_in(3)).then(|| Json::new("{\"method\":\"input\"}")),
            millis: self.random.one_in(3).then_some(7),
            policy_comment: self.random.one_in(2).then(|| "why".into()),
        });
        let intention = Intention { call, tool: "tool".into(), args: Json::new("{}"), purpose };
        let before = match ask {
            Some(ask) => Before::Ask(Box::new(ask)),
            None if purpose == Purpose::Work && self.random.one_in(9) => {
                let (kind, message) = ("e".into(), "m".into());
                Before::Refuse(Box::new(Fault { kind, retryable: false, message, detail: None }))
            }
            None => Before::Nothing,
        };
        CallRequest { intention, before }
    }

    pub(super) fn prompt(&mut self) -> Prompt {
        let criterion = Criterion { id: "c".into(), check: "true".into(), exit_code: 0, description: None };
        Prompt {
            run: RunId::new(format!("run-{}", self.mint())),
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

    pub(super) fn vote(&mut self) -> Decide {
        let open: Vec<_> = self.live.state().gates.keys().cloned().collect();
        let gates = if self.random.one_in(4) { &self.gates } else { &open };
        let gate = self.random.pick(gates).cloned().unwrap_or_else(|| GateId::new("gate-unknown"));
        let choice = self
            .random
            .pick(&["run_again", "skip", "raise", "stop", "other"])
            .map(|choice| (*choice).to_owned());
        Decide {
            gate,
            run: if self.random.one_in(3) { self.some_run() } else { None },
            decision: if self.random.one_in(3) { Decision::Deny } else { Decision::Approve },
            choice: if self.random.one_in(2) { choice } else { None },
            comment: self.random.one_in(2).then(|| "why".to_owned()),
            lasting: [Lasting::Once, Lasting::Run, Lasting::Session, Lasting::Always]
                [if self.random.one_in(2) { 0 } else { self.random.below(4) as usize }],
            answer: self.random.one_in(3).then(|| Json::new("\"blue\"")),
        }
    }

    pub(super) fn some_run(&mut self) -> Option<RunId> {
        self.random.pick(&self.runs).cloned()
    }

    pub(super) fn mint(&mut self) -> u64 {
        self.minted += 1;
        self.minted
    }
}

pub(super) fn taken(number: u64) -> Taken {
    let used = Used {
        input: number,
        output: 1,
        cache_read: 2,
        cache_write: 3,
        cost: Some(number),
        ..Used::default()
    };
    let pending = vec![Wanted { tool: "t".into(), args: Json::new("{}") }];
    Taken { model: "m".into(), used, carry: Some("c".into()), pending }
}

pub(super) fn finish(outcome: Outcome) -> Finish {
    Finish { outcome, reason: None, summary: "over".into(), fault: None }
}

pub(super) fn settlement(call: CallId, purpose: Purpose, ending: Ending) -> Settlement {
    Settlement {
        call,
        tool: "tool".into(),
        purpose,
        millis: 1,
        ending,
        exit_code: Some(i32::from(ending == Ending::Failed)),
        text: String::new(),
        fault: None,
    }
}
