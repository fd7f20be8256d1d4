//! The command line interface: one file per verb, and one line in the list of `verbs!`.
//!
//! Standard output carries the result and nothing else. Text from the daemon is sanitized before it is printed. The
//! outcome of a run is always the one that the daemon recorded.

mod answer;
mod approval;
mod approval_view;
mod approvals;
mod approve;
mod atomic_file;
mod attach;
mod cancel;
mod compact;
mod config;
mod confirm;
mod console;
mod context;
mod daemon;
mod delete;
mod disk_usage;
mod doctor;
mod duration;
mod end;
mod exit;
mod final_message;
mod form;
mod format;
mod ids;
mod input;
mod junit;
mod log;
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
mod run;
mod sanitize;
mod send;
mod sessions;
mod show;
mod steer;
mod step_output;
mod token;
mod tool_results;
mod view;
mod wait;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::console::{ColorChoice, Verbosity};
use self::context::Context;
use self::daemon::DaemonVerb;
use self::exit::{CliError, Exit};
use crate::client::Announcement;
use crate::config::pi::ListenRequest;

/// The options of `push daemon run`.
#[derive(Debug)]
pub struct ServeOptions {
    /// The start-up notification, if a client started the daemon.
    pub announcement: Option<Announcement>,
    /// Where to listen for the Pi protocol.
    pub pi: ListenRequest,
}

/// Runs coding agents and playbooks in sessions that survive disconnects and restarts.
#[derive(Debug, Parser)]
#[command(name = "push", version, max_term_width = 100, subcommand_required = false, after_help = EXAMPLES)]
struct Args {
    #[command(flatten)]
    style: StyleArgs,
    #[command(subcommand)]
    verb: Option<Verb>,
}

const EXAMPLES: &str = "\
Examples:
  push run '$ make test'          run one step and follow it
  push sessions                   list the sessions
  push attach @last               follow the latest session
  push run --headless @plan.md    for scripts: the exit code is the outcome

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

/// Declares the verbs. A line is the name and the arguments of a verb, and the function that runs it; the help lists
/// the verbs in this order.
macro_rules! verbs {
    ($($verb:ident($args:ty) => $run:path,)*) => {
        #[derive(Debug, Subcommand)]
        enum Verb {
            // Boxed, because some arguments are large.
            $($verb(Box<$args>),)*
        }

        async fn run_verb(verb: Verb, context: &mut Context) -> Result<Exit, CliError> {
            match verb {
                $(Verb::$verb(args) => $run(*args, context).await,)*
            }
        }
    };
}

verbs! {
    Run(run::RunArgs) => run::run,
    Playbook(playbook::PlaybookArgs) => playbook::run,
    Attach(attach::AttachArgs) => attach::run,
    Sessions(sessions::SessionsArgs) => sessions::run,
    Show(show::ShowArgs) => show::run,
    Log(log::LogArgs) => log::run,
    Send(send::SendArgs) => send::run,
    Steer(steer::SteerArgs) => steer::run,
    Queue(queue::QueueArgs) => queue::run,
    Approvals(approvals::ApprovalsArgs) => approvals::run,
    Approve(approve::ApproveArgs) => approve::approve,
    Deny(approve::DenyArgs) => approve::deny,
    Cancel(cancel::CancelArgs) => cancel::run,
    Wait(wait::WaitArgs) => wait::run,
    Rename(rename::RenameArgs) => rename::run,
    Compact(compact::CompactArgs) => compact::run,
    End(end::EndArgs) => end::run,
    Delete(delete::DeleteArgs) => delete::run,
    Purge(purge::PurgeArgs) => purge::run,
    Doctor(doctor::DoctorArgs) => doctor::run,
    Config(config::ConfigArgs) => config::run,
    Token(token::TokenArgs) => token::run,
    Pi(pi::PiArgs) => pi::run,
    Daemon(daemon::DaemonArgs) => daemon::run,
}

/// Executes the command line; `serve` runs the daemon, for `push daemon run`.
pub fn main(serve: impl FnOnce(ServeOptions) -> ExitCode) -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return report_usage(&error),
    };
    if let Some(Verb::Daemon(daemon)) = &args.verb
        && let DaemonVerb::Run(run) = &daemon.verb
    {
        return serve(run.serve());
    }
    let mut context = Context::new(args.style.color, args.style.verbosity());
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            context.console.error(&format!("cannot start the async runtime: {error}"));
            return Exit::FAILURE.into();
        }
    };
    let outcome = runtime.block_on(dispatch(args.verb, &mut context));
    // A thread may still be blocked on reading standard input.
    runtime.shutdown_background();
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => report_error(&error, &mut context).into(),
    }
}

async fn dispatch(verb: Option<Verb>, context: &mut Context) -> Result<Exit, CliError> {
    match verb {
        None => overview::run(context).await,
        Some(verb) => run_verb(verb, context).await,
    }
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
    let mut words = sanitize::sanitize(&error.to_string());
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = sanitize::sanitize(&error.to_string());
        if !words.ends_with(&next) {
            words += &format!(": {next}");
        }
        cause = error.source();
    }
    words
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
