//! The process table, read from `/proc`.
//!
//! It signals no process.

use std::fs;
use std::io::Read;

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessEntry {
    /// Its process id, which can be reused once it is reaped.
    pub(super) pid: i32,
    /// Its parent's process id.
    pub(super) parent: i32,
    /// Its session; no process can join an existing session.
    pub(super) session: i32,
    /// When it was started, in ticks since boot: together with the process id it identifies a process uniquely.
    pub(super) start_time: u64,
    /// Whether it is a zombie; a process whose main thread has exited while others run is not.
    pub(super) is_zombie: bool,
    /// Whether the first thread has ended while others run.
    pub(super) without_main_thread: bool,
}

impl ProcessEntry {
    /// Reads the entry of one process; `None` if it does not exist.
    pub(super) fn read(pid: i32) -> Option<Self> {
        // The buffer is large enough for the fields in use; the rest of the line is not needed.
        let mut line = [0; 512];
        let length = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
        Self::parse(&line[..length])
    }

    /// Parses a line of `/proc/PID/stat`, whose second field is a name in parentheses that may contain any character.
    fn parse(line: &[u8]) -> Option<Self> {
        let pid = parse_number(line.split(|byte| *byte == b' ').next()?)?;
        let after_name = line.iter().rposition(|byte| *byte == b')')? + 2;
        let mut fields = line.get(after_name..)?.split(|byte| *byte == b' ');
        let state = fields.next()?;
        let parent = parse_number(fields.next()?)?;
        let session = parse_number(fields.nth(1)?)?;
        let threads: u32 = parse_number(fields.nth(13)?)?;
        let start_time = parse_number(fields.nth(1)?)?;
        let ended = matches!(state, b"Z" | b"X");
        Some(Self {
            pid,
            parent,
            session,
            start_time,
            is_zombie: ended && threads <= 1,
            without_main_thread: ended && threads > 1,
        })
    }
}

/// Returns the ids of all processes, in ascending order if the system lists them so.
pub(super) fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| parse_number(entry.file_name().as_encoded_bytes()))
}

/// Returns the id of a thread of a process that is not the first one.
pub(super) fn other_thread(pid: i32) -> Option<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    threads.filter_map(|thread| parse_number(thread.file_name().as_encoded_bytes())).find(|thread| *thread != pid)
}

/// Returns the ids of this process's children; `None` if the kernel does not provide that file.
pub(super) fn own_children() -> Option<Vec<i32>> {
    let list = fs::read("/proc/thread-self/children").ok()?;
    Some(list.split(|byte| *byte == b' ').filter_map(parse_number).collect())
}

fn parse_number<N: std::str::FromStr>(digits: &[u8]) -> Option<N> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let line = b"77 (a) S 1 (b c)) Z 12 77 70 0 -1 4227084 0 0 0 0 0 0 0 0 20 0 1 0 98765 0 0";
        let entry = ProcessEntry {
            pid: 77,
            parent: 12,
            session: 70,
            start_time: 98765,
            is_zombie: true,
            without_main_thread: false,
        };
        assert_eq!(ProcessEntry::parse(line), Some(entry));
    }

    #[test]
    fn a_process_whose_main_thread_has_exited_is_no_zombie() {
        let line = b"77 (a) Z 12 77 70 0 -1 4227084 0 0 0 0 0 0 0 0 20 0 2 0 98765 0 0";
        let entry = ProcessEntry::parse(line).unwrap();
        assert!(!entry.is_zombie && entry.without_main_thread);
    }

    #[test]
    fn a_truncated_line_is_not_parsed() {
        assert_eq!(ProcessEntry::parse(b""), None);
        assert_eq!(ProcessEntry::parse(b"77 (sh) S 12 77"), None);
        assert_eq!(ProcessEntry::parse(b"77 (sh)"), None);
    }

    #[test]
    fn this_process_is_in_the_table() {
        let own = i32::try_from(std::process::id()).unwrap();
        let entry = ProcessEntry::read(own).unwrap();
        assert_eq!((entry.pid, entry.is_zombie), (own, false));
        assert!(pids().any(|pid| pid == own));
    }
}
