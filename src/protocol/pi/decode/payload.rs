//! The parameters of each command.

use serde_json::Value;

use super::DecodeLimits;
use super::fields::{FieldError, Fields, PathRule};
use super::image;
use crate::kernel::id::Json;
use crate::protocol::operation::{ContextInclusion, Delivery, Direction, Operation, Thinking, UiResponse, UserInput};
use crate::protocol::pi::kind::Kind;

/// Decodes the parameters of a command.
pub(super) fn read(kind: Kind, fields: &Fields<'_>, limits: &DecodeLimits) -> Result<Operation, FieldError> {
    Ok(match kind {
        Kind::ListSessions => Operation::ListSessions,
        Kind::CreateSession => Operation::CreateSession { cwd: fields.path("cwd", limits.path, PathRule::Absolute)? },
        Kind::DeleteSession => Operation::UnloadSession,
        Kind::SwitchSession => Operation::Subscribe,
        Kind::GetMetrics => Operation::Metrics,
        Kind::HealthCheck => Operation::Health,
        Kind::ListStoredSessions => Operation::ListStoredSessions,
        Kind::LoadSession => Operation::LoadSession { path: session_path(fields, limits)? },
        Kind::GetAvailableModels => Operation::ListModels,
        Kind::GetCommands => Operation::ListSlashCommands,
        Kind::GetSkills => Operation::ListSkills,
        Kind::GetTools => Operation::ListTools,
        Kind::ListSessionFiles => Operation::ListSessionFiles,
        Kind::Prompt => {
            let streaming = fields.keyword("streamingBehavior", "steer, followUp", streaming)?;
            Operation::Prompt { input: user_input(fields, limits)?, during_run: streaming }
        }
        Kind::Steer => Operation::Steer(user_input(fields, limits)?),
        Kind::FollowUp => Operation::Queue(user_input(fields, limits)?),
        Kind::Abort => Operation::Cancel,
        Kind::GetState => Operation::Describe,
        Kind::GetMessages => Operation::Messages,
        Kind::SetModel => Operation::SetModel {
            provider: fields.required_text("provider", limits.name)?,
            model: fields.required_text("modelId", limits.name)?,
        },
        Kind::CycleModel => {
            let direction = fields.keyword("direction", "forward, backward", direction)?;
            Operation::CycleModel { direction: direction.unwrap_or(Direction::Forward) }
        }
        Kind::SetThinkingLevel => Operation::SetThinking { level: level(fields)? },
        Kind::CycleThinkingLevel => Operation::CycleThinking,
        Kind::SetSessionName => Operation::Rename { name: name(fields, limits)? },
        Kind::Compact => Operation::Compact { instructions: instructions(fields, limits)? },
        Kind::AbortCompaction => Operation::StopCompaction,
        Kind::SetAutoCompaction => Operation::SetAutoCompaction { enabled: fields.required_flag("enabled")? },
        Kind::SetAutoRetry => Operation::SetAutoRetry { enabled: fields.required_flag("enabled")? },
        Kind::AbortRetry => Operation::StopRetry,
        Kind::Bash => Operation::RunShell {
            command: fields.required_text("command", limits.bash)?,
            context: context_inclusion(fields)?,
        },
        Kind::AbortBash => Operation::StopShell,
        Kind::GetSessionStats => Operation::Statistics,
        Kind::ExportHtml => Operation::Export { path: fields.path("outputPath", limits.path, PathRule::Any)? },
        Kind::NewSession => Operation::NewConversation { parent: parent_session(fields, limits)? },
        Kind::SwitchSessionFile => Operation::SwitchFile { path: session_path(fields, limits)? },
        Kind::Fork => Operation::Fork { entry: fields.required_text("entryId", limits.id)? },
        Kind::GetForkMessages => Operation::ForkMessages,
        Kind::GetLastAssistantText => Operation::LastText,
        Kind::GetContextUsage => Operation::ContextUsage,
        Kind::ExtensionUiResponse => Operation::Answer {
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

fn streaming(word: &str) -> Option<Delivery> {
    match word {
        "steer" => Some(Delivery::Steer),
        "followUp" => Some(Delivery::Queue),
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
