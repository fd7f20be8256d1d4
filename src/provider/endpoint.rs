//! The endpoint of a provider: a base URL, normalized from user input.

use hyper::Uri;

use super::dialect::Dialect;

/// The endpoint of a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// The base URL, without a trailing slash.
    pub base_url: String,
    host: String,
}

/// Why a text is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// It is not a URL.
    #[error("it is not a valid URL")]
    InvalidUrl,
    /// Its scheme is neither `http` nor `https`.
    #[error("it must begin with http:// or https://")]
    UnsupportedScheme,
    /// It contains a user name or a password, which would be displayed.
    #[error("it must not contain a user name or a password")]
    HasCredentials,
    /// It contains a query string.
    #[error("it must not contain a query string")]
    HasQuery,
}

impl Endpoint {
    /// Parses a base URL as users write it for this dialect.
    ///
    /// For Ollama it may also be a value of `OLLAMA_HOST`: a host, a port, or both. A chat completions URL without
    /// a path gets `/v1`; a messages URL loses it, because the paths of that dialect contain it.
    pub fn parse(dialect: Dialect, written: &str) -> Result<Self, EndpointError> {
        let written = written.trim();
        let whole = match dialect {
            Dialect::Ollama if !written.contains("://") => format!("http://{}", with_default_port(written)),
            Dialect::Ollama => written.to_owned(),
            Dialect::OpenAi => written.to_owned(),
            Dialect::Anthropic => written.to_owned(),
        };
        let uri: Uri = whole.parse().map_err(|_| EndpointError::InvalidUrl)?;
        let scheme = uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"));
        let (Some(scheme), Some(authority)) = (scheme, uri.authority()) else {
            return Err(EndpointError::UnsupportedScheme);
        };
        if authority.as_str().contains('@') {
            return Err(EndpointError::HasCredentials);
        }
        if uri.query().is_some() {
            return Err(EndpointError::HasQuery);
        }
        let port = authority.port().map(|port| format!(":{port}")).unwrap_or_default();
        let host = connectable_host(authority.host());
        let path = normalize_path(dialect, uri.path().trim_end_matches('/'));
        Ok(Self { base_url: format!("{scheme}://{host}{port}{path}"), host: host.to_ascii_lowercase() })
    }

    /// Returns the default endpoint of a dialect.
    pub fn default_for(dialect: Dialect) -> Self {
        let (base, host) = match dialect {
            Dialect::Ollama => ("http://127.0.0.1:11434", "127.0.0.1"),
            Dialect::OpenAi => ("https://api.openai.com/v1", OPENAI),
            Dialect::Anthropic => ("https://api.anthropic.com", ANTHROPIC),
        };
        Self { base_url: base.to_owned(), host: host.to_owned() }
    }

    /// Returns the origin: scheme, host and port.
    pub fn origin(&self) -> String {
        let (scheme, rest) = self.base_url.split_once("://").unwrap_or(("http", &self.base_url));
        let authority = rest.split('/').next().unwrap_or(rest);
        format!("{scheme}://{}", authority.to_ascii_lowercase())
    }

    /// Returns whether it is the server of a vendor that requires a key.
    pub fn requires_key(&self) -> bool {
        matches!(self.host.as_str(), OPENAI | ANTHROPIC | "openrouter.ai")
    }

    /// Returns whether it is OpenAI's own server, which differs from compatible ones.
    pub fn is_openai(&self) -> bool {
        self.host == OPENAI
    }

    /// Returns whether the server is on this machine.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host == "[::1]" || self.host.starts_with("127.")
    }
}

/// Maps an unspecified address, which is valid only for listening, to the loopback address.
fn connectable_host(host: &str) -> &str {
    match host {
        "0.0.0.0" => "127.0.0.1",
        "[::]" => "[::1]",
        _ => host,
    }
}

fn with_default_port(written: &str) -> String {
    let written = written.trim_end_matches('/');
    let (host, rest) = written.split_once('/').map_or((written, ""), |(host, rest)| (host, rest));
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => (name, port),
        Some(_) | None => (host, OLLAMA_PORT),
    };
    let name = if name.is_empty() { "127.0.0.1" } else { name };
    let slash = if rest.is_empty() { "" } else { "/" };
    format!("{name}:{port}{slash}{rest}")
}

fn normalize_path(dialect: Dialect, path: &str) -> &str {
    match dialect {
        Dialect::Ollama => path,
        Dialect::OpenAi if path.is_empty() => "/v1",
        Dialect::OpenAi => path,
        Dialect::Anthropic => path.strip_suffix("/v1").unwrap_or(path),
    }
}

const OPENAI: &str = "api.openai.com";
const ANTHROPIC: &str = "api.anthropic.com";
const OLLAMA_PORT: &str = "11434";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_input_is_normalized_to_a_base_url() {
        let cases = [
            (Dialect::Ollama, "127.0.0.1", "http://127.0.0.1:11434"),
            (Dialect::Ollama, ":8080", "http://127.0.0.1:8080"),
            (Dialect::Ollama, "0.0.0.0:11434", "http://127.0.0.1:11434"),
            (Dialect::Ollama, "[::]:11434", "http://[::1]:11434"),
            (Dialect::Ollama, "box.lan/x/", "http://box.lan:11434/x"),
            (Dialect::Ollama, "https://ollama.com", "https://ollama.com"),
            (Dialect::OpenAi, "http://localhost:1234", "http://localhost:1234/v1"),
            (Dialect::OpenAi, " https://openrouter.ai/api/v1/ ", "https://openrouter.ai/api/v1"),
            (Dialect::Anthropic, "https://api.anthropic.com/v1/", "https://api.anthropic.com"),
            (Dialect::Anthropic, "http://proxy.lan:4000/anthropic", "http://proxy.lan:4000/anthropic"),
        ];
        for (dialect, written, base) in cases {
            assert_eq!(Endpoint::parse(dialect, written).unwrap().base_url, base, "{written}");
        }
        for dialect in Dialect::ALL {
            let usual = Endpoint::default_for(dialect);
            assert_eq!(Endpoint::parse(dialect, &usual.base_url), Ok(usual));
        }
    }

    #[test]
    fn an_invalid_endpoint_is_rejected_with_its_reason() {
        let cases = [
            ("", EndpointError::InvalidUrl),
            ("http://", EndpointError::InvalidUrl),
            ("localhost:1234", EndpointError::UnsupportedScheme),
            ("ftp://x", EndpointError::UnsupportedScheme),
            ("https://me:secret@x", EndpointError::HasCredentials),
            ("https://x/?key=1", EndpointError::HasQuery),
        ];
        for (written, reason) in cases {
            assert_eq!(Endpoint::parse(Dialect::OpenAi, written), Err(reason), "{written}");
        }
    }

    #[test]
    fn vendor_and_loopback_servers_are_recognized() {
        let place = |written| Endpoint::parse(Dialect::OpenAi, written).unwrap();
        assert!(place("https://API.openai.com/v1").requires_key() && place("https://api.openai.com").is_openai());
        assert!(!place("http://localhost:1").requires_key());
        for here in ["http://localhost:1", "http://127.0.0.2:1", "http://[::1]:1"] {
            assert!(place(here).is_loopback(), "{here}");
        }
        assert!(!place("http://10.0.0.1").is_loopback());
    }
}
