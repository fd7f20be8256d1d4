//! The parameters of each command.

use serde_json::Value;

use super::DecodeLimits;
use super::fields::{Fields, Ground, Problem};
use super::picture;
use crate::kernel::id::Json;
use crate::protocol::pi::ask::{Ask, Direction, Streaming, Telling, Thinking, UiResponse, Words};
use crate::protocol::pi::kind::Kind;

/// Decodes the parameters of a command.
pub(super) fn read(kind: Kind, fields: &Fields<'_>, limits: &DecodeLimits) -> Result<Ask, Problem> {
    Ok(match kind {
        Kind::ListSessions => Ask::ListSessions,
        Kind::CreateSession => Ask::CreateSession { cwd: fields.path("cwd", limits.path, Ground::Absolute)? },
        Kind::DeleteSession => Ask::DeleteSession,
        Kind::SwitchSession => Ask::SwitchSession,
        Kind::GetMetrics => Ask::GetMetrics,
        Kind::HealthCheck => Ask::HealthCheck,
        Kind::ListStoredSessions => Ask::ListStoredSessions,
        Kind::LoadSession => Ask::LoadSession { path: session_path(fields, limits)? },
        Kind::GetAvailableModels => Ask::GetAvailableModels,
        Kind::GetCommands => Ask::GetCommands,
        Kind::GetSkills => Ask::GetSkills,
        Kind::GetTools => Ask::GetTools,
        Kind::ListSessionFiles => Ask::ListSessionFiles,
        Kind::Prompt => {
            let streaming = fields.word("streamingBehavior", "steer, followUp", streaming)?;
            Ask::Prompt { words: words(fields, limits)?, streaming }
        }
        Kind::Steer => Ask::Steer(words(fields, limits)?),
        Kind::FollowUp => Ask::FollowUp(words(fields, limits)?),
        Kind::Abort => Ask::Abort,
        Kind::GetState => Ask::GetState,
        Kind::GetMessages => Ask::GetMessages,
        Kind::SetModel => Ask::SetModel {
            provider: fields.needed("provider", limits.name)?,
            model: fields.needed("modelId", limits.name)?,
        },
        Kind::CycleModel => {
            let direction = fields.word("direction", "forward, backward", direction)?;
            Ask::CycleModel { direction: direction.unwrap_or(Direction::Forward) }
        }
        Kind::SetThinkingLevel => Ask::SetThinkingLevel { level: level(fields)? },
        Kind::CycleThinkingLevel => Ask::CycleThinkingLevel,
        Kind::SetSessionName => Ask::SetSessionName { name: name(fields, limits)? },
        Kind::Compact => Ask::Compact { instructions: instructions(fields, limits)? },
        Kind::AbortCompaction => Ask::AbortCompaction,
        Kind::SetAutoCompaction => Ask::SetAutoCompaction { enabled: fields.needed_flag("enabled")? },
        Kind::SetAutoRetry => Ask::SetAutoRetry { enabled: fields.needed_flag("enabled")? },
        Kind::AbortRetry => Ask::AbortRetry,
        Kind::Bash => {
            Ask::Bash { command: fields.needed("command", limits.bash)?, telling: telling(fields)? }
        }
        Kind::AbortBash => Ask::AbortBash,
        Kind::GetSessionStats => Ask::GetSessionStats,
        Kind::ExportHtml => Ask::ExportHtml { path: fields.path("outputPath", limits.path, Ground::Free)? },
        Kind::NewSession => {
            Ask::NewSession { parent: fields.path("parentSession", limits.path, Ground::Free)? }
        }
        Kind::SwitchSessionFile => Ask::SwitchSessionFile { path: session_path(fields, limits)? },
        Kind::Fork => Ask::Fork { entry: fields.needed("entryId", limits.id)? },
        Kind::GetForkMessages => Ask::GetForkMessages,
        Kind::GetLastAssistantText => Ask::GetLastAssistantText,
        Kind::GetContextUsage => Ask::GetContextUsage,
        Kind::ExtensionUiResponse => Ask::ExtensionUiResponse {
            request: fields.needed("requestId", limits.id)?,
            response: Box::new(response(fields, limits)?),
        },
    })
}

fn words(fields: &Fields<'_>, limits: &DecodeLimits) -> Result<Box<Words>, Problem> {
    let message = fields.needed("message", limits.message)?;
    Ok(Box::new(Words { message, images: picture::read(fields, limits)? }))
}

fn session_path(fields: &Fields<'_>, limits: &DecodeLimits) -> Result<String, Problem> {
    let path = fields.path("sessionPath", limits.path, Ground::Session)?;
    path.ok_or_else(|| fields.problem("sessionPath", "must be a string and is missing"))
}

fn streaming(word: &str) -> Option<Streaming> {
    match word {
        "steer" => Some(Streaming::Steer),
        "followUp" => Some(Streaming::FollowUp),
        _ => None,
    }
}

fn direction(word: &str) -> Option<Direction> {
    match word {
        "forward" => Some(Direction::Forward),
        "backward" => Some(Direction::Backward),
        _ => None,
    }
}

fn level(fields: &Fields<'_>) -> Result<Thinking, Problem> {
    const ALLOWED: &str = "off, minimal, low, medium, high, xhigh";
    let level = fields.word("level", ALLOWED, Thinking::parse)?;
    level.ok_or_else(|| fields.problem("level", format!("must be one of {ALLOWED}")))
}

fn name(fields: &Fields<'_>, limits: &DecodeLimits) -> Result<String, Problem> {
    let name = fields.needed("name", limits.name)?;
    if name.chars().any(char::is_control) {
        return Err(fields.problem("name", "must not contain control characters"));
    }
    Ok(name)
}

fn instructions(fields: &Fields<'_>, limits: &DecodeLimits) -> Result<Option<String>, Problem> {
    let text = fields.text("customInstructions", limits.message)?;
    Ok(text.filter(|text| !text.trim().is_empty()))
}

fn telling(fields: &Fields<'_>) -> Result<Telling, Problem> {
    Ok(if fields.flag("excludeFromContext")?.unwrap_or(false) { Telling::Kept } else { Telling::Told })
}

fn response(fields: &Fields<'_>, limits: &DecodeLimits) -> Result<UiResponse, Problem> {
    const METHODS: &str = "select, confirm, input, editor, interview, cancelled";
    let inner = fields.inner("response", "response.")?;
    Ok(match inner.text_of("method") {
        Some("select") => UiResponse::Select { value: inner.any_needed("value", limits.message)? },
        Some("confirm") => UiResponse::Confirm { confirmed: inner.needed_flag("confirmed")? },
        Some("input") => UiResponse::Input { value: inner.any_needed("value", limits.message)? },
        Some("editor") => UiResponse::Editor { value: inner.any_needed("value", limits.message)? },
        Some("interview") => match inner.value("responses") {
            Some(responses @ Value::Object(_)) => {
                let text = responses.to_string();
                inner.bounded("responses", &text, limits.message)?;
                UiResponse::Interview { responses: Json::new(text) }
            }
            Some(_) | None => return Err(inner.problem("responses", "must be an object")),
        },
        Some("cancelled") => UiResponse::Cancelled,
        Some(_) | None => return Err(inner.problem("method", format!("must be one of {METHODS}"))),
    })
}
