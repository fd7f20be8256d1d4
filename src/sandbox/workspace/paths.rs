//! Lexical and link-resolving path functions of a workspace; no file is opened for use.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use super::{FileKind, LINKS_MAX, WorkspaceDir};
use crate::invisible_chars::is_invisible;
use crate::sandbox::confinement::PROTECTED;

impl WorkspaceDir {
    /// Returns the absolute path without `.` and `..`, lexically.
    pub fn normalize(&self, path: &Path) -> PathBuf {
        let mut normalized = PathBuf::new();
        for component in self.path.join(self.to_relative(path)).components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir => {
                    normalized.pop();
                }
                Component::Prefix(_) | Component::RootDir | Component::Normal(_) => normalized.push(component),
            }
        }
        normalized
    }

    /// Returns the absolute path with all links resolved. Missing components are kept as named, and a path that leads
    /// outside is only normalized.
    pub fn resolve_links(&self, path: &Path) -> PathBuf {
        let mut relative = self.to_relative(path);
        for _ in 0..LINKS_MAX {
            let parent = relative.parent().unwrap_or(Path::new("")).to_owned();
            let Some(name) = relative.file_name().map(OsStr::to_owned) else {
                let handle = self.root.folder(&relative, self.reach);
                let resolved = handle.and_then(|handle| handle.path_in(&self.root, &relative));
                return resolved.map_or_else(|_| self.normalize(path), |resolved| self.normalize(&resolved));
            };
            let Ok(handle) = self.root.folder(&parent, self.reach) else {
                return if parent.as_os_str().is_empty() {
                    self.normalize(path)
                } else {
                    self.resolve_links(&parent).join(name)
                };
            };
            match (handle.stat(&name), handle.target(&name)) {
                (Ok(Some(stat)), Ok(target)) if stat.kind() == FileKind::Link => relative = parent.join(target),
                (Ok(_) | Err(_), _) => {
                    let resolved = handle.path_in(&self.root, &parent);
                    return resolved
                        .map_or_else(|_| self.normalize(path), |resolved| self.normalize(&resolved.join(name)));
                }
            }
        }
        self.normalize(path)
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
    let normalized: String = name.chars().filter(|letter| !is_invisible(*letter)).collect();
    let normalized = normalized.trim_end_matches(['.', ' ']).split(':').next().unwrap_or_default().to_ascii_lowercase();
    PROTECTED.contains(&normalized.as_str()) || normalized == "git~1" || normalized == "push~1"
}
