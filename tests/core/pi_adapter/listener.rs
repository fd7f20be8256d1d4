//! A client that only receives events: it checks their order and keeps the messages.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::pi_adapter::walks::normalized;

/// The state of a client.
#[derive(Default)]
pub(crate) struct ReceivingClient {
    running: bool,
    in_turn: bool,
    /// The message that is being streamed.
    streaming: Option<Value>,
    ended: Vec<Value>,
    /// The number of complete messages at the start of the run.
    run_from: usize,
    results: Vec<Value>,
    /// The running tools.
    tools: BTreeMap<String, Value>,
    requests: BTreeSet<String>,
    compacting: bool,
}

impl ReceivingClient {
    /// Processes an event; an error says what is wrong with it.
    pub(crate) fn receive(&mut self, event: &Value) -> Result<(), String> {
        let message = &event["message"];
        match event["type"].as_str().unwrap() {
            "agent_start" => {
                expect(!self.running, "a run in a run")?;
                self.running = true;
                self.run_from = self.ended.len();
            }
            "agent_end" => {
                expect(self.running && !self.in_turn, "the end of a run that is under way")?;
                self.running = false;
                let projected: BTreeSet<String> = event["messages"].as_array().unwrap().iter().map(text).collect();
                let received: BTreeSet<String> = self.ended[self.run_from..].iter().map(text).collect();
                expect(
                    projected == received,
                    &format!("of the run's messages {projected:#?} were received {received:#?}"),
                )?;
            }
            "turn_start" => {
                expect(!std::mem::replace(&mut self.in_turn, true), "a turn in a turn")?;
                self.results.clear();
            }
            "turn_end" => {
                expect(std::mem::replace(&mut self.in_turn, false), "the end of no turn")?;
                expect(self.streaming.is_none(), "the end of a turn with an incomplete message")?;
                let results = event["toolResults"].as_array().unwrap();
                expect(*results == self.results, &format!("{results:?} came of {:?}", self.results))?;
            }
            "message_start" => self.start(message)?,
            "message_update" => self.update(message, &event["assistantMessageEvent"])?,
            "message_end" => self.end(message)?,
            name @ ("tool_execution_start" | "tool_execution_update" | "tool_execution_end") => {
                self.use_tool(name, event)?;
            }
            "auto_compaction_start" => {
                expect(!std::mem::replace(&mut self.compacting, true), "a compaction in a compaction")?;
            }
            "auto_compaction_end" => {
                expect(std::mem::replace(&mut self.compacting, false), "the end of no compaction")?;
            }
            "extension_ui_request" => {
                let id = event["requestId"].as_str().unwrap().to_owned();
                expect(self.requests.insert(id.clone()), &format!("two requests are called {id}"))?;
            }
            "auto_retry_start" | "auto_retry_end" => {}
            other => return Err(format!("unknown event {other}")),
        }
        Ok(())
    }

    /// Returns the complete messages.
    pub(crate) fn messages(&self) -> BTreeSet<String> {
        self.ended.iter().map(text).collect()
    }

    fn start(&mut self, message: &Value) -> Result<(), String> {
        expect(self.streaming.is_none(), "a message in a message")?;
        if message["role"] == "assistant" {
            expect(self.running && self.in_turn, "a message of the model outside of a turn")?;
            expect(message["content"] == json!([]), "a message that begins with something in it")?;
        }
        self.streaming = Some(message.clone());
        Ok(())
    }

    /// Processes an update: the previous message with its delta must be the message that it contains.
    fn update(&mut self, message: &Value, event: &Value) -> Result<(), String> {
        let before = self.streaming.as_mut().ok_or("an update of no message")?;
        let at = event["contentIndex"].as_u64().unwrap() as usize;
        let content = before["content"].as_array_mut().unwrap();
        let kind = event["type"].as_str().unwrap();
        match kind {
            "text_start" => content.push(json!({ "type": "text", "text": "" })),
            "thinking_start" => content.push(json!({ "type": "thinking", "thinking": "" })),
            "toolcall_start" => content.push(message["content"][at].clone()),
            "text_delta" | "thinking_delta" => {
                let name = kind.trim_end_matches("_delta");
                let grown = format!("{}{}", content[at][name].as_str().unwrap(), event["delta"].as_str().unwrap());
                content[at][name] = json!(grown);
            }
            "text_end" => expect(content[at]["text"] == event["content"], "a text that ends otherwise")?,
            "thinking_end" => {
                expect(content[at]["thinking"] == event["content"], "a thought that ends otherwise")?;
            }
            "toolcall_end" => expect(content[at] == event["toolCall"], "a call that ends otherwise")?,
            other => return Err(format!("unknown event {other}")),
        }
        expect(at + 1 == content.len(), "an update that is not of the last block")?;
        expect(before["content"] == message["content"], &format!("{message} does not follow from {before}"))
    }

    fn end(&mut self, message: &Value) -> Result<(), String> {
        let started = self.streaming.take().ok_or("the end of no message")?;
        expect(started["role"] == message["role"], "a message that ends as another's")?;
        expect(started["content"] == message["content"], &format!("{started} ends as {message}"))?;
        if message["role"] == "toolResult" {
            self.results.push(message.clone());
        }
        // A partial message that is repeated is not kept.
        let cut = message["errorMessage"].as_str().is_some_and(|why| why.starts_with("unsaid"));
        if !cut {
            self.ended.push(message.clone());
        }
        Ok(())
    }

    fn use_tool(&mut self, name: &str, event: &Value) -> Result<(), String> {
        let id = event["toolCallId"].as_str().unwrap().to_owned();
        if name == "tool_execution_start" {
            // A call with an unknown end may be started again.
            self.tools.insert(id, event["args"].clone());
            return Ok(());
        }
        let args = self.tools.get(&id).ok_or_else(|| format!("{name} of {id}, which was not started"))?;
        if name == "tool_execution_end" {
            self.tools.remove(&id);
            return Ok(());
        }
        expect(*args == event["args"], "a tool that continues with other arguments")
    }
}

fn text(message: &Value) -> String {
    normalized(&message.to_string())
}

fn expect(holds: bool, why: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why.to_owned()) }
}
