//! System calls on mounts, descriptors and interfaces, one function each; some have no safe wrapper.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::sys::stat::SFlag;
use rustix::fs::CWD;
use rustix::mount::{self, FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

/// The attributes of a mount.
pub(super) const READ_ONLY: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_RDONLY;
pub(super) const NO_SUID: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID;
pub(super) const NO_DEVICES: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NODEV;

/// Clones the tree at a path, including submounts, as a detached mount.
pub(super) fn clone_mount(path: &Path) -> nix::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    mount::open_tree(CWD, path, flags).map_err(errno)
}

/// Creates a detached overlay mount: `upper` receives what is written over `lower`.
pub(super) fn overlay(lower: &Path, upper: &Path, work: &Path) -> nix::Result<OwnedFd> {
    let system = mount::fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(errno)?;
    // A colon separates two lower directories.
    let escaped: Vec<u8> = lower
        .as_os_str()
        .as_bytes()
        .iter()
        .flat_map(|byte| [b':', b'\\'].contains(byte).then_some(b'\\').into_iter().chain([*byte]))
        .collect();
    configure_overlay(&system, &escaped, upper, work).map_err(errno)
}

fn configure_overlay(system: &OwnedFd, lower: &[u8], upper: &Path, work: &Path) -> rustix::io::Result<OwnedFd> {
    mount::fsconfig_set_string(system, c"lowerdir", lower)?;
    mount::fsconfig_set_string(system, c"upperdir", upper)?;
    mount::fsconfig_set_string(system, c"workdir", work)?;
    // An unprivileged overlay can store its metadata only in user attributes.
    mount::fsconfig_set_flag(system, c"userxattr")?;
    // Unmounting would otherwise wait for all pending writes on that disk; a cache can be rebuilt.
    mount::fsconfig_set_flag(system, c"volatile")?;
    mount::fsconfig_create(system)?;
    mount::fsmount(system, FsMountFlags::FSMOUNT_CLOEXEC, NO_SUID | NO_DEVICES)
}

/// Attaches a detached mount at `target`.
pub(super) fn attach_mount(mount: &OwnedFd, target: &Path) -> nix::Result<()> {
    mount::move_mount(mount, c"", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(errno)
}

/// Returns whether the root of a mount is a directory.
pub(super) fn is_directory(mount: &OwnedFd) -> bool {
    let stat = nix::sys::stat::fstat(mount);
    stat.is_ok_and(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR)
}

/// Sets attributes of a mount and its submounts.
pub(super) fn set_attributes(mount: &OwnedFd, attributes: MountAttrFlags) -> nix::Result<()> {
    mount_setattr(mount.as_raw_fd(), c"", libc::AT_EMPTY_PATH | libc::AT_RECURSIVE, attributes)
}

/// Sets attributes of all mounts.
pub(super) fn set_all_attributes(attributes: MountAttrFlags) -> nix::Result<()> {
    mount_setattr(libc::AT_FDCWD, c"/", libc::AT_RECURSIVE, attributes)
}

/// Sets attributes of the one mount at a path.
pub(super) fn set_attributes_at(path: &Path, attributes: MountAttrFlags) -> nix::Result<()> {
    mount_setattr(libc::AT_FDCWD, &to_c_string(path)?, libc::AT_SYMLINK_NOFOLLOW, attributes)
}

#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn mount_setattr(from: RawFd, path: &CStr, flags: libc::c_int, attributes: MountAttrFlags) -> nix::Result<()> {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut change: libc::mount_attr = unsafe { std::mem::zeroed() };
    change.attr_set = u64::from(attributes.bits());
    // SAFETY: the path is NUL-terminated, the structure outlives the call and its size is given.
    let done = unsafe {
        libc::syscall(libc::SYS_mount_setattr, from, path.as_ptr(), flags, &raw const change, size_of_val(&change))
    };
    Errno::result(done).map(drop)
}

/// Brings the loopback interface up.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
pub(super) fn loopback_up() -> nix::Result<()> {
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: all zeroes is a valid value of this structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = (*from).cast_signed() as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the descriptor is open, and the structure is the one that this request takes.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    Errno::result(done).map(drop)
}

/// Duplicates a descriptor to the given number, which executed programs inherit.
#[expect(unsafe_code, reason = "the wrapper takes no number as its target")]
pub(super) fn dup_to(fd: &impl AsFd, number: RawFd) -> nix::Result<()> {
    // SAFETY: only integers are passed; nothing uses the previous descriptor of this number any more.
    Errno::result(unsafe { libc::dup2(fd.as_fd().as_raw_fd(), number) }).map(drop)
}

/// Takes ownership of an inherited descriptor; executed programs do not inherit it further.
#[expect(unsafe_code, reason = "the parent process defines the meaning of the descriptor")]
pub(super) fn take_inherited(number: RawFd) -> nix::Result<OwnedFd> {
    // SAFETY: only integers are passed.
    Errno::result(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: it is open, as the call above has shown, and has no other owner in this process.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Makes reads return what is available without waiting for more.
pub(super) fn set_nonblocking(fd: &impl AsFd) -> io::Result<()> {
    let set = FcntlArg::F_SETFL(OFlag::O_NONBLOCK);
    Ok(fcntl(fd, set).map(drop)?)
}

/// Converts an error of one library of system calls to that of the other.
pub(super) fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error())
}

fn to_c_string(path: &Path) -> nix::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)
}
