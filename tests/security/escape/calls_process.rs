//! The system calls of `attempts_calls.rs`, made by this test program inside the sandbox.

#![allow(unsafe_code, reason = "the attempts are system calls that nobody wraps")]

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use nix::libc;

use super::calls::{call, errno_of, report, victim};

/// Makes the system calls of one attempt.
pub(crate) fn run_call(name: &str, words: &[&str]) {
    match name {
        "limits_of_victim" => {
            let few = libc::rlimit64 { rlim_cur: 1, rlim_max: 1 };
            let limit = i64::from(libc::RLIMIT_NOFILE);
            report(call(libc::SYS_prlimit64, [victim(), limit, (&raw const few) as i64, 0, 0]) == 0, name);
        }
        "priority_of_victim" => report(call(libc::SYS_setpriority, [0, victim(), 19, 0, 0]) == 0, name),
        "priority_of_all" => {
            const USER: i64 = 2;
            // In a namespace it reaches the processes inside. An effect is checked from outside.
            println!("{}", call(libc::SYS_setpriority, [USER, 0, 1, 0, 0]));
        }
        "processors_of_victim" => {
            let first: u64 = 1;
            let words = [victim(), 8, (&raw const first) as i64, 0, 0];
            report(call(libc::SYS_sched_setaffinity, words) == 0, name);
        }
        "scheduler_of_victim" => {
            let parameter: i32 = 0;
            let words = [victim(), i64::from(libc::SCHED_IDLE), (&raw const parameter) as i64, 0, 0];
            report(call(libc::SYS_sched_setscheduler, words) == 0, name);
        }
        "disk_priority_of_victim" => {
            const PROCESS: i64 = 1;
            const IDLE: i64 = 3 << 13;
            report(call(libc::SYS_ioprio_set, [PROCESS, victim(), IDLE, 0, 0]) == 0, name);
        }
        "signal_by_directory" => {
            // The directory of a process is accepted in place of a pidfd. An effect is checked from outside.
            match File::open(format!("/proc/{}", victim())) {
                Ok(directory) => {
                    let words = [directory.as_raw_fd().into(), libc::SIGSTOP.into(), 0, 0, 0];
                    report(call(libc::SYS_pidfd_send_signal, words) == 0, name);
                }
                Err(_) => report(false, name),
            }
        }
        "signal_by_descriptor" => signal_by_descriptor(),
        "descriptors_of_first" => descriptors_of_first(),
        "attribute" => {
            let path = CString::new(words[0]).unwrap();
            let [path, name_of, value] =
                [path.as_ptr(), c"user.escaped".as_ptr(), c"x".as_ptr()].map(|text| text as i64);
            report(call(libc::SYS_setxattr, [path, name_of, value, 1, 0]) == 0, name);
        }
        "exchange" => {
            let [from, to] = [words[0], words[1]].map(|path| CString::new(path).unwrap());
            let here = i64::from(libc::AT_FDCWD);
            let exchange = i64::from(libc::RENAME_EXCHANGE);
            let words = [here, from.as_ptr() as i64, here, to.as_ptr() as i64, exchange];
            report(call(libc::SYS_renameat2, words) == 0, name);
        }
        "unnamed_file" => unnamed_file(words[0]),
        "openat2" => {
            let how: [u64; 3] = [(libc::O_CREAT | libc::O_WRONLY) as u64, 0o600, 0];
            let path = CString::new(words[0]).unwrap();
            let words = [i64::from(libc::AT_FDCWD), path.as_ptr() as i64, how.as_ptr() as i64, 24, 0];
            report(call(libc::SYS_openat2, words) >= 0, name);
        }
        "page_faults" => {
            const USER_MODE_ONLY: i64 = 1;
            report(call(libc::SYS_userfaultfd, [USER_MODE_ONLY, 0, 0, 0, 0]) >= 0, name);
            report(File::options().read(true).write(true).open("/dev/userfaultfd").is_ok(), name);
        }
        "ring_without_setup" => {
            for number in [libc::SYS_io_uring_enter, libc::SYS_io_uring_register] {
                report(errno_of(number, [-1, 0, 0, 0, 0]) != libc::EPERM, name);
            }
        }
        // The exit code of an attempt is ignored; the report makes the attempt fail.
        other => report(true, &format!("unknown call {other}")),
    }
}

/// Lets the kernel send a signal to the victim when a pipe can be read.
fn signal_by_descriptor() {
    const SET_SIGNAL: i32 = 10;
    let (reader, mut writer) = std::io::pipe().unwrap();
    let control =
        |command: i32, value: i64| call(libc::SYS_fcntl, [reader.as_raw_fd().into(), command.into(), value, 0, 0]);
    control(libc::F_SETOWN, victim());
    control(SET_SIGNAL, libc::SIGSTOP.into());
    control(libc::F_SETFL, libc::O_ASYNC.into());
    // An effect is checked from outside.
    writer.write_all(b"x").unwrap();
    println!("written");
}

/// Opens descriptors of the first process inside, or of the supervisor where there is none, and takes copies of them.
fn descriptors_of_first() {
    let mut process = std::process::id();
    loop {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t")).unwrap_or("0");
        match parent.parse() {
            Ok(0) | Err(_) => break,
            Ok(parent) => process = parent,
        }
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        if name == "push-supervisor\n" {
            break;
        }
    }
    for number in 0..64 {
        let path = format!("/proc/{process}/fd/{number}");
        let Ok(target) = fs::read_link(&path) else { continue };
        let opened = File::open(&path).is_ok() && target != Path::new("/dev/null");
        report(opened, &format!("{number} {}", target.display()));
    }
    let pidfd = call(libc::SYS_pidfd_open, [process.into(), 0, 0, 0, 0]);
    for number in 0..64 {
        report(call(libc::SYS_pidfd_getfd, [pidfd, number, 0, 0, 0]) >= 0, "a copy of a descriptor");
    }
}

/// Creates a file without a name in the workspace, and gives it a name outside.
fn unnamed_file(name: &str) {
    // SAFETY: the path is terminated.
    let file = unsafe { libc::open(c".".as_ptr(), libc::O_TMPFILE | libc::O_RDWR, 0o600) };
    if file < 0 {
        return report(false, "a file without a name");
    }
    // SAFETY: the descriptor is new.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    let to = CString::new(name).unwrap();
    let here = i64::from(libc::AT_FDCWD);
    let follow = i64::from(libc::AT_SYMLINK_FOLLOW);
    let words = [here, path.as_ptr() as i64, here, to.as_ptr() as i64, follow];
    report(call(libc::SYS_linkat, words) == 0, "a link outside");
}
