//! Parses the error responses of model servers in all their formats and classifies them.

use serde_json::Value;

use super::error::{ModelError, ModelErrorKind, excerpt};

/// An error as a server reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ApiError {
    /// The HTTP status, or the status that an error object names.
    pub(super) status: Option<u16>,
    /// The machine-readable values: type and code, in lower case.
    codes: Vec<String>,
    /// The message for people; may be empty.
    pub(super) message: String,
}

impl ApiError {
    /// Parses the body of a response that failed with `status`; a body that is not JSON has neither codes nor a
    /// message.
    pub(super) fn from_body(status: u16, body: &[u8]) -> Self {
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        let error = value.get("error").unwrap_or(&value);
        Self { status: Some(status), ..Self::from_json(error) }
    }

    /// Parses an error object, or the string that some servers send in its place.
    pub(super) fn from_json(error: &Value) -> Self {
        let mut api_error = Self::default();
        if let Some(text) = error.as_str() {
            text.clone_into(&mut api_error.message);
        }
        for field in ["type", "code", "status"] {
            match error.get(field) {
                Some(Value::String(word)) => api_error.codes.push(word.to_ascii_lowercase()),
                Some(Value::Number(number)) => {
                    // Vendors also use numeric codes of their own, which are not HTTP statuses.
                    let number = number.as_u64().and_then(|number| u16::try_from(number).ok());
                    api_error.status = number.filter(|number| (400..=599).contains(number));
                }
                Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => {}
            }
        }
        for field in ["message", "detail"] {
            if let Some(text) = error.get(field).and_then(Value::as_str)
                && api_error.message.is_empty()
            {
                text.clone_into(&mut api_error.message);
            }
        }
        api_error
    }

    /// Returns the kind of the failure.
    ///
    /// The status decides. Codes and messages only choose among the kinds that the class of the status allows: a
    /// gateway that answers 401 with `api_error` rejects the key.
    pub(super) fn kind(&self) -> ModelErrorKind {
        match self.status {
            Some(status) => self.kind_by_status(status),
            None => self
                .kind_by_code(&ModelErrorKind::ALL)
                .or_else(|| self.kind_by_message())
                .unwrap_or(ModelErrorKind::Failed),
        }
    }

    /// Converts it to the error of a stream that reported it after a successful status.
    pub(super) fn to_stream_error(&self) -> ModelError {
        let text = if self.message.is_empty() { self.codes.join(", ") } else { self.message.clone() };
        let message = format!("the server reported an error in its answer: {}", excerpt(&text, MESSAGE_BYTES));
        ModelError::new(self.kind(), message)
    }

    fn kind_by_status(&self, status: u16) -> ModelErrorKind {
        match status {
            401 | 403 => ModelErrorKind::Unauthorized,
            402 => ModelErrorKind::OutOfCredit,
            // A request timeout, a conflict or "too early": the same request may succeed later.
            408 | 409 | 425 => ModelErrorKind::Failed,
            413 => ModelErrorKind::ContextTooLong,
            429 => self.kind_by_code(&[ModelErrorKind::OutOfCredit]).unwrap_or(ModelErrorKind::RateLimited),
            400..=499 => self
                .kind_by_code(&CLIENT_ERROR_KINDS)
                .or_else(|| self.kind_by_message())
                .unwrap_or(ModelErrorKind::Refused),
            503 if self.is_loading() => ModelErrorKind::ModelLoading,
            503 | 529 => ModelErrorKind::Overloaded,
            // Some versions of llama.cpp answer 500 with a type that is unambiguous.
            500..=599 => self
                .kind_by_code(&[ModelErrorKind::Overloaded, ModelErrorKind::ContextTooLong])
                .unwrap_or(ModelErrorKind::Failed),
            _ => ModelErrorKind::Refused,
        }
    }

    fn kind_by_code(&self, allowed: &[ModelErrorKind]) -> Option<ModelErrorKind> {
        self.codes.iter().find_map(|word| {
            let (_, kind) = CODES.iter().find(|(known, kind)| known == word && allowed.contains(kind))?;
            Some(*kind)
        })
    }

    fn kind_by_message(&self) -> Option<ModelErrorKind> {
        let sentence = self.message.to_ascii_lowercase();
        let holds = |part: &&str| sentence.contains(part);
        if CONTEXT_TOO_LONG_PHRASES.iter().any(&holds) {
            Some(ModelErrorKind::ContextTooLong)
        } else if sentence.contains("credit balance") {
            Some(ModelErrorKind::OutOfCredit)
        } else if sentence.contains("model") && NOT_FOUND_PHRASES.iter().any(holds) {
            Some(ModelErrorKind::ModelNotFound)
        } else {
            None
        }
    }

    /// Returns whether the server reports that it is loading the model, as llama.cpp and Hugging Face do.
    fn is_loading(&self) -> bool {
        let sentence = self.message.to_ascii_lowercase();
        sentence.contains("loading") && sentence.contains("model")
    }
}

/// The specific kinds of a rejected request; any other rejection is `Refused`.
const CLIENT_ERROR_KINDS: [ModelErrorKind; 5] = [
    ModelErrorKind::ContextTooLong,
    ModelErrorKind::OutOfCredit,
    ModelErrorKind::Unauthorized,
    ModelErrorKind::ModelNotFound,
    ModelErrorKind::RateLimited,
];

/// The kinds of the servers' error codes.
const CODES: &[(&str, ModelErrorKind)] = &[
    ("context_length_exceeded", ModelErrorKind::ContextTooLong),
    ("exceed_context_size_error", ModelErrorKind::ContextTooLong),
    ("request_too_large", ModelErrorKind::ContextTooLong),
    ("insufficient_quota", ModelErrorKind::OutOfCredit),
    ("billing_error", ModelErrorKind::OutOfCredit),
    ("invalid_api_key", ModelErrorKind::Unauthorized),
    ("authentication_error", ModelErrorKind::Unauthorized),
    ("permission_error", ModelErrorKind::Unauthorized),
    ("model_not_found", ModelErrorKind::ModelNotFound),
    ("rate_limit_error", ModelErrorKind::RateLimited),
    ("rate_limit_exceeded", ModelErrorKind::RateLimited),
    ("overloaded_error", ModelErrorKind::Overloaded),
    ("api_error", ModelErrorKind::Failed),
    ("server_error", ModelErrorKind::Failed),
    ("timeout_error", ModelErrorKind::Failed),
];

/// Phrases in messages that report a conversation that is too long.
const CONTEXT_TOO_LONG_PHRASES: &[&str] = &[
    "prompt is too long",
    "maximum context length",
    "context length exceeded",
    "context size",
    "context window",
    "exceeds the context",
];

/// Phrases in messages that report an unknown model.
const NOT_FOUND_PHRASES: &[&str] = &["not found", "does not exist", "not exist", "no such", "model:"];

/// Returns the quotation of a failed response for the error message, and the detail beside it; the two never repeat
/// each other.
///
/// The server's message is preferred to its body. A body without a message is quoted if it is short, and is the
/// detail otherwise.
pub(super) fn quote<'a>(sentence: &str, body: &'a str) -> (String, &'a str) {
    let (sentence, body) = (sentence.trim(), body.trim());
    if !sentence.is_empty() {
        (excerpt(sentence, MESSAGE_BYTES), "")
    } else if body.len() <= BODY_BYTES {
        (excerpt(body, BODY_BYTES), "")
    } else {
        (String::new(), body)
    }
}

/// How much of a server's message is quoted in an error.
const MESSAGE_BYTES: usize = 1024;
/// The maximum length of a body without a message that is quoted.
const BODY_BYTES: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_formats_of_all_servers_are_classified() {
        let cases: [(u16, &str, ModelErrorKind); 34] = [
            (
                401,
                r#"{"error":{"message":"Incorrect API key","type":"invalid_request_error","code":"invalid_api_key"}}"#,
                ModelErrorKind::Unauthorized,
            ),
            (401, "", ModelErrorKind::Unauthorized),
            (
                403,
                r#"{"type":"error","error":{"type":"permission_error","message":"no"}}"#,
                ModelErrorKind::Unauthorized,
            ),
            (402, r#"{"error":{"code":402,"message":"Insufficient credits"}}"#, ModelErrorKind::OutOfCredit),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                ModelErrorKind::OutOfCredit,
            ),
            (
                429,
                r#"{"error":{"message":"Rate limit reached for tokens in this context window","type":"tokens","code":"rate_limit_exceeded"}}"#,
                ModelErrorKind::RateLimited,
            ),
            (429, "slow down", ModelErrorKind::RateLimited),
            (429, r#"{"error":"too many requests within the context window"}"#, ModelErrorKind::RateLimited),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
                ModelErrorKind::ContextTooLong,
            ),
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
                ModelErrorKind::ContextTooLong,
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","code":400}"#,
                ModelErrorKind::ContextTooLong,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}"#,
                ModelErrorKind::ContextTooLong,
            ),
            (
                413,
                r#"{"type":"error","error":{"type":"request_too_large","message":"too large"}}"#,
                ModelErrorKind::ContextTooLong,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
                ModelErrorKind::OutOfCredit,
            ),
            (400, r#"{"error":"registry.ollama.ai/library/x does not support tools"}"#, ModelErrorKind::Refused),
            (404, r#"{"error":"model \"x\" not found, try pulling it first"}"#, ModelErrorKind::ModelNotFound),
            (
                404,
                r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}"#,
                ModelErrorKind::ModelNotFound,
            ),
            (
                404,
                r#"{"error":{"message":"The model `x` does not exist","type":"invalid_request_error","code":"model_not_found"}}"#,
                ModelErrorKind::ModelNotFound,
            ),
            (404, "404 page not found", ModelErrorKind::Refused),
            (422, r#"{"detail":"no"}"#, ModelErrorKind::Refused),
            (408, "", ModelErrorKind::Failed),
            (409, "", ModelErrorKind::Failed),
            (500, r#"{"error":"model runner has unexpectedly stopped, context size 4096"}"#, ModelErrorKind::Failed),
            (502, "<html>", ModelErrorKind::Failed),
            (503, "", ModelErrorKind::Overloaded),
            (
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                ModelErrorKind::Overloaded,
            ),
            (418, "", ModelErrorKind::Refused),
            (401, r#"{"error":{"type":"api_error","message":"bad key"}}"#, ModelErrorKind::Unauthorized),
            (403, r#"{"error":{"type":"overloaded_error","message":"no"}}"#, ModelErrorKind::Unauthorized),
            (400, r#"{"error":{"type":"server_error","message":"no"}}"#, ModelErrorKind::Refused),
            (500, r#"{"error":{"type":"authentication_error","message":"upstream"}}"#, ModelErrorKind::Failed),
            (
                500,
                r#"{"error":{"code":500,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":256}}"#,
                ModelErrorKind::ContextTooLong,
            ),
            (
                503,
                r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
                ModelErrorKind::ModelLoading,
            ),
            (503, r#"{"error":"Model x is currently loading","estimated_time":20.0}"#, ModelErrorKind::ModelLoading),
        ];
        for (status, body, kind) in cases {
            assert_eq!(ApiError::from_body(status, body.as_bytes()).kind(), kind, "{status} {body}");
        }
    }

    #[test]
    fn a_failed_response_is_quoted_once() {
        let body = r#"{"error": {"message": "boom"}}"#;
        assert_eq!(quote("boom", body), ("boom".to_owned(), ""));
        assert_eq!(quote("", " <html> "), ("<html>".to_owned(), ""));
        let page = "<p>".repeat(200);
        assert_eq!(quote("", &page), (String::new(), page.as_str()));
        let error = ApiError::from_json(&serde_json::json!({"message": "boom"})).to_stream_error();
        assert_eq!((error.message.as_str(), error.detail), ("the server reported an error in its answer: boom", None));
    }

    #[test]
    fn an_error_inside_a_stream_is_classified() {
        let cases = [
            (r#"{"type":"overloaded_error","message":"Overloaded"}"#, ModelErrorKind::Overloaded),
            (r#"{"code":429,"message":"slow down"}"#, ModelErrorKind::RateLimited),
            (r#"{"code":502,"message":"upstream"}"#, ModelErrorKind::Failed),
            (r#"{"type":"overloaded_error","code":1302}"#, ModelErrorKind::Overloaded),
            (r#""out of memory""#, ModelErrorKind::Failed),
            (r#"{"message":"strange"}"#, ModelErrorKind::Failed),
            (r#"{"message":"the maximum context length is reached"}"#, ModelErrorKind::ContextTooLong),
            ("null", ModelErrorKind::Failed),
        ];
        for (text, kind) in cases {
            let error = ApiError::from_json(&serde_json::from_str(text).unwrap()).to_stream_error();
            assert_eq!(error.kind, kind, "{text}");
        }
    }
}
