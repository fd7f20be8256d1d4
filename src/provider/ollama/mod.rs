//! Ollama's own chat API: one JSON object per line.

mod decode;
mod detect;
mod encode;

use serde_json::json;

pub use detect::RunningOllama;

use super::dialect::{Dialect, EncodedTurn, ServerContext, SetupText, WindowQuery, parse_model_list};
use super::endpoint::Endpoint;
use super::model::Request;
use super::window;
use crate::config::settings::ProviderKind;

/// The chat API of Ollama.
#[derive(Debug)]
pub(super) struct Ollama;

impl Dialect for Ollama {
    fn kind(&self) -> ProviderKind {
        ProviderKind { name: "ollama", base_url_variable: Some("OLLAMA_HOST"), default_context_window: 32_768 }
    }

    fn setup(&self) -> SetupText {
        SetupText { description: "models on this machine", base_url_question: None }
    }

    fn is_local(&self) -> bool {
        true
    }

    fn default_base_url(&self) -> &'static str {
        "http://127.0.0.1:11434"
    }

    /// Completes a value of `OLLAMA_HOST`, which may be a host, a port, or both.
    fn complete_url(&self, written: &str) -> String {
        if written.contains("://") { written.to_owned() } else { format!("http://{}", with_default_port(written)) }
    }

    fn encode(&self, request: &Request, server: &ServerContext<'_>) -> EncodedTurn {
        EncodedTurn {
            path: "/api/chat",
            body: encode::body(request, server.context_tokens),
            decoder: |limits, label| Box::new(decode::Decoder::new(limits, label)),
        }
    }

    fn models_path(&self) -> &'static str {
        "/api/tags"
    }

    fn parse_models(&self, body: &[u8]) -> Option<Vec<String>> {
        parse_model_list(body, "models", "name")
    }

    fn window_queries(&self, endpoint: &Endpoint, model: &str) -> Vec<WindowQuery> {
        vec![WindowQuery {
            url: format!("{}/api/show", endpoint.base_url),
            body: Some(json!({ "model": model })),
            parse: |body, _| window::from_description(body),
        }]
    }

    fn is_window_client_sized(&self) -> bool {
        true
    }

    fn missing_model_remedy(&self, model: &str) -> Option<String> {
        Some(format!("run `ollama pull {model}`"))
    }
}

fn with_default_port(written: &str) -> String {
    let written = written.trim_end_matches('/');
    let (host, rest) = written.split_once('/').map_or((written, ""), |(host, rest)| (host, rest));
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => (name, port),
        Some(_) | None => (host, PORT),
    };
    let name = if name.is_empty() { "127.0.0.1" } else { name };
    let slash = if rest.is_empty() { "" } else { "/" };
    format!("{name}:{port}{slash}{rest}")
}

/// The port of a server without a configured one.
const PORT: &str = "11434";
