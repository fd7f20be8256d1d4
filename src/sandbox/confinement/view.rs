//! Computes what is visible of homes: only the paths that are opened in them.
//!
//! Pure, like [`plan`](super::plan), which turns the view into mounts. The paths come from the environment of a
//! session, which a client sets. They open possible toolchain directories read-only. They never open a home, a
//! credential store, a directory above the workspace or a file of the daemon. The configuration can open more.

use std::path::{Path, PathBuf};

use super::entries::is_credential_name;
use super::plan::{FileSystem, PathKind, canonicalize_partial, outermost, path_aliases};
use super::toolchain::{Cache, is_installation, is_shared_directory};
use super::{ConfinementSpec, is_within};

/// How many paths toolchains and the environment may open. Each costs every command a mount.
const OPENED_MAX: usize = 64;

/// How many entries a directory may have to be opened entry by entry.
const ENTRIES_MAX: usize = 64;

/// How many entries of a directory are searched for credentials.
const NAMES_MAX: usize = 4096;

/// The visible part of homes; all paths are absolute and without links.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct HomeView {
    /// Homes that are replaced by an empty directory, without homes that lie in other homes.
    pub(crate) homes: Vec<PathBuf>,
    /// Homes that lie in the workspace; hidden like credential stores.
    pub(crate) homes_in_workspace: Vec<PathBuf>,
    /// Paths that are restored read-only.
    pub(crate) opened: Vec<PathBuf>,
    /// Links in a home to visible paths, with their targets.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    /// Paths inside credential stores that the configuration opens.
    pub(crate) opened_in_stores: Vec<PathBuf>,
    /// Credential files, and copies of them, directly in opened directories; hidden like credential stores.
    pub(crate) credential_copies: Vec<PathBuf>,
    /// Caches of which commands get a private copy.
    pub(crate) caches: Vec<Cache>,
}

/// Computes the view. Paths in `hidden` are never opened by toolchains or the environment.
pub(crate) fn home_view(spec: &ConfinementSpec, files: &dyn FileSystem, hidden: &[PathBuf]) -> HomeView {
    let Some(workspace) = files.canonicalize(&spec.workspace) else { return HomeView::default() };
    let writable: Vec<PathBuf> = spec.writable.iter().filter_map(|path| files.canonicalize(path)).collect();
    let mut all: Vec<PathBuf> = spec.homes.iter().filter_map(|home| files.canonicalize(home)).collect();
    all.retain(|home| files.kind(home) == PathKind::Directory && !contains_system_directories(home));
    all.sort();
    all.dedup();
    let (inside, mut homes): (Vec<PathBuf>, Vec<PathBuf>) =
        all.iter().cloned().partition(|home| is_within(home, &workspace) && *home != workspace);
    // A home in a writable directory stays visible. A workspace is never hidden from itself.
    homes.retain(|home| *home != workspace && !writable.iter().any(|root| is_within(home, root)));
    let outer = homes.clone();
    homes.retain(|home| !outer.iter().any(|other| other != home && is_within(home, other)));
    let daemon_paths = spec
        .daemon_paths
        .iter()
        .flat_map(|daemon_paths| path_aliases(daemon_paths, &|path| files.canonicalize(path)))
        .collect();
    let mut builder = ViewBuilder {
        spec,
        files,
        hidden,
        daemon_paths,
        workspace,
        writable,
        all_homes: all,
        view: HomeView::default(),
    };
    builder.view.homes = homes;
    builder.view.homes_in_workspace = inside;
    builder.resolve_opened();
    builder.find_credential_copies();
    builder.add_caches();
    builder.expand_directories_for_missing_caches();
    builder.view
}

/// Returns whether a directory contains system directories without which no command can run.
pub(crate) fn contains_system_directories(home: &Path) -> bool {
    SYSTEM_DIRECTORIES.iter().any(|root| is_within(Path::new(root), home))
}

/// Returns whether a path can be a toolchain directory: it is not a home, contains no home and is not a shared
/// directory such as `.config`.
pub(crate) fn may_hold_toolchain(path: &Path, homes: &[PathBuf]) -> bool {
    path.parent().is_some()
        && !homes.iter().any(|home| is_within(home, path))
        && !homes.iter().any(|home| path.strip_prefix(home).is_ok_and(is_shared_directory))
}

/// Returns whether a directory contains programs, by its name.
fn is_program_directory(path: &Path) -> bool {
    path.file_name().is_some_and(|name| ["bin", "sbin", "shims", "libexec"].iter().any(|known| name == *known))
}

const SYSTEM_DIRECTORIES: &[&str] = &[
    "/bin",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/nix/store",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/tmp",
    "/usr/bin",
    "/usr/lib",
    "/usr/sbin",
    "/usr/share",
];

struct ViewBuilder<'a> {
    spec: &'a ConfinementSpec,
    files: &'a dyn FileSystem,
    hidden: &'a [PathBuf],
    /// The daemon's files, existing or not, under all their aliases.
    daemon_paths: Vec<PathBuf>,
    workspace: PathBuf,
    writable: Vec<PathBuf>,
    /// Every home, also homes that are not replaced.
    all_homes: Vec<PathBuf>,
    view: HomeView,
}

impl ViewBuilder<'_> {
    fn resolve_opened(&mut self) {
        let (mut opened, mut links, mut home_entries) = (Vec::new(), Vec::new(), 0);
        let mut take = |path: &Path, real: PathBuf| {
            if let Some(name) = self.name_in_home(path).filter(|name| *name != real) {
                links.push((name, real.clone()));
            }
            if self.home_of(&real).is_some() {
                opened.push(real);
            }
        };
        for path in self.spec.opened_paths.iter().flat_map(|path| self.with_installation(path)) {
            if home_entries == OPENED_MAX {
                break;
            }
            if let Some(real) = self.files.canonicalize(&path).filter(|real| self.may_be_opened(real)) {
                home_entries += usize::from(self.home_of(&real).is_some());
                take(&path, real);
            }
        }
        let mut in_stores = Vec::new();
        for path in &self.spec.readable {
            let Some(real) = self.files.canonicalize(path).filter(|real| real.parent().is_some()) else {
                continue;
            };
            if self.is_daemon_path(&real) {
                continue;
            }
            if self.hidden.iter().any(|store| is_within(&real, store)) {
                in_stores.push(real);
            } else {
                take(path, real);
            }
        }
        outermost(&mut opened);
        links.retain(|(name, _)| !opened.iter().any(|opened| is_within(name, opened) || is_within(opened, name)));
        links.sort();
        links.dedup_by(|later, earlier| is_within(&later.0, &earlier.0));
        self.view.opened = opened;
        self.view.links = links;
        self.view.opened_in_stores = in_stores;
    }

    /// Finds credential files directly in each opened directory, by their names.
    ///
    /// Program directories are skipped, because a program may be named after the file it reads. Paths that the
    /// configuration names are skipped too, with everything below them. A directory that cannot be listed is not
    /// opened.
    fn find_credential_copies(&mut self) {
        let named: Vec<PathBuf> = self.spec.readable.iter().filter_map(|path| self.files.canonicalize(path)).collect();
        let is_named = |path: &Path| named.iter().any(|named| is_within(path, named));
        let (mut copies, mut opened) = (Vec::new(), Vec::new());
        for path in std::mem::take(&mut self.view.opened) {
            let searched =
                self.files.kind(&path) == PathKind::Directory && !is_program_directory(&path) && !is_named(&path);
            let names = if searched { self.files.entry_names(&path, NAMES_MAX) } else { Some(Vec::new()) };
            // A directory that cannot be searched may contain copies, so it is not opened.
            let Some(names) = names else { continue };
            let names = names.into_iter().filter(|name| is_credential_name(name));
            let paths = names.filter_map(|name| self.files.canonicalize(&path.join(name)));
            copies.extend(paths.filter(|copy| is_within(copy, &path) && !is_named(copy)));
            opened.push(path);
        }
        outermost(&mut copies);
        self.view.credential_copies = copies;
        self.view.opened = opened;
    }

    /// Returns a program directory, and the installation that it belongs to.
    fn with_installation(&self, path: &Path) -> Vec<PathBuf> {
        let mut paths = vec![path.to_owned()];
        if let (Some(above), Some(name)) = (path.parent(), path.file_name())
            && self.files.kind(path) == PathKind::Directory
            && is_installation(name, &|name| self.files.kind(&above.join(name)) == PathKind::Directory)
        {
            paths.push(above.to_owned());
        }
        paths
    }

    /// Returns whether a path that a toolchain or the environment names may be opened.
    fn may_be_opened(&self, real: &Path) -> bool {
        may_hold_toolchain(real, &self.all_homes)
            && !is_within(&self.workspace, real)
            && !self.is_writable(real)
            && !self.hidden.iter().any(|hidden| is_within(real, hidden))
            && !self.contains_daemon_path(real)
    }

    fn is_writable(&self, path: &Path) -> bool {
        is_within(path, &self.workspace) || self.writable.iter().any(|root| is_within(path, root))
    }

    /// Returns whether a path is a daemon path or lies below one.
    fn is_daemon_path(&self, path: &Path) -> bool {
        self.daemon_paths.iter().any(|daemon_paths| is_within(path, daemon_paths))
    }

    /// Returns whether a daemon path lies in a directory, or would lie there once it is created.
    fn contains_daemon_path(&self, path: &Path) -> bool {
        self.daemon_paths.iter().any(|daemon_paths| is_within(daemon_paths, path))
    }

    fn home_of(&self, real: &Path) -> Option<&PathBuf> {
        self.view.homes.iter().find(|home| is_within(real, home))
    }

    /// Returns the path inside a replaced home, with links resolved up to the home and not below it.
    fn name_in_home(&self, path: &Path) -> Option<PathBuf> {
        let spelled = self.spec.homes.iter().filter_map(|home| {
            let inner = path.strip_prefix(home).ok()?;
            Some(self.files.canonicalize(home)?.join(inner))
        });
        spelled.chain([path.to_owned()]).find(|name| self.home_of(name).is_some())
    }

    fn add_caches(&mut self) {
        let mut caches: Vec<Cache> = Vec::new();
        for cache in &self.spec.caches {
            let Some(path) = canonicalize_partial(&cache.path, self.files) else { continue };
            let kind = self.files.kind(&path);
            let fits = self.home_of(&path).is_some()
                && matches!(kind, PathKind::Directory | PathKind::Missing)
                && self.may_be_opened(&path)
                && !self.hidden.iter().any(|hidden| is_within(hidden, &path) && !self.can_be_covered(hidden, &path))
                && !caches.iter().any(|other| is_within(&path, &other.path) || is_within(&other.path, &path));
            if fits {
                caches.push(Cache { kind: cache.kind, path });
            }
        }
        caches.sort_by(|one, other| one.path.cmp(&other.path));
        self.view.caches = caches;
    }

    /// Returns whether an empty directory can be mounted over a hidden path in the private copy of a cache.
    ///
    /// The mount point must exist in a copy that starts empty, and no command may move a directory above it.
    fn can_be_covered(&self, hidden: &Path, cache: &Path) -> bool {
        hidden.parent() == Some(cache) && self.files.kind(hidden) == PathKind::Directory
    }

    /// Opens directories with missing caches entry by entry.
    ///
    /// A mount needs a mount point, which cannot be created in a read-only directory. Where a cache is missing in an
    /// opened directory, the entries of the directory are opened instead, so that the mount point can be created
    /// beside them.
    fn expand_directories_for_missing_caches(&mut self) {
        let missing = |path: &Path| self.files.kind(path) == PathKind::Missing;
        let caches: Vec<PathBuf> =
            self.view.caches.iter().map(|cache| cache.path.clone()).filter(|path| missing(path)).collect();
        let mut opened = Vec::new();
        let mut todo = std::mem::take(&mut self.view.opened);
        while let Some(path) = todo.pop() {
            let inside: Vec<&PathBuf> = caches.iter().filter(|cache| is_within(cache, &path)).collect();
            if inside.is_empty() {
                opened.push(path);
                continue;
            }
            match self.files.entry_names(&path, ENTRIES_MAX) {
                Some(names) => {
                    for entry in names.into_iter().map(|name| path.join(name)) {
                        match self.files.kind(&entry) {
                            PathKind::Directory | PathKind::File => todo.push(entry),
                            PathKind::Link => self.view.links.extend(self.resolved_link(&entry)),
                            PathKind::Missing => {}
                        }
                    }
                }
                // Too many entries: the directory stays opened as a whole, without the cache.
                None => {
                    self.view.caches.retain(|cache| !inside.contains(&&cache.path));
                    opened.push(path);
                }
            }
        }
        opened.sort();
        self.view.opened = opened;
        self.view.links.sort();
    }

    /// Returns a link of a directory that is opened entry by entry, with its resolved target. It opens nothing.
    fn resolved_link(&self, entry: &Path) -> Option<(PathBuf, PathBuf)> {
        Some((entry.to_owned(), self.files.canonicalize(entry)?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{self, tests::Files};
    use super::super::toolchain::CacheKind;
    use super::super::{Confinement, Mechanism, StepPermissions};
    use super::*;

    #[test]
    fn what_path_names_is_opened_with_the_installation_that_it_is_part_of() {
        let files = Files::new(&[
            "/home/ann/w/",
            "/home/ann/bin/",
            "/home/ann/lib/",
            "/home/ann/conda/bin/",
            "/home/ann/conda/lib/",
            "/home/ann/work/bin/",
            "/home/ann/work/secret",
            "/home/ann/.local/bin/",
            "/home/ann/.local/lib/",
            "/home/ann/.asdf/shims/",
            "/home/ann/.asdf/installs/",
            "/usr/bin/",
        ]);
        let opened = opened(
            &[
                "/home/ann/bin",
                "/home/ann/conda/bin",
                "/home/ann/work/bin",
                "/home/ann/.local/bin",
                "/home/ann/.asdf/shims",
                "/usr/bin",
            ],
            &files,
        );
        let expected = [".asdf", ".local/bin", "bin", "conda", "work/bin"];
        assert_eq!(opened, expected.map(|name| Path::new("/home/ann").join(name)));
    }

    #[test]
    fn a_directory_whose_names_cannot_be_listed_is_not_opened() {
        let mut paths: Vec<String> = (0..=NAMES_MAX).map(|number| format!("/home/ann/tools/{number}")).collect();
        paths.extend(
            ["/home/ann/w/", "/home/ann/tools/credentials.bak", "/home/ann/few/token", "/home/ann/.gitconfig"]
                .map(str::to_owned),
        );
        let files = Files::new(&paths.iter().map(String::as_str).collect::<Vec<_>>());
        let named = ["/home/ann/tools", "/home/ann/few", "/home/ann/.gitconfig"];
        let expected = ["/home/ann/.gitconfig", "/home/ann/few"].map(PathBuf::from);
        assert_eq!(opened(&named, &files), expected);
    }

    #[test]
    fn an_environment_opens_no_home_no_store_no_shared_directory_and_nothing_above_the_workspace() {
        let mut files = Files::new(&[
            "/home/ann/w/",
            "/home/ann/projects/w/",
            "/home/ann/.ssh/keys/",
            "/home/ann/.config/",
            "/home/ann/.local/share/",
            "/home/ann/.push/state/",
            "/home/ann/etc/",
        ]);
        files.link("/home/ann/innocent", "/home/ann/.ssh/keys");
        files.link("/home/ann/roundabout", "/home/ann");
        files.link("/home/ann/etc/push", "/home/ann/.push");
        for path in [
            "/",
            "/home",
            "/home/ann",
            "/home/ann/w",
            "/home/ann/.ssh",
            "/home/ann/.ssh/keys",
            "/home/ann/innocent",
            "/home/ann/roundabout",
            "/home/ann/.config",
            "/home/ann/.local",
            "/home/ann/.local/share",
            "/home/ann/.push",
            "/home/ann/.push/state",
            "/home/ann/missing",
        ] {
            assert_eq!(opened(&[path], &files), Vec::<PathBuf>::new(), "{path}");
        }
        let mut spec = spec_for(&["/home/ann/projects"], "/home/ann/projects/w");
        assert_eq!(view_of(&spec, &files).opened, Vec::<PathBuf>::new(), "siblings of the workspace");
        spec.daemon_paths = vec!["/home/ann/projects/config.toml".into()];
        spec.workspace = "/home/ann/w".into();
        assert_eq!(view_of(&spec, &files).opened, Vec::<PathBuf>::new(), "the configuration would lie there");
    }

    #[test]
    fn a_link_in_a_home_keeps_its_target_if_the_target_is_visible() {
        let mut files = Files::new(&["/home/ann/w/", "/data/cargo/", "/home/ann/dot/nvm/", "/home/ann/.ssh/"]);
        files.link("/home/ann/.cargo", "/data/cargo");
        files.link("/home/ann/.nvm", "/home/ann/dot/nvm");
        files.link("/home/ann/.pyenv", "/home/ann/.ssh");
        let spec = spec_for(&["/home/ann/.cargo", "/home/ann/.nvm", "/home/ann/.pyenv"], "/home/ann/w");
        let view = view_of(&spec, &files);
        assert_eq!(view.opened, [Path::new("/home/ann/dot/nvm")]);
        let links = [("/home/ann/.cargo", "/data/cargo"), ("/home/ann/.nvm", "/home/ann/dot/nvm")];
        assert_eq!(view.links, links.map(|(name, to)| (name.into(), to.into())));
    }

    #[test]
    fn a_home_that_contains_system_directories_is_not_hidden() {
        let files = Files::new(&["/w/", "/usr/bin/", "/home/ann/"]);
        for (home, hidden) in [("/", false), ("/usr", false), ("/usr/bin", false), ("/home/ann", true), ("/home", true)]
        {
            let mut spec = spec_for(&[], "/w");
            spec.homes = vec![home.into()];
            assert_eq!(!view_of(&spec, &files).homes.is_empty(), hidden, "{home}");
        }
    }

    #[test]
    fn a_directory_with_a_missing_cache_is_opened_entry_by_entry() {
        let mut files = Files::new(&["/home/ann/w/", "/home/ann/.cargo/bin/", "/home/ann/.cargo/env"]);
        files.link("/home/ann/.cargo/link", "/data");
        let mut spec = spec_for(&["/home/ann/.cargo"], "/home/ann/w");
        spec.caches = vec![Cache { kind: CacheKind::CargoRegistry, path: "/home/ann/.cargo/registry".into() }];
        let view = view_of(&spec, &files);
        assert_eq!(view.opened, ["/home/ann/.cargo/bin", "/home/ann/.cargo/env"].map(Path::new));
        assert_eq!(view.links, [("/home/ann/.cargo/link".into(), "/data".into())]);
        assert_eq!(view.caches, spec.caches);
    }

    #[test]
    fn a_cache_is_no_home_no_store_and_lies_in_a_home() {
        let files = Files::new(&["/home/ann/w/c/", "/home/ann/.ssh/", "/home/ann/.push/", "/etc/", "/home/ann/file"]);
        for path in [
            "/etc",
            "/home/ann",
            "/home",
            "/home/ann/w/c",
            "/home/ann/.ssh",
            "/home/ann/.ssh/x",
            "/home/ann/.push/cache",
            "/home/ann/.cache",
            "/home/ann/file",
            "/home/ann/x/../../bob",
        ] {
            let mut spec = spec_for(&[], "/home/ann/w");
            spec.caches = vec![Cache { kind: CacheKind::Npm, path: path.into() }];
            assert_eq!(view_of(&spec, &files).caches, [], "{path}");
        }
    }

    #[test]
    fn a_hidden_directory_directly_in_a_cache_leaves_the_cache_usable() {
        let files =
            Files::new(&["/home/ann/w/", "/home/ann/.npm/_logs/", "/home/ann/.npm/a/b/", "/home/ann/.npm/file"]);
        for (hidden, usable) in [("_logs", true), ("a/b", false), ("file", false)] {
            let mut spec = spec_for(&[], "/home/ann/w");
            spec.hidden = vec![Path::new("/home/ann/.npm").join(hidden)];
            spec.caches = vec![Cache { kind: CacheKind::Npm, path: "/home/ann/.npm".into() }];
            assert_eq!(!view_of(&spec, &files).caches.is_empty(), usable, "{hidden}");
        }
    }

    #[test]
    fn the_number_of_paths_opened_by_an_environment_is_bounded() {
        let names: Vec<String> = (0..2 * OPENED_MAX).map(|number| format!("/home/ann/d{number}/")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).chain(["/home/ann/w/"]).collect();
        let files = Files::new(&names);
        let paths: Vec<&str> = names.iter().map(|name| name.trim_end_matches('/')).collect();
        assert_eq!(opened(&paths, &files).len(), OPENED_MAX);
    }

    fn opened(paths: &[&str], files: &Files) -> Vec<PathBuf> {
        view_of(&spec_for(paths, "/home/ann/w"), files).opened
    }

    fn view_of(spec: &ConfinementSpec, files: &Files) -> HomeView {
        home_view(spec, files, &plan::hidden_paths(spec, files))
    }

    fn spec_for(opened: &[&str], workspace: &str) -> ConfinementSpec {
        let mut confinement = Confinement::new(workspace.into());
        confinement.homes = vec!["/home/ann".into()];
        confinement.toolchain_paths = opened.iter().map(PathBuf::from).collect();
        confinement.hidden = vec!["/home/ann/.ssh".into()];
        confinement.daemon_paths = vec!["/home/ann/.push".into()];
        confinement.for_step(Mechanism::Namespaces, Path::new("/t"), &StepPermissions::default())
    }
}
