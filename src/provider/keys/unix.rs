//! Modes of files, and the programs that speak to the keyrings of Linux and macOS.
//!
//! The secret travels over pipes alone: arguments can be read by every process of the machine.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Output, Stdio};

use nix::unistd::geteuid;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Opens a fresh file for its owner alone.
pub(super) fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Returns whether nobody but its owner can read or change a file, and we are its owner.
pub(super) fn is_private(about: &Metadata) -> bool {
    about.mode() & 0o077 == 0 && about.uid() == geteuid().as_raw()
}

/// Asks the keyring; a system without its program has no keyring.
pub(super) async fn find(program: Option<&Path>, provider: &str) -> Result<Option<String>, String> {
    let output = match run(program, &lookup(provider), "").await {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{}: {error}", name(program).display())),
    };
    if output.status.success() {
        return String::from_utf8(output.stdout).map(Some).map_err(|_| "it gave no text".to_owned());
    }
    // It says nothing when it has nothing, and macOS has a number for that; without a session there is no keyring.
    tracing::debug!(status = ?output.status.code(), "the keyring has no key");
    Ok(None)
}

/// Puts a key into the keyring.
pub(super) async fn store(program: Option<&Path>, provider: &str, key: &str) -> Result<(), String> {
    let (arguments, input) = deposit(provider, key);
    let output = run(program, &arguments, &input)
        .await
        .map_err(|error| format!("{}: {error}", name(program).display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} says: {}", name(program).display(), said.trim()))
}

async fn run(program: Option<&Path>, arguments: &[String], input: &str) -> io::Result<Output> {
    let mut child = Command::new(name(program))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        match pipe.write_all(input.as_bytes()).await {
            // A program that does not read what it needs says so by its status.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    child.wait_with_output().await
}

/// The program to run: the system's own, never one of the `PATH`, which may lead into a workspace.
fn name(program: Option<&Path>) -> &Path {
    let usual = || PROGRAMS.iter().map(Path::new).find(|file| file.is_file());
    program.or_else(usual).unwrap_or(Path::new(PROGRAMS[0]))
}

#[cfg(target_os = "macos")]
const PROGRAMS: [&str; 1] = ["/usr/bin/security"];
#[cfg(not(target_os = "macos"))]
const PROGRAMS: [&str; 4] = [
    "/usr/bin/secret-tool",
    "/usr/local/bin/secret-tool",
    "/bin/secret-tool",
    "/run/current-system/sw/bin/secret-tool",
];

#[cfg(target_os = "macos")]
fn lookup(provider: &str) -> Vec<String> {
    ["find-generic-password", "-s", "push", "-a", provider, "-w"].map(str::to_owned).into()
}

#[cfg(not(target_os = "macos"))]
fn lookup(provider: &str) -> Vec<String> {
    ["lookup", "service", "push", "provider", provider].map(str::to_owned).into()
}

#[cfg(target_os = "macos")]
fn deposit(provider: &str, key: &str) -> (Vec<String>, String) {
    let command = format!("add-generic-password -U -s push -a \"{provider}\" -w \"{key}\"\n");
    (vec!["-i".to_owned()], command)
}

#[cfg(not(target_os = "macos"))]
fn deposit(provider: &str, key: &str) -> (Vec<String>, String) {
    let label = format!("push: {provider}");
    let arguments = ["store", "--label", &label, "service", "push", "provider", provider];
    (arguments.map(str::to_owned).into(), key.to_owned())
}
