//! Resource limits and privileges of a confined process: no capabilities, and no privileges gained by `exec`.

use std::fs;

use nix::sys::prctl::{set_dumpable, set_no_new_privs};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities,
    set_capabilities_secure_bits,
};

use super::syscalls::errno;
use crate::sandbox::confinement::ResourceLimits;

/// The secure bits that take all privileges from root, permanently and across `exec`.
const UNPRIVILEGED_ROOT: CapabilitiesSecureBits = CapabilitiesSecureBits::NO_ROOT
    .union(CapabilitiesSecureBits::NO_ROOT_LOCKED)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED);

/// Sets the resource limits of each process.
pub(super) fn set_resource_limits(bounds: ResourceLimits) -> nix::Result<()> {
    lower_limit(Resource::RLIMIT_CORE, 0)?;
    lower_limit(Resource::RLIMIT_FSIZE, bounds.file)?;
    lower_limit(Resource::RLIMIT_DATA, bounds.memory)?;
    // The limit counts the processes of this user in this user namespace; it does not apply to root.
    lower_limit(Resource::RLIMIT_NPROC, bounds.processes)
}

fn lower_limit(resource: Resource, limit: u64) -> nix::Result<()> {
    let (_, allowed) = getrlimit(resource)?;
    let limit = limit.min(allowed);
    setrlimit(resource, limit, limit)
}

/// Limits the number of processes in this pid namespace, also for root; returns whether the kernel supports it.
pub(super) fn limit_processes(bounds: ResourceLimits) -> bool {
    // The kernel reserves the first 300 process ids for after a wrap-around.
    const LEAST: u64 = 301;
    fs::write("/proc/sys/kernel/pid_max", bounds.processes.max(LEAST).to_string()).is_ok()
}

/// Drops all privileges beyond those of the user, permanently.
pub(super) fn drop_privileges() -> nix::Result<()> {
    set_no_new_privs()?;
    for capability in 0..64 {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << capability)) {
            // EPERM: there is no capability to drop. Any other error: past the last capability.
            Ok(()) | Err(Errno::PERM) => {}
            Err(_) => break,
        }
    }
    match set_capabilities_secure_bits(UNPRIVILEGED_ROOT) {
        Ok(()) | Err(Errno::PERM) => {}
        Err(error) => return Err(errno(error)),
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).map_err(errno)?;
    set_dumpable(false)
}
