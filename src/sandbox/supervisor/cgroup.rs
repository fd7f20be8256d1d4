//! A cgroup for each step, where the cgroup hierarchy allows creating one.
//!
//! Cgroups are one layer among others: if anything fails here the layer is missing, but the step still runs. Only
//! cgroup version 2 is used, also where it is mounted beside version 1.

use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sandbox::confinement::ResourceLimits;

/// The prefix of the steps' cgroups; the supervisor's process id follows.
const PREFIX: &str = "pushd-step-";

/// The cgroup of one step.
pub(super) struct Cgroup {
    path: PathBuf,
    /// The cgroup directory, for `clone3` with `CLONE_INTO_CGROUP`.
    pub(super) directory: File,
}

impl Cgroup {
    /// Creates the cgroup of the supervisor with this process id; `None` if that is not possible.
    pub(super) fn create(parent: &CStr, supervisor: u32) -> Option<Self> {
        if parent.is_empty() {
            return None;
        }
        Self::create_at(path(Path::new(OsStr::from_bytes(parent.to_bytes())), supervisor))
    }

    fn create_at(path: PathBuf) -> Option<Self> {
        match fs::create_dir(&path) {
            Ok(()) => {}
            // An earlier supervisor with this process id was killed before it removed its cgroup.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                kill_and_remove(&path);
                fs::create_dir(&path).ok()?;
            }
            Err(_) => return None,
        }
        let directory = File::open(&path).ok().filter(|_| path.join("cgroup.kill").exists());
        match directory {
            Some(directory) => Some(Self { path, directory }),
            None => {
                remove(&path);
                None
            }
        }
    }

    /// Sets resource limits, as far as the controllers are enabled here; exceeding the memory limit kills the whole
    /// cgroup.
    pub(super) fn set_limits(&self, limits: ResourceLimits) {
        for (file, value) in [
            ("pids.max", limits.processes),
            ("memory.max", limits.memory),
            ("memory.swap.max", 0),
            ("memory.oom.group", 1),
        ] {
            let path = self.path.join(file);
            if path.exists() {
                let _as_far_as_allowed = fs::write(path, value.to_string());
            }
        }
    }

    /// Returns whether the OOM killer has killed processes in it.
    pub(super) fn ran_out_of_memory(&self) -> bool {
        let events = fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        events.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
    }

    /// Kills all processes in it at once.
    pub(super) fn kill(&self) {
        kill(&self.path);
    }

    /// Removes the cgroup.
    pub(super) fn remove(self) {
        drop(self.directory);
        remove(&self.path);
    }
}

/// Finds the directory in which cgroups can be created, and removes leftover cgroups in it.
pub(super) fn find_parent() -> Option<Box<Path>> {
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let own = fs::read("/proc/self/cgroup").ok()?;
    let parent = locate(&mounts, &own)?;
    let trial = Cgroup::create_at(parent.join(format!("pushd-probe-{}", std::process::id())))?;
    trial.remove();
    for left in leftovers(&parent) {
        kill_and_remove(&left);
    }
    Some(parent.into())
}

/// Kills the processes in the cgroup of a killed supervisor and removes the cgroup.
pub(super) fn clean_up(parent: &Path, supervisor: u32) {
    let path = path(parent, supervisor);
    if path.exists() {
        kill_and_remove(&path);
    }
}

/// Returns the supervisor in whose cgroup, or in a child of it, a process is.
pub(super) fn supervisor_of(pid: u32) -> Option<u32> {
    parse_supervisor(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

/// Parses the supervisor's process id from the content of `/proc/PID/cgroup`.
fn parse_supervisor(cgroups: &str) -> Option<u32> {
    let unified = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?;
    unified.split('/').find_map(|name| name.strip_prefix(PREFIX)?.parse().ok())
}

fn path(parent: &Path, supervisor: u32) -> PathBuf {
    parent.join(format!("{PREFIX}{supervisor}"))
}

/// The cgroups below `parent` whose supervisors no longer exist.
fn leftovers(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let orphaned = entries.filter(|entry| {
        let name = entry.file_name();
        let supervisor = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        supervisor.is_some_and(|supervisor| !Path::new(&format!("/proc/{supervisor}")).exists())
    });
    orphaned.map(|entry| entry.path()).collect()
}

fn kill_and_remove(path: &Path) {
    kill(path);
    remove(path);
}

fn kill(path: &Path) {
    let _missing = fs::write(path.join("cgroup.kill"), "1");
}

/// How often removing a cgroup is attempted, one millisecond apart: on a busy machine the kernel takes time to release
/// dead processes.
const REMOVE_ATTEMPTS: usize = 1000;

/// Removes a cgroup and the child cgroups that a step has created; retries while dead processes are not yet reaped.
fn remove(path: &Path) {
    for _ in 0..REMOVE_ATTEMPTS {
        let mut busy = false;
        for inner in subtree(path).iter().rev() {
            let removed = fs::remove_dir(inner);
            busy |= removed.is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy);
        }
        if !busy {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns a cgroup and all its descendants, parents first. It is iterative because a step controls the depth.
fn subtree(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    let mut visited = 0;
    while let Some(path) = found.get(visited) {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let inner = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let inner: Vec<PathBuf> = inner.map(|entry| entry.path()).collect();
        found.extend(inner);
        visited += 1;
    }
    found
}

/// Returns the path of this process's cgroup directory, from the content of `mountinfo` and `cgroup`.
fn locate(mounts: &[u8], own: &[u8]) -> Option<PathBuf> {
    let own = own.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::"))?;
    let own = Path::new(OsStr::from_bytes(own));
    mounts.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let (root, point) = (fields.nth(3)?, fields.next()?);
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        if kind != b"cgroup2" {
            return None;
        }
        // A cgroup outside of the mounted subtree cannot be reached.
        let below = own.strip_prefix(unescape(root)).ok()?;
        let reachable = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        reachable.then(|| unescape(point).join(below))
    })
}

/// Decodes the octal escapes of `mountinfo`.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        (rest, _) = match code {
            Some(code) => (&after[3..], bytes.push(code)),
            None => (after, bytes.push(*first)),
        };
    }
    std::ffi::OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PURE: &[u8] = b"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const HYBRID: &[u8] = b"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_own_cgroup_is_found_where_version_2_is_mounted() {
        let own = b"0::/user.slice/user-1000.slice/app.scope\n";
        let found = locate(PURE, own).unwrap();
        assert_eq!(found, Path::new("/sys/fs/cgroup/user.slice/user-1000.slice/app.scope"));
    }

    #[test]
    fn a_hybrid_mount_with_a_space_in_its_path_is_found() {
        let own = b"4:memory:/elsewhere\n0::/\n";
        assert_eq!(locate(HYBRID, own).unwrap(), Path::new("/sys/fs/cgroup/uni fied"));
    }

    #[test]
    fn a_partial_mount_is_used_only_if_it_contains_the_cgroup() {
        let part = b"30 23 0:26 /a/b /mnt rw - cgroup2 cgroup2 rw\n";
        assert_eq!(locate(part, b"0::/a/b/c\n").unwrap(), Path::new("/mnt/c"));
        assert_eq!(locate(part, b"0::/a\n"), None);
        assert_eq!(locate(PURE, b"0::/../outside\n"), None);
    }

    #[test]
    fn a_process_below_a_step_s_cgroup_names_its_supervisor() {
        assert_eq!(parse_supervisor("4:pids:/x\n0::/user.slice/pushd-step-77/inner\n"), Some(77));
        assert_eq!(parse_supervisor("0::/user.slice\n"), None);
        assert_eq!(parse_supervisor("0::/pushd-step-x\n"), None);
        assert_eq!(parse_supervisor(""), None);
    }

    #[test]
    fn nested_cgroups_are_removed_at_any_depth() {
        // A directory without files is removed in the same way as a cgroup.
        let root = tempfile::tempdir().unwrap();
        let top = root.path().join("top");
        let mut path = top.clone();
        fs::create_dir(&path).unwrap();
        while path.as_os_str().len() < 4000 {
            path.push("g");
            fs::create_dir(&path).unwrap();
        }
        fs::create_dir(top.join("beside")).unwrap();
        remove(&top);
        assert!(!top.exists());
    }

    #[test]
    fn version_1_alone_is_not_used() {
        let only = b"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        assert_eq!(locate(only, b"0::/\n"), None);
        assert_eq!(locate(PURE, b"4:memory:/a\n"), None);
    }
}
