//! Decodes client lines into requests: the envelope first, then the payload.
//!
//! The decoder makes no decisions. A line is expected to be canonical: one compact JSON object without duplicate keys.

mod fields;
mod payload;
mod request_error;
#[cfg(test)]
mod tests;

pub use request_error::{FieldError, LengthLimit, MalformedRequest, RequestError};

use serde_json::value::RawValue;

use super::PROTOCOL;
use super::client::MESSAGE_BYTES;
use super::wire::request::{RequestEnvelope, RequestType};
use crate::kernel::id::SessionId;
use crate::protocol::intent::{Intent, Request, RequestTag};
use fields::{Fields, field_error as error_at, read_text};

/// Size limits of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Bytes of a message.
    pub text: usize,
    /// Characters of a name: of a session, a model, a provider, a client, a reason.
    pub name: usize,
    /// Characters of an id.
    pub id: usize,
    /// Bytes of a comment.
    pub comment: usize,
    /// Bytes of the answer to a form.
    pub answer: usize,
    /// Number of images of a message.
    pub images: usize,
    /// Total bytes of the images, in base64.
    pub image_bytes: usize,
    /// Bytes of a path.
    pub path: usize,
    /// Bytes of the repository description, and of the metadata.
    pub object: usize,
    /// Number of acceptance criteria of a message.
    pub criteria: usize,
    /// Number of rules of a message.
    pub rules: usize,
    /// Bytes of the check command of a criterion.
    pub check: usize,
    /// Number of capabilities of a client.
    pub capabilities: usize,
    /// Number of environment variables.
    pub variables: usize,
    /// Total bytes of the names and values of an environment.
    pub environment: usize,
    /// Maximum entries of a page.
    pub page: u32,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self {
            text: MESSAGE_BYTES,
            name: 256,
            id: 256,
            comment: 8 * 1024,
            answer: 1024 * 1024,
            images: 20,
            image_bytes: 8 * 1024 * 1024,
            path: 4 * 1024,
            object: 256 * 1024,
            criteria: 64,
            rules: 64,
            check: 64 * 1024,
            capabilities: 64,
            variables: 4096,
            environment: 1024 * 1024,
            page: 1000,
        }
    }
}

/// Decodes one line.
///
/// # Errors
///
/// Returns the readable parts of the envelope with the error, so that the request can be answered.
pub fn decode(line: &[u8], limits: &DecodeLimits) -> Result<Request, MalformedRequest> {
    let Ok(envelope) = serde_json::from_slice::<RequestEnvelope<'_>>(line) else {
        return Err(MalformedRequest::unreadable(RequestError::NotAnEnvelope));
    };
    let head = RequestHead::read(&envelope, limits);
    match head.parse_request(&envelope, limits) {
        Ok((kind_name, session, intent)) => {
            let tag = RequestTag { request_id: head.request_id.ok().flatten(), kind_name, session };
            Ok(Request { tag, intent })
        }
        Err(problem) => Err(head.malformed(&envelope, problem, limits)),
    }
}

/// Exceeds every keyword of an envelope.
const WORD_LIMIT: LengthLimit = LengthLimit::Bytes(64);

/// The parts of an envelope that a response echoes, each valid or not.
struct RequestHead {
    request_id: Result<Option<String>, RequestError>,
    type_name: Result<String, RequestError>,
    session: Result<Option<String>, RequestError>,
}

impl RequestHead {
    fn read(envelope: &RequestEnvelope<'_>, limits: &DecodeLimits) -> Self {
        let bound = LengthLimit::Chars(limits.id);
        Self {
            // An empty id identifies nothing: it counts as missing, and the daemon generates one.
            request_id: optional_part("requestId", envelope.request_id, bound).map(|id| id.filter(|id| !id.is_empty())),
            type_name: required_part("type", envelope.r#type, bound),
            session: match optional_part("sessionId", envelope.session_id, bound) {
                Ok(Some(id)) if id.is_empty() => Err(error_at("sessionId".to_owned(), FieldError::Empty)),
                session => session,
            },
        }
    }

    fn parse_request(
        &self,
        envelope: &RequestEnvelope<'_>,
        limits: &DecodeLimits,
    ) -> Result<(String, Option<SessionId>, Intent), RequestError> {
        if !matches!(read_text(envelope.v, WORD_LIMIT), Ok(Some(version)) if version == PROTOCOL) {
            return Err(RequestError::UnsupportedVersion);
        }
        if required_part("kind", envelope.kind, WORD_LIMIT)? != "request" {
            return Err(error_at("kind".to_owned(), FieldError::UnknownWord { allowed: "\"request\"" }));
        }
        self.request_id.clone()?;
        let type_name = self.type_name.clone()?;
        let Some(request) = RequestType::parse(&type_name) else {
            return Err(RequestError::UnknownType { name: type_name });
        };
        let session = self.session.clone()?;
        let fields = Fields::read("payload", envelope.payload)?;
        let (session, intent) = payload::read(request, session, &fields, limits)?;
        Ok((type_name, session, intent))
    }

    fn malformed(
        self,
        envelope: &RequestEnvelope<'_>,
        problem: RequestError,
        limits: &DecodeLimits,
    ) -> MalformedRequest {
        let of_payload = || {
            let fields = Fields::read("payload", envelope.payload).ok()?;
            fields.non_empty_text("sessionId", LengthLimit::Chars(limits.id)).ok().flatten()
        };
        MalformedRequest {
            request_id: self.request_id.ok().flatten(),
            type_name: self.type_name.ok(),
            session: self.session.ok().flatten().or_else(of_payload),
            problem: Box::new(problem),
        }
    }
}

fn optional_part(name: &str, raw: Option<&RawValue>, bound: LengthLimit) -> Result<Option<String>, RequestError> {
    read_text(raw, bound).map_err(|error| error_at(name.to_owned(), error))
}

fn required_part(name: &str, raw: Option<&RawValue>, bound: LengthLimit) -> Result<String, RequestError> {
    match optional_part(name, raw, bound)? {
        None => Err(error_at(name.to_owned(), FieldError::Missing)),
        Some(text) if text.is_empty() => Err(error_at(name.to_owned(), FieldError::Empty)),
        Some(text) => Ok(text),
    }
}
