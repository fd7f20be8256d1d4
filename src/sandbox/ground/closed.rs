//! Files and directories that a model's tools neither read nor change, under whatever name they are reached.
//!
//! They are known by their paths, as they were named and without links, and by what the file system calls them. The paths also
//! hold for what does not exist yet.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{FileId, os};
use crate::sandbox::confine::entries::folded;
use crate::sandbox::confine::view::{holds_the_system, may_hold_toolchain};
use crate::sandbox::confine::{HiddenEntries, OpenedPaths};

/// Which paths are closed to a model's tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClosedPaths {
    /// Stores of credentials.
    pub stores: Vec<PathBuf>,
    /// What is configured as hidden.
    pub hide: Vec<PathBuf>,
    /// What the daemon keeps for itself.
    pub own: Vec<PathBuf>,
    /// What the owner has opened: a store itself or something in it, and anything in a home.
    pub except: Vec<PathBuf>,
    /// Homes: one that lies in the workspace is closed, and of one that is the workspace the hidden entries are.
    pub homes: Vec<PathBuf>,
    /// What toolchains need of homes, and is open; candidates, which the session's environment may name.
    pub toolchains: Vec<PathBuf>,
}

/// Why something is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedBy {
    /// Credentials are kept there.
    Store,
    /// The configuration hides it.
    Setting,
    /// It is the daemon's own.
    Own,
    /// It lies in a home, which lies in the workspace.
    Home,
    /// It is a hidden entry of a home that is the workspace, and nobody has approved the call.
    Unapproved,
}

impl ClosedBy {
    /// Says why `closed` is closed, and what opens it.
    pub(super) fn words(self, closed: &Path) -> String {
        let closed = closed.display();
        match self {
            Self::Store => format!(
                "it belongs to {closed}, where credentials are kept; only naming exactly its path in `readable` under \
                 [sandbox] of the configuration opens it"
            ),
            Self::Setting => format!(
                "`hide` under [sandbox] of the user's or the project's configuration names {closed}; only taking it out \
                 there opens it"
            ),
            Self::Own => format!("{closed} belongs to pushd and is never shown to tools"),
            Self::Home => format!(
                "it lies in the home {closed}, of which tools see only what toolchains need; `readable` under [sandbox] of \
                 the configuration opens more"
            ),
            Self::Unapproved => format!(
                "{closed} is hidden from commands, and nobody has approved this use of it; call the tool with exactly that \
                 path, which asks, or have `readable` under [sandbox] of the configuration name it"
            ),
        }
    }
}

/// What is closed.
#[derive(Debug, Default)]
pub(super) struct Closed {
    stores: Vec<Store>,
    /// What is open although it lies in a store, in small letters.
    except: Vec<PathBuf>,
    /// Homes that lie in the workspace.
    inside: Vec<Store>,
    opened: OpenedPaths,
    entries: HiddenEntries,
    /// Every home, as it is named and without links.
    homes: Vec<PathBuf>,
}

#[derive(Debug)]
struct Store {
    named: PathBuf,
    /// Each path that leads there, in small letters.
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
    /// Looks at what is to be closed for a workspace without links on its path; it blocks.
    pub(super) fn of(paths: &ClosedPaths, workspace: &Path) -> Self {
        let ClosedPaths { stores, hide, own, except, homes, toolchains } = paths;
        // A directory above a store opens nothing of it, and nothing opens what is the daemon's.
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

    /// Returns every home, as it is named and without links.
    pub(super) fn homes(&self) -> &[PathBuf] {
        &self.homes
    }

    /// Returns the hidden entries of a home that is the workspace.
    pub(super) const fn entries(&self) -> &HiddenEntries {
        &self.entries
    }

    /// Returns what closes a path without links: something that it lies in, or is by one of these ids.
    ///
    /// Some file systems know no case, so it is not told. `ids` are those of the path and of the directories above it: a store may be
    /// mounted at a second place, and its own number stays.
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

/// Whether the words of a path say where it leads, as far as links do not.
fn is_plain(path: &Path) -> bool {
    path.components().all(|part| part != Component::ParentDir)
}

/// The path as it is named and as it is without links, as far as it exists.
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
