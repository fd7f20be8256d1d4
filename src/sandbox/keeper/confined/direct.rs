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

use super::super::{Room, fork_into};
use super::system::{self, NO_DEVICES, NO_SUID, READ_ONLY};
use super::{rights, say, workspace};
use crate::sandbox::confine::Walls;
use crate::sandbox::confine::bubblewrap::shared_memory;
use crate::sandbox::confine::plan::Mount;
use crate::sandbox::message::{Obstacle, Part, Report, Standing};

/// Forks into new namespaces.
pub(super) fn fork(walls: &Walls, room: Option<&Room>) -> nix::Result<ForkResult> {
    let mut namespaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    if !walls.network {
        namespaces |= libc::CLONE_NEWNET;
    }
    match room {
        Some(_) => fork_into(room, namespaces).or_else(|_| fork_into(None, namespaces)),
        None => fork_into(None, namespaces),
    }
}

/// Sets up the mounts in the new namespaces.
pub(super) fn enter(walls: &Walls, plan: &[Mount], oneself: Oneself, tell: &OwnedFd) -> Result<(), Obstacle> {
    let failed = |part| move |errno: Errno| Obstacle { part, errno: errno as i32 };
    stay_oneself(oneself).map_err(failed(Part::Namespaces))?;
    if rights::bound_processes(walls.bounds) {
        say(tell, Report::Walled(Standing { processes: true, ..Standing::default() }));
    }
    let caches = view(walls, plan).map_err(|errno| {
        if errno == Errno::ESTALE {
            Obstacle { part: Part::Replaced, errno: 0 }
        } else {
            failed(Part::Mounts)(errno)
        }
    })?;
    if caches == Caches::Overlaid {
        say(tell, Report::Walled(Standing { overlays: true, ..Standing::default() }));
    }
    if !walls.network {
        system::loopback_up().map_err(failed(Part::Loopback))?;
    }
    Ok(())
}

/// The user and group ids outside of the namespace; inside, they are unmapped until the id maps are written.
#[derive(Clone, Copy)]
pub(super) struct Oneself {
    user: Uid,
    group: Gid,
}

impl Oneself {
    /// Returns the ids of this process.
    pub(super) fn now() -> Self {
        Self { user: geteuid(), group: getegid() }
    }
}

/// Maps the user and the group to themselves, and no other ids.
fn stay_oneself(Oneself { user, group }: Oneself) -> nix::Result<()> {
    let write = |file: &str, text: String| fs::write(format!("/proc/self/{file}"), text).map_err(errno);
    write("setgroups", "deny".to_owned())?;
    write("gid_map", format!("{group} {group} 1"))?;
    write("uid_map", format!("{user} {user} 1"))
}

/// Whether the private copies of caches contain the caches' contents.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caches {
    /// All of them are overlays over the caches' contents.
    Overlaid,
    /// At least one of them started empty.
    Bare,
}

fn view(walls: &Walls, plan: &[Mount]) -> nix::Result<Caches> {
    // Mount events must not propagate in either direction.
    let nothing: Option<&str> = None;
    mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)?;
    let (copies, caches) = copies(walls, plan)?;
    let devices = DEVICES.iter().map(|name| Ok((*name, system::copy_of(&Path::new("/dev").join(name))?)));
    let devices: Vec<(&str, OwnedFd)> = devices.collect::<nix::Result<_>>()?;
    system::mark_everything(READ_ONLY | NO_SUID | NO_DEVICES)?;
    self::devices(&devices, shared_memory(walls))?;
    processes()?;
    let mut emptied = Vec::new();
    for (mount, copy) in plan.iter().zip(copies) {
        lay(mount, copy.as_ref())?;
        if let Mount::Empty(path) = mount {
            emptied.push(path);
        }
    }
    // Everything inside them is mounted by now.
    for path in emptied {
        system::mark_one(path, READ_ONLY)?;
    }
    Ok(caches)
}

/// Clones the sources of the mounts before anything is mounted over them.
fn copies(walls: &Walls, plan: &[Mount]) -> nix::Result<(Vec<Option<OwnedFd>>, Caches)> {
    let mut overlays = Overlays::default();
    let copy = |mount: &Mount| {
        if let Mount::Overlay { target, home, layers, .. } = mount
            && let Some(copy) = overlays.part(home, layers, target)
        {
            return Ok(Some(copy));
        }
        let (source, marks) = match mount {
            Mount::Writable { source, .. } | Mount::Overlay { plain: source, .. } => {
                (source, NO_SUID | NO_DEVICES)
            }
            Mount::ReadOnly(path) | Mount::Again(path) => (path, READ_ONLY | NO_SUID | NO_DEVICES),
            Mount::Blank(_) => (&walls.blank, READ_ONLY | NO_SUID | NO_DEVICES),
            Mount::Empty(_) | Mount::Link { .. } => return Ok(None),
        };
        let copy = system::copy_of(source)?;
        if *source == walls.workspace && !workspace::is_it(walls, &copy) {
            return Err(Errno::ESTALE);
        }
        system::mark(&copy, marks)?;
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
    made: Vec<(PathBuf, Option<PathBuf>)>,
}

impl Overlays {
    /// Clones the subdirectory `target` of the overlay of `home`.
    fn part(&mut self, home: &Path, layers: &Path, target: &Path) -> Option<OwnedFd> {
        if !self.made.iter().any(|(known, _)| known == home) {
            // Not every kernel and file system supports overlays: the private copy then starts empty.
            self.made.push((home.to_owned(), Self::make(home, layers).ok()));
        }
        let (_, whole) = self.made.iter().find(|(known, _)| known == home)?;
        system::copy_of(&whole.as_ref()?.join(target.strip_prefix(home).ok()?)).ok()
    }

    fn make(home: &Path, layers: &Path) -> nix::Result<PathBuf> {
        let [upper, work, whole] = ["upper", "work", "whole"].map(|name| layers.join(name));
        for directory in [&upper, &work, &whole] {
            directories(directory)?;
        }
        // The work directory of an earlier volatile overlay would make this mount fail.
        let _first_time = fs::remove_dir_all(work.join("work"));
        system::put(&system::overlay(home, &upper, &work)?, &whole)?;
        Ok(whole)
    }

    /// Unmounts the overlays; the cloned subdirectories stay.
    fn finish(self) -> nix::Result<Caches> {
        let is_overlaid = !self.made.is_empty() && self.made.iter().all(|(_, whole)| whole.is_some());
        for whole in self.made.iter().filter_map(|(_, whole)| whole.as_ref()) {
            umount2(whole, MntFlags::MNT_DETACH)?;
        }
        Ok(if is_overlaid { Caches::Overlaid } else { Caches::Bare })
    }
}

fn lay(change: &Mount, copy: Option<&OwnedFd>) -> nix::Result<()> {
    let put = |target: &Path| copy.map_or(Err(Errno::EINVAL), |copy| system::put(copy, target));
    match change {
        Mount::Writable { target, .. } | Mount::Overlay { target, .. } => {
            // The target may lie in an earlier mount, which is empty.
            directories(target)?;
            put(target)
        }
        Mount::Again(path) => {
            if !path.exists() {
                let is_directory = copy.is_some_and(system::is_directory);
                match path.parent().filter(|_| !is_directory) {
                    Some(above) => {
                        directories(above).and_then(|()| File::create(path).map_err(errno).map(drop))
                    }
                    None => directories(path),
                }?;
            }
            put(path)
        }
        Mount::ReadOnly(path) | Mount::Blank(path) => put(path),
        Mount::Empty(path) => {
            directories(path)?;
            memory(path, "size=64k,mode=0755")
        }
        Mount::Link { path, says } => {
            directories(path.parent().unwrap_or(Path::new("/")))?;
            symlink(says, path).map_err(errno)
        }
    }
}

/// Creates a directory and its missing parents.
fn directories(path: &Path) -> nix::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(errno)
}

fn memory(path: &Path, options: &str) -> nix::Result<()> {
    mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some(options))
}

/// Mounts a minimal `/dev` with the devices that every program expects.
fn devices(copies: &[(&str, OwnedFd)], shared: u64) -> nix::Result<()> {
    let dev = Path::new("/dev");
    memory(dev, "size=64k,mode=0755")?;
    for (name, copy) in copies {
        let path = dev.join(name);
        File::create(&path).map_err(errno)?;
        system::put(copy, &path)?;
    }
    for (name, says) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlink(says, dev.join(name)).map_err(errno)?;
    }
    let place = |name: &str| -> nix::Result<PathBuf> {
        let path = dev.join(name);
        fs::create_dir(&path).map_err(errno)?;
        Ok(path)
    };
    memory(&place("shm")?, &format!("mode=1777,size={shared},nr_inodes={SHARED_FILES}"))?;
    let options = Some("newinstance,ptmxmode=0666,mode=0620");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(Some("devpts"), &place("pts")?, Some("devpts"), flags, options)?;
    system::mark_one(dev, READ_ONLY)
}

/// The limit on files in the shared memory: each of them uses kernel memory, however small it is.
const SHARED_FILES: u32 = 65_536;

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Mounts a read-only `/proc` with the processes of this namespace only.
fn processes() -> nix::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    let nothing: Option<&str> = None;
    mount(Some("proc"), "/proc", Some("proc"), flags, nothing)
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}
