//! The parameters of each command.

use serde_json::Value;

use super::DecodeLimits;
use super::fields::{FieldError, Fields, PathRule};
use super::image;
use crate::kernel::id::Json;
use crate::protocol::pi::kind::Kind;
use crate::protocol::pi::request::{
    ContextInclusion, Direction, RequestBody, StreamingBehavior, Thinking, UiResponse, UserInput,
};

/// Decodes the parameters of a command.
pub(super) fn read(kind: Kind, fields: &Fields<'_>, limits: &DecodeLimits) -> Result<RequestBody, FieldError> {
    Ok(match kind {
        Kind::ListSessions => RequestBody::ListSessions,
        Kind::CreateSession => RequestBody::CreateSession { cwd: fields.path("cwd", limits.path, PathRule::Absolute)? },
        Kind::DeleteSession => RequestBody::DeleteSession,
        Kind::SwitchSession => RequestBody::SwitchSession,
        Kind::GetMetrics => RequestBody::GetMetrics,
        Kind::HealthCheck => RequestBody::HealthCheck,
        Kind::ListStoredSessions => RequestBody::ListStoredSessions,
        Kind::LoadSession => RequestBody::LoadSession { path: session_path(fields, limits)? },
        Kind::GetAvailableModels => RequestBody::GetAvailableModels,
        Kind::GetCommands => RequestBody::GetCommands,
        Kind::GetSkills => RequestBody::GetSkills,
        Kind::GetTools => RequestBody::GetTools,
        Kind::ListSessionFiles => RequestBody::ListSessionFiles,
        Kind::Prompt => {
            let streaming = fields.keyword("streamingBehavior", "steer, followUp", streaming)?;
            RequestBody::Prompt { input: user_input(fields, limits)?, streaming_behavior: streaming }
        }
        Kind::Steer => RequestBody::Steer(user_input(fields, limits)?),
        Kind::FollowUp => RequestBody::FollowUp(user_input(fields, limits)?),
        Kind::Abort => RequestBody::Abort,
        Kind::GetState => RequestBody::GetState,
        Kind::GetMessages => RequestBody::GetMessages,
        Kind::SetModel => RequestBody::SetModel {
            provider: fields.required_text("provider", limits.name)?,
            model: fields.required_text("modelId", limits.name)?,
        },
        Kind::CycleModel => {
            let direction = fields.keyword("direction", "forward, backward", direction)?;
            RequestBody::CycleModel { direction: direction.unwrap_or(Direction::Forward) }
        }
        Kind::SetThinkingLevel => RequestBody::SetThinkingLevel { level: level(fields)? },
        Kind::CycleThinkingLevel => RequestBody::CycleThinkingLevel,
        Kind::SetSessionName => RequestBody::SetSessionName { name: name(fields, limits)? },
        Kind::Compact => RequestBody::Compact { instructions: instructions(fields, limits)? },
        Kind::AbortCompaction => RequestBody::AbortCompaction,
        Kind::SetAutoCompaction => RequestBody::SetAutoCompaction { enabled: fields.required_flag("enabled")? },
        Kind::SetAutoRetry => RequestBody::SetAutoRetry { enabled: fields.required_flag("enabled")? },
        Kind::AbortRetry => RequestBody::AbortRetry,
        Kind::Bash => RequestBody::Bash {
            command: fields.required_text("command", limits.bash)?,
            context: context_inclusion(fields)?,
        },
        Kind::AbortBash => RequestBody::AbortBash,
        Kind::GetSessionStats => RequestBody::GetSessionStats,
        Kind::ExportHtml => RequestBody::ExportHtml { path: fields.path("outputPath", limits.path, PathRule::Any)? },
        Kind::NewSession => RequestBody::NewSession { parent: parent_session(fields, limits)? },
        Kind::SwitchSessionFile => RequestBody::SwitchSessionFile { path: session_path(fields, limits)? },
        Kind::Fork => RequestBody::Fork { entry: fields.required_text("entryId", limits.id)? },
        Kind::GetForkMessages => RequestBody::GetForkMessages,
        Kind::GetLastAssistantText => RequestBody::GetLastAssistantText,
        Kind::GetContextUsage => RequestBody::GetContextUsage,
        Kind::ExtensionUiResponse => RequestBody::ExtensionUiResponse {
            request: fields.required_text("requestId", limits.id)?,
            response: Box::new(response(fields, limits)?),
        },
    })
}

fn parent_session(fields: &Fields<'_>, limits: &DecodeLimits) -> Result<Option<String>, FieldError> {
    fields.path("parentSession", limits.path, PathRule::Any)
}

fn user_input(fields: &Fields<'_>, limits: &DecodeLimits) -> Result<Box<UserInput>, FieldError> {
    let message = fields.required_text("message", limits.message)?;
    Ok(Box::new(UserInput { message, images: image::read(fields, limits)? }))
}

fn session_path(fields: &Fields<'_>, limits: &DecodeLimits) -> Result<String, FieldError> {
    let path = fields.path("sessionPath", limits.path, PathRule::SessionFile)?;
    path.ok_or_else(|| fields.error("sessionPath", "must be a string and is missing"))
}

fn streaming(word: &str) -> Option<StreamingBehavior> {
    match word {
        "steer" => Some(StreamingBehavior::Steer),
        "followUp" => Some(StreamingBehavior::FollowUp),
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

fn level(fields: &Fields<'_>) -> Result<Thinking, FieldError> {
    const ALLOWED: &str = "off, minimal, low, medium, high, xhigh";
    let level = fields.keyword("level", ALLOWED, Thinking::parse)?;
    level.ok_or_else(|| fields.error("level", format!("must be one of {ALLOWED}")))
}

fn name(fields: &Fields<'_>, limits: &DecodeLimits) -> Result<String, FieldError> {
    let name = fields.required_text("name", limits.name)?;
    if name.chars().any(char::is_control) {
        return Err(fields.error("name", "must not contain control characters"));
    }
    Ok(name)
}

fn instructions(fields: &Fields<'_>, limits: &DecodeLimits) -> Result<Option<String>, FieldError> {
    let text = fields.text("customInstructions", limits.message)?;
    Ok(text.filter(|text| !text.trim().is_empty()))
}

fn context_inclusion(fields: &Fields<'_>) -> Result<ContextInclusion, FieldError> {
    Ok(if fields.flag("excludeFromContext")?.unwrap_or(false) {
        ContextInclusion::Excluded
    } else {
        ContextInclusion::Included
    })
}

fn response(fields: &Fields<'_>, limits: &DecodeLimits) -> Result<UiResponse, FieldError> {
    const METHODS: &str = "select, confirm, input, editor, interview, cancelled";
    let inner = fields.nested("response", "response.")?;
    Ok(match inner.text_of("method") {
        Some("select") => UiResponse::Select { value: inner.required_maybe_empty_text("value", limits.message)? },
        Some("confirm") => UiResponse::Confirm { confirmed: inner.required_flag("confirmed")? },
        Some("input") => UiResponse::Input { value: inner.required_maybe_empty_text("value", limits.message)? },
        Some("editor") => UiResponse::Editor { value: inner.required_maybe_empty_text("value", limits.message)? },
        Some("interview") => match inner.value("responses") {
            Some(responses @ Value::Object(_)) => {
                let text = responses.to_string();
                inner.check_length("responses", &text, limits.message)?;
                UiResponse::Interview { responses: Json::new(text) }
            }
            Some(_) | None => return Err(inner.error("responses", "must be an object")),
        },
        Some("cancelled") => UiResponse::Cancelled,
        Some(_) | None => return Err(inner.error("method", format!("must be one of {METHODS}"))),
    })
}
