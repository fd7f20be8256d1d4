//! Computes the mounts that form a command's view of the file system, and their order.
//!
//! Pure: the caller answers queries about the file system through [`FileSystem`]. The root starts read-only. Then
//! follow the temporary directory, the homes with their opened paths, the writable directories, the hidden paths and
//! the protected paths. In this order a hidden path stays hidden inside the workspace, and a protected path stays
//! protected everywhere. A directory between a writable directory and a hidden path in it is bind-mounted onto itself,
//! because a mount point cannot be renamed.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use super::view::{HomeView, contains_system_directories, home_view};
use super::{ConfinementSpec, PROTECTED, TEMP_DIR, is_within};

/// The kind of file at a path. Links are followed, except in the last component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
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
pub trait FileSystem {
    /// Returns the kind of file at a path.
    fn kind(&self, path: &Path) -> PathKind;
    /// Returns the path with all links resolved, or `None` if it does not exist.
    fn canonicalize(&self, path: &Path) -> Option<PathBuf>;
    /// Returns the target of a link, or `None` if the path is not a link.
    fn read_link(&self, path: &Path) -> Option<PathBuf>;
    /// Returns the names in a directory, or `None` if there are more than `limit` or the directory cannot be read.
    fn entry_names(&self, path: &Path, limit: usize) -> Option<Vec<OsString>>;
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
    EmptyDirectory(PathBuf),
    /// An empty, read-only file.
    EmptyFile(PathBuf),
    /// The original file or directory, exposed again read-only inside an emptied directory.
    Restore(PathBuf),
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
        fallback: PathBuf,
    },
    /// A symbolic link in an emptied directory.
    Link {
        /// The path of the link.
        path: PathBuf,
        /// The target of the link.
        target: PathBuf,
    },
}

/// Why no plan can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanError {
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
    DaemonPathIsWritable,
    /// The workspace is a home directory, which has to be hidden from commands.
    WorkspaceIsHome,
}

/// The hidden and the opened paths. Resolving them reads many files, so it is done once.
pub(crate) struct ResolvedPaths {
    hidden: Vec<PathBuf>,
    view: HomeView,
}

impl ResolvedPaths {
    /// Resolves the paths of a specification; reads the file system.
    pub(crate) fn resolve(spec: &ConfinementSpec, files: &dyn FileSystem) -> Self {
        let hidden = hidden_paths(spec, files);
        let view = home_view(spec, files, &hidden);
        Self { hidden, view }
    }
}

/// Computes the mounts in the order in which they are made.
pub(crate) fn plan(
    spec: &ConfinementSpec,
    files: &dyn FileSystem,
    paths: &ResolvedPaths,
) -> Result<Vec<Mount>, PlanError> {
    let ResolvedPaths { hidden, view } = paths;
    let workspace = usable_workspace(spec, files, hidden)?;
    let mut hidden = hidden.clone();
    hidden.extend(view.homes_in_workspace.iter().chain(&view.credential_copies).cloned());
    outermost(&mut hidden);
    let mut plan = socket_directory_mounts(spec, files);
    if workspace != Path::new(TEMP_DIR) {
        plan.push(Mount::Writable { source: spec.temp_source.clone(), target: TEMP_DIR.into() });
    }
    check_writable_roots(spec, files)?;
    let roots = writable_roots(spec, files);
    plan.extend(home_mounts(view, spec, files));
    let roots = with_intermediate_directories(&hidden, roots);
    plan.extend(roots.into_iter().map(|root| Mount::Writable { source: root.clone(), target: root }));
    for path in hidden {
        if is_visible(&path, &plan) {
            plan.push(match files.kind(&path) {
                PathKind::Directory => Mount::EmptyDirectory(path),
                PathKind::File | PathKind::Link | PathKind::Missing => Mount::EmptyFile(path),
            });
        }
    }
    plan.extend(view.opened_in_stores.iter().cloned().map(Mount::Restore));
    for path in &spec.protected {
        let may_be_missing = PROTECTED.iter().any(|name| *path == spec.workspace.join(name));
        // The path of the workspace may contain links; the protected paths below it may not.
        let path = match path.strip_prefix(&spec.workspace) {
            Ok(inner) => workspace.join(inner),
            Err(_) => path.clone(),
        };
        match files.kind(&path) {
            PathKind::Link => return Err(PlanError::ProtectedIsLink),
            // A link above the path, or a missing path, means that a directory was replaced: the protection would miss
            // the real file.
            PathKind::Directory | PathKind::File if files.canonicalize(&path).as_ref() != Some(&path) => {
                return Err(PlanError::ProtectedIsLink);
            }
            PathKind::Missing if !may_be_missing => return Err(PlanError::ProtectedIsLink),
            PathKind::Directory | PathKind::File if is_visible(&path, &plan) => plan.push(Mount::ReadOnly(path)),
            PathKind::Directory | PathKind::File | PathKind::Missing => {}
        }
    }
    Ok(plan)
}

/// Returns the mounts that empty the homes, restore the opened paths in them and add the private copies of caches.
fn home_mounts(view: &HomeView, spec: &ConfinementSpec, files: &dyn FileSystem) -> Vec<Mount> {
    let mut plan: Vec<Mount> = view.homes.iter().cloned().map(Mount::EmptyDirectory).collect();
    plan.extend(view.opened.iter().cloned().map(Mount::Restore));
    plan.extend(view.links.iter().map(|(path, target)| Mount::Link { path: path.clone(), target: target.clone() }));
    for cache in &view.caches {
        let (target, fallback) = (cache.path.clone(), spec.cache_store.join(cache.kind.name()));
        let home = view.homes.iter().find(|home| is_within(&target, home)).cloned();
        plan.push(match (files.kind(&target), home) {
            (PathKind::Directory, Some(home)) => {
                let name = home.to_string_lossy().replace('/', "!");
                Mount::Overlay { target, layers: spec.cache_store.join(name), home, fallback }
            }
            (PathKind::Directory | PathKind::File | PathKind::Link | PathKind::Missing, _) => {
                Mount::Writable { source: fallback, target }
            }
        });
    }
    plan
}

/// Returns the writable directories, outer before inner.
fn writable_roots(spec: &ConfinementSpec, files: &dyn FileSystem) -> Vec<PathBuf> {
    let all = spec.writable.iter().chain([&spec.workspace]);
    let mut roots: Vec<PathBuf> = all.filter_map(|path| files.canonicalize(path)).collect();
    roots.retain(|root| files.kind(root) == PathKind::Directory && root.parent().is_some());
    roots.sort();
    roots.dedup();
    roots
}

/// Returns the resolved path of the workspace, or the reason why no command can be confined to it.
///
/// The path of a workspace with a known identity has no links. A link in it means that the workspace or a directory
/// above it was replaced.
pub(crate) fn usable_workspace(
    spec: &ConfinementSpec,
    files: &dyn FileSystem,
    hidden: &[PathBuf],
) -> Result<PathBuf, PlanError> {
    let workspace = files.canonicalize(&spec.workspace).ok_or(PlanError::WorkspaceIsMissing)?;
    if files.kind(&workspace) != PathKind::Directory {
        return Err(PlanError::WorkspaceIsMissing);
    }
    if workspace.parent().is_none() {
        return Err(PlanError::WorkspaceIsRoot);
    }
    if spec.workspace_id.is_some() && workspace != spec.workspace {
        return Err(PlanError::WorkspaceIsReplaced);
    }
    if hidden.iter().any(|hidden| is_within(&workspace, hidden)) {
        return Err(PlanError::WorkspaceIsHidden);
    }
    Ok(workspace)
}

/// Refuses a confinement in which a command could create, move or replace a daemon path, or in which the workspace is a
/// home.
///
/// A directory that the configuration makes writable may be a home, because the configuration names it explicitly.
pub(crate) fn check_writable_roots(spec: &ConfinementSpec, files: &dyn FileSystem) -> Result<(), PlanError> {
    if contains_daemon_path(&writable_roots(spec, files), spec, files) {
        return Err(PlanError::DaemonPathIsWritable);
    }
    let workspace = files.canonicalize(&spec.workspace);
    let is_workspace = |home: &PathBuf| {
        let home = files.canonicalize(home).filter(|home| !contains_system_directories(home));
        home.is_some() && home == workspace
    };
    if spec.homes.iter().any(is_workspace) { Err(PlanError::WorkspaceIsHome) } else { Ok(()) }
}

/// Returns whether a daemon path lies in one of these directories, or would lie there once it is created.
fn contains_daemon_path(roots: &[PathBuf], spec: &ConfinementSpec, files: &dyn FileSystem) -> bool {
    let inside = |path: &PathBuf| roots.iter().any(|root| is_within(path, root));
    spec.daemon_paths.iter().any(|own| path_aliases(own, &|path| files.canonicalize(path)).iter().any(inside))
}

/// Returns every path whose change would change what `path` leads to: its resolved path and, for each component that
/// exists, the directory entry of that component. A link counts both as itself and as its target.
pub(crate) fn path_aliases(path: &Path, real: &dyn Fn(&Path) -> Option<PathBuf>) -> Vec<PathBuf> {
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
fn with_intermediate_directories(hidden: &[PathBuf], roots: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut all = roots.clone();
    for path in hidden {
        // `places` is sorted, so the first match is the outermost.
        if let Some(root) = roots.iter().find(|root| is_within(path, root)) {
            let between = path.ancestors().skip(1).take_while(|above| above != root);
            all.extend(between.map(Path::to_owned));
        }
    }
    all.sort();
    all.dedup();
    all
}

/// Returns the hidden paths that exist, sorted, without paths that lie in other hidden paths.
pub(crate) fn hidden_paths(spec: &ConfinementSpec, files: &dyn FileSystem) -> Vec<PathBuf> {
    let hidden = spec.hidden.iter().chain(&spec.daemon_paths);
    let mut all: Vec<PathBuf> = hidden.filter_map(|path| files.canonicalize(path)).collect();
    all.retain(|path| path.parent().is_some());
    outermost(&mut all);
    all
}

/// Sorts paths and removes those that lie below others.
pub(super) fn outermost(paths: &mut Vec<PathBuf>) {
    paths.sort();
    let mut outermost: Vec<PathBuf> = Vec::new();
    for path in paths.drain(..) {
        if !outermost.iter().any(|outer| is_within(&path, outer)) {
            outermost.push(path);
        }
    }
    *paths = outermost;
}

/// Returns the path with all links resolved, also if its last components do not exist.
pub(super) fn canonicalize_partial(path: &Path, files: &dyn FileSystem) -> Option<PathBuf> {
    let existing = path.ancestors().find(|part| files.kind(part) != PathKind::Missing)?;
    let inner = path.strip_prefix(existing).ok()?;
    // A `..` in the missing part cannot be resolved before the part exists.
    inner.components().all(|part| matches!(part, Component::Normal(_))).then_some(())?;
    // Collecting the components removes the trailing slash that joining an empty path leaves.
    Some(files.canonicalize(existing)?.join(inner).components().collect())
}

/// Returns whether the original file is still visible at a path after these mounts.
fn is_visible(path: &Path, plan: &[Mount]) -> bool {
    let last = plan.iter().rev().find(|mount| is_within(path, mount.target_path()));
    match last {
        None => true,
        Some(Mount::Writable { source, target }) => source == target,
        Some(Mount::ReadOnly(_) | Mount::Restore(_) | Mount::Overlay { .. }) => true,
        Some(Mount::EmptyDirectory(_) | Mount::EmptyFile(_) | Mount::Link { .. }) => false,
    }
}

impl Mount {
    fn target_path(&self) -> &Path {
        match self {
            Self::Writable { target, .. } | Self::Overlay { target, .. } => target,
            Self::ReadOnly(path) | Self::EmptyDirectory(path) | Self::EmptyFile(path) | Self::Restore(path) => path,
            Self::Link { path, .. } => path,
        }
    }
}

/// Returns the mounts that empty the directories of service sockets and restore everything in them that is not a
/// service.
fn socket_directory_mounts(spec: &ConfinementSpec, files: &dyn FileSystem) -> Vec<Mount> {
    let mut plan = Vec::new();
    for root in ["/run", "/var/run"].map(Path::new) {
        if files.kind(root) != PathKind::Directory || files.canonicalize(root).as_deref() != Some(root) {
            continue;
        }
        plan.push(Mount::EmptyDirectory(root.to_owned()));
        for link in PROGRAM_LINKS.map(Path::new).into_iter().filter(|link| is_within(link, root)) {
            if files.kind(link) == PathKind::Link
                && let Some(target) = files.canonicalize(link)
            {
                plan.push(Mount::Link { path: link.to_owned(), target });
            }
        }
        if spec.network {
            plan.extend(resolver_mounts(root, files));
        }
    }
    plan
}

/// Returns the mounts that restore the chain of links from `/etc/resolv.conf` to its file, as far as it lies in
/// `place`.
fn resolver_mounts(root: &Path, files: &dyn FileSystem) -> Vec<Mount> {
    let (mut plan, mut path) = (Vec::new(), PathBuf::from(RESOLV_CONF));
    let Some(file) = files.canonicalize(&path) else { return plan };
    for _ in 0..LINKS_MAX {
        let Some(target) = files.read_link(&path) else { break };
        let target = path.parent().unwrap_or(Path::new("/")).join(target);
        let above = target.parent().and_then(|above| files.canonicalize(above));
        let (Some(above), Some(name)) = (above, target.file_name()) else { break };
        path = above.join(name);
        if is_within(&path, root) && path != file {
            plan.push(Mount::Link { path: path.clone(), target: file.clone() });
        }
    }
    if is_within(&file, root) {
        plan.push(Mount::Restore(file));
    }
    plan
}

/// The path of the resolver configuration.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// How many links are followed; the kernel's limit.
const LINKS_MAX: usize = 40;

/// Links to programs that some systems keep in the directories of service sockets.
const PROGRAM_LINKS: [&str; 2] = ["/run/current-system", "/run/booted-system"];

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::super::toolchain::{self, Cache, CacheKind};
    use super::super::{Confinement, Mechanism, StepPermissions, credential_stores};
    use super::*;

    fn plan(spec: &ConfinementSpec, files: &dyn FileSystem) -> Result<Vec<Mount>, PlanError> {
        super::plan(spec, files, &ResolvedPaths::resolve(spec, files))
    }

    #[test]
    fn a_workspace_is_writable_and_its_protected_parts_are_not() {
        let files = Files::new(&["/run/", "/tmp/", "/w/.git/", "/w/.push/", "/home/ann/.ssh/", "/home/ann/.netrc"]);
        let mut confinement = Confinement::new("/w".into());
        confinement.hidden = vec!["/home/ann/.ssh".into(), "/home/ann/.netrc".into(), "/home/ann/.aws".into()];
        let mounts = plan(&spec_for(&confinement), &files).unwrap();
        assert_eq!(
            mounts,
            [
                Mount::EmptyDirectory("/run".into()),
                writable("/t/files", "/tmp"),
                writable("/w", "/w"),
                Mount::EmptyFile("/home/ann/.netrc".into()),
                Mount::EmptyDirectory("/home/ann/.ssh".into()),
                Mount::ReadOnly("/w/.git".into()),
                Mount::ReadOnly("/w/.push".into()),
            ]
        );
    }

    #[test]
    fn a_replaced_or_removed_part_of_the_git_directory_is_refused() {
        let mut files = Files::new(&["/tmp/", "/w/.git/config", "/w/.git/worktrees/side/gitdir", "/home/ann/bin/"]);
        let permissions = StepPermissions {
            writable: vec!["/w/.git".into(), "/w/.git/worktrees".into()],
            read_only: vec!["/w/.git/config".into(), "/w/.git/worktrees/side".into()],
            ..StepPermissions::default()
        };
        let confinement = Confinement::new("/w".into());
        let spec = confinement.for_step(Mechanism::Namespaces, Path::new("/t"), &permissions);
        let mounts = plan(&spec, &files).unwrap();
        assert!(mounts.contains(&Mount::ReadOnly("/w/.git/worktrees/side".into())));
        assert!(mounts.contains(&writable("/w/.git/worktrees", "/w/.git/worktrees")));
        // The writable directory is a link now, and the protected path is missing.
        files.0.retain(|path, _| !path.starts_with("/w/.git/worktrees"));
        files.link("/w/.git/worktrees", "/home/ann/bin");
        assert_eq!(plan(&spec, &files), Err(PlanError::ProtectedIsLink));
    }

    #[test]
    fn what_is_hidden_stays_hidden_inside_the_workspace() {
        let files = Files::new(&["/tmp/", "/home/ann/.push/run/", "/home/ann/.git/"]);
        let mut confinement = Confinement::new("/home/ann".into());
        confinement.hidden = vec!["/home/ann/.push".into(), "/home/ann/.push/run".into()];
        let mounts = plan(&spec_for(&confinement), &files).unwrap();
        assert_eq!(
            mounts,
            [
                writable("/t/files", "/tmp"),
                writable("/home/ann", "/home/ann"),
                Mount::EmptyDirectory("/home/ann/.push".into()),
                Mount::ReadOnly("/home/ann/.git".into()),
            ]
        );
    }

    #[test]
    fn what_the_temporary_directory_covers_needs_no_hiding_unless_it_is_shown_again() {
        let files = Files::new(&["/tmp/a/", "/tmp/secret/", "/tmp/a/secret/"]);
        let mut confinement = Confinement::new("/tmp/a".into());
        confinement.hidden = vec!["/tmp/secret".into(), "/tmp/a/secret".into()];
        let mounts = plan(&spec_for(&confinement), &files).unwrap();
        assert_eq!(
            mounts,
            [writable("/t/files", "/tmp"), writable("/tmp/a", "/tmp/a"), Mount::EmptyDirectory("/tmp/a/secret".into())]
        );
    }

    #[test]
    fn links_are_resolved_and_a_link_in_a_protected_place_is_refused() {
        let mut files = Files::new(&["/tmp/", "/real/w/", "/real/keys/"]);
        files.link("/w", "/real/w");
        files.link("/home/ann/.ssh", "/real/keys");
        let mut confinement = Confinement::new("/w".into());
        confinement.hidden = vec!["/home/ann/.ssh".into()];
        let mounts = plan(&spec_for(&confinement), &files).unwrap();
        assert_eq!(
            mounts,
            [writable("/t/files", "/tmp"), writable("/real/w", "/real/w"), Mount::EmptyDirectory("/real/keys".into())]
        );
        files.link("/real/w/.git", "/real/keys");
        assert_eq!(plan(&spec_for(&confinement), &files), Err(PlanError::ProtectedIsLink));
    }

    #[test]
    fn a_workspace_that_cannot_be_confined_is_refused() {
        let files = Files::new(&["/tmp/", "/home/ann/.push/state/", "/file"]);
        for (workspace, error) in [
            ("/", PlanError::WorkspaceIsRoot),
            ("/none", PlanError::WorkspaceIsMissing),
            ("/file", PlanError::WorkspaceIsMissing),
            ("/home/ann/.push", PlanError::WorkspaceIsHidden),
            ("/home/ann/.push/state", PlanError::WorkspaceIsHidden),
        ] {
            let mut confinement = Confinement::new(workspace.into());
            confinement.hidden = vec!["/home/ann/.push".into()];
            assert_eq!(plan(&spec_for(&confinement), &files), Err(error), "{workspace}");
        }
    }

    #[test]
    fn a_plan_is_refused_where_daemon_paths_could_be_created_moved_or_replaced() {
        let mut files = Files::new(&["/tmp/", "/home/ann/w/", "/home/ann/.push/", "/srv/c/", "/data/config/"]);
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
            let mut confinement = Confinement::new(workspace.into());
            confinement.daemon_paths = vec![own.into()];
            confinement.writable = vec![writable.into()];
            let spec = spec_for(&confinement);
            let error = plan(&spec, &files).err();
            assert_eq!(error, (!fine).then_some(PlanError::DaemonPathIsWritable), "{own} in {workspace}, {writable}");
            assert_eq!(check_writable_roots(&spec, &files).is_ok(), fine);
        }
    }

    #[test]
    fn directories_above_a_hidden_path_are_mounted_in_place() {
        let files = Files::new(&["/tmp/", "/w/a/b/key", "/w/a/b/pin", "/w/c/", "/other/d/key"]);
        let mut confinement = Confinement::new("/w".into());
        confinement.hidden = vec!["/w/a/b/key".into(), "/w/a/b/pin".into(), "/other/d/key".into()];
        let mounts = plan(&spec_for(&confinement), &files).unwrap();
        assert_eq!(
            mounts,
            [
                writable("/t/files", "/tmp"),
                writable("/w", "/w"),
                writable("/w/a", "/w/a"),
                writable("/w/a/b", "/w/a/b"),
                Mount::EmptyFile("/other/d/key".into()),
                Mount::EmptyFile("/w/a/b/key".into()),
                Mount::EmptyFile("/w/a/b/pin".into()),
            ]
        );
    }

    #[test]
    fn the_resolver_is_restored_with_the_network_and_program_links_always() {
        let mut files = Files::new(&["/run/systemd/resolve/stub.conf", "/tmp/", "/w/", "/nix/store/x/"]);
        files.link("/etc/resolv.conf", "/run/systemd/resolve/stub.conf");
        files.link("/run/current-system", "/nix/store/x");
        files.link("/var/run", "/run");
        let mut confinement = Confinement::new("/w".into());
        let link = Mount::Link { path: "/run/current-system".into(), target: "/nix/store/x".into() };
        let without = plan(&spec_for(&confinement), &files).unwrap();
        assert_eq!(without[..2], [Mount::EmptyDirectory("/run".into()), link.clone()]);
        assert_eq!(without.len(), 4);
        confinement.network = true;
        let with = plan(&spec_for(&confinement), &files).unwrap();
        assert_eq!(with[..2], without[..2]);
        assert_eq!(with[2], Mount::Restore("/run/systemd/resolve/stub.conf".into()));
        // A link may lead to another link in a hidden directory.
        files.link("/etc/resolv.conf", "/run/resolvconf/resolv.conf");
        files.link("/run/resolvconf/resolv.conf", "/run/systemd/resolve/stub.conf");
        let chained = Files::new(&["/run/resolvconf/", "/etc/"]);
        files.0.extend(chained.0);
        let with = plan(&spec_for(&confinement), &files).unwrap();
        let target = "/run/systemd/resolve/stub.conf".into();
        assert_eq!(with[2], Mount::Link { path: "/run/resolvconf/resolv.conf".into(), target });
        assert_eq!(with[3], Mount::Restore("/run/systemd/resolve/stub.conf".into()));
    }

    #[test]
    fn writable_roots_are_mounted_outer_before_inner() {
        let files = Files::new(&["/tmp/", "/home/ann/.cargo/", "/home/ann/w/"]);
        let mut confinement = Confinement::new("/home/ann/w".into());
        confinement.writable = vec!["/home/ann/w".into(), "/home/ann/.cargo".into(), "/none".into(), "/".into()];
        let mounts = plan(&spec_for(&confinement), &files).unwrap();
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
        let mut confinement = Confinement::new("/home/ann/w".into());
        confinement.homes = vec![home.into()];
        confinement.toolchain_paths = toolchain::default_paths(home);
        confinement.hidden = credential_stores(home);
        let mut spec = spec_for(&confinement);
        spec.cache_store = "/store".into();
        spec.caches = vec![
            Cache { kind: CacheKind::CargoRegistry, path: "/home/ann/.cargo/registry".into() },
            Cache { kind: CacheKind::Pip, path: "/home/ann/.cache/pip".into() },
        ];
        assert_eq!(
            plan(&spec, &files).unwrap(),
            [
                writable("/t/files", "/tmp"),
                Mount::EmptyDirectory("/home/ann".into()),
                Mount::Restore("/home/ann/.cargo".into()),
                Mount::Restore("/home/ann/.gitconfig".into()),
                writable("/store/pip", "/home/ann/.cache/pip"),
                Mount::Overlay {
                    target: "/home/ann/.cargo/registry".into(),
                    home: "/home/ann".into(),
                    layers: "/store/!home!ann".into(),
                    fallback: "/store/cargo-registry".into(),
                },
                writable("/home/ann/w", "/home/ann/w"),
                Mount::EmptyFile("/home/ann/.cargo/credentials.toml".into()),
                Mount::ReadOnly("/home/ann/w/.git".into()),
            ]
        );
    }

    #[test]
    fn a_home_inside_the_workspace_is_hidden_and_one_that_is_the_workspace_is_refused() {
        let mut files = Files::new(&["/tmp/", "/home/ann/.ssh/", "/home/ann/.cargo/"]);
        files.link("/ann", "/home/ann");
        let mut confinement = Confinement::new("/home".into());
        confinement.homes = vec!["/home/ann".into()];
        confinement.toolchain_paths = vec!["/home/ann/.cargo".into()];
        confinement.hidden = vec!["/home/ann/.ssh".into()];
        assert_eq!(
            plan(&spec_for(&confinement), &files).unwrap(),
            [writable("/t/files", "/tmp"), writable("/home", "/home"), Mount::EmptyDirectory("/home/ann".into())]
        );
        // Also without a daemon path in it, and under every alias of the home.
        for (workspace, home) in [("/home/ann", "/home/ann"), ("/home/ann", "/ann"), ("/ann", "/home/ann")] {
            confinement.workspace = workspace.into();
            confinement.homes = vec!["/none".into(), home.into()];
            let spec = spec_for(&confinement);
            assert_eq!(plan(&spec, &files), Err(PlanError::WorkspaceIsHome), "{workspace} {home}");
            assert_eq!(check_writable_roots(&spec, &files), Err(PlanError::WorkspaceIsHome), "{workspace} {home}");
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
        let mut confinement = Confinement::new("/w".into());
        confinement.homes = vec!["/home/ann".into()];
        confinement.toolchain_paths = vec!["/home/ann/.cargo".into(), "/home/ann/other/cargo".into()];
        let again = |path: &str| Mount::Restore(path.into());
        let blank = |path: &str| Mount::EmptyFile(path.into());
        let mut expected = vec![
            writable("/t/files", "/tmp"),
            Mount::EmptyDirectory("/home/ann".into()),
            again("/home/ann/.cargo"),
            again("/home/ann/other/cargo"),
            writable("/w", "/w"),
            blank("/home/ann/.cargo/credentials.toml.bak"),
            blank("/home/ann/other/cargo/.credentials.swp"),
        ];
        assert_eq!(plan(&spec_for(&confinement), &files).unwrap(), expected);
        // A path that `readable` names exactly is visible.
        confinement.readable = vec!["/home/ann/.cargo/credentials.toml.bak".into()];
        expected.remove(5);
        assert_eq!(plan(&spec_for(&confinement), &files).unwrap(), expected);
    }

    #[test]
    fn a_path_in_a_credential_store_is_restored_where_the_configuration_names_it() {
        let files = Files::new(&["/tmp/", "/w/", "/home/ann/.ssh/config", "/home/ann/.aws/"]);
        let mut confinement = Confinement::new("/w".into());
        confinement.homes = vec!["/home/ann".into()];
        confinement.hidden = vec!["/home/ann/.ssh".into(), "/home/ann/.aws".into()];
        confinement.readable = vec!["/home/ann/.ssh/config".into(), "/home/ann/.push/state".into()];
        confinement.daemon_paths = vec!["/home/ann/.push".into()];
        let mounts = plan(&spec_for(&confinement), &files).unwrap();
        assert_eq!(
            mounts,
            [
                writable("/t/files", "/tmp"),
                Mount::EmptyDirectory("/home/ann".into()),
                writable("/w", "/w"),
                Mount::Restore("/home/ann/.ssh/config".into()),
            ]
        );
    }

    fn spec_for(confinement: &Confinement) -> ConfinementSpec {
        confinement.for_step(Mechanism::Namespaces, Path::new("/t"), &StepPermissions::default())
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

        fn link_target(&self, path: &Path) -> Option<&Path> {
            self.0.get(path)?.as_deref()
        }
    }

    impl FileSystem for Files {
        fn kind(&self, path: &Path) -> PathKind {
            match self.link_target(path) {
                None => PathKind::Missing,
                Some(target) if target == Path::new("dir") => PathKind::Directory,
                Some(target) if target == Path::new("file") => PathKind::File,
                Some(_) => PathKind::Link,
            }
        }

        fn canonicalize(&self, path: &Path) -> Option<PathBuf> {
            match self.kind(path) {
                PathKind::Missing => None,
                PathKind::Directory | PathKind::File => Some(path.to_owned()),
                PathKind::Link => {
                    let target = self.link_target(path)?;
                    if self.kind(target) == PathKind::Link {
                        self.canonicalize(target)
                    } else {
                        Some(target.to_owned())
                    }
                }
            }
        }

        fn read_link(&self, path: &Path) -> Option<PathBuf> {
            self.link_target(path).filter(|_| self.kind(path) == PathKind::Link).map(Path::to_owned)
        }

        fn entry_names(&self, path: &Path, limit: usize) -> Option<Vec<OsString>> {
            let inside = self.0.keys().filter(|known| known.parent() == Some(path));
            let names: Vec<OsString> = inside.map(|known| known.file_name().unwrap().to_owned()).collect();
            (names.len() <= limit).then_some(names)
        }
    }
}
