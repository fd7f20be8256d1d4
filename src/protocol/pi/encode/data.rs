//! The `data` of responses, as opaque JSON that can be stored and sent again.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::to_rfc3339;
use crate::kernel::id::SessionId;
use crate::protocol::operation_result::{
    CommandRow, CommandSource, ContextUsage, FileRow, ModelRow, OperationResult, ServiceMetrics, SessionInfo,
    ShellResult, StoredSession, ToolRow,
};
use crate::protocol::pi::interface;
use crate::protocol::pi::projection::{ForkMessage, Stats, Summary};
use crate::protocol::reply::CircuitRow;
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

/// Encodes the result of an operation.
pub fn result(result: &OperationResult) -> Data {
    match result {
        OperationResult::None => no_data(),
        OperationResult::Encoded(data) => Data(Arc::clone(data)),
        OperationResult::Sessions(rows) => Data::of(&json!({ "sessions": list(rows, info) })),
        OperationResult::Created(of) => {
            Data::of(&json!({ "sessionId": of.session.as_str(), "sessionInfo": info(of) }))
        }
        OperationResult::Unloaded => Data::of(&json!({ "deleted": true })),
        OperationResult::Subscribed(of) => Data::of(&json!({ "sessionInfo": info(of) })),
        OperationResult::Described(of) => Data::of(&info(of)),
        OperationResult::StoredSessions(rows) => Data::of(&json!({ "sessions": list(rows, stored) })),
        OperationResult::SessionFiles(rows) => Data::of(&json!({ "files": list(rows, File::of) })),
        OperationResult::Models(rows) => Data::of(&json!({ "models": list(rows, Model::of) })),
        OperationResult::ModelSet(model) => Data::of(&json!({ "model": Model::of(model) })),
        // The result is `null` if there is no other model, or no level.
        OperationResult::ModelCycled(next) => Data::of(&next.as_deref().map(|(model, thinking)| {
            json!({ "model": Model::of(model), "thinkingLevel": thinking.as_str(), "isScoped": false })
        })),
        OperationResult::ThinkingCycled(next) => {
            Data::of(&next.map(|level| json!({ "level": level.as_str() })))
        }
        OperationResult::SlashCommands(rows) => Data::of(&json!({ "commands": list(rows, Command::of) })),
        OperationResult::Skills(rows) => Data::of(&json!({ "skills": list(rows, skill) })),
        OperationResult::Tools(rows) => Data::of(&json!({ "tools": list(rows, tool) })),
        OperationResult::Shell(ShellResult { exit_code, output, cancelled }) => {
            Data::of(&json!({ "exitCode": exit_code, "output": output, "cancelled": cancelled }))
        }
        OperationResult::Exported(path) => Data::of(&json!({ "path": path })),
        // No extension can cancel it here.
        OperationResult::ConversationSwitched => Data::of(&json!({ "cancelled": false })),
        OperationResult::ChildStarted(child) => Data::of(&json!({ "cancelled": false, "sessionId": child.as_str() })),
        OperationResult::Forked { text, child } => {
            Data::of(&json!({ "text": text, "cancelled": false, "sessionId": child.as_str() }))
        }
        OperationResult::ContextUsage(usage) => Data::of(&usage.map(context_usage)),
        OperationResult::Health(health) => Data::of(&json!({
            "healthy": health.issues.is_empty(),
            "issues": health.issues,
            "hasOpenCircuit": health.open_circuit,
            "hasOpenBashCircuit": health.open_shell_circuit,
        })),
        OperationResult::Metrics(row) => Data::of(&metrics(row)),
    }
}

fn list<'a, R, T>(rows: &'a [R], encode: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(encode).collect()
}

/// The result of `get_messages`; each item is one `AgentMessage` in JSON.
pub fn messages(messages: impl Iterator<Item = Arc<str>>) -> Data {
    let mut out = String::from("{\"messages\":[");
    for (at, message) in messages.enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str(&message);
    }
    out.push_str("]}");
    Data(out.into())
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

/// The result of `get_fork_messages`.
pub fn fork_messages(messages: &[ForkMessage]) -> Data {
    Data::of(&json!({ "messages": messages }))
}

/// The result of `get_last_assistant_text`.
pub fn last_text(text: Option<&str>) -> Data {
    Data::of(&json!({ "text": text }))
}

fn skill(row: &CommandRow) -> Value {
    json!({ "name": row.name, "description": row.description, "filePath": row.path, "source": row.location })
}

fn tool(row: &ToolRow) -> Value {
    json!({ "name": row.name, "description": row.description })
}

fn context_usage(usage: ContextUsage) -> Value {
    let ContextUsage { tokens, window } = usage;
    #[expect(clippy::cast_precision_loss, reason = "an f64 is precise enough for a percentage")]
    let share = |tokens: u64| tokens as f64 / window.max(1) as f64 * 100.0;
    json!({ "tokens": tokens, "contextWindow": window, "percent": tokens.map(share) })
}

/// The result of `get_metrics`; what this server cannot have is zero.
fn metrics(metrics: &ServiceMetrics) -> Value {
    let circuit = |circuit: &CircuitRow| {
        json!({
            "provider": circuit.provider,
            "state": circuit.state,
            "failureCount": circuit.failures_in_a_row,
            "openedCount": circuit.opened,
            "rejectedCalls": circuit.refused,
        })
    };
    let shell = &metrics.shell_circuits;
    json!({
        "sessionCount": metrics.sessions,
        "connectionCount": metrics.connections,
        "pendingConnectionCount": 0,
        "totalCommandsExecuted": metrics.executed,
        "commandsRejected": {
            "sessionLimit": metrics.rejected.session_limit,
            "messageSize": metrics.rejected.message_size,
            "rateLimit": metrics.rejected.session_rate,
            "globalRateLimit": metrics.rejected.overall_rate,
            "connectionLimit": 0,
            "extensionUIResponseRateLimit": metrics.rejected.answer_rate,
        },
        "zombieSessionsDetected": 0,
        "zombieSessionsCleaned": 0,
        "doubleUnregisterErrors": 0,
        "rateLimitUsage": { "globalCount": metrics.recent_commands, "globalLimit": metrics.max_recent_commands },
        "stores": {
            "replay": {
                "inFlightCount": metrics.in_flight,
                "outcomeCount": metrics.outcomes,
                "idempotencyCacheSize": metrics.idempotency_keys,
                "maxInFlightCommands": metrics.max_in_flight,
                "maxCommandOutcomes": metrics.max_outcomes,
                "inFlightRejections": metrics.rejected.in_flight,
            },
            "version": { "sessionCount": metrics.sessions },
            "execution": { "laneCount": metrics.lanes },
            "lock": { "activeLocks": 0, "timeoutCount": 0, "waitingCount": 0 },
            "extensionUI": {
                "pendingCount": metrics.open_questions,
                "maxPendingRequests": metrics.max_open_questions,
                "rejectedCount": 0,
            },
            "sessionStore": { "metadataResetCount": 0 },
        },
        "circuitBreakers": metrics.circuits.iter().map(circuit).collect::<Vec<_>>(),
        "bashCircuitBreaker": {
            "enabled": true,
            "globalState": shell.state,
            "sessionCount": shell.sessions,
            "openSessionCount": shell.open_sessions,
            "totalCalls": shell.calls,
            "totalTimeouts": shell.timeouts,
            "totalRejected": shell.rejected,
        },
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
    let info = info(&row.info);
    Info { session_path: info.session_file, cwd: Some(&row.cwd), file_exists: Some(true), ..info }
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
            api: interface(&row.provider_kind),
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
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    source: &'static str,
    location: &'a str,
    path: &'a str,
}

impl<'a> Command<'a> {
    fn of(row: &'a CommandRow) -> Self {
        let (name, source) = match row.source {
            CommandSource::Template => (Cow::Borrowed(row.name.as_str()), "template"),
            CommandSource::Skill => (Cow::Owned(format!("skill:{}", row.name)), "skill"),
        };
        Self { name, description: row.description.as_deref(), source, location: &row.location, path: &row.path }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    path: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified_at: Option<String>,
}

impl<'a> File<'a> {
    fn of(row: &'a FileRow) -> Self {
        Self { path: &row.path, name: &row.name, modified_at: row.modified_at.map(to_rfc3339) }
    }
}
