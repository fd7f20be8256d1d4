//! Context windows of models, from the server's model list, its properties, or the error of a conversation that is
//! too long.
//!
//! Cached values expire after some minutes: a server may be restarted with another model or another size.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::error::ModelError;

/// The cache of context windows, by server and model.
#[derive(Debug, Default)]
pub(super) struct WindowCache(Mutex<BTreeMap<(String, String), CachedWindow>>);

/// A cached context window.
#[derive(Debug, Clone, Copy)]
struct CachedWindow {
    /// `None` if the server does not report it.
    tokens: Option<u32>,
    at: Instant,
}

impl WindowCache {
    /// Returns the cached value; the outer `None` means that there is no recent entry.
    pub(super) fn get(&self, server: &str, model: &str) -> Option<Option<u32>> {
        let known = *self.lock().get(&(server.to_owned(), model.to_owned()))?;
        (known.at.elapsed() < TTL).then_some(known.tokens)
    }

    /// Caches a value.
    pub(super) fn insert(&self, server: String, model: &str, tokens: Option<u32>) {
        let mut all = self.lock();
        if all.len() >= MAX_ENTRIES {
            all.retain(|_, known| known.at.elapsed() < TTL);
        }
        if all.len() < MAX_ENTRIES {
            all.insert((server, model.to_owned()), CachedWindow { tokens, at: Instant::now() });
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), CachedWindow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parses the window from the error of a conversation that is too long.
pub(super) fn from_error(error: &ModelError) -> Option<u32> {
    let texts = [error.detail.as_deref(), Some(error.message.as_str())];
    error.window.or_else(|| texts.into_iter().flatten().find_map(from_text))
}

/// Parses the window from the text of an error response.
pub(super) fn from_text(text: &str) -> Option<u32> {
    let text = text.to_ascii_lowercase();
    let named = MARKERS.iter().find_map(|marker| {
        text.match_indices(marker).find_map(|(at, found)| leading_number(text.get(at + found.len()..)?))
    });
    // Anthropic: "prompt is too long: 210000 tokens > 200000 maximum", "… exceed context limit: 180000 + 21333 > 200000".
    let compared = || text.match_indices("> ").find_map(|(at, found)| leading_number(text.get(at + found.len()..)?));
    named.or_else(compared)
}

/// Parses the number at the beginning of a text, if it is a plausible window.
fn leading_number(text: &str) -> Option<u32> {
    let digits: String = text
        .trim_start()
        .chars()
        .take_while(|letter| letter.is_ascii_digit() || matches!(letter, ',' | '_'))
        .filter(char::is_ascii_digit)
        .collect();
    plausible_window(digits.parse().ok()?)
}

fn plausible_window(tokens: u64) -> Option<u32> {
    u32::try_from(tokens).ok().filter(|tokens| (MIN_WINDOW..=MAX_WINDOW).contains(tokens))
}

/// Parses a model's window from a list of models.
pub(super) fn from_model_list(body: &[u8], model: &str) -> Option<u32> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let models = value.get("data").or_else(|| value.get("models"))?.as_array()?;
    let names = |entry: &&Value| ["id", "name", "model"].iter().any(|field| entry[*field] == model);
    // A server with a single model accepts any model name.
    let entry = models.iter().find(names).or_else(|| models.first().filter(|_| models.len() == 1))?;
    let objects = [entry, entry.get("meta").unwrap_or(&Value::Null)];
    objects
        .into_iter()
        .find_map(|object| FIELDS.iter().find_map(|field| plausible_window(object.get(*field)?.as_u64()?)))
}

/// Parses the window from the properties of a llama.cpp server.
pub(super) fn from_properties(body: &[u8]) -> Option<u32> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let settings = value.get("default_generation_settings")?;
    plausible_window(settings.get("n_ctx")?.as_u64()?)
}

/// Parses the window from Ollama's description of a model.
pub(super) fn from_description(body: &[u8]) -> Option<u32> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let facts = value.get("model_info")?.as_object()?;
    facts.iter().find_map(|(name, value)| {
        name.ends_with(".context_length").then(|| plausible_window(value.as_u64()?)).flatten()
    })
}

/// The text before the number in errors of OpenAI, vLLM, llama.cpp and its Python server, LM Studio and OpenRouter.
const MARKERS: [&str; 10] = [
    "\"n_ctx\":",
    "context size (",
    "context size of ",
    "context length is only ",
    "context length is ",
    "context length of ",
    "context length (",
    "context window of ",
    "context window is ",
    "context window (",
];

/// The field of the window in model lists: vLLM, LM Studio, OpenRouter and Together, Groq, Mistral, Anthropic,
/// llama.cpp.
const FIELDS: [&str; 7] = [
    "max_model_len",
    "loaded_context_length",
    "context_length",
    "context_window",
    "max_context_length",
    "max_input_tokens",
    "n_ctx",
];

/// How long a cached value is valid.
const TTL: Duration = Duration::from_secs(600);
/// The maximum number of cached values.
const MAX_ENTRIES: usize = 256;
/// The range of plausible windows.
const MIN_WINDOW: u32 = 128;
const MAX_WINDOW: u32 = 100_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::error::ModelErrorKind;

    #[test]
    fn the_window_is_parsed_from_the_errors_of_all_servers() {
        let cases = [
            ("This model's maximum context length is 8192 tokens. However, you requested 9000 tokens", Some(8192)),
            ("prompt is too long: 210000 tokens > 200000 maximum", Some(200_000)),
            ("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease", Some(200_000)),
            (
                r#"{"error":{"message":"exceeds the available context size","n_prompt_tokens":1407,"n_ctx":256}}"#,
                Some(256),
            ),
            ("request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it", Some(8192)),
            ("Requested tokens (516) exceed context window of 512", Some(512)),
            ("This endpoint's maximum context length is 131,072 tokens.", Some(131_072)),
            ("maximum context length exceeded", None),
            ("the maximum context length is 3 tokens", None),
        ];
        for (text, window) in cases {
            let error = ModelError::new(ModelErrorKind::ContextTooLong, "x answered 400").with_detail(text);
            assert_eq!(from_error(&error), window, "{text}");
        }
    }

    #[test]
    fn the_window_is_parsed_from_lists_properties_and_descriptions() {
        let vllm = br#"{"data":[{"id":"a","max_model_len":4096},{"id":"b","max_model_len":8192}]}"#;
        assert_eq!((from_model_list(vllm, "b"), from_model_list(vllm, "c")), (Some(8192), None));
        let anthropic = br#"{"data":[{"id":"claude","max_input_tokens":200000,"max_tokens":64000}]}"#;
        assert_eq!(from_model_list(anthropic, "claude"), Some(200_000));
        // The window of the training is not the window that the server provides.
        let llama = br#"{"data":[{"id":"x.gguf","meta":{"n_ctx_train":131072}}]}"#;
        assert_eq!(from_model_list(llama, "any"), None);
        let properties = br#"{"default_generation_settings":{"n_ctx":4096},"total_slots":1}"#;
        assert_eq!(from_properties(properties), Some(4096));
        let shown = br#"{"model_info":{"general.architecture":"llama","llama.context_length":8192}}"#;
        assert_eq!(from_description(shown), Some(8192));
        for nothing in [&b""[..], b"[]", b"{}", b"{\"data\":[{}]}", b"not json"] {
            assert_eq!(
                (from_model_list(nothing, "m"), from_properties(nothing), from_description(nothing)),
                (None, None, None)
            );
        }
    }

    #[test]
    fn windows_are_cached_by_server_and_model() {
        let windows = WindowCache::default();
        assert_eq!(windows.get("s", "m"), None);
        windows.insert("s".to_owned(), "m", Some(4096));
        windows.insert("s".to_owned(), "n", None);
        assert_eq!((windows.get("s", "m"), windows.get("s", "n")), (Some(Some(4096)), Some(None)));
        assert_eq!(windows.get("t", "m"), None);
        (0..2 * MAX_ENTRIES).for_each(|number| windows.insert("s".to_owned(), &number.to_string(), None));
        assert_eq!(windows.lock().len(), MAX_ENTRIES);
    }
}
