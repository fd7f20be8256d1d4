//! The restrictions that a process installs permanently for itself and its descendants.
//!
//! Landlock restricts files as strictly as the kernel supports: everything is readable, little is writable. [`seccomp`]
//! restricts system calls. Both come after the mounts, which they forbid.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use nix::errno::Errno;

use super::{filter, part, rights, workspace};
use crate::sandbox::caches::BY_VARIABLE;
use crate::sandbox::confine::toolchain::Cache;
use crate::sandbox::confine::view::view;
use crate::sandbox::confine::{TEMP, Walls, Way, plan};
use crate::sandbox::disk::Disk;
use crate::sandbox::message::{Obstacle, Part, Standing};

/// The newest Landlock ABI in use; an older kernel enforces what it knows.
const NEWEST: ABI = ABI::V9;

/// Writable devices, and directories of devices.
const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];
const DEVICE_PLACES: [&str; 2] = ["/dev/pts", "/dev/shm"];

/// Installs all restrictions, and returns the layers that the kernel enforces.
pub(in super::super::super::super) fn seal(walls: &Walls) -> Result<Standing, Obstacle> {
    let failed = |errno: Errno| Obstacle { part: Part::Rules, errno: errno as i32 };
    if walls.way == Way::Rules {
        // With mounts, the mount plan has checked this already.
        let refused = |flaw| Obstacle { part: part(flaw), errno: 0 };
        plan::usable_workspace(walls, &Disk, &plan::hidden(walls, &Disk)).map_err(refused)?;
        plan::check_places(walls, &Disk).map_err(refused)?;
    }
    rights::limit(walls.bounds).map_err(failed)?;
    rights::give_up().map_err(failed)?;
    let workspace = File::open(&walls.workspace).map_err(|_| Obstacle { part: Part::Missing, errno: 0 })?;
    if !workspace::is_it(walls, &workspace) {
        return Err(Obstacle { part: Part::Replaced, errno: 0 });
    }
    // The rule applies to the open directory that was compared, not to its path.
    let held = PathBuf::from(format!("/proc/self/fd/{}", workspace.as_raw_fd()));
    let landlock = files(walls, &held).map_err(|_| failed(Errno::EINVAL))?;
    let seccomp = filter::install(walls).map_err(failed)?;
    if walls.way == Way::Rules && !landlock {
        return Err(failed(Errno::ENOSYS));
    }
    let processes = !nix::unistd::geteuid().is_root();
    Ok(Standing { landlock, seccomp, processes, overlays: false })
}

/// Installs the Landlock rules; returns whether the kernel enforces any.
fn files(walls: &Walls, workspace: &Path) -> Result<bool, RulesetError> {
    let everything = AccessFs::from_all(NEWEST);
    let mut rules = Ruleset::default().handle_access(everything)?.scope(Scope::from_all(NEWEST))?.create()?;
    let read = AccessFs::from_read(NEWEST);
    match walls.way {
        Way::Bubblewrap | Way::Namespaces => rules = allow(rules, Path::new("/"), read)?,
        // Without mounts, hidden paths are left out of the readable ones.
        Way::Rules => {
            for path in readable(walls) {
                rules = allow(rules, &path, read)?;
            }
        }
    }
    for cache in private_caches(walls) {
        rules = allow(rules, &cache, everything)?;
    }
    for place in places(walls, workspace) {
        rules = allow(rules, &place, everything)?;
    }
    for device in DEVICES {
        let write = AccessFs::WriteFile | AccessFs::ReadFile | AccessFs::IoctlDev;
        rules = allow(rules, Path::new(device), write)?;
    }
    let status = rules.restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Returns the readable paths where no mount is possible.
fn readable(walls: &Walls) -> Vec<PathBuf> {
    let hidden = plan::hidden(walls, &Disk);
    let view = view(walls, &Disk, &hidden);
    let closed: Vec<&PathBuf> = hidden.iter().chain(&view.homes).chain(&view.inside).collect();
    let mut paths = around(Path::new("/"), &closed);
    let stores: Vec<&PathBuf> = hidden.iter().chain(&view.copies).collect();
    paths.extend(view.opened.iter().flat_map(|opened| around(opened, &stores)));
    paths.extend(view.in_stores.iter().cloned());
    paths
}

/// Returns the paths of the private copies of caches. A path that the mounts made read-only stays so, whatever a rule
/// allows.
fn private_caches(walls: &Walls) -> Vec<PathBuf> {
    let place = |cache: &Cache| match walls.way {
        Way::Bubblewrap | Way::Namespaces => cache.path.clone(),
        Way::Rules => walls.cache_store.join(BY_VARIABLE).join(cache.kind.variable().1),
    };
    // An environment variable may name any path; only caches inside a home directory have private copies.
    let is_in_home =
        |cache: &&Cache| walls.homes.iter().any(|home| cache.path != *home && cache.path.starts_with(home));
    let caches = walls.caches.iter();
    match walls.way {
        Way::Bubblewrap | Way::Namespaces => caches.filter(is_in_home).map(place).collect(),
        Way::Rules => caches.map(place).collect(),
    }
}

/// Returns the writable paths.
fn places(walls: &Walls, workspace: &Path) -> Vec<PathBuf> {
    let (temp, devices): (&Path, &[&str]) = match walls.way {
        Way::Bubblewrap | Way::Namespaces => (Path::new(TEMP), &DEVICE_PLACES),
        // Without namespaces these are the machine's own: other terminals of the user, and memory that outlives the
        // command.
        Way::Rules => (&walls.temp, &[]),
    };
    let own = [temp, workspace].into_iter().chain(walls.writable.iter().map(PathBuf::as_path));
    let places = own.chain(devices.iter().map(Path::new));
    places.filter(|place| place.is_dir()).map(Path::to_owned).collect()
}

/// Allows access to a path and everything below it; a path that does not exist needs no rule.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(there) = PathFd::new(path) else { return Ok(rules) };
    // Rights that only directories have are not requested for files.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    rules.add_rule(PathBeneath::new(there, access))
}

/// Returns the fewest paths that cover everything below `start` except what is hidden.
fn around(start: &Path, hidden: &[&PathBuf]) -> Vec<PathBuf> {
    let (mut pieces, mut inside) = (Vec::new(), vec![start.to_owned()]);
    while let Some(path) = inside.pop() {
        if hidden.contains(&&path) {
            continue;
        }
        if !hidden.iter().any(|hidden| hidden.starts_with(&path)) {
            pieces.push(path);
            continue;
        }
        let entries = fs::read_dir(&path).into_iter().flatten().flatten();
        // A rule for a symbolic link would apply to its target.
        inside.extend(entries.map(|entry| entry.path()).filter(|path| !path.is_symlink()));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_read_around() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for name in ["a/open", "a/keys", "b"] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        std::os::unix::fs::symlink(base.join("a/keys"), base.join("a/link")).unwrap();
        let (keys, none) = (base.join("a/keys"), base.join("none"));
        let pieces = around(Path::new("/"), &[&keys, &none]);
        let mut mine: Vec<&PathBuf> = pieces.iter().filter(|piece| piece.starts_with(&base)).collect();
        mine.sort();
        assert_eq!(mine, [&base.join("a/open"), &base.join("b")]);
        assert!(pieces.contains(&"/usr".into()) && !pieces.contains(&"/".into()));
        assert_eq!(around(Path::new("/"), &[]), [PathBuf::from("/")]);
        assert_eq!(around(&keys, &[&keys]), Vec::<PathBuf>::new());
    }
}
