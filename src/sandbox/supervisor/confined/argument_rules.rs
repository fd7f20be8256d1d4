//! The seccomp rules for system calls that are denied with certain arguments only.
//!
//! Only integer arguments can be filtered: memory that a pointer refers to may change before the kernel reads it. A
//! system call that takes the relevant arguments by pointer is denied as a whole, by [`seccomp`](super::seccomp).

use nix::libc;
use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use crate::sandbox::confinement::Mechanism;

/// A system call, and the rules of which one has to match for it to be denied.
type DeniedCall = (i64, Vec<SeccompRule>);

/// Returns the system calls that are denied with certain arguments.
pub(super) fn denied_calls(unix_sockets: bool, mechanism: Mechanism) -> Result<Vec<DeniedCall>, BackendError> {
    let mut calls = vec![
        (libc::SYS_socket, socket_rules(unix_sockets)?),
        (libc::SYS_socketpair, socketpair_rules(unix_sockets)?),
        (libc::SYS_clone, clone_rules()?),
        (libc::SYS_ioctl, ioctl_rules()?),
        (libc::SYS_personality, personality_rules()?),
        (libc::SYS_shmget, shmget_rules()?),
    ];
    for (call, mode) in CHANGE_MODE.iter().chain(CHANGE_MODE_OF_ARCH) {
        calls.push((*call, set_id_rules(*mode, &[])?));
    }
    for (call, flags, mode) in OPEN.iter().chain(OPEN_OF_ARCH) {
        let mut rules = Vec::new();
        for makes_a_file in [libc::O_CREAT, O_TMPFILE_BIT] {
            rules.extend(set_id_rules(*mode, &[has_bits(*flags, makes_a_file)?])?);
        }
        calls.push((*call, rules));
    }
    match mechanism {
        Mechanism::Bubblewrap | Mechanism::Namespaces => {}
        Mechanism::Rules => {
            for (call, process, all_of_user) in CHANGE_PROCESS {
                let mut rules = vec![SeccompRule::new(vec![differs(*process, 0)?])?];
                if let Some(kind) = all_of_user {
                    rules.push(SeccompRule::new(vec![equals(0, *kind)?])?);
                }
                calls.push((*call, rules));
            }
        }
    }
    Ok(calls)
}

/// System calls that change limits and priorities of any process of the same user, the number of the argument that names
/// the process, and the first argument with which that one names all processes of a user; 0 is the caller, or its
/// user. They are denied where no pid namespace hides the other processes, for the caller's other threads too.
const CHANGE_PROCESS: &[(i64, u8, Option<i32>)] = &[
    (libc::SYS_prlimit64, 0, None),
    (libc::SYS_setpriority, 1, Some(PRIO_USER)),
    (libc::SYS_ioprio_set, 1, Some(IOPRIO_WHO_USER)),
    (libc::SYS_sched_setaffinity, 0, None),
    (libc::SYS_sched_setscheduler, 0, None),
    (libc::SYS_sched_setparam, 0, None),
    (libc::SYS_sched_setattr, 0, None),
];

const PRIO_USER: i32 = 2;
const IOPRIO_WHO_USER: i32 = 3;

/// Sockets: an allow list of families, and of types and protocols within them.
fn socket_rules(unix_sockets: bool) -> Result<Vec<SeccompRule>, BackendError> {
    let mut families = vec![libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    if unix_sockets {
        families.push(libc::AF_UNIX);
    }
    let other = families.iter().map(|family| differs(0, *family));
    let mut rules = vec![SeccompRule::new(other.collect::<Result<_, _>>()?)?];
    for family in [libc::AF_INET, libc::AF_INET6] {
        for kind in types_except([libc::SOCK_STREAM, libc::SOCK_DGRAM]) {
            rules.push(SeccompRule::new(vec![equals(0, family)?, socket_type_is(kind)?])?);
        }
    }
    let other = NETLINK_PROTOCOLS.iter().map(|protocol| differs(2, *protocol));
    let other: Vec<SeccompCondition> =
        std::iter::once(equals(0, libc::AF_NETLINK)).chain(other).collect::<Result<_, _>>()?;
    rules.push(SeccompRule::new(other)?);
    Ok(rules)
}

/// The protocols that programs use to query the network configuration; some of the others let programs talk to each
/// other.
const NETLINK_PROTOCOLS: [i32; 2] = [libc::NETLINK_ROUTE, libc::NETLINK_SOCK_DIAG];

/// Socket pairs: an end of a pair that is not permanently connected can send to any path.
fn socketpair_rules(unix_sockets: bool) -> Result<Vec<SeccompRule>, BackendError> {
    let mut rules = vec![SeccompRule::new(vec![differs(0, libc::AF_UNIX)?])?];
    if !unix_sockets {
        for kind in types_except([libc::SOCK_STREAM, libc::SOCK_SEQPACKET]) {
            rules.push(SeccompRule::new(vec![socket_type_is(kind)?])?);
        }
    }
    Ok(rules)
}

/// The mask of a socket's type without its flags.
const SOCKET_TYPE_MASK: u64 = 0xf;

fn types_except(allowed: [i32; 2]) -> impl Iterator<Item = u64> {
    (0..=SOCKET_TYPE_MASK).filter(move |kind| !allowed.iter().any(|allowed| *allowed as u64 == *kind))
}

fn socket_type_is(kind: u64) -> Result<SeccompCondition, BackendError> {
    condition(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE_MASK), kind)
}

fn clone_rules() -> Result<Vec<SeccompRule>, BackendError> {
    let mut rules: Vec<SeccompRule> =
        NAMESPACE_FLAGS.iter().map(|flag| SeccompRule::new(vec![has_bits(0, *flag)?])).collect::<Result<_, _>>()?;
    // A thread with descriptors of its own, which the supervisor does not list when it measures memory.
    let (thread, files) = (libc::CLONE_THREAD.cast_unsigned().into(), libc::CLONE_FILES.cast_unsigned());
    let own_descriptors = condition(0, SeccompCmpOp::MaskedEq(thread | u64::from(files)), thread)?;
    rules.push(SeccompRule::new(vec![own_descriptors])?);
    Ok(rules)
}

const NAMESPACE_FLAGS: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

fn ioctl_rules() -> Result<Vec<SeccompRule>, BackendError> {
    DENIED_IOCTLS.iter().map(|control| SeccompRule::new(vec![condition(1, SeccompCmpOp::Eq, *control)?])).collect()
}

/// TIOCSTI (inserts terminal input), TIOCLINUX (console commands) and TIOCSETD (line discipline).
const DENIED_IOCTLS: [u64; 3] = [0x5412, 0x541c, 0x5423];

fn personality_rules() -> Result<Vec<SeccompRule>, BackendError> {
    let odd = PERSONALITIES.iter().map(|known| condition(0, SeccompCmpOp::Ne, *known));
    Ok(vec![SeccompRule::new(odd.collect::<Result<_, _>>()?)?])
}

/// The personalities of ordinary programs, and the value that queries the current one.
const PERSONALITIES: [u64; 4] = [0, 0x8, 0x2_0008, 0xffff_ffff];

/// System V shared memory segments: they exist without a process, so only a limit on their size bounds them.
///
/// A namespace has at most 4,096 of them, which makes 256 MiB. Databases request a segment of a few bytes.
fn shmget_rules() -> Result<Vec<SeccompRule>, BackendError> {
    let large = SeccompCondition::new(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Gt, SEGMENT_MAX)?;
    Ok(vec![SeccompRule::new(vec![large])?])
}

const SEGMENT_MAX: u64 = 64 * 1024;

/// The set-user-id and set-group-id bits in the mode in argument number `mode`, if the conditions in `and` hold too.
fn set_id_rules(mode: u8, and: &[SeccompCondition]) -> Result<Vec<SeccompRule>, BackendError> {
    let rule = |bit: u32| {
        SeccompRule::new([and, &[condition(mode, SeccompCmpOp::MaskedEq(bit.into()), bit.into())?]].concat())
    };
    [libc::S_ISUID, libc::S_ISGID].into_iter().map(rule).collect()
}

/// System calls that set a file's mode, and the number of the mode argument. `mkdir` is not among them: the kernel
/// ignores these bits there.
const CHANGE_MODE: &[(i64, u8)] =
    &[(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (FCHMODAT2, 2), (libc::SYS_mknodat, 2)];

/// The same number on all architectures; too new for the libc crate.
const FCHMODAT2: i64 = 452;

/// System calls that take a mode when they create a file: the numbers of the flags argument and of the mode argument.
const OPEN: &[(i64, u8, u8)] = &[(libc::SYS_openat, 2, 3)];

/// An unnamed file that is linked later. `O_TMPFILE` includes the bit of `O_DIRECTORY`.
const O_TMPFILE_BIT: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

#[cfg(target_arch = "x86_64")]
const CHANGE_MODE_OF_ARCH: &[(i64, u8)] = &[(libc::SYS_chmod, 1), (libc::SYS_mknod, 1), (libc::SYS_creat, 1)];
#[cfg(target_arch = "x86_64")]
const OPEN_OF_ARCH: &[(i64, u8, u8)] = &[(libc::SYS_open, 1, 2)];
#[cfg(not(target_arch = "x86_64"))]
const CHANGE_MODE_OF_ARCH: &[(i64, u8)] = &[];
#[cfg(not(target_arch = "x86_64"))]
const OPEN_OF_ARCH: &[(i64, u8, u8)] = &[];

fn equals(argument: u8, value: i32) -> Result<SeccompCondition, BackendError> {
    condition(argument, SeccompCmpOp::Eq, value.cast_unsigned().into())
}

fn differs(argument: u8, value: i32) -> Result<SeccompCondition, BackendError> {
    condition(argument, SeccompCmpOp::Ne, value.cast_unsigned().into())
}

/// The condition that all of these bits are set.
fn has_bits(argument: u8, bits: i32) -> Result<SeccompCondition, BackendError> {
    let bits = bits.cast_unsigned().into();
    condition(argument, SeccompCmpOp::MaskedEq(bits), bits)
}

/// Compares the lower 32 bits, as the kernel does with these arguments.
fn condition(argument: u8, operation: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)
}
