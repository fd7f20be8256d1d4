//! Lines of clients into what they ask for.
//!
//! Nothing is decided here, and nothing is looked up: a command is what it says or it is refused with a sentence. A
//! field that is `null` counts as not said; a field that nobody asks for is ignored.

mod fields;
mod identity;
mod payload;
mod picture;

use serde_json::{Map, Value};

use super::ask::Asked;
use super::kind::{Kind, Naming};
use super::text;
use crate::kernel::id::SessionId;
use fields::{Fields, Problem};

/// How much a command may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Characters of a message, and of what a summary is to look at.
    pub message: usize,
    /// Characters of a shell command.
    pub bash: usize,
    /// Characters of a name: of a session, a model, a provider.
    pub name: usize,
    /// Characters of an id or a key.
    pub id: usize,
    /// How many commands one may wait for.
    pub dependencies: usize,
    /// Characters of a path.
    pub path: usize,
    /// How many images a message may have.
    pub images: usize,
    /// Bytes of the images of a message together, as they are sent.
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

/// A line that cannot be taken as a command, with as much of it as an answer repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// What the client calls it.
    pub id: Option<String>,
    /// The command's type as it was sent; `unknown` where there is none.
    pub command: String,
    /// What is wrong with it, as it is answered.
    pub error: String,
}

impl Malformed {
    /// A line of which nothing can be read.
    pub fn unreadable(error: impl Into<String>) -> Self {
        Self { id: None, command: UNKNOWN.to_owned(), error: error.into() }
    }
}

/// Reads one line.
///
/// # Errors
///
/// What is malformed is to be answered as it says, and is not admitted.
pub fn decode(line: &[u8], limits: &DecodeLimits) -> Result<Asked, Box<Malformed>> {
    let mut map = match serde_json::from_slice::<Value>(line) {
        Ok(Value::Object(map)) => map,
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            let error = text::invalid("command", "must be a JSON object");
            return Err(Box::new(Malformed::unreadable(error)));
        }
        Err(_) => {
            let id = identity::from_head(line).id.filter(|id| is_repeated(id, limits.id));
            return Err(Box::new(Malformed { id, ..Malformed::unreadable(text::INVALID_JSON) }));
        }
    };
    match understand(&map, limits) {
        Ok(mut asked) => {
            map.remove("id");
            map.remove("idempotencyKey");
            // Its maps are sorted, so two spellings of one command come out alike.
            asked.canonical = Value::Object(map).to_string();
            Ok(asked)
        }
        Err(problem) => Err(Box::new(malformed(&map, &problem, limits))),
    }
}

/// Tells whether the beginning of a message holds its id, so that it can be refused without its end.
pub fn names_itself(head: &[u8]) -> bool {
    identity::from_head(head).id.is_some()
}

/// Says how to refuse a message that was too long to be kept, by its two ends.
pub fn too_long(head: &[u8], tail: &[u8], bytes: u64, limit: usize, limits: &DecodeLimits) -> Malformed {
    let found = identity::from_head(head);
    let id = found.id.or_else(|| identity::id_from_tail(tail)).filter(|id| is_repeated(id, limits.id));
    let command = found.command.filter(|command| is_repeated(command, limits.name));
    Malformed {
        id,
        command: command.unwrap_or_else(|| UNKNOWN.to_owned()),
        error: text::too_long(bytes, limit),
    }
}

const UNKNOWN: &str = "unknown";
/// What ids begin with that the server gives.
const RESERVED: &str = "anon:";

fn understand(map: &Map<String, Value>, limits: &DecodeLimits) -> Result<Asked, Problem> {
    let fields = Fields::new(map);
    let name = fields.any_text("type")?.ok_or_else(|| Problem::new("type", "must be a string"))?;
    let kind = Kind::parse(name).ok_or_else(|| unknown(name, limits))?;
    let id = fields.key("id", limits.id)?;
    if id.as_deref().is_some_and(|id| id.starts_with(RESERVED)) {
        return Err(Problem::new("id", format!("Cannot use reserved prefix '{RESERVED}'")));
    }
    let idempotency_key = fields.key("idempotencyKey", limits.id)?;
    let depends_on = fields.keys("dependsOn", limits.dependencies, limits.id)?;
    let if_session_version = fields.number("ifSessionVersion")?;
    let session = session(&fields, kind, limits)?;
    if if_session_version.is_some() && session.is_none() {
        return Err(Problem::new("ifSessionVersion", "needs a command that names a session"));
    }
    let ask = payload::read(kind, &fields, limits)?;
    let canonical = String::new();
    Ok(Asked { id, kind, session, depends_on, if_session_version, idempotency_key, ask, canonical })
}

fn session(fields: &Fields<'_>, kind: Kind, limits: &DecodeLimits) -> Result<Option<SessionId>, Problem> {
    const NAME: &str = "sessionId";
    match kind.naming() {
        Naming::Free => Ok(fields.key(NAME, limits.id)?.map(SessionId::from)),
        Naming::Session => match fields.text_of(NAME) {
            Some(id) if !id.trim().is_empty() => {
                fields.bounded(NAME, id, limits.id)?;
                Ok(Some(SessionId::from(id)))
            }
            Some(_) | None => {
                Err(Problem::new(NAME, "Session commands must have a non-empty string 'sessionId'"))
            }
        },
    }
}

/// Says that there is no such command; a name that is too long is not repeated.
fn unknown(name: &str, limits: &DecodeLimits) -> Problem {
    let found = name.chars().count();
    if found > limits.name {
        return Problem::new("type", format!("must be at most {} characters, not {found}", limits.name));
    }
    Problem::new("type", format!("Unknown command type '{name}'"))
}

fn malformed(map: &Map<String, Value>, problem: &Problem, limits: &DecodeLimits) -> Malformed {
    let repeated = |name: &str, most: usize| {
        let text = map.get(name).and_then(Value::as_str)?;
        is_repeated(text, most).then(|| text.to_owned())
    };
    Malformed {
        id: repeated("id", limits.id),
        command: repeated("type", limits.name).unwrap_or_else(|| UNKNOWN.to_owned()),
        error: text::invalid(&problem.field, &problem.message),
    }
}

/// Tells whether an answer repeats a text of at most so many characters.
fn is_repeated(text: &str, most: usize) -> bool {
    !text.is_empty() && text.chars().count() <= most
}
