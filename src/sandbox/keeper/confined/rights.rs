//! Resource limits and privileges of a confined process: no capabilities, and no privileges gained by `exec`.

use std::fs;

use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::system::{no_capabilities, process_mark};
use crate::sandbox::confine::Bounds;

/// The secure bits that take all privileges from root, permanently and across `exec`.
const NO_ROOT: libc::c_ulong = 0b11 | 0b1100;

/// Sets the resource limits of each process.
pub(super) fn limit(bounds: Bounds) -> nix::Result<()> {
    lower(Resource::RLIMIT_CORE, 0)?;
    lower(Resource::RLIMIT_FSIZE, bounds.file)?;
    lower(Resource::RLIMIT_DATA, bounds.memory)?;
    // The limit counts the processes of this user in this user namespace; it does not apply to root.
    lower(Resource::RLIMIT_NPROC, bounds.processes)
}

fn lower(what: Resource, most: u64) -> nix::Result<()> {
    let (_, allowed) = getrlimit(what)?;
    let most = most.min(allowed);
    setrlimit(what, most, most)
}

/// Limits the number of processes in this pid namespace, also for root; returns whether the kernel supports it.
pub(super) fn bound_processes(bounds: Bounds) -> bool {
    // The kernel reserves the first 300 process ids for after a wrap-around.
    const LEAST: u64 = 301;
    fs::write("/proc/sys/kernel/pid_max", bounds.processes.max(LEAST).to_string()).is_ok()
}

/// Drops all privileges beyond those of the user, permanently.
pub(super) fn give_up() -> nix::Result<()> {
    process_mark(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    for capability in 0..64 {
        match process_mark(libc::PR_CAPBSET_DROP, capability) {
            // EPERM: there is no capability to drop. Any other error: past the last capability.
            Ok(()) | Err(Errno::EPERM) => {}
            Err(_) => break,
        }
    }
    match process_mark(libc::PR_SET_SECUREBITS, NO_ROOT) {
        Ok(()) | Err(Errno::EPERM) => {}
        Err(errno) => return Err(errno),
    }
    no_capabilities()?;
    process_mark(libc::PR_SET_DUMPABLE, 0)
}
