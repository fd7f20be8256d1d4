//! Lists the files in the directories for state, logs and private caches, and tells pushd's files from others by
//! name.

use std::fs;
use std::path::{Path, PathBuf};

use crate::config::paths::Paths;
use crate::sandbox::caches;

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// The journal and its auxiliary files.
    Journal,
    /// A damaged journal that was set aside.
    SetAside,
    /// Tokens of `push token`.
    Token,
    /// Remembered approvals.
    Grant,
    /// A log file.
    Log,
    /// The private caches of a workspace, which are a directory.
    Cache,
    /// A lock file. It is never removed: if a held lock file is removed, a second process can lock its successor.
    Lock,
    /// Not a file of pushd.
    Foreign,
}

/// A file in one of the directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredFile {
    /// Its path.
    pub(crate) path: PathBuf,
    /// Its kind.
    pub(crate) kind: FileKind,
    /// Its size.
    pub(crate) bytes: u64,
}

/// Lists the files of state and logs; a directory that cannot be read counts as empty.
pub(crate) fn list(paths: &Paths) -> Vec<StoredFile> {
    let mut found = scan(&paths.state, classify_state_file);
    found.extend(scan(&paths.logs, classify_log_file));
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

/// Returns the number of files of a kind and their total size.
pub(crate) fn total(holdings: &[StoredFile], kind: FileKind) -> (usize, u64) {
    let of_kind = holdings.iter().filter(|holding| holding.kind == kind);
    of_kind.fold((0, 0), |(files, bytes), holding| (files + 1, bytes.saturating_add(holding.bytes)))
}

fn scan(directory: &Path, kind: fn(&str) -> FileKind) -> Vec<StoredFile> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let holding = |entry: fs::DirEntry| {
        let there = entry.metadata().ok();
        let is_file = there.as_ref().is_some_and(fs::Metadata::is_file);
        let name = entry.file_name();
        StoredFile {
            path: entry.path(),
            kind: name.to_str().filter(|_| is_file).map_or(FileKind::Foreign, kind),
            bytes: there.map_or(0, |there| there.len()),
        }
    };
    entries.map(holding).collect()
}

/// Lists the private caches of workspaces with their total size. It walks all directories, which takes a while.
pub(crate) fn private_caches(paths: &Paths) -> Vec<StoredFile> {
    let entries = fs::read_dir(paths.caches_dir()).into_iter().flatten().flatten();
    let holding = |entry: fs::DirEntry| {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let is_ours = is_directory && entry.file_name().to_str().is_some_and(caches::is_store);
        let path = entry.path();
        StoredFile {
            kind: if is_ours { FileKind::Cache } else { FileKind::Foreign },
            bytes: if is_ours { caches::size(&path) } else { entry.metadata().map_or(0, |there| there.len()) },
            path,
        }
    };
    entries.map(holding).collect()
}

fn classify_state_file(name: &str) -> FileKind {
    match name {
        "pushd.db" | "pushd.db-wal" | "pushd.db-shm" | "pushd.marks" | "pushd.spare" | "pushd.ahead"
        | "pushd.index" | "pushd.index-wal" | "pushd.index-shm" | "session-files.json" => FileKind::Journal,
        "pushd.lock" => FileKind::Lock,
        "tokens.json" | "tokens.lock" => FileKind::Token,
        "approvals.json" => FileKind::Grant,
        _ if name.starts_with("pushd.db.damaged-") => FileKind::SetAside,
        // Left by an interrupted salvage.
        _ if name.starts_with("pushd.db.salvage-") => FileKind::SetAside,
        _ => FileKind::Foreign,
    }
}

fn classify_log_file(name: &str) -> FileKind {
    let number = name.strip_prefix("pushd.").and_then(|rest| rest.strip_suffix(".log"));
    let is_full = number.is_some_and(|number| number.parse::<u32>().is_ok());
    if name == "pushd.log" || is_full { FileKind::Log } else { FileKind::Foreign }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_pushd_are_recognised_by_name() {
        for (name, kind) in [
            ("pushd.db", FileKind::Journal),
            ("pushd.db-wal", FileKind::Journal),
            ("pushd.marks", FileKind::Journal),
            ("pushd.ahead", FileKind::Journal),
            ("pushd.index", FileKind::Journal),
            ("pushd.index-wal", FileKind::Journal),
            ("session-files.json", FileKind::Journal),
            ("pushd.db.damaged-12-wal", FileKind::SetAside),
            ("pushd.lock", FileKind::Lock),
            ("tokens.json", FileKind::Token),
            ("tokens.lock", FileKind::Token),
            ("approvals.json", FileKind::Grant),
            ("pushd.db.backup", FileKind::Foreign),
            ("notes", FileKind::Foreign),
        ] {
            assert_eq!(classify_state_file(name), kind, "{name}");
        }
        assert_eq!(["pushd.log", "pushd.3.log", "pushd.x.log", "my.log"].map(classify_log_file), {
            [FileKind::Log, FileKind::Log, FileKind::Foreign, FileKind::Foreign]
        });
    }
}
