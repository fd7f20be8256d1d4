//! The lexical check of session file paths.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use super::OWN_DIRECTORY;

/// The maximum length of a path in bytes.
const PATH_MAX: usize = 4096;

/// A checked path: a trusted root directory, and components that are opened one by one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SessionPath {
    /// The trusted directory: the home, or the root of the file system.
    pub(super) root: PathBuf,
    /// The components below the root.
    pub(super) components: Vec<OsString>,
    /// The number of components before `.pi`, which other users may own.
    pub(super) shared_components: usize,
    /// Whether it is in the daemon's own directory.
    pub(super) is_own: bool,
}

impl SessionPath {
    pub(super) fn new(root: &Path, components: Vec<OsString>, shared_components: usize) -> Self {
        let is_own = shared_components == 0
            && components.len() >= OWN_DIRECTORY.len()
            && starts_with(&components, &OWN_DIRECTORY);
        Self { root: root.to_owned(), components, shared_components, is_own }
    }

    /// Checks a path: it must be absolute, without `.` and `..`, and inside a session directory.
    pub(super) fn resolve<'h>(path: &Path, homes: impl Iterator<Item = &'h PathBuf>) -> Option<Self> {
        if !is_canonical(path) {
            return None;
        }
        for home in homes {
            // An empty home would match every path.
            if let Ok(rest) = path.strip_prefix(home)
                && home.is_absolute()
                && let Some(session_path) = Self::below_root(home, rest)
            {
                return Some(session_path);
            }
        }
        let root: PathBuf = path.components().take_while(|part| !matches!(part, Component::Normal(_))).collect();
        let rest = path.strip_prefix(&root).ok()?;
        Self::below_root(&root, rest).filter(|session_path| !session_path.is_own)
    }

    fn below_root(root: &Path, rest: &Path) -> Option<Self> {
        let names: Vec<OsString> = rest.iter().map(OsStr::to_owned).collect();
        if starts_with(&names, &OWN_DIRECTORY) && names.len() > OWN_DIRECTORY.len() {
            return Some(Self::new(root, names, 0));
        }
        let at = names.windows(PROJECT_DIRECTORY.len()).position(|pair| starts_with(pair, &PROJECT_DIRECTORY))?;
        if names.len() <= at + PROJECT_DIRECTORY.len() {
            return None;
        }
        Some(Self { root: root.to_owned(), components: names, shared_components: at, is_own: false })
    }

    /// Removes and returns the last component.
    pub(super) fn pop(&mut self) -> Option<OsString> {
        self.components.pop()
    }
}

/// The session directory of a project.
pub(super) const PROJECT_DIRECTORY: [&str; 2] = [".pi", "sessions"];

fn starts_with(names: &[OsString], with: &[&str]) -> bool {
    names.len() >= with.len() && names.iter().zip(with).all(|(name, with)| name == with)
}

/// Returns whether a path is absolute and has no ambiguous components.
fn is_canonical(path: &Path) -> bool {
    let bytes = path.as_os_str().as_encoded_bytes();
    let spelled = path.to_string_lossy();
    path.is_absolute()
        && bytes.len() <= PATH_MAX
        && !bytes.contains(&0)
        // `Path::components` drops `.` and keeps `..`. A trailing separator denotes a directory.
        && !spelled.split(std::path::is_separator).any(|name| name == "." || name == "..")
        && !spelled.ends_with(std::path::is_separator)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn resolved(path: &str) -> Option<(String, usize, bool)> {
        let homes = [PathBuf::from("/home/ann"), PathBuf::from("/real/ann")];
        SessionPath::resolve(Path::new(path), homes.iter()).map(|session_path| {
            (session_path.root.display().to_string(), session_path.shared_components, session_path.is_own)
        })
    }

    #[test]
    fn a_path_is_allowed_by_its_components() {
        for (path, root, shared, ours) in [
            ("/home/ann/.pi/agent/sessions/a.jsonl", "/home/ann", 0, true),
            ("/home/ann/.pi/agent/sessions/--x--/a.jsonl", "/home/ann", 0, true),
            ("/real/ann/.pi/agent/sessions/a.jsonl", "/real/ann", 0, true),
            ("/home/ann//.pi/agent/sessions/a", "/home/ann", 0, true),
            ("/home/ann/p/.pi/sessions/a.json", "/home/ann", 1, false),
            ("/srv/p/.pi/sessions/deep/a.json", "/", 2, false),
            ("/.pi/sessions/a", "/", 0, false),
        ] {
            assert_eq!(resolved(path), Some((root.to_owned(), shared, ours)), "{path}");
        }
        for path in [
            "",
            "a.jsonl",
            ".pi/sessions/a.jsonl",
            "~/.pi/agent/sessions/a.jsonl",
            "/home/ann/.pi/agent/sessions",
            "/home/ann/.pi/agent/sessions/",
            "/home/ann/.pi/agent/sessions/x/",
            "/home/ann/.pi/agent/sessions/../../../.ssh/id",
            "/home/ann/.pi/agent/sessions/x/../a.jsonl",
            "/home/ann/.pi/agent/sessions/./a.jsonl",
            "/home/ann/.pi/agent/sessions/a/..",
            "/home/ann/.pi/agent/sessionsx/a.jsonl",
            "/home/bob/.pi/agent/sessions/a.jsonl",
            "/home/ann/.pi/agent/auth.json",
            "/home/ann/.pi/agent/x/sessions/a.jsonl",
            "/srv/p/.pi/sessions",
            "/srv/p/pi/sessions/a",
            "/srv/p/.pi/x/sessions/a",
            "/etc/passwd",
            "/srv/.pi/sessions/a\0b",
        ] {
            assert_eq!(resolved(path), None, "{path}");
        }
        let long = format!("/srv/.pi/sessions/{}", "a/".repeat(2048));
        assert_eq!(resolved(&format!("{long}x")), None);
    }

    #[test]
    fn an_invalid_home_allows_no_path() {
        let path = Path::new("/etc/.pi/agent/sessions/a");
        for home in ["", ".", "etc"] {
            assert_eq!(SessionPath::resolve(path, [PathBuf::from(home)].iter()), None, "{home:?}");
        }
    }
}
