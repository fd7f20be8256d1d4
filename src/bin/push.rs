//! push, the client; for now it can only be a keeper.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == pushd::sandbox::keeper::ARGUMENT) {
        return pushd::sandbox::keeper::main();
    }
    ExitCode::SUCCESS
}
