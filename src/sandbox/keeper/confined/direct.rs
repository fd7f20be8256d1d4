//! Namespaces and mounts that the keeper makes itself.
//!
//! Everything that is mounted becomes read-only where it is; what may be written, hidden or protected is then put over it.
//! Copies of what is to be shown again are taken before, as descriptors, so that no path has to lead to them afterwards.

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

/// Forks into namespaces of its own.
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

/// Makes the view of the files, in namespaces that are there.
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

/// Who this process is outside; inside, before that is said, it is nobody.
#[derive(Clone, Copy)]
pub(super) struct Oneself {
    user: Uid,
    group: Gid,
}

impl Oneself {
    /// Who this process is.
    pub(super) fn now() -> Self {
        Self { user: geteuid(), group: getegid() }
    }
}

/// Is the same user inside as outside, and there is nobody else.
fn stay_oneself(Oneself { user, group }: Oneself) -> nix::Result<()> {
    let write = |file: &str, text: String| fs::write(format!("/proc/self/{file}"), text).map_err(errno);
    write("setgroups", "deny".to_owned())?;
    write("gid_map", format!("{group} {group} 1"))?;
    write("uid_map", format!("{user} {user} 1"))
}

/// How the private copies of caches begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caches {
    /// With what is in the caches.
    Overlaid,
    /// Empty, at least one of them.
    Bare,
}

fn view(walls: &Walls, plan: &[Mount]) -> nix::Result<Caches> {
    // Nothing done here is to be seen outside, nor the other way round.
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
    // What is to stand in them stands there by then.
    for path in emptied {
        system::mark_one(path, READ_ONLY)?;
    }
    Ok(caches)
}

/// What is to be put somewhere, taken before anything is covered.
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

/// Overlays of homes, of which parts are taken: they stand beside their layers until that is done, and nobody sees the whole.
#[derive(Default)]
struct Overlays {
    /// The homes, and where their overlays stand; nothing where the system has none.
    made: Vec<(PathBuf, Option<PathBuf>)>,
}

impl Overlays {
    /// Takes what stands at `target` in the overlay of `home`.
    fn part(&mut self, home: &Path, layers: &Path, target: &Path) -> Option<OwnedFd> {
        if !self.made.iter().any(|(known, _)| known == home) {
            // Not every system and not every file system can: then the copy begins empty.
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
        // What the overlay before has left there would refuse this one, as it was not written to the disk in order.
        let _first_time = fs::remove_dir_all(work.join("work"));
        system::put(&system::overlay(home, &upper, &work)?, &whole)?;
        Ok(whole)
    }

    /// Takes the overlays away again; what was taken of them stays.
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
            // It may lie in what was put before it, where nothing is yet.
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

/// Makes a directory and those above it, where they are missing.
fn directories(path: &Path) -> nix::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(errno)
}

fn memory(path: &Path, options: &str) -> nix::Result<()> {
    mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some(options))
}

/// A small `/dev`: what every program expects and nothing of the machine.
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

/// How many files may be in the shared memory: each takes memory of the kernel, however small it is.
const SHARED_FILES: u32 = 65_536;

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// The processes of this namespace and no others; nothing in it can be written.
fn processes() -> nix::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    let nothing: Option<&str> = None;
    mount(Some("proc"), "/proc", Some("proc"), flags, nothing)
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}
