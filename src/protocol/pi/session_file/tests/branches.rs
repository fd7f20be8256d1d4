//! The active branch of a file and the conversation on it.

use super::*;

#[test]
fn the_active_branch_ends_at_the_last_entry() {
    let stored = read(&[
        HEADER,
        &user("a", None, "root"),
        &user("b", Some("a"), "left 1"),
        &user("c", Some("b"), "left 2"),
        r#"{"type":"branch_summary","id":"d","parentId":"a","fromId":"c","summary":"went left"}"#,
        &user("e", Some("d"), "right"),
    ])
    .unwrap();
    assert_eq!(message_texts(&stored.conversation()), ["root", "branch: went left", "right"]);
    assert_eq!(stored.entries.len(), 5);
    let ids: Vec<&str> = stored.branch().iter().map(|entry| entry.id.as_str()).collect();
    assert_eq!(ids, ["a", "d", "e"]);
}

#[test]
fn a_second_root_starts_a_new_conversation() {
    let stored = read(&[HEADER, &user("a", None, "old"), &user("b", None, "new")]).unwrap();
    assert_eq!(message_texts(&stored.conversation()), ["new"]);
    assert_eq!(message_texts(&read(&[HEADER]).unwrap().conversation()), Vec::<String>::new());
}

#[test]
fn a_cycle_of_parents_is_walked_once() {
    // The parser never returns a cycle, but a caller can build one.
    let entry = |id: &str, parent: &str| Entry {
        id: id.into(),
        parent: Some(parent.into()),
        at: Now(0),
        change: Change::Name(None),
    };
    let mut stored = read(&[HEADER]).unwrap();
    stored.entries = vec![entry("x", "y"), entry("y", "x"), entry("a", "b"), entry("b", "a")];
    let ids: Vec<&str> = stored.branch().iter().map(|entry| entry.id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
}

#[test]
fn a_compaction_summary_replaces_the_earlier_messages() {
    let compaction = |id: &str, parent: &str, kept: &str, summary: &str| {
        format!(
            r#"{{"type":"compaction","id":"{id}","parentId":"{parent}","summary":"{summary}","firstKeptEntryId":"{kept}","tokensBefore":5}}"#
        )
    };
    let lines = [
        HEADER.to_owned(),
        user("a", None, "1"),
        user("b", Some("a"), "2"),
        compaction("c", "b", "b", "first"),
        user("d", Some("c"), "3"),
        user("e", Some("d"), "4"),
    ];
    let conversation = |more: &[String]| {
        let lines: Vec<&str> = lines.iter().chain(more).map(String::as_str).collect();
        let conversation = read(&lines).unwrap().conversation();
        (message_texts(&conversation), conversation.compaction.map(|compacted| compacted.entry))
    };
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    assert_eq!(conversation(&[]), (texts(&["summary: first", "2", "3", "4"]), Some("c".into())));
    // The last compaction applies, and its first kept entry may precede an earlier compaction.
    let last = [compaction("f", "e", "d", "second"), user("g", Some("f"), "5")];
    assert_eq!(conversation(&last), (texts(&["summary: second", "3", "4", "5"]), Some("f".into())));
    let early = [compaction("f", "e", "b", "second")];
    assert_eq!(conversation(&early).0, ["summary: second", "2", "3", "4"]);
    // A compaction whose first kept entry is missing keeps nothing.
    for kept in ["", "nowhere", "f", "g"] {
        let none = [compaction("f", "e", kept, "second"), user("g", Some("f"), "5")];
        assert_eq!(conversation(&none).0, ["summary: second", "5"], "{kept}");
    }
    // A compaction on another branch does not apply.
    let other = [compaction("f", "e", "e", "second"), user("g", Some("a"), "6")];
    assert_eq!(conversation(&other), (texts(&["1", "6"]), None));
}

#[test]
fn the_model_is_the_one_that_was_chosen_or_answered_last() {
    let bytes = render(&Header::new("s", "/p", Now(0)), &every_entry()).unwrap();
    let conversation = parse(&bytes, &Limits::default()).unwrap().conversation();
    assert_eq!(conversation.model, Some(("anthropic".into(), "claude".into())));
    assert_eq!(conversation.thinking.as_deref(), Some("high"));
    let bytes = render(&Header::new("s", "/p", Now(0)), &every_entry()[..3]).unwrap();
    let conversation = parse(&bytes, &Limits::default()).unwrap().conversation();
    assert_eq!(conversation.model, Some(("openai".into(), "gpt".into())));
}
