//! Exported sessions: entries, pages, Markdown and JSON from events, without a daemon.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks at a few kinds of entries")]

use pushd::export::{
    Block, Content, Entry, HtmlRenderer, JsonRenderer, MarkdownRenderer, Renderer, Survey, Timeline, ToolCall,
};
use pushd::kernel::conversation::{self, Conversation, ItemContent};
use pushd::kernel::event::Event;
use serde_json::{Value, json};

use crate::pi_adapter::event_source::EventSource;
use crate::pi_adapter::session::RandomSession;
use crate::support::events::{Events, KINDS, Shape};
use crate::support::random::Random;

/// What a reader sees of a message: its position, its texts and its calls.
type Shown = (u64, Vec<String>);

#[test]
fn entries_are_the_items_of_the_whole_conversation() {
    for seed in 0..200 {
        let events = RandomSession::generate(&mut Random::new(seed), 200);
        let shown: Vec<Shown> = entries(&events).iter().filter_map(shown_entry).collect();
        let mut whole = Conversation::default();
        events.iter().for_each(|event| whole.fold(event));
        let expected: Vec<Shown> = whole.into_rest().iter().filter_map(|item| shown_item(item)).collect();
        assert_eq!(shown, expected, "seed {seed}");
    }
}

#[test]
fn entries_are_in_order_and_no_more_than_one_message_waits() {
    for seed in 0..100 {
        let events = RandomSession::generate(&mut Random::new(seed), 300);
        let survey = survey(&events);
        let mut timeline = Timeline::new(&survey);
        let mut last = 0;
        for event in &events {
            for entry in timeline.add(event) {
                assert!(entry.seq >= last, "seed {seed}: {} after {last}", entry.seq);
                last = entry.seq;
            }
        }
        assert!(timeline.finish().iter().all(|entry| entry.seq >= last), "seed {seed}");
    }
}

#[test]
fn any_history_gives_valid_json_and_a_page_without_foreign_markup() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut source = Events::new(seed, Shape::Anything);
        let events: Vec<Event> = (1..80)
            .map(|seq| Event { seq: pushd::kernel::id::Seq::new(seq), ..source.event(random.below(KINDS)) })
            .collect();
        let json: Value = serde_json::from_str(&document(&events, &mut JsonRenderer::default())).expect("valid JSON");
        assert_eq!(json["format"], "push.export.v1");
        assert_eq!(json["entries"].as_array().unwrap().len(), entries(&events).len(), "seed {seed}");
        assert_no_foreign_markup(&document(&events, &mut HtmlRenderer));
    }
}

#[test]
fn hostile_text_is_escaped_wherever_it_is() {
    for hostile in HOSTILE {
        let page = document(&hostile_history(hostile), &mut HtmlRenderer);
        assert_no_foreign_markup(&page);
    }
}

#[test]
fn a_page_shows_approvals_diffs_usage_and_outcomes() {
    let page = document(&hostile_history("plain"), &mut HtmlRenderer);
    for part in [
        "<div class=\"approval approved\">",
        "approved for this run by cli",
        "<ins>+plain",
        "<details class=\"thinking\">",
        "Run failed",
        "exit code 4",
        "1,200 tokens in, 34 out, $0.0056",
        "1 failed",
        "data:image/png;base64,aGk=",
        "[image: image/svg+xml]",
    ] {
        assert!(page.contains(part), "{part} is missing in {page}");
    }
}

#[test]
fn markdown_is_readable() {
    let text = document(&hostile_history("plain"), &mut MarkdownRenderer);
    for part in [
        "# plain\n",
        "## User (cli), 1970-01-01T00:00:02.000Z\n\nplain\n",
        "```sh\nplain\n```\n",
        "```diff\n",
        "**Run: failed**",
    ] {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
}

#[test]
fn the_json_object_has_the_documented_fields() {
    let json: Value = serde_json::from_str(&document(&hostile_history("plain"), &mut JsonRenderer::default())).unwrap();
    assert_eq!(json["session"]["usage"]["costMicroUsd"], 5600);
    let entries = json["entries"].as_array().unwrap();
    let types: Vec<&str> = entries.iter().map(|entry| entry["content"]["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["user_message", "assistant_message", "notice", "run_ended"]);
    let blocks = &entries[1]["content"]["blocks"];
    assert_eq!(blocks[0], json!({"type": "thinking", "text": "plain"}));
    let call = &blocks[2];
    assert_eq!(
        (&call["type"], &call["args"], &call["exitCode"]),
        (&json!("tool_call"), &json!({"command": "plain"}), &json!(1))
    );
    assert_eq!(call["approvals"][0]["decision"]["by"], "cli");
    assert_eq!(call["diff"]["truncated"], true);
    assert_eq!(
        entries[3]["content"]["checks"][0],
        json!({"id": "plain", "passed": false, "exitCode": 1, "output": "plain"})
    );
}

/// Texts that break out of a careless page.
const HOSTILE: [&str; 8] = [
    "<script>document.title='owned'</script>",
    "</script><script>document.title='owned'</script>",
    "</style><img src=x onerror=\"document.title='owned'\">",
    "\"><svg onload=document.title='owned'>",
    "[x](javascript:document.title='owned') ![y](http://127.0.0.1:1/)",
    "</pre></code></details></article><iframe src=//127.0.0.1>",
    "<!--<script>--><style>*{background:url(//127.0.0.1)}</style>",
    "```html\n</code></pre><script>x</script>\n```\n|<b>|\n|---|\n|<object data=x>|",
];

/// Every element and attribute of a page is one that the renderer writes.
fn assert_no_foreign_markup(page: &str) {
    let body = &page[page.find("<header>").expect("a header")..page.rfind("<script>").expect("a script")];
    for (at, _) in body.match_indices('<') {
        let tag = &body[at + 1..at + body[at..].find('>').expect("a tag ends")];
        let name = tag.trim_start_matches('/').split([' ', '\n']).next().unwrap();
        assert!(ELEMENTS.contains(&name), "an element {name:?} in <{tag}>");
        let is_safe =
            |address: &str| ["#e", "http://", "https://", "mailto:"].iter().any(|start| address.starts_with(start));
        for attribute in tag.split(' ').skip(1).filter_map(|part| part.split_once("=\"")) {
            let (name, value) = attribute;
            assert!(ATTRIBUTES.contains(&name), "an attribute {name:?} in <{tag}>");
            assert!(name != "href" || is_safe(value), "an address {value:?}");
            assert!(name != "src" || value.starts_with("data:image/"), "a source {value:?}");
        }
    }
}

const ELEMENTS: &[&str] = &[
    "a",
    "article",
    "blockquote",
    "br",
    "button",
    "code",
    "dd",
    "del",
    "details",
    "div",
    "dl",
    "dt",
    "em",
    "fieldset",
    "footer",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "img",
    "input",
    "ins",
    "label",
    "legend",
    "li",
    "main",
    "nav",
    "ol",
    "output",
    "p",
    "pre",
    "s",
    "section",
    "span",
    "strong",
    "summary",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "time",
    "tr",
    "ul",
];
const ATTRIBUTES: &[&str] = &[
    "alt",
    "aria-label",
    "autocomplete",
    "class",
    "datetime",
    "for",
    "href",
    "id",
    "name",
    "placeholder",
    "rel",
    "spellcheck",
    "src",
    "start",
    "type",
];

/// A run in which every text is `text`.
pub(crate) fn hostile_history(text: &str) -> Vec<Event> {
    let diff = format!("--- a\n+++ b\n@@ -1 +1 @@\n-{text}\n+{text}");
    let images = json!([{"mimeType": "image/png", "data": "aGk="}, {"mimeType": "image/svg+xml", "data": "aGk="}]);
    let error = json!({"type": text, "message": text, "retryable": false});
    let checks = json!({"total": 1, "passed": 0,
        "results": [{"id": text, "passed": false, "exitCode": 1, "output": text}]});
    let mut source = EventSource::default();
    let mut event =
        |kind: &str, payload| source.event(kind, Some("run_1").filter(|_| kind != "session_started"), payload);
    vec![
        event("session_started", json!({"provider": text, "model": text, "cwd": text, "name": text})),
        event("user_message", json!({"messageId": "m", "text": text, "by": "cli", "images": images})),
        event("thinking_token", json!({"text": text})),
        event("assistant_token", json!({"text": text})),
        event("usage", json!({"model": text, "inputTokens": 1200, "outputTokens": 34, "costMicroUsd": 5600})),
        event("tool_call", json!({"callId": "call_1", "toolName": "exec", "args": {"command": text}})),
        event("approval_required", json!({"approvalId": "appr_1", "callId": "call_1", "title": text, "summary": text})),
        event("approval_received", json!({"approvalId": "appr_1", "scope": "run"})),
        event(
            "tool_result",
            json!({"callId": "call_1", "toolName": "exec", "status": "failed", "isError": true, "exitCode": 1,
            "text": text, "diff": diff, "diffTruncated": true, "structuredError": error}),
        ),
        event("warning", json!({"code": text, "message": text, "detail": text})),
        event(
            "run_complete",
            json!({"outcome": "failed", "summary": text, "reason": text, "headless": {"exitCodeHint": 4},
            "acceptance": checks}),
        ),
    ]
}

fn survey(events: &[Event]) -> Survey {
    let mut survey = Survey::new("sess_1");
    events.iter().for_each(|event| survey.add(event));
    survey
}

fn entries(events: &[Event]) -> Vec<Entry> {
    let survey = survey(events);
    let mut timeline = Timeline::new(&survey);
    let mut entries: Vec<Entry> = events.iter().flat_map(|event| timeline.add(event)).collect();
    entries.extend(timeline.finish());
    entries
}

fn document(events: &[Event], renderer: &mut dyn Renderer) -> String {
    let survey = survey(events);
    let mut out = String::new();
    renderer.begin(&survey, &mut out);
    entries(events).iter().for_each(|entry| renderer.entry(entry, &mut out));
    renderer.end(&survey, &mut out);
    out
}

fn shown_entry(entry: &Entry) -> Option<Shown> {
    let parts = match &entry.content {
        Content::UserMessage { text, .. } => vec![text.clone()],
        Content::UserCommand { call } => vec![call.call_id.clone(), call.title.clone()],
        Content::AssistantMessage { blocks, .. } => blocks.iter().map(shown_block).collect(),
        _ => return None,
    };
    Some((entry.seq, parts))
}

fn shown_block(block: &Block) -> String {
    match block {
        Block::Text { text } | Block::Thinking { text } => text.clone(),
        Block::ToolCall(call) => shown_call(call),
    }
}

fn shown_call(call: &ToolCall) -> String {
    format!("{} {}", call.call_id, call.outcome.is_some())
}

fn shown_item(item: &conversation::Item) -> Option<Shown> {
    let parts = match &item.content {
        ItemContent::UserMessage(message) => vec![message.text.clone()],
        ItemContent::UserCommand(command) => {
            let args: Value = serde_json::from_str(command.intention.args.as_str()).unwrap();
            vec![command.intention.call.as_str().to_owned(), args["command"].as_str().unwrap_or_default().to_owned()]
        }
        ItemContent::LostCall(result) => vec![result.call.as_str().to_owned(), result.tool.clone()],
        ItemContent::AssistantMessage(message) => {
            if message.is_superseded() || !message.has_content() {
                return None;
            }
            let shown = message.blocks.iter().filter(|block| block.is_shown()).map(|block| match block {
                conversation::Block::Thinking(text) => text.clone(),
                conversation::Block::Text(text) => text.text.clone(),
                conversation::Block::Call(call) => {
                    let id = call.request.as_ref().map(|request| request.id.as_str()).unwrap_or_default();
                    let result = call.completion.as_ref().and_then(|completion| completion.result());
                    format!("{id} {}", result.is_some())
                }
            });
            shown.collect()
        }
    };
    Some((item.place().number(), parts))
}
