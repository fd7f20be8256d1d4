//! UI requests: questions to the user, and notifications, statuses and widgets outside the conversation.

use serde_json::{Map, Value};

use super::out::Out;
use super::write::Object;
use crate::kernel::event::{Decision, Question, Verdict};
use crate::kernel::id::{GateId, Seq};
use crate::kernel::time::Now;
use crate::protocol::json;

/// The severity of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loudness {
    Info,
    Warning,
    Error,
}

/// The methods that a form may use.
pub(super) const FORMS: [&str; 5] = ["select", "confirm", "input", "editor", "interview"];

/// Emits a question: as its form says, as a selection if it has choices, otherwise as a confirmation.
pub(super) fn ask(question: &Question, now: Now, out: &mut Out) {
    let timeout = question.expires.since(now);
    let form = question.form.as_ref().and_then(|form| form_of(form.as_str()));
    request(question.gate.as_str(), out, |event| {
        let event = match form {
            Some((method, fields)) => ask_form(event, method, fields, &question.title),
            None if question.choices.is_empty() => event
                .text("method", "confirm")
                .text("title", &question.title)
                .text("message", &question.summary),
            None => event
                .text("method", "select")
                .text("title", &question.title)
                .text("message", &question.summary)
                .with("options", |out| json::value(out, &question.choices)),
        };
        event
            .text("kind", &question.kind)
            .raw("details", question.details.as_str().as_bytes())
            .number("timeout", timeout)
            .end();
    });
}

/// Parses a form into its method and its other fields.
pub(super) fn form_of(form: &str) -> Option<(&'static str, Map<String, Value>)> {
    let mut fields: Map<String, Value> = serde_json::from_str(form).ok()?;
    let method = fields.remove("method")?;
    let method = FORMS.into_iter().find(|form| method == *form)?;
    Some((method, fields))
}

fn ask_form<'a>(
    mut event: Object<'a>,
    method: &str,
    mut fields: Map<String, Value>,
    title: &str,
) -> Object<'a> {
    event = event.text("method", method);
    // The inquiry tool names them `fields`, the protocol `questions`.
    if method == "interview"
        && !fields.contains_key("questions")
        && let Some(asked) = fields.remove("fields")
    {
        fields.insert("questions".to_owned(), asked);
    }
    let named = fields.get("title").and_then(Value::as_str).unwrap_or(title);
    event = event.text("title", named);
    for (name, value) in &fields {
        if !OURS.contains(&name.as_str()) {
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
pub(super) fn voted(gate: &GateId, decision: Decision, by: &str, seq: Seq, out: &mut Out) {
    let text = format!("{} by {by}; more votes are required", word(decision));
    status(gate.as_str(), &text, seq, out);
}

/// Emits the decision, for clients that still display the question.
pub(super) fn settled(verdict: &Verdict, seq: Seq, out: &mut Out) {
    let text = format!("{} by {}", word(verdict.decision), verdict.by);
    status(verdict.gate.as_str(), &text, seq, out);
}

/// Emits a notification.
pub(super) fn notify(loudness: Loudness, message: &str, seq: Seq, out: &mut Out) {
    let word = match loudness {
        Loudness::Info => "info",
        Loudness::Warning => "warning",
        Loudness::Error => "error",
    };
    show("notify", seq, out, |event| event.text("message", message).text("notifyType", word));
}

/// Emits a status under a key.
pub(super) fn status(key: &str, text: &str, seq: Seq, out: &mut Out) {
    show_at("setStatus", key, seq, out, |event| event.text("text", text));
}

/// Emits the working message; an empty one clears it.
pub(super) fn working(message: &str, seq: Seq, out: &mut Out) {
    show("setWorkingMessage", seq, out, |event| event.text("message", message));
}

/// Emits the session's title.
pub(super) fn title(title: &str, seq: Seq, out: &mut Out) {
    show("setTitle", seq, out, |event| event.text("title", title));
}

/// Emits a widget of lines below the editor.
pub(super) fn widget(key: &str, lines: &[&str], seq: Seq, out: &mut Out) {
    show_at("setWidget", key, seq, out, |event| {
        event.with("content", |out| json::value(out, &lines)).text("placement", "belowEditor")
    });
}

/// Emits a request under a key; the key is part of the request id because one event may set several keys.
fn show_at(
    method: &'static str,
    key: &str,
    seq: Seq,
    out: &mut Out,
    rest: impl FnOnce(Object<'_>) -> Object<'_>,
) {
    if out.listens() {
        let id = format!("{method}-{key}-{}", seq.number());
        request(&id, out, |event| rest(event.text("method", method).text("key", key)).end());
    }
}

fn show(method: &'static str, seq: Seq, out: &mut Out, rest: impl FnOnce(Object<'_>) -> Object<'_>) {
    if out.listens() {
        let id = format!("{method}-{}", seq.number());
        request(&id, out, |event| rest(event.text("method", method)).end());
    }
}

fn request(id: &str, out: &mut Out, rest: impl FnOnce(Object<'_>)) {
    out.tell("extension_ui_request", |event| rest(event.text("requestId", id)));
}

const fn word(decision: Decision) -> &'static str {
    match decision {
        Decision::Approve => "approved",
        Decision::Deny => "denied",
    }
}

/// The fields of a request that a form cannot set.
const OURS: [&str; 7] = ["type", "requestId", "method", "title", "kind", "details", "timeout"];
