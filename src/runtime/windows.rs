//! Operating system functions of the daemon, on Windows.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::process::{DescriptorLimits, Signal};

/// Returns zero: the resident memory is not read on Windows.
pub(super) const fn resident_bytes() -> u64 {
    0
}

/// Returns zero: Windows has no boot id.
pub(super) const fn boot_id() -> u128 {
    0
}

/// Does nothing: Windows has no such limit.
pub(super) const fn raise_descriptor_limit() -> Option<DescriptorLimits> {
    None
}

/// Does nothing: all threads share one heap.
pub(super) const fn limit_malloc_arenas() {}

/// Returns `None`: the environment is the only source.
pub(super) const fn system_home() -> Option<PathBuf> {
    None
}

/// Creates a directory; directories of a profile belong to its owner already.
pub(super) fn create_private_dir_all(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Returns the signals that stop the daemon.
pub(super) fn stop_signals() -> io::Result<mpsc::Receiver<Signal>> {
    let (sender, receiver) = mpsc::channel(4);
    let mut pressed = tokio::signal::windows::ctrl_c()?;
    tokio::spawn(async move {
        while pressed.recv().await.is_some() {
            if sender.send(Signal::Stop).await.is_err() {
                break;
            }
        }
    });
    Ok(receiver)
}

/// Returns the command that runs a text in the command interpreter.
pub(super) fn shell_command(text: &str) -> Command {
    let mut command = Command::new("cmd");
    command.arg("/C").arg(text);
    command
}

/// Returns `None`: Windows has no program that shows a notification.
pub(super) const fn desktop_command(_title: &str, _text: &str) -> Option<Command> {
    None
}

/// Kills a process.
pub(super) async fn kill_group(child: &mut Child) {
    // It may have ended by itself.
    let _ = child.kill().await;
}
