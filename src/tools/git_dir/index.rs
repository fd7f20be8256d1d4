//! The index of a working tree: parses the repositories it names, and restores it.
//!
//! `git status` enters a nested repository that the index names, and trusts the configuration there, which a
//! command may have written. So a command may not add such an entry. An entry for a path without a repository is
//! harmless: commits with submodules that are not checked out have them. For the format see `gitformat-index(5)`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::sandbox::workspace::{DirHandle, FileKind, ReachPolicy, WorkspaceDir, WorkspaceError};

/// The maximum size of an index.
const INDEX_MAX: u64 = 256 * 1024 * 1024;
/// The maximum size of a configuration.
const CONFIG_MAX: u64 = 8 * 1024 * 1024;
/// How many names of a git directory are searched for parts of a split index.
const NAMES_MAX: usize = 100_000;

const INDEX_FILE: &str = "index";
/// Git writes a new index to this file, which also serves as a lock.
const LOCK_FILE: &str = "index.lock";

/// The content of an index.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct GitIndex {
    /// The file; `None` if it does not exist, as in a new repository.
    bytes: Option<Vec<u8>>,
    /// The paths of the repositories that it names.
    gitlinks: BTreeSet<Vec<u8>>,
}

impl GitIndex {
    /// Reads the index of a git directory; `shared` is the directory with the configuration. Blocks.
    pub(in super::super) fn read(git_dir: &Path, shared: &Path) -> Result<Self, WorkspaceError> {
        let unreadable = || WorkspaceError::NotAFile { path: git_dir.join(INDEX_FILE) };
        let config = WorkspaceDir::open(shared, ReachPolicy::Workspace)?.read(Path::new("config"), CONFIG_MAX)?;
        let object_name = object_id_length(&String::from_utf8_lossy(&config));
        let handle = WorkspaceDir::open(git_dir, ReachPolicy::Workspace)?.open_directory(Path::new("."))?;
        let bytes = read_optional(&handle, OsStr::new(INDEX_FILE))?;
        let mut gitlinks = BTreeSet::new();
        // A shared part of a split index may or may not be in use: all of them count.
        let (entries, _) = handle.entries(NAMES_MAX)?;
        let shared = entries.iter().filter(|entry| entry.kind == FileKind::File).map(|entry| &entry.name);
        let shared = shared.filter(|name| name.as_encoded_bytes().starts_with(b"sharedindex."));
        let shared = shared.map(|name| read_optional(&handle, name)).collect::<Result<Vec<_>, _>>()?;
        for bytes in bytes.iter().chain(shared.iter().flatten()) {
            gitlinks.extend(parse_gitlinks(bytes, object_name).ok_or_else(unreadable)?);
        }
        Ok(Self { bytes, gitlinks })
    }

    /// Returns whether it names a repository in the working tree that an earlier index does not. Blocks.
    pub(super) fn adds_repository(&self, earlier: &Self, work_tree: &Path) -> bool {
        self.gitlinks.difference(&earlier.gitlinks).any(|path| may_be_repository(work_tree, path))
    }

    /// Writes it back as the index, with git's lock; fails if another process holds the lock.
    pub(in super::super) fn restore(&self, git_dir: &Path) -> Result<(), WorkspaceError> {
        let handle = WorkspaceDir::open(git_dir, ReachPolicy::Workspace)?.open_directory(Path::new("."))?;
        match &self.bytes {
            Some(bytes) if read_optional(&handle, OsStr::new(INDEX_FILE))?.as_ref() == Some(bytes) => Ok(()),
            Some(bytes) => handle.replace_through(OsStr::new(LOCK_FILE), OsStr::new(INDEX_FILE), bytes),
            None if handle.kind(OsStr::new(INDEX_FILE))?.is_none() => Ok(()),
            None => handle.unlink(OsStr::new(INDEX_FILE)),
        }
    }
}

/// Returns whether git may find a repository at a path of the index; if the path cannot be inspected, it may.
fn may_be_repository(work_tree: &Path, path: &[u8]) -> bool {
    let Ok(path) = std::str::from_utf8(path) else { return true };
    match fs::symlink_metadata(work_tree.join(path).join(".git")) {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

/// The length of an object id in a repository with this configuration.
fn object_id_length(config: &str) -> usize {
    let line = |line: &str| {
        let line = line.trim().to_ascii_lowercase();
        line.starts_with("objectformat") && line.contains("sha256")
    };
    if config.lines().any(line) { 32 } else { 20 }
}

/// Reads a file that may not exist.
fn read_optional(handle: &DirHandle, name: &OsStr) -> Result<Option<Vec<u8>>, WorkspaceError> {
    let file = match handle.open_file(name) {
        Err(WorkspaceError::NotFound { .. }) => return Ok(None),
        opened => opened?,
    };
    let path = || Path::new(name).to_owned();
    let mut bytes = Vec::new();
    let failed = |source| WorkspaceError::Io { action: "read", path: path(), source };
    file.take(INDEX_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > INDEX_MAX {
        return Err(WorkspaceError::TooLarge { path: path(), limit: INDEX_MAX });
    }
    Ok(Some(bytes))
}

/// The paths of entries that are commits of other repositories; `None` if the bytes are not an index.
fn parse_gitlinks(bytes: &[u8], object_name: usize) -> Option<BTreeSet<Vec<u8>>> {
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let version = number(4).filter(|version| (2..=4).contains(version))?;
    let count = number(8).filter(|_| bytes.starts_with(b"DIRC"))?;
    let mut found = BTreeSet::new();
    let (mut at, mut name) = (12, Vec::new());
    for _ in 0..count {
        let mode = number(at + 24)?;
        let flags_at = at + 40 + object_name;
        let flags = u16::from_be_bytes(bytes.get(flags_at..flags_at + 2)?.try_into().ok()?);
        let mut name_at = flags_at + 2;
        if version >= 3 && flags & EXTENDED_FLAG != 0 {
            name_at += 2;
        }
        if version == 4 {
            let (dropped, after) = parse_offset(bytes, name_at)?;
            let kept = name.len().checked_sub(dropped)?;
            let length = memchr::memchr(0, bytes.get(after..)?)?;
            name.truncate(kept);
            name.extend_from_slice(&bytes[after..after + length]);
            at = after + length + 1;
        } else {
            let length = match usize::from(flags & NAME_LENGTH_MASK) {
                length if length == usize::from(NAME_LENGTH_MASK) => memchr::memchr(0, bytes.get(name_at..)?)?,
                length => length,
            };
            name = bytes.get(name_at..name_at + length)?.to_vec();
            // An entry is padded with one to eight NUL bytes to a multiple of eight.
            at += (name_at + length - at + 8) & !7;
        }
        if mode & MODE_TYPE_MASK == GITLINK {
            found.insert(name.clone());
        }
    }
    Some(found)
}

const MODE_TYPE_MASK: u32 = 0o170_000;
const GITLINK: u32 = 0o160_000;
const EXTENDED_FLAG: u16 = 0x4000;
const NAME_LENGTH_MASK: u16 = 0x0fff;

/// Parses an offset in the encoding of pack files; returns it and the position after it.
fn parse_offset(bytes: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut byte = *bytes.get(at)?;
    let mut number = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        at += 1;
        byte = *bytes.get(at)?;
        number = number.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
    }
    Some((number, at + 1))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn gitlinks_are_found_in_every_version_of_an_index() {
        let long = "d/".repeat(300) + "deep";
        for (object_format, version) in [("sha1", 2), ("sha1", 3), ("sha1", 4), ("sha256", 2), ("sha256", 4)] {
            let dir = tempfile::tempdir().unwrap();
            let git = |args: &[&str]| {
                let output = Command::new("git").args(args).current_dir(dir.path()).output().unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                String::from_utf8(output.stdout).unwrap()
            };
            git(&["init", "-q", &format!("--object-format={object_format}")]);
            let git_dir = dir.path().join(".git");
            let read = || GitIndex::read(&git_dir, &git_dir).unwrap();
            let none = read();
            assert_eq!((&none.bytes, none.gitlinks.len()), (&None, 0));
            for name in ["a", "sub/ab", "sub/abc", long.as_str(), "z"] {
                let path = dir.path().join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, name).unwrap();
            }
            git(&["update-index", "--index-version", &version.to_string()]);
            git(&["add", "."]);
            // An entry with extended flags, which version 2 does not have.
            std::fs::write(dir.path().join("later"), "").unwrap();
            if version > 2 {
                git(&["add", "--intent-to-add", "later"]);
            }
            let plain = read();
            assert_eq!(plain.gitlinks.len(), 0);
            let commit = "1".repeat(if object_format == "sha1" { 40 } else { 64 });
            for name in ["inner", &format!("{long}er")] {
                git(&["update-index", "--add", "--cacheinfo", &format!("160000,{commit},{name}")]);
            }
            let linked = read();
            let names: Vec<&[u8]> = linked.gitlinks.iter().map(Vec::as_slice).collect();
            assert_eq!(names, [format!("{long}er").as_bytes(), b"inner"], "{object_format} {version}");
            let leads = |one: &GitIndex, other: &GitIndex| one.adds_repository(other, dir.path());
            assert!(!leads(&linked, &plain), "no repository is there");
            // Git accepts a file, a link and a directory as `.git`.
            std::fs::create_dir(dir.path().join("inner")).unwrap();
            assert!(!leads(&linked, &plain));
            std::fs::write(dir.path().join("inner/.git"), "").unwrap();
            assert!(leads(&linked, &plain) && !leads(&plain, &linked) && !leads(&linked, &linked));
            plain.restore(&git_dir).unwrap();
            assert_eq!(read(), plain);
            assert!(git(&["ls-files", "--stage"]).lines().all(|line| !line.starts_with("160000")));
            std::fs::write(git_dir.join(LOCK_FILE), "").unwrap();
            assert!(linked.restore(&git_dir).is_err(), "somebody else writes");
            std::fs::remove_file(git_dir.join(LOCK_FILE)).unwrap();
            none.restore(&git_dir).unwrap();
            assert!(!git_dir.join(INDEX_FILE).exists());
        }
    }

    #[test]
    fn a_truncated_or_foreign_file_is_not_parsed_as_an_index() {
        for bytes in
            [&b""[..], b"DIRC", b"DIRC\0\0\0\x02\0\0\0\x01", b"PACK\0\0\0\x02\0\0\0\0", b"DIRC\0\0\0\x09\0\0\0\0"]
        {
            assert_eq!(parse_gitlinks(bytes, 20), None, "{bytes:?}");
        }
        assert_eq!(parse_gitlinks(b"DIRC\0\0\0\x02\0\0\0\0", 20), Some(BTreeSet::new()));
    }
}
