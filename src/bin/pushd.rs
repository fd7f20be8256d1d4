//! pushd: the daemon under its own name, in the foreground, as service managers start it.

use std::process::ExitCode;

use clap::Parser;
use pushd::cli::ListenArgs;
use pushd::sandbox::keeper;
use pushd::{observe, runtime};

/// The runtime daemon for coding agents, in the foreground; `push` is its client
#[derive(Debug, Parser)]
#[command(name = "pushd", version)]
struct Args {
    #[command(flatten)]
    listen: ListenArgs,
}

fn main() -> ExitCode {
    if let Some(ended) = keeper::main_if_asked() {
        return ended;
    }
    let Args { listen } = Args::parse();
    match runtime::start(listen.pi(), || {}) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            observe::report(&error);
            ExitCode::FAILURE
        }
    }
}
