//! Tests of the context that a model receives, from events on.

use super::*;
use crate::agent::RAISE_BUDGET;
use crate::kernel::audience::Audience;
use crate::kernel::event::{
    Branch, Budget, CallResult, ContextEvent, Event, EventKind, Image, Intention, Message, NoticeEvent, Purpose,
    RecoveredPhase, RunEvent, RunOutcome, RunReport, Steering, TURN_INTERRUPTED, TokenUsage, ToolError, ToolEvent,
    ToolOutcome, TurnUsage,
};
use crate::kernel::id::{CallId, Fingerprint, Json};
use crate::kernel::time::Now;
use crate::provider::model::CallOutcome;

#[test]
fn entries_are_in_the_order_that_servers_require() {
    let mut conversation = Conversation::default();
    conversation.fold(&user(1, "fix it"));
    model_turn(&mut conversation, 2, "looking", Some("the file"));
    model_turn(&mut conversation, 9, "done", None);
    conversation.fold(&ended(20, RunOutcome::Success));
    conversation.fold(&user(21, "thanks"));
    let entries = Context::new(&conversation).entries(&BTreeMap::new(), ResultDetail::Full);
    assert_eq!(
        describe(&entries),
        ["user: fix it", "assistant: looking +1", "fine: the file", "assistant: done +0", "user: thanks"]
    );
}

#[test]
fn a_result_follows_its_call_whatever_arrived_in_between() {
    let mut conversation = Conversation::default();
    conversation.fold(&user(1, "go"));
    conversation.fold(&taken(2, Vec::new()));
    conversation.fold(&intended(3, "c1", "read"));
    conversation.fold(&intended(4, "c2", "read"));
    conversation.fold(&steered(5, "left"));
    conversation.fold(&settled(6, "c2", ToolOutcome::Succeeded, "two"));
    conversation.fold(&settled(7, "c1", ToolOutcome::Failed, "one"));
    let entries = Context::new(&conversation).entries(&BTreeMap::new(), ResultDetail::Full);
    assert_eq!(describe(&entries), ["user: go", "assistant:  +2", "failed: E: broken\none", "fine: two", "user: left"]);
}

#[test]
fn an_interrupted_text_that_is_repeated_appears_once() {
    for cut in [
        EventKind::Run(RunEvent::Recovered { phase: RecoveredPhase::Working }),
        EventKind::Notice(NoticeEvent::Warned { code: TURN_INTERRUPTED.into(), message: "cut".into(), detail: None }),
        EventKind::Notice(NoticeEvent::Warned {
            code: "MODEL_TURN_CUT".into(),
            message: "stored earlier".into(),
            detail: None,
        }),
    ] {
        let mut conversation = Conversation::default();
        conversation.fold(&user(1, "go"));
        conversation.fold(&event(2, EventKind::Run(RunEvent::TextDelta { text: "half a".into() })));
        conversation.fold(&event(3, cut));
        conversation.fold(&event(4, EventKind::Run(RunEvent::TextDelta { text: "the whole".into() })));
        conversation.fold(&taken(5, Vec::new()));
        let entries = Context::new(&conversation).entries(&BTreeMap::new(), ResultDetail::Full);
        assert_eq!(describe(&entries)[..2], ["user: go", "assistant: the whole +0"]);
        assert_eq!(Context::new(&conversation).last_text(), "the whole");
    }
}

#[test]
fn unfinished_output_of_a_run_is_marked_as_interrupted() {
    let mut conversation = Conversation::default();
    conversation.fold(&user(1, "go"));
    conversation.fold(&event(2, EventKind::Run(RunEvent::TextDelta { text: "half a".into() })));
    conversation.fold(&ended(3, RunOutcome::Cancelled));
    conversation.fold(&user(4, "again"));
    let entries = Context::new(&conversation).entries(&BTreeMap::new(), ResultDetail::Full);
    let expected =
        ["user: go", "assistant: half a [interrupted] +0", "user: [The previous run was cancelled: over]\n\nagain"];
    assert_eq!(describe(&entries), expected);
}

#[test]
fn pending_calls_are_removed_when_they_are_requested() {
    let mut conversation = Conversation::default();
    conversation.fold(&user(1, "go"));
    let wanted = |tool: &str| PendingCall { tool: tool.into(), args: Json::new("{}") };
    conversation.fold(&taken(2, vec![wanted("exec"), wanted("exec"), wanted("write")]));
    conversation.fold(&intended(3, "b", RAISE_BUDGET));
    assert_eq!(Context::new(&conversation).pending().count(), 3, "a budget raise is not a pending call");
    conversation.fold(&intended(4, "c0", "exec"));
    assert_eq!(Context::new(&conversation).pending().count(), 2, "one of two equal calls has started");
    conversation.fold(&intended_with(5, "c1", "exec", r#"{"command":"[redacted]"}"#));
    assert_eq!(Context::new(&conversation).pending().map(|next| next.tool.as_str()).collect::<Vec<_>>(), ["write"]);
    conversation.fold(&event(6, EventKind::Run(RunEvent::Recovered { phase: RecoveredPhase::Working })));
    assert_eq!(Context::new(&conversation).pending().count(), 1, "a restart keeps them");
    conversation.fold(&ended(7, RunOutcome::Denied));
    assert_eq!(Context::new(&conversation).pending().count(), 0);
}

#[test]
fn pending_calls_are_dropped_when_the_run_is_steered() {
    let mut conversation = Conversation::default();
    conversation.fold(&user(1, "go"));
    let wanted = |tool: &str| PendingCall { tool: tool.into(), args: Json::new("{}") };
    conversation.fold(&taken(2, vec![wanted("write"), wanted("exec")]));
    conversation.fold(&intended(3, "c1", "write"));
    conversation.fold(&steered(4, "left"));
    assert_eq!(Context::new(&conversation).pending().count(), 0);
    conversation.fold(&settled(5, "c1", ToolOutcome::Succeeded, "written"));
    let entries = Context::new(&conversation).entries(&BTreeMap::new(), ResultDetail::Full);
    assert_eq!(describe(&entries), ["user: go", "assistant:  +1", "fine: written", "user: left"]);
}

#[test]
fn a_steering_message_follows_the_text_it_interrupts() {
    let mut conversation = Conversation::default();
    conversation.fold(&user(1, "go"));
    conversation.fold(&event(2, EventKind::Run(RunEvent::TextDelta { text: "I beg".into() })));
    conversation.fold(&steered(3, "left"));
    conversation.fold(&event(4, EventKind::Run(RunEvent::TextDelta { text: "in".into() })));
    conversation.fold(&taken(5, Vec::new()));
    let entries = Context::new(&conversation).entries(&BTreeMap::new(), ResultDetail::Full);
    assert_eq!(describe(&entries), ["user: go", "assistant: I begin +0", "user: left"]);
}

#[test]
fn a_steering_message_follows_the_unfinished_text_of_a_run_that_ends() {
    let mut conversation = Conversation::default();
    conversation.fold(&user(1, "go"));
    conversation.fold(&event(2, EventKind::Run(RunEvent::TextDelta { text: "I beg".into() })));
    conversation.fold(&steered(3, "left"));
    conversation.fold(&ended(4, RunOutcome::Cancelled));
    let entries = Context::new(&conversation).entries(&BTreeMap::new(), ResultDetail::Full);
    assert_eq!(describe(&entries), ["user: go", "assistant: I beg [interrupted] +0", "user: left"]);
    assert_eq!(Context::new(&conversation).find_cut(0), Some(Seq::new(3)), "the newest item is the newest message");
}

#[test]
fn a_conversation_never_ends_with_assistant_text() {
    let mut conversation = Conversation::default();
    conversation.fold(&user(1, "go"));
    model_turn(&mut conversation, 2, "done", None);
    let entries = Context::new(&conversation).entries(&BTreeMap::new(), ResultDetail::Full);
    assert!(matches!(entries.last(), Some(Entry::User { text, .. }) if text.starts_with("[The daemon was restarted")));
    model_turn(&mut conversation, 12, "reading", Some("r"));
    assert_eq!(
        describe(&Context::new(&conversation).entries(&BTreeMap::new(), ResultDetail::Full)).len(),
        4,
        "a result may be the last"
    );
}

#[test]
fn a_raised_budget_is_not_part_of_the_conversation() {
    let mut conversation = Conversation::default();
    conversation.fold(&user(1, "go"));
    conversation.fold(&taken(2, Vec::new()));
    conversation.fold(&intended(3, "b", RAISE_BUDGET));
    conversation.fold(&settled(4, "b", ToolOutcome::Succeeded, "raised"));
    assert_eq!(describe(&Context::new(&conversation).entries(&BTreeMap::new(), ResultDetail::Full)), ["user: go"]);
}

#[test]
fn a_summary_replaces_what_precedes_it_even_when_only_the_rest_is_folded() {
    let mut whole = Conversation::default();
    let mut part = Conversation::default();
    whole.fold(&user(1, "old"));
    model_turn(&mut whole, 2, "older", None);
    for conversation in [&mut whole, &mut part] {
        model_turn(conversation, 12, "new", Some("r"));
        let compaction = Compaction { summary: "S".into(), kept_from: Seq::new(12), tokens_before: 9 };
        conversation.fold(&event(20, EventKind::Context(ContextEvent::Compacted(Box::new(compaction)))));
    }
    let (whole, part) = (Context::new(&whole), Context::new(&part));
    assert_eq!(whole.visible_items(), part.visible_items());
    let entries = describe(&whole.entries(&BTreeMap::new(), ResultDetail::Full));
    assert!(entries[0].ends_with("word by word:\n\nS"), "{entries:?}");
    assert_eq!(entries[1..], ["assistant: new +1", "fine: r"]);
}

#[test]
fn messages_use_the_unredacted_text_where_it_is_known() {
    let mut conversation = Conversation::default();
    conversation.fold(&user(1, "use [REDACTED]"));
    let whole = BTreeMap::from([(MessageId::new("m1"), "use hunter2".to_owned())]);
    assert_eq!(describe(&Context::new(&conversation).entries(&whole, ResultDetail::Full)), ["user: use hunter2"]);
}

#[test]
fn older_results_are_trimmed_and_the_newest_are_not() {
    let mut conversation = Conversation::default();
    conversation.fold(&user(1, "go"));
    for turn in 0..UNTRIMMED_ITEMS as u64 + 2 {
        model_turn(&mut conversation, 10 + turn * 10, "step", Some(&"z".repeat(5_000)));
    }
    let context = Context::new(&conversation);
    let lengths: Vec<usize> = context
        .entries(&BTreeMap::new(), ResultDetail::Trimmed)
        .iter()
        .filter_map(|entry| match entry {
            Entry::Result { text, .. } => Some(text.len()),
            Entry::User { .. } | Entry::Assistant { .. } => None,
        })
        .collect();
    assert_eq!(lengths.iter().filter(|length| **length == 5_000).count(), UNTRIMMED_ITEMS);
    assert!(lengths[0] < 2_100 && lengths[1] < 2_100, "{lengths:?}");
    assert!(
        Context::new(&conversation).tokens(0, ResultDetail::Trimmed) + 1_000
            < Context::new(&conversation).tokens(0, ResultDetail::Full)
    );
}

#[test]
fn counted_tokens_are_used_and_the_rest_is_estimated() {
    let mut conversation = Conversation::default();
    conversation.fold(&user(1, &"x".repeat(4_000)));
    conversation.fold(&turn_with_usage(2, 7_000, 7));
    assert_eq!(Context::new(&conversation).tokens(1_000, ResultDetail::Full), 7_007);
    conversation.fold(&user(3, &"x".repeat(400)));
    assert_eq!(Context::new(&conversation).tokens(1_000, ResultDetail::Full), 7_007 + 108);
    conversation.fold(&turn_with_usage(4, 20, 7));
    assert!(
        Context::new(&conversation).tokens(1_000, ResultDetail::Full) > 2_100,
        "a count below the estimate is not trusted"
    );
    conversation.fold(&turn_with_usage(5, 0, 9_000));
    assert!(
        Context::new(&conversation).tokens(1_000, ResultDetail::Full) < 9_000,
        "an output count does not replace an input count"
    );
    conversation.fold(&turn_with_usage(6, u64::MAX, u64::MAX));
    conversation.fold(&user(7, "more"));
    assert_eq!(Context::new(&conversation).tokens(1_000, ResultDetail::Full), u64::MAX);
}

#[test]
fn images_go_with_their_message_and_are_mentioned_in_a_summary() {
    let mut conversation = Conversation::default();
    conversation.fold(&user_with_image(1, "what is it?"));
    model_turn(&mut conversation, 2, "a cat", None);
    conversation.fold(&user(9, "thanks"));
    let entries = Context::new(&conversation).entries(&BTreeMap::new(), ResultDetail::Full);
    assert_eq!(describe(&entries)[0], "user: what is it? with 1");
    let older = Context::new(&conversation).entries_before(Seq::new(9), u64::MAX);
    assert_eq!(describe(&older)[0], "user: what is it?\n[attached images: 1]");
    assert!(Context::new(&conversation).tokens(0, ResultDetail::Full) > 1_600, "an image has a cost");
}

#[test]
fn user_commands_are_included_unless_hidden_from_the_model() {
    let mut conversation = Conversation::default();
    conversation.fold(&user(1, "go"));
    conversation.fold(&taken(2, Vec::new()));
    conversation.fold(&intended(3, "c1", "read"));
    conversation.fold(&user_command(4, "a1", true));
    conversation.fold(&user_command(5, "a2", false));
    conversation.fold(&user_command_settled(6, "a1", true, Some(1), "no rule\n"));
    conversation.fold(&user_command_settled(7, "a2", false, Some(0), "secret\n"));
    conversation.fold(&settled(8, "c1", ToolOutcome::Succeeded, "one"));
    let entries = Context::new(&conversation).entries(&BTreeMap::new(), ResultDetail::Full);
    let in_context = "user: [The user ran `make` outside the conversation; it exited with 1]\nno rule";
    assert_eq!(describe(&entries), ["user: go", "assistant:  +1", "fine: one", in_context]);
}

#[test]
fn a_placeholder_for_what_does_not_fit_quotes_no_other_placeholder() {
    let mut conversation = Conversation::default();
    conversation.fold(&user(1, "first"));
    conversation.fold(&compacted(8, "A model wrote this.", 2));
    for seq in [10, 20, 30] {
        conversation.fold(&user(seq, "more"));
        let placeholder = Context::new(&conversation).omission_notice(Seq::new(seq + 1));
        assert_eq!(placeholder.matches("[The older part").count(), 1, "{placeholder}");
        assert!(placeholder.contains("The previous summary begins: A model wrote this."), "{placeholder}");
        conversation.fold(&compacted(seq + 5, &placeholder, seq + 1));
    }
}

#[test]
fn a_branch_restores_the_conversation_at_its_point() {
    let mut conversation = Conversation::default();
    conversation.fold(&user(1, "first"));
    model_turn(&mut conversation, 2, "one", Some("result"));
    conversation.fold(&compacted(8, "the first summary", 2));
    conversation.fold(&user(9, "second"));
    model_turn(&mut conversation, 10, "two", None);
    conversation.fold(&ended(15, RunOutcome::Success));
    let there = describe(&Context::new(&conversation).entries(&BTreeMap::new(), ResultDetail::Full));
    conversation.fold(&user(20, "third"));
    model_turn(&mut conversation, 21, "three", Some("late"));
    conversation.fold(&compacted(30, "the second summary", 20));
    conversation.fold(&ended(31, RunOutcome::Failed));
    conversation.fold(&branched(40, 15));
    assert_eq!(describe(&Context::new(&conversation).entries(&BTreeMap::new(), ResultDetail::Full)), there);
    conversation.fold(&user(41, "instead"));
    let entries = describe(&Context::new(&conversation).entries(&BTreeMap::new(), ResultDetail::Full));
    assert_eq!(entries.last().unwrap(), "user: instead", "no note on the end of the abandoned branch");
    assert!(entries[0].ends_with("the first summary"), "{entries:?}");
    conversation.fold(&branched(50, 4));
    let entries = describe(&Context::new(&conversation).entries(&BTreeMap::new(), ResultDetail::Full));
    assert_eq!(entries[..3], ["user: first", "assistant: one +1", "failed: its outcome is unknown"]);
    conversation.fold(&branched(60, 0));
    assert!(
        Context::new(&conversation).is_empty()
            && Context::new(&conversation).entries(&BTreeMap::new(), ResultDetail::Full).is_empty()
    );
}

/// Returns a message that starts a run.
pub(in crate::agent) fn user(seq: u64, text: &str) -> Event {
    let message = Message {
        message: MessageId::new(format!("m{seq}")),
        text: text.into(),
        images: Vec::new(),
        criteria: Vec::new(),
        time_limit: None,
        budget: Budget::default(),
        rules: Vec::new(),
        needs_environment: false,
        fingerprint: Fingerprint(1),
        by: "cli".into(),
    };
    event(seq, EventKind::Run(RunEvent::Started(Box::new(message))))
}

/// Folds a turn of the model, with a call if there is a result.
pub(in crate::agent) fn model_turn(conversation: &mut Conversation, seq: u64, text: &str, result: Option<&str>) {
    conversation.fold(&event(seq, EventKind::Run(RunEvent::TextDelta { text: text.into() })));
    conversation.fold(&taken(seq + 1, Vec::new()));
    if let Some(result) = result {
        let call = format!("call-{seq}");
        conversation.fold(&intended(seq + 2, &call, "read"));
        conversation.fold(&settled(seq + 3, &call, ToolOutcome::Succeeded, result));
    }
}

fn describe(entries: &[Entry]) -> Vec<String> {
    let kind = |entry: &Entry| match entry {
        Entry::User { text, images } if images.is_empty() => format!("user: {text}"),
        Entry::User { text, images } => format!("user: {text} with {}", images.len()),
        Entry::Assistant { provider_state: _, text: said, calls } => {
            format!("assistant: {said} +{}", calls.len())
        }
        Entry::Result { text, outcome: CallOutcome::Succeeded, .. } => format!("fine: {text}"),
        Entry::Result { text, outcome: CallOutcome::Failed, .. } => format!("failed: {text}"),
    };
    entries.iter().map(kind).collect()
}

fn event(seq: u64, kind: EventKind) -> Event {
    Event { seq: Seq::new(seq), at: Now(seq), run: None, version: None, origin: None, audience: Audience::All, kind }
}

fn steered(seq: u64, text: &str) -> Event {
    let (message, text, by) = (MessageId::new("s"), text.to_owned(), "cli".to_owned());
    let (images, fingerprint) = (Vec::new(), Fingerprint(1));
    event(seq, EventKind::Run(RunEvent::Steered(Box::new(Steering { message, text, images, fingerprint, by }))))
}

fn taken(seq: u64, pending: Vec<PendingCall>) -> Event {
    event(seq, EventKind::Run(RunEvent::TurnUsage(Box::new(TurnUsage { pending, ..TurnUsage::default() }))))
}

/// Returns the end of a turn with the token counts of the server.
pub(in crate::agent) fn turn_with_usage(seq: u64, input: u64, output: u64) -> Event {
    let used = TokenUsage { input, output, ..TokenUsage::default() };
    event(seq, EventKind::Run(RunEvent::TurnUsage(Box::new(TurnUsage { usage: used, ..TurnUsage::default() }))))
}

fn intended(seq: u64, call: &str, tool: &str) -> Event {
    intended_with(seq, call, tool, "{}")
}

fn intended_with(seq: u64, call: &str, tool: &str, args: &str) -> Event {
    let (call, args) = (CallId::new(call), Json::new(args));
    let intention = Intention { call, tool: tool.into(), args, purpose: Purpose::Work };
    event(seq, EventKind::Tool(ToolEvent::Intended(Box::new(intention))))
}

fn settled(seq: u64, call: &str, ending: ToolOutcome, text: &str) -> Event {
    let fault = ToolError { kind: "E".into(), retryable: false, message: "broken".into(), detail: None };
    let settlement = CallResult {
        call: CallId::new(call),
        tool: "read".into(),
        purpose: Purpose::Work,
        millis: 1,
        outcome: ending,
        exit_code: None,
        text: text.into(),
        error: (ending == ToolOutcome::Failed).then_some(fault),
        diff: None,
    };
    event(seq, EventKind::Tool(ToolEvent::Settled(Box::new(settlement))))
}

fn ended(seq: u64, outcome: RunOutcome) -> Event {
    let report = RunReport {
        outcome,
        reason: None,
        summary: "over".into(),
        checks: Vec::new(),
        checks_requested: 0,
        exit_code: 0,
    };
    event(seq, EventKind::Run(RunEvent::Ended(Box::new(report))))
}

fn user_with_image(seq: u64, text: &str) -> Event {
    let mut event = user(seq, text);
    let EventKind::Run(RunEvent::Started(message)) = &mut event.kind else { panic!("a message") };
    message.images = vec![Image { mime: "image/png".into(), data: "aGk=".into() }];
    event
}

fn user_command(seq: u64, call: &str, in_context: bool) -> Event {
    let (tool, args) = ("sandbox_exec".to_owned(), Json::new(r#"{"command":"make"}"#));
    let intention = Intention { call: call.into(), tool, args, purpose: Purpose::UserCommand { in_context } };
    event(seq, EventKind::Tool(ToolEvent::Intended(Box::new(intention))))
}

fn user_command_settled(seq: u64, call: &str, in_context: bool, exit_code: Option<i32>, text: &str) -> Event {
    let settlement = CallResult {
        call: call.into(),
        tool: "sandbox_exec".into(),
        purpose: Purpose::UserCommand { in_context },
        millis: 1,
        outcome: ToolOutcome::Succeeded,
        exit_code,
        text: text.into(),
        error: None,
        diff: None,
    };
    event(seq, EventKind::Tool(ToolEvent::Settled(Box::new(settlement))))
}

fn compacted(seq: u64, summary: &str, kept_from: u64) -> Event {
    let compaction = Compaction { summary: summary.into(), kept_from: Seq::new(kept_from), tokens_before: 9 };
    event(seq, EventKind::Context(ContextEvent::Compacted(Box::new(compaction))))
}

fn branched(seq: u64, until: u64) -> Event {
    let branch = Branch { until: Seq::new(until), from: Seq::new(1) };
    event(seq, EventKind::Context(ContextEvent::Branched { branch, by: "cli".into() }))
}
