//! System calls without a safe wrapper, one function each.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::sys::stat::SFlag;

/// The attributes of a mount.
pub(super) const READ_ONLY: u64 = 0x1;
pub(super) const NO_SUID: u64 = 0x2;
pub(super) const NO_DEVICES: u64 = 0x4;

const OPEN_TREE_CLONE: libc::c_uint = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;

/// Clones the tree at a path, including submounts, as a detached mount.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
pub(super) fn clone_mount(path: &Path) -> nix::Result<OwnedFd> {
    let path = to_c_string(path)?;
    let flags = OPEN_TREE_CLONE
        | libc::O_CLOEXEC as libc::c_uint
        | (libc::AT_RECURSIVE | libc::AT_SYMLINK_NOFOLLOW) as libc::c_uint;
    // SAFETY: the path is NUL-terminated and outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    // SAFETY: the descriptor is new and has no other owner.
    Errno::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Creates a detached overlay mount: `upper` receives what is written over `lower`.
pub(super) fn overlay(lower: &Path, upper: &Path, work: &Path) -> nix::Result<OwnedFd> {
    let system = open_file_system(c"overlay")?;
    // A colon separates two lower directories.
    let escaped: Vec<u8> = lower
        .as_os_str()
        .as_bytes()
        .iter()
        .flat_map(|byte| [b':', b'\\'].contains(byte).then_some(b'\\').into_iter().chain([*byte]))
        .collect();
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| Errno::EINVAL);
    configure(&system, FSCONFIG_SET_STRING, Some(c"lowerdir"), Some(&text(&escaped)?))?;
    configure(&system, FSCONFIG_SET_STRING, Some(c"upperdir"), Some(&to_c_string(upper)?))?;
    configure(&system, FSCONFIG_SET_STRING, Some(c"workdir"), Some(&to_c_string(work)?))?;
    // An unprivileged overlay can store its metadata only in user attributes.
    configure(&system, FSCONFIG_SET_FLAG, Some(c"userxattr"), None)?;
    // Unmounting would otherwise wait for all pending writes on that disk; a cache can be rebuilt.
    configure(&system, FSCONFIG_SET_FLAG, Some(c"volatile"), None)?;
    configure(&system, FSCONFIG_CMD_CREATE, None, None)?;
    create_mount(&system, NO_SUID | NO_DEVICES)
}

const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;

/// Opens a file system context for configuration.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn open_file_system(name: &CStr) -> nix::Result<OwnedFd> {
    // SAFETY: the name is NUL-terminated and outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_fsopen, name.as_ptr(), FSOPEN_CLOEXEC) };
    // SAFETY: the descriptor is new and has no other owner.
    Errno::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn configure(system: &OwnedFd, what: libc::c_uint, key: Option<&CStr>, value: Option<&CStr>) -> nix::Result<()> {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: both strings are NUL-terminated or null, and outlive the call.
    let done = unsafe { libc::syscall(libc::SYS_fsconfig, system.as_raw_fd(), what, pointer(key), pointer(value), 0) };
    Errno::result(done).map(drop)
}

/// Creates a detached mount of a configured file system.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn create_mount(system: &OwnedFd, attributes: u64) -> nix::Result<OwnedFd> {
    // SAFETY: only integers are passed.
    let fd = unsafe { libc::syscall(libc::SYS_fsmount, system.as_raw_fd(), FSMOUNT_CLOEXEC, attributes) };
    // SAFETY: the descriptor is new and has no other owner.
    Errno::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Attaches a detached mount at `target`.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
pub(super) fn attach_mount(mount: &OwnedFd, target: &Path) -> nix::Result<()> {
    let target = to_c_string(target)?;
    let nothing = c"";
    // SAFETY: both paths are NUL-terminated and outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            nothing.as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    Errno::result(done).map(drop)
}

/// Returns whether the root of a mount is a directory.
pub(super) fn is_directory(mount: &OwnedFd) -> bool {
    let there = nix::sys::stat::fstat(mount);
    there.is_ok_and(|there| SFlag::from_bits_truncate(there.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR)
}

/// Sets attributes of a mount and its submounts.
pub(super) fn set_attributes(mount: &OwnedFd, attributes: u64) -> nix::Result<()> {
    mount_setattr(mount.as_raw_fd(), c"", libc::AT_EMPTY_PATH | libc::AT_RECURSIVE, attributes)
}

/// Sets attributes of all mounts.
pub(super) fn set_all_attributes(attributes: u64) -> nix::Result<()> {
    mount_setattr(libc::AT_FDCWD, c"/", libc::AT_RECURSIVE, attributes)
}

/// Sets attributes of the one mount at a path.
pub(super) fn set_attributes_at(path: &Path, attributes: u64) -> nix::Result<()> {
    mount_setattr(libc::AT_FDCWD, &to_c_string(path)?, libc::AT_SYMLINK_NOFOLLOW, attributes)
}

#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn mount_setattr(from: RawFd, path: &CStr, flags: libc::c_int, attributes: u64) -> nix::Result<()> {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut change: libc::mount_attr = unsafe { std::mem::zeroed() };
    change.attr_set = attributes;
    // SAFETY: the path is NUL-terminated, the structure outlives the call and its size is given.
    let done = unsafe {
        libc::syscall(libc::SYS_mount_setattr, from, path.as_ptr(), flags, &raw const change, size_of_val(&change))
    };
    Errno::result(done).map(drop)
}

/// Closes every descriptor from `first` on.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
pub(super) fn close_from(first: RawFd) {
    // SAFETY: nothing in this process uses these descriptors any more.
    unsafe { libc::syscall(libc::SYS_close_range, first.cast_unsigned(), u32::MAX, 0_u32) };
}

/// Calls `prctl` with one argument.
#[expect(unsafe_code, reason = "the system call has no wrapper for every use")]
pub(super) fn prctl(what: libc::c_int, value: libc::c_ulong) -> nix::Result<()> {
    let nothing: libc::c_ulong = 0;
    // SAFETY: only integers are passed.
    Errno::result(unsafe { libc::prctl(what, value, nothing, nothing, nothing) }).map(drop)
}

/// Drops all capabilities.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
pub(super) fn drop_capabilities() -> nix::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header { version: VERSION_3, pid: 0 };
    // The effective, permitted and inheritable sets, two words each.
    let nothing = [0_u32; 6];
    // SAFETY: both structures have the size that version 3 requires, and outlive the call.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, &raw const header, nothing.as_ptr()) }).map(drop)
}

/// Brings the loopback interface up.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
pub(super) fn loopback_up() -> nix::Result<()> {
    // SAFETY: only integers are passed.
    let socket = Errno::result(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor is new and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
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

/// Creates an anonymous memory file.
#[expect(unsafe_code, reason = "the call has no wrapper among the features in use")]
pub(super) fn memory_file() -> nix::Result<OwnedFd> {
    // SAFETY: the name is NUL-terminated.
    let fd = Errno::result(unsafe { libc::memfd_create(c"order".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
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

fn to_c_string(path: &Path) -> nix::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)
}
