//! The endpoint of a provider: a base URL, normalized from user input.

use hyper::Uri;

use super::dialect::Dialect;

/// The endpoint of a server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// The base URL, without a trailing slash.
    pub base_url: String,
    host: String,
    requires_key: bool,
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
    pub fn parse(dialect: &dyn Dialect, written: &str) -> Result<Self, EndpointError> {
        let uri: Uri = dialect.complete_url(written.trim()).parse().map_err(|_| EndpointError::InvalidUrl)?;
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
        let path = dialect.normalize_path(uri.path().trim_end_matches('/'));
        let base_url = format!("{scheme}://{host}{port}{path}");
        Ok(Self::new(dialect, base_url, host.to_ascii_lowercase()))
    }

    /// Returns the default endpoint of a dialect.
    pub fn default_for(dialect: &dyn Dialect) -> Self {
        let base_url = dialect.default_base_url();
        let host = Uri::from_static(base_url).host().unwrap_or_default().to_owned();
        Self::new(dialect, base_url.to_owned(), host)
    }

    fn new(dialect: &dyn Dialect, base_url: String, host: String) -> Self {
        Self { requires_key: dialect.hosts_with_key().contains(&host.as_str()), base_url, host }
    }

    /// Returns the origin: scheme, host and port.
    pub fn origin(&self) -> String {
        let (scheme, rest) = self.base_url.split_once("://").unwrap_or(("http", &self.base_url));
        let authority = rest.split('/').next().unwrap_or(rest);
        format!("{scheme}://{}", authority.to_ascii_lowercase())
    }

    /// Returns the host, in lower case.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns whether the server is known to require a key.
    pub const fn requires_key(&self) -> bool {
        self.requires_key
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::dialect::{BUILT_IN, find};

    #[test]
    fn user_input_is_normalized_to_a_base_url() {
        let cases = [
            ("ollama", "127.0.0.1", "http://127.0.0.1:11434"),
            ("ollama", ":8080", "http://127.0.0.1:8080"),
            ("ollama", "0.0.0.0:11434", "http://127.0.0.1:11434"),
            ("ollama", "[::]:11434", "http://[::1]:11434"),
            ("ollama", "box.lan/x/", "http://box.lan:11434/x"),
            ("ollama", "https://ollama.com", "https://ollama.com"),
            ("openai", "http://localhost:1234", "http://localhost:1234/v1"),
            ("openai", " https://openrouter.ai/api/v1/ ", "https://openrouter.ai/api/v1"),
            ("anthropic", "https://api.anthropic.com/v1/", "https://api.anthropic.com"),
            ("anthropic", "http://proxy.lan:4000/anthropic", "http://proxy.lan:4000/anthropic"),
        ];
        for (dialect, written, base) in cases {
            assert_eq!(Endpoint::parse(named(dialect), written).unwrap().base_url, base, "{written}");
        }
        for dialect in BUILT_IN {
            let usual = Endpoint::default_for(*dialect);
            assert_eq!(Endpoint::parse(*dialect, &usual.base_url), Ok(usual));
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
            assert_eq!(Endpoint::parse(named("openai"), written), Err(reason), "{written}");
        }
    }

    #[test]
    fn vendor_and_loopback_servers_are_recognized() {
        let parse = |written| Endpoint::parse(named("openai"), written).unwrap();
        assert!(parse("https://API.openai.com/v1").requires_key());
        assert!(!parse("http://localhost:1").requires_key());
        for here in ["http://localhost:1", "http://127.0.0.2:1", "http://[::1]:1"] {
            assert!(parse(here).is_loopback(), "{here}");
        }
        assert!(!parse("http://10.0.0.1").is_loopback());
    }

    fn named(name: &str) -> &'static dyn Dialect {
        find(BUILT_IN, name).unwrap()
    }
}
