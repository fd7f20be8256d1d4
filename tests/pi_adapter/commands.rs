//! Every command in its smallest and its fullest form: valid under the schema, and understood.

use pushd::kernel::event::Image;
use pushd::kernel::id::Json;
use pushd::protocol::pi::ask::{Ask, Asked, Direction, Streaming, Telling, Thinking, UiResponse, Words};
use pushd::protocol::pi::decode::{DecodeLimits, decode};
use pushd::protocol::pi::kind::{Kind, Naming};
use pushd::protocol::pi::nature::{Counting, Keeping, Nature, Order, Versioning};

use crate::pages::judge_command;

/// The fields of commands besides their envelope, with what each asks for.
pub(crate) fn samples() -> Vec<(Kind, &'static str, Ask)> {
    let mut samples = plain();
    samples.extend(talking());
    samples.extend(answers());
    samples
}

/// Commands that say nothing, or little.
fn plain() -> Vec<(Kind, &'static str, Ask)> {
    use Kind as K;
    let path = |path: &str| Some(path.to_owned());
    vec![
        (K::ListSessions, "", Ask::ListSessions),
        (K::CreateSession, "", Ask::CreateSession { cwd: None }),
        (K::CreateSession, r#","cwd":null"#, Ask::CreateSession { cwd: None }),
        (K::CreateSession, r#","cwd":"/w/x y""#, Ask::CreateSession { cwd: path("/w/x y") }),
        (K::CreateSession, r#","cwd":"C:\\w""#, Ask::CreateSession { cwd: path("C:\\w") }),
        (K::DeleteSession, "", Ask::DeleteSession),
        (K::SwitchSession, "", Ask::SwitchSession),
        (K::GetMetrics, "", Ask::GetMetrics),
        (K::HealthCheck, "", Ask::HealthCheck),
        (K::ListStoredSessions, "", Ask::ListStoredSessions),
        (K::LoadSession, r#","sessionPath":"/h/a..b""#, Ask::LoadSession { path: "/h/a..b".into() }),
        (K::GetAvailableModels, "", Ask::GetAvailableModels),
        (K::GetCommands, "", Ask::GetCommands),
        (K::GetSkills, "", Ask::GetSkills),
        (K::GetTools, "", Ask::GetTools),
        (K::ListSessionFiles, "", Ask::ListSessionFiles),
        (K::Abort, "", Ask::Abort),
        (K::GetState, "", Ask::GetState),
        (K::GetMessages, "", Ask::GetMessages),
        (K::CycleModel, "", Ask::CycleModel { direction: Direction::Forward }),
        (K::CycleModel, r#","direction":"forward""#, Ask::CycleModel { direction: Direction::Forward }),
        (K::CycleModel, r#","direction":"backward""#, Ask::CycleModel { direction: Direction::Backward }),
        (
            K::SetModel,
            r#","provider":"p","modelId":"m/1""#,
            Ask::SetModel { provider: "p".into(), model: "m/1".into() },
        ),
        (K::SetThinkingLevel, r#","level":"xhigh""#, Ask::SetThinkingLevel { level: Thinking::XHigh }),
        (K::SetThinkingLevel, r#","level":"none""#, Ask::SetThinkingLevel { level: Thinking::Off }),
        (K::CycleThinkingLevel, "", Ask::CycleThinkingLevel),
        (K::SetSessionName, r#","name":"ü""#, Ask::SetSessionName { name: "ü".into() }),
        (K::Compact, "", Ask::Compact { instructions: None }),
        (K::Compact, r#","customInstructions":" ""#, Ask::Compact { instructions: None }),
        (K::Compact, r#","customInstructions":"code""#, Ask::Compact { instructions: path("code") }),
        (K::AbortCompaction, "", Ask::AbortCompaction),
        (K::SetAutoCompaction, r#","enabled":true"#, Ask::SetAutoCompaction { enabled: true }),
        (K::SetAutoRetry, r#","enabled":false"#, Ask::SetAutoRetry { enabled: false }),
        (K::AbortRetry, "", Ask::AbortRetry),
        (K::AbortBash, "", Ask::AbortBash),
        (K::GetSessionStats, "", Ask::GetSessionStats),
        (K::ExportHtml, "", Ask::ExportHtml { path: None }),
        (K::ExportHtml, r#","outputPath":"out.html""#, Ask::ExportHtml { path: path("out.html") }),
        (K::NewSession, "", Ask::NewSession { parent: None }),
        (K::NewSession, r#","parentSession":"sess_1""#, Ask::NewSession { parent: path("sess_1") }),
        (K::SwitchSessionFile, r#","sessionPath":"/f""#, Ask::SwitchSessionFile { path: "/f".into() }),
        (K::Fork, r#","entryId":"00000001""#, Ask::Fork { entry: "00000001".into() }),
        (K::GetForkMessages, "", Ask::GetForkMessages),
        (K::GetLastAssistantText, "", Ask::GetLastAssistantText),
        (K::GetContextUsage, "", Ask::GetContextUsage),
    ]
}

/// Commands with words.
fn talking() -> Vec<(Kind, &'static str, Ask)> {
    use Kind as K;
    let words = |message: &str, images: &[(&str, &str)]| {
        let picture = |(mime, data): &(&str, &str)| Image { mime: (*mime).into(), data: (*data).into() };
        Box::new(Words { message: message.into(), images: images.iter().map(picture).collect() })
    };
    let prompt = |words, streaming| Ask::Prompt { words, streaming };
    let bash = |telling| Ask::Bash { command: "ls".into(), telling };
    vec![
        (K::Prompt, r#","message":"hi""#, prompt(words("hi", &[]), None)),
        (
            K::Prompt,
            r#","message":"hi","images":[{"type":"image","data":"aGk=","mimeType":"image/png"}],"streamingBehavior":"steer""#,
            prompt(words("hi", &[("image/png", "aGk=")]), Some(Streaming::Steer)),
        ),
        (
            K::Prompt,
            r#","message":"hi","images":null,"streamingBehavior":"followUp""#,
            prompt(words("hi", &[]), Some(Streaming::FollowUp)),
        ),
        (K::Steer, r#","message":"no""#, Ask::Steer(words("no", &[]))),
        (
            K::Steer,
            r#","message":"no","images":[{"type":"image","source":{"type":"base64","mediaType":"image/jpeg","data":"AAAA"}}]"#,
            Ask::Steer(words("no", &[("image/jpeg", "AAAA")])),
        ),
        (K::FollowUp, r#","message":"then""#, Ask::FollowUp(words("then", &[]))),
        (
            K::FollowUp,
            r#","message":"then","images":[{"data":"data:image/gif;base64,AA==","mimeType":"image/gif"}]"#,
            Ask::FollowUp(words("then", &[("image/gif", "AA==")])),
        ),
        (K::Bash, r#","command":"ls""#, bash(Telling::Told)),
        (K::Bash, r#","command":"ls","excludeFromContext":false"#, bash(Telling::Told)),
        (K::Bash, r#","command":"ls","excludeFromContext":true"#, bash(Telling::Kept)),
    ]
}

/// Answers to questions.
fn answers() -> Vec<(Kind, &'static str, Ask)> {
    let answer = |response| Ask::ExtensionUiResponse { request: "r".into(), response: Box::new(response) };
    [
        (
            r#","requestId":"r","response":{"method":"select","value":"A"}"#,
            UiResponse::Select { value: "A".into() },
        ),
        (
            r#","requestId":"r","response":{"method":"confirm","confirmed":false}"#,
            UiResponse::Confirm { confirmed: false },
        ),
        (
            r#","requestId":"r","response":{"method":"input","value":""}"#,
            UiResponse::Input { value: String::new() },
        ),
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
fn every_command_is_valid_and_understood_in_its_smallest_and_fullest_form() {
    for (kind, fields, ask) in samples() {
        assert_eq!(ask.kind(), kind);
        let session = if kind.naming() == Naming::Session { r#","sessionId":"s""# } else { "" };
        let small = format!(r#"{{"type":"{}"{session}{fields}}}"#, kind.name());
        let asked = read(&small);
        assert_eq!(asked.ask, ask, "{small}");
        assert_eq!((asked.id, asked.idempotency_key, asked.depends_on), (None, None, vec![]), "{small}");
        assert_eq!(asked.session.is_some(), !session.is_empty());

        let full = format!(
            r#"{{"type":"{}"{fields},"sessionId":"s","id":"c","dependsOn":["a","b"],"ifSessionVersion":7,"idempotencyKey":"k","more":[1]}}"#,
            kind.name()
        );
        let asked = read(&full);
        assert_eq!((&asked.ask, asked.kind), (&ask, kind), "{full}");
        assert_eq!(asked.id.as_deref(), Some("c"));
        assert_eq!(asked.session.as_ref().map(ToString::to_string).as_deref(), Some("s"));
        assert_eq!(asked.depends_on, ["a", "b"]);
        assert_eq!(asked.if_session_version, Some(7));
        assert_eq!(asked.idempotency_key.as_deref(), Some("k"));
    }
}

#[test]
fn no_command_is_left_out_of_the_samples_and_every_name_is_its_own() {
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
fn a_field_that_is_null_counts_as_not_said() {
    let line = r#"{"type":"prompt","sessionId":"s","message":"hi","id":null,"dependsOn":null,"ifSessionVersion":null,"idempotencyKey":null,"images":null,"streamingBehavior":null}"#;
    let asked = read(line);
    assert_eq!((asked.id, asked.idempotency_key, asked.if_session_version), (None, None, None));
}

#[test]
fn one_command_has_one_spelling_whatever_its_names_and_order() {
    let canonical = |line: &str| read(line).canonical;
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
    for more in
        [r#","dependsOn":["a"]"#, r#","ifSessionVersion":1"#, r#","sessionIdd":1"#, r#","images":null"#]
    {
        assert_ne!(with(more), plain, "{more} is part of what is meant");
    }
    assert_eq!(with(r#","id":"x","idempotencyKey":"y""#), plain);
    let inner = r#"{"type":"extension_ui_response","sessionId":"s","requestId":"r","response":{"method":"interview","responses":{"id":1}}}"#;
    assert!(canonical(inner).contains(r#"{"id":1}"#), "only the command's own id is left out");
}

#[test]
fn natures_are_as_the_protocol_says() {
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
    for kind in Kind::ALL {
        let Nature { order, time_limit, keeping, versioning, counting } = kind.nature();
        let controls = short.contains(kind) || *kind == Kind::DeleteSession;
        assert_eq!(counting == Counting::Control, controls, "{kind:?}");
        let expected = if reads.contains(kind) {
            Order::Reads
        } else if control.contains(kind) {
            Order::Overtakes
        } else if slow.contains(kind) {
            Order::Long
        } else {
            Order::Waits
        };
        assert_eq!(order, expected, "{kind:?}");
        // What stops or answers something waits for no disk.
        let light = reads.contains(kind) || short.contains(kind);
        assert_eq!(keeping == Keeping::Light, light, "{kind:?}");
        assert_eq!(versioning == Versioning::Keeps, reads.contains(kind), "{kind:?}");
        if reads.contains(kind) || short.contains(kind) {
            assert_eq!(time_limit, Some(30_000), "{kind:?}");
        }
        assert_eq!(time_limit == Some(300_000), long.contains(kind), "{kind:?}");
        assert_eq!(time_limit.is_none(), unlimited.contains(kind), "{kind:?}");
    }
    assert_eq!(Kind::CreateSession.nature().versioning, Versioning::Begins);
    assert_eq!(Kind::LoadSession.nature().versioning, Versioning::Begins);
    assert_eq!(Kind::DeleteSession.nature().versioning, Versioning::Ends);
    assert_eq!(Kind::ExportHtml.nature().versioning, Versioning::Bumps);
}

fn read(line: &str) -> Asked {
    if let Err(problems) = judge_command(line) {
        panic!("not valid: {line}\n{}", problems.join("\n"));
    }
    decode(line.as_bytes(), &DecodeLimits::default()).unwrap_or_else(|problem| panic!("{line}: {problem:?}"))
}
