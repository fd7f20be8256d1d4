//! Session files as other programs write them, parsed and rendered again.

mod branches;
mod imports;
mod malformed;
mod round_trip;

use super::*;
use crate::kernel::time::Now;

/// Parses lines under the default limits.
fn read(lines: &[&str]) -> Result<ParsedSession, ParseError> {
    let mut text = lines.join("\n");
    text.push('\n');
    parse(text.as_bytes(), &Limits::default())
}

const HEADER: &str =
    r#"{"type":"session","version":3,"id":"s-1","timestamp":"2026-02-28T10:00:00.000Z","cwd":"/home/ann/p"}"#;

/// A line with a user message.
fn user(id: &str, parent: Option<&str>, text: &str) -> String {
    let parent = parent.map_or("null".to_owned(), |parent| format!("\"{parent}\""));
    format!(
        r#"{{"type":"message","id":"{id}","parentId":{parent},"timestamp":"2026-02-28T10:00:01.000Z","message":{{"role":"user","content":"{text}"}}}}"#
    )
}

/// The texts of the visible messages.
fn message_texts(conversation: &Conversation) -> Vec<String> {
    let word = |message: &BranchMessage| match &message.message {
        Message::User(user) => user.text(),
        Message::Assistant(message) => format!("{:?}", message.blocks),
        Message::ToolResult(result) => result.text(),
        Message::Bash(bash) => bash.command.clone(),
        Message::Custom(custom) => message::text_of(&custom.content),
        Message::BranchSummary(branch) => format!("branch: {}", branch.summary),
        Message::CompactionSummary(compaction) => format!("summary: {}", compaction.summary),
    };
    conversation.messages.iter().map(word).collect()
}

/// Entries of every kind that can be written.
fn every_entry() -> Vec<Entry> {
    let said = |blocks, stop| {
        Message::Assistant(Box::new(Assistant {
            blocks,
            api: "anthropic-messages".into(),
            provider: "anthropic".into(),
            model: "claude".into(),
            usage: Usage {
                input: 1,
                output: 2,
                cache_read: 3,
                cache_write: 4,
                total: 10,
                cost: Cost { input: 0.25, output: 0.5, cache_read: 0.0, cache_write: 0.0, total: 0.75 },
            },
            stop,
            error: (stop == StopReason::Error).then(|| "overloaded".to_owned()),
            at: Now(1_772_272_802_000),
        }))
    };
    let text = |text: &str| Content::Text(text.into());
    let args = crate::kernel::id::Json::new(r#"{"path":"a\u0000 é\n","deep":[{}]}"#);
    let changes = vec![
        Change::Name(Some("Names of things".into())),
        Change::Model { provider: "openai".into(), model: "gpt".into() },
        Change::Thinking { level: "high".into() },
        Change::Message(Message::User(User {
            content: vec![
                text("see\nthis \u{1b}[0m"),
                Content::Image { mime: "image/png".into(), data: "AAAA".into() },
            ],
            at: Now(1_772_272_801_000),
        })),
        Change::Message(said(
            vec![
                Block::Thinking("hm".into()),
                Block::Text("I read it".into()),
                Block::ToolCall { id: "c1".into(), name: "read".into(), args },
            ],
            StopReason::ToolUse,
        )),
        Change::Message(Message::ToolResult(Box::new(ToolResult {
            call: "c1".into(),
            tool: "read".into(),
            content: vec![text("line\u{2028}end")],
            details: Some(crate::kernel::id::Json::new(r#"{"lines":2}"#)),
            is_error: true,
            at: Now(1_772_272_803_000),
        }))),
        Change::Message(said(Vec::new(), StopReason::Error)),
        Change::Message(Message::Bash(Box::new(Bash {
            command: "ls".into(),
            output: "a\n".into(),
            exit_code: Some(-1),
            cancelled: false,
            truncated: true,
            full_output: Some("/tmp/x".into()),
            excluded: true,
            at: Now(1_772_272_804_000),
        }))),
        Change::CustomMessage { kind: "todo".into(), content: vec![text("remember")], display: true },
        Change::Message(Message::Custom(Custom {
            kind: "todo".into(),
            content: vec![text("again")],
            display: false,
            at: Now(1_772_272_805_000),
        })),
        Change::BranchSummary { summary: "left".into(), from: "00000003".into() },
        Change::Compaction { summary: "so far".into(), first_kept: "00000004".into(), tokens_before: 50_000 },
        Change::Message(Message::CompactionSummary(CompactionSummary {
            summary: "before".into(),
            tokens_before: 7,
            at: Now(1_772_272_806_000),
        })),
        Change::Message(Message::BranchSummary(BranchSummary {
            summary: "aside".into(),
            from: "00000001".into(),
            at: Now(1_772_272_807_000),
        })),
        Change::Name(None),
    ];
    let id = |index: usize| format!("{index:08x}");
    let entry = |(index, change)| Entry {
        id: id(index),
        parent: index.checked_sub(1).map(id),
        at: Now(1_772_272_800_000 + index as u64),
        change,
    };
    changes.into_iter().enumerate().map(entry).collect()
}
