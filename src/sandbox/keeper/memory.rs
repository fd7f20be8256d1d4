//! How much memory the processes of a step use together, where no cgroup counts it.
//!
//! The kernel bounds the private memory of each process. What they use together, and what they share, it bounds for nobody, so
//! that it is looked at a few times a second while the step runs. What is counted is what can be told to be the step's: pages
//! that a process maps, files in memory that one has open, and files in the step's `/dev/shm`. Memory can be hidden from that,
//! in a mapping that was taken apart or in a socket; the last resort is to end a step when the machine is almost out of memory
//! and has less than before by more than the step may use.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::statvfs::statvfs;
use nix::unistd::getpid;

use super::super::table::{self, Entry};
use crate::sandbox::confine::Bounds;

/// How often is looked.
const INTERVAL: Duration = Duration::from_millis(250);

/// How many times as long as a look took is waited before the next one: on a busy machine it is the cheaper the rarer.
const REST: u32 = 40;

/// Watches the memory of this process's descendants.
pub(in super::super) struct MemoryWatch {
    /// In bytes.
    limit: u64,
    /// What the machine had before the step.
    before: Machine,
    next: Instant,
}

impl MemoryWatch {
    /// Begins to watch, before anything of the step runs.
    pub(in super::super) fn new(bounds: Bounds) -> Self {
        Self { limit: bounds.memory, before: Machine::now(), next: Instant::now() + INTERVAL }
    }

    /// How long nothing has to be done.
    pub(in super::super) fn due_in(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Looks, if it is time to; whether more is used than may be.
    pub(in super::super) fn is_exceeded(&mut self) -> bool {
        let started = Instant::now();
        if started < self.next {
            return false;
        }
        let exceeded = uses_more_than(self.limit, &descendants())
            || Machine::now().is_almost_out_of_memory(self.before, self.limit);
        self.next = Instant::now() + INTERVAL.max(started.elapsed() * REST);
        exceeded
    }
}

fn uses_more_than(limit: u64, processes: &[i32]) -> bool {
    // Quick to find out, and never too little: what several processes map counts several times.
    let files = Files::of(processes);
    let mapped = processes.iter().map(|pid| quick(*pid)).fold(0, u64::saturating_add);
    if mapped.saturating_add(files.bytes()) <= limit {
        return false;
    }
    let mut shared = files;
    let private = processes.iter().map(|pid| private(*pid)).fold(0, u64::saturating_add);
    shared.add_mapped(processes);
    private.saturating_add(shared.bytes()) > limit
}

/// All that a process maps, except for files on disks, in bytes; what is shared counts in full.
fn quick(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    sum(&text, &["RssAnon:", "RssShmem:", "VmSwap:", "HugetlbPages:"])
}

/// The private memory of a process, in bytes; pages that a child has inherited count in parts.
fn private(pid: i32) -> u64 {
    match fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) {
        Ok(text) if text.contains("Pss_Anon:") => {
            sum(&text, &["Pss_Anon:", "SwapPss:", "Private_Hugetlb:", "Shared_Hugetlb:"])
        }
        // Who cannot be looked at closely, and older systems, say what everybody may read.
        Ok(_) | Err(_) => {
            let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            sum(&text, &["RssAnon:", "VmSwap:", "HugetlbPages:"])
        }
    }
}

/// The shared memory of a step.
#[derive(Default)]
struct Files {
    /// What is known of each object: a mapping that is shared, a file in memory, a segment.
    objects: BTreeMap<(u64, u64), Object>,
    /// What is in the step's `/dev/shm`.
    shared_directory: u64,
}

/// How much of an object there is, in bytes: as the file system says, and as processes map it.
#[derive(Default)]
struct Object {
    file: u64,
    mapped: u64,
}

impl Files {
    /// The files in memory that processes have open, and those in their `/dev/shm`.
    fn of(processes: &[i32]) -> Self {
        let mut files = Self::default();
        for pid in processes {
            for open in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
                let target = fs::read_link(open.path()).unwrap_or_default();
                if is_object(target.as_os_str().as_encoded_bytes())
                    && let Ok(there) = fs::metadata(open.path())
                {
                    let object = files.objects.entry((there.dev(), there.ino())).or_default();
                    object.file = there.blocks().saturating_mul(512);
                }
            }
        }
        files.shared_directory = processes.iter().find_map(|pid| shared_directory(*pid)).unwrap_or(0);
        files
    }

    /// Adds what processes map, whether it is open or not.
    fn add_mapped(&mut self, processes: &[i32]) {
        for pid in processes {
            let maps = fs::read(format!("/proc/{pid}/smaps")).unwrap_or_default();
            let mut current = None;
            for line in String::from_utf8_lossy(&maps).lines() {
                if let Some(object) = mapping(line) {
                    current = object;
                } else if let (Some(object), Some(bytes)) = (current, kilobytes(line, &["Pss:"])) {
                    let object = self.objects.entry(object).or_default();
                    object.mapped = object.mapped.saturating_add(bytes);
                }
            }
        }
    }

    fn bytes(&self) -> u64 {
        let objects = self.objects.values().map(|object| object.file.max(object.mapped));
        objects.fold(self.shared_directory, u64::saturating_add)
    }
}

/// Reads the first line of a mapping in `smaps`: which object it shows, if that is one of those that are counted.
#[expect(clippy::option_option, reason = "another line, another mapping, and one that counts")]
fn mapping(line: &str) -> Option<Option<(u64, u64)>> {
    let mut fields = line.split_whitespace();
    let range = fields.next()?;
    let (_, device) = (range.contains('-').then_some(())?, fields.nth(2)?);
    let (major, minor) = device.split_once(':')?;
    let number = |digits| u32::from_str_radix(digits, 16).ok();
    let device = libc::makedev(number(major)?, number(minor)?);
    let inode = fields.next()?.parse().ok()?;
    Some(fields.next().filter(|name| is_object(name.as_bytes())).map(|_| (device, inode)))
}

/// Whether a name is that of shared memory: of a mapping without a file, of a file in memory, of a segment.
fn is_object(name: &[u8]) -> bool {
    [&b"/dev/zero"[..], b"/memfd:", b"/SYSV"].iter().any(|kind| name.starts_with(kind))
}

/// How many bytes are in the `/dev/shm` that a process sees; none of that of the machine.
fn shared_directory(pid: i32) -> Option<u64> {
    let place = PathBuf::from(format!("/proc/{pid}/root/dev/shm"));
    let device = |path: &Path| fs::metadata(path).ok().map(|there| there.dev());
    if device(&place)? == device(Path::new("/dev/shm")).unwrap_or_default() {
        return Some(0);
    }
    let there = statvfs(&place).ok()?;
    Some(there.blocks().saturating_sub(there.blocks_free()).saturating_mul(there.fragment_size()))
}

/// The memory of the machine, in bytes.
#[derive(Debug, Clone, Copy)]
struct Machine {
    total: u64,
    available: u64,
}

impl Machine {
    fn now() -> Self {
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Self { total: sum(&text, &["MemTotal:"]), available: sum(&text, &["MemAvailable:"]) }
    }

    /// Tells whether next to nothing is left, and more is gone since `before` than `limit`.
    const fn is_almost_out_of_memory(self, before: Self, limit: u64) -> bool {
        self.available < self.total / 20 && before.available.saturating_sub(self.available) > limit
    }
}

/// Adds up lines like `RssAnon:      12 kB`, in bytes.
fn sum(text: &str, names: &[&str]) -> u64 {
    text.lines().filter_map(|line| kilobytes(line, names)).fold(0, u64::saturating_add)
}

fn kilobytes(line: &str, names: &[&str]) -> Option<u64> {
    let number = names.iter().find_map(|name| line.strip_prefix(name))?.split_whitespace().next()?;
    Some(number.parse::<u64>().ok()?.saturating_mul(1024))
}

/// The descendants of this process.
fn descendants() -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in table::pids().filter_map(Entry::read) {
        children.entry(entry.parent).or_default().push(entry.pid);
    }
    let mut found = children.remove(&getpid().as_raw()).unwrap_or_default();
    let mut looked_at = 0;
    while let Some(pid) = found.get(looked_at) {
        let more = children.remove(pid).unwrap_or_default();
        found.extend(more);
        looked_at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn fields_are_added_up_in_bytes() {
        let text = "Name:\tsh\nRssAnon:\t      12 kB\nRssFile:\t 99 kB\nRssShmem:\t 3 kB\nVmSwap:\t  1 kB\n";
        assert_eq!(sum(text, &["RssAnon:", "VmSwap:"]), 13 * 1024);
        assert_eq!(sum("", &["RssAnon:"]), 0);
    }

    #[test]
    fn a_mapping_is_told_from_its_figures_and_counts_if_it_is_shared_memory() {
        let zero = "7f00-7f10 rw-s 00000000 00:01 1234      /dev/zero (deleted)";
        assert_eq!(mapping(zero), Some(Some((libc::makedev(0, 1), 1234))));
        assert_eq!(
            mapping("7f00-7f10 rw-s 00000000 00:01 9 /memfd:x y (deleted)"),
            Some(Some((libc::makedev(0, 1), 9)))
        );
        assert_eq!(mapping("7f00-7f10 r-xp 00000000 fe:00 77 /usr/lib/libc.so"), Some(None));
        assert_eq!(mapping("7f00-7f10 rw-p 00000000 00:00 0"), Some(None));
        assert_eq!(mapping("Pss:                 12 kB"), None);
        assert_eq!(mapping("VmFlags: rd wr mr mw me ac sd"), None);
    }

    #[test]
    fn a_child_is_found_with_what_it_uses() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(descendants().contains(&pid));
        assert!(quick(pid) > 0 && private(pid) > 0);
        assert!(uses_more_than(0, &[pid]), "anything is more than nothing");
        assert!(!uses_more_than(1 << 40, &[pid]));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!uses_more_than(0, &[pid]), "who has ended uses nothing");
    }

    #[test]
    fn the_last_resort_needs_both_a_machine_without_memory_and_a_step_that_may_be_why() {
        const GIB: u64 = 1 << 30;
        let machine = |available: u64| Machine { total: 32 * GIB, available };
        assert!(machine(GIB).is_almost_out_of_memory(machine(20 * GIB), 8 * GIB));
        assert!(!machine(2 * GIB).is_almost_out_of_memory(machine(20 * GIB), 8 * GIB), "there is some left");
        assert!(!machine(GIB).is_almost_out_of_memory(machine(2 * GIB), 8 * GIB), "there was none before");
        let now = Machine::now();
        assert!(now.total > now.available && now.available > 0, "{now:?}");
    }
}
