//! Operating system functions of the daemon, on Windows.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use super::life::{Descriptors, Signal};

/// Returns zero: the resident memory is not read on Windows.
pub(super) const fn resident_bytes() -> u64 {
    0
}

/// Returns zero: Windows has no boot id.
pub(super) const fn boot() -> u128 {
    0
}

/// Does nothing: Windows has no such limit.
pub(super) const fn raise_descriptors() -> Option<Descriptors> {
    None
}

/// Does nothing: all threads share one heap.
pub(super) const fn share_memory() {}

/// Returns `None`: the environment is the only source.
pub(super) const fn home_of_user() -> Option<PathBuf> {
    None
}

/// Creates a directory; directories of a profile belong to its owner already.
pub(super) fn private_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Opens a file, and creates it if it does not exist.
pub(super) fn private_file(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)
}

/// Returns true: files in a profile are private to its owner.
pub(super) const fn is_private(_about: &fs::Metadata) -> bool {
    true
}

/// Does nothing: names are durable with their files.
#[expect(clippy::unnecessary_wraps, reason = "it can fail elsewhere")]
pub(super) const fn sync_directory(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Returns the signals that stop the daemon.
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
