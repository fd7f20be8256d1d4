//! The seccomp filters of a confined process.
//!
//! They are a deny list: an allow list would break programs with every new kernel. A denied system call fails with
//! EPERM. `clone3` and `openat2`, whose arguments cannot be filtered, fail with ENOSYS, so that programs fall back to
//! `clone` and `openat`. Where attributes of files cannot be set, that fails as on a file system without attributes. A
//! system call of another architecture kills the process.

use nix::errno::Errno;
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch, apply_filter, sock_filter};

use super::argument_rules;
use crate::sandbox::confinement::{ConfinementSpec, Mechanism};

/// Installs the filters; returns false if there are none for this architecture.
pub(super) fn install(spec: &ConfinementSpec) -> nix::Result<bool> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else { return Ok(false) };
    let mut programs = vec![deny_filter(arch, spec.unix_sockets, spec.mechanism), missing_filter(arch)];
    match spec.mechanism {
        Mechanism::Bubblewrap | Mechanism::Namespaces => {}
        Mechanism::Rules => programs.push(attributes_filter(arch)),
    }
    for program in programs {
        let program = program.map_err(|_| Errno::EINVAL)?;
        apply_filter(&program).map_err(|_| Errno::ENOSYS)?;
    }
    Ok(true)
}

type CompileResult = Result<BpfProgram, seccompiler::BackendError>;

/// The filter of system calls that fail with EPERM.
fn deny_filter(arch: TargetArch, unix_sockets: bool, mechanism: Mechanism) -> CompileResult {
    let sometimes = argument_rules::denied_calls(unix_sockets, mechanism)?;
    let more = ipc_calls(mechanism);
    let always = ALWAYS_DENIED.iter().chain(OF_ARCH).chain(more).map(|call| (*call, Vec::new()));
    // A system call that is always denied has no argument rules.
    compile(arch, sometimes.into_iter().chain(always).collect(), Errno::EPERM)
}

/// The filter of system calls that fail with ENOSYS.
fn missing_filter(arch: TargetArch) -> CompileResult {
    compile(arch, REPORTED_MISSING.iter().map(|call| (*call, Vec::new())).collect(), Errno::ENOSYS)
}

/// The filter of system calls that set attributes of files, which no Landlock rule is about.
fn attributes_filter(arch: TargetArch) -> CompileResult {
    compile(arch, SET_ATTRIBUTES.iter().map(|call| (*call, Vec::new())).collect(), Errno::EOPNOTSUPP)
}

const SET_ATTRIBUTES: [i64; 8] = [
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SETXATTRAT,
    REMOVEXATTRAT,
];

/// The same numbers on all architectures; too new for the libc crate.
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;

const REPORTED_MISSING: [i64; 2] = [libc::SYS_clone3, libc::SYS_openat2];

/// System calls for IPC objects that all programs of the machine share, denied where no IPC namespace separates them.
const fn ipc_calls(mechanism: Mechanism) -> &'static [i64] {
    match mechanism {
        Mechanism::Bubblewrap | Mechanism::Namespaces => &[],
        Mechanism::Rules => &[
            libc::SYS_shmget,
            libc::SYS_shmat,
            libc::SYS_shmctl,
            libc::SYS_semget,
            libc::SYS_semctl,
            libc::SYS_semop,
            libc::SYS_semtimedop,
            libc::SYS_msgget,
            libc::SYS_msgsnd,
            libc::SYS_msgrcv,
            libc::SYS_msgctl,
            libc::SYS_mq_open,
            libc::SYS_mq_unlink,
        ],
    }
}

fn compile(arch: TargetArch, rules: std::collections::BTreeMap<i64, Vec<SeccompRule>>, errno: Errno) -> CompileResult {
    let errno = SeccompAction::Errno(errno as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, errno.clone(), arch)?;
    let filter: BpfProgram = filter.try_into()?;
    Ok(match arch {
        TargetArch::x86_64 => deny_x32(filter, errno),
        TargetArch::aarch64 | TargetArch::riscv64 => filter,
    })
}

/// Denies the x32 system calls, which have the architecture's identifier and a bit set in their number.
fn deny_x32(filter: BpfProgram, errno: SeccompAction) -> BpfProgram {
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

const ALWAYS_DENIED: &[i64] = &[
    // Access to other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // Memory that no limit accounts for.
    MEMFD_SECRET,
    // Kernel interfaces with a large attack surface.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Kernel keyrings.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Mounts and file handles.
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
    // Administration of the machine.
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

/// The same numbers on all architectures; too new for the libc crate.
const OPEN_TREE_ATTR: i64 = 467;
const MEMFD_SECRET: i64 = 447;

#[cfg(target_arch = "x86_64")]
const OF_ARCH: &[i64] =
    &[libc::SYS_kexec_file_load, libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_uselib];
#[cfg(not(target_arch = "x86_64"))]
const OF_ARCH: &[i64] = &[libc::SYS_kexec_file_load];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_supported_architecture_has_filters() {
        for arch in [TargetArch::x86_64, TargetArch::aarch64, TargetArch::riscv64] {
            for unix_sockets in [false, true] {
                for mechanism in Mechanism::ALL {
                    let program = deny_filter(arch, unix_sockets, mechanism).unwrap();
                    // The kernel's limit on instructions.
                    assert!(program.len() < 4096);
                }
            }
            assert!(!missing_filter(arch).unwrap().is_empty());
            assert!(!attributes_filter(arch).unwrap().is_empty());
        }
    }

    #[test]
    fn no_call_is_denied_both_always_and_by_argument() {
        for (call, _) in argument_rules::denied_calls(false, Mechanism::Rules).unwrap() {
            assert!(
                !ALWAYS_DENIED.contains(&call) && !OF_ARCH.contains(&call) && !REPORTED_MISSING.contains(&call),
                "{call}"
            );
        }
    }
}
