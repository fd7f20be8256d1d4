//! A random, plausible session: runs, turns, calls, questions, interruptions.

use pushd::kernel::event::Event;
use serde_json::{Value, json};

use crate::pi_adapter::event_source::EventSource;
use crate::support::random::Random;

/// A session that is being generated.
pub(crate) struct RandomSession<'a> {
    source: EventSource,
    random: &'a mut Random,
    events: Vec<Event>,
    run: Option<String>,
    /// Whether the model is streaming, and whether its turn is complete.
    streaming: bool,
    interrupted: bool,
    /// The unsettled calls: their ids, and whether they were started.
    calls: Vec<(String, bool)>,
    /// How many calls wait for earlier ones.
    pending: usize,
    gate: Option<(String, String)>,
    shell_command: Option<String>,
    queued: Vec<String>,
    next: u64,
}

impl<'a> RandomSession<'a> {
    /// Generates a history of this number of steps.
    pub(crate) fn generate(random: &'a mut Random, steps: usize) -> Vec<Event> {
        let mut session = Self {
            source: EventSource::default(),
            random,
            events: Vec::new(),
            run: None,
            streaming: false,
            interrupted: false,
            calls: Vec::new(),
            pending: 0,
            gate: None,
            shell_command: None,
            queued: Vec::new(),
            next: 0,
        };
        session.session_event("session_started", json!({}));
        for _ in 0..steps {
            session.step();
        }
        session.events
    }

    fn step(&mut self) {
        match self.random.below(14) {
            0 => self.user_command(),
            1 => self.show(),
            _ if self.run.is_none() => self.step_between_runs(),
            _ if self.gate.is_some() => self.answer(),
            _ if !self.calls.is_empty() => self.work(),
            2 => self.end(),
            3 => self.steer(),
            4 => self.interrupt(),
            _ => self.model(),
        }
    }

    /// A step while no run is active.
    fn step_between_runs(&mut self) {
        match self.random.below(8) {
            0 => {
                let until = self.random.below(self.events.len() as u64 + 1);
                self.session_event("session_branched", json!({ "untilSeq": until, "fromSeq": 0 }));
            }
            1 => self.compact(None, "manual"),
            2 => self.session_event("session_adjusted", json!({ "provider": "openai", "model": "g" })),
            _ => {
                let (run, message) = match self.queued.pop() {
                    Some(run) => (run.clone(), format!("m-{run}")),
                    None => (self.name("r"), self.name("m")),
                };
                self.run = Some(run);
                let text = self.text();
                self.run_event("user_message", json!({ "messageId": message, "text": text }));
            }
        }
    }

    fn model(&mut self) {
        if !self.streaming && self.pending > 0 {
            return self.request_call();
        }
        let text = self.text();
        match self.random.below(8) {
            0..=2 => {
                self.streaming = true;
                self.run_event("assistant_token", json!({ "text": text }));
            }
            3 if !self.streaming => self.run_event("thinking_token", json!({ "text": text })),
            4 if !self.streaming => {
                // A provider without turns.
                self.request_call();
            }
            _ => self.take_turn(),
        }
    }

    fn take_turn(&mut self) {
        if std::mem::take(&mut self.streaming) {
            self.run_event("assistant_done", json!({ "messageId": "a" }));
        }
        let calls = if std::mem::take(&mut self.interrupted) { 0 } else { self.random.below(4) as usize };
        let wanted: Vec<Value> = (0..calls).map(|_| json!({ "toolName": "x", "args": { "n": 1 } })).collect();
        let pending = if calls > 1 { wanted } else { Vec::new() };
        self.pending = pending.len();
        let tokens = self.random.below(50);
        self.run_event("usage", json!({ "inputTokens": tokens, "pending": pending }));
        if calls > 0 {
            self.request_call();
        }
    }

    fn request_call(&mut self) {
        let call = self.name("c");
        self.pending = self.pending.saturating_sub(1);
        self.run_event("tool_call", json!({ "toolName": "x", "callId": call, "args": { "n": 1 } }));
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
                self.run_event("approval_required", payload);
                self.calls.push((call.clone(), false));
                self.gate = Some((gate, call));
            }
            1 => self.settle(&call, "failed"),
            _ => {
                self.start_call(&call);
                self.calls.push((call, true));
            }
        }
    }

    fn answer(&mut self) {
        let Some((gate, call)) = self.gate.clone() else { return };
        if self.random.one_in(3) {
            return self.run_event("approval_vote", json!({ "approvalId": gate, "by": self.next.to_string() }));
        }
        self.gate = None;
        self.run_event("approval_received", json!({ "approvalId": gate }));
        self.start_call(&call);
        self.calls.iter_mut().filter(|(name, _)| *name == call).for_each(|(_, started)| *started = true);
    }

    fn work(&mut self) {
        let (call, _) = self.calls[self.random.below(self.calls.len() as u64) as usize].clone();
        match self.random.below(6) {
            0..=2 => {
                let text = self.text();
                self.run_event("tool_output", json!({ "callId": call, "text": text }));
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
        self.interrupted = self.streaming;
        let (message, text) = (self.name("m"), self.text());
        self.run_event("user_message", json!({ "messageId": message, "text": text, "delivery": "steer" }));
    }

    fn interrupt(&mut self) {
        match self.random.below(4) {
            0 => {
                self.streaming = false;
                self.run_event("warning", json!({ "code": "MODEL_TURN_INTERRUPTED", "message": "unsaid: it broke" }));
                self.run_event("usage", json!({}));
            }
            1 if !self.streaming => self.compact(self.run.clone(), "overflow"),
            2 => {
                let retry = json!({ "attempt": 1, "maxAttempts": 3, "delayMs": 5, "message": "down" });
                self.run_event("retry_started", retry);
                self.run_event("retry_ended", json!({ "succeeded": true, "attempt": 1 }));
            }
            _ => self.run_event("status", json!({ "phase": "thinking" })),
        }
    }

    /// A shell command of the user, concurrent with everything else.
    fn user_command(&mut self) {
        let base = json!({ "source": "user", "toolName": "bash" });
        let with = |call: &str, more: Value| {
            let mut payload = base.clone();
            payload["callId"] = json!(call);
            for (name, value) in more.as_object().unwrap() {
                payload[name] = value.clone();
            }
            payload
        };
        match self.shell_command.take() {
            None => {
                let call = self.name("b");
                self.session_event("tool_call", with(&call, json!({ "args": { "command": "ls" } })));
                self.session_event("status", json!({ "phase": "started", "detail": "bash", "callId": call }));
                self.shell_command = Some(call);
            }
            Some(call) if self.random.one_in(2) => {
                self.session_event("tool_output", json!({ "callId": call, "text": "x" }));
                self.shell_command = Some(call);
            }
            Some(call) => {
                let text = self.text();
                self.session_event("tool_result", with(&call, json!({ "text": text, "exitCode": 0 })));
            }
        }
    }

    /// Notices outside the conversation.
    fn show(&mut self) {
        match self.random.below(5) {
            0 => self.session_event("session_renamed", json!({ "name": "n" })),
            1 if self.run.is_some() => {
                let run = self.name("r");
                let payload = json!({ "messageId": format!("m-{run}"), "text": "later", "queuedRunId": run });
                self.session_event("message_queued", payload);
                self.queued.push(run);
            }
            2 => self.session_event("warning", json!({ "code": "X", "message": "careful" })),
            3 => self.session_event("session_touched", json!({ "what": "x" })),
            _ => self.session_event("error", json!({ "code": "Y", "message": "broken", "retryable": true })),
        }
    }

    fn compact(&mut self, run: Option<String>, reason: &str) {
        let run = run.as_deref();
        let add = |session: &mut Self, kind: &str, payload| {
            let event = session.source.event(kind, run, payload);
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
        self.run_event("run_complete", json!({ "outcome": outcome, "summary": "over" }));
        (self.run, self.gate, self.streaming, self.pending) = (None, None, false, 0);
        self.interrupted = false;
    }

    fn start_call(&mut self, call: &str) {
        self.run_event("status", json!({ "phase": "started", "detail": "x", "callId": call }));
    }

    fn settle(&mut self, call: &str, status: &str) {
        let text = self.text();
        let payload = json!({ "toolName": "x", "callId": call, "text": text, "status": status });
        self.run_event("tool_result", payload);
    }

    fn run_event(&mut self, kind: &str, payload: Value) {
        let event = self.source.event(kind, self.run.clone().as_deref(), payload);
        self.events.push(event);
    }

    fn session_event(&mut self, kind: &str, payload: Value) {
        let event = self.source.event(kind, None, payload);
        self.events.push(event);
    }

    fn name(&mut self, kind: &str) -> String {
        self.next += 1;
        format!("{kind}{}", self.next)
    }

    fn text(&mut self) -> String {
        let text = ["one", " two\n", "\"three\"", "\\", "ä🦀", "\u{1b}[0m", "<b>", " "];
        let count = 1 + self.random.below(4);
        (0..count).map(|_| text[self.random.below(text.len() as u64) as usize]).collect()
    }
}
