//! pushd: the daemon in the foreground, under the name that service managers use.
//!
//! It executes `push daemon run` from its own directory. It does not link the library, so a build links the daemon
//! once.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::{env, io};

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--version" || argument == "-V") {
        println!("pushd {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    let push = match push() {
        Ok(push) => push,
        Err(error) => {
            eprintln!("pushd: cannot determine the path of this executable: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut command = Command::new(&push);
    command.args(["daemon", "run"]).args(arguments);
    match os::execute(&mut command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!(
                "pushd: cannot execute {}: {error}; install push and pushd in the same directory",
                push.display()
            );
            ExitCode::FAILURE
        }
    }
}

/// Returns the path of `push`, which is installed in the directory of this executable.
fn push() -> io::Result<PathBuf> {
    Ok(env::current_exe()?.with_file_name(format!("push{}", env::consts::EXE_SUFFIX)))
}
