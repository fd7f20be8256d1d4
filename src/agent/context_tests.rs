//! Tests of conversations that are folded from events.

use super::*;
use crate::kernel::event::{
    Branch, Budget, Message, RecoveredPhase, Steering, TURN_INTERRUPTED, TokenUsage, ToolError, ToolOutcome,
};
use crate::kernel::id::{Fingerprint, Json};
use crate::kernel::time::Now;
use crate::provider::model::CallOutcome;

#[test]
fn entries_are_in_the_order_that_servers_require() {
    let mut context = Context::default();
    context.fold(&user(1, "fix it"));
    model_turn(&mut context, 2, "looking", Some("the file"));
    model_turn(&mut context, 9, "done", None);
    context.fold(&ended(20, RunOutcome::Success));
    context.fold(&user(21, "thanks"));
    let entries = context.entries(&BTreeMap::new(), ResultDetail::Full);
    assert_eq!(
        describe(&entries),
        ["user: fix it", "assistant: looking +1", "fine: the file", "assistant: done +0", "user: thanks"]
    );
}

#[test]
fn a_result_follows_its_call_whatever_arrived_in_between() {
    let mut context = Context::default();
    context.fold(&user(1, "go"));
    context.fold(&taken(2, Vec::new()));
    context.fold(&intended(3, "c1", "read"));
    context.fold(&intended(4, "c2", "read"));
    context.fold(&steered(5, "left"));
    context.fold(&settled(6, "c2", ToolOutcome::Succeeded, "two"));
    context.fold(&settled(7, "c1", ToolOutcome::Failed, "one"));
    let entries = context.entries(&BTreeMap::new(), ResultDetail::Full);
    assert_eq!(describe(&entries), ["user: go", "assistant:  +2", "failed: E: broken\none", "fine: two", "user: left"]);
}

#[test]
fn an_interrupted_text_that_is_repeated_appears_once() {
    for cut in [
        EventKind::RunRecovered { phase: RecoveredPhase::Working },
        EventKind::Warned { code: TURN_INTERRUPTED.into(), message: "cut".into(), detail: None },
        EventKind::Warned { code: "MODEL_TURN_CUT".into(), message: "stored earlier".into(), detail: None },
    ] {
        let mut context = Context::default();
        context.fold(&user(1, "go"));
        context.fold(&event(2, EventKind::TextDelta { text: "half a".into() }));
        context.fold(&event(3, cut));
        context.fold(&event(4, EventKind::TextDelta { text: "the whole".into() }));
        context.fold(&taken(5, Vec::new()));
        let entries = context.entries(&BTreeMap::new(), ResultDetail::Full);
        assert_eq!(describe(&entries)[..2], ["user: go", "assistant: the whole +0"]);
        assert_eq!(context.last_text(), "the whole");
    }
}

#[test]
fn unfinished_output_of_a_run_is_marked_as_interrupted() {
    let mut context = Context::default();
    context.fold(&user(1, "go"));
    context.fold(&event(2, EventKind::TextDelta { text: "half a".into() }));
    context.fold(&ended(3, RunOutcome::Cancelled));
    context.fold(&user(4, "again"));
    let entries = context.entries(&BTreeMap::new(), ResultDetail::Full);
    let expected =
        ["user: go", "assistant: half a [interrupted] +0", "user: [The previous run was cancelled: over]\n\nagain"];
    assert_eq!(describe(&entries), expected);
}

#[test]
fn pending_calls_are_removed_when_they_are_requested() {
    let mut context = Context::default();
    context.fold(&user(1, "go"));
    let wanted = |tool: &str| PendingCall { tool: tool.into(), args: Json::new("{}") };
    context.fold(&taken(2, vec![wanted("exec"), wanted("exec"), wanted("write")]));
    context.fold(&intended(3, "b", RAISE_BUDGET));
    assert_eq!(context.pending().count(), 3, "a budget raise is not a pending call");
    context.fold(&intended(4, "c0", "exec"));
    assert_eq!(context.pending().count(), 2, "one of two equal calls has started");
    context.fold(&intended_with(5, "c1", "exec", r#"{"command":"[redacted]"}"#));
    assert_eq!(context.pending().map(|next| next.tool.as_str()).collect::<Vec<_>>(), ["write"]);
    context.fold(&event(6, EventKind::RunRecovered { phase: RecoveredPhase::Working }));
    assert_eq!(context.pending().count(), 1, "a restart keeps them");
    context.fold(&ended(7, RunOutcome::Denied));
    assert_eq!(context.pending().count(), 0);
}

#[test]
fn pending_calls_are_dropped_when_the_run_is_steered() {
    let mut context = Context::default();
    context.fold(&user(1, "go"));
    let wanted = |tool: &str| PendingCall { tool: tool.into(), args: Json::new("{}") };
    context.fold(&taken(2, vec![wanted("write"), wanted("exec")]));
    context.fold(&intended(3, "c1", "write"));
    context.fold(&steered(4, "left"));
    assert_eq!(context.pending().count(), 0);
    context.fold(&settled(5, "c1", ToolOutcome::Succeeded, "written"));
    let entries = context.entries(&BTreeMap::new(), ResultDetail::Full);
    assert_eq!(describe(&entries), ["user: go", "assistant:  +1", "fine: written", "user: left"]);
}

#[test]
fn a_steering_message_follows_the_text_it_interrupts() {
    let mut context = Context::default();
    context.fold(&user(1, "go"));
    context.fold(&event(2, EventKind::TextDelta { text: "I beg".into() }));
    context.fold(&steered(3, "left"));
    context.fold(&event(4, EventKind::TextDelta { text: "in".into() }));
    context.fold(&taken(5, Vec::new()));
    let entries = context.entries(&BTreeMap::new(), ResultDetail::Full);
    assert_eq!(describe(&entries), ["user: go", "assistant: I begin +0", "user: left"]);
}

#[test]
fn a_conversation_never_ends_with_assistant_text() {
    let mut context = Context::default();
    context.fold(&user(1, "go"));
    model_turn(&mut context, 2, "done", None);
    let entries = context.entries(&BTreeMap::new(), ResultDetail::Full);
    assert!(matches!(entries.last(), Some(Entry::User { text, .. }) if text.starts_with("[The daemon was restarted")));
    model_turn(&mut context, 12, "reading", Some("r"));
    assert_eq!(describe(&context.entries(&BTreeMap::new(), ResultDetail::Full)).len(), 4, "a result may be the last");
}

#[test]
fn a_raised_budget_is_not_part_of_the_conversation() {
    let mut context = Context::default();
    context.fold(&user(1, "go"));
    context.fold(&taken(2, Vec::new()));
    context.fold(&intended(3, "b", RAISE_BUDGET));
    context.fold(&settled(4, "b", ToolOutcome::Succeeded, "raised"));
    assert_eq!(describe(&context.entries(&BTreeMap::new(), ResultDetail::Full)), ["user: go"]);
}

#[test]
fn a_summary_replaces_what_precedes_it_even_when_only_the_rest_is_folded() {
    let mut whole = Context::default();
    let mut part = Context::default();
    whole.fold(&user(1, "old"));
    model_turn(&mut whole, 2, "older", None);
    for context in [&mut whole, &mut part] {
        model_turn(context, 12, "new", Some("r"));
        let compaction = Compaction { summary: "S".into(), kept_from: Seq::new(12), tokens_before: 9 };
        context.fold(&event(20, EventKind::Compacted(Box::new(compaction))));
    }
    assert_eq!(whole.visible_items(), part.visible_items());
    let entries = describe(&whole.entries(&BTreeMap::new(), ResultDetail::Full));
    assert!(entries[0].ends_with("word by word:\n\nS"), "{entries:?}");
    assert_eq!(entries[1..], ["assistant: new +1", "fine: r"]);
}

#[test]
fn messages_use_the_unredacted_text_where_it_is_known() {
    let mut context = Context::default();
    context.fold(&user(1, "use [REDACTED]"));
    let whole = BTreeMap::from([(MessageId::new("m1"), "use hunter2".to_owned())]);
    assert_eq!(describe(&context.entries(&whole, ResultDetail::Full)), ["user: use hunter2"]);
}

#[test]
fn older_results_are_trimmed_and_the_newest_are_not() {
    let mut context = Context::default();
    context.fold(&user(1, "go"));
    for turn in 0..UNTRIMMED_ITEMS as u64 + 2 {
        model_turn(&mut context, 10 + turn * 10, "step", Some(&"z".repeat(5_000)));
    }
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
    assert!(context.tokens(0, ResultDetail::Trimmed) + 1_000 < context.tokens(0, ResultDetail::Full));
}

#[test]
fn counted_tokens_are_used_and_the_rest_is_estimated() {
    let mut context = Context::default();
    context.fold(&user(1, &"x".repeat(4_000)));
    context.fold(&turn_with_usage(2, 7_000, 7));
    assert_eq!(context.tokens(1_000, ResultDetail::Full), 7_007);
    context.fold(&user(3, &"x".repeat(400)));
    assert_eq!(context.tokens(1_000, ResultDetail::Full), 7_007 + 108);
    context.fold(&turn_with_usage(4, 20, 7));
    assert!(context.tokens(1_000, ResultDetail::Full) > 2_100, "a count below the estimate is not trusted");
    context.fold(&turn_with_usage(5, 0, 9_000));
    assert!(context.tokens(1_000, ResultDetail::Full) < 9_000, "an output count does not replace an input count");
    context.fold(&turn_with_usage(6, u64::MAX, u64::MAX));
    context.fold(&user(7, "more"));
    assert_eq!(context.tokens(1_000, ResultDetail::Full), u64::MAX);
}

#[test]
fn images_go_with_their_message_and_are_mentioned_in_a_summary() {
    let mut context = Context::default();
    context.fold(&user_with_image(1, "what is it?"));
    model_turn(&mut context, 2, "a cat", None);
    context.fold(&user(9, "thanks"));
    let entries = context.entries(&BTreeMap::new(), ResultDetail::Full);
    assert_eq!(describe(&entries)[0], "user: what is it? with 1");
    let older = context.entries_before(Seq::new(9), u64::MAX);
    assert_eq!(describe(&older)[0], "user: what is it?\n[attached images: 1]");
    assert!(context.tokens(0, ResultDetail::Full) > 1_600, "an image has a cost");
}

#[test]
fn user_commands_are_included_unless_hidden_from_the_model() {
    let mut context = Context::default();
    context.fold(&user(1, "go"));
    context.fold(&taken(2, Vec::new()));
    context.fold(&intended(3, "c1", "read"));
    context.fold(&user_command(4, "a1", true));
    context.fold(&user_command(5, "a2", false));
    context.fold(&user_command_settled(6, "a1", true, Some(1), "no rule\n"));
    context.fold(&user_command_settled(7, "a2", false, Some(0), "secret\n"));
    context.fold(&settled(8, "c1", ToolOutcome::Succeeded, "one"));
    let entries = context.entries(&BTreeMap::new(), ResultDetail::Full);
    let told = "user: [The user ran `make` outside the conversation; it exited with 1]\nno rule";
    assert_eq!(describe(&entries), ["user: go", "assistant:  +1", "fine: one", told]);
}

#[test]
fn a_placeholder_for_what_does_not_fit_quotes_no_other_placeholder() {
    let mut context = Context::default();
    context.fold(&user(1, "first"));
    context.fold(&compacted(8, "A model wrote this.", 2));
    for seq in [10, 20, 30] {
        context.fold(&user(seq, "more"));
        let placeholder = context.omission_notice(Seq::new(seq + 1));
        assert_eq!(placeholder.matches("[The older part").count(), 1, "{placeholder}");
        assert!(placeholder.contains("The previous summary begins: A model wrote this."), "{placeholder}");
        context.fold(&compacted(seq + 5, &placeholder, seq + 1));
    }
}

#[test]
fn a_branch_restores_the_conversation_at_its_point() {
    let mut context = Context::default();
    context.fold(&user(1, "first"));
    model_turn(&mut context, 2, "one", Some("result"));
    context.fold(&compacted(8, "the first summary", 2));
    context.fold(&user(9, "second"));
    model_turn(&mut context, 10, "two", None);
    context.fold(&ended(15, RunOutcome::Success));
    let there = describe(&context.entries(&BTreeMap::new(), ResultDetail::Full));
    context.fold(&user(20, "third"));
    model_turn(&mut context, 21, "three", Some("late"));
    context.fold(&compacted(30, "the second summary", 20));
    context.fold(&ended(31, RunOutcome::Failed));
    context.fold(&branched(40, 15));
    assert_eq!(describe(&context.entries(&BTreeMap::new(), ResultDetail::Full)), there);
    context.fold(&user(41, "instead"));
    let entries = describe(&context.entries(&BTreeMap::new(), ResultDetail::Full));
    assert_eq!(entries.last().unwrap(), "user: instead", "no note on the end of the abandoned branch");
    assert!(entries[0].ends_with("the first summary"), "{entries:?}");
    context.fold(&branched(50, 4));
    let entries = describe(&context.entries(&BTreeMap::new(), ResultDetail::Full));
    assert_eq!(entries[..3], ["user: first", "assistant: one +1", "failed: its outcome is unknown"]);
    context.fold(&branched(60, 0));
    assert!(context.is_empty() && context.entries(&BTreeMap::new(), ResultDetail::Full).is_empty());
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
    event(seq, EventKind::RunStarted(Box::new(message)))
}

/// Folds a turn of the model, with a call if there is a result.
pub(in crate::agent) fn model_turn(context: &mut Context, seq: u64, text: &str, result: Option<&str>) {
    context.fold(&event(seq, EventKind::TextDelta { text: text.into() }));
    context.fold(&taken(seq + 1, Vec::new()));
    if let Some(result) = result {
        let call = format!("call-{seq}");
        context.fold(&intended(seq + 2, &call, "read"));
        context.fold(&settled(seq + 3, &call, ToolOutcome::Succeeded, result));
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
    Event { seq: Seq::new(seq), at: Now(seq), run: None, version: None, origin: None, kind }
}

fn steered(seq: u64, text: &str) -> Event {
    let (message, text, by) = (MessageId::new("s"), text.to_owned(), "cli".to_owned());
    let (images, fingerprint) = (Vec::new(), Fingerprint(1));
    event(seq, EventKind::Steered(Box::new(Steering { message, text, images, fingerprint, by })))
}

fn taken(seq: u64, pending: Vec<PendingCall>) -> Event {
    event(seq, EventKind::TurnUsage(Box::new(TurnUsage { pending, ..TurnUsage::default() })))
}

/// Returns the end of a turn with the token counts of the server.
pub(in crate::agent) fn turn_with_usage(seq: u64, input: u64, output: u64) -> Event {
    let used = TokenUsage { input, output, ..TokenUsage::default() };
    event(seq, EventKind::TurnUsage(Box::new(TurnUsage { usage: used, ..TurnUsage::default() })))
}

fn intended(seq: u64, call: &str, tool: &str) -> Event {
    intended_with(seq, call, tool, "{}")
}

fn intended_with(seq: u64, call: &str, tool: &str, args: &str) -> Event {
    let (call, args) = (CallId::new(call), Json::new(args));
    let intention = Intention { call, tool: tool.into(), args, purpose: Purpose::Work };
    event(seq, EventKind::CallIntended(Box::new(intention)))
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
    };
    event(seq, EventKind::CallSettled(Box::new(settlement)))
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
    event(seq, EventKind::RunEnded(Box::new(report)))
}

fn user_with_image(seq: u64, text: &str) -> Event {
    let mut event = user(seq, text);
    let EventKind::RunStarted(message) = &mut event.kind else { panic!("a message") };
    message.images = vec![Image { mime: "image/png".into(), data: "aGk=".into() }];
    event
}

fn user_command(seq: u64, call: &str, told: bool) -> Event {
    let (tool, args) = ("sandbox_exec".to_owned(), Json::new(r#"{"command":"make"}"#));
    let intention = Intention { call: call.into(), tool, args, purpose: Purpose::UserCommand { in_context: told } };
    event(seq, EventKind::CallIntended(Box::new(intention)))
}

fn user_command_settled(seq: u64, call: &str, told: bool, exit_code: Option<i32>, text: &str) -> Event {
    let settlement = CallResult {
        call: call.into(),
        tool: "sandbox_exec".into(),
        purpose: Purpose::UserCommand { in_context: told },
        millis: 1,
        outcome: ToolOutcome::Succeeded,
        exit_code,
        text: text.into(),
        error: None,
    };
    event(seq, EventKind::CallSettled(Box::new(settlement)))
}

fn compacted(seq: u64, summary: &str, kept_from: u64) -> Event {
    let compaction = Compaction { summary: summary.into(), kept_from: Seq::new(kept_from), tokens_before: 9 };
    event(seq, EventKind::Compacted(Box::new(compaction)))
}

fn branched(seq: u64, until: u64) -> Event {
    let branch = Branch { until: Seq::new(until), from: Seq::new(1) };
    event(seq, EventKind::Branched { branch, by: "cli".into() })
}
