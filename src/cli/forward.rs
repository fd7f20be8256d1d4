//! Runs a verb on another machine, with the standard streams of this process.
//!
//! For verbs that read files or processes of that machine. The command line is passed on as it was typed, but for
//! `--host`.

use std::ffi::OsString;
use std::io::IsTerminal;

use tokio::process::Command;

use super::context::Context;
use super::exit::{CliError, Exit};
use super::sanitize::sanitize_line;
use crate::client::{RemoteTerminal, RequestError, SshEndpoint, SshError, UnreachableError};

/// Runs the command line `words`, whose first word is the program, on another machine; returns its exit code.
pub(crate) async fn run(
    ssh: &SshEndpoint,
    words: impl Iterator<Item = OsString>,
    context: &mut Context,
) -> Result<Exit, CliError> {
    let words: Option<Vec<String>> = words.skip(1).map(|word| word.into_string().ok()).collect();
    let words = words.ok_or_else(|| CliError::Usage("with --host, the command line must be UTF-8".to_owned()))?;
    // Not the value of the variable there, which could name a third machine.
    let words: Vec<String> = ["--host", "local"].map(str::to_owned).into_iter().chain(without_host(words)).collect();
    let (program, arguments) = ssh.command(&words, terminal());
    let status = Command::new(&program).args(arguments).status().await.map_err(|source| {
        let program = program.to_string_lossy().into_owned();
        unreachable(ssh, SshError::Spawn { program, source })
    })?;
    match status.code() {
        // The output of ssh and of the shell has been shown.
        Some(255) => Err(unreachable(ssh, SshError::Disconnected { output: String::new() })),
        Some(127) => Err(unreachable(ssh, SshError::NoProgram { output: String::new() })),
        code => match code.and_then(|code| u8::try_from(code).ok()) {
            Some(code) => Ok(Exit::from_run(code)),
            None => {
                context.console.error(&format!("ssh ended with {}", sanitize_line(&status.to_string())));
                Ok(Exit::UNAVAILABLE)
            }
        },
    }
}

/// A command there gets a terminal if it would have one here.
fn terminal() -> RemoteTerminal {
    let has_terminal =
        std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
    if has_terminal { RemoteTerminal::Allocated } else { RemoteTerminal::None }
}

fn unreachable(ssh: &SshEndpoint, source: SshError) -> CliError {
    RequestError::from(UnreachableError::Ssh { host: ssh.host.to_string(), source }).into()
}

/// Removes the option `--host` and its value. No option of a verb that is passed on has a value that begins with `-`.
fn without_host(words: Vec<String>) -> Vec<String> {
    let mut kept = Vec::with_capacity(words.len());
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "--" {
            kept.push(word);
            kept.extend(words);
            break;
        }
        if word == "--host" {
            words.next();
        } else if !word.starts_with("--host=") {
            kept.push(word);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_removed_and_the_rest_is_kept() {
        let removed = |words: &[&str]| without_host(words.iter().map(|word| (*word).to_owned()).collect()).join(" ");
        assert_eq!(removed(&["--host", "ssh://b", "doctor", "--json"]), "doctor --json");
        assert_eq!(removed(&["doctor", "--host=ssh://b", "--json"]), "doctor --json");
        assert_eq!(removed(&["token", "new", "--", "--host", "x"]), "token new -- --host x");
        assert_eq!(removed(&["doctor", "--host"]), "doctor");
    }
}
