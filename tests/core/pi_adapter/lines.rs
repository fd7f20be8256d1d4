//! Lines of the server: exact where clients depend on it, and valid in every variant.

use pushd::kernel::id::SessionId;
use pushd::kernel::time::Now;
use pushd::protocol::pi::encode::{
    self, BashCircuit, BashResult, Circuit, CommandLifecycle, CommandRow, ContextUsage, Data, FileRow, Health,
    LifecycleStage, Metrics, ModelCost, ModelRow, Response, SessionInfo, SkillRow, Stats, StoredSession, ToolRow,
};
use pushd::protocol::pi::kind::Kind;
use pushd::protocol::pi::projection::{ForkMessage, Summary};
use pushd::protocol::pi::request::Thinking;

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
            encode::session_created(&session, &info(None)),
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
    let plain = Response {
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
            Response { id: Some("c\n"), session_version: Some(7), replayed: true, ..plain },
            r#"{"id":"c\n","type":"response","command":"prompt","success":true,"sessionVersion":7,"replayed":true}"#,
        ),
        (
            Response { success: false, body: "Command 'x' timed out after 1ms", timed_out: true, ..plain },
            r#"{"type":"response","command":"prompt","success":false,"error":"Command 'x' timed out after 1ms","timedOut":true}"#,
        ),
        (
            Response { command: "cycle_model", body: "null", ..plain },
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
        check_line(&encode::response(&Response {
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
    let (session, with, without) = (SessionId::from("s"), info(Some(model())), info(None));
    let mut results = vec![
        (K::ListSessions, encode::sessions(&[with.clone(), without.clone()])),
        (K::CreateSession, encode::created(&session, &without)),
        (K::DeleteSession, encode::deleted()),
        (K::SwitchSession, encode::switched(&with)),
        (K::GetMetrics, encode::metrics(&metrics())),
        (K::HealthCheck, encode::health(&Health::default())),
        (K::ListStoredSessions, encode::stored_sessions(&[stored(None), stored(Some("n"))])),
        (K::LoadSession, encode::created(&session, &with)),
        (K::GetAvailableModels, encode::models(&[model()])),
        (K::GetCommands, encode::commands(&[command(None), command(Some("x"))])),
        (K::GetSkills, encode::skills(&[skill()])),
        (K::GetTools, encode::tools(&[ToolRow { name: "t".into(), description: String::new() }])),
        (K::ListSessionFiles, encode::files(&[file(None), file(Some(Now(5)))])),
        (K::GetState, encode::state(&with)),
        (K::GetMessages, encode::messages(std::iter::empty())),
        (K::SetModel, encode::model_set(&model())),
        (K::CycleModel, encode::cycled_model(Some((&model(), Thinking::High)))),
        (K::CycleModel, encode::cycled_model(None)),
        (K::CycleThinkingLevel, encode::cycled_thinking(None)),
        (K::Compact, encode::compaction(&summary())),
        (K::Bash, encode::bash(&BashResult { exit_code: Some(-1), output: "\n".into(), cancelled: false })),
        (K::Bash, encode::bash(&BashResult { exit_code: None, output: String::new(), cancelled: true })),
        (K::GetSessionStats, encode::session_stats(&session, Some("/f"), &Stats::default())),
        (K::ExportHtml, encode::exported("/p")),
        (K::NewSession, encode::conversation_switched()),
        (K::SwitchSessionFile, encode::conversation_switched()),
        (K::Fork, encode::forked("again")),
        (K::GetForkMessages, encode::fork_messages(&[fork_message()])),
        (K::GetLastAssistantText, encode::last_text(None)),
        (K::GetLastAssistantText, encode::last_text(Some("x"))),
        (K::GetContextUsage, encode::context_usage(None)),
        (K::GetContextUsage, encode::context_usage(Some(ContextUsage { tokens: None, window: 9 }))),
        (K::GetContextUsage, encode::context_usage(Some(ContextUsage { tokens: Some(3), window: 0 }))),
    ];
    results.extend(Thinking::ALL.map(|level| (K::CycleThinkingLevel, encode::cycled_thinking(Some(level)))));
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
    StoredSession {
        session: "s".into(),
        name: name.map(Into::into),
        file: "/f".into(),
        cwd: "/w".into(),
        created_at: Now(1),
        file_exists: true,
        message_count: 1,
        model: name.map(|_| model()),
        thinking: Thinking::Medium,
    }
}

fn model() -> ModelRow {
    ModelRow {
        id: "m".into(),
        name: "M".into(),
        provider: "p".into(),
        api: "a".into(),
        base_url: String::new(),
        reasoning: true,
        sees_images: false,
        context_window: 100,
        max_tokens: 10,
        cost: ModelCost { input: 0.25, ..ModelCost::default() },
    }
}

fn command(description: Option<&str>) -> CommandRow {
    let some = || description.map(str::to_owned);
    CommandRow { name: "c".into(), description: some(), source: "template".into(), location: some(), path: some() }
}

fn skill() -> SkillRow {
    SkillRow { name: "k".into(), description: "d".into(), file: "/k".into(), source: "user".into() }
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

fn metrics() -> Metrics {
    let circuit =
        |state: &str| Circuit { provider: "p".into(), state: state.into(), failures: 1, opened: 2, rejected: 3 };
    let bash_circuit = BashCircuit { enabled: true, global_state: "closed".into(), ..BashCircuit::default() };
    let circuits = ["closed", "open", "half_open"].map(circuit).to_vec();
    Metrics { circuits, bash_circuit, ..Metrics::default() }
}
