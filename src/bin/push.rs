//! push: the client, with the daemon and the keeper of its steps inside it.

use std::process::ExitCode;

use pushd::cli::{self, Serve};
use pushd::sandbox::keeper;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == keeper::ARGUMENT) {
        return keeper::main();
    }
    cli::main(serve)
}

/// Becomes the daemon.
fn serve(_serve: Serve) -> ExitCode {
    // Call site of the daemon, which calls `Announcement::ready` when it listens and `Announcement::in_use` when
    // another one holds the lock.
    eprintln!("this build has no daemon in it");
    ExitCode::from(69)
}
