//! Lexical and link-resolving path functions of a workspace; no file is opened for use.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use super::{Ground, Kind, LINKS_MAX};
use crate::invisible_chars::is_unseen;
use crate::sandbox::confine::PROTECTED;

impl Ground {
    /// Returns the absolute path without `.` and `..`, lexically.
    pub fn plain(&self, path: &Path) -> PathBuf {
        let mut plain = PathBuf::new();
        for component in self.path.join(self.seen(path)).components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir => {
                    plain.pop();
                }
                Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(component),
            }
        }
        plain
    }

    /// Returns the absolute path with all links resolved. Missing components are kept as named, and a path that leads
    /// outside is only normalized.
    pub fn real(&self, path: &Path) -> PathBuf {
        let mut seen = self.seen(path);
        for _ in 0..LINKS_MAX {
            let parent = seen.parent().unwrap_or(Path::new("")).to_owned();
            let Some(name) = seen.file_name().map(OsStr::to_owned) else {
                let folder = self.root.folder(&seen, self.reach);
                let place = folder.and_then(|folder| folder.place_in(&self.root, &seen));
                return place.map_or_else(|_| self.plain(path), |place| self.plain(&place));
            };
            let Ok(folder) = self.root.folder(&parent, self.reach) else {
                return if parent.as_os_str().is_empty() {
                    self.plain(path)
                } else {
                    self.real(&parent).join(name)
                };
            };
            match (folder.look(&name), folder.target(&name)) {
                (Ok(Some(looked)), Ok(target)) if looked.kind() == Kind::Link => seen = parent.join(target),
                (Ok(_) | Err(_), _) => {
                    let place = folder.place_in(&self.root, &parent);
                    return place.map_or_else(|_| self.plain(path), |place| self.plain(&place.join(name)));
                }
            }
        }
        self.plain(path)
    }
}

/// Returns whether a relative path stays beneath its start, lexically; links are ignored.
pub fn stays_beneath(path: &Path) -> bool {
    let mut depth = 0_usize;
    for component in path.components() {
        match component {
            Component::Prefix(_) | Component::RootDir => return false,
            Component::CurDir => {}
            Component::ParentDir if depth == 0 => return false,
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => depth += 1,
        }
    }
    true
}

/// Returns whether a path names a protected directory, also in a spelling that some file systems treat as the same
/// name.
pub(super) fn names_protected(path: &Path) -> bool {
    path.components().any(|component| match component {
        Component::Normal(name) => is_protected(&name.to_string_lossy()),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => false,
    })
}

fn is_protected(name: &str) -> bool {
    // Some file systems ignore invisible characters, and trailing dots and spaces.
    let plain: String = name.chars().filter(|letter| !is_unseen(*letter)).collect();
    let plain = plain.trim_end_matches(['.', ' ']).split(':').next().unwrap_or_default().to_ascii_lowercase();
    PROTECTED.contains(&plain.as_str()) || plain == "git~1" || plain == "push~1"
}
