//! The restrictions that a process installs permanently for itself and its descendants.
//!
//! Landlock restricts files as strictly as the kernel supports: everything is readable, little is writable. [`seccomp`]
//! restricts system calls. Both come after the mounts, which they forbid.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope,
};
use nix::errno::Errno;

use super::{failure_cause, privileges, seccomp, workspace_check};
use crate::sandbox::caches::ENV_CACHES_DIR;
use crate::sandbox::confinement::toolchain::Cache;
use crate::sandbox::confinement::view::home_view;
use crate::sandbox::confinement::{ConfinementSpec, Mechanism, TEMP_DIR, plan};
use crate::sandbox::host_fs::HostFileSystem;
use crate::sandbox::supervisor_protocol::{ActiveLayers, ConfinementFailure, FailureCause};

/// The newest Landlock ABI in use; an older kernel enforces what it knows.
const LANDLOCK_ABI: ABI = ABI::V9;

/// Writable devices, and directories of devices.
const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx"];
const DEVICE_DIRS: [&str; 2] = ["/dev/pts", "/dev/shm"];

/// Installs all restrictions, and returns the layers that the kernel enforces.
pub(in super::super::super::super) fn restrict_self(
    spec: &ConfinementSpec,
) -> Result<ActiveLayers, ConfinementFailure> {
    let failed = |errno: Errno| ConfinementFailure { cause: FailureCause::Restrictions, errno: errno as i32 };
    if spec.mechanism == Mechanism::Rules {
        // With mounts, the mount plan has checked this already.
        let refused = |flaw| ConfinementFailure { cause: failure_cause(flaw), errno: 0 };
        plan::usable_workspace(spec, &HostFileSystem, &plan::hidden_paths(spec, &HostFileSystem)).map_err(refused)?;
        plan::check_writable_roots(spec, &HostFileSystem).map_err(refused)?;
    }
    privileges::set_resource_limits(spec.limits).map_err(failed)?;
    privileges::drop_privileges().map_err(failed)?;
    let workspace = File::open(&spec.workspace)
        .map_err(|_| ConfinementFailure { cause: FailureCause::WorkspaceIsMissing, errno: 0 })?;
    if !workspace_check::is_expected(spec, &workspace) {
        return Err(ConfinementFailure { cause: FailureCause::WorkspaceIsReplaced, errno: 0 });
    }
    // The rule applies to the open directory that was compared, not to its path.
    let held = PathBuf::from(format!("/proc/self/fd/{}", workspace.as_raw_fd()));
    let landlock = restrict_files(spec, &held).map_err(|_| failed(Errno::EINVAL))?;
    let seccomp = seccomp::install(spec).map_err(failed)?;
    if spec.mechanism == Mechanism::Rules && !landlock {
        return Err(failed(Errno::ENOSYS));
    }
    let processes = !nix::unistd::geteuid().is_root();
    Ok(ActiveLayers { landlock, seccomp, process_limit: processes, overlays: false })
}

/// Installs the Landlock rules; returns whether the kernel enforces any.
fn restrict_files(spec: &ConfinementSpec, workspace: &Path) -> Result<bool, RulesetError> {
    let everything = AccessFs::from_all(LANDLOCK_ABI);
    let mut rules = Ruleset::default().handle_access(everything)?.scope(Scope::from_all(LANDLOCK_ABI))?.create()?;
    let read = AccessFs::from_read(LANDLOCK_ABI);
    match spec.mechanism {
        Mechanism::Bubblewrap | Mechanism::Namespaces => rules = allow(rules, Path::new("/"), read)?,
        // Without mounts, hidden paths are left out of the readable ones.
        Mechanism::Rules => {
            for path in readable_paths(spec) {
                rules = allow(rules, &path, read)?;
            }
        }
    }
    for cache in private_cache_paths(spec) {
        rules = allow(rules, &cache, everything)?;
    }
    for path in writable_paths(spec, workspace) {
        rules = allow(rules, &path, everything)?;
    }
    for device in DEVICES {
        let write = AccessFs::WriteFile | AccessFs::ReadFile | AccessFs::IoctlDev;
        rules = allow(rules, Path::new(device), write)?;
    }
    let status = rules.restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Returns the readable paths where no mount is possible.
fn readable_paths(spec: &ConfinementSpec) -> Vec<PathBuf> {
    let hidden = plan::hidden_paths(spec, &HostFileSystem);
    let view = home_view(spec, &HostFileSystem, &hidden);
    let closed: Vec<&PathBuf> = hidden.iter().chain(&view.homes).chain(&view.homes_in_workspace).collect();
    let mut paths = paths_excluding(Path::new("/"), &closed);
    let stores: Vec<&PathBuf> = hidden.iter().chain(&view.credential_copies).collect();
    paths.extend(view.opened.iter().flat_map(|opened| paths_excluding(opened, &stores)));
    paths.extend(view.opened_in_stores.iter().cloned());
    paths
}

/// Returns the paths of the private copies of caches. A path that the mounts made read-only stays so, whatever a rule
/// allows.
fn private_cache_paths(spec: &ConfinementSpec) -> Vec<PathBuf> {
    let path_of = |cache: &Cache| match spec.mechanism {
        Mechanism::Bubblewrap | Mechanism::Namespaces => cache.path.clone(),
        Mechanism::Rules => spec.cache_store.join(ENV_CACHES_DIR).join(cache.kind.variable().1),
    };
    // An environment variable may name any path; only caches inside a home directory have private copies.
    let is_in_home = |cache: &&Cache| spec.homes.iter().any(|home| cache.path != *home && cache.path.starts_with(home));
    let caches = spec.caches.iter();
    match spec.mechanism {
        Mechanism::Bubblewrap | Mechanism::Namespaces => caches.filter(is_in_home).map(path_of).collect(),
        Mechanism::Rules => caches.map(path_of).collect(),
    }
}

/// Returns the writable paths.
fn writable_paths(spec: &ConfinementSpec, workspace: &Path) -> Vec<PathBuf> {
    let (temp, devices): (&Path, &[&str]) = match spec.mechanism {
        Mechanism::Bubblewrap | Mechanism::Namespaces => (Path::new(TEMP_DIR), &DEVICE_DIRS),
        // Without namespaces these are the machine's own: other terminals of the user, and memory that outlives the
        // command.
        Mechanism::Rules => (&spec.temp_source, &[]),
    };
    let own = [temp, workspace].into_iter().chain(spec.writable.iter().map(PathBuf::as_path));
    let paths = own.chain(devices.iter().map(Path::new));
    paths.filter(|path| path.is_dir()).map(Path::to_owned).collect()
}

/// Allows access to a path and everything below it; a path that does not exist needs no rule.
fn allow(rules: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, RulesetError> {
    let Ok(directory) = PathFd::new(path) else { return Ok(rules) };
    // Rights that only directories have are not requested for files.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(LANDLOCK_ABI) };
    rules.add_rule(PathBeneath::new(directory, access))
}

/// Returns the fewest paths that cover everything below `start` except what is hidden.
fn paths_excluding(start: &Path, hidden: &[&PathBuf]) -> Vec<PathBuf> {
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
    fn hidden_paths_are_excluded_from_the_readable_ones() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for name in ["a/open", "a/keys", "b"] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        std::os::unix::fs::symlink(base.join("a/keys"), base.join("a/link")).unwrap();
        let (keys, none) = (base.join("a/keys"), base.join("none"));
        let pieces = paths_excluding(Path::new("/"), &[&keys, &none]);
        let mut mine: Vec<&PathBuf> = pieces.iter().filter(|piece| piece.starts_with(&base)).collect();
        mine.sort();
        assert_eq!(mine, [&base.join("a/open"), &base.join("b")]);
        assert!(pieces.contains(&"/usr".into()) && !pieces.contains(&"/".into()));
        assert_eq!(paths_excluding(Path::new("/"), &[]), [PathBuf::from("/")]);
        assert_eq!(paths_excluding(&keys, &[&keys]), Vec::<PathBuf>::new());
    }
}
