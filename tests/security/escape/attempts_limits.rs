//! Attempts at limits: set-id bits, kinds of sockets, unmapped memory, and directory trees that are hard to remove.
//!
//! They run with every mechanism that works on this machine, Landlock alone included, as root and as an ordinary
//! user.

#![allow(unsafe_code, reason = "the attempts are system calls that nobody wraps")]

use std::ffi::{CStr, CString};
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use pushd::sandbox::confinement::{Mechanism, ResourceLimits};
use pushd::sandbox::{ConfinementStrength, SandboxProvider, StepEnd};

use super::attempts::{Attempt, Group, StartDir, UnconfinedRun};
use super::fixture::Fixture;
use crate::support::ordinary_user::also_as_an_ordinary_user;
use crate::support::skip::skip;

const fn attempt(group: Group, unconfined: UnconfinedRun, name: &'static str, script: &'static str) -> Attempt {
    Attempt { name, group, start_dir: StartDir::Work, unconfined, script }
}

/// Runs a system call of this file inside the sandbox; the `call` of the fixture runs those of `calls.rs`.
macro_rules! call {
    ($words:literal) => {
        concat!(
            "set -- ",
            $words,
            "; ATTEMPT_CALL=$1; shift; ATTEMPT_WORDS=\"$*\"; export ATTEMPT_CALL ATTEMPT_WORDS; ",
            "\"$TEST\" --exact \"$LIMITS_CALL\" --nocapture",
        )
    };
}

use Group::{Files, Resources, Sockets};
use UnconfinedRun::{Harmless, Never};

const SET_ID: &[Attempt] = &[
    attempt(Files, Harmless, "the set-uid bit by chmod", "cp /bin/sh s; chmod 4755 s; [ -u s ] && echo ESCAPED"),
    attempt(Files, Harmless, "the set-gid bit by chmod", "cp /bin/sh s; chmod g+s s; [ -g s ] && echo ESCAPED"),
    attempt(
        Files,
        Harmless,
        "the set-gid bit on a directory",
        "mkdir -m 2755 d; chmod 2755 d; [ -g d ] && echo ESCAPED",
    ),
    attempt(Files, Harmless, "a set-uid program by install", "install -m 4755 /bin/sh s; [ -u s ] && echo ESCAPED"),
    attempt(
        Files,
        Harmless,
        "set-id bits from an archive",
        "cp /bin/sh s; tar --mode=6755 -cf a.tar s; rm s; tar -xpf a.tar; { [ -u s ] || [ -g s ]; } && echo ESCAPED",
    ),
    attempt(
        Files,
        Never,
        "a set-uid program of the machine, copied with its mode",
        "for p in /bin/su /usr/bin/passwd /usr/bin/newgrp; do cp -p $p p; cp --preserve=mode $p p; [ -u p ] && echo ESCAPED; rm -f p; done",
    ),
    attempt(
        Files,
        Never,
        "a set-uid program of the machine by a hard link",
        "for p in /bin/su /usr/bin/passwd /usr/bin/newgrp; do ln $p p; [ -u p ] && echo ESCAPED; rm -f p; done",
    ),
    attempt(Files, Never, "file capabilities", call!("file_capability")),
    attempt(Files, Harmless, "set-id bits by every call that takes a mode", call!("modes")),
    attempt(Files, Harmless, "set-id bits in the temporary directory", call!("modes_in_temp")),
];

const SOCKETS: &[Attempt] = &[
    attempt(Sockets, Harmless, "messages from one end of a raw socket pair", call!("raw_pair $WORK/log.sock")),
    attempt(
        Sockets,
        Never,
        "messages with an address from pairs that are connected",
        call!("addressed_pair $WORK/log.sock"),
    ),
    attempt(Sockets, Never, "one end of a socket pair, connected elsewhere", call!("connected_pair $WORK/dev.sock")),
    attempt(Sockets, Never, "one end of a socket pair that listens", call!("listening_pair")),
    attempt(Sockets, Never, "every kind of socket", call!("every_socket")),
    attempt(Sockets, Harmless, "messages between programs by netlink", call!("netlink_user")),
];

const RESOURCES: &[Attempt] = &[
    attempt(Resources, Never, "segments of shared memory", call!("segments")),
    attempt(Resources, Never, "files in shared memory", call!("shared_files")),
    attempt(Resources, Never, "memory that is counted nowhere", call!("secret_memory")),
    attempt(
        Resources,
        Never,
        "memory behind more descriptors than can be listed",
        call!("memory_and_many_descriptors"),
    ),
    attempt(Resources, Never, "memory of a process whose first thread has ended", call!("memory_without_first_thread")),
    attempt(Resources, Never, "a thread with descriptors of its own", call!("thread_with_own_descriptors")),
    attempt(
        Resources,
        Never,
        "limits of memory raised again",
        "ulimit -Hd unlimited && echo ESCAPED; prlimit --data=unlimited --pid $$ && echo ESCAPED",
    ),
    attempt(
        Resources,
        Never,
        "the size of the shared memory raised again",
        "mount -o remount,size=100% /dev/shm && echo ESCAPED",
    ),
];

/// Every attempt at a limit.
pub(crate) fn all() -> impl Iterator<Item = &'static Attempt> {
    SET_ID.iter().chain(SOCKETS).chain(RESOURCES)
}

#[test]
fn attempts_at_shared_memory_stay_within_the_limit() {
    assert_refused(attempts_at_shared_memory_stay_within_the_limit, RESOURCES);
}

#[test]
fn no_set_id_bit_is_planted() {
    assert_refused(no_set_id_bit_is_planted, SET_ID);
}

#[test]
fn no_kind_of_socket_leads_outside() {
    assert_refused(no_kind_of_socket_leads_outside, SOCKETS);
}

#[test]
fn harmless_attempts_at_limits_succeed_without_a_sandbox() {
    let all = SET_ID.iter().chain(SOCKETS);
    let harmless = all.filter(|attempt| attempt.unconfined == Harmless);
    let without_effect = harmless.filter(|attempt| Fixture::new().attempt(None, attempt).is_ok());
    let names: Vec<&str> = without_effect.map(|attempt| attempt.name).collect();
    assert_eq!(names, [""; 0], "these prove nothing: they never succeed");
}

#[test]
fn a_confined_command_keeps_ordinary_modes_and_pairs() {
    let fixture = Fixture::new();
    for mechanism in working_mechanisms(&fixture) {
        let tree = fixture.confined_tree(mechanism, fixture.confinement(StartDir::Work));
        let script = concat!(
            "set -e; : > f; chmod 1755 f; mkdir -m 700 d; chmod u=rwx,g=rx,o= d; install -m 755 f g; cp -p g h; ",
            "tar -cf a.tar d g; rm -r d; tar -xpf a.tar; [ -x g ] && [ -x h ] && [ -d d ]; mkfifo p; ",
            "ATTEMPT_CALL=ordinary_pairs \"$TEST\" --exact \"$LIMITS_CALL\" --nocapture",
        );
        let (end, output) = fixture.run_step(&tree, fixture.step(StartDir::Work, script));
        assert!(output.contains("pairs work"), "{}: {end:?} {output}", mechanism.as_str());
        for name in ["f", "d", "g", "h", "p", "a.tar"] {
            let path = fixture.path("work").join(name);
            let _removed = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
        }
    }
}

/// System calls are refused with errors that ordinary programs can handle.
#[test]
fn common_programs_work_in_the_sandbox() {
    let fixture = Fixture::new();
    for mechanism in working_mechanisms(&fixture).into_iter().filter(|mechanism| *mechanism != Mechanism::Rules) {
        let mut confinement = fixture.confinement(StartDir::Work);
        confinement.limits = ResourceLimits::default();
        let tree = fixture.confined_tree(mechanism, confinement);
        for (program, script) in [
            ("/usr/bin/python3", "-c 'import multiprocessing as m; p = m.Pool(2); print(sum(p.map(abs, [-3, 4])))'"),
            (
                "/usr/bin/node",
                "-e 'const w = require(\"worker_threads\"); new w.Worker(\"require(\\\"worker_threads\\\").parentPort.postMessage(7)\", {eval: true}).on(\"message\", m => console.log(m))'",
            ),
            ("/usr/bin/java", "-XX:+PrintFlagsFinal -version >/dev/null 2>&1 && echo 7"),
            ("/usr/bin/go", "env GOOS >/dev/null && echo 7"),
            ("/usr/bin/git", "init -q made && echo 7"),
            ("/usr/bin/perl", "-e 'socketpair($a, $b, 1, 1, 0) or die; print 7'"),
        ] {
            if !Path::new(program).exists() {
                skip(&format!("{program} is not installed"));
                continue;
            }
            let (end, output) = fixture.run_step(&tree, fixture.step(StartDir::Work, &format!("{program} {script}")));
            assert!(output.contains('7'), "{program} with {}: {end:?} {output}", mechanism.as_str());
        }
    }
}

/// An existing set-uid file of the workspace loses its bit when a confined command writes to it.
#[test]
fn a_set_uid_file_of_the_workspace_loses_the_bit_when_it_is_written() {
    also_as_an_ordinary_user(a_set_uid_file_of_the_workspace_loses_the_bit_when_it_is_written);
    let fixture = Fixture::new();
    for mechanism in working_mechanisms(&fixture) {
        let program = fixture.path("work/program");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        let tree = fixture.confined_tree(mechanism, fixture.confinement(StartDir::Work));
        let (end, output) = fixture.run_step(&tree, fixture.step(StartDir::Work, "echo id >> program"));
        let mode = fs::metadata(&program).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "{}: {end:?} {output}", mechanism.as_str());
        fs::remove_file(&program).unwrap();
    }
}

#[test]
fn hostile_trees_in_the_temporary_directory_are_removed_after_the_run() {
    also_as_an_ordinary_user(hostile_trees_in_the_temporary_directory_are_removed_after_the_run);
    let fixture = Fixture::new();
    // The removal does not depend on the mechanism.
    for mechanism in working_mechanisms(&fixture).into_iter().take(1) {
        for tree in ["deep_tree", "long_names", "closed_tree", "many_files", "hostile_names"] {
            let run_tree = fixture.confined_tree(mechanism, fixture.confinement(StartDir::Work));
            let script = format!("ATTEMPT_CALL={tree} \"$TEST\" --exact \"$LIMITS_CALL\" --nocapture");
            let (end, output) = fixture.run_step(&run_tree, fixture.step(StartDir::Work, &script));
            assert!(output.contains("tree made"), "{tree} with {}: {end:?} {output}", mechanism.as_str());
            drop(run_tree);
            wait_until(&format!("{tree} with {} is removed", mechanism.as_str()), || {
                // Private caches of the workspace stay.
                let left = fs::read_dir(fixture.path("scratch")).unwrap().flatten();
                left.map(|entry| entry.file_name()).all(|name| name == "cache")
            });
        }
    }
    assert_eq!(fs::read_to_string(fixture.path("outside/file")).unwrap(), "precious\n");
}

#[test]
fn a_command_over_the_memory_limit_is_killed_whatever_kind_of_memory_it_uses() {
    assert_out_of_memory(
        a_command_over_the_memory_limit_is_killed_whatever_kind_of_memory_it_uses,
        &["shared_mapping", "many_processes"],
    );
}

#[test]
fn memory_that_no_process_maps_is_bounded() {
    assert_out_of_memory(memory_that_no_process_maps_is_bounded, &["memory_files", "memory_of_two_kinds"]);
}

/// The supervisor must complete a measurement in time whatever the command has open, and measure again soon.
#[test]
fn memory_is_bounded_however_long_the_command_makes_its_measurement() {
    assert_out_of_memory(
        memory_is_bounded_however_long_the_command_makes_its_measurement,
        &["memory_and_descriptors", "memory_and_many_descriptors", "memory_without_first_thread"],
    );
}

/// Checks that each call, which uses a gigabyte where half of one is allowed, ends with `OutOfMemory`.
fn assert_out_of_memory(test: impl Fn(), calls: &[&str]) {
    also_as_an_ordinary_user(test);
    let fixture = Fixture::new();
    for mechanism in working_mechanisms(&fixture) {
        for call in calls {
            let run_tree = fixture.confined_tree(mechanism, fixture.confinement(StartDir::Work));
            let script = format!("ATTEMPT_CALL={call} \"$TEST\" --exact \"$LIMITS_CALL\" --nocapture");
            let (end, output) = fixture.run_step(&run_tree, fixture.step(StartDir::Work, &script));
            assert_eq!(end.unwrap(), StepEnd::OutOfMemory, "{call} with {}: {output}", mechanism.as_str());
            assert_eq!(fixture.marked_processes(), [0_u32; 0], "{call} with {}", mechanism.as_str());
        }
    }
}

#[test]
fn a_command_that_shares_little_memory_is_left_alone() {
    let fixture = Fixture::new();
    for mechanism in working_mechanisms(&fixture) {
        let run_tree = fixture.confined_tree(mechanism, fixture.confinement(StartDir::Work));
        // Long enough to be measured several times.
        let script = "ATTEMPT_CALL=little_memory \"$TEST\" --exact \"$LIMITS_CALL\" --nocapture; sleep 1";
        let (end, output) = fixture.run_step(&run_tree, fixture.step(StartDir::Work, script));
        assert_eq!(end.unwrap(), StepEnd::Exited(0), "{}: {output}", mechanism.as_str());
        assert!(output.contains("little memory"), "{}: {output}", mechanism.as_str());
    }
}

/// Polls until a condition holds.
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(180), "timed out: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Fills the temporary directory with a tree that is hard to remove.
fn fill_temp(how: &str) {
    std::env::set_current_dir(std::env::temp_dir()).unwrap();
    let deepen = |name: &str, levels: usize| {
        for _ in 0..levels {
            fs::create_dir(name).unwrap();
            std::env::set_current_dir(name).unwrap();
        }
    };
    match how {
        // Landlock walks up all parents with every access, so one chain of 15,000 levels takes a quarter of a minute:
        // short chains are moved into one another.
        "deep_tree" => {
            for part in 0..15 {
                std::env::set_current_dir(std::env::temp_dir()).unwrap();
                fs::create_dir(format!("part{part}")).unwrap();
                std::env::set_current_dir(format!("part{part}")).unwrap();
                deepen("d", 1_000);
                if part > 0 {
                    fs::rename(std::env::temp_dir().join(format!("part{}", part - 1)), "d").unwrap();
                }
            }
        }
        "long_names" => deepen(&"n".repeat(255), 200),
        "closed_tree" => {
            fs::create_dir_all("a/b/c").unwrap();
            fs::write("a/b/c/f", "x").unwrap();
            for (name, mode) in [("a/b/c", 0o500), ("a/b", 0o000), ("a", 0o400)] {
                fs::set_permissions(name, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
        "many_files" => {
            for number in 0..5_000 {
                fs::write(format!("f{number}"), "").unwrap();
            }
        }
        _ => {
            for name in ["a\nb", "-rf", "*", "~", "\u{202e}", "$(reboot)"] {
                fs::create_dir_all(Path::new(name).join("1/2/3")).unwrap();
                std::os::unix::fs::symlink(std::env::var("OUT").unwrap(), Path::new(name).join("1/out")).unwrap();
            }
            std::os::unix::fs::symlink(".", "loop").unwrap();
            fs::File::create("sparse").unwrap().set_len(60 << 20).unwrap();
        }
    }
    println!("tree made");
}

/// Runs inside a step, for attempts that need more than a shell. Run as a plain test it does nothing.
#[test]
pub(super) fn a_limits_call_from_inside() {
    if let Ok(name) = std::env::var("ATTEMPT_CALL") {
        run_call(&name);
    }
}

/// The mechanisms that work on this machine.
fn working_mechanisms(fixture: &Fixture) -> Vec<Mechanism> {
    let works = |mechanism: &Mechanism| {
        let layers = fixture.block_on(fixture.local().with_mechanism(*mechanism).layers());
        let works = layers.strength != ConfinementStrength::Missing;
        if !works {
            skip(&format!("{} does not work here: {}", mechanism.as_str(), layers.reason.unwrap_or_default()));
        }
        works
    };
    Mechanism::ALL.into_iter().filter(works).collect()
}

fn assert_refused(test: impl Fn(), attempts: &[Attempt]) {
    also_as_an_ordinary_user(test);
    let fixture = Fixture::new();
    for mechanism in working_mechanisms(&fixture) {
        for attempt in attempts {
            if let Err(happened) = fixture.attempt(Some(mechanism), attempt) {
                panic!("{} with {}: {happened}", attempt.name, mechanism.as_str());
            }
        }
    }
}

fn run_call(name: &str) {
    let word = std::env::var("ATTEMPT_WORDS").unwrap_or_default();
    match name {
        "modes" => modes(Path::new(".")),
        "modes_in_temp" => modes(&std::env::temp_dir()),
        "file_capability" => file_capability(),
        "raw_pair" => {
            let (half, _other) = pair(libc::SOCK_RAW);
            report(half.is_some_and(|half| send_to(&half, &word)), name);
        }
        "addressed_pair" => {
            for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
                // The result of the call does not matter; the listener outside is checked.
                let (half, _other) = pair(kind);
                println!("{:?}", half.map(|half| send_to(&half, &word)));
            }
        }
        "connected_pair" => connected_pair(&word),
        "listening_pair" => listening_pair(),
        "every_socket" => every_socket(),
        "netlink_user" => {
            const NETLINK_USERSOCK: i32 = 2;
            report(socket(libc::AF_NETLINK, libc::SOCK_DGRAM, NETLINK_USERSOCK), name);
        }
        "ordinary_pairs" => {
            for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
                for flags in [0, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK] {
                    assert!(pair(kind | flags).0.is_some(), "a pair of kind {kind}");
                }
            }
            assert!(socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0));
            assert!(socket(libc::AF_INET6, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0));
            assert!(socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE));
            println!("pairs work");
        }
        "deep_tree" | "long_names" | "closed_tree" | "many_files" | "hostile_names" => fill_temp(name),
        "shared_mapping" => {
            let held: Vec<*mut u8> = (0..16).map(|_| map_and_write(libc::MAP_SHARED)).collect();
            wait_to_be_killed(&held);
        }
        "many_processes" => {
            for _ in 0..4 {
                // SAFETY: the child only waits to be killed.
                if unsafe { libc::fork() } == 0 {
                    let held: Vec<*mut u8> = (0..4).map(|_| map_and_write(libc::MAP_PRIVATE)).collect();
                    wait_to_be_killed(&held);
                }
            }
            wait_to_be_killed(&());
        }
        "memory_files" => {
            let held: Vec<OwnedFd> = (0..20).map(|_| memory_file(48 << 20)).collect();
            wait_to_be_killed(&held);
        }
        "memory_of_two_kinds" => {
            let files: Vec<OwnedFd> = (0..7).map(|_| memory_file(48 << 20)).collect();
            let mappings: Vec<*mut u8> = (0..5).map(|_| map_and_write(libc::MAP_SHARED)).collect();
            wait_to_be_killed(&(files, mappings));
        }
        "memory_and_descriptors" => memory_and_descriptors(50_000),
        "memory_and_many_descriptors" => memory_and_descriptors(2_000_000),
        "memory_without_first_thread" => memory_without_first_thread(),
        "thread_with_own_descriptors" => thread_with_own_descriptors(),
        "little_memory" => {
            let _held = (map_and_write(libc::MAP_SHARED), map_and_write(libc::MAP_PRIVATE), memory_file(48 << 20));
            std::thread::sleep(Duration::from_secs(1));
            println!("little memory");
        }
        "segments" => segments(),
        "shared_files" => shared_files(),
        "secret_memory" => {
            const MEMFD_SECRET: i64 = 447;
            report(owned(call(MEMFD_SECRET, [0, 0, 0, 0, 0])).is_some(), name);
        }
        // The exit code of an attempt is ignored; the report makes the attempt fail.
        other => report(true, &format!("unknown call {other}")),
    }
}

fn report(so: bool, what: &str) {
    println!("{}: {what}", if so { "ESCAPED" } else { "refused" });
}

fn call(number: i64, words: [i64; 5]) -> i64 {
    let [a, b, c, d, e] = words;
    // SAFETY: the attempts pass numbers, and addresses of values that live during the call.
    unsafe { libc::syscall(number, a, b, c, d, e, 0) }
}

/// Closes a descriptor.
fn close(fd: i64) -> i64 {
    drop(owned(fd));
    fd
}

fn owned(fd: i64) -> Option<OwnedFd> {
    // SAFETY: the descriptor is new and has no other owner.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(RawFd::try_from(fd).unwrap()) })
}

/// Makes every system call that takes a file mode, with the set-id bits.
fn modes(dir: &Path) {
    const FCHMODAT2: i64 = 452;
    const BITS: i64 = 0o6755;
    let path = |name: &str| dir.join(format!("mode-{name}"));
    let text = |path: &Path| CString::new(path.to_str().unwrap()).unwrap();
    let here = i64::from(libc::AT_FDCWD);
    let has_bits = |name: &str| {
        let found = fs::symlink_metadata(path(name)).is_ok_and(|there| there.permissions().mode() & 0o6000 != 0);
        let _removed = fs::remove_file(path(name));
        report(found, name);
    };
    let change = |name: &str, make: &dyn Fn(&CStr, i64) -> i64| {
        fs::write(path(name), "").unwrap();
        let file = fs::File::open(path(name)).unwrap();
        make(&text(&path(name)), i64::from(file.as_raw_fd()));
        has_bits(name);
    };
    change("fchmod", &|_, fd| call(libc::SYS_fchmod, [fd, BITS, 0, 0, 0]));
    change("fchmodat", &|path, _| call(libc::SYS_fchmodat, [here, path.as_ptr() as i64, BITS, 0, 0]));
    change("fchmodat2", &|path, _| call(FCHMODAT2, [here, path.as_ptr() as i64, BITS, 0, 0]));
    change("fchmodat2-empty", &|_, fd| {
        call(FCHMODAT2, [fd, c"".as_ptr() as i64, BITS, i64::from(libc::AT_EMPTY_PATH), 0])
    });
    change("upper-bits", &|path, _| {
        // The kernel reads only the lower half of the register.
        call(libc::SYS_fchmodat, [here, path.as_ptr() as i64, BITS | 0x7_0000_0000, 0, 0])
    });
    #[cfg(target_arch = "x86_64")]
    change("chmod", &|path, _| call(libc::SYS_chmod, [path.as_ptr() as i64, BITS, 0, 0, 0]));
    let create = |name: &str, make: &dyn Fn(i64) -> i64| {
        make(text(&path(name)).as_ptr() as i64);
        has_bits(name);
    };
    let flags = i64::from(libc::O_CREAT | libc::O_WRONLY | libc::O_EXCL);
    // SAFETY: a number is passed.
    unsafe { libc::umask(0) };
    create("openat", &|path| close(call(libc::SYS_openat, [here, path, flags, BITS, 0])));
    create("mknodat", &|path| call(libc::SYS_mknodat, [here, path, BITS | i64::from(libc::S_IFREG), 0, 0]));
    #[cfg(target_arch = "x86_64")]
    {
        create("open", &|path| close(call(libc::SYS_open, [path, flags, BITS, 0, 0])));
        create("creat", &|path| close(call(libc::SYS_creat, [path, BITS, 0, 0, 0])));
        create("mknod", &|path| call(libc::SYS_mknod, [path, BITS | i64::from(libc::S_IFREG), 0, 0, 0]));
    }
    create("openat2", &|path| {
        let how = [flags.cast_unsigned(), BITS.cast_unsigned(), 0_u64];
        close(call(libc::SYS_openat2, [here, path, how.as_ptr() as i64, 24, 0]))
    });
    create("unnamed", &|path| {
        let flags = i64::from(libc::O_TMPFILE | libc::O_WRONLY);
        let dir = text(dir);
        let file = owned(call(libc::SYS_openat, [here, dir.as_ptr() as i64, flags, BITS, 0]));
        if let Some(file) = file {
            let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
            let follow = i64::from(libc::AT_SYMLINK_FOLLOW);
            call(libc::SYS_linkat, [here, from.as_ptr() as i64, here, path, follow]);
        }
        0
    });
}

/// Makes a program with file capabilities, which need no set-uid bit.
fn file_capability() {
    fs::copy("/bin/true", "able").unwrap();
    // Version 2, effective, with `CAP_SETUID`.
    let value: [u32; 5] = [0x0200_0001, 0x80, 0, 0, 0];
    let words = [
        c"able".as_ptr() as i64,
        c"security.capability".as_ptr() as i64,
        value.as_ptr() as i64,
        size_of_val(&value) as i64,
        0,
    ];
    report(call(libc::SYS_setxattr, words) == 0, "file capabilities");
}

const CHUNK: usize = 64 << 20;

/// Maps new memory and writes every page.
fn map_and_write(kind: libc::c_int) -> *mut u8 {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, kind | libc::MAP_ANONYMOUS);
    // SAFETY: new memory at an address that the system chooses.
    let piece = unsafe { libc::mmap(std::ptr::null_mut(), CHUNK, access, flags, -1, 0) };
    assert_ne!(piece, libc::MAP_FAILED, "a piece of memory");
    for page in (0..CHUNK).step_by(4096) {
        // SAFETY: the address lies in the memory just mapped.
        unsafe { piece.cast::<u8>().add(page).write(1) };
    }
    piece.cast()
}

/// A memory file that is written and that no process maps.
fn memory_file(bytes: usize) -> OwnedFd {
    // SAFETY: the name is terminated.
    let file = unsafe { libc::memfd_create(c"held".as_ptr(), 0) };
    let mut file = fs::File::from(owned(file.into()).expect("a file in memory"));
    std::io::Write::write_all(&mut file, &vec![1; bytes]).unwrap();
    file.into()
}

/// Starts processes with `descriptors` open descriptors in total, and then creates memory files.
fn memory_and_descriptors(descriptors: u64) {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let each = most.min(19_000);
    setrlimit(Resource::RLIMIT_NOFILE, each, most).unwrap();
    // Some are left for the memory files.
    let _held: Vec<OwnedFd> = (0..each - 100).map_while(|_| owned(call(libc::SYS_dup, [0; 5]))).collect();
    for _ in 0..(descriptors / each).min(300) {
        // SAFETY: the child only waits to be killed.
        if unsafe { libc::fork() } == 0 {
            wait_to_be_killed(&());
        }
    }
    // By then a long measurement is under way, and has passed this process.
    std::thread::sleep(Duration::from_millis(1_500));
    let files: Vec<OwnedFd> = (0..20).map(|_| memory_file(48 << 20)).collect();
    wait_to_be_killed(&files);
}

/// Lets a second thread hold shared memory and ends the first one: the process then appears to have no memory.
fn memory_without_first_thread() {
    // SAFETY: the child uses no lock that another thread of the parent may hold, except in the allocator, which
    // supports `fork`.
    if unsafe { libc::fork() } == 0 {
        std::thread::spawn(|| {
            let held: Vec<*mut u8> = (0..16).map(|_| map_and_write(libc::MAP_SHARED)).collect();
            wait_to_be_killed(&held);
        });
        call(libc::SYS_exit, [0; 5]);
    }
    wait_to_be_killed(&());
}

/// Starts a thread that does not share the descriptors of its process, where a measurement would miss its memory
/// files.
fn thread_with_own_descriptors() {
    extern "C" fn wait(_: *mut libc::c_void) -> libc::c_int {
        std::thread::sleep(Duration::from_secs(1));
        0
    }
    let mut stack = vec![0_u128; 64 << 10];
    let flags = libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD | libc::CLONE_FS;
    // SAFETY: the stack outlives the thread, which only sleeps.
    let made = unsafe {
        let top = stack.as_mut_ptr_range().end;
        libc::clone(wait, top.cast(), flags, std::ptr::null_mut())
    };
    std::thread::sleep(Duration::from_secs(2));
    report(made >= 0, "a thread with descriptors of its own");
}

/// Waits to be killed while it holds memory; after 50 s it has escaped.
fn wait_to_be_killed<T>(_held: &T) -> ! {
    std::thread::sleep(Duration::from_secs(50));
    println!("ESCAPED: nobody ended it");
    std::process::exit(0)
}

/// Creates unattached shared memory segments: of the maximum size, and as many as possible.
fn segments() {
    let make = |bytes: i64| call(libc::SYS_shmget, [0, bytes, 0o600, 0, 0]);
    report(make(1 << 30) >= 0, "a large segment");
    let most = (0..10_000).take_while(|_| make(64 << 10) >= 0).count();
    report(most > 4096, "more segments than half a gigabyte");
}

/// Creates files in `/dev/shm` until it is full.
fn shared_files() {
    let mut bytes = 0_usize;
    for number in 0..64 {
        let Ok(mut file) = fs::File::create(format!("/dev/shm/escaped-{number}")) else { break };
        let piece = vec![1; 1 << 20];
        while std::io::Write::write_all(&mut file, &piece).is_ok() {
            bytes += piece.len();
        }
    }
    report(bytes > 512 << 20, "more files in shared memory than there is memory");
}

fn pair(kind: i32) -> (Option<OwnedFd>, Option<OwnedFd>) {
    let mut fds = [-1_i32; 2];
    call(libc::SYS_socketpair, [1, i64::from(kind), 0, fds.as_mut_ptr() as i64, 0]);
    (owned(fds[0].into()), owned(fds[1].into()))
}

fn socket(family: i32, kind: i32, protocol: i32) -> bool {
    owned(call(libc::SYS_socket, [family.into(), kind.into(), protocol.into(), 0, 0])).is_some()
}

/// The address of a path, and its length.
fn address(path: &str) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: all zeroes is a valid value of this structure.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(path.bytes()) {
        *to = from.cast_signed();
    }
    (address, size_of::<libc::sockaddr_un>() as libc::socklen_t)
}

fn send_to(socket: &OwnedFd, path: &str) -> bool {
    let (address, length) = address(path);
    // SAFETY: the bytes and the address live during the call.
    let sent = unsafe {
        libc::sendto(socket.as_raw_fd(), b"escaped".as_ptr().cast(), 7, 0, (&raw const address).cast(), length)
    };
    sent == 7
}

/// Disconnects one half of a socket pair and connects it to another socket.
fn connected_pair(path: &str) {
    for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
        let (Some(half), Some(other)) = pair(kind) else { panic!("a pair") };
        drop(other);
        let (address, length) = address(path);
        let nobody = libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
        // SAFETY: both addresses live during the calls.
        let connected = unsafe {
            libc::connect(half.as_raw_fd(), &raw const nobody, size_of_val(&nobody) as libc::socklen_t);
            libc::connect(half.as_raw_fd(), (&raw const address).cast(), length)
        };
        report(connected == 0, "half of a pair, connected");
    }
}

fn listening_pair() {
    let (half, other) = pair(libc::SOCK_STREAM);
    drop(other);
    let half = half.unwrap();
    let (address, length) = address("pair.sock");
    // SAFETY: the address lives during the call.
    let listens = unsafe {
        libc::bind(half.as_raw_fd(), (&raw const address).cast(), length);
        libc::listen(half.as_raw_fd(), 1)
    };
    report(listens == 0, "one end of a socket pair that listens");
}

/// Opens a socket of every family, kind and, where it makes a difference, protocol.
fn every_socket() {
    const INTERNET: [i32; 2] = [libc::AF_INET, libc::AF_INET6];
    for family in 0..64 {
        for kind in 0..16 {
            for protocol in [0, 1, 2, 4, 6, 9, 12, 15, 16, 17, 33, 58, 132, 136, 255, 256, 262] {
                let stream_or_datagram = [libc::SOCK_STREAM, libc::SOCK_DGRAM].contains(&kind);
                let expected = (INTERNET.contains(&family) && stream_or_datagram)
                    || (family == libc::AF_NETLINK
                        && [libc::SOCK_RAW, libc::SOCK_DGRAM].contains(&kind)
                        && [0, 4].contains(&protocol));
                if !expected && socket(family, kind, protocol) {
                    report(true, &format!("family {family}, kind {kind}, protocol {protocol}"));
                }
            }
            let mut fds = [-1_i32; 2];
            let made = call(libc::SYS_socketpair, [family.into(), kind.into(), 0, fds.as_mut_ptr() as i64, 0]);
            let connected = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET].contains(&kind);
            if made == 0 && !(family == libc::AF_UNIX && connected) {
                report(true, &format!("a pair of family {family}, kind {kind}"));
            }
            drop(fds.map(|fd| owned(fd.into())));
        }
    }
}
