//! Lists the files in the directories for state, logs and private caches, and tells pushd's files from others by
//! name.

use std::fs;
use std::path::{Path, PathBuf};

use crate::config::paths::Paths;
use crate::sandbox::caches;

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
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
pub(crate) struct Holding {
    /// Its path.
    pub(crate) path: PathBuf,
    /// Its kind.
    pub(crate) kind: Kind,
    /// Its size.
    pub(crate) bytes: u64,
}

/// Lists the files of state and logs; a directory that cannot be read counts as empty.
pub(crate) fn all(paths: &Paths) -> Vec<Holding> {
    let mut found = within(&paths.state, in_state);
    found.extend(within(&paths.logs, in_logs));
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

/// Returns the number of files of a kind and their total size.
pub(crate) fn sum(holdings: &[Holding], kind: Kind) -> (usize, u64) {
    let of_kind = holdings.iter().filter(|holding| holding.kind == kind);
    of_kind.fold((0, 0), |(files, bytes), holding| (files + 1, bytes.saturating_add(holding.bytes)))
}

fn within(directory: &Path, kind: fn(&str) -> Kind) -> Vec<Holding> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let holding = |entry: fs::DirEntry| {
        let there = entry.metadata().ok();
        let is_file = there.as_ref().is_some_and(fs::Metadata::is_file);
        let name = entry.file_name();
        Holding {
            path: entry.path(),
            kind: name.to_str().filter(|_| is_file).map_or(Kind::Foreign, kind),
            bytes: there.map_or(0, |there| there.len()),
        }
    };
    entries.map(holding).collect()
}

/// Lists the private caches of workspaces with their total size. It walks all directories, which takes a while.
pub(crate) fn private_caches(paths: &Paths) -> Vec<Holding> {
    let entries = fs::read_dir(paths.caches()).into_iter().flatten().flatten();
    let holding = |entry: fs::DirEntry| {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let is_ours = is_directory && entry.file_name().to_str().is_some_and(caches::is_store);
        let path = entry.path();
        Holding {
            kind: if is_ours { Kind::Cache } else { Kind::Foreign },
            bytes: if is_ours {
                caches::size(&path)
            } else {
                entry.metadata().map_or(0, |there| there.len())
            },
            path,
        }
    };
    entries.map(holding).collect()
}

fn in_state(name: &str) -> Kind {
    match name {
        "pushd.db" | "pushd.db-wal" | "pushd.db-shm" | "pushd.marks" | "pushd.spare" | "pushd.ahead"
        | "session-files.json" => Kind::Journal,
        "pushd.lock" => Kind::Lock,
        "tokens.json" | "tokens.lock" => Kind::Token,
        "approvals.json" => Kind::Grant,
        _ if name.starts_with("pushd.db.damaged-") => Kind::SetAside,
        // Left by an interrupted salvage.
        _ if name.starts_with("pushd.db.salvage-") => Kind::SetAside,
        _ => Kind::Foreign,
    }
}

fn in_logs(name: &str) -> Kind {
    let number = name.strip_prefix("pushd.").and_then(|rest| rest.strip_suffix(".log"));
    let is_full = number.is_some_and(|number| number.parse::<u32>().is_ok());
    if name == "pushd.log" || is_full { Kind::Log } else { Kind::Foreign }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ours_is_known_by_its_name() {
        for (name, kind) in [
            ("pushd.db", Kind::Journal),
            ("pushd.db-wal", Kind::Journal),
            ("pushd.marks", Kind::Journal),
            ("pushd.ahead", Kind::Journal),
            ("session-files.json", Kind::Journal),
            ("pushd.db.damaged-12-wal", Kind::SetAside),
            ("pushd.lock", Kind::Lock),
            ("tokens.json", Kind::Token),
            ("tokens.lock", Kind::Token),
            ("approvals.json", Kind::Grant),
            ("pushd.db.backup", Kind::Foreign),
            ("notes", Kind::Foreign),
        ] {
            assert_eq!(in_state(name), kind, "{name}");
        }
        assert_eq!(["pushd.log", "pushd.3.log", "pushd.x.log", "my.log"].map(in_logs), {
            [Kind::Log, Kind::Log, Kind::Foreign, Kind::Foreign]
        });
    }
}
