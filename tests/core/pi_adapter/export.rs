//! The HTML export of a conversation: complete, and safe for any text.

use pushd::kernel::time::Now;
use pushd::protocol::command_protocol::Heading;
use pushd::protocol::pi::projection::{Projection, export_html};
use serde_json::json;

use crate::pi_adapter::event_source::EventSource;

/// Texts that would have an effect in a page without escaping.
const HOSTILE: &[&str] = &[
    "<script>alert(1)</script>",
    "</pre></section><script src=//x></script>",
    "\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "</title><svg/onload=alert(1)>",
    "<!--",
    "]]><![CDATA[",
    "&lt;script&gt;",
    "</style><style>*{display:none}",
    "<meta http-equiv=refresh content=0;url=//x>",
    "javascript:alert(1)",
    "\u{0}<\u{0}script>",
    "\u{202e}drowssap",
    "<ſcript>",
];

#[test]
fn no_text_has_an_effect_in_a_page() {
    for hostile in HOSTILE {
        let page = page_of(hostile);
        let allowed = [
            "!doctype html",
            "html",
            "head",
            "meta",
            "title",
            "style",
            "body",
            "header",
            "h1",
            "p",
            "main",
            "section",
            "h2",
            "pre",
            "details",
            "summary",
            "img",
        ];
        for tag in page.split('<').skip(1) {
            let name = tag.trim_start_matches('/').split(['>', ' ']).next().unwrap();
            let whole = if tag.starts_with('!') { tag.split('>').next().unwrap() } else { name };
            assert!(allowed.contains(&whole), "{hostile:?} became the tag {whole:?}");
        }
        let texts = page.split('>').skip(1).filter_map(|part| part.split('<').next());
        for text in texts {
            assert!(!text.contains(['"', '\'']), "{hostile:?} is written as {text:?}");
        }
        assert_eq!(page.matches("<meta http-equiv").count(), 1, "{hostile:?}");
        assert_eq!(page.matches("<style>").count(), 1, "{hostile:?}");
        assert!(!page.contains('\u{0}') && !page.contains('\u{202e}'), "{hostile:?}");
        for tag in page.split('<').filter_map(|part| part.split_once('>')).map(|(tag, _)| tag) {
            for attribute in tag.split(' ').skip(1).filter_map(|part| part.split_once('=')) {
                let name = attribute.0;
                assert!(
                    ["lang", "charset", "http-equiv", "content", "name", "class", "id", "alt", "src"].contains(&name),
                    "{hostile:?} became the attribute {name:?} of {tag:?}"
                );
            }
        }
    }
}

#[test]
fn the_page_contains_the_whole_conversation() {
    let page = page_of("some <words>");
    assert!(page.contains("default-src 'none'; style-src 'unsafe-inline'; img-src data:"));
    // The name twice and the directory; then the message, the model twice, its thinking, text and arguments, the result, the
    // error, the command, its output and the summary.
    assert_eq!(page.matches("some &lt;words&gt;").count(), 14, "{page}");
    assert!(page.contains("<img alt=\"\" src=\"data:image/png;base64,aGk=\">"));
    assert!(page.contains("[an image of type image/svg+xml]"), "what may hold a script is not shown");
    assert!(!page.contains("PHN2Zz4="));
    assert!(page.contains("<section class=\"compactionSummary\""));
    assert!(page.contains("1970-01-01T00:00:01.000Z"));
    assert!(page.ends_with("</html>\n"));
}

fn page_of(text: &str) -> String {
    let mut source = EventSource::default();
    let mut projection = Projection::default();
    let images = json!([
        { "mimeType": "image/png", "data": "aGk=" },
        { "mimeType": "image/svg+xml", "data": "PHN2Zz4=" },
    ]);
    let mut add = |kind: &str, run: Option<&str>, payload| projection.apply(&source.event(kind, run, payload));
    add("user_message", Some("r"), json!({ "messageId": "m", "text": text, "images": images }));
    add("thinking_token", Some("r"), json!({ "text": text }));
    add("assistant_token", Some("r"), json!({ "text": text }));
    add("usage", Some("r"), json!({ "model": text }));
    add("tool_call", Some("r"), json!({ "toolName": "x", "callId": "c", "args": { "a": text } }));
    add("status", Some("r"), json!({ "phase": "started", "detail": "x", "callId": "c" }));
    add("tool_result", Some("r"), json!({ "toolName": "x", "callId": "c", "text": text }));
    add("run_complete", Some("r"), json!({ "outcome": "failed", "summary": text }));
    let args = json!({ "command": text });
    add("tool_call", None, json!({ "source": "user", "toolName": "bash", "callId": "b", "args": args }));
    add("tool_result", None, json!({ "source": "user", "toolName": "bash", "callId": "b", "text": text }));
    add("context_compacted", None, json!({ "summary": text, "keptFromSeq": 99, "tokensBefore": 9 }));
    let heading = Heading { session: "s".into(), name: Some(text.to_owned()), cwd: text.to_owned(), at: Now(9000) };
    export_html(&projection, &heading)
}
