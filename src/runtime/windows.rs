//! What the daemon asks of the operating system, on Windows.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use super::life::{Descriptors, Signal};

/// Returns how much memory the daemon holds; zero, as it is not looked up here.
pub(super) const fn resident_bytes() -> u64 {
    0
}

/// Names the time since the machine was started; zero, as the system does not say.
pub(super) const fn boot() -> u128 {
    0
}

/// Raises nothing: there is no such limit.
pub(super) const fn raise_descriptors() -> Option<Descriptors> {
    None
}

/// Changes nothing: there is one heap for all threads.
pub(super) const fn share_memory() {}

/// Returns nothing: the environment is all there is to ask.
pub(super) const fn home_of_user() -> Option<PathBuf> {
    None
}

/// Makes a directory; a profile's directories belong to its owner already.
pub(super) fn private_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Opens a file, and makes it when it is not there.
pub(super) fn private_file(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)
}

/// Tells whether a file is its owner's alone; what lies in a profile is.
pub(super) const fn is_private(_about: &fs::Metadata) -> bool {
    true
}

/// Does nothing: names are durable with their files.
#[expect(clippy::unnecessary_wraps, reason = "it can fail elsewhere")]
pub(super) const fn sync_directory(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Passes the signals that end a daemon on.
pub(super) fn signals() -> io::Result<mpsc::Receiver<Signal>> {
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
