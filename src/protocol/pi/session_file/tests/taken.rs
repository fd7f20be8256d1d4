//! Conversion of a conversation into a kernel import.

use super::*;
use crate::kernel::event::{Ending, Image};
use crate::kernel::id::{CallId, MessageId, RunId, Seq};
use crate::kernel::import::{Imported, ImportedRun, Kept, Provenance};

/// Generates sequential ids.
#[derive(Default)]
struct Counted(u32);

impl Counted {
    fn next<T: From<String>>(&mut self, prefix: &str) -> T {
        self.0 += 1;
        T::from(format!("{prefix}{}", self.0))
    }
}

impl Names for Counted {
    fn run(&mut self) -> RunId {
        self.next("run")
    }

    fn message(&mut self) -> MessageId {
        self.next("msg")
    }

    fn said(&mut self) -> MessageId {
        self.next("said")
    }

    fn call(&mut self) -> CallId {
        self.next("call")
    }
}

fn taken(messages: Vec<Message>) -> TakenIn {
    let entry = |(index, message)| Entry {
        id: format!("e{index}"),
        parent: None,
        at: Now(1),
        change: Change::Message(message),
    };
    let entries: Vec<_> = messages.into_iter().enumerate().map(entry).collect();
    import(&entries, &|_| None, &mut Counted::default())
}

fn user(text: &str) -> Message {
    Message::User(User { content: vec![Content::Text(text.into())], at: Now(1) })
}

fn said(blocks: Vec<Block>) -> Message {
    let Some(Change::Message(Message::Assistant(mut said))) =
        all().into_iter().nth(4).map(|entry| entry.change)
    else {
        panic!("the fifth entry is an assistant message")
    };
    said.blocks = blocks;
    Message::Assistant(said)
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

fn run(part: &Imported) -> &ImportedRun {
    let Imported::Run(run) = part else { panic!("{part:?}") };
    run
}

#[test]
fn a_message_and_all_that_came_of_it_is_a_run() {
    let TakenIn { import, left_out } = taken(vec![
        user("do it"),
        said(vec![Block::Thinking("hm".into()), Block::Text("first".into()), call("1"), call("2")]),
        result("2", "two", false),
        result("1", "one", true),
        said(vec![Block::Text("done".into()), Block::Text("so".into())]),
        user("again"),
        said(vec![call("1")]),
    ]);
    assert_eq!((import.turns.len(), left_out), (2, 0));
    let first = run(&import.turns[0]);
    assert_eq!((first.text.as_str(), first.turns.len()), ("do it", 2));
    let turn = &first.turns[0];
    assert_eq!((turn.thought.as_str(), turn.text.as_str()), ("hm", "first"));
    let calls: Vec<_> =
        turn.calls.iter().map(|call| (call.tool.as_str(), call.text.as_str(), call.ending)).collect();
    assert_eq!(calls, [("tool-1", "one", Ending::Failed), ("tool-2", "two", Ending::Done)]);
    assert_eq!(first.turns[1].text, "done\nso");
    let used = turn.taken.used;
    assert_eq!((turn.taken.model.as_str(), used.input, used.output), ("claude", 8, 2));
    assert_eq!((used.cache_read, used.cache_write, used.cost), (3, 4, Some(750_000)));
    // The last call has no result.
    let last = &run(&import.turns[1]).turns[0].calls[0];
    assert_eq!((last.ending, last.text.as_str()), (Ending::Cut, ""));
    let mut names = vec![first.run.to_string(), run(&import.turns[1]).run.to_string()];
    names.extend(turn.calls.iter().map(|call| call.call.to_string()));
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 4, "every id is unique");
}

#[test]
fn a_result_goes_to_the_call_that_waits_for_it() {
    let import = taken(vec![
        result("1", "before any run", false),
        user("do it"),
        said(vec![call("1")]),
        result("1", "a", false),
        said(vec![call("1")]),
        result("1", "b", false),
        result("1", "nobody asked", false),
        user("next"),
        result("1", "too late", false),
    ]);
    assert_eq!(import.left_out, 3);
    let texts: Vec<_> =
        run(&import.import.turns[0]).turns.iter().map(|turn| turn.calls[0].text.as_str()).collect();
    assert_eq!(texts, ["a", "b"]);
}

#[test]
fn the_part_before_a_compaction_is_taken_in_and_a_run_that_it_cut_goes_on() {
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
    let taken = import(stored.branch(), &|_| None, &mut Counted::default());
    let turns = &taken.import.turns;
    let source = |at, entry: &str| Provenance { at, entry: Some(entry.to_owned()) };
    assert_eq!((run(&turns[0]).text.as_str(), run(&turns[0]).turns[0].text.as_str()), ("old", "kept"));
    assert_eq!(run(&turns[0]).source, source(Some(Now(1_772_272_801_000)), "a"));
    assert_eq!(run(&turns[0]).turns[0].source, source(None, "b"));
    let kept = Kept::Entry("b".into());
    let summary = Imported::Summary { text: "sum".into(), tokens_before: 9, kept, source: source(None, "c") };
    assert_eq!(turns[1], summary);
    assert_eq!((run(&turns[2]).text.as_str(), run(&turns[2]).turns[0].text.as_str()), (GOES_ON, "more"));
    let said = Some(Now(1_772_272_804_000));
    assert_eq!(
        (&run(&turns[2]).source, &run(&turns[2]).turns[0].source),
        (&source(said, ""), &source(said, "d"))
    );
    assert_eq!((run(&turns[3]).text.as_str(), turns.len()), ("new", 4));
    let known =
        import(stored.branch(), &|entry| (entry == "b").then(|| Seq::new(7)), &mut Counted::default());
    let Imported::Summary { kept, .. } = &known.import.turns[1] else { panic!("{known:?}") };
    assert_eq!(*kept, Kept::Since(Seq::new(7)));
}

const GOES_ON: &str = "(the conversation goes on)";

#[test]
fn commands_of_the_user_stand_beside_the_runs() {
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
    let TakenIn { import, .. } = taken(vec![
        user("one"),
        bash(Some(0), false, false),
        bash(Some(3), false, true),
        bash(None, true, false),
        bash(Some(1 << 40), false, false),
    ]);
    let asides: Vec<_> = import.turns[1..]
        .iter()
        .map(|part| {
            let Imported::Aside { call, told } = part else { panic!("{part:?}") };
            assert_eq!(
                (call.tool.as_str(), call.args.as_str()),
                ("sandbox_exec", "{\"command\":\"echo \\\"é\\\"\"}")
            );
            assert_eq!(call.text, "out");
            (call.ending, call.exit_code, *told)
        })
        .collect();
    assert_eq!(
        asides,
        [
            (Ending::Done, Some(0), true),
            (Ending::Failed, Some(3), false),
            (Ending::Cut, None, true),
            (Ending::Failed, None, true),
        ]
    );
}

#[test]
fn words_of_extensions_and_other_branches_are_told_as_messages() {
    let TakenIn { import, .. } = taken(vec![
        Message::Custom(Custom {
            kind: "k".into(),
            content: vec![Content::Text("mind this".into())],
            display: false,
            at: Now(1),
        }),
        Message::BranchSummary(BranchSummary { summary: "left".into(), from: "a".into(), at: Now(1) }),
        said(vec![Block::Text("well".into())]),
    ]);
    assert_eq!(run(&import.turns[0]).text, "mind this");
    let second = run(&import.turns[1]);
    assert_eq!((second.text.as_str(), second.turns.len()), ("(of another branch)\nleft", 1));
}

#[test]
fn turns_that_said_nothing_are_none() {
    let TakenIn { import, left_out } = taken(vec![user("one"), said(Vec::new())]);
    assert_eq!((run(&import.turns[0]).turns.len(), left_out), (0, 0));
    assert_eq!(taken(vec![said(Vec::new())]).import.turns, []);
}

#[test]
fn only_pictures_are_pictures_and_not_too_many() {
    let image = |mime: &str, data: &str| Content::Image { mime: mime.into(), data: data.into() };
    let of = |content: Vec<Content>| {
        let taken = taken(vec![Message::User(User { content, at: Now(1) })]);
        (run(&taken.import.turns[0]).images.len(), taken.left_out)
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
    let kept = taken(vec![Message::User(User { content: vec![good()], at: Now(1) })]);
    assert_eq!(run(&kept.import.turns[0]).images, [Image { mime: "image/png".into(), data: "AAA=".into() }]);
}

#[test]
fn pictures_of_a_result_are_named_and_left_out() {
    let Message::ToolResult(mut shown) = result("1", "text", false) else { panic!("a result") };
    shown.content.push(Content::Image { mime: "image/png".into(), data: "AAAA".into() });
    let taken = taken(vec![user("x"), said(vec![call("1")]), Message::ToolResult(shown)]);
    assert_eq!(taken.left_out, 1);
    assert_eq!(run(&taken.import.turns[0]).turns[0].calls[0].text, "text\n(1 pictures are left out)");
}

#[test]
fn long_texts_lose_their_end_and_never_half_a_word() {
    let limit = 256 << 10;
    let begins = "é ".repeat((limit - 20) / 3);
    let long = format!("{begins}secret-{}", "x".repeat(100));
    let taken = taken(vec![
        user(&long),
        said(vec![Block::Text("y".repeat(limit + 1)), call("1")]),
        result("1", &"z ".repeat(limit / 2), false),
    ]);
    assert_eq!(taken.left_out, 2);
    let run = run(&taken.import.turns[0]);
    let kept = begins.trim_end();
    assert_eq!(run.text, format!("{kept}\n({} bytes are left out)", long.len() - kept.len()));
    assert_eq!(
        run.turns[0].text,
        format!("\n({} bytes are left out)", limit + 1),
        "one long word is left out"
    );
    assert_eq!(run.turns[0].calls[0].text.len(), limit, "what fits is kept");
    let args = crate::kernel::id::Json::new(format!("{{\"a\":\"{}\"}}", "x".repeat(limit)));
    let block = Block::ToolCall { id: "1".into(), name: "x".into(), args };
    let taken = self::taken(vec![said(vec![block])]);
    let args = &self::run(&taken.import.turns[0]).turns[0].calls[0].args;
    assert_eq!(args.as_str(), format!("{{\"left_out\":\"{} bytes\"}}", limit + 8));
}
