//! Namespaces and mounts that the supervisor creates itself.
//!
//! All existing mounts become read-only; writable, hidden and protected paths are then mounted over them. Paths that
//! are shown again are cloned as detached mounts before that, so no path lookup is needed afterwards.

use std::fs::{self, DirBuilder, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{ForkResult, Gid, Uid, getegid, geteuid};

use super::super::{StepCgroup, fork_into};
use super::syscalls::{self, NO_DEVICES, NO_SUID, READ_ONLY};
use super::{privileges, send_report, workspace_check};
use crate::sandbox::confinement::ConfinementSpec;
use crate::sandbox::confinement::bubblewrap::shared_memory_bytes;
use crate::sandbox::confinement::plan::Mount;
use crate::sandbox::supervisor_protocol::{ActiveLayers, ConfinementFailure, FailureCause, Report};

/// Forks into new namespaces.
pub(super) fn fork(spec: &ConfinementSpec, cgroup: Option<&StepCgroup>) -> nix::Result<ForkResult> {
    let mut namespaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    if !spec.network {
        namespaces |= libc::CLONE_NEWNET;
    }
    match cgroup {
        Some(_) => fork_into(cgroup, namespaces).or_else(|_| fork_into(None, namespaces)),
        None => fork_into(None, namespaces),
    }
}

/// Sets up the mounts in the new namespaces.
pub(super) fn set_up(
    spec: &ConfinementSpec,
    plan: &[Mount],
    ids: ProcessIds,
    report_fd: &OwnedFd,
) -> Result<(), ConfinementFailure> {
    let failed = |part| move |errno: Errno| ConfinementFailure { cause: part, errno: errno as i32 };
    map_ids(ids).map_err(failed(FailureCause::Namespaces))?;
    if privileges::limit_processes(spec.limits) {
        send_report(report_fd, Report::Confined(ActiveLayers { process_limit: true, ..ActiveLayers::default() }));
    }
    let caches = mount_all(spec, plan).map_err(|errno| {
        if errno == Errno::ESTALE {
            ConfinementFailure { cause: FailureCause::WorkspaceIsReplaced, errno: 0 }
        } else {
            failed(FailureCause::Mounts)(errno)
        }
    })?;
    if caches == CacheContents::Overlaid {
        send_report(report_fd, Report::Confined(ActiveLayers { overlays: true, ..ActiveLayers::default() }));
    }
    if !spec.network {
        syscalls::loopback_up().map_err(failed(FailureCause::Loopback))?;
    }
    Ok(())
}

/// The user and group ids outside of the namespace; inside, they are unmapped until the id maps are written.
#[derive(Clone, Copy)]
pub(super) struct ProcessIds {
    user: Uid,
    group: Gid,
}

impl ProcessIds {
    /// Returns the ids of this process.
    pub(super) fn current() -> Self {
        Self { user: geteuid(), group: getegid() }
    }
}

/// Maps the user and the group to themselves, and no other ids.
fn map_ids(ProcessIds { user, group }: ProcessIds) -> nix::Result<()> {
    let write = |file: &str, text: String| fs::write(format!("/proc/self/{file}"), text).map_err(errno);
    write("setgroups", "deny".to_owned())?;
    write("gid_map", format!("{group} {group} 1"))?;
    write("uid_map", format!("{user} {user} 1"))
}

/// Whether the private copies of caches contain the caches' contents.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CacheContents {
    /// All of them are overlays over the caches' contents.
    Overlaid,
    /// At least one of them started empty.
    Empty,
}

fn mount_all(spec: &ConfinementSpec, plan: &[Mount]) -> nix::Result<CacheContents> {
    // Mount events must not propagate in either direction.
    let nothing: Option<&str> = None;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)?;
    let (copies, caches) = clone_sources(spec, plan)?;
    let devices = DEVICES.iter().map(|name| Ok((*name, syscalls::clone_mount(&Path::new("/dev").join(name))?)));
    let devices: Vec<(&str, OwnedFd)> = devices.collect::<nix::Result<_>>()?;
    syscalls::set_all_attributes(READ_ONLY | NO_SUID | NO_DEVICES)?;
    self::mount_dev(&devices, shared_memory_bytes(spec))?;
    mount_proc()?;
    let mut emptied = Vec::new();
    for (mount, copy) in plan.iter().zip(copies) {
        apply_mount(mount, copy.as_ref())?;
        if let Mount::EmptyDirectory(path) = mount {
            emptied.push(path);
        }
    }
    // Everything inside them is mounted by now.
    for path in emptied {
        syscalls::set_attributes_at(path, READ_ONLY)?;
    }
    Ok(caches)
}

/// Clones the sources of the mounts before anything is mounted over them.
fn clone_sources(spec: &ConfinementSpec, plan: &[Mount]) -> nix::Result<(Vec<Option<OwnedFd>>, CacheContents)> {
    let mut overlays = Overlays::default();
    let copy = |mount: &Mount| {
        if let Mount::Overlay { target, home, layers, .. } = mount
            && let Some(copy) = overlays.clone_subdirectory(home, layers, target)
        {
            return Ok(Some(copy));
        }
        let (source, marks) = match mount {
            Mount::Writable { source, .. } | Mount::Overlay { fallback: source, .. } => (source, NO_SUID | NO_DEVICES),
            Mount::ReadOnly(path) | Mount::Restore(path) => (path, READ_ONLY | NO_SUID | NO_DEVICES),
            Mount::EmptyFile(_) => (&spec.empty_file, READ_ONLY | NO_SUID | NO_DEVICES),
            Mount::EmptyDirectory(_) | Mount::Link { .. } => return Ok(None),
        };
        let copy = syscalls::clone_mount(source)?;
        if *source == spec.workspace && !workspace_check::is_expected(spec, &copy) {
            return Err(Errno::ESTALE);
        }
        syscalls::set_attributes(&copy, marks)?;
        Ok(Some(copy))
    };
    let copies = plan.iter().map(copy).collect::<nix::Result<_>>()?;
    Ok((copies, overlays.finish()?))
}

/// Overlays of home directories, of which only subdirectories are used. They are mounted next to their layers until the
/// subdirectories are cloned, and no command sees a complete overlay.
#[derive(Default)]
struct Overlays {
    /// The home directories with the mount points of their overlays; `None` if overlays are not supported.
    mounts: Vec<(PathBuf, Option<PathBuf>)>,
}

impl Overlays {
    /// Clones the subdirectory `target` of the overlay of `home`.
    fn clone_subdirectory(&mut self, home: &Path, layers: &Path, target: &Path) -> Option<OwnedFd> {
        if !self.mounts.iter().any(|(known, _)| known == home) {
            // Not every kernel and file system supports overlays: the private copy then starts empty.
            self.mounts.push((home.to_owned(), Self::mount_overlay(home, layers).ok()));
        }
        let (_, whole) = self.mounts.iter().find(|(known, _)| known == home)?;
        syscalls::clone_mount(&whole.as_ref()?.join(target.strip_prefix(home).ok()?)).ok()
    }

    fn mount_overlay(home: &Path, layers: &Path) -> nix::Result<PathBuf> {
        let [upper, work, whole] = ["upper", "work", "whole"].map(|name| layers.join(name));
        for directory in [&upper, &work, &whole] {
            create_dir_all(directory)?;
        }
        // The work directory of an earlier volatile overlay would make this mount fail.
        let _first_time = fs::remove_dir_all(work.join("work"));
        syscalls::attach_mount(&syscalls::overlay(home, &upper, &work)?, &whole)?;
        Ok(whole)
    }

    /// Unmounts the overlays; the cloned subdirectories stay.
    fn finish(self) -> nix::Result<CacheContents> {
        let is_overlaid = !self.mounts.is_empty() && self.mounts.iter().all(|(_, whole)| whole.is_some());
        for whole in self.mounts.iter().filter_map(|(_, whole)| whole.as_ref()) {
            umount2(whole, MntFlags::MNT_DETACH)?;
        }
        Ok(if is_overlaid { CacheContents::Overlaid } else { CacheContents::Empty })
    }
}

fn apply_mount(change: &Mount, copy: Option<&OwnedFd>) -> nix::Result<()> {
    let put = |target: &Path| copy.map_or(Err(Errno::EINVAL), |copy| syscalls::attach_mount(copy, target));
    match change {
        Mount::Writable { target, .. } | Mount::Overlay { target, .. } => {
            // The target may lie in an earlier mount, which is empty.
            create_dir_all(target)?;
            put(target)
        }
        Mount::Restore(path) => {
            if !path.exists() {
                let is_directory = copy.is_some_and(syscalls::is_directory);
                match path.parent().filter(|_| !is_directory) {
                    Some(above) => create_dir_all(above).and_then(|()| File::create(path).map_err(errno).map(drop)),
                    None => create_dir_all(path),
                }?;
            }
            put(path)
        }
        Mount::ReadOnly(path) | Mount::EmptyFile(path) => put(path),
        Mount::EmptyDirectory(path) => {
            create_dir_all(path)?;
            mount_tmpfs(path, "size=64k,mode=0755")
        }
        Mount::Link { path, target } => {
            create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            symlink(target, path).map_err(errno)
        }
    }
}

/// Creates a directory and its missing parents.
fn create_dir_all(path: &Path) -> nix::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(errno)
}

fn mount_tmpfs(path: &Path, options: &str) -> nix::Result<()> {
    mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some(options))
}

/// Mounts a minimal `/dev` with the devices that every program expects.
fn mount_dev(copies: &[(&str, OwnedFd)], shared: u64) -> nix::Result<()> {
    let dev = Path::new("/dev");
    mount_tmpfs(dev, "size=64k,mode=0755")?;
    for (name, copy) in copies {
        let path = dev.join(name);
        File::create(&path).map_err(errno)?;
        syscalls::attach_mount(copy, &path)?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlink(target, dev.join(name)).map_err(errno)?;
    }
    let create_mount_point = |name: &str| -> nix::Result<PathBuf> {
        let path = dev.join(name);
        fs::create_dir(&path).map_err(errno)?;
        Ok(path)
    };
    mount_tmpfs(&create_mount_point("shm")?, &format!("mode=1777,size={shared},nr_inodes={SHM_INODES_MAX}"))?;
    let options = Some("newinstance,ptmxmode=0666,mode=0620");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(Some("devpts"), &create_mount_point("pts")?, Some("devpts"), flags, options)?;
    syscalls::set_attributes_at(dev, READ_ONLY)
}

/// The limit on files in the shared memory: each of them uses kernel memory, however small it is.
const SHM_INODES_MAX: u32 = 65_536;

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Mounts a read-only `/proc` with the processes of this namespace only.
fn mount_proc() -> nix::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    let nothing: Option<&str> = None;
    mount(Some("proc"), "/proc", Some("proc"), flags, nothing)
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}
