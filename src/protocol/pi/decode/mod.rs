//! Decodes client lines into requests.
//!
//! The decoder decides nothing and looks nothing up: it returns the command or the error to answer. A `null` field
//! counts as missing; unknown fields are ignored.

mod fields;
mod identity;
mod image;
mod payload;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::error_text;
use super::kind::{Kind, SessionRequirement};
use crate::kernel::id::SessionId;
use crate::protocol::error::{Code, ErrorBody};
use crate::protocol::intent::{Intent, Malformed, Request, RequestTag};
use crate::protocol::operation::CommandRequest;
use crate::transport::canonical_json::JsonError;
use fields::{FieldError, Fields};

/// Size limits of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Characters of a message or of compaction instructions.
    pub message: usize,
    /// Characters of a shell command.
    pub bash: usize,
    /// Characters of a name: of a session, a model or a provider.
    pub name: usize,
    /// Characters of an id or an idempotency key.
    pub id: usize,
    /// Number of dependencies.
    pub dependencies: usize,
    /// Characters of a path.
    pub path: usize,
    /// Number of images of a message.
    pub images: usize,
    /// Total bytes of the images of a message, in base64.
    pub image_bytes: usize,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self {
            message: 200_000,
            bash: 20_000,
            name: 256,
            id: 256,
            dependencies: 32,
            path: 4096,
            images: 20,
            image_bytes: 8 * 1024 * 1024,
        }
    }
}

/// Decodes one line of canonical JSON.
///
/// # Errors
///
/// Returns the response to a malformed line, which is not admitted as a command.
pub fn decode(line: &[u8], limits: &DecodeLimits) -> Result<Request, Malformed> {
    let mut map = match serde_json::from_slice::<Value>(line) {
        Ok(Value::Object(map)) => map,
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            return Err(unreadable(line, &JsonError::NotAnObject, limits));
        }
        Err(_) => return Err(unreadable(line, &JsonError::NotJson { at: 0 }, limits)),
    };
    match parse_request(&map, limits) {
        Ok((tag, mut command)) => {
            map.remove("id");
            map.remove("idempotencyKey");
            // serde_json sorts the keys of a map, so equivalent commands get equal text.
            command.canonical = Value::Object(map).to_string();
            Ok(Request { tag, intent: Intent::Command(Box::new(command)) })
        }
        Err(error) => Err(malformed(&map, &error, limits)),
    }
}

/// Builds the refusal of a line that is not acceptable JSON.
pub fn unreadable(line: &[u8], why: &JsonError, limits: &DecodeLimits) -> Malformed {
    let id = || identity::from_head(line).id.filter(|id| is_echoed(id, limits.id));
    match why {
        // A line that does not start as an object may be JSON or not.
        JsonError::NotAnObject if serde_json::from_slice::<IgnoredAny>(line).is_err() => {
            refuse(id(), None, error_text::INVALID_JSON)
        }
        JsonError::NotAnObject => refuse(None, None, error_text::invalid("command", "must be a JSON object")),
        JsonError::NotJson { .. } | JsonError::NotUtf8 { .. } => refuse(id(), None, error_text::INVALID_JSON),
        JsonError::TooDeep { .. }
        | JsonError::DuplicateKey { .. }
        | JsonError::LoneSurrogate { .. }
        | JsonError::NumberOutOfRange { .. }
        | JsonError::TooLong => refuse(id(), None, error_text::invalid("command", why.to_string())),
    }
}

/// Returns whether the head of a message contains its id, so that the message can be refused before its end arrives.
pub fn has_request_id(head: &[u8]) -> bool {
    identity::from_head(head).id.is_some()
}

/// Builds the refusal of an oversized message from its first and last bytes.
pub fn too_long(head: &[u8], tail: &[u8], bytes: u64, limit: usize, limits: &DecodeLimits) -> Malformed {
    let found = identity::from_head(head);
    let id = found.id.or_else(|| identity::id_from_tail(tail)).filter(|id| is_echoed(id, limits.id));
    let command = found.command.filter(|command| is_echoed(command, limits.name));
    refuse(id, command, error_text::too_long(bytes, limit))
}

/// Makes the refusal of a message with the readable parts that its response repeats.
pub(super) fn refuse(id: Option<String>, command: Option<String>, error: impl Into<String>) -> Malformed {
    let kind_name = command.unwrap_or_else(|| "unknown".to_owned());
    let tag = RequestTag { request_id: id, kind_name, session: None };
    Malformed { tag, error: ErrorBody::permanent(Code::InvalidRequest, error) }
}

/// Prefix of the ids that the server assigns.
const RESERVED_PREFIX: &str = "anon:";

fn parse_request(map: &Map<String, Value>, limits: &DecodeLimits) -> Result<(RequestTag, CommandRequest), FieldError> {
    let fields = Fields::new(map);
    let name = fields.any_text("type")?.ok_or_else(|| FieldError::new("type", "must be a string"))?;
    let kind = Kind::parse(name).ok_or_else(|| unknown_type(name, limits))?;
    let id = fields.non_empty_text("id", limits.id)?;
    if id.as_deref().is_some_and(|id| id.starts_with(RESERVED_PREFIX)) {
        return Err(FieldError::new("id", format!("Cannot use reserved prefix '{RESERVED_PREFIX}'")));
    }
    let idempotency_key = fields.non_empty_text("idempotencyKey", limits.id)?;
    let depends_on = fields.id_list("dependsOn", limits.dependencies, limits.id)?;
    let if_version = fields.number("ifSessionVersion")?;
    let session = session(&fields, kind, limits)?;
    if if_version.is_some() && session.is_none() {
        return Err(FieldError::new("ifSessionVersion", "needs a command that names a session"));
    }
    let operation = payload::read(kind, &fields, limits)?;
    let (time_limit, canonical) = (kind.time_limit(), String::new());
    let command = CommandRequest { depends_on, if_version, idempotency_key, time_limit, canonical, operation };
    Ok((RequestTag { request_id: id, kind_name: name.to_owned(), session }, command))
}

fn session(fields: &Fields<'_>, kind: Kind, limits: &DecodeLimits) -> Result<Option<SessionId>, FieldError> {
    const NAME: &str = "sessionId";
    match kind.session_requirement() {
        SessionRequirement::Optional => Ok(fields.non_empty_text(NAME, limits.id)?.map(SessionId::from)),
        SessionRequirement::Required => match fields.text_of(NAME) {
            Some(id) if !id.trim().is_empty() => {
                fields.check_length(NAME, id, limits.id)?;
                Ok(Some(SessionId::from(id)))
            }
            Some(_) | None => Err(FieldError::new(NAME, "Session commands must have a non-empty string 'sessionId'")),
        },
    }
}

/// Reports an unknown command type; an overlong name is not echoed.
fn unknown_type(name: &str, limits: &DecodeLimits) -> FieldError {
    let found = name.chars().count();
    if found > limits.name {
        return FieldError::new("type", format!("must be at most {} characters, not {found}", limits.name));
    }
    FieldError::new("type", format!("Unknown command type '{name}'"))
}

fn malformed(map: &Map<String, Value>, error: &FieldError, limits: &DecodeLimits) -> Malformed {
    let repeated = |name: &str, most: usize| {
        let text = map.get(name).and_then(Value::as_str)?;
        is_echoed(text, most).then(|| text.to_owned())
    };
    let error = error_text::invalid(&error.field, &error.message);
    refuse(repeated("id", limits.id), repeated("type", limits.name), error)
}

/// Returns whether a response echoes a text: it is not empty and has at most `most` characters.
fn is_echoed(text: &str, most: usize) -> bool {
    !text.is_empty() && text.chars().count() <= most
}
