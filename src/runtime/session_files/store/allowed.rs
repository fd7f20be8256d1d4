//! The lexical check of session file paths.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use super::OWN;

/// The maximum length of a path in bytes.
const PATH_MAX: usize = 4096;

/// A checked path: a trusted root directory, and components that are opened one by one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The trusted directory: the home, or the root of the file system.
    pub(super) root: PathBuf,
    /// The components below the root.
    pub(super) names: Vec<OsString>,
    /// The number of components before `.pi`, which other users may own.
    pub(super) shared: usize,
    /// Whether it is in the daemon's own directory.
    pub(super) ours: bool,
}

impl Way {
    pub(super) fn new(root: &Path, names: Vec<OsString>, shared: usize) -> Self {
        let ours = shared == 0 && names.len() >= OWN.len() && begins(&names, &OWN);
        Self { root: root.to_owned(), names, shared, ours }
    }

    /// Checks a path: it must be absolute, without `.` and `..`, and inside a session directory.
    pub(super) fn to<'h>(path: &Path, homes: impl Iterator<Item = &'h PathBuf>) -> Option<Self> {
        if !is_plain(path) {
            return None;
        }
        for home in homes {
            // An empty home would match every path.
            if let Ok(rest) = path.strip_prefix(home)
                && home.is_absolute()
                && let Some(way) = Self::below(home, rest)
            {
                return Some(way);
            }
        }
        let root: PathBuf =
            path.components().take_while(|part| !matches!(part, Component::Normal(_))).collect();
        let rest = path.strip_prefix(&root).ok()?;
        Self::below(&root, rest).filter(|way| !way.ours)
    }

    fn below(root: &Path, rest: &Path) -> Option<Self> {
        let names: Vec<OsString> = rest.iter().map(OsStr::to_owned).collect();
        if begins(&names, &OWN) && names.len() > OWN.len() {
            return Some(Self::new(root, names, 0));
        }
        let at = names.windows(PROJECT.len()).position(|pair| begins(pair, &PROJECT))?;
        if names.len() <= at + PROJECT.len() {
            return None;
        }
        Some(Self { root: root.to_owned(), names, shared: at, ours: false })
    }

    /// Removes and returns the last component.
    pub(super) fn last(&mut self) -> Option<OsString> {
        self.names.pop()
    }
}

/// The session directory of a project.
pub(super) const PROJECT: [&str; 2] = [".pi", "sessions"];

fn begins(names: &[OsString], with: &[&str]) -> bool {
    names.len() >= with.len() && names.iter().zip(with).all(|(name, with)| name == with)
}

/// Returns whether a path is absolute and has no ambiguous components.
fn is_plain(path: &Path) -> bool {
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

    fn way(path: &str) -> Option<(String, usize, bool)> {
        let homes = [PathBuf::from("/home/ann"), PathBuf::from("/real/ann")];
        Way::to(Path::new(path), homes.iter())
            .map(|way| (way.root.display().to_string(), way.shared, way.ours))
    }

    #[test]
    fn the_words_of_a_path_say_whether_it_may_be_a_session_file() {
        for (path, root, shared, ours) in [
            ("/home/ann/.pi/agent/sessions/a.jsonl", "/home/ann", 0, true),
            ("/home/ann/.pi/agent/sessions/--x--/a.jsonl", "/home/ann", 0, true),
            ("/real/ann/.pi/agent/sessions/a.jsonl", "/real/ann", 0, true),
            ("/home/ann//.pi/agent/sessions/a", "/home/ann", 0, true),
            ("/home/ann/p/.pi/sessions/a.json", "/home/ann", 1, false),
            ("/srv/p/.pi/sessions/deep/a.json", "/", 2, false),
            ("/.pi/sessions/a", "/", 0, false),
        ] {
            assert_eq!(way(path), Some((root.to_owned(), shared, ours)), "{path}");
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
            assert_eq!(way(path), None, "{path}");
        }
        let long = format!("/srv/.pi/sessions/{}", "a/".repeat(2048));
        assert_eq!(way(&format!("{long}x")), None);
    }

    #[test]
    fn a_home_that_is_none_opens_nothing() {
        let path = Path::new("/etc/.pi/agent/sessions/a");
        for home in ["", ".", "etc"] {
            assert_eq!(Way::to(path, [PathBuf::from(home)].iter()), None, "{home:?}");
        }
    }
}
