//! Anthropic's messages API over server-sent events.

mod decode;
mod encode;

use hyper::header::HeaderName;

use super::dialect::{Dialect, EncodedTurn, ServerContext, SetupText, WindowQuery, parse_model_list};
use super::endpoint::Endpoint;
use super::model::Request;
use super::window;
use crate::config::settings::ProviderKind;

/// The messages API of Anthropic.
#[derive(Debug)]
pub(super) struct Anthropic;

impl Dialect for Anthropic {
    fn kind(&self) -> ProviderKind {
        ProviderKind { name: "anthropic", base_url_variable: None, default_context_window: 200_000 }
    }

    fn setup(&self) -> SetupText {
        SetupText { description: "Anthropic", base_url_question: None }
    }

    fn default_base_url(&self) -> &'static str {
        "https://api.anthropic.com"
    }

    /// A URL loses `/v1`, because the paths of this dialect contain it.
    fn normalize_path<'a>(&self, path: &'a str) -> &'a str {
        path.strip_suffix("/v1").unwrap_or(path)
    }

    fn hosts_with_key(&self) -> &'static [&'static str] {
        &["api.anthropic.com", "openrouter.ai"]
    }

    fn authorization(&self, key: &str) -> (HeaderName, String) {
        (HeaderName::from_static("x-api-key"), key.to_owned())
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("anthropic-version", "2023-06-01")]
    }

    fn encode(&self, request: &Request, _server: &ServerContext<'_>) -> EncodedTurn {
        EncodedTurn {
            path: "/v1/messages",
            body: encode::body(request),
            decoder: |limits, label| Box::new(decode::Decoder::new(limits, label)),
        }
    }

    fn models_path(&self) -> &'static str {
        "/v1/models?limit=1000"
    }

    fn parse_models(&self, body: &[u8]) -> Option<Vec<String>> {
        parse_model_list(body, "data", "id")
    }

    fn window_queries(&self, endpoint: &Endpoint, _model: &str) -> Vec<WindowQuery> {
        let list = format!("{}{}", endpoint.base_url, self.models_path());
        vec![WindowQuery { url: list, body: None, parse: window::from_model_list }]
    }
}
