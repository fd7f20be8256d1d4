//! The `data` of responses, as opaque JSON that can be stored and sent again.

use std::sync::Arc;

use serde::Serialize;
use serde_json::json;

use super::row::{
    BashResult, CommandRow, ContextUsage, FileRow, Health, Metrics, ModelRow, SessionInfo, SkillRow, Stats,
    StoredSession, ToolRow,
};
use super::to_rfc3339;
use crate::kernel::id::SessionId;
use crate::protocol::pi::projection::{ForkMessage, Summary};
use crate::protocol::pi::request::Thinking;
use crate::record::json;

/// The result of a command: JSON, or empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data(Arc<str>);

impl Data {
    /// Returns the JSON; empty if the command has no result.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn of<T: Serialize>(value: &T) -> Self {
        let mut out = Vec::new();
        json::value(&mut out, value);
        Self(String::from_utf8_lossy(&out).into())
    }
}

impl From<Data> for Arc<str> {
    fn from(data: Data) -> Self {
        data.0
    }
}

/// The result of commands without data.
pub fn no_data() -> Data {
    Data("".into())
}

/// The result of `list_sessions`.
pub fn sessions(sessions: &[SessionInfo]) -> Data {
    Data::of(&json!({ "sessions": sessions.iter().map(info).collect::<Vec<_>>() }))
}

/// The result of `create_session` and `load_session`.
pub fn created(session: &SessionId, of: &SessionInfo) -> Data {
    Data::of(&json!({ "sessionId": session.as_str(), "sessionInfo": info(of) }))
}

/// The result of `delete_session`.
pub fn deleted() -> Data {
    Data::of(&json!({ "deleted": true }))
}

/// The result of `switch_session`.
pub fn switched(of: &SessionInfo) -> Data {
    Data::of(&json!({ "sessionInfo": info(of) }))
}

/// The result of `get_state`.
pub fn state(of: &SessionInfo) -> Data {
    Data::of(&info(of))
}

/// The result of `list_stored_sessions`.
pub fn stored_sessions(sessions: &[StoredSession]) -> Data {
    let rows: Vec<_> = sessions.iter().map(stored).collect();
    Data::of(&json!({ "sessions": rows }))
}

/// The result of `get_available_models`.
pub fn models(models: &[ModelRow]) -> Data {
    Data::of(&json!({ "models": models.iter().map(Model::of).collect::<Vec<_>>() }))
}

/// The result of `set_model`.
pub fn model_set(model: &ModelRow) -> Data {
    Data::of(&json!({ "model": Model::of(model) }))
}

/// The result of `cycle_model`; `null` if there is no other model.
pub fn cycled_model(next: Option<(&ModelRow, Thinking)>) -> Data {
    Data::of(&next.map(
        |(model, thinking)| json!({ "model": Model::of(model), "thinkingLevel": thinking.as_str(), "isScoped": false }),
    ))
}

/// The result of `cycle_thinking_level`; `null` if the model has no levels.
pub fn cycled_thinking(next: Option<Thinking>) -> Data {
    Data::of(&next.map(|level| json!({ "level": level.as_str() })))
}

/// The result of `get_commands`.
pub fn commands(commands: &[CommandRow]) -> Data {
    let rows: Vec<_> = commands
        .iter()
        .map(|row| Command {
            name: &row.name,
            description: row.description.as_deref(),
            source: &row.source,
            location: row.location.as_deref(),
            path: row.path.as_deref(),
        })
        .collect();
    Data::of(&json!({ "commands": rows }))
}

/// The result of `get_skills`.
pub fn skills(skills: &[SkillRow]) -> Data {
    let row = |row: &SkillRow| json!({ "name": row.name, "description": row.description, "filePath": row.file, "source": row.source });
    Data::of(&json!({ "skills": skills.iter().map(row).collect::<Vec<_>>() }))
}

/// The result of `get_tools`.
pub fn tools(tools: &[ToolRow]) -> Data {
    let row = |row: &ToolRow| json!({ "name": row.name, "description": row.description });
    Data::of(&json!({ "tools": tools.iter().map(row).collect::<Vec<_>>() }))
}

/// The result of `list_session_files`.
pub fn files(files: &[FileRow]) -> Data {
    let rows: Vec<_> = files
        .iter()
        .map(|row| File { path: &row.path, name: &row.name, modified_at: row.modified_at.map(to_rfc3339) })
        .collect();
    Data::of(&json!({ "files": rows }))
}

/// The result of `get_messages`; each item is one `AgentMessage` in JSON.
pub fn messages<'a>(messages: impl Iterator<Item = &'a str>) -> Data {
    let mut out = String::from("{\"messages\":[");
    for (at, message) in messages.enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(message);
    }
    out.push_str("]}");
    Data(out.into())
}

/// The result of `bash`.
pub fn bash(result: &BashResult) -> Data {
    let BashResult { exit_code, output, cancelled } = result;
    Data::of(&json!({ "exitCode": exit_code, "output": output, "cancelled": cancelled }))
}

/// The result of `compact`.
pub fn compaction(summary: &Summary) -> Data {
    Data::of(summary)
}

/// The result of `get_session_stats`.
pub fn session_stats(session: &SessionId, file: Option<&str>, stats: &Stats) -> Data {
    let Stats { input, output, cache_read, cache_write, .. } = *stats;
    let total = input.saturating_add(output).saturating_add(cache_read).saturating_add(cache_write);
    Data::of(&json!({
        "sessionFile": file,
        "sessionId": session.as_str(),
        "userMessages": stats.user_messages,
        "assistantMessages": stats.assistant_messages,
        "toolCalls": stats.tool_calls,
        "toolResults": stats.tool_results,
        "totalMessages": stats.total_messages,
        "tokens": {
            "input": input,
            "output": output,
            "cacheRead": cache_read,
            "cacheWrite": cache_write,
            "total": total,
        },
        "cost": dollars(stats.cost),
    }))
}

/// The result of `export_html`.
pub fn exported(path: &str) -> Data {
    Data::of(&json!({ "path": path }))
}

/// The result of `new_session` and `switch_session_file`, which no extension can cancel here.
pub fn conversation_switched() -> Data {
    Data::of(&json!({ "cancelled": false }))
}

/// The result of `fork`.
pub fn forked(text: &str) -> Data {
    Data::of(&json!({ "text": text, "cancelled": false }))
}

/// The result of `get_fork_messages`.
pub fn fork_messages(messages: &[ForkMessage]) -> Data {
    Data::of(&json!({ "messages": messages }))
}

/// The result of `get_last_assistant_text`.
pub fn last_text(text: Option<&str>) -> Data {
    Data::of(&json!({ "text": text }))
}

/// The result of `get_context_usage`; `null` if the context window of the model is unknown.
pub fn context_usage(usage: Option<ContextUsage>) -> Data {
    Data::of(&usage.map(|ContextUsage { tokens, window }| {
        #[expect(clippy::cast_precision_loss, reason = "an f64 is precise enough for a percentage")]
        let share = |tokens: u64| tokens as f64 / window.max(1) as f64 * 100.0;
        json!({ "tokens": tokens, "contextWindow": window, "percent": tokens.map(share) })
    }))
}

/// The result of `health_check`.
pub fn health(health: &Health) -> Data {
    Data::of(&json!({
        "healthy": health.issues.is_empty(),
        "issues": health.issues,
        "hasOpenCircuit": health.open_circuit,
        "hasOpenBashCircuit": health.open_bash_circuit,
    }))
}

/// The result of `get_metrics`.
pub fn metrics(metrics: &Metrics) -> Data {
    let circuit = |circuit: &super::row::Circuit| {
        json!({
            "provider": circuit.provider,
            "state": circuit.state,
            "failureCount": circuit.failures,
            "openedCount": circuit.opened,
            "rejectedCalls": circuit.rejected,
        })
    };
    let bash = &metrics.bash_circuit;
    Data::of(&json!({
        "sessionCount": metrics.session_count,
        "connectionCount": metrics.connection_count,
        "pendingConnectionCount": metrics.pending_connection_count,
        "totalCommandsExecuted": metrics.total_commands_executed,
        "commandsRejected": {
            "sessionLimit": metrics.rejected.session_limit,
            "messageSize": metrics.rejected.message_size,
            "rateLimit": metrics.rejected.rate_limit,
            "globalRateLimit": metrics.rejected.global_rate_limit,
            "connectionLimit": metrics.rejected.connection_limit,
            "extensionUIResponseRateLimit": metrics.rejected.extension_ui_response_rate_limit,
        },
        "zombieSessionsDetected": metrics.zombies_detected,
        "zombieSessionsCleaned": metrics.zombies_cleaned,
        "doubleUnregisterErrors": metrics.double_unregister_errors,
        "rateLimitUsage": { "globalCount": metrics.global_count, "globalLimit": metrics.global_limit },
        "stores": stores(&metrics.stores),
        "circuitBreakers": metrics.circuits.iter().map(circuit).collect::<Vec<_>>(),
        "bashCircuitBreaker": {
            "enabled": bash.enabled,
            "globalState": bash.global_state,
            "sessionCount": bash.session_count,
            "openSessionCount": bash.open_session_count,
            "totalCalls": bash.total_calls,
            "totalTimeouts": bash.total_timeouts,
            "totalRejected": bash.total_rejected,
        },
    }))
}

fn stores(stores: &super::row::StoreMetrics) -> serde_json::Value {
    json!({
        "replay": {
            "inFlightCount": stores.in_flight_count,
            "outcomeCount": stores.outcome_count,
            "idempotencyCacheSize": stores.idempotency_cache_size,
            "maxInFlightCommands": stores.max_in_flight_commands,
            "maxCommandOutcomes": stores.max_command_outcomes,
            "inFlightRejections": stores.in_flight_rejections,
        },
        "version": { "sessionCount": stores.versioned_sessions },
        "execution": { "laneCount": stores.lane_count },
        "lock": {
            "activeLocks": stores.active_locks,
            "timeoutCount": stores.lock_timeouts,
            "waitingCount": stores.lock_waiting,
        },
        "extensionUI": {
            "pendingCount": stores.pending_requests,
            "maxPendingRequests": stores.max_pending_requests,
            "rejectedCount": stores.rejected_requests,
        },
        "sessionStore": { "metadataResetCount": stores.metadata_resets },
    })
}

fn info(row: &SessionInfo) -> Info<'_> {
    Info {
        session_id: row.session.as_str(),
        session_name: row.name.as_deref(),
        session_file: row.file.as_deref(),
        session_path: None,
        cwd: None,
        model: row.model.as_ref().map(Model::of),
        thinking_level: row.thinking.as_str(),
        is_streaming: row.streaming,
        message_count: row.message_count,
        created_at: to_rfc3339(row.created_at),
        file_exists: None,
    }
}

fn stored(row: &StoredSession) -> Info<'_> {
    Info {
        session_id: row.session.as_str(),
        session_name: row.name.as_deref(),
        session_file: Some(&row.file),
        session_path: Some(&row.file),
        cwd: Some(&row.cwd),
        model: row.model.as_ref().map(Model::of),
        thinking_level: row.thinking.as_str(),
        is_streaming: false,
        message_count: row.message_count,
        created_at: to_rfc3339(row.created_at),
        file_exists: Some(row.file_exists),
    }
}

/// Converts millionths of a dollar to dollars.
#[expect(clippy::cast_precision_loss, reason = "an f64 is exact for amounts below nine billion dollars")]
pub(in crate::protocol::pi) fn dollars(millionths: u64) -> f64 {
    millionths as f64 / 1e6
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Info<'a> {
    session_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<Model<'a>>,
    thinking_level: &'static str,
    is_streaming: bool,
    message_count: u64,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_exists: Option<bool>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Model<'a> {
    id: &'a str,
    name: &'a str,
    api: &'a str,
    provider: &'a str,
    base_url: &'a str,
    reasoning: bool,
    input: &'static [&'static str],
    cost: Cost,
    context_window: u64,
    max_tokens: u64,
}

impl<'a> Model<'a> {
    fn of(row: &'a ModelRow) -> Self {
        Self {
            id: &row.id,
            name: &row.name,
            api: &row.api,
            provider: &row.provider,
            base_url: &row.base_url,
            reasoning: row.reasoning,
            input: if row.sees_images { &["text", "image"] } else { &["text"] },
            cost: Cost {
                input: row.cost.input,
                output: row.cost.output,
                cache_read: row.cost.cache_read,
                cache_write: row.cost.cache_write,
            },
            context_window: row.context_window,
            max_tokens: row.max_tokens,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Cost {
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
}

#[derive(Serialize)]
struct Command<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    source: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    path: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified_at: Option<String>,
}
