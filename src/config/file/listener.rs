//! The sections `[pi]` and `[http]` as written in the file.

use serde::Deserialize;
use toml::Spanned;

use super::LocatedError;
use super::raw::invalid_value;
use crate::config::listener::{ListenerSettings, parse_address};
use crate::config::settings::Switch;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawListener {
    enabled: Option<bool>,
    listen: Option<Spanned<String>>,
    #[serde(default)]
    origins: Vec<Spanned<String>>,
    #[serde(default)]
    hosts: Vec<Spanned<String>>,
    #[serde(default)]
    require_token: bool,
}

/// Whether an address alone opens the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenedBy {
    /// It does.
    Address,
    /// Only `enabled = true` does.
    Switch,
}

impl RawListener {
    pub(super) fn into_settings(
        self,
        section: &str,
        port: u16,
        opened_by: OpenedBy,
    ) -> Result<ListenerSettings, LocatedError> {
        let switch = |on: bool| if on { Switch::On } else { Switch::Off };
        let key = |name: &str| format!("{section}.{name}");
        let enabled = self.enabled.unwrap_or(opened_by == OpenedBy::Address && self.listen.is_some());
        let listen = match self.listen {
            None => ListenerSettings::closed(port).listen,
            Some(text) => parse_address(text.get_ref())
                .map_err(|error| invalid_value(&text, &key("listen"), &error.to_string()))?,
        };
        let origins = "the origin of a web page, as in https://app.example or http://localhost:8080";
        Ok(ListenerSettings {
            enabled: switch(enabled),
            listen,
            origins: check_all(&key("origins"), self.origins, is_origin, origins)?,
            hosts: check_all(&key("hosts"), self.hosts, is_host, "a name or an IP address, without a port")?,
            require_token: switch(self.require_token),
        })
    }
}

fn check_all(
    key: &str,
    written: Vec<Spanned<String>>,
    fits: fn(&str) -> bool,
    expected: &str,
) -> Result<Vec<String>, LocatedError> {
    let text = |text: Spanned<String>| {
        if fits(text.get_ref()) { Ok(text.into_inner()) } else { Err(invalid_value(&text, key, expected)) }
    };
    written.into_iter().map(text).collect()
}

/// Origins are compared byte by byte, so they must be written as browsers send them.
fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return false };
    let plain = |letter: char| letter.is_ascii_graphic() && !matches!(letter, '/' | '*' | '?' | '#' | '@' | ',');
    !scheme.is_empty() && !host.is_empty() && host.chars().all(plain) && text == text.to_ascii_lowercase()
}

fn is_host(text: &str) -> bool {
    if let Some(six) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return six.parse::<std::net::Ipv6Addr>().is_ok();
    }
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_'))
}
