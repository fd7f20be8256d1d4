//! Conversion of a conversation into a kernel import.

use super::*;
use crate::kernel::event::{Image, ToolOutcome};
use crate::kernel::id::{CallId, MessageId, RunId, Seq};
use crate::kernel::import::{ContextStart, ImportedPart, ImportedRun, Provenance};

/// Generates sequential ids.
#[derive(Default)]
struct CountingIds(u32);

impl CountingIds {
    fn next<T: From<String>>(&mut self, prefix: &str) -> T {
        self.0 += 1;
        T::from(format!("{prefix}{}", self.0))
    }
}

impl IdGenerator for CountingIds {
    fn run(&mut self) -> RunId {
        self.next("run")
    }

    fn message(&mut self) -> MessageId {
        self.next("msg")
    }

    fn assistant_message(&mut self) -> MessageId {
        self.next("said")
    }

    fn call(&mut self) -> CallId {
        self.next("call")
    }
}

fn import_messages(messages: Vec<Message>) -> ImportResult {
    let entry = |(index, message)| Entry {
        id: format!("e{index}"),
        parent: None,
        at: Now(1),
        change: Change::Message(message),
    };
    let entries: Vec<_> = messages.into_iter().enumerate().map(entry).collect();
    import(&entries, &|_| None, &mut CountingIds::default())
}

fn user(text: &str) -> Message {
    Message::User(User { content: vec![Content::Text(text.into())], at: Now(1) })
}

fn assistant(blocks: Vec<Block>) -> Message {
    let Some(Change::Message(Message::Assistant(mut answer))) =
        every_entry().into_iter().nth(4).map(|entry| entry.change)
    else {
        panic!("the fifth entry is an assistant message")
    };
    answer.blocks = blocks;
    Message::Assistant(answer)
}

fn call(id: &str) -> Block {
    let args = crate::kernel::id::Json::new(r#"{"a":1}"#);
    Block::ToolCall { id: id.into(), name: format!("tool-{id}"), args }
}

fn result(id: &str, text: &str, is_error: bool) -> Message {
    Message::ToolResult(Box::new(ToolResult {
        call: id.into(),
        tool: "x".into(),
        content: vec![Content::Text(text.into())],
        details: None,
        is_error,
        at: Now(1),
    }))
}

fn run(part: &ImportedPart) -> &ImportedRun {
    let ImportedPart::Run(run) = part else { panic!("{part:?}") };
    run
}

#[test]
fn a_user_message_and_its_turns_become_one_run() {
    let ImportResult { import, omitted: left_out } = import_messages(vec![
        user("do it"),
        assistant(vec![Block::Thinking("hm".into()), Block::Text("first".into()), call("1"), call("2")]),
        result("2", "two", false),
        result("1", "one", true),
        assistant(vec![Block::Text("done".into()), Block::Text("so".into())]),
        user("again"),
        assistant(vec![call("1")]),
    ]);
    assert_eq!((import.parts.len(), left_out), (2, 0));
    let first = run(&import.parts[0]);
    assert_eq!((first.text.as_str(), first.turns.len()), ("do it", 2));
    let turn = &first.turns[0];
    assert_eq!((turn.thinking.as_str(), turn.text.as_str()), ("hm", "first"));
    let calls: Vec<_> = turn.calls.iter().map(|call| (call.tool.as_str(), call.text.as_str(), call.outcome)).collect();
    assert_eq!(calls, [("tool-1", "one", ToolOutcome::Failed), ("tool-2", "two", ToolOutcome::Succeeded)]);
    assert_eq!(first.turns[1].text, "done\nso");
    let used = turn.usage.usage;
    assert_eq!((turn.usage.model.as_str(), used.input, used.output), ("claude", 8, 2));
    assert_eq!((used.cache_read, used.cache_write, used.cost), (3, 4, Some(750_000)));
    // The last call has no result.
    let last = &run(&import.parts[1]).turns[0].calls[0];
    assert_eq!((last.outcome, last.text.as_str()), (ToolOutcome::Aborted, ""));
    let mut names = vec![first.run.to_string(), run(&import.parts[1]).run.to_string()];
    names.extend(turn.calls.iter().map(|call| call.call.to_string()));
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 4, "every id is unique");
}

#[test]
fn a_result_is_assigned_to_its_unresolved_call() {
    let import = import_messages(vec![
        result("1", "before any run", false),
        user("do it"),
        assistant(vec![call("1")]),
        result("1", "a", false),
        assistant(vec![call("1")]),
        result("1", "b", false),
        result("1", "nobody asked", false),
        user("next"),
        result("1", "too late", false),
    ]);
    assert_eq!(import.omitted, 3);
    let texts: Vec<_> = run(&import.import.parts[0]).turns.iter().map(|turn| turn.calls[0].text.as_str()).collect();
    assert_eq!(texts, ["a", "b"]);
}

#[test]
fn entries_before_a_compaction_are_imported_and_a_split_run_continues() {
    let lines = [
        HEADER.to_owned(),
        super::user("a", None, "old"),
        r#"{"type":"message","id":"b","parentId":"a","message":{"role":"assistant","content":"kept","model":"m"}}"#
            .to_owned(),
        r#"{"type":"compaction","id":"c","parentId":"b","summary":"sum","firstKeptEntryId":"b","tokensBefore":9}"#
            .to_owned(),
        r#"{"type":"message","id":"d","parentId":"c","timestamp":"2026-02-28T10:00:05.000Z","message":{"role":"assistant","content":"more","model":"m","timestamp":1772272804000}}"#
            .to_owned(),
        super::user("e", Some("d"), "new"),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let stored = read(&lines).unwrap();
    let imported = import(stored.branch(), &|_| None, &mut CountingIds::default());
    let turns = &imported.import.parts;
    let source = |at, entry: &str| Provenance { at, entry: Some(entry.to_owned()) };
    assert_eq!((run(&turns[0]).text.as_str(), run(&turns[0]).turns[0].text.as_str()), ("old", "kept"));
    assert_eq!(run(&turns[0]).source, source(Some(Now(1_772_272_801_000)), "a"));
    assert_eq!(run(&turns[0]).turns[0].source, source(None, "b"));
    let kept = ContextStart::Entry("b".into());
    let summary =
        ImportedPart::Summary { text: "sum".into(), tokens_before: 9, context_start: kept, source: source(None, "c") };
    assert_eq!(turns[1], summary);
    assert_eq!((run(&turns[2]).text.as_str(), run(&turns[2]).turns[0].text.as_str()), (CONTINUATION_TEXT, "more"));
    let at = Some(Now(1_772_272_804_000));
    assert_eq!((&run(&turns[2]).source, &run(&turns[2]).turns[0].source), (&source(at, ""), &source(at, "d")));
    assert_eq!((run(&turns[3]).text.as_str(), turns.len()), ("new", 4));
    let known = import(stored.branch(), &|entry| (entry == "b").then(|| Seq::new(7)), &mut CountingIds::default());
    let ImportedPart::Summary { context_start: kept, .. } = &known.import.parts[1] else { panic!("{known:?}") };
    assert_eq!(*kept, ContextStart::Event(Seq::new(7)));
}

const CONTINUATION_TEXT: &str = "(the conversation goes on)";

#[test]
fn user_commands_are_imported_outside_the_runs() {
    let bash = |exit_code, cancelled, excluded| {
        Message::Bash(Box::new(Bash {
            command: "echo \"é\"".into(),
            output: "out".into(),
            exit_code,
            cancelled,
            truncated: false,
            full_output: None,
            excluded,
            at: Now(1),
        }))
    };
    let ImportResult { import, .. } = import_messages(vec![
        user("one"),
        bash(Some(0), false, false),
        bash(Some(3), false, true),
        bash(None, true, false),
        bash(Some(1 << 40), false, false),
    ]);
    let asides: Vec<_> = import.parts[1..]
        .iter()
        .map(|part| {
            let ImportedPart::UserCommand { call, in_context } = part else { panic!("{part:?}") };
            assert_eq!((call.tool.as_str(), call.args.as_str()), ("sandbox_exec", "{\"command\":\"echo \\\"é\\\"\"}"));
            assert_eq!(call.text, "out");
            (call.outcome, call.exit_code, *in_context)
        })
        .collect();
    assert_eq!(
        asides,
        [
            (ToolOutcome::Succeeded, Some(0), true),
            (ToolOutcome::Failed, Some(3), false),
            (ToolOutcome::Aborted, None, true),
            (ToolOutcome::Failed, None, true),
        ]
    );
}

#[test]
fn extension_messages_and_branch_summaries_are_imported_as_user_messages() {
    let ImportResult { import, .. } = import_messages(vec![
        Message::Custom(Custom {
            kind: "k".into(),
            content: vec![Content::Text("mind this".into())],
            display: false,
            at: Now(1),
        }),
        Message::BranchSummary(BranchSummary { summary: "left".into(), from: "a".into(), at: Now(1) }),
        assistant(vec![Block::Text("well".into())]),
    ]);
    assert_eq!(run(&import.parts[0]).text, "mind this");
    let second = run(&import.parts[1]);
    assert_eq!((second.text.as_str(), second.turns.len()), ("(of another branch)\nleft", 1));
}

#[test]
fn empty_turns_are_skipped() {
    let ImportResult { import, omitted: left_out } = import_messages(vec![user("one"), assistant(Vec::new())]);
    assert_eq!((run(&import.parts[0]).turns.len(), left_out), (0, 0));
    assert_eq!(import_messages(vec![assistant(Vec::new())]).import.parts, []);
}

#[test]
fn only_valid_images_within_the_limits_are_imported() {
    let image = |mime: &str, data: &str| Content::Image { mime: mime.into(), data: data.into() };
    let of = |content: Vec<Content>| {
        let imported = import_messages(vec![Message::User(User { content, at: Now(1) })]);
        (run(&imported.import.parts[0]).images.len(), imported.omitted)
    };
    let good = || image("image/png", "AAA=");
    assert_eq!(of(vec![good(), Content::Text("x".into()), good()]), (2, 0));
    for bad in [
        image("text/html", "AAAA"),
        image("image/", "AAAA"),
        image("image/png\"><script>", "AAAA"),
        image("image/png", ""),
        image("image/png", "===="),
        image("image/png", "AAA"),
        image("image/png", "A==="),
        image("image/png", "AA\nA"),
        image("image/png", "<a>="),
    ] {
        assert_eq!(of(vec![bad.clone(), good()]), (1, 1), "{bad:?}");
    }
    assert_eq!(of(vec![good(); 22]), (20, 2));
    let large = || image("image/png", &"A".repeat(5 << 20));
    assert_eq!(of(vec![large(), large(), good()]), (2, 1));
    let kept = import_messages(vec![Message::User(User { content: vec![good()], at: Now(1) })]);
    assert_eq!(run(&kept.import.parts[0]).images, [Image { mime: "image/png".into(), data: "AAA=".into() }]);
}

#[test]
fn images_of_a_tool_result_are_counted_and_omitted() {
    let Message::ToolResult(mut shown) = result("1", "text", false) else { panic!("a result") };
    shown.content.push(Content::Image { mime: "image/png".into(), data: "AAAA".into() });
    let imported = import_messages(vec![user("x"), assistant(vec![call("1")]), Message::ToolResult(shown)]);
    assert_eq!(imported.omitted, 1);
    assert_eq!(run(&imported.import.parts[0]).turns[0].calls[0].text, "text\n(1 images are omitted)");
}

#[test]
fn long_texts_are_truncated_at_a_word_boundary() {
    let limit = 256 << 10;
    let begins = "é ".repeat((limit - 20) / 3);
    let long = format!("{begins}secret-{}", "x".repeat(100));
    let imported = import_messages(vec![
        user(&long),
        assistant(vec![Block::Text("y".repeat(limit + 1)), call("1")]),
        result("1", &"z ".repeat(limit / 2), false),
    ]);
    assert_eq!(imported.omitted, 2);
    let run = run(&imported.import.parts[0]);
    let kept = begins.trim_end();
    assert_eq!(run.text, format!("{kept}\n({} bytes are omitted)", long.len() - kept.len()));
    assert_eq!(run.turns[0].text, format!("\n({} bytes are omitted)", limit + 1), "one long word is left out");
    assert_eq!(run.turns[0].calls[0].text.len(), limit, "what fits is kept");
    let args = crate::kernel::id::Json::new(format!("{{\"a\":\"{}\"}}", "x".repeat(limit)));
    let block = Block::ToolCall { id: "1".into(), name: "x".into(), args };
    let imported = self::import_messages(vec![assistant(vec![block])]);
    let args = &self::run(&imported.import.parts[0]).turns[0].calls[0].args;
    assert_eq!(args.as_str(), format!("{{\"left_out\":\"{} bytes\"}}", limit + 8));
}
