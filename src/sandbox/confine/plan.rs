//! Which mounts make a command's view of the files, in which order.
//!
//! Pure: what is there is asked of the caller. Everything is read-only to begin with; then come a temporary directory, the
//! places that may be written, the places that are hidden and the places that are protected, so that what is hidden stays
//! hidden inside the workspace and what is protected stays so inside everything. A directory between a place that may be
//! written and what is hidden in it is mounted onto itself, as what is a mount cannot be renamed.

use std::path::{Path, PathBuf};

use super::{TEMP, Walls, within};

/// What stands under a path; links are followed, except at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// Something else that is no link.
    File,
    /// A symbolic link.
    Link,
    /// Nothing.
    Missing,
}

/// What a plan asks about the files.
pub trait Look {
    /// Says what stands under a path.
    fn kind(&self, path: &Path) -> Kind;
    /// Returns the path without any link in it; nothing where nothing is there.
    fn real(&self, path: &Path) -> Option<PathBuf>;
}

/// One change of the view; all paths are absolute and without links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mount {
    /// `source` stands at `target` and may be written.
    Writable {
        /// What stands there.
        source: PathBuf,
        /// Where.
        target: PathBuf,
    },
    /// What is there cannot be changed.
    ReadOnly(PathBuf),
    /// An empty directory that cannot be changed.
    Empty(PathBuf),
    /// A file without content, which cannot be changed.
    Blank(PathBuf),
    /// What was there before is there again, and cannot be changed.
    Again(PathBuf),
    /// A link in a directory that was emptied.
    Link {
        /// Its name.
        path: PathBuf,
        /// What it says.
        says: PathBuf,
    },
}

/// Why there can be no plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// The workspace is everything there is.
    WorkspaceIsRoot,
    /// The workspace is gone, or is no directory.
    WorkspaceIsMissing,
    /// The workspace lies in what is hidden.
    WorkspaceIsHidden,
    /// What is to be protected is a link, which could be exchanged.
    ProtectedIsLink,
    /// What the daemon believes or keeps secret lies where may be written.
    OwnIsWritable,
}

/// Makes the plan.
pub(crate) fn plan(walls: &Walls, look: &dyn Look) -> Result<Vec<Mount>, Flaw> {
    let workspace = look.real(&walls.workspace).ok_or(Flaw::WorkspaceIsMissing)?;
    if look.kind(&workspace) != Kind::Directory {
        return Err(Flaw::WorkspaceIsMissing);
    }
    if workspace.parent().is_none() {
        return Err(Flaw::WorkspaceIsRoot);
    }
    let hidden = hidden(walls, look);
    if hidden.iter().any(|hidden| within(&workspace, hidden)) {
        return Err(Flaw::WorkspaceIsHidden);
    }
    let mut plan = sockets(walls, look);
    if workspace != Path::new(TEMP) {
        plan.push(Mount::Writable { source: walls.temp.clone(), target: TEMP.into() });
    }
    let places = places(walls, look);
    if owns_part_of(&places, walls, look) {
        return Err(Flaw::OwnIsWritable);
    }
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
    for path in &walls.protected {
        // The workspace itself may be reached by a link; its parts may not.
        let path = match path.strip_prefix(&walls.workspace) {
            Ok(inner) => workspace.join(inner),
            Err(_) => path.clone(),
        };
        match look.kind(&path) {
            Kind::Link => return Err(Flaw::ProtectedIsLink),
            Kind::Directory | Kind::File if is_visible(&path, &plan) => plan.push(Mount::ReadOnly(path)),
            Kind::Directory | Kind::File | Kind::Missing => {}
        }
    }
    Ok(plan)
}

/// The directories that may be written, the outer before the inner.
fn places(walls: &Walls, look: &dyn Look) -> Vec<PathBuf> {
    let all = walls.writable.iter().chain([&walls.workspace]);
    let mut places: Vec<PathBuf> = all.filter_map(|path| look.real(path)).collect();
    places.retain(|place| look.kind(place) == Kind::Directory && place.parent().is_some());
    places.sort();
    places.dedup();
    places
}

/// Refuses walls in which a command could make, move or exchange what is the daemon's own.
pub(crate) fn own_is_closed(walls: &Walls, look: &dyn Look) -> Result<(), Flaw> {
    if owns_part_of(&places(walls, look), walls, look) { Err(Flaw::OwnIsWritable) } else { Ok(()) }
}

/// Whether something of the daemon's own lies in one of these places, or would once it is made.
fn owns_part_of(places: &[PathBuf], walls: &Walls, look: &dyn Look) -> bool {
    let inside = |path: &PathBuf| places.iter().any(|place| within(path, place));
    walls.own.iter().any(|own| spellings(own, &|path| look.real(path)).iter().any(inside))
}

/// Every place whose change would change what stands under a path: where it really is, and where each of its names is kept,
/// as far as they are there; a link among them counts as itself and as what it names.
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

/// These places and every directory between one and something hidden in it, the outer before the inner.
fn with_those_above(hidden: &[PathBuf], places: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut all = places.clone();
    for path in hidden {
        // They are sorted: the first is the outermost.
        if let Some(place) = places.iter().find(|place| within(path, place)) {
            let between = path.ancestors().skip(1).take_while(|above| above != place);
            all.extend(between.map(Path::to_owned));
        }
    }
    all.sort();
    all.dedup();
    all
}

/// What is to be hidden and is there, the outer before the inner and without what lies in another.
fn hidden(walls: &Walls, look: &dyn Look) -> Vec<PathBuf> {
    let wanted = walls.hidden.iter().chain(&walls.own);
    let mut all: Vec<PathBuf> = wanted.filter_map(|path| look.real(path)).collect();
    all.sort();
    let mut kept: Vec<PathBuf> = Vec::new();
    for path in all {
        if path.parent().is_some() && !kept.iter().any(|outer| within(&path, outer)) {
            kept.push(path);
        }
    }
    kept
}

/// Whether a path shows what it showed before, after these mounts.
fn is_visible(path: &Path, plan: &[Mount]) -> bool {
    let last = plan.iter().rev().find(|mount| within(path, mount.place()));
    match last {
        None => true,
        Some(Mount::Writable { source, target }) => source == target,
        Some(Mount::ReadOnly(_) | Mount::Again(_)) => true,
        Some(Mount::Empty(_) | Mount::Blank(_) | Mount::Link { .. }) => false,
    }
}

impl Mount {
    fn place(&self) -> &Path {
        match self {
            Self::Writable { target, .. } => target,
            Self::ReadOnly(path) | Self::Empty(path) | Self::Blank(path) | Self::Again(path) => path,
            Self::Link { path, .. } => path,
        }
    }
}

/// Empties the directories in which services listen, and puts back what is no service.
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
        let resolver = look.real(Path::new("/etc/resolv.conf")).filter(|path| within(path, place));
        if let Some(resolver) = resolver.filter(|_| walls.network) {
            plan.push(Mount::Again(resolver));
        }
    }
    plan
}

/// Links to programs that some systems keep among the sockets.
const PROGRAMS: [&str; 2] = ["/run/current-system", "/run/booted-system"];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Confinement, Leave, Way};
    use super::*;

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
            // It is not there yet.
            ("/home/ann/.config/push/config.toml", "/home/ann", "/none", false),
            ("/home/ann/.config/push/config.toml", "/home", "/none", false),
            ("/home/ann/.push", "/home/ann", "/none", false),
            ("/home/ann/.push", "/home/ann/w", "/home/ann", false),
            ("/home/ann/w/push.toml", "/home/ann/w", "/none", false),
            // The link on the way could be exchanged; what it names could be changed.
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
            assert_eq!(own_is_closed(&walls, &files).is_ok(), fine);
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

    fn walls(confinement: &Confinement) -> Walls {
        confinement.walls(Way::Namespaces, Path::new("/t"), &Leave::default())
    }

    fn writable(source: &str, target: &str) -> Mount {
        Mount::Writable { source: source.into(), target: target.into() }
    }

    /// Files that are only said to be there.
    struct Files(BTreeMap<PathBuf, Option<PathBuf>>);

    impl Files {
        /// Directories end in a stroke; those above are there too.
        fn new(paths: &[&str]) -> Self {
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

        fn link(&mut self, path: &str, target: &str) {
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
                Kind::Link => self.says(path).map(Path::to_owned),
            }
        }
    }
}
