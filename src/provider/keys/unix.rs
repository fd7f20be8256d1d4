//! The programs that access the keyrings of Linux and macOS.
//!
//! Secrets are passed through pipes only: every process of the machine can read arguments.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::{Output, Stdio};

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Queries the keyring; a system without the program has no keyring.
pub(super) async fn find(program: Option<&Path>, provider: &str) -> Result<Option<String>, String> {
    let output = match run(program, &lookup(provider), "").await {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{}: {error}", program_path(program).display())),
    };
    if output.status.success() {
        return String::from_utf8(output.stdout).map(Some).map_err(|_| "the key is not UTF-8".to_owned());
    }
    // A missing key is an exit status without a message, with its own number on macOS; without a session there is
    // no keyring.
    tracing::debug!(status = ?output.status.code(), "the keyring has no key");
    Ok(None)
}

/// Stores a key in the keyring.
pub(super) async fn store(program: Option<&Path>, provider: &str, key: &str) -> Result<(), String> {
    let (arguments, input) = store_arguments(provider, key);
    let output = run(program, &arguments, &input)
        .await
        .map_err(|error| format!("{}: {error}", program_path(program).display()))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} failed: {}", program_path(program).display(), stderr.trim()))
}

async fn run(program: Option<&Path>, arguments: &[String], input: &str) -> io::Result<Output> {
    let mut child = Command::new(program_path(program))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        match pipe.write_all(input.as_bytes()).await {
            // A program that closes its input early reports that with its exit status.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    child.wait_with_output().await
}

/// Returns the program to run: the system's own, never one from `PATH`, which may lead into a workspace.
fn program_path(program: Option<&Path>) -> &Path {
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
fn store_arguments(provider: &str, key: &str) -> (Vec<String>, String) {
    let command = format!("add-generic-password -U -s push -a \"{provider}\" -w \"{key}\"\n");
    (vec!["-i".to_owned()], command)
}

#[cfg(not(target_os = "macos"))]
fn store_arguments(provider: &str, key: &str) -> (Vec<String>, String) {
    let label = format!("push: {provider}");
    let arguments = ["store", "--label", &label, "service", "push", "provider", provider];
    (arguments.map(str::to_owned).into(), key.to_owned())
}
