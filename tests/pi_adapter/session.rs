//! A session that does what sessions do, at random: runs, turns, calls, questions, interruptions.

use pushd::kernel::event::Event;
use serde_json::{Value, json};

use crate::random::Random;
use crate::scene::Scene;

/// A session that is being made up.
pub(crate) struct Session<'a> {
    scene: Scene,
    random: &'a mut Random,
    events: Vec<Event>,
    run: Option<String>,
    /// Whether the model is speaking, and whether its turn was taken.
    speaking: bool,
    interrupted: bool,
    /// Which calls are not settled: their names, and whether they were started.
    calls: Vec<(String, bool)>,
    /// How many calls wait for those before them.
    pending: usize,
    gate: Option<(String, String)>,
    aside: Option<String>,
    queued: Vec<String>,
    next: u64,
}

impl<'a> Session<'a> {
    /// Makes up a history of so many steps.
    pub(crate) fn walk(random: &'a mut Random, steps: usize) -> Vec<Event> {
        let mut session = Session {
            scene: Scene::default(),
            random,
            events: Vec::new(),
            run: None,
            speaking: false,
            interrupted: false,
            calls: Vec::new(),
            pending: 0,
            gate: None,
            aside: None,
            queued: Vec::new(),
            next: 0,
        };
        session.outside("session_started", json!({}));
        for _ in 0..steps {
            session.step();
        }
        session.events
    }

    fn step(&mut self) {
        match self.random.below(14) {
            0 => self.beside(),
            1 => self.show(),
            _ if self.run.is_none() => self.between(),
            _ if self.gate.is_some() => self.answer(),
            _ if !self.calls.is_empty() => self.work(),
            2 => self.end(),
            3 => self.steer(),
            4 => self.trouble(),
            _ => self.model(),
        }
    }

    /// What happens while no run is active.
    fn between(&mut self) {
        match self.random.below(8) {
            0 => {
                let until = self.random.below(self.events.len() as u64 + 1);
                self.outside("session_branched", json!({ "untilSeq": until, "fromSeq": 0 }));
            }
            1 => self.compact(None, "manual"),
            2 => self.outside("session_adjusted", json!({ "provider": "openai", "model": "g" })),
            _ => {
                let (run, message) = match self.queued.pop() {
                    Some(run) => (run.clone(), format!("m-{run}")),
                    None => (self.name("r"), self.name("m")),
                };
                self.run = Some(run);
                let text = self.words();
                self.inside("user_message", json!({ "messageId": message, "text": text }));
            }
        }
    }

    fn model(&mut self) {
        if !self.speaking && self.pending > 0 {
            return self.intend();
        }
        let text = self.words();
        match self.random.below(8) {
            0..=2 => {
                self.speaking = true;
                self.inside("assistant_token", json!({ "text": text }));
            }
            3 if !self.speaking => self.inside("thinking_token", json!({ "text": text })),
            4 if !self.speaking => {
                // A provider that takes no turns.
                self.intend();
            }
            _ => self.take_turn(),
        }
    }

    fn take_turn(&mut self) {
        if std::mem::take(&mut self.speaking) {
            self.inside("assistant_done", json!({ "messageId": "a" }));
        }
        let calls = if std::mem::take(&mut self.interrupted) { 0 } else { self.random.below(4) as usize };
        let wanted: Vec<Value> = (0..calls).map(|_| json!({ "toolName": "x", "args": { "n": 1 } })).collect();
        let pending = if calls > 1 { wanted } else { Vec::new() };
        self.pending = pending.len();
        let tokens = self.random.below(50);
        self.inside("usage", json!({ "inputTokens": tokens, "pending": pending }));
        if calls > 0 {
            self.intend();
        }
    }

    fn intend(&mut self) {
        let call = self.name("c");
        self.pending = self.pending.saturating_sub(1);
        self.inside("tool_call", json!({ "toolName": "x", "callId": call, "args": { "n": 1 } }));
        match self.random.below(5) {
            0 => {
                let gate = self.name("g");
                let form = ["select", "input", "editor", "confirm", "interview"];
                let form = form[self.random.below(5) as usize];
                let mut payload = json!({ "approvalId": gate, "callId": call });
                match self.random.below(3) {
                    0 => payload["form"] = json!({ "method": form, "options": ["A"] }),
                    1 => payload["choices"] = json!(["raise", "stop"]),
                    _ => {}
                }
                self.inside("approval_required", payload);
                self.calls.push((call.clone(), false));
                self.gate = Some((gate, call));
            }
            1 => self.settle(&call, "failed"),
            _ => {
                self.begin(&call);
                self.calls.push((call, true));
            }
        }
    }

    fn answer(&mut self) {
        let Some((gate, call)) = self.gate.clone() else { return };
        if self.random.one_in(3) {
            return self.inside("approval_vote", json!({ "approvalId": gate, "by": self.next.to_string() }));
        }
        self.gate = None;
        self.inside("approval_received", json!({ "approvalId": gate }));
        self.begin(&call);
        self.calls.iter_mut().filter(|(name, _)| *name == call).for_each(|(_, started)| *started = true);
    }

    fn work(&mut self) {
        let (call, _) = self.calls[self.random.below(self.calls.len() as u64) as usize].clone();
        match self.random.below(6) {
            0..=2 => {
                let text = self.words();
                self.inside("tool_output", json!({ "callId": call, "text": text }));
            }
            3 => self.steer(),
            4 => self.end(),
            _ => {
                self.calls.retain(|(name, _)| *name != call);
                self.settle(&call, "done");
            }
        }
    }

    fn steer(&mut self) {
        self.pending = 0;
        self.interrupted = self.speaking;
        let (message, text) = (self.name("m"), self.words());
        self.inside("user_message", json!({ "messageId": message, "text": text, "delivery": "steer" }));
    }

    fn trouble(&mut self) {
        match self.random.below(4) {
            0 => {
                self.speaking = false;
                self.inside("warning", json!({ "code": "MODEL_TURN_INTERRUPTED", "message": "unsaid: it broke" }));
                self.inside("usage", json!({}));
            }
            1 if !self.speaking => self.compact(self.run.clone(), "overflow"),
            2 => {
                let retry = json!({ "attempt": 1, "maxAttempts": 3, "delayMs": 5, "message": "down" });
                self.inside("retry_started", retry);
                self.inside("retry_ended", json!({ "succeeded": true, "attempt": 1 }));
            }
            _ => self.inside("status", json!({ "phase": "thinking" })),
        }
    }

    /// A command of the user's, which goes on beside everything else.
    fn beside(&mut self) {
        let base = json!({ "source": "user", "toolName": "bash" });
        let with = |call: &str, more: Value| {
            let mut payload = base.clone();
            payload["callId"] = json!(call);
            for (name, value) in more.as_object().unwrap() {
                payload[name] = value.clone();
            }
            payload
        };
        match self.aside.take() {
            None => {
                let call = self.name("b");
                self.outside("tool_call", with(&call, json!({ "args": { "command": "ls" } })));
                self.outside("status", json!({ "phase": "started", "detail": "bash", "callId": call }));
                self.aside = Some(call);
            }
            Some(call) if self.random.one_in(2) => {
                self.outside("tool_output", json!({ "callId": call, "text": "x" }));
                self.aside = Some(call);
            }
            Some(call) => {
                let text = self.words();
                self.outside("tool_result", with(&call, json!({ "text": text, "exitCode": 0 })));
            }
        }
    }

    /// What is shown beside the conversation.
    fn show(&mut self) {
        match self.random.below(5) {
            0 => self.outside("session_renamed", json!({ "name": "n" })),
            1 if self.run.is_some() => {
                let run = self.name("r");
                let payload = json!({ "messageId": format!("m-{run}"), "text": "later", "queuedRunId": run });
                self.outside("message_queued", payload);
                self.queued.push(run);
            }
            2 => self.outside("warning", json!({ "code": "X", "message": "careful" })),
            3 => self.outside("session_touched", json!({ "what": "x" })),
            _ => self.outside("error", json!({ "code": "Y", "message": "broken", "retryable": true })),
        }
    }

    fn compact(&mut self, run: Option<String>, reason: &str) {
        let run = run.as_deref();
        let add = |session: &mut Self, kind: &str, payload| {
            let event = session.scene.event(kind, run, payload);
            session.events.push(event);
        };
        add(self, "compaction_started", json!({ "reason": reason }));
        if self.random.one_in(3) {
            return add(self, "compaction_ended", json!({ "ending": "failed", "message": "no" }));
        }
        let kept = self.random.below(self.events.len() as u64 + 2);
        let payload = json!({ "summary": "s", "keptFromSeq": kept, "tokensBefore": 9 });
        add(self, "context_compacted", payload);
    }

    fn end(&mut self) {
        for (call, _) in std::mem::take(&mut self.calls) {
            self.settle(&call, "cut");
        }
        let outcome = ["success", "failed", "cancelled", "denied"][self.random.below(4) as usize];
        self.inside("run_complete", json!({ "outcome": outcome, "summary": "over" }));
        (self.run, self.gate, self.speaking, self.pending) = (None, None, false, 0);
        self.interrupted = false;
    }

    fn begin(&mut self, call: &str) {
        self.inside("status", json!({ "phase": "started", "detail": "x", "callId": call }));
    }

    fn settle(&mut self, call: &str, status: &str) {
        let text = self.words();
        let payload = json!({ "toolName": "x", "callId": call, "text": text, "status": status });
        self.inside("tool_result", payload);
    }

    fn inside(&mut self, kind: &str, payload: Value) {
        let event = self.scene.event(kind, self.run.clone().as_deref(), payload);
        self.events.push(event);
    }

    fn outside(&mut self, kind: &str, payload: Value) {
        let event = self.scene.event(kind, None, payload);
        self.events.push(event);
    }

    fn name(&mut self, kind: &str) -> String {
        self.next += 1;
        format!("{kind}{}", self.next)
    }

    fn words(&mut self) -> String {
        let words = ["one", " two\n", "\"three\"", "\\", "ä🦀", "\u{1b}[0m", "<b>", " "];
        let count = 1 + self.random.below(4);
        (0..count).map(|_| words[self.random.below(words.len() as u64) as usize]).collect()
    }
}
