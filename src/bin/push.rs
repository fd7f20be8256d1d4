//! The client, with the daemon inside it.

use std::process::ExitCode;

use pushd::cli::{self, Serve};

fn main() -> ExitCode {
    // Call site of the keeper: a step's parent is this program under another task, so it comes before everything else.
    // if std::env::args_os().nth(1).is_some_and(|word| word == "__keep") {
    //     return pushd::sandbox::keeper::main();
    // }
    cli::main(serve)
}

/// Becomes the daemon.
fn serve(_serve: Serve) -> ExitCode {
    // Call site of the daemon: `pushd::daemon::main(serve.announcement)`. It calls `Announcement::ready` when it
    // listens, `Announcement::in_use` when another one holds the lock.
    eprintln!("this build has no daemon in it");
    ExitCode::from(69)
}
