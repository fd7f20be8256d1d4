//! Lexical resolution of paths: no file is read, and links are not followed.

use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};

use crate::sandbox::confinement::HiddenEntries;
use crate::sandbox::shell::{GLOB, UNKNOWN};

/// The context in which the paths of a call are resolved: the workspace and the user's homes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathContext {
    workspace: String,
    /// The path by which the user names the workspace, if it differs.
    alias: Option<String>,
    /// The first is the home that `~` stands for.
    homes: Vec<String>,
    /// The resolved addresses of the host of a fetch.
    addresses: Vec<IpAddr>,
    /// The entries that are hidden from commands, if the workspace is a home.
    hidden: HiddenEntries,
}

/// A path, resolved lexically.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRef {
    /// Inside the workspace, the relative path, empty for the workspace itself. Otherwise as absolute as is known.
    pub path: String,
    /// Whether the path lies in the workspace.
    pub scope: PathScope,
}

/// Whether a path lies in the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathScope {
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
pub(super) enum BaseDirectory {
    At(String),
    Unknown,
}

impl PathContext {
    /// Creates a context for a workspace, which is an absolute path, and for the home if it is known.
    pub fn new(workspace: &Path, home: Option<&Path>) -> Self {
        Self {
            workspace: with_slashes(workspace),
            alias: None,
            homes: home.map(with_slashes).into_iter().collect(),
            addresses: Vec::new(),
            hidden: HiddenEntries::default(),
        }
    }

    /// Adds an alias of the workspace: the path by which the user names it.
    #[must_use]
    pub fn with_alias(self, name: &Path) -> Self {
        let name = with_slashes(name);
        Self { alias: (name != self.workspace).then_some(name), ..self }
    }

    /// Adds further homes of the user, and aliases of homes.
    #[must_use]
    pub fn with_homes(mut self, homes: &[PathBuf]) -> Self {
        self.homes.extend(homes.iter().map(|home| with_slashes(home)));
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
    pub fn hides(&self, path_ref: &PathRef) -> bool {
        path_ref.scope == PathScope::Inside && self.hidden.hides(Path::new(&self.absolute_path(path_ref)))
    }

    /// Returns whether hidden entries lie below a path: it is a home that is the workspace, or lies above one.
    pub fn contains_hidden(&self, path_ref: &PathRef) -> bool {
        path_ref.scope == PathScope::Inside && self.hidden.has_entries_below(Path::new(&self.absolute_path(path_ref)))
    }

    /// Returns the home, with slashes.
    pub fn home(&self) -> Option<&str> {
        self.homes.first().map(String::as_str)
    }

    /// Returns a path relative to each home that it lies below, in lower case.
    pub(super) fn relative_to_homes(&self, path_ref: &PathRef) -> Vec<HomePath> {
        if path_ref.scope == PathScope::Unknown {
            return Vec::new();
        }
        let (absolute, workspace) = (self.absolute_path(path_ref).to_lowercase(), self.workspace.to_lowercase());
        let relative = |home: &String| {
            let home = home.to_lowercase();
            let inner = |path: &str| Some(strip_root(path, &home)?.strip_prefix('/')?.to_owned());
            let workspace = if path_ref.scope == PathScope::Inside { inner(&workspace) } else { None };
            Some(HomePath { path: inner(&absolute)?, workspace })
        };
        self.homes.iter().filter_map(relative).collect()
    }

    /// Resolves a path of a file tool.
    pub fn resolve_file(&self, path: &str) -> PathRef {
        self.resolve(&BaseDirectory::At(self.workspace.clone()), &with_slashes(Path::new(path)))
    }

    /// Returns the absolute path, as far as it is known.
    pub fn absolute_path(&self, path_ref: &PathRef) -> String {
        match path_ref.scope {
            PathScope::Inside => format!("{}/{}", self.workspace, path_ref.path),
            PathScope::Outside | PathScope::Unknown => path_ref.path.clone(),
        }
    }

    /// Returns whether a path in the workspace is the entry `name` of a home, or lies below it, if that entry is in the
    /// workspace.
    ///
    /// A workspace below that entry does not count: the user chose it as the workspace.
    pub(super) fn is_home_path(&self, path_ref: &PathRef, name: &str) -> bool {
        let (workspace, absolute) = (self.workspace.to_lowercase(), self.absolute_path(path_ref).to_lowercase());
        path_ref.scope == PathScope::Inside
            && self.homes.iter().any(|home| {
                let named = format!("{home}/{name}").to_lowercase();
                is_below(&named, &workspace) && is_below(&absolute, &named)
            })
    }

    /// Returns whether a path is a home or contains one.
    pub(super) fn contains_home(&self, path_ref: &PathRef) -> bool {
        let absolute = self.absolute_path(path_ref);
        self.homes.iter().any(|home| is_below(home, &absolute))
    }

    pub(super) fn base_directory(&self, cwd: Option<&str>) -> BaseDirectory {
        let root = BaseDirectory::At(self.workspace.clone());
        match cwd {
            None => root,
            Some(cwd) => self.change_directory(&root, &with_slashes(Path::new(cwd))),
        }
    }

    /// Returns the working directory after `cd path`.
    pub(super) fn change_directory(&self, base: &BaseDirectory, path: &str) -> BaseDirectory {
        match self.normalize_absolute(base, path) {
            Some(path) if !path.contains([UNKNOWN, GLOB]) => BaseDirectory::At(path),
            Some(_) | None => BaseDirectory::Unknown,
        }
    }

    /// Resolves a word against a working directory.
    pub(super) fn resolve(&self, base: &BaseDirectory, text: &str) -> PathRef {
        let Some(mut absolute) = self.normalize_absolute(base, text) else {
            return PathRef { path: text.to_owned(), scope: PathScope::Unknown };
        };
        if let Some(inner) = self.alias.as_ref().and_then(|named| strip_root(&absolute, named)) {
            absolute = format!("{}{inner}", self.workspace);
        }
        let inside = if absolute == self.workspace {
            Some("")
        } else {
            absolute.strip_prefix(&self.workspace).and_then(|rest| rest.strip_prefix('/'))
        };
        let scope = match inside {
            _ if absolute.contains(UNKNOWN) => PathScope::Unknown,
            Some(_) => PathScope::Inside,
            None => PathScope::Outside,
        };
        PathRef { path: inside.unwrap_or(&absolute).to_owned(), scope }
    }

    /// Returns the absolute path without `.` and `..`, if its start is known.
    fn normalize_absolute(&self, base: &BaseDirectory, text: &str) -> Option<String> {
        let text = match text.strip_prefix('~') {
            Some(rest) => match self.homes.first() {
                Some(home) => format!("{home}{rest}"),
                None => return Some(text.to_owned()),
            },
            None => text.to_owned(),
        };
        let joined = match base {
            _ if is_absolute(&text) => text,
            _ if text.starts_with(UNKNOWN) => return None,
            BaseDirectory::At(base) => format!("{base}/{text}"),
            BaseDirectory::Unknown => return None,
        };
        let mut names: Vec<&str> = Vec::new();
        for name in joined.split('/') {
            match name {
                "" | "." => {}
                ".." => {
                    if names.pop().is_some_and(|name| name.contains([UNKNOWN, GLOB])) {
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
    strip_root(path, root).is_some()
}

/// Returns the rest of a path that is `root` or lies below it.
fn strip_root<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    path.strip_prefix(root.trim_end_matches('/')).filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_absolute(text: &str) -> bool {
    let drive = || text.as_bytes().get(1) == Some(&b':') && text.as_bytes()[0].is_ascii_alphabetic();
    text.starts_with('/') || drive()
}

/// Returns a path with slashes, whatever the system's separator is.
fn with_slashes(path: &Path) -> String {
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
    fn equivalent_spellings_resolve_to_the_same_path() {
        let context = PathContext::new(Path::new("/home/ann/app"), Some(Path::new("/home/ann")));
        for (text, path, scope) in [
            ("src/main.rs", "src/main.rs", PathScope::Inside),
            ("./src//a/../b", "src/b", PathScope::Inside),
            (".", "", PathScope::Inside),
            ("/home/ann/app/.env", ".env", PathScope::Inside),
            ("~/app/x", "x", PathScope::Inside),
            ("../other", "/home/ann/other", PathScope::Outside),
            ("../app/x", "x", PathScope::Inside),
            ("../apple", "/home/ann/apple", PathScope::Outside),
            ("~", "/home/ann", PathScope::Outside),
            ("/../../etc", "/etc", PathScope::Outside),
            ("src/\0", "src/\0", PathScope::Unknown),
            ("\0/x", "\0/x", PathScope::Unknown),
            ("/etc/\0", "/etc/\0", PathScope::Unknown),
            ("src/\u{1}/../x", "src/\u{1}/../x", PathScope::Unknown),
            ("src/\u{1}.o", "src/\u{1}.o", PathScope::Inside),
        ] {
            let path_ref = context.resolve(&context.base_directory(None), text);
            assert_eq!((path_ref.path.as_str(), path_ref.scope), (path, scope), "{text:?}");
        }
        assert_eq!(context.resolve(&BaseDirectory::Unknown, "x").scope, PathScope::Unknown);
        assert_eq!(context.resolve(&context.base_directory(Some("src")), "../x").path, "x");
        let linked = PathContext::new(Path::new("/data/app"), None).with_alias(Path::new("/home/ann/app"));
        assert_eq!(linked.resolve_file("/home/ann/app/x"), PathRef { path: "x".into(), scope: PathScope::Inside });
        assert_eq!(linked.resolve_file("/home/ann/apple").scope, PathScope::Outside);
        let nowhere = PathContext::new(Path::new("/w"), None);
        assert_eq!(nowhere.resolve_file("~/x"), PathRef { path: "~/x".into(), scope: PathScope::Outside });
    }
}
