//! Where paths lead, told by their spelling alone: nothing is looked up, and links are not followed.

use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};

use crate::sandbox::confine::HiddenEntries;
use crate::sandbox::shell::{GLOB, HOLE};

/// Where a call is made: the workspace and the user's homes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    workspace: String,
    /// How its user calls the workspace, where that is another path.
    named: Option<String>,
    /// The first is the one that `~` stands for.
    homes: Vec<String>,
    /// What the host of a fetch led to when it was looked up.
    addresses: Vec<IpAddr>,
    /// What is hidden from commands of a workspace that is a home.
    hidden: HiddenEntries,
}

/// A path as far as its spelling tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// Inside, it is relative to the workspace, and empty for the workspace itself; elsewhere it is as whole as can be.
    pub path: String,
    /// Where it leads.
    pub zone: Zone,
}

/// Where a path leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zone {
    /// Into the workspace.
    Inside,
    /// Elsewhere.
    Outside,
    /// That is decided only when the command runs.
    Unknown,
}

/// A directory that commands may be in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Base {
    At(String),
    Unknown,
}

impl Place {
    /// Names the workspace, an absolute path, and the home where it is known.
    pub fn new(workspace: &Path, home: Option<&Path>) -> Self {
        Self {
            workspace: slashed(workspace),
            named: None,
            homes: home.map(slashed).into_iter().collect(),
            addresses: Vec::new(),
            hidden: HiddenEntries::default(),
        }
    }

    /// Takes another path for the workspace too: the one by which its user calls it.
    #[must_use]
    pub fn also_named(self, name: &Path) -> Self {
        let name = slashed(name);
        Self { named: (name != self.workspace).then_some(name), ..self }
    }

    /// Adds further homes of the user, and other paths of the same ones.
    #[must_use]
    pub fn with_homes(mut self, homes: &[PathBuf]) -> Self {
        self.homes.extend(homes.iter().map(|home| slashed(home)));
        self
    }

    /// Says which entries of the workspace are hidden from commands, as it is a home.
    #[must_use]
    pub fn with_hidden_entries(self, hidden: HiddenEntries) -> Self {
        Self { hidden, ..self }
    }

    /// Adds what the host of a fetch led to when it was looked up.
    #[must_use]
    pub fn with_addresses(self, addresses: Vec<IpAddr>) -> Self {
        Self { addresses, ..self }
    }

    /// Returns what the host of a fetch led to, as far as it was looked up.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Tells whether a spot is hidden from commands, as it is such an entry of a home that is the workspace.
    pub fn hides(&self, spot: &Spot) -> bool {
        spot.zone == Zone::Inside && self.hidden.hides(Path::new(&self.whole(spot)))
    }

    /// Tells whether something that is hidden from commands lies below a spot: it is a home that is the workspace.
    pub fn holds_hidden(&self, spot: &Spot) -> bool {
        spot.zone == Zone::Inside && self.hidden.lie_in(Path::new(&self.whole(spot)))
    }

    /// Returns the home, with slashes.
    pub fn home(&self) -> Option<&str> {
        self.homes.first().map(String::as_str)
    }

    /// Returns the paths from each home on that a spot has, in small letters.
    ///
    /// A spot of a workspace that lies below a home and not above it has none: what is worked on there has been chosen.
    pub(super) fn relative_to_homes(&self, spot: &Spot) -> Vec<String> {
        if spot.zone == Zone::Unknown {
            return Vec::new();
        }
        let (whole, workspace) = (self.whole(spot).to_lowercase(), self.workspace.to_lowercase());
        let below = |home: &String| {
            let home = home.to_lowercase();
            if spot.zone == Zone::Inside && !is_below(&home, &workspace) {
                return None;
            }
            let rest = whole.strip_prefix(&home)?;
            if home.ends_with('/') {
                Some(rest.to_owned())
            } else {
                rest.strip_prefix('/').map(str::to_owned)
            }
        };
        self.homes.iter().filter_map(below).collect()
    }

    /// Tells where a path of a file tool leads.
    pub fn file(&self, path: &str) -> Spot {
        self.spot(&Base::At(self.workspace.clone()), &slashed(Path::new(path)))
    }

    /// Returns the absolute path of a spot, as far as it is known.
    pub fn whole(&self, spot: &Spot) -> String {
        match spot.zone {
            Zone::Inside => format!("{}/{}", self.workspace, spot.path),
            Zone::Outside | Zone::Unknown => spot.path.clone(),
        }
    }

    /// Tells whether a spot inside is a name of the home, or lies below it, where that name is in the workspace as well.
    ///
    /// A workspace that lies below the name has been chosen to be worked in.
    pub(super) fn is_of_home(&self, spot: &Spot, name: &str) -> bool {
        let (workspace, whole) = (self.workspace.to_lowercase(), self.whole(spot).to_lowercase());
        spot.zone == Zone::Inside
            && self.homes.iter().any(|home| {
                let named = format!("{home}/{name}").to_lowercase();
                is_below(&named, &workspace) && is_below(&whole, &named)
            })
    }

    /// Tells whether a home is at a spot or below it.
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

    /// Returns where `cd` leads from a directory.
    pub(super) fn step(&self, base: &Base, path: &str) -> Base {
        match self.absolute(base, path) {
            Some(path) if !path.contains([HOLE, GLOB]) => Base::At(path),
            Some(_) | None => Base::Unknown,
        }
    }

    /// Tells where a word leads from a directory.
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

    /// Returns the absolute path without `.` and `..`, if it is known where it begins.
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

/// Tells whether a path is another or lies below it.
fn is_below(path: &str, root: &str) -> bool {
    below(path, root).is_some()
}

/// Returns what a path has after another that it is or lies below.
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
