//! Every command in its shortest and its longest form: valid under the schema, and decoded.

use pushd::kernel::command_log::{Persistence, RateClass, Scheduling};
use pushd::kernel::event::Image;
use pushd::kernel::id::Json;
use pushd::protocol::intent::{Intent, RequestTag};
use pushd::protocol::operation::{
    CommandRequest, ContextInclusion, Delivery, Direction, Operation, Thinking, UiResponse, UserInput,
};
use pushd::protocol::pi::decode::{DecodeLimits, decode};
use pushd::protocol::pi::kind::{Kind, SessionRequirement};

use crate::pi_adapter::pages::validate_command;

/// The fields of commands besides their envelope, with the decoded request.
pub(crate) fn samples() -> Vec<(Kind, &'static str, Operation)> {
    let mut samples = plain_commands();
    samples.extend(message_commands());
    samples.extend(answer_commands());
    samples
}

/// Commands with few or no fields.
fn plain_commands() -> Vec<(Kind, &'static str, Operation)> {
    use Kind as K;
    let path = |path: &str| Some(path.to_owned());
    vec![
        (K::ListSessions, "", Operation::ListSessions),
        (K::CreateSession, "", Operation::CreateSession { cwd: None }),
        (K::CreateSession, r#","cwd":null"#, Operation::CreateSession { cwd: None }),
        (K::CreateSession, r#","cwd":"/w/x y""#, Operation::CreateSession { cwd: path("/w/x y") }),
        (K::CreateSession, r#","cwd":"C:\\w""#, Operation::CreateSession { cwd: path("C:\\w") }),
        (K::DeleteSession, "", Operation::UnloadSession),
        (K::SwitchSession, "", Operation::Subscribe),
        (K::GetMetrics, "", Operation::Metrics),
        (K::HealthCheck, "", Operation::Health),
        (K::ListStoredSessions, "", Operation::ListStoredSessions),
        (K::LoadSession, r#","sessionPath":"/h/a..b""#, Operation::LoadSession { path: "/h/a..b".into() }),
        (K::GetAvailableModels, "", Operation::ListModels),
        (K::GetCommands, "", Operation::ListSlashCommands),
        (K::GetSkills, "", Operation::ListSkills),
        (K::GetTools, "", Operation::ListTools),
        (K::ListSessionFiles, "", Operation::ListSessionFiles),
        (K::Abort, "", Operation::Cancel),
        (K::GetState, "", Operation::Describe),
        (K::GetMessages, "", Operation::Messages),
        (K::CycleModel, "", Operation::CycleModel { direction: Direction::Forward }),
        (K::CycleModel, r#","direction":"forward""#, Operation::CycleModel { direction: Direction::Forward }),
        (K::CycleModel, r#","direction":"backward""#, Operation::CycleModel { direction: Direction::Backward }),
        (
            K::SetModel,
            r#","provider":"p","modelId":"m/1""#,
            Operation::SetModel { provider: "p".into(), model: "m/1".into() },
        ),
        (K::SetThinkingLevel, r#","level":"xhigh""#, Operation::SetThinking { level: Thinking::XHigh }),
        (K::SetThinkingLevel, r#","level":"none""#, Operation::SetThinking { level: Thinking::Off }),
        (K::CycleThinkingLevel, "", Operation::CycleThinking),
        (K::SetSessionName, r#","name":"ü""#, Operation::Rename { name: "ü".into() }),
        (K::Compact, "", Operation::Compact { instructions: None }),
        (K::Compact, r#","customInstructions":" ""#, Operation::Compact { instructions: None }),
        (K::Compact, r#","customInstructions":"code""#, Operation::Compact { instructions: path("code") }),
        (K::AbortCompaction, "", Operation::StopCompaction),
        (K::SetAutoCompaction, r#","enabled":true"#, Operation::SetAutoCompaction { enabled: true }),
        (K::SetAutoRetry, r#","enabled":false"#, Operation::SetAutoRetry { enabled: false }),
        (K::AbortRetry, "", Operation::StopRetry),
        (K::AbortBash, "", Operation::StopShell),
        (K::GetSessionStats, "", Operation::Statistics),
        (K::ExportHtml, "", Operation::Export { path: None }),
        (K::ExportHtml, r#","outputPath":"out.html""#, Operation::Export { path: path("out.html") }),
        (K::NewSession, "", Operation::NewConversation { parent: None }),
        (K::NewSession, r#","parentSession":"sess_1""#, Operation::NewConversation { parent: path("sess_1") }),
        (K::SwitchSessionFile, r#","sessionPath":"/f""#, Operation::SwitchFile { path: "/f".into() }),
        (K::Fork, r#","entryId":"00000001""#, Operation::Fork { entry: "00000001".into() }),
        (K::GetForkMessages, "", Operation::ForkMessages),
        (K::GetLastAssistantText, "", Operation::LastText),
        (K::GetContextUsage, "", Operation::ContextUsage),
    ]
}

/// Commands with messages.
fn message_commands() -> Vec<(Kind, &'static str, Operation)> {
    use Kind as K;
    let input = |message: &str, images: &[(&str, &str)]| {
        let picture = |(mime, data): &(&str, &str)| Image { mime: (*mime).into(), data: (*data).into() };
        Box::new(UserInput { message: message.into(), images: images.iter().map(picture).collect() })
    };
    let prompt = |text, streaming| Operation::Prompt { input: text, during_run: streaming };
    let bash = |context| Operation::RunShell { command: "ls".into(), context };
    vec![
        (K::Prompt, r#","message":"hi""#, prompt(input("hi", &[]), None)),
        (
            K::Prompt,
            r#","message":"hi","images":[{"type":"image","data":"aGk=","mimeType":"image/png"}],"streamingBehavior":"steer""#,
            prompt(input("hi", &[("image/png", "aGk=")]), Some(Delivery::Steer)),
        ),
        (
            K::Prompt,
            r#","message":"hi","images":null,"streamingBehavior":"followUp""#,
            prompt(input("hi", &[]), Some(Delivery::Queue)),
        ),
        (K::Steer, r#","message":"no""#, Operation::Steer(input("no", &[]))),
        (
            K::Steer,
            r#","message":"no","images":[{"type":"image","source":{"type":"base64","mediaType":"image/jpeg","data":"AAAA"}}]"#,
            Operation::Steer(input("no", &[("image/jpeg", "AAAA")])),
        ),
        (K::FollowUp, r#","message":"then""#, Operation::Queue(input("then", &[]))),
        (
            K::FollowUp,
            r#","message":"then","images":[{"data":"data:image/gif;base64,AA==","mimeType":"image/gif"}]"#,
            Operation::Queue(input("then", &[("image/gif", "AA==")])),
        ),
        (K::Bash, r#","command":"ls""#, bash(ContextInclusion::Included)),
        (K::Bash, r#","command":"ls","excludeFromContext":false"#, bash(ContextInclusion::Included)),
        (K::Bash, r#","command":"ls","excludeFromContext":true"#, bash(ContextInclusion::Excluded)),
    ]
}

/// Answers to questions.
fn answer_commands() -> Vec<(Kind, &'static str, Operation)> {
    let answer = |response| Operation::Answer { request: "r".into(), response: Box::new(response) };
    [
        (r#","requestId":"r","response":{"method":"select","value":"A"}"#, UiResponse::Select { value: "A".into() }),
        (
            r#","requestId":"r","response":{"method":"confirm","confirmed":false}"#,
            UiResponse::Confirm { confirmed: false },
        ),
        (r#","requestId":"r","response":{"method":"input","value":""}"#, UiResponse::Input { value: String::new() }),
        (
            r#","requestId":"r","response":{"method":"editor","value":"a\nb"}"#,
            UiResponse::Editor { value: "a\nb".into() },
        ),
        (
            r#","requestId":"r","response":{"method":"interview","responses":{"q":[1,"x"],"a":null}}"#,
            UiResponse::Interview { responses: Json::new(r#"{"a":null,"q":[1,"x"]}"#) },
        ),
        (r#","requestId":"r","response":{"method":"cancelled"}"#, UiResponse::Cancelled),
    ]
    .into_iter()
    .map(|(fields, response)| (Kind::ExtensionUiResponse, fields, answer(response)))
    .collect()
}

#[test]
fn every_command_is_valid_and_decoded_in_its_shortest_and_longest_form() {
    for (kind, fields, operation) in samples() {
        let session =
            if kind.session_requirement() == SessionRequirement::Required { r#","sessionId":"s""# } else { "" };
        let small = format!(r#"{{"type":"{}"{session}{fields}}}"#, kind.name());
        let (tag, request) = read(&small);
        assert_eq!(request.operation, operation, "{small}");
        assert_eq!((tag.request_id, request.idempotency_key, request.depends_on), (None, None, vec![]), "{small}");
        assert_eq!(tag.session.is_some(), !session.is_empty());

        let full = format!(
            r#"{{"type":"{}"{fields},"sessionId":"s","id":"c","dependsOn":["a","b"],"ifSessionVersion":7,"idempotencyKey":"k","more":[1]}}"#,
            kind.name()
        );
        let (tag, request) = read(&full);
        assert_eq!((&request.operation, tag.kind_name.as_str()), (&operation, kind.name()), "{full}");
        assert_eq!(tag.request_id.as_deref(), Some("c"));
        assert_eq!(tag.session.as_ref().map(ToString::to_string).as_deref(), Some("s"));
        assert_eq!(request.depends_on, ["a", "b"]);
        assert_eq!(request.if_version, Some(7));
        assert_eq!(request.idempotency_key.as_deref(), Some("k"));
        assert_eq!(request.time_limit, kind.time_limit());
    }
}

#[test]
fn the_samples_contain_every_command_and_names_are_unique() {
    let mut sampled: Vec<Kind> = samples().into_iter().map(|(kind, ..)| kind).collect();
    sampled.sort_unstable();
    sampled.dedup();
    assert_eq!(sampled, Kind::ALL);
    assert_eq!(Kind::ALL.len(), 40);
    for kind in Kind::ALL {
        assert_eq!(Kind::parse(kind.name()), Some(*kind));
    }
}

#[test]
fn a_field_that_is_null_counts_as_absent() {
    let line = r#"{"type":"prompt","sessionId":"s","message":"hi","id":null,"dependsOn":null,"ifSessionVersion":null,"idempotencyKey":null,"images":null,"streamingBehavior":null}"#;
    let (tag, request) = read(line);
    assert_eq!((tag.request_id, request.idempotency_key, request.if_version), (None, None, None));
}

#[test]
fn the_fingerprint_of_a_command_ignores_ids_and_field_order() {
    let canonical = |line: &str| read(line).1.canonical;
    let first = canonical(
        r#"{"id":"a","type":"extension_ui_response","sessionId":"s","requestId":"r","response":{"method":"interview","responses":{"b":1,"a":{"z":[{"y":1,"x":2}]}}}}"#,
    );
    let second = canonical(
        r#"{ "response" : {"responses":{"a":{"z":[{"x":2,"y":1}]},"b":1},"method":"interview"},"requestId":"r","sessionId":"s","idempotencyKey":"k","type":"extension_ui_response"}"#,
    );
    assert_eq!(first, second);
    assert_eq!(
        first,
        r#"{"requestId":"r","response":{"method":"interview","responses":{"a":{"z":[{"x":2,"y":1}]},"b":1}},"sessionId":"s","type":"extension_ui_response"}"#
    );
    let with = |more: &str| canonical(&format!(r#"{{"type":"get_state","sessionId":"s"{more}}}"#));
    let plain = with("");
    for more in [r#","dependsOn":["a"]"#, r#","ifSessionVersion":1"#, r#","sessionIdd":1"#, r#","images":null"#] {
        assert_ne!(with(more), plain, "{more} is part of the fingerprint");
    }
    assert_eq!(with(r#","id":"x","idempotencyKey":"y""#), plain);
    let inner = r#"{"type":"extension_ui_response","sessionId":"s","requestId":"r","response":{"method":"interview","responses":{"id":1}}}"#;
    assert!(canonical(inner).contains(r#"{"id":1}"#), "only the command's own id is left out");
}

#[test]
fn the_properties_of_commands_are_those_of_the_protocol() {
    let named = |names: &str| -> Vec<Kind> {
        names.split_whitespace().map(|name| Kind::parse(name).unwrap_or_else(|| panic!("{name}"))).collect()
    };
    let reads = named(
        "list_sessions switch_session get_metrics health_check list_stored_sessions get_available_models get_commands
         get_skills get_tools list_session_files get_state get_messages get_session_stats get_fork_messages
         get_last_assistant_text get_context_usage",
    );
    let control = named("abort abort_bash abort_retry abort_compaction steer extension_ui_response");
    let short = named("abort abort_bash abort_retry abort_compaction extension_ui_response");
    let long = named("prompt steer follow_up compact bash new_session switch_session_file fork");
    let slow = named("bash compact");
    let unlimited = named("create_session delete_session load_session set_session_name export_html");
    for (kind, _, operation) in &samples() {
        let (policy, time_limit) = (operation.action().policy(), kind.time_limit());
        let (order, keeping, counting) = (policy.scheduling(), policy.persistence(), policy.rate_class());
        let controls = short.contains(kind) || *kind == Kind::DeleteSession;
        assert_eq!(counting == RateClass::Control, controls, "{kind:?}");
        let expected = if reads.contains(kind) {
            Scheduling::Read
        } else if control.contains(kind) {
            Scheduling::Bypass
        } else if slow.contains(kind) {
            Scheduling::LongWrite
        } else {
            Scheduling::Write
        };
        assert_eq!(order, expected, "{kind:?}");
        // Commands that stop or dismiss something do not wait for the disk.
        let answers = matches!(operation, Operation::Answer { response, .. }
            if !matches!(**response, UiResponse::Cancelled | UiResponse::Confirm { confirmed: false }));
        assert_eq!(keeping == Persistence::Relaxed, short.contains(kind) && !answers, "{kind:?}");
        // What only reads is not stored.
        assert_eq!(keeping == Persistence::Cached, reads.contains(kind), "{kind:?}");
        if reads.contains(kind) || short.contains(kind) {
            assert_eq!(time_limit, Some(30_000), "{kind:?}");
        }
        assert_eq!(time_limit == Some(300_000), long.contains(kind), "{kind:?}");
        assert_eq!(time_limit.is_none(), unlimited.contains(kind), "{kind:?}");
    }
}

fn read(line: &str) -> (RequestTag, CommandRequest) {
    if let Err(problems) = validate_command(line) {
        panic!("not valid: {line}\n{}", problems.join("\n"));
    }
    let request = decode(line.as_bytes(), &DecodeLimits::default());
    let request = request.unwrap_or_else(|problem| panic!("{line}: {problem:?}"));
    let Intent::Command(command) = request.intent else { panic!("{line}: not a command") };
    (request.tag, *command)
}
