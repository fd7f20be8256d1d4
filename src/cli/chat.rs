//! `push chat`: a new session in the inline view.

use std::path::{Path, PathBuf};

use serde_json::json;
use ulid::Ulid;

use super::attach::{self, AttachArgs, SessionView, show_session};
use super::context::Context;
use super::exit::{CliError, Exit};
use super::message;
use super::run::{read_variable, resolve_directory, resolve_remote_directory};
use super::send::new_message_id;
use crate::client::{Access, Client, Repository, Request};
use crate::tui::StartPosition;

/// Start a session and talk to it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Enter sends, Alt-Enter breaks the line; during a run messages are queued. `/` lists commands, `!` runs a command of your own, \
`@` completes file names, `?` on an empty line shows all keys. Ctrl-C cancels the run, twice within two seconds leaves; Ctrl-D on an empty \
line leaves, and the run continues: `push attach @last` comes back to it. Without a terminal that can move its cursor, and with --plain, \
lines are printed as by `push attach --plain`.

Examples:
  push chat
  push chat 'explain this repository'
  push chat --provider ollama --model qwen3:8b @plan.md")]
pub(crate) struct ChatArgs {
    /// The first message; `-` reads standard input, `@FILE` a file
    message: Option<String>,
    /// The provider; default: PUSH_PROVIDER, then the configuration
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// The model; default: PUSH_MODEL, then the configuration
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Directory in which the agent works; default: the current directory
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// A name for the session
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// Print lines instead of the inline view, for screen readers and simple terminals; also: PUSH_PLAIN=1
    #[arg(long)]
    plain: bool,
}

impl ChatArgs {
    /// Returns the arguments of a session in a directory.
    pub(super) const fn in_directory(directory: PathBuf) -> Self {
        Self { message: None, provider: None, model: None, cwd: Some(directory), name: None, plain: false }
    }
}

/// Starts a session and shows it until the user leaves.
pub(crate) async fn run(args: ChatArgs, context: &mut Context) -> Result<Exit, CliError> {
    let first_message = args.message.as_deref().map(message::read).transpose()?;
    let mut client = context.client().await?;
    let session = start(&args, &mut client, context).await?;
    if context.uses_inline_view(args.plain) {
        let (start, access) = (StartPosition::NearEnd, Access::Full);
        return show_session(client, SessionView { session, start, access, first_message }, context).await;
    }
    if let Some(text) = first_message {
        let request = Request::send_user_message(&session, &new_message_id(), &text);
        client.request(request.with_environment(client.environment())).await?;
    }
    drop(client);
    attach::run(AttachArgs::plain(session), context).await
}

/// Starts the session that the arguments describe.
pub(super) async fn start(args: &ChatArgs, client: &mut Client, context: &Context) -> Result<String, CliError> {
    // Variables and repositories of this machine say nothing about another one.
    let (directory, repository, variable): (_, _, fn(&str) -> Option<String>) = if context.is_remote() {
        (resolve_remote_directory(args.cwd.as_deref(), client.home_directory())?, None, |_| None)
    } else {
        let directory = resolve_directory(args.cwd.as_deref())?;
        let repository = Repository::find(Path::new(&directory));
        (directory, repository, read_variable)
    };
    let request = Request::start_session(&format!("key_{}", Ulid::generate()))
        .with("mode", "interactive")
        .with_some("provider", args.provider.clone().or_else(|| variable("PUSH_PROVIDER")))
        .with_some("model", args.model.clone().or_else(|| variable("PUSH_MODEL")))
        .with("cwd", directory)
        .with_some("name", args.name.clone())
        .with_some("repo", repository.map(|repository| repository.to_json()))
        .with("metadata", json!({"source": "cli"}))
        .with_environment(client.environment());
    Ok(client.request(request).await?.session_id)
}

/// Starts a session in the directory of another one, with its provider and model.
pub(super) async fn start_like(client: &mut Client, session: &str, context: &Context) -> Result<String, CliError> {
    let meta = client.request(Request::session_snapshot(session)).await?.meta;
    let repository = if context.is_remote() { None } else { Repository::find(Path::new(&meta.cwd)) };
    let request = Request::start_session(&format!("key_{}", Ulid::generate()))
        .with("mode", "interactive")
        .with("provider", meta.provider)
        .with_some("model", meta.model)
        .with("cwd", meta.cwd)
        .with_some("repo", repository.map(|repository| repository.to_json()))
        .with("metadata", json!({"source": "cli"}))
        .with_environment(client.environment());
    Ok(client.request(request).await?.session_id)
}
