//! Lines of the server: exact where clients depend on it, and valid in every variant.

use pushd::kernel::id::SessionId;
use pushd::kernel::time::Now;
use pushd::protocol::command_protocol::{CommandLifecycle, CommandResponse, LifecycleStage};
use pushd::protocol::operation::Thinking;
use pushd::protocol::operation_result::{
    CommandRow, CommandSource, ContextUsage, FileRow, Health, ModelCost, ModelRow, OperationResult, ServiceMetrics,
    SessionInfo, ShellCircuits, ShellResult, StoredSession, ToolRow,
};
use pushd::protocol::pi::encode::{self, Data};
use pushd::protocol::pi::kind::Kind;
use pushd::protocol::pi::projection::{ForkMessage, Stats, Summary};
use pushd::protocol::reply::CircuitRow;

use crate::pi_adapter::pages::{FILES, check_line, validate_line};

#[test]
fn lines_of_the_server_are_encoded_exactly() {
    let session = SessionId::from("s");
    for (line, spelled) in [
        (
            encode::server_ready("0.1.0", &["websocket", "stdio"]),
            r#"{"type":"server_ready","data":{"serverVersion":"0.1.0","protocolVersion":"1.0.0","transports":["websocket","stdio"]}}"#,
        ),
        (
            encode::server_shutdown("graceful_shutdown", Some(30_000)),
            r#"{"type":"server_shutdown","data":{"reason":"graceful_shutdown","timeoutMs":30000}}"#,
        ),
        (encode::server_shutdown("forced", None), r#"{"type":"server_shutdown","data":{"reason":"forced"}}"#),
        (encode::session_deleted(&session), r#"{"type":"session_deleted","data":{"sessionId":"s"}}"#),
        (
            encode::session_created(&info(None)),
            r#"{"type":"session_created","data":{"sessionId":"s","sessionInfo":{"createdAt":"2026-02-28T10:00:00.000Z","isStreaming":false,"messageCount":42,"sessionId":"s","thinkingLevel":"off"}}}"#,
        ),
    ] {
        check_line(&line);
        assert_eq!(std::str::from_utf8(&line).unwrap(), spelled);
    }
}

#[test]
fn lifecycle_events_are_encoded_exactly() {
    let session = SessionId::from("s");
    let plain = CommandLifecycle {
        command_id: "anon:1:2",
        command: "health_check",
        session: None,
        depends_on: &[],
        if_session_version: None,
        idempotency_key: None,
    };
    let depends_on = ["a".to_owned()];
    let full = CommandLifecycle {
        command_id: "c",
        command: "prompt",
        session: Some(&session),
        depends_on: &depends_on,
        if_session_version: Some(0),
        idempotency_key: Some("k"),
    };
    let finished = |error, replayed| LifecycleStage::Finished { error, session_version: Some(1), replayed };
    let base = r#""commandId":"c","commandType":"prompt","sessionId":"s","dependsOn":["a"],"ifSessionVersion":0,"idempotencyKey":"k""#;
    for (line, spelled) in [
        (
            encode::lifecycle(&plain, LifecycleStage::Accepted),
            r#"{"type":"command_accepted","data":{"commandId":"anon:1:2","commandType":"health_check","dependsOn":[]}}"#.to_owned(),
        ),
        (
            encode::lifecycle(&full, LifecycleStage::Started),
            format!(r#"{{"type":"command_started","data":{{{base}}}}}"#),
        ),
        (
            encode::lifecycle(&full, finished(None, false)),
            format!(r#"{{"type":"command_finished","data":{{{base},"success":true,"sessionVersion":1}}}}"#),
        ),
        (
            encode::lifecycle(&full, finished(Some("no"), true)),
            format!(
                r#"{{"type":"command_finished","data":{{{base},"success":false,"error":"no","sessionVersion":1,"replayed":true}}}}"#
            ),
        ),
    ] {
        check_line(&line);
        assert_eq!(std::str::from_utf8(&line).unwrap(), spelled);
    }
}

#[test]
fn a_response_contains_only_the_fields_that_it_needs() {
    let plain = CommandResponse {
        id: None,
        command: "prompt",
        success: true,
        body: "",
        session_version: None,
        replayed: false,
        timed_out: false,
    };
    for (response, spelled) in [
        (plain, r#"{"type":"response","command":"prompt","success":true}"#),
        (
            CommandResponse { id: Some("c\n"), session_version: Some(7), replayed: true, ..plain },
            r#"{"id":"c\n","type":"response","command":"prompt","success":true,"sessionVersion":7,"replayed":true}"#,
        ),
        (
            CommandResponse { success: false, body: "Command 'x' timed out after 1ms", timed_out: true, ..plain },
            r#"{"type":"response","command":"prompt","success":false,"error":"Command 'x' timed out after 1ms","timedOut":true}"#,
        ),
        (
            CommandResponse { command: "cycle_model", body: "null", ..plain },
            r#"{"type":"response","command":"cycle_model","success":true,"data":null}"#,
        ),
    ] {
        let line = encode::response(&response);
        check_line(&line);
        assert_eq!(std::str::from_utf8(&line).unwrap(), spelled);
    }
}

#[test]
fn the_results_of_all_commands_are_valid() {
    let mut seen = Vec::new();
    for (kind, data) in results() {
        seen.push(kind);
        check_line(&encode::response(&CommandResponse {
            id: Some("c"),
            command: kind.name(),
            success: true,
            body: data.as_str(),
            session_version: Some(0),
            replayed: false,
            timed_out: false,
        }));
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, Kind::ALL);
}

#[test]
fn the_schemas_name_every_command() {
    let response: serde_json::Value = serde_json::from_str(FILES[2].1).unwrap();
    let command: serde_json::Value = serde_json::from_str(FILES[1].1).unwrap();
    let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(response["else"]["properties"]["command"]["enum"], serde_json::json!(names));
    assert_eq!(command["properties"]["type"]["enum"], serde_json::json!(names));
}

#[test]
fn lines_outside_the_protocol_are_invalid() {
    for line in [
        "{}",
        "[]",
        r#"{"type":"response","success":true}"#,
        r#"{"type":"response","command":"prompt","success":false}"#,
        r#"{"type":"response","command":"prompt","success":true,"error":"no"}"#,
        r#"{"type":"response","command":"prompt","success":true,"data":{}}"#,
        r#"{"type":"response","command":"fork","success":true}"#,
        r#"{"type":"response","command":"fork","success":true,"data":{"text":"x"}}"#,
        r#"{"type":"response","command":"fork","success":false,"error":"no","data":{"text":"x","cancelled":false}}"#,
        r#"{"type":"response","command":"bogus","success":true}"#,
        r#"{"type":"response","command":"abort","success":true,"replayed":false}"#,
        r#"{"type":"response","command":"abort","success":true,"sessionVersion":-1}"#,
        r#"{"type":"response","command":"abort","success":true,"more":1}"#,
        r#"{"type":"server_ready","data":{"serverVersion":"1","protocolVersion":"2.0.0","transports":["websocket","stdio"]}}"#,
        r#"{"type":"command_accepted","data":{"commandId":"c","commandType":"abort"}}"#,
        r#"{"type":"command_finished","data":{"commandId":"c","commandType":"abort","dependsOn":[]}}"#,
        r#"{"type":"command_finished","data":{"commandId":"c","commandType":"abort","dependsOn":[],"success":false}}"#,
        r#"{"type":"event","sessionId":"s","event":{"type":"agent_begin"}}"#,
        r#"{"type":"event","sessionId":"s","event":{"type":"agent_start","more":1}}"#,
        r#"{"type":"event","event":{"type":"agent_start"}}"#,
        r#"{"type":"event","sessionId":"s","event":{"type":"auto_compaction_start","reason":"manual"}}"#,
        r#"{"type":"event","sessionId":"s","event":{"type":"message_end","message":{"role":"user","content":"x","timestamp":1}}}"#,
        r#"{"type":"event","sessionId":"s","event":{"type":"extension_ui_request","requestId":"r","method":"notify","message":"m"}}"#,
        r#"{"type":"event","sessionId":"s","event":{"type":"extension_ui_request","requestId":"r","method":"select","title":"t","kind":"k","details":{},"timeout":1}}"#,
    ] {
        assert!(validate_line(line).is_err(), "{line}");
    }
}

/// The results of every command, with and without optional fields.
fn results() -> Vec<(Kind, Data)> {
    use Kind as K;
    use OperationResult as R;
    let (session, with, without) = (SessionId::from("s"), info(Some(model())), info(None));
    let shell =
        |exit_code, output: &str, cancelled| R::Shell(ShellResult { exit_code, output: output.into(), cancelled });
    let usage = |tokens, window| R::ContextUsage(Some(ContextUsage { tokens, window }));
    let boxed = || Box::new(with.clone());
    let mut results: Vec<_> = [
        (K::ListSessions, R::Sessions(vec![with.clone(), without.clone()])),
        (K::CreateSession, R::Created(Box::new(without))),
        (K::DeleteSession, R::Unloaded),
        (K::SwitchSession, R::Subscribed(boxed())),
        (K::GetMetrics, R::Metrics(Box::new(metrics()))),
        (K::HealthCheck, R::Health(Health::default())),
        (K::ListStoredSessions, R::StoredSessions(vec![stored(None), stored(Some("n"))])),
        (K::LoadSession, R::Created(boxed())),
        (K::GetAvailableModels, R::Models(vec![model()])),
        (
            K::GetCommands,
            R::SlashCommands(vec![command(None, CommandSource::Template), command(Some("x"), CommandSource::Skill)]),
        ),
        (K::GetSkills, R::Skills(vec![command(Some("d"), CommandSource::Skill)])),
        (K::GetTools, R::Tools(vec![ToolRow { name: "t".into(), description: String::new() }])),
        (K::ListSessionFiles, R::SessionFiles(vec![file(None), file(Some(Now(5)))])),
        (K::GetState, R::Described(boxed())),
        (K::SetModel, R::ModelSet(Box::new(model()))),
        (K::CycleModel, R::ModelCycled(Some(Box::new((model(), Thinking::High))))),
        (K::CycleModel, R::ModelCycled(None)),
        (K::CycleThinkingLevel, R::ThinkingCycled(None)),
        (K::Bash, shell(Some(-1), "\n", false)),
        (K::Bash, shell(None, "", true)),
        (K::ExportHtml, R::Exported("/p".into())),
        (K::NewSession, R::ChildStarted("sess_child".into())),
        (K::SwitchSessionFile, R::ConversationSwitched),
        (K::Fork, R::Forked { text: "again".into(), child: "sess_child".into() }),
        (K::GetContextUsage, R::ContextUsage(None)),
        (K::GetContextUsage, usage(None, 9)),
        (K::GetContextUsage, usage(Some(3), 0)),
    ]
    .map(|(kind, result)| (kind, encode::result(&result)))
    .to_vec();
    results.extend([
        (K::GetMessages, encode::messages(std::iter::empty())),
        (K::Compact, encode::compaction(&summary())),
        (K::GetSessionStats, encode::session_stats(&session, Some("/f"), &Stats::default())),
        (K::GetForkMessages, encode::fork_messages(&[fork_message()])),
        (K::GetLastAssistantText, encode::last_text(None)),
        (K::GetLastAssistantText, encode::last_text(Some("x"))),
    ]);
    let level = |level| (K::CycleThinkingLevel, encode::result(&R::ThinkingCycled(Some(level))));
    results.extend(Thinking::ALL.map(level));
    let silent = [
        K::Prompt,
        K::Steer,
        K::FollowUp,
        K::Abort,
        K::SetThinkingLevel,
        K::SetSessionName,
        K::AbortCompaction,
        K::SetAutoCompaction,
        K::SetAutoRetry,
        K::AbortRetry,
        K::AbortBash,
        K::ExtensionUiResponse,
    ];
    results.extend(silent.map(|kind| (kind, encode::no_data())));
    results
}

fn info(model: Option<ModelRow>) -> SessionInfo {
    SessionInfo {
        session: "s".into(),
        name: model.as_ref().map(|_| "n".into()),
        file: model.as_ref().map(|_| "/f".into()),
        thinking: Thinking::Off,
        streaming: false,
        message_count: 42,
        created_at: Now(1_772_272_800_000),
        model,
    }
}

fn stored(name: Option<&str>) -> StoredSession {
    let info = SessionInfo { name: name.map(Into::into), file: Some("/f".into()), ..info(name.map(|_| model())) };
    StoredSession { info: SessionInfo { thinking: Thinking::Medium, ..info }, cwd: "/w".into() }
}

fn model() -> ModelRow {
    ModelRow {
        id: "m".into(),
        name: "M".into(),
        provider: "p".into(),
        provider_kind: "a".into(),
        base_url: String::new(),
        reasoning: true,
        sees_images: false,
        context_window: 100,
        max_tokens: 10,
        cost: ModelCost { input: 0.25, ..ModelCost::default() },
    }
}

fn command(description: Option<&str>, source: CommandSource) -> CommandRow {
    let description = description.map(str::to_owned);
    CommandRow { name: "c".into(), description, source, location: "user".into(), path: "/c".into() }
}

fn file(modified_at: Option<Now>) -> FileRow {
    FileRow { path: "/f".into(), name: "f".into(), modified_at }
}

fn summary() -> Summary {
    Summary { summary: "s".into(), first_kept_entry_id: "00000001".into(), tokens_before: 9 }
}

fn fork_message() -> ForkMessage {
    ForkMessage { entry_id: "00000001".into(), text: "t".into() }
}

fn metrics() -> ServiceMetrics {
    let circuit = |state: &str| CircuitRow {
        provider: "p".into(),
        base_url: String::new(),
        state: state.into(),
        failures_in_a_row: 1,
        opened: 2,
        refused: 3,
    };
    let shell_circuits = ShellCircuits { state: "closed".into(), ..ShellCircuits::default() };
    let circuits = ["closed", "open", "half_open"].map(circuit).to_vec();
    ServiceMetrics { circuits, shell_circuits, ..ServiceMetrics::default() }
}
