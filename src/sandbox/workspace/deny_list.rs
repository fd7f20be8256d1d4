//! The deny list: files and directories that a model's tools may neither read nor change, under any alias.
//!
//! An entry matches by its path, as named and without links, and by its file identity. The path also matches before the
//! file exists.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::{FileId, os};
use crate::sandbox::confinement::entries::normalize_lowercase;
use crate::sandbox::confinement::view::{contains_system_directories, may_hold_toolchain};
use crate::sandbox::confinement::{HiddenEntries, OpenedPaths};

/// The paths that are denied to a model's tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeniedPaths {
    /// Credential stores.
    pub credential_stores: Vec<PathBuf>,
    /// Paths that the configuration hides.
    pub hidden_by_config: Vec<PathBuf>,
    /// Files of the daemon.
    pub daemon_paths: Vec<PathBuf>,
    /// Paths that the configuration opens: a denied path itself, something in it, or anything in a home.
    pub exceptions: Vec<PathBuf>,
    /// Homes. A home in the workspace is denied; of a home that is the workspace only the hidden entries are denied.
    pub homes: Vec<PathBuf>,
    /// Candidates for toolchain paths in homes, which stay accessible. The session's environment may name them.
    pub toolchains: Vec<PathBuf>,
}

/// Why a path is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenyReason {
    /// It contains credentials.
    CredentialStore,
    /// The configuration hides it.
    Config,
    /// It belongs to the daemon.
    DaemonPath,
    /// It lies in a home inside the workspace.
    HomeInWorkspace,
    /// It is a hidden entry of a home that is the workspace, and the call was not approved.
    Unapproved,
}

impl DenyReason {
    /// Returns the reason why `closed` is denied, and how to open it.
    pub(super) fn describe(self, closed: &Path) -> String {
        let closed = closed.display();
        match self {
            Self::CredentialStore => format!(
                "{closed} contains credentials; to open the path, add exactly this path to `readable` under [sandbox] in \
                 the configuration"
            ),
            Self::Config => format!(
                "`hide` under [sandbox] in the user's or the project's configuration lists {closed}; to open the path, \
                 remove it from that list"
            ),
            Self::DaemonPath => format!("{closed} belongs to pushd and is never shown to tools"),
            Self::HomeInWorkspace => format!(
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
pub(super) struct DenyList {
    denied: Vec<DeniedPath>,
    /// Accessible paths inside denied paths, in lower case.
    exceptions: Vec<PathBuf>,
    /// Homes that lie in the workspace.
    homes_in_workspace: Vec<DeniedPath>,
    opened: OpenedPaths,
    hidden_entries: HiddenEntries,
    /// Every home, both as named and without links.
    homes: Vec<PathBuf>,
}

#[derive(Debug)]
struct DeniedPath {
    path: PathBuf,
    /// Each path that leads to it, in lower case.
    aliases: Vec<PathBuf>,
    id: Option<FileId>,
    reason: DenyReason,
}

impl DeniedPath {
    fn new(path: &Path, reason: DenyReason) -> Self {
        let aliases = path_aliases(path).iter().map(|path| normalize_lowercase(path)).collect();
        Self { path: path.to_owned(), aliases, id: os::file_id_at(path).ok(), reason }
    }

    fn contains(&self, path: &Path) -> bool {
        self.aliases.iter().any(|spelling| path.starts_with(spelling))
    }
}

impl DenyList {
    /// Resolves the denied paths for a workspace whose path has no links. It blocks.
    pub(super) fn resolve(paths: &DeniedPaths, workspace: &Path) -> Self {
        let DeniedPaths {
            credential_stores: stores,
            hidden_by_config: hide,
            daemon_paths: own,
            exceptions: except,
            homes,
            toolchains,
        } = paths;
        // An exception above a denied path does not open it, and no exception opens a daemon path.
        let is_in = |path: &Path, closed: &[PathBuf]| closed.iter().any(|closed| path.starts_with(closed));
        let excepted = |path: &&PathBuf| (is_in(path, stores) || is_in(path, hide)) && !is_in(path, own);
        let in_stores = except.iter().filter(excepted).flat_map(|path| path_aliases(path));
        let in_stores = in_stores.map(|path| normalize_lowercase(&path)).collect();
        let all = [(stores, DenyReason::CredentialStore), (hide, DenyReason::Config), (own, DenyReason::DaemonPath)];
        let all =
            all.into_iter().flat_map(|(paths, reason)| paths.iter().map(move |path| DeniedPath::new(path, reason)));
        let homes: Vec<PathBuf> = homes.iter().flat_map(|home| path_aliases(home)).collect();
        let workspace = normalize_lowercase(workspace);
        let real = homes.iter().filter(|home| !contains_system_directories(home));
        let inside = real
            .clone()
            .filter(|home| normalize_lowercase(home) != workspace && normalize_lowercase(home).starts_with(&workspace));
        let toolchains =
            toolchains.iter().filter(|path| has_no_parent_component(path)).flat_map(|path| path_aliases(path));
        let toolchains: Vec<PathBuf> = toolchains.filter(|path| may_hold_toolchain(path, &homes)).collect();
        let readable: Vec<PathBuf> = except.iter().flat_map(|path| path_aliases(path)).collect();
        let opened = OpenedPaths::new(&toolchains, &readable);
        Self {
            denied: all.collect(),
            exceptions: in_stores,
            homes_in_workspace: inside.map(|home| DeniedPath::new(home, DenyReason::HomeInWorkspace)).collect(),
            hidden_entries: HiddenEntries::new(
                real.filter(|home| normalize_lowercase(home) == workspace),
                opened.clone(),
            ),
            opened,
            homes,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.denied.is_empty() && self.homes_in_workspace.is_empty() && self.hidden_entries.is_empty()
    }

    /// Returns every home, both as named and without links.
    pub(super) fn homes(&self) -> &[PathBuf] {
        &self.homes
    }

    /// Returns the hidden entries of a home that is the workspace.
    pub(super) const fn hidden_entries(&self) -> &HiddenEntries {
        &self.hidden_entries
    }

    /// Returns the denied path that matches a path without links, by its path or by one of these ids.
    ///
    /// Paths are compared in lower case, because some file systems ignore case. `ids` are those of the path and of its
    /// parent directories: a denied directory may be mounted a second time, where it keeps its identity.
    pub(super) fn find_denied(&self, path: &Path, ids: &dyn Fn() -> Vec<FileId>) -> Option<(&Path, DenyReason)> {
        let path = normalize_lowercase(path);
        if self.exceptions.iter().any(|open| path.starts_with(open)) {
            return None;
        }
        let ids = ids();
        let closes = |store: &&DeniedPath| store.contains(&path) || store.id.is_some_and(|id| ids.contains(&id));
        let inside = self.homes_in_workspace.iter().filter(|_| !self.opened.contains(&path));
        let found = self.denied.iter().chain(inside).find(closes);
        found.map(|store| (store.path.as_path(), store.reason))
    }
}

/// Returns whether a path has no `..`, so that it can be compared lexically.
fn has_no_parent_component(path: &Path) -> bool {
    path.components().all(|part| part != Component::ParentDir)
}

/// Returns the path as named, and with links resolved as far as it exists.
fn path_aliases(path: &Path) -> Vec<PathBuf> {
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
    fn a_path_is_denied_before_it_exists() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let stores = vec![base.join("none/.ssh"), base.join(".netrc")];
        let closed = DenyList::resolve(&DeniedPaths { credential_stores: stores, ..DeniedPaths::default() }, &base);
        for inside in ["none/.ssh", "none/.ssh/id", "none/.SSH/id", "none/x/../.ssh/id", ".NetRC"] {
            assert_eq!(reason_for(&closed, &base.join(inside)), Some(DenyReason::CredentialStore), "{inside}");
        }
        for outside in ["none", "none/.sshd", "none/x/.ssh", ".netrc2", ""] {
            assert_eq!(reason_for(&closed, &base.join(outside)), None, "{outside}");
        }
    }

    #[test]
    fn an_exception_must_name_the_denied_path_and_not_a_parent() {
        let at = |name: &str| Path::new("/home/ann").join(name);
        let closed = DenyList::resolve(
            &DeniedPaths {
                credential_stores: vec![at(".config/gh"), at(".aws")],
                hidden_by_config: vec![at("letters")],
                daemon_paths: vec![at(".push")],
                exceptions: vec![at(".config"), at(".aws/config"), at(".push/state")],
                ..DeniedPaths::default()
            },
            Path::new("/home/ann"),
        );
        assert_eq!(reason_for(&closed, &at(".aws/config")), None);
        for (shut, by) in [
            (".config/gh/hosts.yml", DenyReason::CredentialStore),
            (".aws", DenyReason::CredentialStore),
            (".aws/credentials", DenyReason::CredentialStore),
            (".push/state", DenyReason::DaemonPath),
            ("letters/one", DenyReason::Config),
        ] {
            assert_eq!(reason_for(&closed, &at(shut)), Some(by), "{shut}");
        }
    }

    #[test]
    fn a_home_in_the_workspace_is_denied_and_a_home_workspace_hides_its_dot_entries() {
        let at = |name: &str| Path::new("/home/ann").join(name);
        let paths = DeniedPaths {
            homes: vec!["/home/ann".into(), "/".into()],
            toolchains: vec![at(".cargo"), at(""), "/home".into(), at(".config"), at("x/../.gemini")],
            exceptions: vec![at("notes")],
            ..DeniedPaths::default()
        };
        let above = DenyList::resolve(&paths, Path::new("/home"));
        assert!(above.hidden_entries().is_empty());
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
            assert_eq!(reason_for(&above, &at(path)).is_some(), closed, "{path}");
        }
        let itself = DenyList::resolve(&paths, Path::new("/home/ann"));
        assert!(itself.hidden_entries().hides(&at(".gemini")) && itself.hidden_entries().hides(&at(".config/x")));
        assert!(!itself.hidden_entries().hides(&at(".cargo/x")) && reason_for(&itself, &at("f")).is_none());
        let below = DenyList::resolve(&paths, Path::new("/home/ann/w"));
        assert!(below.is_empty(), "a workspace below a home has been chosen");
        assert_eq!(below.homes().first(), Some(&"/home/ann".into()));
    }

    fn reason_for(closed: &DenyList, path: &Path) -> Option<DenyReason> {
        closed.find_denied(path, &Vec::new).map(|(_, reason)| reason)
    }
}
