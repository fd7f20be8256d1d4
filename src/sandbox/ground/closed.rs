//! The deny list: files and directories that a model's tools may neither read nor change, under any alias.
//!
//! An entry matches by its path, as named and without links, and by its file identity. The path also matches before the
//! file exists.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{FileId, os};
use crate::sandbox::confine::entries::folded;
use crate::sandbox::confine::view::{holds_the_system, may_hold_toolchain};
use crate::sandbox::confine::{HiddenEntries, OpenedPaths};

/// The paths that are denied to a model's tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClosedPaths {
    /// Credential stores.
    pub stores: Vec<PathBuf>,
    /// Paths that the configuration hides.
    pub hide: Vec<PathBuf>,
    /// Files of the daemon.
    pub own: Vec<PathBuf>,
    /// Paths that the configuration opens: a denied path itself, something in it, or anything in a home.
    pub except: Vec<PathBuf>,
    /// Homes. A home in the workspace is denied; of a home that is the workspace only the hidden entries are denied.
    pub homes: Vec<PathBuf>,
    /// Candidates for toolchain paths in homes, which stay accessible. The session's environment may name them.
    pub toolchains: Vec<PathBuf>,
}

/// Why a path is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedBy {
    /// It contains credentials.
    Store,
    /// The configuration hides it.
    Setting,
    /// It belongs to the daemon.
    Own,
    /// It lies in a home inside the workspace.
    Home,
    /// It is a hidden entry of a home that is the workspace, and the call was not approved.
    Unapproved,
}

impl ClosedBy {
    /// Returns the reason why `closed` is denied, and how to open it.
    pub(super) fn words(self, closed: &Path) -> String {
        let closed = closed.display();
        match self {
            Self::Store => format!(
                "{closed} contains credentials; to open the path, add exactly this path to `readable` under [sandbox] in \
                 the configuration"
            ),
            Self::Setting => format!(
                "`hide` under [sandbox] in the user's or the project's configuration lists {closed}; to open the path, \
                 remove it from that list"
            ),
            Self::Own => format!("{closed} belongs to pushd and is never shown to tools"),
            Self::Home => format!(
                "it lies in the home directory {closed}, of which tools see only toolchain files; to open the path, add it \
                 to `readable` under [sandbox] in the configuration"
            ),
            Self::Unapproved => format!(
                "{closed} is hidden from commands, and this access is not approved; call the tool with exactly that path \
                 to ask for approval, or add it to `readable` under [sandbox] in the configuration"
            ),
        }
    }
}

/// The resolved deny list.
#[derive(Debug, Default)]
pub(super) struct Closed {
    stores: Vec<Store>,
    /// Accessible paths inside denied paths, in lower case.
    except: Vec<PathBuf>,
    /// Homes that lie in the workspace.
    inside: Vec<Store>,
    opened: OpenedPaths,
    entries: HiddenEntries,
    /// Every home, both as named and without links.
    homes: Vec<PathBuf>,
}

#[derive(Debug)]
struct Store {
    named: PathBuf,
    /// Each path that leads to it, in lower case.
    spellings: Vec<PathBuf>,
    id: Option<FileId>,
    why: ClosedBy,
}

impl Store {
    fn of(path: &Path, why: ClosedBy) -> Self {
        let spellings = spellings(path).iter().map(|path| folded(path)).collect();
        Self { named: path.to_owned(), spellings, id: os::id_at(path).ok(), why }
    }

    fn is_around(&self, path: &Path) -> bool {
        self.spellings.iter().any(|spelling| path.starts_with(spelling))
    }
}

impl Closed {
    /// Resolves the denied paths for a workspace whose path has no links. It blocks.
    pub(super) fn of(paths: &ClosedPaths, workspace: &Path) -> Self {
        let ClosedPaths { stores, hide, own, except, homes, toolchains } = paths;
        // An exception above a denied path does not open it, and no exception opens a daemon path.
        let is_in = |path: &Path, closed: &[PathBuf]| closed.iter().any(|closed| path.starts_with(closed));
        let excepted = |path: &&PathBuf| (is_in(path, stores) || is_in(path, hide)) && !is_in(path, own);
        let in_stores = except.iter().filter(excepted).flat_map(|path| spellings(path));
        let in_stores = in_stores.map(|path| folded(&path)).collect();
        let all = [(stores, ClosedBy::Store), (hide, ClosedBy::Setting), (own, ClosedBy::Own)];
        let all = all.into_iter().flat_map(|(paths, why)| paths.iter().map(move |path| Store::of(path, why)));
        let homes: Vec<PathBuf> = homes.iter().flat_map(|home| spellings(home)).collect();
        let workspace = folded(workspace);
        let real = homes.iter().filter(|home| !holds_the_system(home));
        let inside =
            real.clone().filter(|home| folded(home) != workspace && folded(home).starts_with(&workspace));
        let toolchains = toolchains.iter().filter(|path| is_plain(path)).flat_map(|path| spellings(path));
        let toolchains: Vec<PathBuf> = toolchains.filter(|path| may_hold_toolchain(path, &homes)).collect();
        let readable: Vec<PathBuf> = except.iter().flat_map(|path| spellings(path)).collect();
        let opened = OpenedPaths::new(&toolchains, &readable);
        Self {
            stores: all.collect(),
            except: in_stores,
            inside: inside.map(|home| Store::of(home, ClosedBy::Home)).collect(),
            entries: HiddenEntries::new(real.filter(|home| folded(home) == workspace), opened.clone()),
            opened,
            homes,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.stores.is_empty() && self.inside.is_empty() && self.entries.is_empty()
    }

    /// Returns every home, both as named and without links.
    pub(super) fn homes(&self) -> &[PathBuf] {
        &self.homes
    }

    /// Returns the hidden entries of a home that is the workspace.
    pub(super) const fn entries(&self) -> &HiddenEntries {
        &self.entries
    }

    /// Returns the denied path that matches a path without links, by its path or by one of these ids.
    ///
    /// Paths are compared in lower case, because some file systems ignore case. `ids` are those of the path and of its
    /// parent directories: a denied directory may be mounted a second time, where it keeps its identity.
    pub(super) fn around(&self, path: &Path, ids: &dyn Fn() -> Vec<FileId>) -> Option<(&Path, ClosedBy)> {
        let path = folded(path);
        if self.except.iter().any(|open| path.starts_with(open)) {
            return None;
        }
        let ids = ids();
        let closes = |store: &&Store| store.is_around(&path) || store.id.is_some_and(|id| ids.contains(&id));
        let inside = self.inside.iter().filter(|_| !self.opened.open(&path));
        let found = self.stores.iter().chain(inside).find(closes);
        found.map(|store| (store.named.as_path(), store.why))
    }
}

/// Returns whether a path has no `..`, so that it can be compared lexically.
fn is_plain(path: &Path) -> bool {
    path.components().all(|part| part != Component::ParentDir)
}

/// Returns the path as named, and with links resolved as far as it exists.
fn spellings(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    for above in path.ancestors() {
        if let Ok(real) = fs::canonicalize(above) {
            let rest = path.strip_prefix(above).unwrap_or(Path::new(""));
            found.push(real.join(rest).components().collect());
            break;
        }
    }
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_known_by_its_paths_before_it_exists() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let stores = vec![base.join("none/.ssh"), base.join(".netrc")];
        let closed = Closed::of(&ClosedPaths { stores, ..ClosedPaths::default() }, &base);
        for inside in ["none/.ssh", "none/.ssh/id", "none/.SSH/id", "none/x/../.ssh/id", ".NetRC"] {
            assert_eq!(why(&closed, &base.join(inside)), Some(ClosedBy::Store), "{inside}");
        }
        for outside in ["none", "none/.sshd", "none/x/.ssh", ".netrc2", ""] {
            assert_eq!(why(&closed, &base.join(outside)), None, "{outside}");
        }
    }

    #[test]
    fn a_store_is_opened_by_its_own_name_and_not_by_a_directory_above_it() {
        let at = |name: &str| Path::new("/home/ann").join(name);
        let closed = Closed::of(
            &ClosedPaths {
                stores: vec![at(".config/gh"), at(".aws")],
                hide: vec![at("letters")],
                own: vec![at(".push")],
                except: vec![at(".config"), at(".aws/config"), at(".push/state")],
                ..ClosedPaths::default()
            },
            Path::new("/home/ann"),
        );
        assert_eq!(why(&closed, &at(".aws/config")), None);
        for (shut, by) in [
            (".config/gh/hosts.yml", ClosedBy::Store),
            (".aws", ClosedBy::Store),
            (".aws/credentials", ClosedBy::Store),
            (".push/state", ClosedBy::Own),
            ("letters/one", ClosedBy::Setting),
        ] {
            assert_eq!(why(&closed, &at(shut)), Some(by), "{shut}");
        }
    }

    #[test]
    fn a_home_in_the_workspace_is_closed_and_of_one_that_is_the_workspace_the_hidden_entries_are() {
        let at = |name: &str| Path::new("/home/ann").join(name);
        let paths = ClosedPaths {
            homes: vec!["/home/ann".into(), "/".into()],
            toolchains: vec![at(".cargo"), at(""), "/home".into(), at(".config"), at("x/../.gemini")],
            except: vec![at("notes")],
            ..ClosedPaths::default()
        };
        let above = Closed::of(&paths, Path::new("/home"));
        assert!(above.entries().is_empty());
        for (path, closed) in [
            ("", true),
            ("f", true),
            (".gemini", true),
            (".config/x", true),
            (".cargo/config.toml", false),
            (".cargo/credentials.toml.bak", true),
            ("notes/n", false),
            ("../bob", false),
        ] {
            assert_eq!(why(&above, &at(path)).is_some(), closed, "{path}");
        }
        let itself = Closed::of(&paths, Path::new("/home/ann"));
        assert!(itself.entries().hides(&at(".gemini")) && itself.entries().hides(&at(".config/x")));
        assert!(!itself.entries().hides(&at(".cargo/x")) && why(&itself, &at("f")).is_none());
        let below = Closed::of(&paths, Path::new("/home/ann/w"));
        assert!(below.is_empty(), "a workspace below a home has been chosen");
        assert_eq!(below.homes().first(), Some(&"/home/ann".into()));
    }

    fn why(closed: &Closed, path: &Path) -> Option<ClosedBy> {
        closed.around(path, &Vec::new).map(|(_, why)| why)
    }
}
