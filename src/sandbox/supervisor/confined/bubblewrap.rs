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
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::{ForkResult, geteuid};

use super::super::{StepCgroup, close_from, fork_into};
use super::init::{PROGRAM_FD, REPORT_FD};
use super::{privileges, send_report, syscalls};
use crate::sandbox::confinement::ConfinementSpec;
use crate::sandbox::confinement::bubblewrap::{BWRAP_PATHS, arguments};
use crate::sandbox::confinement::plan::Mount;
use crate::sandbox::supervisor::{ARGUMENT, INIT_ARGUMENT};
use crate::sandbox::supervisor_protocol::{ActiveLayers, ConfinementFailure, FailureCause, Report};

/// Forks; as root into a pid namespace around that of bubblewrap, in which the number of processes can be limited.
pub(super) fn fork(cgroup: Option<&StepCgroup>) -> nix::Result<ForkResult> {
    let around = if geteuid().is_root() { libc::CLONE_NEWPID } else { 0 };
    let mut tried = Err(Errno::ENOSYS);
    for (cgroup, namespaces) in [(cgroup, around), (None, around), (None, 0)] {
        tried = fork_into(cgroup, namespaces);
        if tried.is_ok() {
            break;
        }
    }
    tried
}

/// Executes bubblewrap; returns only on failure.
pub(super) fn exec_bubblewrap(
    body: &[u8],
    spec: &ConfinementSpec,
    plan: &[Mount],
    report_fd: &OwnedFd,
) -> ConfinementFailure {
    if geteuid().is_root() && nix::unistd::getpid().as_raw() == 1 && privileges::limit_processes(spec.limits) {
        send_report(report_fd, Report::Confined(ActiveLayers { process_limit: true, ..ActiveLayers::default() }));
    }
    let errno = match execute(body, spec, plan, report_fd) {
        Ok(never) => match never {},
        Err(errno) => errno,
    };
    ConfinementFailure { cause: FailureCause::Bubblewrap, errno: errno as i32 }
}

fn execute(
    body: &[u8],
    spec: &ConfinementSpec,
    plan: &[Mount],
    report_fd: &OwnedFd,
) -> nix::Result<std::convert::Infallible> {
    let bubblewrap = BWRAP_PATHS.iter().find(|path| Path::new(path).exists()).ok_or(Errno::ENOENT)?;
    let program = File::open("/proc/self/exe").map_err(errno)?;
    let request = request_file(body)?;
    // Above the passed descriptors, so that none is overwritten before it is duplicated.
    let report_fd = dup_above(report_fd)?;
    let program = dup_above(&program)?;
    nix::unistd::dup2_stdin(&request)?;
    syscalls::dup_to(&report_fd, REPORT_FD)?;
    syscalls::dup_to(&program, PROGRAM_FD)?;
    close_from(PROGRAM_FD + 1);
    let mut words = vec![CString::new(*bubblewrap).map_err(|_| Errno::EINVAL)?];
    for word in arguments(spec, plan) {
        words.push(CString::new(word.as_bytes()).map_err(|_| Errno::EINVAL)?);
    }
    for word in ["--", &format!("/proc/self/fd/{PROGRAM_FD}"), ARGUMENT, INIT_ARGUMENT] {
        words.push(CString::new(word).map_err(|_| Errno::EINVAL)?);
    }
    super::super::super::reset_signals()?;
    let nothing: [CString; 0] = [];
    nix::unistd::execve(&words[0], &words, &nothing)
}

/// Returns the request as a memory file, positioned at its start.
fn request_file(body: &[u8]) -> nix::Result<OwnedFd> {
    let mut request = File::from(memfd_create(c"order", MFdFlags::MFD_CLOEXEC)?);
    request.write_all(body).and_then(|()| request.seek(SeekFrom::Start(0))).map_err(errno)?;
    Ok(request.into())
}

/// Duplicates a descriptor to a number above the passed ones.
fn dup_above(fd: &impl std::os::fd::AsFd) -> nix::Result<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(fd, PROGRAM_FD + 1).map_err(syscalls::errno)
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}
