//! The command line interface: one file per verb, and one line in the list of `verbs!`.
//!
//! Standard output carries the result and nothing else. Text from the daemon is sanitized before it is printed. The
//! outcome of a run is always the one that the daemon recorded.

mod answer;
mod approvals;
mod approve;
mod atomic_file;
mod attach;
mod backup;
mod backup_file;
mod cancel;
mod chat;
mod compact;
mod completions;
mod config;
mod confirm;
mod console;
mod context;
mod daemon;
mod dashboard;
mod delete;
mod disk_usage;
mod doctor;
mod duration;
mod end;
mod exit;
mod export;
mod final_message;
mod fork;
mod forward;
mod history;
mod host;
mod ids;
mod input;
mod junit;
mod log;
mod man;
mod message;
mod models;
#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;
mod overview;
mod pi;
mod pi_files;
mod playbook;
mod purge;
mod queue;
mod rename;
mod report;
mod restore;
mod run;
mod scope;
mod search;
mod send;
mod sessions;
mod show;
mod stats;
mod stdio;
mod steer;
mod step_output;
mod table;
mod token;
mod view;
mod wait;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::console::{ColorChoice, Verbosity};
use self::context::Context;
use self::daemon::DaemonVerb;
use self::exit::{CliError, Exit};
use self::host::{HostArgs, HostSupport, Target};
use crate::client::Announcement;
use crate::config::listener::ListenRequest;
use crate::display::{approval, approval_view, format, plan, sanitize, session_words, tool_results, usage};

/// The options of `push daemon run`.
#[derive(Debug)]
pub struct ServeOptions {
    /// The start-up notification, if a client started the daemon.
    pub announcement: Option<Announcement>,
    /// Where to listen for the Pi protocol.
    pub pi: ListenRequest,
    /// Where to listen for all protocols.
    pub http: ListenRequest,
}

/// Runs coding agents and playbooks in sessions that survive disconnects and restarts.
#[derive(Debug, Parser)]
#[command(name = "push", version, max_term_width = 100, subcommand_required = false, after_help = EXAMPLES)]
struct Args {
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    style: StyleArgs,
    #[command(subcommand)]
    verb: Option<Verb>,
}

const EXAMPLES: &str = "\
Examples:
  push chat                       talk to the configured model
  push run '$ make test'          run one step and follow it
  push sessions                   list the sessions
  push attach @last               follow the latest session
  push run --headless @plan.md    for scripts: the exit code is the outcome
  push --host ssh://box sessions  list the sessions of another machine

Name a session by its name, its handle, or any unique prefix of its id; @last is the latest
session of this repository or directory, @last-any the latest of all.";

#[derive(Debug, clap::Args)]
struct StyleArgs {
    /// When to use colours
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        hide_possible_values = true,
        help = "When to use colours: auto, always or never",
        display_order = 900
    )]
    color: ColorChoice,
    /// Print only the result and errors
    #[arg(long, short, global = true, conflicts_with = "verbose", display_order = 901)]
    quiet: bool,
    /// Print more details
    #[arg(long, short, global = true, display_order = 902)]
    verbose: bool,
}

/// Declares the verbs. A line is the name and the arguments of a verb, the function that runs it, and how it works with
/// `--host`; the help lists the verbs in this order.
macro_rules! verbs {
    ($($verb:ident($args:ty) => $run:path, $support:ident;)*) => {
        #[derive(Debug, Subcommand)]
        enum Verb {
            // Boxed, because some arguments are large.
            $($verb(Box<$args>),)*
        }

        impl Verb {
            const fn host_support(&self) -> HostSupport {
                match self {
                    $(Self::$verb(_) => HostSupport::$support,)*
                }
            }
        }

        async fn run_verb(verb: Verb, context: &mut Context) -> Result<Exit, CliError> {
            match verb {
                $(Verb::$verb(args) => $run(*args, context).await,)*
            }
        }
    };
}

verbs! {
    Chat(chat::ChatArgs) => chat::run, Protocol;
    Run(run::RunArgs) => run::run, Protocol;
    Playbook(playbook::PlaybookArgs) => playbook::run, Protocol;
    Attach(attach::AttachArgs) => attach::run, Protocol;
    Sessions(sessions::SessionsArgs) => sessions::run, Protocol;
    Show(show::ShowArgs) => show::run, Protocol;
    Log(log::LogArgs) => log::run, Protocol;
    Search(search::SearchArgs) => search::run, Protocol;
    Stats(stats::StatsArgs) => stats::run, Protocol;
    Export(export::ExportArgs) => export::run, Protocol;
    Send(send::SendArgs) => send::run, Protocol;
    Steer(steer::SteerArgs) => steer::run, Protocol;
    Queue(queue::QueueArgs) => queue::run, Protocol;
    Approvals(approvals::ApprovalsArgs) => approvals::run, Protocol;
    Approve(approve::ApproveArgs) => approve::approve, Protocol;
    Deny(approve::DenyArgs) => approve::deny, Protocol;
    Cancel(cancel::CancelArgs) => cancel::run, Protocol;
    Wait(wait::WaitArgs) => wait::run, Protocol;
    Fork(fork::ForkArgs) => fork::run, Protocol;
    Rename(rename::RenameArgs) => rename::run, Protocol;
    Compact(compact::CompactArgs) => compact::run, Protocol;
    End(end::EndArgs) => end::run, Protocol;
    Delete(delete::DeleteArgs) => delete::run, Protocol;
    Purge(purge::PurgeArgs) => purge::run, Forwarded;
    Backup(backup::BackupArgs) => backup::run, Forwarded;
    Restore(restore::RestoreArgs) => restore::run, Forwarded;
    Doctor(doctor::DoctorArgs) => doctor::run, Forwarded;
    Config(config::ConfigArgs) => config::run, Forwarded;
    Token(token::TokenArgs) => token::run, Forwarded;
    Pi(pi::PiArgs) => pi::run, Protocol;
    Completions(completions::CompletionsArgs) => completions::run, Refused;
    Man(man::ManArgs) => man::run, Refused;
    Stdio(stdio::StdioArgs) => stdio::run, Refused;
    Daemon(daemon::DaemonArgs) => daemon::run, Forwarded;
}

/// Executes the command line; `serve` runs the daemon, for `push daemon run`.
pub fn main(serve: impl FnOnce(ServeOptions) -> ExitCode) -> ExitCode {
    if completions::complete() {
        return Exit::SUCCESS.into();
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return report_usage(&error),
    };
    let (color, verbosity) = (args.style.color, args.style.verbosity());
    let support = host_support(args.verb.as_ref());
    let target = match args.host.target(support, &|name| std::env::var_os(name)) {
        Ok(target) => target,
        Err(error) => return report_error(&error, &mut Context::new(color, verbosity, Target::Local)).into(),
    };
    if let Some(DaemonVerb::Run(run)) = daemon_verb(args.verb.as_ref()) {
        return serve(run.serve());
    }
    let mut context = Context::new(color, verbosity, target.clone());
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            context.console.error(&format!("cannot start the async runtime: {error}"));
            return Exit::FAILURE.into();
        }
    };
    let outcome = runtime.block_on(dispatch(args.verb, support, &target, &mut context));
    // A thread may still be blocked on reading standard input.
    runtime.shutdown_background();
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => report_error(&error, &mut context).into(),
    }
}

async fn dispatch(
    verb: Option<Verb>,
    support: HostSupport,
    target: &Target,
    context: &mut Context,
) -> Result<Exit, CliError> {
    match (verb, support, target) {
        (Some(_), HostSupport::Forwarded, Target::Ssh(ssh)) => forward::run(ssh, std::env::args_os(), context).await,
        (Some(verb), _, _) => run_verb(verb, context).await,
        (None, _, _) => dashboard::run(context).await,
    }
}

/// Returns how a verb works with `--host`.
const fn host_support(verb: Option<&Verb>) -> HostSupport {
    match (daemon_verb(verb), verb) {
        // The process itself becomes the daemon.
        (Some(DaemonVerb::Run(_)), _) => HostSupport::Refused,
        (_, Some(verb)) => verb.host_support(),
        // The list of sessions.
        (_, None) => HostSupport::Protocol,
    }
}

const fn daemon_verb(verb: Option<&Verb>) -> Option<&DaemonVerb> {
    if let Some(Verb::Daemon(daemon)) = verb { Some(&daemon.verb) } else { None }
}

/// Prints the requested help, or the usage error.
fn report_usage(error: &clap::Error) -> ExitCode {
    // A closed output stream needs no report.
    let _ = error.print();
    if error.use_stderr() { Exit::USAGE.into() } else { Exit::SUCCESS.into() }
}

/// Prints an error with its causes and its hint.
fn report_error(error: &CliError, context: &mut Context) -> Exit {
    if !error.is_broken_pipe() {
        context.console.error(&chain(error));
        if let Some(hint) = error.hint() {
            context.console.hint(hint);
        }
    }
    error.exit()
}

/// Returns an error and its causes. A cause that an error already includes in its own message is not repeated.
fn chain(error: &dyn Error) -> String {
    let mut text = sanitize::sanitize(&error.to_string());
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = sanitize::sanitize(&error.to_string());
        if !text.ends_with(&next) {
            text += &format!(": {next}");
        }
        cause = error.source();
    }
    text
}

impl StyleArgs {
    const fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, true) => Verbosity::Verbose,
            (false, false) => Verbosity::Normal,
        }
    }
}

#[cfg(test)]
mod tests;
