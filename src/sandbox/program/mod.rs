//! The trusted search path for programs that the daemon runs itself, such as git.
//!
//! The user's `PATH` may contain directories of the workspace (`.venv/bin`, `node_modules/.bin`), where a model or a
//! repository can plant a program of any name. Hence only directories count that root and the user alone can change,
//! and that no confined command can write. Directories of root come first, so that a program that a command of another
//! session may have written is not used if the system has one of that name. Nothing is run here.

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Who can change a file or directory and its parents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// Only the system.
    System,
    /// The system and the user.
    User,
}

/// The trusted directories of programs, in search order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SearchPath {
    directories: Vec<PathBuf>,
    /// The directories that confined commands may write, without links.
    writable: Vec<PathBuf>,
}

impl SearchPath {
    /// Selects the trusted directories of a `PATH` and of the default directories. `writable` are the directories that
    /// confined commands may write. It reads the file system.
    pub(crate) fn trusted(path: Option<&OsStr>, writable: &[PathBuf]) -> Self {
        let writable: Vec<PathBuf> = writable.iter().filter_map(|directory| directory.canonicalize().ok()).collect();
        let named = path.map(|path| std::env::split_paths(path).collect::<Vec<_>>()).unwrap_or_default();
        let mut found: Vec<(Owner, PathBuf)> = Vec::new();
        for directory in named.into_iter().chain(os::DEFAULT_DIRECTORIES.iter().map(PathBuf::from)) {
            if let Some((owner, real)) = trusted(&directory, &writable)
                && real.is_dir()
                && !found.iter().any(|(_, known)| *known == real)
            {
                found.push((owner, real));
            }
        }
        // The sort is stable: directories of the same owner keep the order of PATH.
        found.sort_by_key(|(owner, _)| *owner);
        Self { directories: found.into_iter().map(|(_, directory)| directory).collect(), writable }
    }

    /// Finds a program; the target of a link must be trusted too.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        let mut candidates = self.directories.iter().map(|directory| directory.join(os::file_name(name)));
        candidates.find(|file| os::is_program(file) && trusted(file, &self.writable).is_some())
    }

    /// Returns the directories as a value of `PATH`.
    pub(crate) fn value(&self) -> OsString {
        // A directory with a separator in its name cannot be part of PATH and is skipped.
        let representable = self.directories.iter().filter(|directory| std::env::join_paths([directory]).is_ok());
        std::env::join_paths(representable).unwrap_or_default()
    }
}

/// Returns a path without links and its owner; `None` if another user or a confined command can change it.
fn trusted(path: &Path, writable: &[PathBuf]) -> Option<(Owner, PathBuf)> {
    if !path.is_absolute() {
        return None;
    }
    let real = path.canonicalize().ok()?;
    if writable.iter().any(|directory| real.starts_with(directory)) {
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
