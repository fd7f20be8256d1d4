//! Rendered files parse to the same value, and files of other programs are accepted.

use super::*;

#[test]
fn a_rendered_file_parses_to_the_same_value() {
    let mut header = Header::new("s-1", "/home/ann/p", Now(1_772_272_800_000));
    header.parent = Some("/home/ann/.pi/agent/sessions/old.jsonl".into());
    let entries = every_entry();
    let bytes = render(&header, &entries).unwrap();
    assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), entries.len() + 1, "one line each");
    let stored = parse(&bytes, &Limits::default()).unwrap();
    assert_eq!(stored.header, header);
    assert_eq!(stored.entries, entries);
    assert_eq!((stored.torn, stored.skipped), (false, 0));
    assert_eq!(stored.leaf(), Some("0000000e"));
    assert_eq!(render(&stored.header, &stored.entries).unwrap(), bytes);
}

#[test]
fn rendered_lines_match_the_format() {
    let bytes = render(&Header::new("s", "/p", Now(0)), &every_entry()[..5]).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..4],
        [
            r#"{"type":"session","version":3,"id":"s","timestamp":"1970-01-01T00:00:00.000Z","cwd":"/p"}"#,
            r#"{"type":"session_info","id":"00000000","parentId":null,"timestamp":"2026-02-28T10:00:00.000Z","name":"Names of things"}"#,
            r#"{"type":"model_change","id":"00000001","parentId":"00000000","timestamp":"2026-02-28T10:00:00.001Z","provider":"openai","modelId":"gpt"}"#,
            r#"{"type":"thinking_level_change","id":"00000002","parentId":"00000001","timestamp":"2026-02-28T10:00:00.002Z","thinkingLevel":"high"}"#,
        ]
    );
    let usage = r#""usage":{"input":1,"output":2,"cacheRead":3,"cacheWrite":4,"totalTokens":10,"cost":{"input":0.25,"output":0.5,"cacheRead":0.0,"cacheWrite":0.0,"total":0.75}},"stopReason":"toolUse""#;
    assert!(lines[5].contains(usage), "{}", lines[5]);
    assert!(lines[5].contains(r#"{"type":"toolCall","id":"c1","name":"read","arguments":{"path":"#));
}

#[test]
fn the_documented_example_is_what_is_written() {
    let page = include_str!("../../../../../docs/session-files.md");
    let examples: Vec<&str> = page.split("```jsonl\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 2);
    for example in examples {
        let stored = parse(example.as_bytes(), &Limits::default()).unwrap();
        assert_eq!((stored.skipped, stored.torn), (0, false));
        let written = render(&stored.header, &stored.entries).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), example);
    }
}

#[test]
fn a_name_is_the_one_that_was_given_last() {
    let named = |entries: &[Entry]| {
        let bytes = render(&Header::new("s", "/p", Now(0)), entries).unwrap();
        let summed = summarize(&bytes, &Limits::default()).unwrap();
        let stored = parse(&bytes, &Limits::default()).unwrap();
        assert_eq!(summed.name.as_deref(), stored.name());
        assert_eq!(summed.header, stored.header);
        stored.name().map(str::to_owned)
    };
    assert_eq!(named(&every_entry()), None);
    assert_eq!(named(&every_entry()[..5]).as_deref(), Some("Names of things"));
    assert_eq!(named(&[]), None);
    let header = HEADER.replace("\"id\"", "\"name\":\"  of\\nthe header \",\"id\"");
    assert_eq!(read(&[&header]).unwrap().name(), Some("ofthe header"));
}

#[test]
fn a_summary_counts_messages_and_ignores_unreadable_lines() {
    let text = format!("{HEADER}\n{}\nnot json\n[1]\n{}", user("a", None, "x"), user("b", None, "y"));
    let summed = summarize(text.as_bytes(), &Limits::default()).unwrap();
    assert_eq!((summed.messages, summed.header.id.as_str()), (2, "s-1"));
    assert_eq!(summarize(b"", &Limits::default()), Err(ParseError::NoHeader));
    assert_eq!(summarize(b"# Notes\n", &Limits::default()), Err(ParseError::NoHeader));
}

#[test]
fn missing_and_differently_typed_fields_are_accepted() {
    let stored = read(&[
        &HEADER.replace("\"cwd\"", "\"somethingNew\":{\"a\":[1]},\"cwd\""),
        r#"{"type":"message","id":"a","message":{"role":"user","content":[{"type":"text","text":"hi"},{"type":"video"},5,{"type":"image","data":"AA","mimeType":"image/gif"}],"timestamp":"2026-02-28T10:00:00Z"}}"#,
        r#"{"type":"message","id":"b","parentId":"a","timestamp":1772272800000,"message":{"role":"assistant","content":"plain","usage":{"input":5,"cost":"free"},"stopReason":"somethingNew"}}"#,
        r#"{"type":"message","id":"c","parentId":"b","message":{"role":"alien","content":[1]}}"#,
        r#"{"type":"label","id":"d","parentId":"c","targetId":"a","label":"here"}"#,
        r#"{"type":"unheard","whatever":1}"#,
        "",
        r#"{"type":"message","id":"e","parentId":"d","message":{"role":"toolResult","isError":"yes","content":null}}"#,
        "  \r",
        r#"{"type":"message","id":"f","parentId":"e","message":{"role":"assistant","content":[{"type":"toolCall","id":"1","name":"x","arguments":[1]},{"type":"toolCall","id":"2","name":"y"}]}}"#,
    ])
    .unwrap();
    assert_eq!(stored.skipped, 5, "a video, a number, an alien, a label, an unheard");
    let messages = stored.conversation().messages;
    let Message::User(first) = &messages[0].message else { panic!("{messages:?}") };
    assert_eq!(first.at, Now(1_772_272_800_000));
    assert_eq!(
        first.content,
        [Content::Text("hi".into()), Content::Image { mime: "image/gif".into(), data: "AA".into() }]
    );
    let Message::Assistant(entry) = &messages[1].message else { panic!("{messages:?}") };
    assert_eq!((entry.usage.input, entry.usage.total, entry.usage.cost), (5, 5, Cost::default()));
    assert_eq!((entry.stop, entry.at), (StopReason::Stop, Now(1_772_272_800_000)));
    assert_eq!(entry.blocks, [Block::Text("plain".into())]);
    let Message::ToolResult(result) = &messages[2].message else { panic!("{messages:?}") };
    assert!(!result.is_error && result.content.is_empty());
    let Message::Assistant(calls) = &messages[3].message else { panic!("{messages:?}") };
    assert!(calls.blocks.iter().all(|block| matches!(block, Block::ToolCall { args, .. } if args.as_str() == "{}")));
}

#[test]
fn the_first_version_is_a_plain_sequence() {
    let stored = read(&[
        r#"{"type":"session","id":"old","timestamp":"2025-11-01T00:00:00Z","cwd":"/p"}"#,
        r#"{"type":"message","message":{"role":"user","content":"one"}}"#,
        r#"{"type":"message","message":{"role":"user","content":"two"}}"#,
        r#"{"type":"compaction","summary":"s","firstKeptEntryIndex":2,"tokensBefore":9}"#,
        r#"{"type":"message","message":{"role":"hookMessage","customType":"h","content":"three"}}"#,
    ])
    .unwrap();
    assert_eq!(stored.header.version, 1);
    assert_eq!(message_texts(&stored.conversation()), ["summary: s", "two", "three"]);
}

#[test]
fn unreadable_entries_are_not_written() {
    let header = Header::new("s", "/p", Now(0));
    let entry = |id: &str, parent: Option<&str>, change| Entry {
        id: id.into(),
        parent: parent.map(str::to_owned),
        at: Now(0),
        change,
    };
    let name = || Change::Name(None);
    let refused = |entries: &[Entry]| render(&header, entries).unwrap_err();
    assert_eq!(refused(&[entry("", None, name())]), WriteError::Id { id: String::new() });
    assert_eq!(refused(&[entry("a", None, name()), entry("a", None, name())]), WriteError::Id { id: "a".into() });
    assert_eq!(refused(&[entry("a", Some("a"), name())]), WriteError::Parent { id: "a".into(), parent: "a".into() });
    let other = Change::Other { kind: "label".into() };
    assert_eq!(refused(&[entry("a", None, other)]), WriteError::Unknown { id: "a".into() });
    for json in ["", "{", "{}{}", "{\n}", "nul"] {
        let args = crate::kernel::id::Json::new(json);
        let block = Block::ToolCall { id: "1".into(), name: "x".into(), args };
        let mut entry = every_entry().swap_remove(4);
        let Change::Message(Message::Assistant(message)) = &mut entry.change else { panic!("{entry:?}") };
        message.blocks = vec![block];
        entry.parent = None;
        assert!(matches!(refused(&[entry]), WriteError::NotJson { .. }), "{json:?}");
    }
}
