//! Lexical resolution of paths: no file is read, and links are not followed.

use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};

use crate::sandbox::confine::HiddenEntries;
use crate::sandbox::shell::{GLOB, HOLE};

/// The context in which the paths of a call are resolved: the workspace and the user's homes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    workspace: String,
    /// The path by which the user names the workspace, if it differs.
    named: Option<String>,
    /// The first is the home that `~` stands for.
    homes: Vec<String>,
    /// The resolved addresses of the host of a fetch.
    addresses: Vec<IpAddr>,
    /// The entries that are hidden from commands, if the workspace is a home.
    hidden: HiddenEntries,
}

/// A path, resolved lexically.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// Inside the workspace, the relative path, empty for the workspace itself. Otherwise as absolute as is known.
    pub path: String,
    /// Whether the path lies in the workspace.
    pub zone: Zone,
}

/// Whether a path lies in the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zone {
    /// In the workspace.
    Inside,
    /// Outside the workspace.
    Outside,
    /// It is decided only when the command runs.
    Unknown,
}

/// A path relative to a home, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HomePath {
    /// The path.
    pub(super) path: String,
    /// The workspace that the path lies in, relative to the same home, if that home is above the workspace.
    pub(super) workspace: Option<String>,
}

/// A possible working directory of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Base {
    At(String),
    Unknown,
}

impl Place {
    /// Creates a context for a workspace, which is an absolute path, and for the home if it is known.
    pub fn new(workspace: &Path, home: Option<&Path>) -> Self {
        Self {
            workspace: slashed(workspace),
            named: None,
            homes: home.map(slashed).into_iter().collect(),
            addresses: Vec::new(),
            hidden: HiddenEntries::default(),
        }
    }

    /// Adds an alias of the workspace: the path by which the user names it.
    #[must_use]
    pub fn also_named(self, name: &Path) -> Self {
        let name = slashed(name);
        Self { named: (name != self.workspace).then_some(name), ..self }
    }

    /// Adds further homes of the user, and aliases of homes.
    #[must_use]
    pub fn with_homes(mut self, homes: &[PathBuf]) -> Self {
        self.homes.extend(homes.iter().map(|home| slashed(home)));
        self
    }

    /// Sets the entries that are hidden from commands, for a workspace that is a home.
    #[must_use]
    pub fn with_hidden_entries(self, hidden: HiddenEntries) -> Self {
        Self { hidden, ..self }
    }

    /// Sets the resolved addresses of the host of a fetch.
    #[must_use]
    pub fn with_addresses(self, addresses: Vec<IpAddr>) -> Self {
        Self { addresses, ..self }
    }

    /// Returns the resolved addresses of the host of a fetch, if it was resolved.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Returns whether a path is hidden from commands: it lies in a hidden entry of a home that is the workspace.
    pub fn hides(&self, spot: &Spot) -> bool {
        spot.zone == Zone::Inside && self.hidden.hides(Path::new(&self.whole(spot)))
    }

    /// Returns whether hidden entries lie below a path: it is a home that is the workspace, or lies above one.
    pub fn holds_hidden(&self, spot: &Spot) -> bool {
        spot.zone == Zone::Inside && self.hidden.lie_in(Path::new(&self.whole(spot)))
    }

    /// Returns the home, with slashes.
    pub fn home(&self) -> Option<&str> {
        self.homes.first().map(String::as_str)
    }

    /// Returns a path relative to each home that it lies below, in lower case.
    pub(super) fn relative_to_homes(&self, spot: &Spot) -> Vec<HomePath> {
        if spot.zone == Zone::Unknown {
            return Vec::new();
        }
        let (whole, workspace) = (self.whole(spot).to_lowercase(), self.workspace.to_lowercase());
        let relative = |home: &String| {
            let home = home.to_lowercase();
            let inner = |path: &str| Some(below(path, &home)?.strip_prefix('/')?.to_owned());
            let workspace = if spot.zone == Zone::Inside { inner(&workspace) } else { None };
            Some(HomePath { path: inner(&whole)?, workspace })
        };
        self.homes.iter().filter_map(relative).collect()
    }

    /// Resolves a path of a file tool.
    pub fn file(&self, path: &str) -> Spot {
        self.spot(&Base::At(self.workspace.clone()), &slashed(Path::new(path)))
    }

    /// Returns the absolute path, as far as it is known.
    pub fn whole(&self, spot: &Spot) -> String {
        match spot.zone {
            Zone::Inside => format!("{}/{}", self.workspace, spot.path),
            Zone::Outside | Zone::Unknown => spot.path.clone(),
        }
    }

    /// Returns whether a path in the workspace is the entry `name` of a home, or lies below it, if that entry is in the
    /// workspace.
    ///
    /// A workspace below that entry does not count: the user chose it as the workspace.
    pub(super) fn is_of_home(&self, spot: &Spot, name: &str) -> bool {
        let (workspace, whole) = (self.workspace.to_lowercase(), self.whole(spot).to_lowercase());
        spot.zone == Zone::Inside
            && self.homes.iter().any(|home| {
                let named = format!("{home}/{name}").to_lowercase();
                is_below(&named, &workspace) && is_below(&whole, &named)
            })
    }

    /// Returns whether a path is a home or contains one.
    pub(super) fn holds_home(&self, spot: &Spot) -> bool {
        let whole = self.whole(spot);
        self.homes.iter().any(|home| is_below(home, &whole))
    }

    pub(super) fn base(&self, cwd: Option<&str>) -> Base {
        let root = Base::At(self.workspace.clone());
        match cwd {
            None => root,
            Some(cwd) => self.step(&root, &slashed(Path::new(cwd))),
        }
    }

    /// Returns the working directory after `cd path`.
    pub(super) fn step(&self, base: &Base, path: &str) -> Base {
        match self.absolute(base, path) {
            Some(path) if !path.contains([HOLE, GLOB]) => Base::At(path),
            Some(_) | None => Base::Unknown,
        }
    }

    /// Resolves a word against a working directory.
    pub(super) fn spot(&self, base: &Base, text: &str) -> Spot {
        let Some(mut whole) = self.absolute(base, text) else {
            return Spot { path: text.to_owned(), zone: Zone::Unknown };
        };
        if let Some(inner) = self.named.as_ref().and_then(|named| below(&whole, named)) {
            whole = format!("{}{inner}", self.workspace);
        }
        let inside = if whole == self.workspace {
            Some("")
        } else {
            whole.strip_prefix(&self.workspace).and_then(|rest| rest.strip_prefix('/'))
        };
        let zone = match inside {
            _ if whole.contains(HOLE) => Zone::Unknown,
            Some(_) => Zone::Inside,
            None => Zone::Outside,
        };
        Spot { path: inside.unwrap_or(&whole).to_owned(), zone }
    }

    /// Returns the absolute path without `.` and `..`, if its start is known.
    fn absolute(&self, base: &Base, text: &str) -> Option<String> {
        let text = match text.strip_prefix('~') {
            Some(rest) => match self.homes.first() {
                Some(home) => format!("{home}{rest}"),
                None => return Some(text.to_owned()),
            },
            None => text.to_owned(),
        };
        let joined = match base {
            _ if is_absolute(&text) => text,
            _ if text.starts_with(HOLE) => return None,
            Base::At(base) => format!("{base}/{text}"),
            Base::Unknown => return None,
        };
        let mut names: Vec<&str> = Vec::new();
        for name in joined.split('/') {
            match name {
                "" | "." => {}
                ".." => {
                    if names.pop().is_some_and(|name| name.contains([HOLE, GLOB])) {
                        return None;
                    }
                }
                name => names.push(name),
            }
        }
        let root = if joined.starts_with('/') { "/" } else { "" };
        Some(format!("{root}{}", names.join("/")))
    }
}

/// Returns whether a path is `root` or lies below it.
fn is_below(path: &str, root: &str) -> bool {
    below(path, root).is_some()
}

/// Returns the rest of a path that is `root` or lies below it.
fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    path.strip_prefix(root.trim_end_matches('/')).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_absolute(text: &str) -> bool {
    let drive = || text.as_bytes().get(1) == Some(&b':') && text.as_bytes()[0].is_ascii_alphabetic();
    text.starts_with('/') || drive()
}

/// Returns a path with slashes, whatever the system's separator is.
fn slashed(path: &Path) -> String {
    let mut text = String::new();
    for part in path.components() {
        match part {
            Component::RootDir => text.push('/'),
            Component::Prefix(_) | Component::CurDir | Component::ParentDir | Component::Normal(_) => {
                if !text.is_empty() && !text.ends_with('/') {
                    text.push('/');
                }
                text.push_str(&part.as_os_str().to_string_lossy());
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_known_by_where_it_leads_and_not_by_how_it_is_spelled() {
        let place = Place::new(Path::new("/home/ann/app"), Some(Path::new("/home/ann")));
        for (text, path, zone) in [
            ("src/main.rs", "src/main.rs", Zone::Inside),
            ("./src//a/../b", "src/b", Zone::Inside),
            (".", "", Zone::Inside),
            ("/home/ann/app/.env", ".env", Zone::Inside),
            ("~/app/x", "x", Zone::Inside),
            ("../other", "/home/ann/other", Zone::Outside),
            ("../app/x", "x", Zone::Inside),
            ("../apple", "/home/ann/apple", Zone::Outside),
            ("~", "/home/ann", Zone::Outside),
            ("/../../etc", "/etc", Zone::Outside),
            ("src/\0", "src/\0", Zone::Unknown),
            ("\0/x", "\0/x", Zone::Unknown),
            ("/etc/\0", "/etc/\0", Zone::Unknown),
            ("src/\u{1}/../x", "src/\u{1}/../x", Zone::Unknown),
            ("src/\u{1}.o", "src/\u{1}.o", Zone::Inside),
        ] {
            let spot = place.spot(&place.base(None), text);
            assert_eq!((spot.path.as_str(), spot.zone), (path, zone), "{text:?}");
        }
        assert_eq!(place.spot(&Base::Unknown, "x").zone, Zone::Unknown);
        assert_eq!(place.spot(&place.base(Some("src")), "../x").path, "x");
        let linked = Place::new(Path::new("/data/app"), None).also_named(Path::new("/home/ann/app"));
        assert_eq!(linked.file("/home/ann/app/x"), Spot { path: "x".into(), zone: Zone::Inside });
        assert_eq!(linked.file("/home/ann/apple").zone, Zone::Outside);
        let nowhere = Place::new(Path::new("/w"), None);
        assert_eq!(nowhere.file("~/x"), Spot { path: "~/x".into(), zone: Zone::Outside });
    }
}
