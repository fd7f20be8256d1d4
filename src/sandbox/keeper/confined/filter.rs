//! The system calls that a confined process does not get, in the form the kernel runs.
//!
//! It is a list of what is refused: a list of what is allowed would break a program with every new kernel. A refused call
//! fails as if a right were missing; `clone3`, whose arguments cannot be looked at, fails as if it did not exist, so that
//! the C library falls back to `clone`, whose can. Calls of another architecture end the process.

use nix::errno::Errno;
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};

/// Installs the filters; whether there are any for this architecture.
pub(super) fn install(unix_sockets: bool) -> nix::Result<bool> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else { return Ok(false) };
    for program in [refused(arch, unix_sockets), hidden(arch)] {
        let program = program.map_err(|_| Errno::EINVAL)?;
        apply_filter(&program).map_err(|_| Errno::ENOSYS)?;
    }
    Ok(true)
}

type Made = Result<BpfProgram, seccompiler::BackendError>;

/// Calls that fail for want of a right.
fn refused(arch: TargetArch, unix_sockets: bool) -> Made {
    let always = ALWAYS.iter().chain(OF_ARCH).map(|call| (*call, Vec::new()));
    let sometimes = sometimes(unix_sockets)?;
    program(arch, always.chain(sometimes).collect(), Errno::EPERM)
}

/// Calls that fail as if they did not exist.
fn hidden(arch: TargetArch) -> Made {
    program(arch, [(libc::SYS_clone3, Vec::new())].into(), Errno::ENOSYS)
}

fn program(arch: TargetArch, rules: std::collections::BTreeMap<i64, Vec<SeccompRule>>, errno: Errno) -> Made {
    let errno = SeccompAction::Errno(errno as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, errno.clone(), arch)?;
    let filter: BpfProgram = filter.try_into()?;
    Ok(match arch {
        TargetArch::x86_64 => without_x32(filter, errno),
        TargetArch::aarch64 | TargetArch::riscv64 => filter,
    })
}

/// The calls of the x32 kind pass for those of the architecture and are known by a bit in their number.
fn without_x32(filter: BpfProgram, errno: SeccompAction) -> BpfProgram {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const X32: u32 = 0x4000_0000;
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let mut whole = vec![
        instruction(LOAD_WORD, 0, 0, 0),
        instruction(JUMP_IF_AT_LEAST, 0, 1, X32),
        instruction(RETURN, 0, 0, errno.into()),
    ];
    whole.extend(filter);
    whole
}

/// Calls that are refused with some arguments.
fn sometimes(unix_sockets: bool) -> Result<Vec<(i64, Vec<SeccompRule>)>, seccompiler::BackendError> {
    let when = |argument, operation, value: u64| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)
    };
    let mut kinds = vec![libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    if unix_sockets {
        kinds.push(libc::AF_UNIX);
    }
    let other = kinds.iter().map(|kind| when(0, SeccompCmpOp::Ne, *kind as u64));
    let mut calls = vec![(libc::SYS_socket, vec![SeccompRule::new(other.collect::<Result<_, _>>()?)?])];
    if !unix_sockets {
        // One half of a pair of this kind can be sent from to any path.
        let kind = when(1, SeccompCmpOp::MaskedEq(0xf), libc::SOCK_DGRAM as u64)?;
        calls.push((libc::SYS_socketpair, vec![SeccompRule::new(vec![kind])?]));
    }
    let mut namespaces = Vec::new();
    for flag in NAMESPACES {
        let flag = u64::from(flag.cast_unsigned());
        namespaces.push(SeccompRule::new(vec![when(0, SeccompCmpOp::MaskedEq(flag), flag)?])?);
    }
    calls.push((libc::SYS_clone, namespaces));
    let mut controls = Vec::new();
    for control in CONTROLS {
        controls.push(SeccompRule::new(vec![when(1, SeccompCmpOp::Eq, control)?])?);
    }
    calls.push((libc::SYS_ioctl, controls));
    let odd = PERSONALITIES.map(|known| when(0, SeccompCmpOp::Ne, known)).into_iter();
    calls.push((libc::SYS_personality, vec![SeccompRule::new(odd.collect::<Result<_, _>>()?)?]));
    Ok(calls)
}

const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Typing into a terminal for somebody else, its console's commands, and changing what handles its line.
const CONTROLS: [u64; 3] = [0x5412, 0x541c, 0x5423];

/// The plain ones, and the question which it is.
const PERSONALITIES: [u64; 4] = [0, 0x8, 0x2_0008, 0xffff_ffff];

const ALWAYS: &[i64] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // The kernel's own programs and queues.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Keys.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // The view of the files.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    // Namespaces.
    libc::SYS_unshare,
    libc::SYS_setns,
    // The machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
];

/// One number for all architectures; newer than the list of the C library.
const OPEN_TREE_ATTR: i64 = 467;

#[cfg(target_arch = "x86_64")]
const OF_ARCH: &[i64] =
    &[libc::SYS_kexec_file_load, libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_uselib];
#[cfg(not(target_arch = "x86_64"))]
const OF_ARCH: &[i64] = &[libc::SYS_kexec_file_load];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_filter_for_every_architecture_that_is_known() {
        for arch in [TargetArch::x86_64, TargetArch::aarch64, TargetArch::riscv64] {
            for unix_sockets in [false, true] {
                // The kernel takes so many instructions.
                assert!(refused(arch, unix_sockets).unwrap().len() < 4096);
            }
            assert!(!hidden(arch).unwrap().is_empty());
        }
    }

    #[test]
    fn no_call_is_refused_both_always_and_sometimes() {
        for (call, _) in sometimes(false).unwrap() {
            assert!(!ALWAYS.contains(&call) && !OF_ARCH.contains(&call), "{call}");
        }
    }
}
