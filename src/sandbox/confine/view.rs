//! Computes what is visible of homes: only the paths that are opened in them.
//!
//! Pure, like [`plan`](super::plan), which turns the view into mounts. The paths come from the environment of a
//! session, which a client sets. They open possible toolchain directories read-only. They never open a home, a
//! credential store, a directory above the workspace or a file of the daemon. The configuration can open more.

use std::path::{Path, PathBuf};

use super::entries::names_credentials;
use super::plan::{Kind, Look, outermost, real_or_would_be, spellings};
use super::toolchain::{Cache, is_installation, is_shared};
use super::{Walls, within};

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
    pub(crate) inside: Vec<PathBuf>,
    /// Paths that are restored read-only.
    pub(crate) opened: Vec<PathBuf>,
    /// Links in a home to visible paths, with their targets.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    /// Paths inside credential stores that the configuration opens.
    pub(crate) in_stores: Vec<PathBuf>,
    /// Credential files, and copies of them, directly in opened directories; hidden like credential stores.
    pub(crate) copies: Vec<PathBuf>,
    /// Caches of which commands get a private copy.
    pub(crate) caches: Vec<Cache>,
}

/// Computes the view. Paths in `hidden` are never opened by toolchains or the environment.
pub(crate) fn view(walls: &Walls, look: &dyn Look, hidden: &[PathBuf]) -> HomeView {
    let Some(workspace) = look.real(&walls.workspace) else { return HomeView::default() };
    let writable: Vec<PathBuf> = walls.writable.iter().filter_map(|path| look.real(path)).collect();
    let mut all: Vec<PathBuf> = walls.homes.iter().filter_map(|home| look.real(home)).collect();
    all.retain(|home| look.kind(home) == Kind::Directory && !holds_the_system(home));
    all.sort();
    all.dedup();
    let (inside, mut homes): (Vec<PathBuf>, Vec<PathBuf>) =
        all.iter().cloned().partition(|home| within(home, &workspace) && *home != workspace);
    // A home in a writable directory stays visible. A workspace is never hidden from itself.
    homes.retain(|home| *home != workspace && !writable.iter().any(|place| within(home, place)));
    let outer = homes.clone();
    homes.retain(|home| !outer.iter().any(|other| other != home && within(home, other)));
    let own = walls.own.iter().flat_map(|own| spellings(own, &|path| look.real(path))).collect();
    let mut scene = Scene { walls, look, hidden, own, workspace, writable, all, view: HomeView::default() };
    scene.view.homes = homes;
    scene.view.inside = inside;
    scene.open();
    scene.find_copies();
    scene.add_caches();
    scene.make_room_for_caches();
    scene.view
}

/// Returns whether a directory contains system directories without which no command can run.
pub(crate) fn holds_the_system(home: &Path) -> bool {
    SYSTEM.iter().any(|place| within(Path::new(place), home))
}

/// Returns whether a path can be a toolchain directory: it is not a home, contains no home and is not a shared
/// directory such as `.config`.
pub(crate) fn may_hold_toolchain(path: &Path, homes: &[PathBuf]) -> bool {
    path.parent().is_some()
        && !homes.iter().any(|home| within(home, path))
        && !homes.iter().any(|home| path.strip_prefix(home).is_ok_and(is_shared))
}

/// Returns whether a directory contains programs, by its name.
fn holds_programs(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| ["bin", "sbin", "shims", "libexec"].iter().any(|known| name == *known))
}

const SYSTEM: &[&str] = &[
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

struct Scene<'a> {
    walls: &'a Walls,
    look: &'a dyn Look,
    hidden: &'a [PathBuf],
    /// The daemon's files, existing or not, under all their aliases.
    own: Vec<PathBuf>,
    workspace: PathBuf,
    writable: Vec<PathBuf>,
    /// Every home, also homes that are not replaced.
    all: Vec<PathBuf>,
    view: HomeView,
}

impl Scene<'_> {
    fn open(&mut self) {
        let (mut opened, mut links, mut taken) = (Vec::new(), Vec::new(), 0);
        let mut take = |path: &Path, real: PathBuf| {
            if let Some(name) = self.name_in_home(path).filter(|name| *name != real) {
                links.push((name, real.clone()));
            }
            if self.home_of(&real).is_some() {
                opened.push(real);
            }
        };
        for path in self.walls.opened.iter().flat_map(|path| self.with_installation(path)) {
            if taken == OPENED_MAX {
                break;
            }
            if let Some(real) = self.look.real(&path).filter(|real| self.may_be_opened(real)) {
                taken += usize::from(self.home_of(&real).is_some());
                take(&path, real);
            }
        }
        let mut in_stores = Vec::new();
        for path in &self.walls.readable {
            let Some(real) = self.look.real(path).filter(|real| real.parent().is_some()) else { continue };
            if self.is_own(&real) {
                continue;
            }
            if self.hidden.iter().any(|store| within(&real, store)) {
                in_stores.push(real);
            } else {
                take(path, real);
            }
        }
        outermost(&mut opened);
        links.retain(|(name, _)| !opened.iter().any(|opened| within(name, opened) || within(opened, name)));
        links.sort();
        links.dedup_by(|later, earlier| within(&later.0, &earlier.0));
        self.view.opened = opened;
        self.view.links = links;
        self.view.in_stores = in_stores;
    }

    /// Finds credential files directly in each opened directory, by their names.
    ///
    /// Program directories are skipped, because a program may be named after the file it reads. Paths that the
    /// configuration names are skipped too, with everything below them. A directory that cannot be listed is not
    /// opened.
    fn find_copies(&mut self) {
        let named: Vec<PathBuf> =
            self.walls.readable.iter().filter_map(|path| self.look.real(path)).collect();
        let is_named = |path: &Path| named.iter().any(|named| within(path, named));
        let (mut copies, mut opened) = (Vec::new(), Vec::new());
        for path in std::mem::take(&mut self.view.opened) {
            let searched =
                self.look.kind(&path) == Kind::Directory && !holds_programs(&path) && !is_named(&path);
            let names = if searched { self.look.entries(&path, NAMES_MAX) } else { Some(Vec::new()) };
            // A directory that cannot be searched may contain copies, so it is not opened.
            let Some(names) = names else { continue };
            let names = names.into_iter().filter(|name| names_credentials(name));
            let paths = names.filter_map(|name| self.look.real(&path.join(name)));
            copies.extend(paths.filter(|copy| within(copy, &path) && !is_named(copy)));
            opened.push(path);
        }
        outermost(&mut copies);
        self.view.copies = copies;
        self.view.opened = opened;
    }

    /// Returns a program directory, and the installation that it belongs to.
    fn with_installation(&self, path: &Path) -> Vec<PathBuf> {
        let mut paths = vec![path.to_owned()];
        if let (Some(above), Some(name)) = (path.parent(), path.file_name())
            && self.look.kind(path) == Kind::Directory
            && is_installation(name, &|name| self.look.kind(&above.join(name)) == Kind::Directory)
        {
            paths.push(above.to_owned());
        }
        paths
    }

    /// Returns whether a path that a toolchain or the environment names may be opened.
    fn may_be_opened(&self, real: &Path) -> bool {
        may_hold_toolchain(real, &self.all)
            && !within(&self.workspace, real)
            && !self.is_written(real)
            && !self.hidden.iter().any(|hidden| within(real, hidden))
            && !self.holds_own(real)
    }

    fn is_written(&self, path: &Path) -> bool {
        within(path, &self.workspace) || self.writable.iter().any(|place| within(path, place))
    }

    /// Returns whether a path is a daemon path or lies below one.
    fn is_own(&self, path: &Path) -> bool {
        self.own.iter().any(|own| within(path, own))
    }

    /// Returns whether a daemon path lies in a directory, or would lie there once it is created.
    fn holds_own(&self, path: &Path) -> bool {
        self.own.iter().any(|own| within(own, path))
    }

    fn home_of(&self, real: &Path) -> Option<&PathBuf> {
        self.view.homes.iter().find(|home| within(real, home))
    }

    /// Returns the path inside a replaced home, with links resolved up to the home and not below it.
    fn name_in_home(&self, path: &Path) -> Option<PathBuf> {
        let spelled = self.walls.homes.iter().filter_map(|home| {
            let inner = path.strip_prefix(home).ok()?;
            Some(self.look.real(home)?.join(inner))
        });
        spelled.chain([path.to_owned()]).find(|name| self.home_of(name).is_some())
    }

    fn add_caches(&mut self) {
        let mut caches: Vec<Cache> = Vec::new();
        for cache in &self.walls.caches {
            let Some(path) = real_or_would_be(&cache.path, self.look) else { continue };
            let kind = self.look.kind(&path);
            let fits = self.home_of(&path).is_some()
                && matches!(kind, Kind::Directory | Kind::Missing)
                && self.may_be_opened(&path)
                && !self.hidden.iter().any(|hidden| within(hidden, &path))
                && !caches.iter().any(|other| within(&path, &other.path) || within(&other.path, &path));
            if fits {
                caches.push(Cache { kind: cache.kind, path });
            }
        }
        caches.sort_by(|one, other| one.path.cmp(&other.path));
        self.view.caches = caches;
    }

    /// Opens directories with missing caches entry by entry.
    ///
    /// A mount needs a mount point, which cannot be created in a read-only directory. Where a cache is missing in an
    /// opened directory, the entries of the directory are opened instead, so that the mount point can be created
    /// beside them.
    fn make_room_for_caches(&mut self) {
        let missing = |path: &Path| self.look.kind(path) == Kind::Missing;
        let wanted: Vec<PathBuf> =
            self.view.caches.iter().map(|cache| cache.path.clone()).filter(|path| missing(path)).collect();
        let mut opened = Vec::new();
        let mut todo = std::mem::take(&mut self.view.opened);
        while let Some(path) = todo.pop() {
            let inside: Vec<&PathBuf> = wanted.iter().filter(|cache| within(cache, &path)).collect();
            if inside.is_empty() {
                opened.push(path);
                continue;
            }
            match self.look.entries(&path, ENTRIES_MAX) {
                Some(names) => {
                    for entry in names.into_iter().map(|name| path.join(name)) {
                        match self.look.kind(&entry) {
                            Kind::Directory | Kind::File => todo.push(entry),
                            Kind::Link => self.view.links.extend(self.link_within(&entry)),
                            Kind::Missing => {}
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
    fn link_within(&self, entry: &Path) -> Option<(PathBuf, PathBuf)> {
        Some((entry.to_owned(), self.look.real(entry)?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{self, tests::Files};
    use super::super::toolchain::CacheKind;
    use super::super::{Confinement, Leave, Way};
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
        let wanted = [".asdf", ".local/bin", "bin", "conda", "work/bin"];
        assert_eq!(opened, wanted.map(|name| Path::new("/home/ann").join(name)));
    }

    #[test]
    fn a_directory_whose_names_cannot_be_listed_is_not_opened() {
        let mut paths: Vec<String> =
            (0..=NAMES_MAX).map(|number| format!("/home/ann/tools/{number}")).collect();
        paths.extend(
            [
                "/home/ann/w/",
                "/home/ann/tools/credentials.bak",
                "/home/ann/few/token",
                "/home/ann/.gitconfig",
            ]
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
        let mut walls = walls(&["/home/ann/projects"], "/home/ann/projects/w");
        assert_eq!(seen(&walls, &files).opened, Vec::<PathBuf>::new(), "siblings of the workspace");
        walls.own = vec!["/home/ann/projects/config.toml".into()];
        walls.workspace = "/home/ann/w".into();
        assert_eq!(seen(&walls, &files).opened, Vec::<PathBuf>::new(), "the configuration would lie there");
    }

    #[test]
    fn a_name_that_is_a_link_leads_where_it_led_if_that_may_be_seen() {
        let mut files =
            Files::new(&["/home/ann/w/", "/data/cargo/", "/home/ann/dot/nvm/", "/home/ann/.ssh/"]);
        files.link("/home/ann/.cargo", "/data/cargo");
        files.link("/home/ann/.nvm", "/home/ann/dot/nvm");
        files.link("/home/ann/.pyenv", "/home/ann/.ssh");
        let walls = walls(&["/home/ann/.cargo", "/home/ann/.nvm", "/home/ann/.pyenv"], "/home/ann/w");
        let view = seen(&walls, &files);
        assert_eq!(view.opened, [Path::new("/home/ann/dot/nvm")]);
        let links = [("/home/ann/.cargo", "/data/cargo"), ("/home/ann/.nvm", "/home/ann/dot/nvm")];
        assert_eq!(view.links, links.map(|(name, to)| (name.into(), to.into())));
    }

    #[test]
    fn a_home_that_holds_the_system_is_not_hidden() {
        let files = Files::new(&["/w/", "/usr/bin/", "/home/ann/"]);
        for (home, hidden) in
            [("/", false), ("/usr", false), ("/usr/bin", false), ("/home/ann", true), ("/home", true)]
        {
            let mut walls = walls(&[], "/w");
            walls.homes = vec![home.into()];
            assert_eq!(!seen(&walls, &files).homes.is_empty(), hidden, "{home}");
        }
    }

    #[test]
    fn a_missing_cache_gets_room_in_a_directory_that_is_opened_name_by_name() {
        let mut files = Files::new(&["/home/ann/w/", "/home/ann/.cargo/bin/", "/home/ann/.cargo/env"]);
        files.link("/home/ann/.cargo/link", "/data");
        let mut walls = walls(&["/home/ann/.cargo"], "/home/ann/w");
        walls.caches =
            vec![Cache { kind: CacheKind::CargoRegistry, path: "/home/ann/.cargo/registry".into() }];
        let view = seen(&walls, &files);
        assert_eq!(view.opened, ["/home/ann/.cargo/bin", "/home/ann/.cargo/env"].map(Path::new));
        assert_eq!(view.links, [("/home/ann/.cargo/link".into(), "/data".into())]);
        assert_eq!(view.caches, walls.caches);
    }

    #[test]
    fn a_cache_is_no_home_no_store_and_lies_in_a_home() {
        let files =
            Files::new(&["/home/ann/w/c/", "/home/ann/.ssh/", "/home/ann/.push/", "/etc/", "/home/ann/file"]);
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
            let mut walls = walls(&[], "/home/ann/w");
            walls.caches = vec![Cache { kind: CacheKind::Npm, path: path.into() }];
            assert_eq!(seen(&walls, &files).caches, [], "{path}");
        }
    }

    #[test]
    fn an_environment_cannot_have_everything_opened_piece_by_piece() {
        let names: Vec<String> = (0..2 * OPENED_MAX).map(|number| format!("/home/ann/d{number}/")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).chain(["/home/ann/w/"]).collect();
        let files = Files::new(&names);
        let paths: Vec<&str> = names.iter().map(|name| name.trim_end_matches('/')).collect();
        assert_eq!(opened(&paths, &files).len(), OPENED_MAX);
    }

    fn opened(paths: &[&str], files: &Files) -> Vec<PathBuf> {
        seen(&walls(paths, "/home/ann/w"), files).opened
    }

    fn seen(walls: &Walls, files: &Files) -> HomeView {
        view(walls, files, &plan::hidden(walls, files))
    }

    fn walls(opened: &[&str], workspace: &str) -> Walls {
        let mut confinement = Confinement::of(workspace.into());
        confinement.homes = vec!["/home/ann".into()];
        confinement.opened = opened.iter().map(PathBuf::from).collect();
        confinement.hidden = vec!["/home/ann/.ssh".into()];
        confinement.own = vec!["/home/ann/.push".into()];
        confinement.walls(Way::Namespaces, Path::new("/t"), &Leave::default())
    }
}
