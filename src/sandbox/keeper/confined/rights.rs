//! What a sealed process may use and may do: limits, no capability, nothing gained by executing.

use std::fs;

use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::system::{no_capabilities, process_mark};
use crate::sandbox::confine::Bounds;

/// Being root means nothing, for good, also to programs that are executed.
const NO_ROOT: libc::c_ulong = 0b11 | 0b1100;

/// Bounds what each process may use.
pub(super) fn limit(bounds: Bounds) -> nix::Result<()> {
    lower(Resource::RLIMIT_CORE, 0)?;
    lower(Resource::RLIMIT_FSIZE, bounds.file)?;
    lower(Resource::RLIMIT_DATA, bounds.memory)?;
    // It counts the processes of this user in this user namespace; root is not bound by it.
    lower(Resource::RLIMIT_NPROC, bounds.processes)
}

fn lower(what: Resource, most: u64) -> nix::Result<()> {
    let (_, allowed) = getrlimit(what)?;
    let most = most.min(allowed);
    setrlimit(what, most, most)
}

/// Bounds the processes of this pid namespace, which also holds for root; whether the kernel can.
pub(super) fn bound_processes(bounds: Bounds) -> bool {
    // The kernel reserves the first three hundred numbers for after a wrap.
    const LEAST: u64 = 301;
    fs::write("/proc/sys/kernel/pid_max", bounds.processes.max(LEAST).to_string()).is_ok()
}

/// Gives up every right beyond those of the user, and the way to get one back.
pub(super) fn give_up() -> nix::Result<()> {
    process_mark(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    for capability in 0..64 {
        match process_mark(libc::PR_CAPBSET_DROP, capability) {
            // Without the right to drop one there is none to drop; past the last one the kernel says so.
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
