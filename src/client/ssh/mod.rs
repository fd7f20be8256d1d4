//! The daemon of another machine, through the standard streams of `ssh HOST push stdio`.
//!
//! ssh authenticates both sides and encrypts; nothing here handles keys or passwords. Nothing of this machine's
//! environment is sent.

mod error;
mod host;
mod process;
mod quote;

use std::ffi::OsString;
use std::time::Duration;

use tokio::time::timeout;

pub use self::error::{STOPPED_EXIT, SshError};
pub use self::host::{SshHost, SshHostError};
pub(super) use self::process::SshProcess;
use super::endpoint::StoppedDaemon;
use super::link::{Link, LinkError};
use super::subscriptions::Subscriptions;
use crate::protocol::push::client::{HelloReply, Request, ResponseError};

/// The daemon of another machine.
#[derive(Debug, Clone)]
pub struct SshEndpoint {
    /// The machine.
    pub host: SshHost,
    /// The ssh program.
    pub program: OsString,
}

/// Whether a connection is the first one of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// ssh may ask for a password, and the daemon is started if it is not running.
    First,
    /// ssh must not ask, since the terminal is in use.
    Reconnect(StoppedDaemon),
}

/// A terminal for a command there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoteTerminal {
    /// The command gets a terminal.
    Allocated,
    /// The standard streams are pipes.
    None,
}

/// How long the first connection may take: a user may have to type a password.
const FIRST_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a further connection may take.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Options for all connections. Forwarded ports would already be in use by another connection, and a command from the
/// configuration of ssh would replace that of the client. A connection that is dead is noticed within a minute.
const OPTIONS: [&str; 6] =
    ["-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none", "-o", "ServerAliveInterval=15"];

impl SshEndpoint {
    /// Returns the ssh program and its arguments that run `push` there with these arguments.
    pub fn command(&self, words: &[String], terminal: RemoteTerminal) -> (OsString, Vec<String>) {
        let mode = match terminal {
            RemoteTerminal::Allocated => "-t",
            RemoteTerminal::None => "-T",
        };
        let options = std::iter::once(mode).chain(OPTIONS).map(str::to_owned);
        let line = quote::command_line(std::iter::once("push").chain(words.iter().map(String::as_str)));
        (self.program.clone(), options.chain(self.host.arguments()).chain([line]).collect())
    }

    /// Connects and sends `hello`.
    pub(super) async fn connect(
        self,
        attempt: Attempt,
        greeting: Request<HelloReply>,
    ) -> Result<EstablishedLink, SshError> {
        let (words, limit): (&[&str], _) = match attempt {
            Attempt::First => (&["stdio"], FIRST_TIMEOUT),
            Attempt::Reconnect(StoppedDaemon::Start) => (&["stdio"], RECONNECT_TIMEOUT),
            Attempt::Reconnect(StoppedDaemon::Leave) => (&["stdio", "--resume"], RECONNECT_TIMEOUT),
        };
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let (program, mut arguments) = self.command(&words, RemoteTerminal::None);
        if attempt != Attempt::First {
            arguments.splice(0..0, ["-o".to_owned(), "BatchMode=yes".to_owned()]);
        }
        let (process, stdout, stdin) = SshProcess::start(&program, &arguments)?;
        let mut link = Link::new(Box::new(stdout), Box::new(stdin));
        // A new connection has no events.
        let mut events = Subscriptions::default();
        match timeout(limit, link.exchange(greeting.body(), &mut events)).await {
            Ok(Ok(hello)) => Ok(EstablishedLink { link: link.with_process(process), hello }),
            Ok(Err(LinkError::Unreadable(_) | LinkError::LineTooLong | LinkError::NotText(_))) => {
                Err(SshError::NotTheProtocol { output: process.output() })
            }
            Ok(Err(LinkError::Closed | LinkError::Io(_))) => {
                let (exit, output) = process.end().await;
                Err(SshError::from_exit(exit, output))
            }
            Err(_) => Err(SshError::NoAnswer { seconds: limit.as_secs(), output: process.output() }),
        }
    }
}

/// A connection whose handshake is done.
#[derive(Debug)]
pub(super) struct EstablishedLink {
    /// The connection.
    pub(super) link: Link,
    /// The payload of the reply to `hello`, or its refusal.
    pub(super) hello: Result<String, ResponseError>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_the_last_argument_before_the_quoted_command() {
        let endpoint = SshEndpoint { host: "ssh://ann@box:2222".parse().unwrap(), program: "ssh".into() };
        let (program, words) = endpoint.command(&["token".to_owned(), "it's".to_owned()], RemoteTerminal::None);
        assert_eq!(program, "ssh");
        assert_eq!(words.first().map(String::as_str), Some("-T"));
        let end: Vec<_> = words.iter().rev().take(7).rev().map(String::as_str).collect();
        assert_eq!(end, ["-p", "2222", "-l", "ann", "--", "box", r"push token 'it'\''s'"]);
        assert_eq!(endpoint.command(&[], RemoteTerminal::Allocated).1.first().map(String::as_str), Some("-t"));
    }
}
