//! Computes the mounts that form a command's view of the file system, and their order.
//!
//! Pure: the caller answers queries about the file system through [`FileSystem`]. The root starts read-only. Then
//! follow the temporary directory, the homes with their opened paths, the writable directories, the hidden paths and
//! the protected paths. In this order a hidden path stays hidden inside the workspace, and a protected path stays
//! protected everywhere. A directory between a writable directory and a hidden path in it is bind-mounted onto itself,
//! because a mount point cannot be renamed.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use super::view::{HomeView, holds_the_system, view};
use super::{PROTECTED, TEMP, Walls, within};

/// The kind of file at a path. Links are followed, except in the last component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// Anything else that is not a link.
    File,
    /// A symbolic link.
    Link,
    /// The path does not exist.
    Missing,
}

/// The queries about the file system that a plan needs.
pub trait Look {
    /// Returns the kind of file at a path.
    fn kind(&self, path: &Path) -> Kind;
    /// Returns the path with all links resolved, or `None` if it does not exist.
    fn real(&self, path: &Path) -> Option<PathBuf>;
    /// Returns the target of a link, or `None` if the path is not a link.
    fn target(&self, path: &Path) -> Option<PathBuf>;
    /// Returns the names in a directory, or `None` if there are more than `most` or the directory cannot be read.
    fn entries(&self, path: &Path, most: usize) -> Option<Vec<OsString>>;
}

/// One mount; all paths are absolute and without links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mount {
    /// `source` is mounted at `target`, writable.
    Writable {
        /// The mounted directory.
        source: PathBuf,
        /// The mount point.
        target: PathBuf,
    },
    /// The path is made read-only in place.
    ReadOnly(PathBuf),
    /// An empty, read-only directory.
    Empty(PathBuf),
    /// An empty, read-only file.
    Blank(PathBuf),
    /// The original file or directory, exposed again read-only inside an emptied directory.
    Again(PathBuf),
    /// A private copy of a cache: an overlay with the original as its lower layer.
    Overlay {
        /// The mount point.
        target: PathBuf,
        /// The home that contains the cache. One overlay serves all caches of a home, because each mount costs every
        /// command time.
        home: PathBuf,
        /// The directory that holds the layers of that overlay.
        layers: PathBuf,
        /// The directory that is mounted if the system does not support overlays.
        plain: PathBuf,
    },
    /// A symbolic link in an emptied directory.
    Link {
        /// The path of the link.
        path: PathBuf,
        /// The target of the link.
        says: PathBuf,
    },
}

/// Why no plan can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The workspace is the root directory.
    WorkspaceIsRoot,
    /// The workspace does not exist or is not a directory.
    WorkspaceIsMissing,
    /// The path of the workspace now contains a link; it had none when the session started.
    WorkspaceIsReplaced,
    /// The workspace lies in a hidden directory.
    WorkspaceIsHidden,
    /// A protected path is a link, which a command could replace.
    ProtectedIsLink,
    /// A file that the daemon trusts or keeps secret lies in a writable directory.
    OwnIsWritable,
    /// The workspace is a home directory, which has to be hidden from commands.
    WorkspaceIsHome,
}

/// The hidden and the opened paths. Resolving them reads many files, so it is done once.
pub(crate) struct Survey {
    hidden: Vec<PathBuf>,
    view: HomeView,
}

impl Survey {
    /// Resolves the paths of a specification; reads the file system.
    pub(crate) fn of(walls: &Walls, look: &dyn Look) -> Self {
        let hidden = hidden(walls, look);
        let view = view(walls, look, &hidden);
        Self { hidden, view }
    }
}

/// Computes the mounts in the order in which they are made.
pub(crate) fn plan(walls: &Walls, look: &dyn Look, survey: &Survey) -> Result<Vec<Mount>, Flaw> {
    let Survey { hidden, view } = survey;
    let workspace = usable_workspace(walls, look, hidden)?;
    let mut hidden = hidden.clone();
    hidden.extend(view.inside.iter().chain(&view.copies).cloned());
    outermost(&mut hidden);
    let mut plan = sockets(walls, look);
    if workspace != Path::new(TEMP) {
        plan.push(Mount::Writable { source: walls.temp.clone(), target: TEMP.into() });
    }
    check_places(walls, look)?;
    let places = places(walls, look);
    plan.extend(homes(view, walls, look));
    let places = with_those_above(&hidden, places);
    plan.extend(places.into_iter().map(|place| Mount::Writable { source: place.clone(), target: place }));
    for path in hidden {
        if is_visible(&path, &plan) {
            plan.push(match look.kind(&path) {
                Kind::Directory => Mount::Empty(path),
                Kind::File | Kind::Link | Kind::Missing => Mount::Blank(path),
            });
        }
    }
    plan.extend(view.in_stores.iter().cloned().map(Mount::Again));
    for path in &walls.protected {
        let may_be_missing = PROTECTED.iter().any(|name| *path == walls.workspace.join(name));
        // The path of the workspace may contain links; the protected paths below it may not.
        let path = match path.strip_prefix(&walls.workspace) {
            Ok(inner) => workspace.join(inner),
            Err(_) => path.clone(),
        };
        match look.kind(&path) {
            Kind::Link => return Err(Flaw::ProtectedIsLink),
            // A link above the path, or a missing path, means that a directory was replaced: the protection would miss
            // the real file.
            Kind::Directory | Kind::File if look.real(&path).as_ref() != Some(&path) => {
                return Err(Flaw::ProtectedIsLink);
            }
            Kind::Missing if !may_be_missing => return Err(Flaw::ProtectedIsLink),
            Kind::Directory | Kind::File if is_visible(&path, &plan) => plan.push(Mount::ReadOnly(path)),
            Kind::Directory | Kind::File | Kind::Missing => {}
        }
    }
    Ok(plan)
}

/// Returns the mounts that empty the homes, restore the opened paths in them and add the private copies of caches.
fn homes(view: &HomeView, walls: &Walls, look: &dyn Look) -> Vec<Mount> {
    let mut plan: Vec<Mount> = view.homes.iter().cloned().map(Mount::Empty).collect();
    plan.extend(view.opened.iter().cloned().map(Mount::Again));
    plan.extend(view.links.iter().map(|(path, says)| Mount::Link { path: path.clone(), says: says.clone() }));
    for cache in &view.caches {
        let (target, plain) = (cache.path.clone(), walls.cache_store.join(cache.kind.name()));
        let home = view.homes.iter().find(|home| within(&target, home)).cloned();
        plan.push(match (look.kind(&target), home) {
            (Kind::Directory, Some(home)) => {
                let name = home.to_string_lossy().replace('/', "!");
                Mount::Overlay { target, layers: walls.cache_store.join(name), home, plain }
            }
            (Kind::Directory | Kind::File | Kind::Link | Kind::Missing, _) => {
                Mount::Writable { source: plain, target }
            }
        });
    }
    plan
}

/// Returns the writable directories, outer before inner.
fn places(walls: &Walls, look: &dyn Look) -> Vec<PathBuf> {
    let all = walls.writable.iter().chain([&walls.workspace]);
    let mut places: Vec<PathBuf> = all.filter_map(|path| look.real(path)).collect();
    places.retain(|place| look.kind(place) == Kind::Directory && place.parent().is_some());
    places.sort();
    places.dedup();
    places
}

/// Returns the resolved path of the workspace, or the reason why no command can be confined to it.
///
/// The path of a workspace with a known identity has no links. A link in it means that the workspace or a directory
/// above it was replaced.
pub(crate) fn usable_workspace(walls: &Walls, look: &dyn Look, hidden: &[PathBuf]) -> Result<PathBuf, Flaw> {
    let workspace = look.real(&walls.workspace).ok_or(Flaw::WorkspaceIsMissing)?;
    if look.kind(&workspace) != Kind::Directory {
        return Err(Flaw::WorkspaceIsMissing);
    }
    if workspace.parent().is_none() {
        return Err(Flaw::WorkspaceIsRoot);
    }
    if walls.workspace_id.is_some() && workspace != walls.workspace {
        return Err(Flaw::WorkspaceIsReplaced);
    }
    if hidden.iter().any(|hidden| within(&workspace, hidden)) {
        return Err(Flaw::WorkspaceIsHidden);
    }
    Ok(workspace)
}

/// Refuses a confinement in which a command could create, move or replace a daemon path, or in which the workspace is a
/// home.
///
/// A directory that the configuration makes writable may be a home, because the configuration names it explicitly.
pub(crate) fn check_places(walls: &Walls, look: &dyn Look) -> Result<(), Flaw> {
    if owns_part_of(&places(walls, look), walls, look) {
        return Err(Flaw::OwnIsWritable);
    }
    let workspace = look.real(&walls.workspace);
    let is_workspace = |home: &PathBuf| {
        let home = look.real(home).filter(|home| !holds_the_system(home));
        home.is_some() && home == workspace
    };
    if walls.homes.iter().any(is_workspace) { Err(Flaw::WorkspaceIsHome) } else { Ok(()) }
}

/// Returns whether a daemon path lies in one of these directories, or would lie there once it is created.
fn owns_part_of(places: &[PathBuf], walls: &Walls, look: &dyn Look) -> bool {
    let inside = |path: &PathBuf| places.iter().any(|place| within(path, place));
    walls.own.iter().any(|own| spellings(own, &|path| look.real(path)).iter().any(inside))
}

/// Returns every path whose change would change what `path` leads to: its resolved path and, for each component that
/// exists, the directory entry of that component. A link counts both as itself and as its target.
pub(crate) fn spellings(path: &Path, real: &dyn Fn(&Path) -> Option<PathBuf>) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = real(path).into_iter().collect();
    for part in path.ancestors() {
        let (Some(above), Some(name)) = (part.parent().and_then(real), part.file_name()) else { continue };
        let rest = path.strip_prefix(part).unwrap_or(Path::new(""));
        all.push(above.join(name).join(rest).components().collect());
    }
    all.sort();
    all.dedup();
    all
}

/// Returns these directories and every directory between one of them and a hidden path in it, outer before inner.
fn with_those_above(hidden: &[PathBuf], places: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut all = places.clone();
    for path in hidden {
        // `places` is sorted, so the first match is the outermost.
        if let Some(place) = places.iter().find(|place| within(path, place)) {
            let between = path.ancestors().skip(1).take_while(|above| above != place);
            all.extend(between.map(Path::to_owned));
        }
    }
    all.sort();
    all.dedup();
    all
}

/// Returns the hidden paths that exist, sorted, without paths that lie in other hidden paths.
pub(crate) fn hidden(walls: &Walls, look: &dyn Look) -> Vec<PathBuf> {
    let wanted = walls.hidden.iter().chain(&walls.own);
    let mut all: Vec<PathBuf> = wanted.filter_map(|path| look.real(path)).collect();
    all.retain(|path| path.parent().is_some());
    outermost(&mut all);
    all
}

/// Sorts paths and removes those that lie below others.
pub(super) fn outermost(paths: &mut Vec<PathBuf>) {
    paths.sort();
    let mut kept: Vec<PathBuf> = Vec::new();
    for path in paths.drain(..) {
        if !kept.iter().any(|outer| within(&path, outer)) {
            kept.push(path);
        }
    }
    *paths = kept;
}

/// Returns the path with all links resolved, also if its last components do not exist.
pub(super) fn real_or_would_be(path: &Path, look: &dyn Look) -> Option<PathBuf> {
    let there = path.ancestors().find(|part| look.kind(part) != Kind::Missing)?;
    let inner = path.strip_prefix(there).ok()?;
    // A `..` in the missing part cannot be resolved before the part exists.
    inner.components().all(|part| matches!(part, Component::Normal(_))).then_some(())?;
    // Collecting the components removes the trailing slash that joining an empty path leaves.
    Some(look.real(there)?.join(inner).components().collect())
}

/// Returns whether the original file is still visible at a path after these mounts.
fn is_visible(path: &Path, plan: &[Mount]) -> bool {
    let last = plan.iter().rev().find(|mount| within(path, mount.place()));
    match last {
        None => true,
        Some(Mount::Writable { source, target }) => source == target,
        Some(Mount::ReadOnly(_) | Mount::Again(_) | Mount::Overlay { .. }) => true,
        Some(Mount::Empty(_) | Mount::Blank(_) | Mount::Link { .. }) => false,
    }
}

impl Mount {
    fn place(&self) -> &Path {
        match self {
            Self::Writable { target, .. } | Self::Overlay { target, .. } => target,
            Self::ReadOnly(path) | Self::Empty(path) | Self::Blank(path) | Self::Again(path) => path,
            Self::Link { path, .. } => path,
        }
    }
}

/// Returns the mounts that empty the directories of service sockets and restore everything in them that is not a
/// service.
fn sockets(walls: &Walls, look: &dyn Look) -> Vec<Mount> {
    let mut plan = Vec::new();
    for place in ["/run", "/var/run"].map(Path::new) {
        if look.kind(place) != Kind::Directory || look.real(place).as_deref() != Some(place) {
            continue;
        }
        plan.push(Mount::Empty(place.to_owned()));
        for link in PROGRAMS.map(Path::new).into_iter().filter(|link| within(link, place)) {
            if look.kind(link) == Kind::Link
                && let Some(says) = look.real(link)
            {
                plan.push(Mount::Link { path: link.to_owned(), says });
            }
        }
        if walls.network {
            plan.extend(resolver(place, look));
        }
    }
    plan
}

/// Returns the mounts that restore the chain of links from `/etc/resolv.conf` to its file, as far as it lies in
/// `place`.
fn resolver(place: &Path, look: &dyn Look) -> Vec<Mount> {
    let (mut plan, mut path) = (Vec::new(), PathBuf::from(RESOLVER));
    let Some(file) = look.real(&path) else { return plan };
    for _ in 0..LINKS_MAX {
        let Some(target) = look.target(&path) else { break };
        let target = path.parent().unwrap_or(Path::new("/")).join(target);
        let above = target.parent().and_then(|above| look.real(above));
        let (Some(above), Some(name)) = (above, target.file_name()) else { break };
        path = above.join(name);
        if within(&path, place) && path != file {
            plan.push(Mount::Link { path: path.clone(), says: file.clone() });
        }
    }
    if within(&file, place) {
        plan.push(Mount::Again(file));
    }
    plan
}

/// The path of the resolver configuration.
const RESOLVER: &str = "/etc/resolv.conf";

/// How many links are followed; the kernel's limit.
const LINKS_MAX: usize = 40;

/// Links to programs that some systems keep in the directories of service sockets.
const PROGRAMS: [&str; 2] = ["/run/current-system", "/run/booted-system"];

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::super::toolchain::{self, Cache, CacheKind};
    use super::super::{Confinement, Leave, Way, credential_stores};
    use super::*;

    fn plan(walls: &Walls, look: &dyn Look) -> Result<Vec<Mount>, Flaw> {
        super::plan(walls, look, &Survey::of(walls, look))
    }

    #[test]
    fn a_workspace_is_writable_and_its_protected_parts_are_not() {
        let files =
            Files::new(&["/run/", "/tmp/", "/w/.git/", "/w/.push/", "/home/ann/.ssh/", "/home/ann/.netrc"]);
        let mut confinement = Confinement::of("/w".into());
        confinement.hidden =
            vec!["/home/ann/.ssh".into(), "/home/ann/.netrc".into(), "/home/ann/.aws".into()];
        let mounts = plan(&walls(&confinement), &files).unwrap();
        assert_eq!(
            mounts,
            [
                Mount::Empty("/run".into()),
                writable("/t/files", "/tmp"),
                writable("/w", "/w"),
                Mount::Blank("/home/ann/.netrc".into()),
                Mount::Empty("/home/ann/.ssh".into()),
                Mount::ReadOnly("/w/.git".into()),
                Mount::ReadOnly("/w/.push".into()),
            ]
        );
    }

    #[test]
    fn a_part_of_the_git_directory_that_was_exchanged_or_taken_away_is_refused() {
        let mut files =
            Files::new(&["/tmp/", "/w/.git/config", "/w/.git/worktrees/side/gitdir", "/home/ann/bin/"]);
        let leave = Leave {
            writable: vec!["/w/.git".into(), "/w/.git/worktrees".into()],
            closed: vec!["/w/.git/config".into(), "/w/.git/worktrees/side".into()],
            ..Leave::default()
        };
        let confinement = Confinement::of("/w".into());
        let walls = confinement.walls(Way::Namespaces, Path::new("/t"), &leave);
        let mounts = plan(&walls, &files).unwrap();
        assert!(mounts.contains(&Mount::ReadOnly("/w/.git/worktrees/side".into())));
        assert!(mounts.contains(&writable("/w/.git/worktrees", "/w/.git/worktrees")));
        // The writable directory is a link now, and the protected path is missing.
        files.0.retain(|path, _| !path.starts_with("/w/.git/worktrees"));
        files.link("/w/.git/worktrees", "/home/ann/bin");
        assert_eq!(plan(&walls, &files), Err(Flaw::ProtectedIsLink));
    }

    #[test]
    fn what_is_hidden_stays_hidden_inside_the_workspace() {
        let files = Files::new(&["/tmp/", "/home/ann/.push/run/", "/home/ann/.git/"]);
        let mut confinement = Confinement::of("/home/ann".into());
        confinement.hidden = vec!["/home/ann/.push".into(), "/home/ann/.push/run".into()];
        let mounts = plan(&walls(&confinement), &files).unwrap();
        assert_eq!(
            mounts,
            [
                writable("/t/files", "/tmp"),
                writable("/home/ann", "/home/ann"),
                Mount::Empty("/home/ann/.push".into()),
                Mount::ReadOnly("/home/ann/.git".into()),
            ]
        );
    }

    #[test]
    fn what_the_temporary_directory_covers_needs_no_hiding_unless_it_is_shown_again() {
        let files = Files::new(&["/tmp/a/", "/tmp/secret/", "/tmp/a/secret/"]);
        let mut confinement = Confinement::of("/tmp/a".into());
        confinement.hidden = vec!["/tmp/secret".into(), "/tmp/a/secret".into()];
        let mounts = plan(&walls(&confinement), &files).unwrap();
        assert_eq!(
            mounts,
            [
                writable("/t/files", "/tmp"),
                writable("/tmp/a", "/tmp/a"),
                Mount::Empty("/tmp/a/secret".into())
            ]
        );
    }

    #[test]
    fn links_are_resolved_and_those_that_could_be_exchanged_are_refused() {
        let mut files = Files::new(&["/tmp/", "/real/w/", "/real/keys/"]);
        files.link("/w", "/real/w");
        files.link("/home/ann/.ssh", "/real/keys");
        let mut confinement = Confinement::of("/w".into());
        confinement.hidden = vec!["/home/ann/.ssh".into()];
        let mounts = plan(&walls(&confinement), &files).unwrap();
        assert_eq!(
            mounts,
            [writable("/t/files", "/tmp"), writable("/real/w", "/real/w"), Mount::Empty("/real/keys".into())]
        );
        files.link("/real/w/.git", "/real/keys");
        assert_eq!(plan(&walls(&confinement), &files), Err(Flaw::ProtectedIsLink));
    }

    #[test]
    fn a_workspace_that_cannot_be_confined_is_refused() {
        let files = Files::new(&["/tmp/", "/home/ann/.push/state/", "/file"]);
        for (workspace, flaw) in [
            ("/", Flaw::WorkspaceIsRoot),
            ("/none", Flaw::WorkspaceIsMissing),
            ("/file", Flaw::WorkspaceIsMissing),
            ("/home/ann/.push", Flaw::WorkspaceIsHidden),
            ("/home/ann/.push/state", Flaw::WorkspaceIsHidden),
        ] {
            let mut confinement = Confinement::of(workspace.into());
            confinement.hidden = vec!["/home/ann/.push".into()];
            assert_eq!(plan(&walls(&confinement), &files), Err(flaw), "{workspace}");
        }
    }

    #[test]
    fn there_are_no_walls_where_the_daemons_own_could_be_made_moved_or_exchanged() {
        let mut files =
            Files::new(&["/tmp/", "/home/ann/w/", "/home/ann/.push/", "/srv/c/", "/data/config/"]);
        files.link("/srv/c/link", "/data/config");
        for (own, workspace, writable, fine) in [
            // It does not exist yet.
            ("/home/ann/.config/push/config.toml", "/home/ann", "/none", false),
            ("/home/ann/.config/push/config.toml", "/home", "/none", false),
            ("/home/ann/.push", "/home/ann", "/none", false),
            ("/home/ann/.push", "/home/ann/w", "/home/ann", false),
            ("/home/ann/w/push.toml", "/home/ann/w", "/none", false),
            // The link in the path could be replaced; its target could be changed.
            ("/srv/c/link", "/srv/c", "/none", false),
            ("/srv/c/link", "/data", "/none", false),
            ("/home/ann/.push", "/home/ann/w", "/srv/c", true),
            ("/home/ann/.config/push/config.toml", "/home/ann/w", "/none", true),
            ("/home/ann/wide", "/home/ann/w", "/none", true),
        ] {
            let mut confinement = Confinement::of(workspace.into());
            confinement.own = vec![own.into()];
            confinement.writable = vec![writable.into()];
            let walls = walls(&confinement);
            let flaw = plan(&walls, &files).err();
            assert_eq!(flaw, (!fine).then_some(Flaw::OwnIsWritable), "{own} in {workspace}, {writable}");
            assert_eq!(check_places(&walls, &files).is_ok(), fine);
        }
    }

    #[test]
    fn what_lies_above_something_hidden_is_held_in_its_place() {
        let files = Files::new(&["/tmp/", "/w/a/b/key", "/w/a/b/pin", "/w/c/", "/other/d/key"]);
        let mut confinement = Confinement::of("/w".into());
        confinement.hidden = vec!["/w/a/b/key".into(), "/w/a/b/pin".into(), "/other/d/key".into()];
        let mounts = plan(&walls(&confinement), &files).unwrap();
        assert_eq!(
            mounts,
            [
                writable("/t/files", "/tmp"),
                writable("/w", "/w"),
                writable("/w/a", "/w/a"),
                writable("/w/a/b", "/w/a/b"),
                Mount::Blank("/other/d/key".into()),
                Mount::Blank("/w/a/b/key".into()),
                Mount::Blank("/w/a/b/pin".into()),
            ]
        );
    }

    #[test]
    fn the_resolver_is_put_back_with_the_network_and_programs_always() {
        let mut files = Files::new(&["/run/systemd/resolve/stub.conf", "/tmp/", "/w/", "/nix/store/x/"]);
        files.link("/etc/resolv.conf", "/run/systemd/resolve/stub.conf");
        files.link("/run/current-system", "/nix/store/x");
        files.link("/var/run", "/run");
        let mut confinement = Confinement::of("/w".into());
        let link = Mount::Link { path: "/run/current-system".into(), says: "/nix/store/x".into() };
        let without = plan(&walls(&confinement), &files).unwrap();
        assert_eq!(without[..2], [Mount::Empty("/run".into()), link.clone()]);
        assert_eq!(without.len(), 4);
        confinement.network = true;
        let with = plan(&walls(&confinement), &files).unwrap();
        assert_eq!(with[..2], without[..2]);
        assert_eq!(with[2], Mount::Again("/run/systemd/resolve/stub.conf".into()));
        // A link may lead to another link in a hidden directory.
        files.link("/etc/resolv.conf", "/run/resolvconf/resolv.conf");
        files.link("/run/resolvconf/resolv.conf", "/run/systemd/resolve/stub.conf");
        let chained = Files::new(&["/run/resolvconf/", "/etc/"]);
        files.0.extend(chained.0);
        let with = plan(&walls(&confinement), &files).unwrap();
        let says = "/run/systemd/resolve/stub.conf".into();
        assert_eq!(with[2], Mount::Link { path: "/run/resolvconf/resolv.conf".into(), says });
        assert_eq!(with[3], Mount::Again("/run/systemd/resolve/stub.conf".into()));
    }

    #[test]
    fn more_places_may_be_written_the_outer_before_the_inner() {
        let files = Files::new(&["/tmp/", "/home/ann/.cargo/", "/home/ann/w/"]);
        let mut confinement = Confinement::of("/home/ann/w".into());
        confinement.writable =
            vec!["/home/ann/w".into(), "/home/ann/.cargo".into(), "/none".into(), "/".into()];
        let mounts = plan(&walls(&confinement), &files).unwrap();
        assert_eq!(
            mounts,
            [
                writable("/t/files", "/tmp"),
                writable("/home/ann/.cargo", "/home/ann/.cargo"),
                writable("/home/ann/w", "/home/ann/w"),
            ]
        );
    }

    #[test]
    fn a_home_is_empty_except_for_what_is_opened_and_the_workspace_in_it() {
        let files = Files::new(&[
            "/tmp/",
            "/home/ann/w/.git/",
            "/home/ann/.ssh/",
            "/home/ann/.bash_history",
            "/home/ann/.cargo/bin/",
            "/home/ann/.cargo/credentials.toml",
            "/home/ann/.cargo/registry/",
            "/home/ann/.gitconfig",
        ]);
        let home = Path::new("/home/ann");
        let mut confinement = Confinement::of("/home/ann/w".into());
        confinement.homes = vec![home.into()];
        confinement.opened = toolchain::defaults(home);
        confinement.hidden = credential_stores(home);
        let mut walls = walls(&confinement);
        walls.cache_store = "/store".into();
        walls.caches = vec![
            Cache { kind: CacheKind::CargoRegistry, path: "/home/ann/.cargo/registry".into() },
            Cache { kind: CacheKind::Pip, path: "/home/ann/.cache/pip".into() },
        ];
        assert_eq!(
            plan(&walls, &files).unwrap(),
            [
                writable("/t/files", "/tmp"),
                Mount::Empty("/home/ann".into()),
                Mount::Again("/home/ann/.cargo".into()),
                Mount::Again("/home/ann/.gitconfig".into()),
                writable("/store/pip", "/home/ann/.cache/pip"),
                Mount::Overlay {
                    target: "/home/ann/.cargo/registry".into(),
                    home: "/home/ann".into(),
                    layers: "/store/!home!ann".into(),
                    plain: "/store/cargo-registry".into(),
                },
                writable("/home/ann/w", "/home/ann/w"),
                Mount::Blank("/home/ann/.cargo/credentials.toml".into()),
                Mount::ReadOnly("/home/ann/w/.git".into()),
            ]
        );
    }

    #[test]
    fn a_home_inside_the_workspace_is_hidden_and_one_that_is_the_workspace_is_refused() {
        let mut files = Files::new(&["/tmp/", "/home/ann/.ssh/", "/home/ann/.cargo/"]);
        files.link("/ann", "/home/ann");
        let mut confinement = Confinement::of("/home".into());
        confinement.homes = vec!["/home/ann".into()];
        confinement.opened = vec!["/home/ann/.cargo".into()];
        confinement.hidden = vec!["/home/ann/.ssh".into()];
        assert_eq!(
            plan(&walls(&confinement), &files).unwrap(),
            [writable("/t/files", "/tmp"), writable("/home", "/home"), Mount::Empty("/home/ann".into())]
        );
        // Also without a daemon path in it, and under every alias of the home.
        for (workspace, home) in [("/home/ann", "/home/ann"), ("/home/ann", "/ann"), ("/ann", "/home/ann")] {
            confinement.workspace = workspace.into();
            confinement.homes = vec!["/none".into(), home.into()];
            let walls = walls(&confinement);
            assert_eq!(plan(&walls, &files), Err(Flaw::WorkspaceIsHome), "{workspace} {home}");
            assert_eq!(check_places(&walls, &files), Err(Flaw::WorkspaceIsHome), "{workspace} {home}");
        }
    }

    #[test]
    fn copies_of_credentials_beside_what_toolchains_read_are_hidden() {
        let files = Files::new(&[
            "/tmp/",
            "/w/",
            "/home/ann/.cargo/config.toml",
            "/home/ann/.cargo/credentials.toml.bak",
            "/home/ann/.cargo/bin/token",
            "/home/ann/other/cargo/.credentials.swp",
        ]);
        let mut confinement = Confinement::of("/w".into());
        confinement.homes = vec!["/home/ann".into()];
        confinement.opened = vec!["/home/ann/.cargo".into(), "/home/ann/other/cargo".into()];
        let again = |path: &str| Mount::Again(path.into());
        let blank = |path: &str| Mount::Blank(path.into());
        let mut expected = vec![
            writable("/t/files", "/tmp"),
            Mount::Empty("/home/ann".into()),
            again("/home/ann/.cargo"),
            again("/home/ann/other/cargo"),
            writable("/w", "/w"),
            blank("/home/ann/.cargo/credentials.toml.bak"),
            blank("/home/ann/other/cargo/.credentials.swp"),
        ];
        assert_eq!(plan(&walls(&confinement), &files).unwrap(), expected);
        // A path that `readable` names exactly is visible.
        confinement.readable = vec!["/home/ann/.cargo/credentials.toml.bak".into()];
        expected.remove(5);
        assert_eq!(plan(&walls(&confinement), &files).unwrap(), expected);
    }

    #[test]
    fn a_store_is_opened_again_where_the_owner_names_it() {
        let files = Files::new(&["/tmp/", "/w/", "/home/ann/.ssh/config", "/home/ann/.aws/"]);
        let mut confinement = Confinement::of("/w".into());
        confinement.homes = vec!["/home/ann".into()];
        confinement.hidden = vec!["/home/ann/.ssh".into(), "/home/ann/.aws".into()];
        confinement.readable = vec!["/home/ann/.ssh/config".into(), "/home/ann/.push/state".into()];
        confinement.own = vec!["/home/ann/.push".into()];
        let mounts = plan(&walls(&confinement), &files).unwrap();
        assert_eq!(
            mounts,
            [
                writable("/t/files", "/tmp"),
                Mount::Empty("/home/ann".into()),
                writable("/w", "/w"),
                Mount::Again("/home/ann/.ssh/config".into()),
            ]
        );
    }

    fn walls(confinement: &Confinement) -> Walls {
        confinement.walls(Way::Namespaces, Path::new("/t"), &Leave::default())
    }

    fn writable(source: &str, target: &str) -> Mount {
        Mount::Writable { source: source.into(), target: target.into() }
    }

    /// A file system in memory.
    pub(crate) struct Files(BTreeMap<PathBuf, Option<PathBuf>>);

    impl Files {
        /// Paths of directories end with a slash; parent directories are created.
        pub(crate) fn new(paths: &[&str]) -> Self {
            let mut files = Self(BTreeMap::new());
            for path in paths {
                let kind = if path.ends_with('/') { "dir" } else { "file" };
                files.0.insert(path.trim_end_matches('/').into(), Some(kind.into()));
                for above in Path::new(path).ancestors().skip(1) {
                    files.0.insert(above.to_owned(), Some("dir".into()));
                }
            }
            files
        }

        pub(crate) fn link(&mut self, path: &str, target: &str) {
            self.0.insert(path.into(), Some(target.into()));
        }

        fn says(&self, path: &Path) -> Option<&Path> {
            self.0.get(path)?.as_deref()
        }
    }

    impl Look for Files {
        fn kind(&self, path: &Path) -> Kind {
            match self.says(path) {
                None => Kind::Missing,
                Some(says) if says == Path::new("dir") => Kind::Directory,
                Some(says) if says == Path::new("file") => Kind::File,
                Some(_) => Kind::Link,
            }
        }

        fn real(&self, path: &Path) -> Option<PathBuf> {
            match self.kind(path) {
                Kind::Missing => None,
                Kind::Directory | Kind::File => Some(path.to_owned()),
                Kind::Link => {
                    let says = self.says(path)?;
                    if self.kind(says) == Kind::Link { self.real(says) } else { Some(says.to_owned()) }
                }
            }
        }

        fn target(&self, path: &Path) -> Option<PathBuf> {
            self.says(path).filter(|_| self.kind(path) == Kind::Link).map(Path::to_owned)
        }

        fn entries(&self, path: &Path, most: usize) -> Option<Vec<OsString>> {
            let inside = self.0.keys().filter(|known| known.parent() == Some(path));
            let names: Vec<OsString> = inside.map(|known| known.file_name().unwrap().to_owned()).collect();
            (names.len() <= most).then_some(names)
        }
    }
}
