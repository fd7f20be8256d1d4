//! `push` without a verb: the dashboard at a terminal, elsewhere the latest sessions.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;

use super::attach::{SessionView, show_until_left};
use super::chat::{self, ChatArgs};
use super::console::{Console, Palette};
use super::context::Context;
use super::exit::{CliError, Exit};
use super::{chain, ids, overview};
use crate::client::{Access, Client};
use crate::display::sanitize::sanitize;
use crate::tui::dashboard::{self, Connections, Dashboard, DashboardExit, DashboardSetup, ReportKind, Reports};
use crate::tui::{StartPosition, ViewExit};

/// Shows the dashboard, and the sessions that the user opens in it.
pub(crate) async fn run(context: &mut Context) -> Result<Exit, CliError> {
    if !context.uses_inline_view(false) {
        return overview::run(context).await;
    }
    let requests = context.client().await?;
    let directory = match requests.home_directory().filter(|_| context.is_remote()) {
        Some(home) => home.to_owned(),
        None => std::env::current_dir().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let mut dashboard = Dashboard::new(DashboardSetup {
        theme: context.theme(),
        handle: ids::handle,
        directory,
        is_local: !context.is_remote(),
    });
    let outcome = show_until_quit(&mut dashboard, requests, context).await;
    print_unsent(&dashboard.unsent_texts(), &mut context.console);
    outcome
}

/// Prints what was written into fields and not sent, so that it is not lost.
fn print_unsent(texts: &[String], console: &mut Console) {
    for text in texts.iter().filter(|text| !text.trim().is_empty()) {
        console.notice("not sent:");
        sanitize(text).lines().for_each(|line| console.notice(&format!("  {line}")));
    }
}

async fn show_until_quit(dashboard: &mut Dashboard, requests: Client, context: &mut Context) -> Result<Exit, CliError> {
    let reports = reports(context);
    let mut connection = Some(requests);
    loop {
        let requests = match connection.take() {
            Some(client) => client,
            None => context.client().await?,
        };
        let connections = Connections { requests, events: context.client().await? };
        let notices = context.route_notices();
        let left = dashboard::run(dashboard, connections, notices, &reports).await?;
        let shown = match left {
            DashboardExit::Quit | DashboardExit::Unwritable => return Ok(Exit::SUCCESS),
            DashboardExit::Open(session) => show(session, context).await,
            DashboardExit::Start(directory) => start(directory, context).await,
        };
        match shown {
            Ok(ViewExit::Signalled { .. } | ViewExit::Unwritable) => return Ok(Exit::SUCCESS),
            Ok(
                ViewExit::Detached { .. } | ViewExit::Interrupted { .. } | ViewExit::Finished | ViewExit::Switch { .. },
            ) => {}
            // Without a daemon there is nothing to come back to.
            Err(error) if error.exit() == Exit::UNAVAILABLE => return Err(error),
            Err(error) => dashboard.show_hint(&format!("error: {}", chain(&error))),
        }
    }
}

async fn start(directory: String, context: &mut Context) -> Result<ViewExit, CliError> {
    let mut client = context.client().await?;
    let args = ChatArgs::in_directory(PathBuf::from(directory));
    let session = chat::start(&args, &mut client, context).await?;
    drop(client);
    show(session, context).await
}

async fn show(session: String, context: &mut Context) -> Result<ViewExit, CliError> {
    let (start, access) = (StartPosition::NearEnd, Access::Full);
    let view = SessionView { session, start, access, first_message: None };
    let client = context.client().await?;
    Ok(show_until_left(client, view, context).await?.0)
}

/// Makes reports with this program, in a process of their own: what they read may take its time, and with `--host` they
/// are made on the other machine.
fn reports(context: &Context) -> Reports {
    let color = match context.console.palette {
        Palette::Plain => "never",
        Palette::Colored => "always",
    };
    let host = context.host_argument();
    Box::new(move |kind| {
        let verb: &[&str] = match kind {
            ReportKind::Settings => &["config", "show"],
            ReportKind::Doctor => &["doctor"],
        };
        let words = ["--host", &host, "--color", color].into_iter().chain(verb.iter().copied());
        let words: Vec<String> = words.map(str::to_owned).collect();
        Box::pin(async move {
            let program = std::env::current_exe().map_err(|error| error.to_string())?;
            let mut command = Command::new(program);
            command.args(words).stdin(Stdio::null()).kill_on_drop(true);
            let output = command.output().await.map_err(|error| error.to_string())?;
            // Findings are on standard output, also if the exit code says that there are some.
            let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
            Ok(String::from_utf8_lossy(&text).into_owned())
        })
    })
}
