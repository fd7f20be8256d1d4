//! UI requests: questions to the user, and notifications, statuses and widgets outside the conversation.

use serde_json::{Map, Value};

use super::event_sink::EventSink;
use super::object_writer::ObjectWriter;
use crate::kernel::event::{Decision, GateDecision, GateQuestion};
use crate::kernel::id::{GateId, Seq};
use crate::kernel::time::Now;
use crate::record::json;

/// The severity of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    Info,
    Warning,
    Error,
}

/// The methods that a form may use.
pub(super) const FORM_METHODS: [&str; 5] = ["select", "confirm", "input", "editor", "interview"];

/// Emits a question: as its form says, as a selection if it has choices, otherwise as a confirmation.
pub(super) fn emit_question(question: &GateQuestion, now: Now, out: &mut EventSink) {
    let timeout = question.expires.since(now);
    let form = question.form().and_then(|form| parse_form(form.as_str()));
    emit_request(question.gate.as_str(), out, |event| {
        let event = match form {
            Some((method, fields)) => write_form(event, method, fields, &question.title),
            None if question.choices.is_empty() => {
                event.text("method", "confirm").text("title", &question.title).text("message", &question.summary)
            }
            None => event
                .text("method", "select")
                .text("title", &question.title)
                .text("message", &question.summary)
                .with("options", |out| json::value(out, &question.choices)),
        };
        event.text("kind", &question.kind).json("details", &question.details).number("timeout", timeout).end();
    });
}

/// Parses a form into its method and its other fields.
pub(super) fn parse_form(form: &str) -> Option<(&'static str, Map<String, Value>)> {
    let mut fields: Map<String, Value> = serde_json::from_str(form).ok()?;
    let method = fields.remove("method")?;
    let method = FORM_METHODS.into_iter().find(|form| method == *form)?;
    Some((method, fields))
}

fn write_form<'a>(
    mut event: ObjectWriter<'a>,
    method: &str,
    mut fields: Map<String, Value>,
    title: &str,
) -> ObjectWriter<'a> {
    event = event.text("method", method);
    // The inquiry tool names them `fields`, the protocol `questions`.
    if method == "interview"
        && !fields.contains_key("questions")
        && let Some(questions) = fields.remove("fields")
    {
        fields.insert("questions".to_owned(), questions);
    }
    let named = fields.get("title").and_then(Value::as_str).unwrap_or(title);
    event = event.text("title", named);
    for (name, value) in &fields {
        if !RESERVED_FIELDS.contains(&name.as_str()) {
            event = event.with(name, |out| json::value(out, value));
        }
    }
    // Clients require these lists.
    for (form, name) in [("select", "options"), ("interview", "questions")] {
        if method == form && !fields.get(name).is_some_and(Value::is_array) {
            event = event.raw(name, b"[]");
        }
    }
    event
}

/// Emits the status of a vote that does not settle the question yet.
pub(super) fn emit_vote(gate: &GateId, decision: Decision, by: &str, seq: Seq, out: &mut EventSink) {
    let text = format!("{} by {by}; more votes are required", decision_text(decision));
    status(gate.as_str(), &text, seq, out);
}

/// Emits the decision, for clients that still display the question.
pub(super) fn emit_decision(decision: &GateDecision, seq: Seq, out: &mut EventSink) {
    let text = format!("{} by {}", decision_text(decision.decision), decision.by);
    status(decision.gate.as_str(), &text, seq, out);
}

/// Emits a notification.
pub(super) fn notify(loudness: Severity, message: &str, seq: Seq, out: &mut EventSink) {
    let word = match loudness {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    emit("notify", seq, out, |event| event.text("message", message).text("notifyType", word));
}

/// Emits a status under a key.
pub(super) fn status(key: &str, text: &str, seq: Seq, out: &mut EventSink) {
    emit_keyed("setStatus", key, seq, out, |event| event.text("text", text));
}

/// Emits the working message; an empty one clears it.
pub(super) fn working_message(message: &str, seq: Seq, out: &mut EventSink) {
    emit("setWorkingMessage", seq, out, |event| event.text("message", message));
}

/// Emits the session's title.
pub(super) fn title(title: &str, seq: Seq, out: &mut EventSink) {
    emit("setTitle", seq, out, |event| event.text("title", title));
}

/// Emits a widget of lines below the editor.
pub(super) fn widget(key: &str, lines: &[&str], seq: Seq, out: &mut EventSink) {
    emit_keyed("setWidget", key, seq, out, |event| {
        event.with("content", |out| json::value(out, &lines)).text("placement", "belowEditor")
    });
}

/// Emits a request under a key; the key is part of the request id because one event may set several keys.
fn emit_keyed(
    method: &'static str,
    key: &str,
    seq: Seq,
    out: &mut EventSink,
    rest: impl FnOnce(ObjectWriter<'_>) -> ObjectWriter<'_>,
) {
    if out.is_recording() {
        let id = format!("{method}-{key}-{}", seq.number());
        emit_request(&id, out, |event| rest(event.text("method", method).text("key", key)).end());
    }
}

fn emit(method: &'static str, seq: Seq, out: &mut EventSink, rest: impl FnOnce(ObjectWriter<'_>) -> ObjectWriter<'_>) {
    if out.is_recording() {
        let id = format!("{method}-{}", seq.number());
        emit_request(&id, out, |event| rest(event.text("method", method)).end());
    }
}

fn emit_request(id: &str, out: &mut EventSink, rest: impl FnOnce(ObjectWriter<'_>)) {
    out.emit("extension_ui_request", |event| rest(event.text("requestId", id)));
}

const fn decision_text(decision: Decision) -> &'static str {
    match decision {
        Decision::Approve => "approved",
        Decision::Deny => "denied",
    }
}

/// The fields of a request that a form cannot set.
const RESERVED_FIELDS: [&str; 7] = ["type", "requestId", "method", "title", "kind", "details", "timeout"];
