//! The address of a machine that is reached with ssh.
//!
//! An address becomes arguments of a program, so everything that ssh or a shell could take for something else is
//! refused when it is parsed.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

/// The address of a machine: `ssh://[USER@]HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshHost {
    user: Option<String>,
    /// A name, an alias of the configuration of ssh, or an IP address.
    host: String,
    port: Option<NonZeroU16>,
}

/// Why an address is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SshHostError {
    /// It does not have the form of an address.
    #[error("the address of a machine is ssh://[USER@]HOST[:PORT]")]
    Form,
    /// A part is empty.
    #[error("the {0} is empty; the address of a machine is ssh://[USER@]HOST[:PORT]")]
    Empty(AddressPart),
    /// A part could be taken for an option of ssh.
    #[error("the {0} begins with `-`")]
    LeadingHyphen(AddressPart),
    /// A part contains a character that is not allowed there.
    #[error("the {0} contains {1:?}")]
    Character(AddressPart, char),
    /// The address contains a password.
    #[error("an address cannot contain a password; use a key, or let ssh ask")]
    Password,
    /// The port is not one.
    #[error("the port is not a number from 1 to 65535")]
    Port,
}

/// A part of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressPart {
    /// The user.
    User,
    /// The host.
    Host,
}

impl fmt::Display for AddressPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Host => "host",
        })
    }
}

impl SshHost {
    /// Returns the arguments of ssh that name the machine. They end with the host; only a command can follow.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(port) = self.port {
            words.extend(["-p".to_owned(), port.to_string()]);
        }
        if let Some(user) = &self.user {
            words.extend(["-l".to_owned(), user.clone()]);
        }
        words.extend(["--".to_owned(), self.host.clone()]);
        words
    }
}

impl FromStr for SshHost {
    type Err = SshHostError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text.strip_prefix("ssh://").ok_or(SshHostError::Form)?;
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        let user = user.map(checked_user).transpose()?;
        let (host, port) = split_port(place)?;
        let port = port.map(|port| parse_port(port).ok_or(SshHostError::Port)).transpose()?;
        Ok(Self { user, host, port })
    }
}

impl fmt::Display for SshHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ssh://")?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?
        } else {
            f.write_str(&self.host)?
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

/// Splits a host and its port. An IPv6 address is in brackets.
fn split_port(place: &str) -> Result<(String, Option<&str>), SshHostError> {
    if let Some(rest) = place.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or(SshHostError::Form)?;
        let host = checked(AddressPart::Host, address, |char| char.is_ascii_alphanumeric() || ":.%_-".contains(char))?;
        return match rest.strip_prefix(':') {
            None if rest.is_empty() => Ok((host, None)),
            None => Err(SshHostError::Form),
            Some(port) => Ok((host, Some(port))),
        };
    }
    let (host, port) = match place.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (place, None),
    };
    let host = checked(AddressPart::Host, host, |char| char.is_ascii_alphanumeric() || "._-+".contains(char))?;
    Ok((host, port))
}

fn checked_user(user: &str) -> Result<String, SshHostError> {
    if user.contains(':') {
        return Err(SshHostError::Password);
    }
    // A domain is written before or after the name of its user.
    checked(AddressPart::User, user, |char| char.is_alphanumeric() || "._-+@\\".contains(char))
}

fn checked(part: AddressPart, text: &str, allowed: impl Fn(char) -> bool) -> Result<String, SshHostError> {
    if text.is_empty() {
        return Err(SshHostError::Empty(part));
    }
    if text.starts_with('-') {
        return Err(SshHostError::LeadingHyphen(part));
    }
    match text.chars().find(|char| !allowed(*char)) {
        Some(char) => Err(SshHostError::Character(part, char)),
        None => Ok(text.to_owned()),
    }
}

/// Parses a port; a sign is not part of one.
fn parse_port(text: &str) -> Option<NonZeroU16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_becomes_arguments_that_end_with_the_host() {
        for (text, arguments) in [
            ("ssh://box", &["--", "box"][..]),
            ("ssh://ann@box", &["-l", "ann", "--", "box"]),
            ("ssh://ann@box.example:2222", &["-p", "2222", "-l", "ann", "--", "box.example"]),
            ("ssh://[::1]", &["--", "::1"]),
            ("ssh://ann@[fe80::1%eth0]:22", &["-p", "22", "-l", "ann", "--", "fe80::1%eth0"]),
            ("ssh://ann@example.org@box", &["-l", "ann@example.org", "--", "box"]),
            ("ssh://DOMAIN\\ann@127.0.0.1", &["-l", "DOMAIN\\ann", "--", "127.0.0.1"]),
        ] {
            let host: SshHost = text.parse().unwrap();
            assert_eq!(host.arguments(), arguments, "{text}");
            assert_eq!(host.to_string(), text);
        }
    }

    #[test]
    fn what_ssh_or_a_shell_could_take_for_something_else_is_refused() {
        use AddressPart::{Host, User};
        for (text, error) in [
            ("box", SshHostError::Form),
            ("", SshHostError::Form),
            ("http://box", SshHostError::Form),
            ("SSH://box", SshHostError::Form),
            ("ssh://", SshHostError::Empty(Host)),
            ("ssh://ann@", SshHostError::Empty(Host)),
            ("ssh://@box", SshHostError::Empty(User)),
            ("ssh://:22", SshHostError::Empty(Host)),
            ("ssh://[]", SshHostError::Empty(Host)),
            ("ssh://-oProxyCommand=touch", SshHostError::LeadingHyphen(Host)),
            ("ssh://[-oProxyCommand]", SshHostError::LeadingHyphen(Host)),
            ("ssh://-l@box", SshHostError::LeadingHyphen(User)),
            ("ssh://ann@-box", SshHostError::LeadingHyphen(Host)),
            ("ssh://bo x", SshHostError::Character(Host, ' ')),
            ("ssh://box\n", SshHostError::Character(Host, '\n')),
            ("ssh://b\u{1b}x", SshHostError::Character(Host, '\u{1b}')),
            ("ssh://box/path", SshHostError::Character(Host, '/')),
            ("ssh://$(id)", SshHostError::Character(Host, '$')),
            ("ssh://an n@box", SshHostError::Character(User, ' ')),
            ("ssh://a;b@box", SshHostError::Character(User, ';')),
            ("ssh://a\u{0}b@box", SshHostError::Character(User, '\u{0}')),
            ("ssh://ann:secret@box", SshHostError::Password),
            ("ssh://box:", SshHostError::Port),
            ("ssh://box:0", SshHostError::Port),
            ("ssh://box:+22", SshHostError::Port),
            ("ssh://box:65536", SshHostError::Port),
            ("ssh://::1", SshHostError::Empty(Host)),
            ("ssh://[::1", SshHostError::Form),
            ("ssh://[::1]22", SshHostError::Form),
        ] {
            assert_eq!(text.parse::<SshHost>(), Err(error), "{text:?}");
        }
    }
}
