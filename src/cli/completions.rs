//! `push completions`: prints a script that completes command lines in a shell.
//!
//! The script calls `push` again, so that sessions, approvals and models are those of the moment. Completion never
//! starts a daemon and prints no error: without a daemon there is nothing to offer.

use std::time::Duration;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};

use super::Args;
use super::console::{ColorChoice, Verbosity};
use super::context::Context;
use super::exit::{CliError, Exit};
use super::format::truncate;
use super::host::Target;
use super::ids;
use super::models;
use super::sanitize::sanitize_line;
use super::sessions::title;
use crate::client::{Client, Request, SessionPage};
use crate::provider::playbook;
use crate::provider::registry::ModelRegistry;

/// Print a script that completes push in a shell
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  source <(push completions bash)\n  push completions zsh > ~/.zfunc/_push\n  push completions fish > ~/.config/fish/completions/push.fish"
)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub(crate) async fn run(args: CompletionsArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let name = args.shell.to_string();
    let unknown = || CliError::Usage(format!("there is no completion for {name}"));
    let shell = shells.completer(&name).ok_or_else(unknown)?;
    shell.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    context.console.text(&String::from_utf8_lossy(&script))?;
    Ok(Exit::SUCCESS)
}

/// Answers a shell that asks for completions; returns whether it did.
pub(crate) fn complete() -> bool {
    let Ok(directory) = std::env::current_dir() else { return false };
    let arguments = std::env::args_os();
    CompleteEnv::with_factory(command).var(VARIABLE).try_complete(arguments, Some(&directory)).unwrap_or(true)
}

/// The variable with which a script asks for completions.
const VARIABLE: &str = "PUSH_COMPLETE";
const PROGRAM: &str = "push";

/// Returns the command line, with the values that are known only to the daemon.
fn command() -> clap::Command {
    add_values(Args::command())
}

fn add_values(command: clap::Command) -> clap::Command {
    let names: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    let verb = command.get_name().to_owned();
    let mut command = command.mut_args(|argument| match (verb.as_str(), argument.get_id().as_str()) {
        ("approve" | "deny", "id") => argument.add(ArgValueCandidates::new(|| ask(Question::Approvals))),
        (_, "session" | "sessions") => argument.add(ArgValueCandidates::new(|| ask(Question::Sessions))),
        (_, "provider") => argument.add(ArgValueCandidates::new(providers)),
        (_, "model") => argument.add(ArgValueCandidates::new(models_of_provider)),
        _ => argument,
    });
    for name in names {
        command = command.mut_subcommand(name, add_values);
    }
    command
}

/// What is asked of the daemon.
#[derive(Debug, Clone, Copy)]
enum Question {
    Sessions,
    Approvals,
}

/// Asks the daemon, if it is running; a shell that waits for it gets nothing instead of an error.
fn ask(question: Question) -> Vec<CompletionCandidate> {
    let context = Context::new(ColorChoice::Never, Verbosity::Quiet, Target::Local);
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    let answer = async {
        let mut client = context.client_if_running().await.ok()?;
        match question {
            Question::Sessions => sessions(&mut client).await,
            Question::Approvals => approvals(&mut client).await,
        }
    };
    let answer = runtime.block_on(async { tokio::time::timeout(PATIENCE, answer).await });
    answer.ok().flatten().unwrap_or_default()
}

/// Returns the names of the providers.
fn providers() -> Vec<CompletionCandidate> {
    let Some((registry, _)) = registry() else { return Vec::new() };
    registry.names().chain([playbook::NAME]).map(|name| CompletionCandidate::new(sanitize_line(name))).collect()
}

/// Asks the server of the provider that the command line names, or else of the default one, for its models.
fn models_of_provider() -> Vec<CompletionCandidate> {
    let named = provider_of(std::env::args()).or_else(|| std::env::var("PUSH_PROVIDER").ok());
    let Some((registry, default)) = registry() else { return Vec::new() };
    let Some(provider) = named.or(default) else { return Vec::new() };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    let environment = models::environment();
    let listed = registry.list_models(&provider, None, None, &environment);
    let listed = runtime.block_on(async { tokio::time::timeout(PATIENCE, listed).await });
    let names = listed.ok().and_then(Result::ok).unwrap_or_default();
    names.into_iter().map(|name| CompletionCandidate::new(sanitize_line(&name))).collect()
}

/// Returns the configured providers, and the default one.
fn registry() -> Option<(ModelRegistry, Option<String>)> {
    let context = Context::new(ColorChoice::Never, Verbosity::Quiet, Target::Local);
    let paths = context.paths().ok()?;
    let file = models::read_config(&paths.config).ok()?;
    Some((models::models(&paths, &file), file.settings.provider))
}

/// Returns the value of `--provider` in a command line.
fn provider_of(words: impl Iterator<Item = String>) -> Option<String> {
    let mut words = words.skip_while(|word| word != "--provider" && !word.starts_with("--provider="));
    let word = words.next()?;
    word.strip_prefix("--provider=").map(str::to_owned).or_else(|| words.next())
}

/// How long a shell waits for the daemon, or for the server of a provider.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many sessions are offered, the newest first.
const OFFERED: u64 = 100;

async fn sessions(client: &mut Client) -> Option<Vec<CompletionCandidate>> {
    let SessionPage { sessions, .. } = client.request(Request::list_sessions(OFFERED)).await.ok()?;
    let known: Vec<String> = sessions.iter().map(|item| item.session_id.clone()).collect();
    let offered = sessions.iter().zip(ids::handles(&known)).map(|(item, handle)| {
        let about = truncate(&sanitize_line(title(item)), 60);
        CompletionCandidate::new(sanitize_line(&handle)).help(Some(about.into()))
    });
    let last = CompletionCandidate::new("@last").help(Some("the latest session here".into()));
    Some(std::iter::once(last).chain(offered).collect())
}

async fn approvals(client: &mut Client) -> Option<Vec<CompletionCandidate>> {
    let reply = client.request(Request::list_approvals(None)).await.ok()?;
    let offered = reply.approvals.iter().map(|pending| {
        let about = truncate(&sanitize_line(&pending.question.summary), 60);
        CompletionCandidate::new(sanitize_line(pending.question.gate.as_str())).help(Some(about.into()))
    });
    Some(offered.collect())
}

#[cfg(test)]
mod tests {
    use super::provider_of;

    #[test]
    fn the_provider_of_a_command_line_is_found_in_both_forms() {
        let of = |line: &str| provider_of(line.split(' ').map(str::to_owned));
        assert_eq!(of("push run --provider ollama --model x").as_deref(), Some("ollama"));
        assert_eq!(of("push run --provider=ollama --model x").as_deref(), Some("ollama"));
        assert_eq!((of("push run --model x"), of("push run --provider")), (None, None));
    }
}
