//! Refused commands with their errors, and the error texts that clients depend on.

use bytes::Bytes;
use pushd::kernel::command_log::{AdmissionRefusal, CommandError, MatchedBy};
use pushd::kernel::refusal::Refusal;
use pushd::protocol::intent::Malformed;
use pushd::protocol::operation_result::OperationError;
use pushd::protocol::pi::decode::{DecodeLimits, decode};
use pushd::protocol::pi::encode;
use pushd::protocol::pi::error_text;

use crate::pi_adapter::pages::{check_line, validate_command};

/// Invalid commands, and the error of each.
const WRONG: &[(&str, &str)] = &[
    (r#"{"type":"bogus"}"#, "type: Unknown command type 'bogus'"),
    (r#"{"type":"bogus","sessionId":"s"}"#, "type: Unknown command type 'bogus'"),
    (r#"{"type":"Prompt","sessionId":"s","message":"x"}"#, "type: Unknown command type 'Prompt'"),
    (r#"{}"#, "type: must be a string"),
    (r#"{"type":null}"#, "type: must be a string"),
    (r#"{"type":7}"#, "type: must be a string"),
    (r#"{"type":"get_metrics","id":7}"#, "id: must be a string"),
    (r#"{"type":"get_metrics","id":""}"#, "id: must not be empty"),
    (r#"{"type":"get_metrics","id":" "}"#, "id: must not be empty"),
    (r#"{"type":"get_metrics","id":"anon:1:2"}"#, "id: Cannot use reserved prefix 'anon:'"),
    (r#"{"type":"get_metrics","idempotencyKey":{}}"#, "idempotencyKey: must be a string"),
    (r#"{"type":"get_metrics","idempotencyKey":""}"#, "idempotencyKey: must not be empty"),
    (r#"{"type":"get_metrics","dependsOn":"a"}"#, "dependsOn: must be a list of command ids"),
    (r#"{"type":"get_metrics","dependsOn":["a",1]}"#, "dependsOn[1]: must be a command id"),
    (r#"{"type":"get_metrics","dependsOn":[""]}"#, "dependsOn[0]: must be a command id"),
    (
        r#"{"type":"get_state","sessionId":"s","ifSessionVersion":-1}"#,
        "ifSessionVersion: must be a whole number that is not negative",
    ),
    (
        r#"{"type":"get_state","sessionId":"s","ifSessionVersion":1.5}"#,
        "ifSessionVersion: must be a whole number that is not negative",
    ),
    (
        r#"{"type":"get_state","sessionId":"s","ifSessionVersion":"1"}"#,
        "ifSessionVersion: must be a whole number that is not negative",
    ),
    (r#"{"type":"list_sessions","ifSessionVersion":1}"#, "ifSessionVersion: needs a command that names a session"),
    (r#"{"type":"get_state"}"#, NO_SESSION),
    (r#"{"type":"get_state","sessionId":null}"#, NO_SESSION),
    (r#"{"type":"get_state","sessionId":""}"#, NO_SESSION),
    (r#"{"type":"get_state","sessionId":"  "}"#, NO_SESSION),
    (r#"{"type":"get_state","sessionId":5}"#, NO_SESSION),
    (r#"{"type":"delete_session"}"#, NO_SESSION),
    (r#"{"type":"switch_session"}"#, NO_SESSION),
    (r#"{"type":"create_session","sessionId":""}"#, "sessionId: must not be empty"),
    (r#"{"type":"create_session","sessionId":1}"#, "sessionId: must be a string"),
    (r#"{"type":"create_session","cwd":1}"#, "cwd: must be a string"),
    (r#"{"type":"create_session","cwd":"here"}"#, "cwd: cwd must be an absolute path"),
    (r#"{"type":"create_session","cwd":"/a/../b"}"#, "cwd: cwd contains potentially dangerous path components"),
    (r#"{"type":"load_session"}"#, "sessionPath: must be a string and is missing"),
    (r#"{"type":"load_session","sessionPath":[]}"#, "sessionPath: must be a string"),
    (r#"{"type":"load_session","sessionPath":"a/b"}"#, "sessionPath: sessionPath must be an absolute path"),
    (r#"{"type":"load_session","sessionPath":"~/.pi/a"}"#, "sessionPath: sessionPath must be an absolute path"),
    (r#"{"type":"load_session","sessionPath":"/a/../b"}"#, DANGEROUS),
    (r#"{"type":"load_session","sessionPath":"../b"}"#, DANGEROUS),
    (r#"{"type":"load_session","sessionPath":"/a/.."}"#, DANGEROUS),
    (r#"{"type":"load_session","sessionPath":"C:\\a\\..\\b"}"#, DANGEROUS),
    (r#"{"type":"load_session","sessionPath":"/a\u0000b"}"#, DANGEROUS),
    (r#"{"type":"switch_session_file","sessionId":"s","sessionPath":"/../x"}"#, DANGEROUS),
    (r#"{"type":"switch_session_file","sessionId":"s"}"#, "sessionPath: must be a string and is missing"),
    (r#"{"type":"prompt","sessionId":"s"}"#, "message: must be a string and is missing"),
    (r#"{"type":"prompt","sessionId":"s","message":""}"#, "message: must not be empty"),
    (r#"{"type":"prompt","sessionId":"s","message":["x"]}"#, "message: must be a string"),
    (
        r#"{"type":"prompt","sessionId":"s","message":"x","streamingBehavior":"now"}"#,
        "streamingBehavior: must be one of steer, followUp",
    ),
    (r#"{"type":"prompt","sessionId":"s","message":"x","images":{}}"#, "images: must be a list of images"),
    (r#"{"type":"prompt","sessionId":"s","message":"x","images":["x"]}"#, NO_IMAGE),
    (r#"{"type":"prompt","sessionId":"s","message":"x","images":[{"data":"AAAA"}]}"#, NO_IMAGE),
    (r#"{"type":"prompt","sessionId":"s","message":"x","images":[{"mimeType":"image/png"}]}"#, NO_IMAGE),
    (r#"{"type":"prompt","sessionId":"s","message":"x","images":[{"data":"AAAA","mimeType":"text/html"}]}"#, NO_IMAGE),
    (r#"{"type":"prompt","sessionId":"s","message":"x","images":[{"data":"A\"A<","mimeType":"image/png"}]}"#, NO_IMAGE),
    (r#"{"type":"steer","sessionId":"s"}"#, "message: must be a string and is missing"),
    (r#"{"type":"follow_up","sessionId":"s","message":null}"#, "message: must be a string and is missing"),
    (r#"{"type":"set_model","sessionId":"s","modelId":"m"}"#, "provider: must be a string and is missing"),
    (r#"{"type":"set_model","sessionId":"s","provider":"p"}"#, "modelId: must be a string and is missing"),
    (r#"{"type":"cycle_model","sessionId":"s","direction":"up"}"#, "direction: must be one of forward, backward"),
    (r#"{"type":"set_thinking_level","sessionId":"s"}"#, LEVELS),
    (r#"{"type":"set_thinking_level","sessionId":"s","level":"max"}"#, LEVELS),
    (r#"{"type":"set_thinking_level","sessionId":"s","level":3}"#, LEVELS),
    (r#"{"type":"set_session_name","sessionId":"s"}"#, "name: must be a string and is missing"),
    (r#"{"type":"set_session_name","sessionId":"s","name":" "}"#, "name: must not be empty"),
    (r#"{"type":"set_session_name","sessionId":"s","name":"a\u001b[2J"}"#, "name: must not contain control characters"),
    (r#"{"type":"compact","sessionId":"s","customInstructions":1}"#, "customInstructions: must be a string"),
    (r#"{"type":"set_auto_compaction","sessionId":"s"}"#, "enabled: must be true or false"),
    (r#"{"type":"set_auto_retry","sessionId":"s","enabled":"yes"}"#, "enabled: must be true or false"),
    (r#"{"type":"bash","sessionId":"s"}"#, "command: must be a string and is missing"),
    (
        r#"{"type":"bash","sessionId":"s","command":"ls","excludeFromContext":1}"#,
        "excludeFromContext: must be true or false",
    ),
    (r#"{"type":"export_html","sessionId":"s","outputPath":1}"#, "outputPath: must be a string"),
    (
        r#"{"type":"export_html","sessionId":"s","outputPath":"../x"}"#,
        "outputPath: outputPath contains potentially dangerous path components",
    ),
    (
        r#"{"type":"new_session","sessionId":"s","parentSession":"/a/../b"}"#,
        "parentSession: parentSession contains potentially dangerous path components",
    ),
    (r#"{"type":"fork","sessionId":"s"}"#, "entryId: must be a string and is missing"),
    (
        r#"{"type":"extension_ui_response","sessionId":"s","response":{"method":"cancelled"}}"#,
        "requestId: must be a string and is missing",
    ),
    (r#"{"type":"extension_ui_response","sessionId":"s","requestId":"r"}"#, "response: must be an object"),
    (r#"{"type":"extension_ui_response","sessionId":"s","requestId":"r","response":{"method":"shout"}}"#, METHODS),
    (r#"{"type":"extension_ui_response","sessionId":"s","requestId":"r","response":{}}"#, METHODS),
    (
        r#"{"type":"extension_ui_response","sessionId":"s","requestId":"r","response":{"method":"select"}}"#,
        "response.value: must be a string and is missing",
    ),
    (
        r#"{"type":"extension_ui_response","sessionId":"s","requestId":"r","response":{"method":"confirm","confirmed":"yes"}}"#,
        "response.confirmed: must be true or false",
    ),
    (
        r#"{"type":"extension_ui_response","sessionId":"s","requestId":"r","response":{"method":"interview","responses":[]}}"#,
        "response.responses: must be an object",
    ),
];

const NO_SESSION: &str = "sessionId: Session commands must have a non-empty string 'sessionId'";
const DANGEROUS: &str = "sessionPath: sessionPath contains potentially dangerous path components; sessionPath must \
    be an absolute path under an allowed session directory, without `..`";
const NO_IMAGE: &str = "images[0]: must be an image with a type and data in base64";
const LEVELS: &str = "level: must be one of off, minimal, low, medium, high, xhigh";
const METHODS: &str = "response.method: must be one of select, confirm, input, editor, interview, cancelled";

#[test]
fn an_invalid_command_is_refused_with_its_field_and_by_the_schema() {
    for (line, problem) in WRONG {
        let malformed = refuse(line);
        assert_eq!(malformed.error.message, format!("Validation failed: {problem}"), "{line}");
        assert!(validate_command(line).is_err(), "the schema allows {line}");
        check_line(&response(&malformed));
    }
}

#[test]
fn a_refusal_repeats_the_id_and_the_type_where_they_can_be_read() {
    let refused = refuse(r#"{"type":"prompt","id":"c1","sessionId":"s"}"#);
    assert_eq!((refused.tag.request_id.as_deref(), refused.tag.kind_name.as_str()), (Some("c1"), "prompt"));
    let refused = refuse(r#"{"type":"bogus","id":"c2"}"#);
    assert_eq!((refused.tag.request_id.as_deref(), refused.tag.kind_name.as_str()), (Some("c2"), "bogus"));
    let refused = refuse(r#"{"id":"c3"}"#);
    assert_eq!((refused.tag.request_id.as_deref(), refused.tag.kind_name.as_str()), (Some("c3"), "unknown"));
    let refused = refuse(r#"{"type":"get_state","id":5}"#);
    assert_eq!((refused.tag.request_id.as_deref(), refused.tag.kind_name.as_str()), (None, "get_state"));
    let long = "x".repeat(257);
    let refused = refuse(&format!(r#"{{"type":"{long}","id":"{long}"}}"#));
    assert_eq!((refused.tag.request_id.as_deref(), refused.tag.kind_name.as_str()), (None, "unknown"));
    assert_eq!(refused.error.message, "Validation failed: type: must be at most 256 characters, not 257");
}

#[test]
fn a_line_that_is_not_a_command_is_answered_as_unknown() {
    for line in ["", "{", "no", "{\"type\":}", "\u{feff}{}", "{}{}", "{\"type\":\"abort\"} x"] {
        let refused = refuse(line);
        let answer = response(&refused);
        assert_eq!(
            answer,
            r#"{"type":"response","command":"unknown","success":false,"error":"Invalid JSON"}"#.as_bytes(),
            "{line}"
        );
    }
    assert_eq!(decode(b"\xff\xfe", &DecodeLimits::default()).unwrap_err().error.message, "Invalid JSON");
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(refuse(&deep).error.message, "Invalid JSON");
    for line in ["[]", "null", "7", "\"prompt\"", "true"] {
        assert_eq!(refuse(line).error.message, "Validation failed: command: must be a JSON object", "{line}");
    }
}

#[test]
fn length_limits_are_exact() {
    let limits =
        DecodeLimits { message: 8, bash: 6, name: 5, id: 4, dependencies: 3, path: 7, images: 2, image_bytes: 12 };
    let images = |images: &[&str]| {
        let one = |data: &&str| format!(r#"{{"data":"{data}","mimeType":"image/png"}}"#);
        let images: Vec<_> = images.iter().map(one).collect();
        format!(r#""type":"prompt","message":"x","images":[{}]"#, images.join(","))
    };
    let cases = [
        (r#""type":"prompt","message":"ääääääää""#.to_owned(), None),
        (r#""type":"prompt","message":"äääääääää""#.to_owned(), Some("message: must be at most 8 characters, not 9")),
        (r#""type":"bash","command":"123456""#.to_owned(), None),
        (r#""type":"bash","command":"1234567""#.to_owned(), Some("command: must be at most 6 characters, not 7")),
        (r#""type":"set_session_name","name":"12345""#.to_owned(), None),
        (r#""type":"set_session_name","name":"123456""#.to_owned(), Some("name: must be at most 5 characters, not 6")),
        (r#""type":"abort","id":"1234""#.to_owned(), None),
        (r#""type":"abort","id":"12345""#.to_owned(), Some("id: must be at most 4 characters, not 5")),
        (
            r#""type":"abort","idempotencyKey":"12345""#.to_owned(),
            Some("idempotencyKey: must be at most 4 characters, not 5"),
        ),
        (r#""type":"abort","dependsOn":["1","2","3"]"#.to_owned(), None),
        (
            r#""type":"abort","dependsOn":["1","2","3","4"]"#.to_owned(),
            Some("dependsOn: must be at most 3 command ids, not 4"),
        ),
        (
            r#""type":"abort","dependsOn":["1","12345"]"#.to_owned(),
            Some("dependsOn[1]: must be at most 4 characters, not 5"),
        ),
        (r#""type":"load_session","sessionPath":"/123456""#.to_owned(), None),
        (
            r#""type":"load_session","sessionPath":"/1234567""#.to_owned(),
            Some("sessionPath: must be at most 7 characters, not 8"),
        ),
        (images(&["AAAA", "AAAAAAAA"]), None),
        (images(&["AAAA", "AAAA", "AAAA"]), Some("images: must be at most 2 images, not 3")),
        (images(&["AAAAAAAA", "AAAAAAAA"]), Some("images: must be at most 12 bytes together, not 16")),
    ];
    for (fields, problem) in cases {
        let line = format!(r#"{{"sessionId":"s",{fields}}}"#);
        let found = decode(line.as_bytes(), &limits).err().map(|malformed| malformed.error.message);
        assert_eq!(found, problem.map(|problem| format!("Validation failed: {problem}")), "{line}");
    }
    let line = r#"{"sessionId":"12345","type":"abort"}"#;
    let found = decode(line.as_bytes(), &limits).unwrap_err().error.message;
    assert_eq!(found, "Validation failed: sessionId: must be at most 4 characters, not 5");
}

#[test]
fn the_limits_are_those_of_the_protocol() {
    let limits = DecodeLimits::default();
    assert_eq!(
        (limits.message, limits.bash, limits.name, limits.id, limits.dependencies, limits.path),
        (200_000, 20_000, 256, 256, 32, 4096)
    );
}

#[test]
fn error_texts_of_the_command_log_are_exact() {
    let conflict = |matched_by| CommandError::Conflict {
        matched_by,
        name: "c".into(),
        earlier: "get_state".into(),
        requested: "get_messages".into(),
    };
    for (error, sentence) in [
        (conflict(MatchedBy::Id), "Conflicting id 'c': previously used for 'get_state', now used for 'get_messages'"),
        (
            conflict(MatchedBy::Key),
            "Conflicting idempotencyKey 'c': previously used for 'get_state', now used for 'get_messages'",
        ),
        (CommandError::UnknownDependency { dependency: "x".into() }, "Dependency 'x' is unknown"),
        (CommandError::DependencyFailed { dependency: "x".into(), error: "why".into() }, "Dependency 'x' failed: why"),
        (
            CommandError::SameLane { dependency: "x".into() },
            "Dependency 'x' is queued in the same lane and cannot be awaited from this command",
        ),
        (CommandError::SelfDependency { name: "x".into() }, "Command 'x' cannot depend on itself"),
        (CommandError::DependencyTimeout { dependency: "x".into(), millis: 1 }, "Dependency 'x' timed out after 1ms"),
        (
            CommandError::TimedOut { name: "c".into(), kind: "x".into(), millis: 30_000 },
            "Command 'x' timed out after 30000ms",
        ),
        (CommandError::Interrupted, "interrupted by restart"),
    ] {
        assert_eq!(error_text::command_error(&error), sentence);
    }
    for (refusal, sentence) in [
        (AdmissionRefusal::Busy { limit: 1 }, "Server busy - too many concurrent commands. Please retry."),
        (AdmissionRefusal::ShuttingDown, "Server is shutting down"),
    ] {
        assert_eq!(error_text::refusal(&refusal), sentence);
    }
}

#[test]
fn error_texts_of_operations_are_exact() {
    let missing = |version| OperationError::SessionNotFound { session: "X".into(), version };
    let request = || "X".to_owned();
    for (error, sentence) in [
        (
            OperationError::Refused(Refusal::Stale { expected: 0, actual: 1 }),
            "Session version mismatch: expected 0, got 1",
        ),
        (missing(Some(3)), "Session X not found for ifSessionVersion=3"),
        (missing(None), "Session X not found"),
        (OperationError::SessionExists("X".into()), "Session X already exists"),
        (OperationError::SessionLimit, "Session limit reached"),
        (OperationError::UnknownQuestion(request()), "No pending UI request with id X"),
        (OperationError::QuestionSettled(request()), "Request X already settled"),
        (OperationError::QuestionOfOtherSession(request()), "Session ID mismatch for request X"),
        (OperationError::ProviderCircuitOpen, "Circuit breaker open"),
        (OperationError::ShellCircuitOpen, "Bash circuit breaker open"),
    ] {
        assert_eq!(error_text::operation_error(&error), sentence);
    }
}

fn refuse(line: &str) -> Malformed {
    match decode(line.as_bytes(), &DecodeLimits::default()) {
        Err(malformed) => malformed,
        Ok(request) => panic!("{line} was understood: {request:?}"),
    }
}

/// The response to a line that is not a command.
fn response(malformed: &Malformed) -> Bytes {
    let Malformed { tag, error } = malformed;
    encode::failure_response(tag.request_id.as_deref(), &tag.kind_name, &error.message)
}
