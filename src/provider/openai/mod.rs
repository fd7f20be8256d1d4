//! Chat completions over server-sent events, as OpenAI and many others serve them: vLLM, llama.cpp, LM Studio,
//! OpenRouter, Groq.

mod decode;
mod encode;

use super::dialect::{Dialect, EncodedTurn, ServerContext, SetupText, WindowQuery, parse_model_list};
use super::endpoint::Endpoint;
use super::model::Request;
use super::window;
use crate::config::settings::ProviderKind;
use encode::TokenLimit;

/// Chat completions.
#[derive(Debug)]
pub(super) struct OpenAi;

impl Dialect for OpenAi {
    fn kind(&self) -> ProviderKind {
        ProviderKind { name: "openai", base_url_variable: None, default_context_window: 128_000 }
    }

    fn setup(&self) -> SetupText {
        SetupText {
            description: "OpenAI, or any server with the chat completions API",
            base_url_question: Some("base URL, if it is not OpenAI:"),
        }
    }

    fn default_base_url(&self) -> &'static str {
        "https://api.openai.com/v1"
    }

    /// A URL without a path gets `/v1`.
    fn normalize_path<'a>(&self, path: &'a str) -> &'a str {
        if path.is_empty() { "/v1" } else { path }
    }

    fn hosts_with_key(&self) -> &'static [&'static str] {
        // Anthropic serves this API as well.
        &[HOST, "openrouter.ai", "api.anthropic.com"]
    }

    fn encode(&self, request: &Request, server: &ServerContext<'_>) -> EncodedTurn {
        let own = server.endpoint.host() == HOST;
        let token_limit = if own { TokenLimit::MaxCompletionTokens } else { TokenLimit::MaxTokens };
        EncodedTurn {
            path: "/chat/completions",
            body: encode::body(request, token_limit),
            decoder: |limits, label| Box::new(decode::Decoder::new(limits, label)),
        }
    }

    fn models_path(&self) -> &'static str {
        "/models"
    }

    fn parse_models(&self, body: &[u8]) -> Option<Vec<String>> {
        parse_model_list(body, "data", "id")
    }

    fn window_queries(&self, endpoint: &Endpoint, _model: &str) -> Vec<WindowQuery> {
        let list = format!("{}{}", endpoint.base_url, self.models_path());
        let mut queries = vec![WindowQuery { url: list, body: None, parse: window::from_model_list }];
        if !endpoint.requires_key() {
            let url = format!("{}/props", endpoint.origin());
            queries.push(WindowQuery { url, body: None, parse: |body, _| window::from_properties(body) });
        }
        queries
    }
}

/// OpenAI's own server, which differs from compatible ones.
const HOST: &str = "api.openai.com";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::samples;

    #[test]
    fn only_openai_s_own_server_gets_max_completion_tokens() {
        for (url, field) in [
            ("https://api.openai.com/v1", "max_completion_tokens"),
            ("https://API.openai.com", "max_completion_tokens"),
            ("http://localhost:1234", "max_tokens"),
        ] {
            let endpoint = Endpoint::parse(&OpenAi, url).unwrap();
            let server = ServerContext { endpoint: &endpoint, context_tokens: 1 };
            let body = OpenAi.encode(&samples::conversation(None), &server).body;
            let fields = ["max_tokens", "max_completion_tokens"].map(|name| body.get(name).is_some());
            assert_eq!(fields, [field == "max_tokens", field == "max_completion_tokens"], "{url}");
        }
    }
}
