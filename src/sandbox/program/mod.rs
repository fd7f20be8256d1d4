//! Where the daemon finds the programs that it runs itself, such as git.
//!
//! The user's `PATH` may lead into the workspace (`.venv/bin`, `node_modules/.bin`), where a model or a repository can plant
//! a program of any name. Hence only directories count which nobody but root and the owner can change, and in which no
//! confined command can write. Those that belong to root come first: what a command of another session may have written
//! is then not even looked at where the system has the program. Nothing is run here.

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Whom a file or directory, and everything above it, belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// The system alone can change it.
    System,
    /// The system and the user can change it.
    User,
}

/// Directories in which programs are looked for, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SearchPath {
    directories: Vec<PathBuf>,
    /// What confined commands may change, without links.
    writable: Vec<PathBuf>,
}

impl SearchPath {
    /// Takes from a `PATH`, and from the usual directories, what can be trusted; `writable` is what confined commands may
    /// change. It looks at the file system.
    pub(crate) fn trusted(path: Option<&OsStr>, writable: &[PathBuf]) -> Self {
        let writable: Vec<PathBuf> = writable.iter().filter_map(|place| place.canonicalize().ok()).collect();
        let named = path.map(|path| std::env::split_paths(path).collect::<Vec<_>>()).unwrap_or_default();
        let mut found: Vec<(Owner, PathBuf)> = Vec::new();
        for directory in named.into_iter().chain(os::USUAL.iter().map(PathBuf::from)) {
            if let Some((owner, real)) = trusted(&directory, &writable)
                && real.is_dir()
                && !found.iter().any(|(_, known)| *known == real)
            {
                found.push((owner, real));
            }
        }
        // The order of the user's PATH is kept among those of the same owner.
        found.sort_by_key(|(owner, _)| *owner);
        Self { directories: found.into_iter().map(|(_, directory)| directory).collect(), writable }
    }

    /// Finds a program; what a link leads to must be as good as the link.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        let mut candidates = self.directories.iter().map(|directory| directory.join(os::file_name(name)));
        candidates.find(|file| os::is_program(file) && trusted(file, &self.writable).is_some())
    }

    /// Returns it as the value of `PATH`.
    pub(crate) fn value(&self) -> OsString {
        // A directory with a separator in its name cannot be said, and is missed by nobody.
        let said = self.directories.iter().filter(|directory| std::env::join_paths([directory]).is_ok());
        std::env::join_paths(said).unwrap_or_default()
    }
}

/// Returns a path without links, and whom it belongs to; nothing for one that somebody else, or a confined command, can
/// change.
fn trusted(path: &Path, writable: &[PathBuf]) -> Option<(Owner, PathBuf)> {
    if !path.is_absolute() {
        return None;
    }
    let real = path.canonicalize().ok()?;
    if writable.iter().any(|place| real.starts_with(place)) {
        return None;
    }
    let mut owner = Owner::System;
    for (depth, part) in real.ancestors().enumerate() {
        owner = owner.max(os::owner(part, depth == 0)?);
    }
    Some((owner, real))
}

#[cfg(test)]
#[cfg(unix)]
#[path = "unix_tests.rs"]
mod tests;
