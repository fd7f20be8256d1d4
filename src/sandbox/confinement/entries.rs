//! Which entries of a home are hidden if the home itself is the workspace, and which file names are those of
//! credentials.
//!
//! Pure and lexical. Names are compared in lower case, because some file systems ignore case. A confined command sees
//! an empty home with the paths that toolchains need. If a home is the workspace, its ordinary files are visible and
//! its entries that begin with a dot are hidden.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// The opened paths of homes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenedPaths {
    toolchains: Vec<PathBuf>,
    readable: Vec<PathBuf>,
}

impl OpenedPaths {
    /// Opens the paths of toolchains and the paths that the configuration names; all paths are absolute.
    pub fn new(toolchains: &[PathBuf], readable: &[PathBuf]) -> Self {
        let folded = |paths: &[PathBuf]| paths.iter().map(|path| normalize_lowercase(path)).collect();
        Self { toolchains: folded(toolchains), readable: folded(readable) }
    }

    /// Returns whether a path is opened. Credential files directly in a toolchain directory, and copies of them, are
    /// not.
    pub fn contains(&self, path: &Path) -> bool {
        let path = normalize_lowercase(path);
        let is_of_toolchain = |directory: &PathBuf| match path.strip_prefix(directory) {
            Ok(inner) => !inner.components().next().is_some_and(|name| is_credential_name(name.as_os_str())),
            Err(_) => false,
        };
        self.toolchains.iter().any(is_of_toolchain) || self.readable.iter().any(|directory| path.starts_with(directory))
    }
}

/// The hidden entries of a home that is the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HiddenEntries {
    homes: Vec<PathBuf>,
    opened: OpenedPaths,
}

impl HiddenEntries {
    /// Hides the dot entries of these homes, except for opened paths; all paths are absolute.
    pub fn new<'a>(homes: impl IntoIterator<Item = &'a PathBuf>, opened: OpenedPaths) -> Self {
        Self { homes: homes.into_iter().map(|home| normalize_lowercase(home)).collect(), opened }
    }

    /// Returns whether no entries are hidden.
    pub fn is_empty(&self) -> bool {
        self.homes.is_empty()
    }

    /// Returns whether an absolute path is a hidden entry or lies in one.
    pub fn hides(&self, path: &Path) -> bool {
        if self.is_empty() {
            return false;
        }
        let path = normalize_lowercase(path);
        let is_entry = |home: &PathBuf| {
            let first = path.strip_prefix(home).ok().and_then(|inner| inner.components().next());
            first.is_some_and(|first| {
                let name = first.as_os_str().to_string_lossy();
                name.starts_with('.') && !REPOSITORY_ENTRIES.contains(&&*name)
            })
        };
        self.homes.iter().any(is_entry) && !self.opened.contains(&path)
    }

    /// Returns whether a directory contains hidden entries: it is such a home, or lies above one.
    pub fn has_entries_below(&self, path: &Path) -> bool {
        let path = normalize_lowercase(path);
        self.homes.iter().any(|home| home.starts_with(&path))
    }
}

/// Dot entries that belong to a repository and stay visible.
const REPOSITORY_ENTRIES: [&str; 5] = [".git", ".gitattributes", ".gitignore", ".gitmodules", ".ignore"];

/// Returns whether a file name is that of credentials or a copy of them: `credentials.toml.bak`, `.credentials.swp`,
/// `token~`.
pub(crate) fn is_credential_name(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_lowercase();
    let name = name.trim_start_matches(['.', '#', '_', '~']);
    let stem = name.split(['.', '~', '#', ' ']).next().unwrap_or_default();
    let stem = stem.trim_end_matches(|letter: char| letter.is_ascii_digit() || "-_()".contains(letter));
    name.starts_with("credentials") || CREDENTIAL_STEMS.contains(&stem)
}

/// Names up to the first dot.
const CREDENTIAL_STEMS: [&str; 19] = [
    "access-token",
    "access_token",
    "accesstoken",
    "api-key",
    "api_key",
    "apikey",
    "auth",
    "auth-token",
    "auth_token",
    "credential",
    "git-credentials",
    "netrc",
    "npmrc",
    "oauth",
    "pypirc",
    "secret",
    "secrets",
    "token",
    "tokens",
];

/// Returns a path in lower case and without `.` and `..`.
pub(crate) fn normalize_lowercase(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normalized.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                normalized.push(component.as_os_str().to_string_lossy().to_lowercase());
            }
        }
    }
    normalized
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_entries_of_a_home_are_hidden_except_for_what_is_opened() {
        let opened = [".cargo", ".config/git", ".gitconfig"].map(|name| Path::new("/home/Ann").join(name));
        let readable = [PathBuf::from("/home/ann/.tool")];
        let entries = HiddenEntries::new(&[PathBuf::from("/home/Ann")], OpenedPaths::new(&opened, &readable));
        for path in [
            ".gemini/oauth",
            ".GEMINI",
            "x/../.gemini",
            ".config",
            ".config/tool",
            ".config/gitk",
            ".cargo/credentials.toml.bak",
            ".cargo/credentials/x",
        ] {
            assert!(entries.hides(&Path::new("/home/ann").join(path)), "{path}");
        }
        for path in [
            "",
            "notes",
            "work/.env",
            ".cargo",
            ".cargo/config.toml",
            ".config/git/ignore",
            ".gitconfig",
            ".git",
            ".tool/token",
        ] {
            assert!(!entries.hides(&Path::new("/home/ann").join(path)), "{path}");
        }
        assert!(!entries.hides(Path::new("/home/bob/.gemini")) && !entries.hides(Path::new("/home")));
        assert!(entries.has_entries_below(Path::new("/home/ann")) && entries.has_entries_below(Path::new("/home")));
        assert!(!entries.has_entries_below(Path::new("/home/ann/work")));
        assert!(!HiddenEntries::default().hides(Path::new("/home/ann/.gemini")));
    }

    #[test]
    fn credentials_and_copies_of_them_are_known_by_their_names() {
        for name in [
            "credentials",
            "credentials.toml.bak",
            ".credentials.toml.swp",
            "#credentials#",
            "credentials~",
            "credentials-old",
            "Credentials (1).toml",
            ".netrc.orig",
            "token",
            "tokens.json",
            "token2",
            "auth.json",
            ".git-credentials.save",
            "secrets.toml",
        ] {
            assert!(is_credential_name(OsStr::new(name)), "{name}");
        }
        for name in ["config.toml", "tokenizers", "env", "authors", "git-credential-store", "bin", "credit", ""] {
            assert!(!is_credential_name(OsStr::new(name)), "{name}");
        }
    }
}
