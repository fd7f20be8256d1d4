//! Attempts by system calls and by paths in `/proc` at processes and files outside, and at the processes of the sandbox
//! itself.

use super::attempts::{Attempt, Group, StartDir, UnconfinedRun};

const fn attempt(group: Group, unconfined: UnconfinedRun, name: &'static str, script: &'static str) -> Attempt {
    Attempt { name, group, start_dir: StartDir::Work, unconfined, script }
}

use Group::{Files, Machine, Processes};
use UnconfinedRun::{Harmless, Never};

pub(crate) const CALL_ATTEMPTS: &[Attempt] = &[
    attempt(Processes, Harmless, "limits of a process outside", "call limits_of_victim"),
    attempt(Processes, Harmless, "the priority of a process outside", "call priority_of_victim"),
    // Unconfined it would change processes that are not the test's.
    attempt(Processes, Never, "the priority of all processes of the user", "call priority_of_all"),
    attempt(Processes, Harmless, "the processors of a process outside", "call processors_of_victim"),
    attempt(Processes, Harmless, "the scheduler of a process outside", "call scheduler_of_victim"),
    attempt(Processes, Harmless, "the disk priority of a process outside", "call disk_priority_of_victim"),
    attempt(Processes, Harmless, "a signal by the directory of a process", "call signal_by_directory"),
    attempt(Processes, Harmless, "a signal by a descriptor that reports events", "call signal_by_descriptor"),
    attempt(Processes, Never, "descriptors of the first process", "call descriptors_of_first"),
    // The records are those of a command that could not be started.
    attempt(
        Processes,
        Never,
        "reports in place of the first process",
        r"for fd in /proc/$PPID/fd/*; do printf 'D\002\000\000\000' > $fd; printf 'W\001\000\000\000' > $fd; done 2>/dev/null",
    ),
    attempt(Files, Harmless, "attributes of a file outside", "call attribute $OUT/file"),
    attempt(
        Files,
        Harmless,
        "a directory exchanged with one outside",
        "mkdir d; echo x > d/escaped; call exchange d $OUT/file; call exchange $OUT d",
    ),
    attempt(Files, Never, "a file without a name, linked outside", "call unnamed_file $OUT/escaped"),
    attempt(Files, Harmless, "a path by openat2", "call openat2 $OUT/escaped"),
    attempt(Machine, Never, "page faults by their device", "call page_faults"),
    attempt(Machine, Never, "io_uring without its setup call", "call ring_without_setup"),
];
