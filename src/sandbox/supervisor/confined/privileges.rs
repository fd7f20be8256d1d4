//! Resource limits and privileges of a confined process: no capabilities, and no privileges gained by `exec`.

use std::fs;

use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::syscalls::{drop_capabilities, prctl};
use crate::sandbox::confinement::ResourceLimits;

/// The secure bits that take all privileges from root, permanently and across `exec`.
const UNPRIVILEGED_ROOT: libc::c_ulong = 0b11 | 0b1100;

/// Sets the resource limits of each process.
pub(super) fn set_resource_limits(bounds: ResourceLimits) -> nix::Result<()> {
    lower_limit(Resource::RLIMIT_CORE, 0)?;
    lower_limit(Resource::RLIMIT_FSIZE, bounds.file)?;
    lower_limit(Resource::RLIMIT_DATA, bounds.memory)?;
    // The limit counts the processes of this user in this user namespace; it does not apply to root.
    lower_limit(Resource::RLIMIT_NPROC, bounds.processes)
}

fn lower_limit(what: Resource, most: u64) -> nix::Result<()> {
    let (_, allowed) = getrlimit(what)?;
    let most = most.min(allowed);
    setrlimit(what, most, most)
}

/// Limits the number of processes in this pid namespace, also for root; returns whether the kernel supports it.
pub(super) fn limit_processes(bounds: ResourceLimits) -> bool {
    // The kernel reserves the first 300 process ids for after a wrap-around.
    const LEAST: u64 = 301;
    fs::write("/proc/sys/kernel/pid_max", bounds.processes.max(LEAST).to_string()).is_ok()
}

/// Drops all privileges beyond those of the user, permanently.
pub(super) fn drop_privileges() -> nix::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    for capability in 0..64 {
        match prctl(libc::PR_CAPBSET_DROP, capability) {
            // EPERM: there is no capability to drop. Any other error: past the last capability.
            Ok(()) | Err(Errno::EPERM) => {}
            Err(_) => break,
        }
    }
    match prctl(libc::PR_SET_SECUREBITS, UNPRIVILEGED_ROOT) {
        Ok(()) | Err(Errno::EPERM) => {}
        Err(errno) => return Err(errno),
    }
    drop_capabilities()?;
    prctl(libc::PR_SET_DUMPABLE, 0)
}
