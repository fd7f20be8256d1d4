//! Attempts that need more than a shell: this test program runs inside the sandbox, makes system calls, and prints
//! `ESCAPED` when one succeeds that must fail.

#![allow(unsafe_code, reason = "the attempts are system calls that nobody wraps")]

use std::ffi::CString;
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::time::Duration;

use nix::libc;

/// Makes the system calls of one attempt.
pub(crate) fn run_call(name: &str) {
    let word = std::env::var("ATTEMPT_WORDS").unwrap_or_default();
    let words: Vec<&str> = word.split(' ').collect();
    match name {
        "connect" => report(UnixStream::connect(words[0]).is_ok(), name),
        "connect_abstract" => {
            let address = SocketAddr::from_abstract_name(words[0]).unwrap();
            report(UnixStream::connect_addr(&address).is_ok(), name);
        }
        "send" => {
            let sent = UnixDatagram::unbound().and_then(|socket| socket.send_to(b"escaped", words[0]));
            report(sent.is_ok(), name);
        }
        "send_from_pair" => {
            let sent = UnixDatagram::pair().and_then(|(socket, _other)| {
                socket.connect(words[0])?;
                socket.send(b"escaped")
            });
            report(sent.is_ok(), name);
        }
        "connect_port" => {
            let address = (words[0], words[1].parse().unwrap());
            let address = std::net::ToSocketAddrs::to_socket_addrs(&address).unwrap().next().unwrap();
            report(TcpStream::connect_timeout(&address, Duration::from_secs(5)).is_ok(), name);
        }
        "send_port" => {
            let sent = UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"escaped", format!("127.0.0.1:{}", words[0]));
            // `sendto` reports success even without a receiver; the listener outside is checked.
            println!("{sent:?}");
        }
        "own_loopback" => {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let connected = TcpStream::connect(listener.local_addr().unwrap()).is_ok();
            println!("{}", if connected { "connected to itself" } else { "not connected" });
        }
        "socket_vsock" => report(call(libc::SYS_socket, [40, 1, 0, 0, 0]) >= 0, name),
        "socket_packet" => report(call(libc::SYS_socket, [17, 3, 0x300, 0, 0]) >= 0, name),
        "memory_shell" => memory_shell(),
        "trace_victim" => {
            const SEIZE: i64 = 0x4206;
            report(call(libc::SYS_ptrace, [SEIZE, victim(), 0, 0, 0]) == 0, name);
        }
        "read_victim" => {
            let mut byte = 0_u8;
            let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
            // The remote address is invalid: only a caller with permission gets `EFAULT`.
            let remote = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 1 };
            let words = [victim(), (&raw const local) as i64, 1, (&raw const remote) as i64, 1];
            report(errno_of(libc::SYS_process_vm_readv, words) == libc::EFAULT, name);
        }
        "name_victim" => report(call(libc::SYS_pidfd_open, [victim(), 0, 0, 0, 0]) >= 0, name),
        "take_descriptor" => {
            let parent = i64::from(nix::unistd::getppid().as_raw());
            let process = call(libc::SYS_pidfd_open, [parent, 0, 0, 0, 0]);
            report(call(libc::SYS_pidfd_getfd, [process, 0, 0, 0, 0]) >= 0, name);
        }
        "machine_calls" => machine_calls(),
        "clone_namespaces" => clone_namespaces(),
        "io_uring" => {
            let mut parameters = [0_u8; 120];
            report(call(libc::SYS_io_uring_setup, [4, parameters.as_mut_ptr() as i64, 0, 0, 0]) >= 0, name);
        }
        "foreign_abis" => foreign_abis(),
        "type_into_terminal" => type_into_terminal(),
        "gigabyte" => gigabyte(),
        other => super::calls_process::run_call(other, &words),
    }
}

pub(crate) fn report(so: bool, what: &str) {
    println!("{}: {what}", if so { "ESCAPED" } else { "refused" });
}

pub(crate) fn victim() -> i64 {
    std::env::var("VICTIM").unwrap().parse().unwrap()
}

pub(crate) fn call(number: i64, words: [i64; 5]) -> i64 {
    let [a, b, c, d, e] = words;
    // SAFETY: the attempts pass numbers, and addresses of values that live during the call.
    unsafe { libc::syscall(number, a, b, c, d, e, 0) }
}

/// The error number of a call that fails; 0 when it succeeded.
pub(crate) fn errno_of(number: i64, words: [i64; 5]) -> i32 {
    if call(number, words) >= 0 { 0 } else { nix::errno::Errno::last_raw() }
}

/// Executes a shell from a memory file.
fn memory_shell() {
    // SAFETY: the name is terminated.
    let file = unsafe { libc::memfd_create(c"shell".as_ptr(), 0) };
    assert!(file >= 0, "memory for a shell");
    // SAFETY: the descriptor is new.
    let mut file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(file) });
    std::io::copy(&mut std::fs::File::open("/bin/sh").unwrap(), &mut file).unwrap();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let status = std::process::Command::new(path).args(["-c", "echo x > $OUT/escaped"]).status();
    println!("{status:?}");
}

/// Calls that no command needs: each must fail for lack of a privilege, before the kernel checks anything else.
fn machine_calls() {
    let path = CString::new("/").unwrap();
    let root = path.as_ptr() as i64;
    for (name, number, words) in [
        ("bpf", libc::SYS_bpf, [0, 0, 0, 0, 0]),
        ("perf_event_open", libc::SYS_perf_event_open, [0, 0, 0, 0, 0]),
        ("userfaultfd", libc::SYS_userfaultfd, [1, 0, 0, 0, 0]),
        ("keyctl", libc::SYS_keyctl, [0, -3, 1, 0, 0]),
        ("add_key", libc::SYS_add_key, [0, 0, 0, 0, 0]),
        ("request_key", libc::SYS_request_key, [0, 0, 0, 0, 0]),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, [-100, 0, 0, 0, 0]),
        ("fanotify_init", libc::SYS_fanotify_init, [0, 0, 0, 0, 0]),
        ("mount", libc::SYS_mount, [0, 0, 0, 0, 0]),
        ("umount2", libc::SYS_umount2, [0, 0, 0, 0, 0]),
        ("pivot_root", libc::SYS_pivot_root, [root, root, 0, 0, 0]),
        ("open_tree", libc::SYS_open_tree, [-100, root, 1, 0, 0]),
        ("move_mount", libc::SYS_move_mount, [-100, root, -100, root, 0]),
        ("fsopen", libc::SYS_fsopen, [0, 0, 0, 0, 0]),
        ("mount_setattr", libc::SYS_mount_setattr, [-100, root, 0, 0, 0]),
        ("setns", libc::SYS_setns, [0, 0, 0, 0, 0]),
        ("unshare", libc::SYS_unshare, [0, 0, 0, 0, 0]),
        ("chroot", libc::SYS_chroot, [root, 0, 0, 0, 0]),
        ("init_module", libc::SYS_init_module, [0, 0, 0, 0, 0]),
        ("delete_module", libc::SYS_delete_module, [0, 0, 0, 0, 0]),
        ("kexec_load", libc::SYS_kexec_load, [0, 0, 0, 0, 0]),
        ("reboot", libc::SYS_reboot, [0, 0, 0, 0, 0]),
        ("swapoff", libc::SYS_swapoff, [0, 0, 0, 0, 0]),
        ("acct", libc::SYS_acct, [0, 0, 0, 0, 0]),
        ("quotactl", libc::SYS_quotactl, [0, 0, 0, 0, 0]),
        ("syslog", libc::SYS_syslog, [10, 0, 0, 0, 0]),
        ("clock_settime", libc::SYS_clock_settime, [0, 0, 0, 0, 0]),
        ("kcmp", libc::SYS_kcmp, [1, 1, 0, 0, 0]),
        ("personality", libc::SYS_personality, [0x004_0000, 0, 0, 0, 0]),
    ] {
        report(errno_of(number, words) != libc::EPERM, name);
    }
    report(call(libc::SYS_clone3, [0, 0, 0, 0, 0]) >= 0 || nix::errno::Errno::last_raw() != libc::ENOSYS, "clone3");
}

/// Starts children in new namespaces, one kind after another.
fn clone_namespaces() {
    for flag in [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWUSER | libc::CLONE_NEWNS,
        libc::CLONE_NEWUSER | libc::CLONE_NEWPID,
        libc::CLONE_NEWUSER | libc::CLONE_NEWNET,
    ] {
        let child = call(libc::SYS_clone, [i64::from(flag | libc::SIGCHLD), 0, 0, 0, 0]);
        if child == 0 {
            // SAFETY: the child ends at once.
            unsafe { libc::_exit(0) };
        }
        report(child > 0, "clone into a namespace");
    }
}

/// Calls with another ABI: those of x32, and those of 32-bit x86.
#[cfg(target_arch = "x86_64")]
fn foreign_abis() {
    const X32: i64 = 0x4000_0000;
    for number in [libc::SYS_getpid, libc::SYS_ptrace, libc::SYS_unshare] {
        report(call(number | X32, [0, 0, 0, 0, 0]) >= 0, "a call of x32");
    }
    // The filter kills the caller, so a child makes the call.
    let child = call(libc::SYS_clone, [i64::from(libc::SIGCHLD), 0, 0, 0, 0]);
    if child == 0 {
        let mut answer: i64 = 20;
        // SAFETY: it asks for the own process id, by the 32-bit entry point.
        unsafe {
            std::arch::asm!("int 0x80", inout("rax") answer, out("r8") _, out("r9") _, out("r10") _, out("r11") _)
        };
        // SAFETY: the child ends at once.
        unsafe { libc::_exit(if answer > 0 { 77 } else { 0 }) };
    }
    let status = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(child as i32), None).unwrap();
    report(matches!(status, nix::sys::wait::WaitStatus::Exited(_, 77)), "a call of an older machine");
}

#[cfg(not(target_arch = "x86_64"))]
fn foreign_abis() {}

/// Types characters into a terminal for the next reader: into that of the session, and into a new one.
fn type_into_terminal() {
    const TIOCSTI: libc::Ioctl = 0x5412;
    for path in [c"/dev/tty", c"/dev/ptmx", c"/dev/console", c"/proc/self/fd/0"] {
        // SAFETY: the path is terminated.
        let terminal = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_NOCTTY) };
        if terminal < 0 {
            continue;
        }
        let letter = b'x';
        // SAFETY: the descriptor is open and the character lives during the call.
        let typed = unsafe { libc::ioctl(terminal, TIOCSTI, &raw const letter) };
        let with_rights = nix::errno::Errno::last_raw();
        report(typed == 0 || with_rights != libc::EPERM, "typing");
    }
}

/// Writes a gigabyte of memory.
fn gigabyte() {
    let mut held = Vec::new();
    for _ in 0..16 {
        const CHUNK: usize = 64 * 1024 * 1024;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory at an address that the system chooses.
        let piece =
            unsafe { libc::mmap(std::ptr::null_mut(), CHUNK, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if piece == libc::MAP_FAILED {
            return report(false, "a gigabyte");
        }
        for page in (0..CHUNK).step_by(4096) {
            // SAFETY: the address lies in the memory just mapped.
            unsafe { piece.cast::<u8>().add(page).write(1) };
        }
        held.push(piece);
    }
    report(held.len() == 16, "a gigabyte");
}
