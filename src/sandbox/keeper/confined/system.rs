//! The system calls that have no wrapper, each as a function that says what it does.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::sys::stat::SFlag;

/// The marks of a mount.
pub(super) const READ_ONLY: u64 = 0x1;
pub(super) const NO_SUID: u64 = 0x2;
pub(super) const NO_DEVICES: u64 = 0x4;

const OPEN_TREE_CLONE: libc::c_uint = 1;
const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 4;

/// What is there under a path, with everything below it, as a mount that stands nowhere yet.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
pub(super) fn copy_of(path: &Path) -> nix::Result<OwnedFd> {
    let path = terminated(path)?;
    let flags = OPEN_TREE_CLONE
        | libc::O_CLOEXEC as libc::c_uint
        | (libc::AT_RECURSIVE | libc::AT_SYMLINK_NOFOLLOW) as libc::c_uint;
    // SAFETY: the path is terminated and outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    // SAFETY: the descriptor is new and nobody else's.
    Errno::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// What is there under a path with a directory over it that takes what is written, as a mount that stands nowhere yet.
pub(super) fn overlay(lower: &Path, upper: &Path, work: &Path) -> nix::Result<OwnedFd> {
    let system = file_system(c"overlay")?;
    // A colon would part two directories.
    let escaped: Vec<u8> = lower
        .as_os_str()
        .as_bytes()
        .iter()
        .flat_map(|byte| [b':', b'\\'].contains(byte).then_some(b'\\').into_iter().chain([*byte]))
        .collect();
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| Errno::EINVAL);
    configure(&system, FSCONFIG_SET_STRING, Some(c"lowerdir"), Some(&text(&escaped)?))?;
    configure(&system, FSCONFIG_SET_STRING, Some(c"upperdir"), Some(&terminated(upper)?))?;
    configure(&system, FSCONFIG_SET_STRING, Some(c"workdir"), Some(&terminated(work)?))?;
    // Without privileges the system may keep its notes in no other attributes.
    configure(&system, FSCONFIG_SET_FLAG, Some(c"userxattr"), None)?;
    // To unmount it would wait for everything that is written on that disk; a cache can be made again.
    configure(&system, FSCONFIG_SET_FLAG, Some(c"volatile"), None)?;
    configure(&system, FSCONFIG_CMD_CREATE, None, None)?;
    mount_of(&system, NO_SUID | NO_DEVICES)
}

const FSCONFIG_SET_FLAG: libc::c_uint = 0;
const FSCONFIG_SET_STRING: libc::c_uint = 1;
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
const FSOPEN_CLOEXEC: libc::c_uint = 1;
const FSMOUNT_CLOEXEC: libc::c_uint = 1;

/// A file system that is to be configured.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn file_system(name: &CStr) -> nix::Result<OwnedFd> {
    // SAFETY: the name is terminated and outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_fsopen, name.as_ptr(), FSOPEN_CLOEXEC) };
    // SAFETY: the descriptor is new and nobody else's.
    Errno::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn configure(
    system: &OwnedFd,
    what: libc::c_uint,
    key: Option<&CStr>,
    value: Option<&CStr>,
) -> nix::Result<()> {
    let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: both texts are terminated or left out, and outlive the call.
    let done = unsafe {
        libc::syscall(libc::SYS_fsconfig, system.as_raw_fd(), what, pointer(key), pointer(value), 0)
    };
    Errno::result(done).map(drop)
}

/// A configured file system as a mount that stands nowhere yet.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn mount_of(system: &OwnedFd, marks: u64) -> nix::Result<OwnedFd> {
    // SAFETY: numbers are passed.
    let fd = unsafe { libc::syscall(libc::SYS_fsmount, system.as_raw_fd(), FSMOUNT_CLOEXEC, marks) };
    // SAFETY: the descriptor is new and nobody else's.
    Errno::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Puts a mount in its place.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
pub(super) fn put(mount: &OwnedFd, target: &Path) -> nix::Result<()> {
    let target = terminated(target)?;
    let nothing = c"";
    // SAFETY: both paths are terminated and outlive the call.
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

/// Tells whether what is mounted is a directory.
pub(super) fn is_directory(mount: &OwnedFd) -> bool {
    let there = nix::sys::stat::fstat(mount);
    there.is_ok_and(|there| SFlag::from_bits_truncate(there.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR)
}

/// Marks a mount, with everything below it.
pub(super) fn mark(mount: &OwnedFd, marks: u64) -> nix::Result<()> {
    set(mount.as_raw_fd(), c"", libc::AT_EMPTY_PATH | libc::AT_RECURSIVE, marks)
}

/// Marks everything that is mounted.
pub(super) fn mark_everything(marks: u64) -> nix::Result<()> {
    set(libc::AT_FDCWD, c"/", libc::AT_RECURSIVE, marks)
}

/// Marks the one mount at a path.
pub(super) fn mark_one(path: &Path, marks: u64) -> nix::Result<()> {
    set(libc::AT_FDCWD, &terminated(path)?, libc::AT_SYMLINK_NOFOLLOW, marks)
}

#[expect(unsafe_code, reason = "the system call has no wrapper")]
fn set(from: RawFd, path: &CStr, flags: libc::c_int, marks: u64) -> nix::Result<()> {
    // SAFETY: all zeroes is a valid value of this structure of numbers.
    let mut change: libc::mount_attr = unsafe { std::mem::zeroed() };
    change.attr_set = marks;
    // SAFETY: the path is terminated, the structure outlives the call and its size is given.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            from,
            path.as_ptr(),
            flags,
            &raw const change,
            size_of_val(&change),
        )
    };
    Errno::result(done).map(drop)
}

/// Closes every descriptor from `first` on.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
pub(super) fn close_from(first: RawFd) {
    // SAFETY: whatever they are, nobody here uses them any more.
    unsafe { libc::syscall(libc::SYS_close_range, first.cast_unsigned(), u32::MAX, 0_u32) };
}

/// Sets one of the marks of a process that `prctl` knows.
#[expect(unsafe_code, reason = "the system call has no wrapper for every use")]
pub(super) fn process_mark(what: libc::c_int, value: libc::c_ulong) -> nix::Result<()> {
    let nothing: libc::c_ulong = 0;
    // SAFETY: numbers are passed.
    Errno::result(unsafe { libc::prctl(what, value, nothing, nothing, nothing) }).map(drop)
}

/// Gives up every capability.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
pub(super) fn no_capabilities() -> nix::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header { version: VERSION_3, pid: 0 };
    // Two times effective, permitted and inheritable.
    let nothing = [0_u32; 6];
    // SAFETY: both structures are of the size that version 3 asks for, and outlive the call.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, &raw const header, nothing.as_ptr()) }).map(drop)
}

/// Switches the loopback network on.
#[expect(unsafe_code, reason = "the system call has no wrapper")]
pub(super) fn loopback_up() -> nix::Result<()> {
    // SAFETY: numbers are passed.
    let socket =
        Errno::result(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor is new and nobody else's.
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

/// Makes a file in memory that other programs inherit.
#[expect(unsafe_code, reason = "the call has no wrapper among the features in use")]
pub(super) fn memory_file() -> nix::Result<OwnedFd> {
    // SAFETY: the name is terminated.
    let fd = Errno::result(unsafe { libc::memfd_create(c"order".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a descriptor the one of this number, which other programs inherit.
#[expect(unsafe_code, reason = "the wrapper takes no number as its target")]
pub(super) fn hand_over(fd: &impl AsFd, number: RawFd) -> nix::Result<()> {
    // SAFETY: numbers are passed; whatever had this number is not used any more.
    Errno::result(unsafe { libc::dup2(fd.as_fd().as_raw_fd(), number) }).map(drop)
}

/// Takes a descriptor that this process was given by its number; other programs will not inherit it.
#[expect(unsafe_code, reason = "what a number stands for is known from who started this process")]
pub(super) fn taken_over(number: RawFd) -> nix::Result<OwnedFd> {
    // SAFETY: numbers are passed.
    Errno::result(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: it is open, as the call above has shown, and nobody else here knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Has reading return what is there, without waiting for more.
pub(super) fn never_wait(fd: &impl AsFd) -> io::Result<()> {
    let set = FcntlArg::F_SETFL(OFlag::O_NONBLOCK);
    Ok(fcntl(fd, set).map(drop)?)
}

fn terminated(path: &Path) -> nix::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)
}
