//! The endpoint of a provider: a base URL, normalized from user input.

use hyper::Uri;

use super::dialect::Dialect;

/// The endpoint of a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The base URL, without a trailing slash.
    pub base: String,
    host: String,
}

/// Why a text is not an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAPlace {
    /// It is not a URL.
    #[error("it is not a valid URL")]
    NoUrl,
    /// Its scheme is neither `http` nor `https`.
    #[error("it must begin with http:// or https://")]
    Scheme,
    /// It contains a user name or a password, which would be displayed.
    #[error("it must not contain a user name or a password")]
    Credentials,
    /// It contains a query string.
    #[error("it must not contain a query string")]
    Query,
}

impl Place {
    /// Parses a base URL as users write it for this dialect.
    ///
    /// For Ollama it may also be a value of `OLLAMA_HOST`: a host, a port, or both. A chat completions URL without
    /// a path gets `/v1`; a messages URL loses it, because the paths of that dialect contain it.
    pub fn read(dialect: Dialect, written: &str) -> Result<Self, NotAPlace> {
        let written = written.trim();
        let whole = match dialect {
            Dialect::Ollama if !written.contains("://") => format!("http://{}", with_port(written)),
            Dialect::Ollama => written.to_owned(),
            Dialect::OpenAi => written.to_owned(),
            Dialect::Anthropic => written.to_owned(),
        };
        let uri: Uri = whole.parse().map_err(|_| NotAPlace::NoUrl)?;
        let scheme = uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"));
        let (Some(scheme), Some(authority)) = (scheme, uri.authority()) else {
            return Err(NotAPlace::Scheme);
        };
        if authority.as_str().contains('@') {
            return Err(NotAPlace::Credentials);
        }
        if uri.query().is_some() {
            return Err(NotAPlace::Query);
        }
        let port = authority.port().map(|port| format!(":{port}")).unwrap_or_default();
        let host = callable(authority.host());
        let path = path(dialect, uri.path().trim_end_matches('/'));
        Ok(Self { base: format!("{scheme}://{host}{port}{path}"), host: host.to_ascii_lowercase() })
    }

    /// Returns the default endpoint of a dialect.
    pub fn usual(dialect: Dialect) -> Self {
        let (base, host) = match dialect {
            Dialect::Ollama => ("http://127.0.0.1:11434", "127.0.0.1"),
            Dialect::OpenAi => ("https://api.openai.com/v1", OPENAI),
            Dialect::Anthropic => ("https://api.anthropic.com", ANTHROPIC),
        };
        Self { base: base.to_owned(), host: host.to_owned() }
    }

    /// Returns the origin: scheme, host and port.
    pub fn server(&self) -> String {
        let (scheme, rest) = self.base.split_once("://").unwrap_or(("http", &self.base));
        let authority = rest.split('/').next().unwrap_or(rest);
        format!("{scheme}://{}", authority.to_ascii_lowercase())
    }

    /// Returns whether it is the server of a vendor that requires a key.
    pub fn wants_key(&self) -> bool {
        matches!(self.host.as_str(), OPENAI | ANTHROPIC | "openrouter.ai")
    }

    /// Returns whether it is OpenAI's own server, which differs from compatible ones.
    pub fn is_openai(&self) -> bool {
        self.host == OPENAI
    }

    /// Returns whether the server is on this machine.
    pub fn is_here(&self) -> bool {
        self.host == "localhost" || self.host == "[::1]" || self.host.starts_with("127.")
    }
}

/// Maps an unspecified address, which is valid only for listening, to the loopback address.
fn callable(host: &str) -> &str {
    match host {
        "0.0.0.0" => "127.0.0.1",
        "[::]" => "[::1]",
        _ => host,
    }
}

fn with_port(written: &str) -> String {
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

fn path(dialect: Dialect, path: &str) -> &str {
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
    fn what_people_write_becomes_a_base_url() {
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
            assert_eq!(Place::read(dialect, written).unwrap().base, base, "{written}");
        }
        for dialect in Dialect::ALL {
            let usual = Place::usual(dialect);
            assert_eq!(Place::read(dialect, &usual.base), Ok(usual));
        }
    }

    #[test]
    fn what_is_no_place_is_refused_with_its_reason() {
        let cases = [
            ("", NotAPlace::NoUrl),
            ("http://", NotAPlace::NoUrl),
            ("localhost:1234", NotAPlace::Scheme),
            ("ftp://x", NotAPlace::Scheme),
            ("https://me:secret@x", NotAPlace::Credentials),
            ("https://x/?key=1", NotAPlace::Query),
        ];
        for (written, reason) in cases {
            assert_eq!(Place::read(Dialect::OpenAi, written), Err(reason), "{written}");
        }
    }

    #[test]
    fn servers_of_vendors_and_of_this_machine_are_known() {
        let place = |written| Place::read(Dialect::OpenAi, written).unwrap();
        assert!(
            place("https://API.openai.com/v1").wants_key() && place("https://api.openai.com").is_openai()
        );
        assert!(!place("http://localhost:1").wants_key());
        for here in ["http://localhost:1", "http://127.0.0.2:1", "http://[::1]:1"] {
            assert!(place(here).is_here(), "{here}");
        }
        assert!(!place("http://10.0.0.1").is_here());
    }
}
