//! The settings of the WebSocket port.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::settings::Switch;

/// The settings of the WebSocket port, which serves Pi and further protocols.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerSettings {
    /// Whether the endpoint is enabled.
    pub enabled: Switch,
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The allowed origins of web pages.
    pub origins: Vec<String>,
    /// The allowed host names, in addition to the loopback names and the listen address.
    pub hosts: Vec<String>,
    /// Whether every client needs a token.
    pub require_token: Switch,
}

/// A port for WebSockets.
#[derive(Debug, Clone)]
pub struct WebListener {
    /// What it is for.
    pub scope: WebScope,
    /// Its settings.
    pub settings: ListenerSettings,
}

/// The protocols that a port serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebScope {
    /// One protocol, at its own paths.
    One(&'static str),
    /// All protocols, each at the path of its name.
    All,
}

impl WebScope {
    /// Returns what the port is for, and how another address is set.
    pub fn purpose(self) -> String {
        match self {
            Self::One(name) => {
                let (upper, title) = (name.to_uppercase(), title_case(name));
                format!("for {title} (`[{name}] listen`, {upper}_SERVER_PORT or --{name} sets another address)")
            }
            Self::All => "for all protocols (`[http] listen` or --http sets another address)".to_owned(),
        }
    }
}

fn title_case(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The default port for Pi alone.
pub const PI_PORT: u16 = 3141;
/// The default port for all protocols.
pub const HTTP_PORT: u16 = 3140;

/// The variable that overrides the port for Pi.
pub const PORT_VARIABLE: &str = "PI_SERVER_PORT";

/// What the command line of the daemon requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListenRequest {
    /// Nothing: the configuration decides.
    #[default]
    FromConfig,
    /// The endpoint, at the configured address.
    Enabled,
    /// The endpoint, at this address.
    At(SocketAddr),
}

/// The port variable has an invalid value.
#[derive(Debug, thiserror::Error)]
#[error("{PORT_VARIABLE} must be a port, a number from 0 to 65535, but is {0:?}")]
pub struct PortError(OsString);

impl ListenerSettings {
    /// Returns the settings of a port that is not configured.
    pub const fn closed(port: u16) -> Self {
        Self {
            enabled: Switch::Off,
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
            origins: Vec::new(),
            hosts: Vec::new(),
            require_token: Switch::Off,
        }
    }

    /// Returns the effective settings, or `None` if the port stays closed. The command line overrides the variable,
    /// which `port` reads, and that overrides the file.
    pub fn resolved(
        mut self,
        request: ListenRequest,
        port: impl FnOnce() -> Result<Option<u16>, PortError>,
    ) -> Result<Option<Self>, PortError> {
        match request {
            ListenRequest::At(address) => self.listen = address,
            ListenRequest::FromConfig if self.enabled == Switch::Off => return Ok(None),
            ListenRequest::FromConfig | ListenRequest::Enabled => {
                if let Some(port) = port()? {
                    self.listen.set_port(port);
                }
            }
        }
        self.enabled = Switch::On;
        Ok(Some(self))
    }
}

/// Reads the port variable; an empty one counts as unset.
pub fn port_from_environment(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Option<u16>, PortError> {
    let Some(value) = variable(PORT_VARIABLE).filter(|value| !value.is_empty()) else { return Ok(None) };
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(port) => Ok(Some(port)),
        None => Err(PortError(value)),
    }
}

/// Parses an address: a port on the loopback interface, or an IP address with a port.
pub fn parse_address(text: &str) -> Result<SocketAddr, AddressError> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    let text = text.replacen("localhost:", "127.0.0.1:", usize::from(text.starts_with("localhost:")));
    text.parse().map_err(|_| AddressError)
}

/// A text is not an address to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an address is a port, or an IP address with a port, as in 127.0.0.1:3141 or [::1]:3141")]
pub struct AddressError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_goes_before_the_variable_and_that_before_the_file() {
        let file = ListenerSettings { listen: "127.0.0.1:7".parse().unwrap(), ..ListenerSettings::closed(PI_PORT) };
        let on = ListenerSettings { enabled: Switch::On, ..file.clone() };
        let none = |_: &str| None;
        let variable = |name: &str| (name == "PI_SERVER_PORT").then(|| "9".into());
        let at = |settings: &ListenerSettings, request, variable: &dyn Fn(&str) -> Option<OsString>| {
            settings
                .clone()
                .resolved(request, || port_from_environment(variable))
                .unwrap()
                .map(|settings| settings.listen.port())
        };
        assert_eq!(at(&file, ListenRequest::FromConfig, &none), None);
        assert_eq!(at(&file, ListenRequest::FromConfig, &variable), None, "a port alone opens nothing");
        assert_eq!(at(&on, ListenRequest::FromConfig, &none), Some(7));
        assert_eq!(at(&on, ListenRequest::FromConfig, &variable), Some(9));
        assert_eq!(at(&file, ListenRequest::Enabled, &none), Some(7));
        assert_eq!(at(&file, ListenRequest::Enabled, &variable), Some(9));
        assert_eq!(at(&file, ListenRequest::At("[::1]:5".parse().unwrap()), &variable), Some(5));
        let wrong =
            on.resolved(ListenRequest::FromConfig, || port_from_environment(&|_| Some("high".into()))).unwrap_err();
        assert!(wrong.to_string().contains("PI_SERVER_PORT") && wrong.to_string().contains("high"));
    }

    #[test]
    fn an_address_is_a_port_or_an_ip_with_one() {
        for (text, address) in [
            ("0", "127.0.0.1:0"),
            ("3141", "127.0.0.1:3141"),
            ("localhost:80", "127.0.0.1:80"),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:3141", "[::1]:3141"),
        ] {
            assert_eq!(super::parse_address(text), Ok(address.parse().unwrap()), "{text}");
        }
        for wrong in ["", "localhost", "127.0.0.1", "65536", "::1:80", "box.lan:80", "http://127.0.0.1:1"] {
            assert_eq!(parse_address(wrong), Err(AddressError), "{wrong}");
        }
    }
}
