//! What belongs to a conversation, and what does not.

use pushd::kernel::conversation::{Block, Conversation, Delivery, Interruption, ItemContent, MessageEnd};
use pushd::kernel::id::Seq;

use crate::pi_adapter::event_source::events;

#[test]
fn a_message_holds_its_thinking_its_text_and_its_calls_with_their_results() {
    let conversation = fold(&[
        r#"user_message r1 {"messageId":"m1","text":"go"}"#,
        r#"thinking_token r1 {"text":"hm"}"#,
        r#"assistant_token r1 {"text":"I "}"#,
        r#"assistant_token r1 {"text":"look."}"#,
        r#"assistant_done r1 {"messageId":"a1"}"#,
        r#"usage r1"#,
        r#"tool_call r1 {"toolName":"x","callId":"c1","args":{"n":1}}"#,
        r#"user_message r1 {"messageId":"m2","text":"left","delivery":"steer"}"#,
        r#"tool_result r1 {"toolName":"x","callId":"c1","text":"seen"}"#,
    ]);
    let [message, turn, steering] = conversation.items() else { panic!("{conversation:?}") };
    assert!(matches!(&message.content, ItemContent::UserMessage(message) if message.delivery == Delivery::Prompt));
    assert!(matches!(&steering.content, ItemContent::UserMessage(message) if message.delivery == Delivery::Steering));
    assert_eq!((turn.first_seq, turn.last_seq, turn.at.0), (Seq::new(2), Seq::new(7), 2_000));
    assert_eq!(turn.run.as_ref().map(|run| run.as_str()), Some("r1"));
    let content = turn.assistant().unwrap();
    assert_eq!((&*content.text(), &content.end, content.turn), ("I look.", &MessageEnd::Complete, Seq::new(2)));
    assert!(
        matches!(&content.blocks[..], [Block::Thinking(thought), Block::Text(_), Block::Call(_)] if thought == "hm")
    );
    assert_eq!((&*content.model, content.usage.map(|usage| usage.output)), ("m1", Some(2)));
    let call = content.calls().next().unwrap();
    let request = call.request.as_ref().unwrap();
    assert_eq!((request.args.as_str(), request.seq), (r#"{"n":1}"#, Seq::new(7)));
    let completion = call.completion.as_ref().unwrap();
    assert_eq!((completion.seq, completion.result().unwrap().text.as_str()), (Seq::new(9), "seen"));
    assert_eq!(conversation.counted_tokens().map(|counted| (counted.turn, counted.tokens)), Some((Seq::new(2), 12)));
    assert_eq!(messages(&conversation), ["1 m1 go", "5 a1 I look.", "8 m2 left"]);
}

#[test]
fn a_completed_text_stays_a_message_when_the_model_is_asked_again() {
    let mut lines = vec![
        r#"user_message r1 {"messageId":"m1","text":"go"}"#,
        r#"assistant_token r1 {"text":"said"}"#,
        r#"assistant_done r1 {"messageId":"a1"}"#,
        r#"run_recovered r1 {"found":"working"}"#,
    ];
    let conversation = fold(&lines);
    assert_eq!(messages(&conversation), ["1 m1 go", "3 a1 said"]);
    assert_eq!(conversation.items().iter().filter(|item| item.assistant().is_some()).count(), 0, "it is superseded");
    lines.extend([r#"assistant_token r1 {"text":"again"}"#, r#"assistant_done r1 {"messageId":"a2"}"#, r#"usage r1"#]);
    let conversation = fold(&lines);
    assert_eq!(messages(&conversation), ["1 m1 go", "3 a1 said", "6 a2 again"]);
    let written: Vec<_> = conversation.items().iter().filter_map(|item| item.assistant()).collect();
    assert_eq!(written.iter().map(|message| message.text()).collect::<Vec<_>>(), ["again"]);
}

#[test]
fn only_complete_texts_are_messages() {
    let conversation = fold(&[
        r#"user_message r1 {"messageId":"m1","text":"go"}"#,
        r#"assistant_token r1 {"text":"Hel"}"#,
        r#"thinking_token r1 {"text":"hm"}"#,
        r#"assistant_token r1 {"text":"lo"}"#,
        r#"assistant_done r1 {"messageId":"a1"}"#,
        r#"assistant_token r1 {"text":"cut of"}"#,
        r#"events_lost - {"afterSeq":6,"untilSeq":7,"cause":"damage"}"#,
        r#"assistant_token r1 {"text":"Again"}"#,
        r#"assistant_done r1 {"messageId":"a2"}"#,
        r#"assistant_token r1 {"text":"unfin"}"#,
    ]);
    assert_eq!(messages(&conversation), ["1 m1 go", "5 a1 Hello", "9 a2 Again"]);
    assert_eq!(conversation.incomplete_text(), Some(Seq::new(10)));
}

#[test]
fn a_branch_into_a_run_keeps_the_texts_that_were_complete_there() {
    let mut lines = vec![
        r#"user_message r1 {"messageId":"m1","text":"go"}"#,
        r#"assistant_token r1 {"text":"one"}"#,
        r#"assistant_done r1 {"messageId":"a1"}"#,
        r#"assistant_token r1 {"text":"two"}"#,
        r#"assistant_done r1 {"messageId":"a2"}"#,
        r#"usage r1"#,
        r#"run_complete r1"#,
    ];
    let whole = fold(&lines);
    assert_eq!(messages(&whole), ["1 m1 go", "3 a1 one", "5 a2 two"]);
    lines.push(r#"session_branched - {"untilSeq":5,"fromSeq":0}"#);
    let conversation = fold(&lines);
    assert_eq!(messages(&conversation), ["1 m1 go", "3 a1 one", "5 a2 two"]);
    assert_eq!(conversation.items()[1].assistant().map(|message| message.text().into_owned()).as_deref(), Some("one"));
    assert_eq!(conversation.items()[2].assistant(), None, "its turn was not complete");
    lines.push(r#"session_branched - {"untilSeq":4,"fromSeq":0}"#);
    let conversation = fold(&lines);
    assert_eq!(messages(&conversation), ["1 m1 go", "3 a1 one"]);
    assert_eq!(conversation.items().len(), 2);
    lines.push(r#"session_branched - {"untilSeq":0,"fromSeq":0}"#);
    assert_eq!(fold(&lines).items(), []);
}

#[test]
fn a_message_names_what_interrupted_the_conversation_before_it() {
    let conversation = fold(&[
        r#"user_message r1 {"messageId":"m1","text":"one"}"#,
        r#"run_complete r1 {"outcome":"cancelled","summary":"stopped"}"#,
        r#"user_message r2 {"messageId":"m2","text":"two"}"#,
        r#"run_complete r2"#,
        r#"user_message r3 {"messageId":"m3","text":"three"}"#,
    ]);
    let users = conversation.items().iter().filter_map(|item| match &item.content {
        ItemContent::UserMessage(message) => Some(message.interruption.as_ref()),
        _ => None,
    });
    let interruptions: Vec<_> = users
        .map(|interruption| match interruption {
            Some(Interruption::RunEnded(report)) => report.summary.as_str(),
            Some(Interruption::EventsLost) => "lost",
            None => "",
        })
        .collect();
    assert_eq!(interruptions, ["", "stopped", ""]);
}

#[test]
fn acceptance_checks_and_budget_questions_are_no_calls_of_the_model() {
    let conversation = fold(&[
        r#"user_message r1 {"messageId":"m1","text":"go"}"#,
        r#"usage r1"#,
        r#"tool_call r1 {"toolName":"raise_budget","callId":"c1"}"#,
        r#"tool_result r1 {"toolName":"raise_budget","callId":"c1","text":"raised"}"#,
        r#"tool_call - {"source":"user","toolName":"bash","callId":"b1","args":{"command":"ls"}}"#,
        r#"tool_result - {"source":"user","toolName":"bash","callId":"b1","text":"a","exitCode":0}"#,
    ]);
    let [_, message, command] = conversation.items() else { panic!("{conversation:?}") };
    assert_eq!(message.assistant().map(|message| message.calls().count()), Some(0));
    let ItemContent::UserCommand(command) = &command.content else { panic!("{command:?}") };
    assert!(command.is_in_context());
    assert_eq!((command.intention.args.as_str(), command.result.text.as_str()), (r#"{"command":"ls"}"#, "a"));
}

#[test]
fn the_end_of_a_run_without_an_answer_is_a_message_without_content() {
    let conversation = fold(&[
        r#"user_message r1 {"messageId":"m1","text":"one"}"#,
        r#"run_complete r1 {"outcome":"failed","summary":"no answer"}"#,
    ]);
    let [_, end] = conversation.items() else { panic!("{conversation:?}") };
    let message = end.assistant().unwrap();
    assert!(!message.has_content());
    let MessageEnd::Interrupted(Interruption::RunEnded(report)) = &message.end else { panic!("{message:?}") };
    assert_eq!(report.summary, "no answer");
}

#[test]
fn a_text_that_a_question_divides_is_one_message() {
    let mut lines = vec![
        r#"user_message r1 {"messageId":"m1","text":"go"}"#,
        r#"assistant_token r1 {"text":"one "}"#,
        r#"approval_required r1 {"approvalId":"g1","callId":"c1"}"#,
    ];
    assert_eq!(fold(&lines).incomplete_text(), Some(Seq::new(2)));
    lines.extend([r#"assistant_token r1 {"text":"two"}"#, r#"assistant_done r1 {"messageId":"a1"}"#, r#"usage r1"#]);
    let conversation = fold(&lines);
    assert_eq!(messages(&conversation), ["1 m1 go", "5 a1 one two"]);
    assert_eq!(conversation.items().iter().filter(|item| item.assistant().is_some()).count(), 2);
}

fn fold(lines: &[&str]) -> Conversation {
    let mut conversation = Conversation::default();
    events(lines).iter().for_each(|event| conversation.fold(event));
    conversation
}

fn messages(conversation: &Conversation) -> Vec<String> {
    let described = |message: &pushd::kernel::conversation::Message<'_>| {
        format!("{} {} {}", message.seq, message.message, message.text)
    };
    conversation.messages().iter().map(described).collect()
}
