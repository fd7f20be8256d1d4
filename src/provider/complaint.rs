//! Parses the error responses of model servers in all their formats and classifies them.

use serde_json::Value;

use super::error::{Kind, ModelError, excerpt};

/// An error as a server reports it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Complaint {
    /// The HTTP status, or the status that an error object names.
    pub(super) status: Option<u16>,
    /// The machine-readable values: type and code, in lower case.
    words: Vec<String>,
    /// The message for people; may be empty.
    pub(super) message: String,
}

impl Complaint {
    /// Parses the body of a response that failed with `status`; a body that is not JSON has neither codes nor a
    /// message.
    pub(super) fn of_body(status: u16, body: &[u8]) -> Self {
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        let error = value.get("error").unwrap_or(&value);
        Self { status: Some(status), ..Self::of_error(error) }
    }

    /// Parses an error object, or the string that some servers send in its place.
    pub(super) fn of_error(error: &Value) -> Self {
        let mut complaint = Self::default();
        if let Some(text) = error.as_str() {
            text.clone_into(&mut complaint.message);
        }
        for field in ["type", "code", "status"] {
            match error.get(field) {
                Some(Value::String(word)) => complaint.words.push(word.to_ascii_lowercase()),
                Some(Value::Number(number)) => {
                    // Vendors also use numeric codes of their own, which are not HTTP statuses.
                    let number = number.as_u64().and_then(|number| u16::try_from(number).ok());
                    complaint.status = number.filter(|number| (400..=599).contains(number));
                }
                Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => {}
            }
        }
        for field in ["message", "detail"] {
            if let Some(text) = error.get(field).and_then(Value::as_str)
                && complaint.message.is_empty()
            {
                text.clone_into(&mut complaint.message);
            }
        }
        complaint
    }

    /// Returns the kind of the failure.
    ///
    /// The status decides. Codes and messages only choose among the kinds that the class of the status allows: a
    /// gateway that answers 401 with `api_error` rejects the key.
    pub(super) fn kind(&self) -> Kind {
        match self.status {
            Some(status) => self.by_status(status),
            None => self.by_words(&Kind::ALL).or_else(|| self.by_sentence()).unwrap_or(Kind::Failed),
        }
    }

    /// Converts it to the error of a stream that reported it after a successful status.
    pub(super) fn in_answer(&self) -> ModelError {
        let said = if self.message.is_empty() { self.words.join(", ") } else { self.message.clone() };
        let message =
            format!("the server reported an error in its answer: {}", excerpt(&said, MESSAGE_BYTES));
        ModelError::new(self.kind(), message)
    }

    fn by_status(&self, status: u16) -> Kind {
        match status {
            401 | 403 => Kind::Unauthorized,
            402 => Kind::OutOfCredit,
            // A request timeout, a conflict or "too early": the same request may succeed later.
            408 | 409 | 425 => Kind::Failed,
            413 => Kind::ContextTooLong,
            429 => self.by_words(&[Kind::OutOfCredit]).unwrap_or(Kind::RateLimited),
            400..=499 => self.by_words(&REFUSALS).or_else(|| self.by_sentence()).unwrap_or(Kind::Refused),
            503 if self.is_loading() => Kind::ModelLoading,
            503 | 529 => Kind::Overloaded,
            // Some versions of llama.cpp answer 500 with a type that is unambiguous.
            500..=599 => self.by_words(&[Kind::Overloaded, Kind::ContextTooLong]).unwrap_or(Kind::Failed),
            _ => Kind::Refused,
        }
    }

    fn by_words(&self, allowed: &[Kind]) -> Option<Kind> {
        self.words.iter().find_map(|word| {
            let (_, kind) = WORDS.iter().find(|(known, kind)| known == word && allowed.contains(kind))?;
            Some(*kind)
        })
    }

    fn by_sentence(&self) -> Option<Kind> {
        let sentence = self.message.to_ascii_lowercase();
        let holds = |part: &&str| sentence.contains(part);
        if TOO_LONG.iter().any(&holds) {
            Some(Kind::ContextTooLong)
        } else if sentence.contains("credit balance") {
            Some(Kind::OutOfCredit)
        } else if sentence.contains("model") && NOT_FOUND.iter().any(holds) {
            Some(Kind::ModelNotFound)
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
const REFUSALS: [Kind; 5] =
    [Kind::ContextTooLong, Kind::OutOfCredit, Kind::Unauthorized, Kind::ModelNotFound, Kind::RateLimited];

/// The kinds of the servers' error codes.
const WORDS: &[(&str, Kind)] = &[
    ("context_length_exceeded", Kind::ContextTooLong),
    ("exceed_context_size_error", Kind::ContextTooLong),
    ("request_too_large", Kind::ContextTooLong),
    ("insufficient_quota", Kind::OutOfCredit),
    ("billing_error", Kind::OutOfCredit),
    ("invalid_api_key", Kind::Unauthorized),
    ("authentication_error", Kind::Unauthorized),
    ("permission_error", Kind::Unauthorized),
    ("model_not_found", Kind::ModelNotFound),
    ("rate_limit_error", Kind::RateLimited),
    ("rate_limit_exceeded", Kind::RateLimited),
    ("overloaded_error", Kind::Overloaded),
    ("api_error", Kind::Failed),
    ("server_error", Kind::Failed),
    ("timeout_error", Kind::Failed),
];

/// Phrases in messages that report a conversation that is too long.
const TOO_LONG: &[&str] = &[
    "prompt is too long",
    "maximum context length",
    "context length exceeded",
    "context size",
    "context window",
    "exceeds the context",
];

/// Phrases in messages that report an unknown model.
const NOT_FOUND: &[&str] = &["not found", "does not exist", "not exist", "no such", "model:"];

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
    fn every_server_s_way_to_complain_is_understood() {
        let cases: [(u16, &str, Kind); 34] = [
            (
                401,
                r#"{"error":{"message":"Incorrect API key","type":"invalid_request_error","code":"invalid_api_key"}}"#,
                Kind::Unauthorized,
            ),
            (401, "", Kind::Unauthorized),
            (
                403,
                r#"{"type":"error","error":{"type":"permission_error","message":"no"}}"#,
                Kind::Unauthorized,
            ),
            (402, r#"{"error":{"code":402,"message":"Insufficient credits"}}"#, Kind::OutOfCredit),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                Kind::OutOfCredit,
            ),
            (
                429,
                r#"{"error":{"message":"Rate limit reached for tokens in this context window","type":"tokens","code":"rate_limit_exceeded"}}"#,
                Kind::RateLimited,
            ),
            (429, "slow down", Kind::RateLimited),
            (429, r#"{"error":"too many requests within the context window"}"#, Kind::RateLimited),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
                Kind::ContextTooLong,
            ),
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
                Kind::ContextTooLong,
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","code":400}"#,
                Kind::ContextTooLong,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}"#,
                Kind::ContextTooLong,
            ),
            (
                413,
                r#"{"type":"error","error":{"type":"request_too_large","message":"too large"}}"#,
                Kind::ContextTooLong,
            ),
            (
                400,
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
                Kind::OutOfCredit,
            ),
            (400, r#"{"error":"registry.ollama.ai/library/x does not support tools"}"#, Kind::Refused),
            (404, r#"{"error":"model \"x\" not found, try pulling it first"}"#, Kind::ModelNotFound),
            (
                404,
                r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}"#,
                Kind::ModelNotFound,
            ),
            (
                404,
                r#"{"error":{"message":"The model `x` does not exist","type":"invalid_request_error","code":"model_not_found"}}"#,
                Kind::ModelNotFound,
            ),
            (404, "404 page not found", Kind::Refused),
            (422, r#"{"detail":"no"}"#, Kind::Refused),
            (408, "", Kind::Failed),
            (409, "", Kind::Failed),
            (500, r#"{"error":"model runner has unexpectedly stopped, context size 4096"}"#, Kind::Failed),
            (502, "<html>", Kind::Failed),
            (503, "", Kind::Overloaded),
            (
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                Kind::Overloaded,
            ),
            (418, "", Kind::Refused),
            (401, r#"{"error":{"type":"api_error","message":"bad key"}}"#, Kind::Unauthorized),
            (403, r#"{"error":{"type":"overloaded_error","message":"no"}}"#, Kind::Unauthorized),
            (400, r#"{"error":{"type":"server_error","message":"no"}}"#, Kind::Refused),
            (500, r#"{"error":{"type":"authentication_error","message":"upstream"}}"#, Kind::Failed),
            (
                500,
                r#"{"error":{"code":500,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":256}}"#,
                Kind::ContextTooLong,
            ),
            (
                503,
                r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
                Kind::ModelLoading,
            ),
            (503, r#"{"error":"Model x is currently loading","estimated_time":20.0}"#, Kind::ModelLoading),
        ];
        for (status, body, kind) in cases {
            assert_eq!(Complaint::of_body(status, body.as_bytes()).kind(), kind, "{status} {body}");
        }
    }

    #[test]
    fn a_failed_response_is_quoted_once() {
        let body = r#"{"error": {"message": "boom"}}"#;
        assert_eq!(quote("boom", body), ("boom".to_owned(), ""));
        assert_eq!(quote("", " <html> "), ("<html>".to_owned(), ""));
        let page = "<p>".repeat(200);
        assert_eq!(quote("", &page), (String::new(), page.as_str()));
        let error = Complaint::of_error(&serde_json::json!({"message": "boom"})).in_answer();
        assert_eq!(
            (error.message.as_str(), error.detail),
            ("the server reported an error in its answer: boom", None)
        );
    }

    #[test]
    fn an_error_in_the_middle_of_an_answer_is_understood_as_well() {
        let cases = [
            (r#"{"type":"overloaded_error","message":"Overloaded"}"#, Kind::Overloaded),
            (r#"{"code":429,"message":"slow down"}"#, Kind::RateLimited),
            (r#"{"code":502,"message":"upstream"}"#, Kind::Failed),
            (r#"{"type":"overloaded_error","code":1302}"#, Kind::Overloaded),
            (r#""out of memory""#, Kind::Failed),
            (r#"{"message":"strange"}"#, Kind::Failed),
            (r#"{"message":"the maximum context length is reached"}"#, Kind::ContextTooLong),
            ("null", Kind::Failed),
        ];
        for (text, kind) in cases {
            let error = Complaint::of_error(&serde_json::from_str(text).unwrap()).in_answer();
            assert_eq!(error.kind, kind, "{text}");
        }
    }
}
