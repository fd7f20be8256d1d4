//! Creates the namespaces of a step with bubblewrap.
//!
//! Bubblewrap's arguments contain only paths: the request is passed to [`init`](super::init) as a memory file, and this
//! program as a descriptor, so neither has to be visible inside the namespaces.

use std::ffi::CString;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{ForkResult, geteuid};

use super::super::{Room, fork_into};
use super::init::{PROGRAM, TELL};
use super::{rights, say, system};
use crate::sandbox::confine::Walls;
use crate::sandbox::confine::bubblewrap::{PROGRAMS, arguments};
use crate::sandbox::confine::plan::Mount;
use crate::sandbox::keeper::{ARGUMENT, INSIDE};
use crate::sandbox::message::{Obstacle, Part, Report, Standing};

/// Forks; as root into a pid namespace around that of bubblewrap, in which the number of processes can be limited.
pub(super) fn fork(room: Option<&Room>) -> nix::Result<ForkResult> {
    let around = if geteuid().is_root() { libc::CLONE_NEWPID } else { 0 };
    let mut tried = Err(Errno::ENOSYS);
    for (room, namespaces) in [(room, around), (None, around), (None, 0)] {
        tried = fork_into(room, namespaces);
        if tried.is_ok() {
            break;
        }
    }
    tried
}

/// Executes bubblewrap; returns only on failure.
pub(super) fn become_it(body: &[u8], walls: &Walls, plan: &[Mount], tell: &OwnedFd) -> Obstacle {
    if geteuid().is_root() && nix::unistd::getpid().as_raw() == 1 && rights::bound_processes(walls.bounds) {
        say(tell, Report::Walled(Standing { processes: true, ..Standing::default() }));
    }
    let errno = match execute(body, walls, plan, tell) {
        Ok(never) => match never {},
        Err(errno) => errno,
    };
    Obstacle { part: Part::Bubblewrap, errno: errno as i32 }
}

fn execute(
    body: &[u8],
    walls: &Walls,
    plan: &[Mount],
    tell: &OwnedFd,
) -> nix::Result<std::convert::Infallible> {
    let bubblewrap = PROGRAMS.iter().find(|path| Path::new(path).exists()).ok_or(Errno::ENOENT)?;
    let program = File::open("/proc/self/exe").map_err(errno)?;
    let order = order(body)?;
    // Above the passed descriptors, so that none is overwritten before it is duplicated.
    let tell = above(tell)?;
    let program = above(&program)?;
    nix::unistd::dup2_stdin(&order)?;
    system::hand_over(&tell, TELL)?;
    system::hand_over(&program, PROGRAM)?;
    system::close_from(PROGRAM + 1);
    let mut words = vec![CString::new(*bubblewrap).map_err(|_| Errno::EINVAL)?];
    for word in arguments(walls, plan) {
        words.push(CString::new(word.as_bytes()).map_err(|_| Errno::EINVAL)?);
    }
    for word in ["--", &format!("/proc/self/fd/{PROGRAM}"), ARGUMENT, INSIDE] {
        words.push(CString::new(word).map_err(|_| Errno::EINVAL)?);
    }
    super::super::super::standard_signals()?;
    let nothing: [CString; 0] = [];
    nix::unistd::execve(&words[0], &words, &nothing)
}

/// Returns the request as a memory file, positioned at its start.
fn order(body: &[u8]) -> nix::Result<OwnedFd> {
    let mut order = File::from(system::memory_file()?);
    order.write_all(body).and_then(|()| order.seek(SeekFrom::Start(0))).map_err(errno)?;
    Ok(order.into())
}

/// Duplicates a descriptor to a number above the passed ones.
#[expect(unsafe_code, reason = "the wrapper gives no owned descriptor")]
fn above(fd: &impl std::os::fd::AsFd) -> nix::Result<OwnedFd> {
    let above = nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(PROGRAM + 1))?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(above) })
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}
