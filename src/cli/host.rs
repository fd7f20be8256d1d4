//! `--host`: which machine's daemon a verb works with, and how.

use std::ffi::OsString;

use super::exit::CliError;
use crate::client::{SshEndpoint, SshHost};

/// The option `--host`.
#[derive(Debug, clap::Args)]
pub(crate) struct HostArgs {
    /// Use the daemon of another machine
    #[arg(
        long,
        global = true,
        value_name = "ADDRESS",
        value_parser = parse,
        help = "The machine to work on: ssh://[USER@]HOST[:PORT], or local; default: PUSH_HOST, then local",
        display_order = 899
    )]
    host: Option<HostChoice>,
}

/// A machine, as the user named it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum HostChoice {
    /// This one.
    Local,
    /// Another one.
    Ssh(SshHost),
}

/// How a verb works with another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostSupport {
    /// It runs here and uses the daemon there.
    Protocol,
    /// It runs there, because it reads files or processes of that machine.
    Forwarded,
    /// It concerns this machine only: it refuses the option and ignores the variable.
    Refused,
}

/// The machine that a verb works with.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// This one.
    Local,
    /// Another one.
    Ssh(SshEndpoint),
}

/// The variable with the default of `--host`.
const HOST: &str = "PUSH_HOST";
/// The variable with the ssh program.
const PROGRAM: &str = "PUSH_SSH";

impl HostArgs {
    /// Returns the machine for a verb; `variable` reads the environment.
    pub(crate) fn target(
        &self,
        support: HostSupport,
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Target, CliError> {
        let chosen = match (&self.host, support) {
            (Some(HostChoice::Ssh(_)), HostSupport::Refused) => {
                let message = "this command is for this machine only; run it there with ssh";
                return Err(CliError::Usage(message.to_owned()));
            }
            (Some(choice), _) => choice.clone(),
            // Otherwise a variable in the start-up files of a machine could make it connect to itself for ever.
            (None, HostSupport::Refused) => HostChoice::Local,
            (None, HostSupport::Protocol | HostSupport::Forwarded) => match variable(HOST) {
                Some(value) if !value.is_empty() => parse(&value.to_string_lossy())
                    .map_err(|why| CliError::Usage(format!("{HOST} is not valid: {why}")))?,
                Some(_) | None => HostChoice::Local,
            },
        };
        Ok(match chosen {
            HostChoice::Local => Target::Local,
            HostChoice::Ssh(host) => {
                let program = variable(PROGRAM).filter(|program| !program.is_empty()).unwrap_or_else(|| "ssh".into());
                Target::Ssh(SshEndpoint { host, program })
            }
        })
    }
}

fn parse(text: &str) -> Result<HostChoice, String> {
    if text == "local" {
        return Ok(HostChoice::Local);
    }
    text.parse().map(HostChoice::Ssh).map_err(|error: crate::client::SshHostError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::exit::Exit;

    #[test]
    fn the_option_takes_precedence_over_the_variable() {
        let target = |host: Option<&str>, variable: &'static str, support| {
            let args = HostArgs { host: host.map(|host| parse(host).unwrap()) };
            args.target(support, &|name| (name == HOST).then(|| variable.into())).map(|target| match target {
                Target::Local => "local".to_owned(),
                Target::Ssh(ssh) => format!("{} {}", ssh.program.display(), ssh.host),
            })
        };
        let (works, refuses) = (HostSupport::Protocol, HostSupport::Refused);
        assert_eq!(target(None, "", works).unwrap(), "local");
        assert_eq!(target(None, "ssh://b", works).unwrap(), "ssh ssh://b");
        assert_eq!(target(Some("ssh://a"), "ssh://b", works).unwrap(), "ssh ssh://a");
        assert_eq!(target(Some("local"), "ssh://b", works).unwrap(), "local");
        assert_eq!(target(None, "-oX", works).unwrap_err().exit(), Exit::USAGE);
        assert_eq!(target(None, "ssh://b", refuses).unwrap(), "local");
        assert_eq!(target(Some("local"), "ssh://b", refuses).unwrap(), "local");
        assert_eq!(target(Some("ssh://a"), "", refuses).unwrap_err().exit(), Exit::USAGE);
    }
}
