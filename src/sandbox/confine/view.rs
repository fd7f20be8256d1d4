//! What is seen of homes: nothing, except for what is opened in them.
//!
//! Pure, like [`plan`](super::plan), which turns it into mounts. The paths come from the environment of a session, which
//! a client sets: they open what a toolchain may be, read-only, and never a home, a store of credentials, the directories
//! above the workspace or the daemon's own files. What the owner has configured opens more.

use std::path::{Path, PathBuf};

use super::entries::names_credentials;
use super::plan::{Kind, Look, outermost, real_or_would_be, spellings};
use super::toolchain::{Cache, is_installation, is_shared};
use super::{Walls, within};

/// How much is opened because toolchains and the environment name it; each costs every command a mount.
const OPENED_MAX: usize = 64;

/// How many names of a directory are opened one by one.
const ENTRIES_MAX: usize = 64;

/// How many names of a directory are looked through for credentials.
const NAMES_MAX: usize = 4096;

/// What is seen of homes; all paths are absolute and without links.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct HomeView {
    /// The homes that are replaced by an empty directory, the outer without the inner.
    pub(crate) homes: Vec<PathBuf>,
    /// Homes that lie in the workspace: hidden like a store.
    pub(crate) inside: Vec<PathBuf>,
    /// What is put back read-only.
    pub(crate) opened: Vec<PathBuf>,
    /// Names in a home that are links to what may be seen, and what they lead to.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    /// What the owner has opened inside of a store.
    pub(crate) in_stores: Vec<PathBuf>,
    /// Credentials, and copies of them under other names, at the top of what is opened: hidden like a store.
    pub(crate) copies: Vec<PathBuf>,
    /// Caches of which commands have a private copy.
    pub(crate) caches: Vec<Cache>,
}

/// Works out the view; `hidden` is what stays hidden wherever it is seen.
pub(crate) fn view(walls: &Walls, look: &dyn Look, hidden: &[PathBuf]) -> HomeView {
    let Some(workspace) = look.real(&walls.workspace) else { return HomeView::default() };
    let writable: Vec<PathBuf> = walls.writable.iter().filter_map(|path| look.real(path)).collect();
    let mut all: Vec<PathBuf> = walls.homes.iter().filter_map(|home| look.real(home)).collect();
    all.retain(|home| look.kind(home) == Kind::Directory && !holds_the_system(home));
    all.sort();
    all.dedup();
    let (inside, mut homes): (Vec<PathBuf>, Vec<PathBuf>) =
        all.iter().cloned().partition(|home| within(home, &workspace) && *home != workspace);
    // Where the owner lets commands write, the home is open; a workspace is never hidden from itself.
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

/// Whether a command could not run without what is in a directory.
pub(crate) fn holds_the_system(home: &Path) -> bool {
    SYSTEM.iter().any(|place| within(Path::new(place), home))
}

/// Whether a path may be that of a toolchain: it is no home, none is in it, and it is none of the directories that everything is
/// kept in.
pub(crate) fn may_hold_toolchain(path: &Path, homes: &[PathBuf]) -> bool {
    path.parent().is_some()
        && !homes.iter().any(|home| within(home, path))
        && !homes.iter().any(|home| path.strip_prefix(home).is_ok_and(is_shared))
}

/// Whether a directory is one of programs, by its name.
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
    /// Where the daemon's own files are, or would be.
    own: Vec<PathBuf>,
    workspace: PathBuf,
    writable: Vec<PathBuf>,
    /// Every home, also those that are not replaced.
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

    /// Looks for credentials at the top of each directory that is opened, by their names.
    ///
    /// Directories of programs are left alone: a program may well be called like what it reads. So is what the owner has
    /// named, with everything in it.
    fn find_copies(&mut self) {
        let named: Vec<PathBuf> =
            self.walls.readable.iter().filter_map(|path| self.look.real(path)).collect();
        let mut copies = Vec::new();
        for opened in self.view.opened.iter().filter(|opened| !holds_programs(opened)) {
            let names = self.look.entries(opened, NAMES_MAX).unwrap_or_default();
            let names = names.into_iter().filter(|name| names_credentials(name));
            let paths = names.filter_map(|name| self.look.real(&opened.join(name)));
            copies.extend(
                paths.filter(|path| within(path, opened) && !named.iter().any(|named| within(path, named))),
            );
        }
        outermost(&mut copies);
        self.view.copies = copies;
    }

    /// A directory of programs, and the installation that it is part of.
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

    /// Whether what a toolchain or the environment names may be opened.
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

    /// Whether a path lies in what is the daemon's own.
    fn is_own(&self, path: &Path) -> bool {
        self.own.iter().any(|own| within(path, own))
    }

    /// Whether something of the daemon's own lies in a directory, or would once it is made.
    fn holds_own(&self, path: &Path) -> bool {
        self.own.iter().any(|own| within(own, path))
    }

    fn home_of(&self, real: &Path) -> Option<&PathBuf> {
        self.view.homes.iter().find(|home| within(real, home))
    }

    /// The path as a name in a home that is replaced, with links on the way to the home resolved and none below it.
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

    /// A mount needs something to stand on: where a cache is missing in a directory that is opened, the directory is
    /// opened name by name, so that there is room for one name more.
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
                // Too many: the directory stays as it is, and there is no such cache.
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

    /// A link of a directory that is opened name by name, as it is seen without that; it opens nothing.
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
