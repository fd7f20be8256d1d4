//! Measures the total memory use of a step's processes where no cgroup accounts for it.
//!
//! The kernel limits the private memory of each process, but neither the total nor the shared memory, so both are
//! measured a few times a second while the step runs. The measurement counts what can be attributed to the step: pages
//! that a process maps, memory files that a process has open, and files in the step's `/dev/shm`. A step can hide
//! memory from it, in a detached mapping or in a socket. As a last resort, a step is killed when the machine is almost
//! out of memory and the available memory has dropped by more than the step's limit since it started.
//!
//! The step decides how much there is to measure, so that a measurement has limits itself. A step with more open
//! descriptors than one measurement examines counts as exceeding its limit. Where a measurement runs out of time or is
//! denied access, the drop of the machine's available memory since the step started is used as an estimate.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::statvfs::statvfs;
use nix::unistd::getpid;

use super::super::process_table::{self, ProcessEntry};
use crate::sandbox::confinement::ResourceLimits;

/// The minimum interval between two measurements.
const INTERVAL: Duration = Duration::from_millis(250);

/// The next measurement waits at least this many times as long as the last one took, which bounds the cost on a busy
/// machine.
const PAUSE_FACTOR: u32 = 40;

/// The longest wait between two measurements, however long the last one took.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The time limit of one measurement.
const MEASUREMENT_TIME_LIMIT: Duration = Duration::from_secs(2);

/// How many open descriptors, of all processes together, one measurement examines.
const DESCRIPTORS_MAX: u32 = 100_000;

/// Monitors the memory use of this process's descendants.
pub(in super::super) struct MemoryMonitor {
    /// In bytes.
    limit: u64,
    /// The machine's memory before the step started.
    before: SystemMemory,
    next_measurement: Instant,
}

/// What is left of the limits of one measurement.
struct Budget {
    deadline: Instant,
    descriptors: u32,
    /// The processes that denied access to their descriptors or mappings, which then are not in the total.
    denied: Vec<i32>,
}

/// Why a measurement cannot rule out that the limit is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MeasurementError {
    OutOfTime,
    AccessDenied,
    TooManyDescriptors,
}

impl Budget {
    fn new(started: Instant) -> Self {
        Self { deadline: started + MEASUREMENT_TIME_LIMIT, descriptors: DESCRIPTORS_MAX, denied: Vec::new() }
    }

    fn check_time(&self) -> Result<(), MeasurementError> {
        if Instant::now() < self.deadline { Ok(()) } else { Err(MeasurementError::OutOfTime) }
    }

    fn take_descriptor(&mut self) -> Result<(), MeasurementError> {
        self.descriptors = self.descriptors.checked_sub(1).ok_or(MeasurementError::TooManyDescriptors)?;
        self.check_time()
    }

    /// Notes that access was denied; every other failure means that the process has ended.
    fn note_failure(&mut self, pid: i32, error: &io::Error) {
        if error.kind() == io::ErrorKind::PermissionDenied {
            self.denied.push(pid);
        }
    }

    /// Fails if processes have more descriptors open than one measurement examines; before Linux 6.2 the number is not known.
    fn check_descriptors(&self, processes: &[i32]) -> Result<(), MeasurementError> {
        let open = |pid| fs::metadata(format!("/proc/{pid}/fd")).map_or(0, |metadata| metadata.len());
        let all = self.total(processes, open)?;
        if all > u64::from(self.descriptors) { Err(MeasurementError::TooManyDescriptors) } else { Ok(()) }
    }

    /// Sums up `value_of` all processes.
    fn total(&self, processes: &[i32], value_of: impl Fn(i32) -> u64) -> Result<u64, MeasurementError> {
        let mut total = 0_u64;
        for pid in processes {
            self.check_time()?;
            total = total.saturating_add(value_of(*pid));
        }
        Ok(total)
    }
}

impl MemoryMonitor {
    /// Starts monitoring, before the step runs.
    pub(in super::super) fn new(bounds: ResourceLimits) -> Self {
        Self { limit: bounds.memory, before: SystemMemory::now(), next_measurement: Instant::now() + INTERVAL }
    }

    /// Returns the time until the next measurement.
    pub(in super::super) fn due_in(&self) -> Duration {
        self.next_measurement.saturating_duration_since(Instant::now())
    }

    /// Measures, if it is due; returns whether the limit is exceeded.
    pub(in super::super) fn is_exceeded(&mut self) -> bool {
        let started = Instant::now();
        if started < self.next_measurement {
            return false;
        }
        // Memory that others have freed since the start does not offset what the step has taken.
        self.before = self.before.max(SystemMemory::now());
        let mut budget = Budget::new(started);
        let measured = descendants(&budget).and_then(|processes| uses_more_than(self.limit, &processes, &mut budget));
        let now = SystemMemory::now();
        let exceeded = match measured {
            Ok(exceeded) => exceeded,
            Err(MeasurementError::TooManyDescriptors) => true,
            Err(MeasurementError::OutOfTime | MeasurementError::AccessDenied) => {
                now.lost_since(self.before) > self.limit
            }
        };
        self.next_measurement = Instant::now() + pause_after(started.elapsed());
        exceeded || now.is_almost_out_of_memory(self.before, self.limit)
    }
}

/// Returns how long to wait after a measurement that took `elapsed`.
fn pause_after(elapsed: Duration) -> Duration {
    elapsed.saturating_mul(PAUSE_FACTOR).clamp(INTERVAL, PAUSE_MAX)
}

fn uses_more_than(limit: u64, processes: &[i32], budget: &mut Budget) -> Result<bool, MeasurementError> {
    // Cheap, and never too low: memory that several processes map counts once for each of them.
    budget.check_descriptors(processes)?;
    let mut shared = SharedMemory::open_by(processes, budget)?;
    let mapped = budget.total(processes, resident_bytes)?;
    let mut exceeded = mapped.saturating_add(shared.bytes()) > limit;
    if exceeded {
        let private = budget.total(processes, private_bytes)?;
        shared.add_mapped(processes, budget)?;
        exceeded = private.saturating_add(shared.bytes()) > limit;
    }
    if !exceeded && denied_by_step(&budget.denied) { Err(MeasurementError::AccessDenied) } else { Ok(exceeded) }
}

/// Returns whether one of the processes that denied access is the step's own.
///
/// The init process of the step's namespaces denies access, and so may bubblewrap, which stays outside of them.
fn denied_by_step(denied: &[i32]) -> bool {
    let own = namespace_ids(getpid().as_raw()).len();
    let ids: Vec<Vec<i32>> = denied.iter().map(|pid| namespace_ids(*pid)).collect();
    let is_init = |ids: &[i32]| ids.len() > own && ids.last() == Some(&1);
    let nested = ids.iter().any(|ids| is_init(ids));
    ids.iter().any(|ids| !ids.is_empty() && !is_init(ids) && (!nested || ids.len() > own))
}

/// Returns the ids of a process in its pid namespaces, the outermost first; none if it has ended or is about to.
fn namespace_ids(pid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let ids = text.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let ids = ids.split_whitespace().filter_map(|id| id.parse().ok());
    if text.contains("\nVmSize:") { ids.collect() } else { Vec::new() }
}

/// Returns all memory that a process maps except files on disk, in bytes; shared memory counts in full.
fn resident_bytes(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    sum(&text, &["RssAnon:", "RssShmem:", "VmSwap:", "HugetlbPages:"])
}

/// Returns the private memory of a process, in bytes; pages that are shared by fork count proportionally.
fn private_bytes(pid: i32) -> u64 {
    match fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) {
        Ok(text) if text.contains("Pss_Anon:") => {
            sum(&text, &["Pss_Anon:", "SwapPss:", "Private_Hugetlb:", "Shared_Hugetlb:"])
        }
        // A process that cannot be inspected, and older kernels, provide only the file that everyone can read.
        Ok(_) | Err(_) => {
            let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            sum(&text, &["RssAnon:", "VmSwap:", "HugetlbPages:"])
        }
    }
}

/// The shared memory of a step.
#[derive(Default)]
struct SharedMemory {
    /// The known objects by device and inode: shared mappings, memory files and System V segments.
    objects: BTreeMap<(u64, u64), SharedObject>,
    /// The bytes in the step's `/dev/shm`.
    dev_shm: u64,
}

/// The size of an object in bytes, according to the file system and according to the processes' mappings.
#[derive(Default)]
struct SharedObject {
    file: u64,
    mapped: u64,
}

impl SharedMemory {
    /// Collects the memory files that processes have open, and those in their `/dev/shm`.
    fn open_by(processes: &[i32], budget: &mut Budget) -> Result<Self, MeasurementError> {
        let mut files = Self::default();
        for pid in processes {
            budget.check_time()?;
            let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
            if let Err(error) = &descriptors {
                budget.note_failure(*pid, error);
            }
            for open in descriptors.into_iter().flatten().flatten() {
                budget.take_descriptor()?;
                let target = fs::read_link(open.path()).unwrap_or_default();
                if is_shared_memory(target.as_os_str().as_encoded_bytes())
                    && let Ok(metadata) = fs::metadata(open.path())
                {
                    let object = files.objects.entry((metadata.dev(), metadata.ino())).or_default();
                    object.file = metadata.blocks().saturating_mul(512);
                }
            }
        }
        files.dev_shm = processes.iter().find_map(|pid| dev_shm_bytes(*pid)).unwrap_or(0);
        Ok(files)
    }

    /// Adds what processes map, whether the file is open or not.
    fn add_mapped(&mut self, processes: &[i32], budget: &mut Budget) -> Result<(), MeasurementError> {
        for pid in processes {
            let maps = match File::open(format!("/proc/{pid}/smaps")) {
                Ok(maps) => BufReader::new(maps),
                Err(error) => {
                    budget.note_failure(*pid, &error);
                    continue;
                }
            };
            let mut current = None;
            for line in maps.split(b'\n').map_while(Result::ok) {
                budget.check_time()?;
                let line = String::from_utf8_lossy(&line);
                if let Some(object) = parse_mapping(&line) {
                    current = object;
                } else if let (Some(object), Some(bytes)) = (current, parse_kilobytes(&line, &["Pss:"])) {
                    let object = self.objects.entry(object).or_default();
                    object.mapped = object.mapped.saturating_add(bytes);
                }
            }
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let objects = self.objects.values().map(|object| object.file.max(object.mapped));
        objects.fold(self.dev_shm, u64::saturating_add)
    }
}

/// Parses the header line of a mapping in `smaps`: the device and inode of the object, if it is counted.
#[expect(clippy::option_option, reason = "not a header line, an uncounted mapping, a counted one")]
fn parse_mapping(line: &str) -> Option<Option<(u64, u64)>> {
    let mut fields = line.split_whitespace();
    let range = fields.next()?;
    let (_, device) = (range.contains('-').then_some(())?, fields.nth(2)?);
    let (major, minor) = device.split_once(':')?;
    let number = |digits| u32::from_str_radix(digits, 16).ok();
    let device = libc::makedev(number(major)?, number(minor)?);
    let inode = fields.next()?.parse().ok()?;
    Some(fields.next().filter(|name| is_shared_memory(name.as_bytes())).map(|_| (device, inode)))
}

/// Returns whether a name denotes shared memory: an anonymous shared mapping, a memory file or a System V segment.
fn is_shared_memory(name: &[u8]) -> bool {
    [&b"/dev/zero"[..], b"/memfd:", b"/SYSV"].iter().any(|kind| name.starts_with(kind))
}

/// Returns how many bytes are in the `/dev/shm` that a process sees; 0 if it is the machine's own.
fn dev_shm_bytes(pid: i32) -> Option<u64> {
    let dev_shm = PathBuf::from(format!("/proc/{pid}/root/dev/shm"));
    let device = |path: &Path| fs::metadata(path).ok().map(|metadata| metadata.dev());
    if device(&dev_shm)? == device(Path::new("/dev/shm")).unwrap_or_default() {
        return Some(0);
    }
    let usage = statvfs(&dev_shm).ok()?;
    Some(usage.blocks().saturating_sub(usage.blocks_free()).saturating_mul(usage.fragment_size()))
}

/// The memory of the machine, in bytes.
#[derive(Debug, Clone, Copy)]
struct SystemMemory {
    total: u64,
    available: u64,
    free_swap: u64,
}

impl SystemMemory {
    fn now() -> Self {
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Self {
            total: sum(&text, &["MemTotal:"]),
            available: sum(&text, &["MemAvailable:"]),
            free_swap: sum(&text, &["SwapFree:"]),
        }
    }

    /// Returns the one of two states with more memory left, swap included.
    const fn max(self, other: Self) -> Self {
        if other.left() > self.left() { other } else { self }
    }

    /// Returns how much less memory is left than `before`, swap included.
    const fn lost_since(self, before: Self) -> u64 {
        before.left().saturating_sub(self.left())
    }

    const fn left(self) -> u64 {
        self.available.saturating_add(self.free_swap)
    }

    /// Returns whether almost no memory is available, and the available memory has dropped by more than `limit` since
    /// `before`.
    const fn is_almost_out_of_memory(self, before: Self, limit: u64) -> bool {
        self.available < self.total / 20 && self.lost_since(before) > limit
    }
}

/// Sums up lines like `RssAnon:      12 kB`, in bytes.
fn sum(text: &str, names: &[&str]) -> u64 {
    text.lines().filter_map(|line| parse_kilobytes(line, names)).fold(0, u64::saturating_add)
}

fn parse_kilobytes(line: &str, names: &[&str]) -> Option<u64> {
    let number = names.iter().find_map(|name| line.strip_prefix(name))?.split_whitespace().next()?;
    Some(number.parse::<u64>().ok()?.saturating_mul(1024))
}

/// Returns the descendants of this process.
///
/// A process whose first thread has ended is represented by another thread: nothing can be read by the id of the first.
fn descendants(budget: &Budget) -> Result<Vec<i32>, MeasurementError> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let mut without_main_thread = BTreeSet::new();
    for entry in process_table::pids().filter_map(ProcessEntry::read) {
        budget.check_time()?;
        children.entry(entry.parent).or_default().push(entry.pid);
        if entry.without_main_thread {
            without_main_thread.insert(entry.pid);
        }
    }
    let mut found = children.remove(&getpid().as_raw()).unwrap_or_default();
    let mut visited = 0;
    while let Some(pid) = found.get(visited) {
        let more = children.remove(pid).unwrap_or_default();
        found.extend(more);
        visited += 1;
    }
    for pid in found.iter_mut().filter(|pid| without_main_thread.contains(pid)) {
        *pid = process_table::other_thread(*pid).unwrap_or(*pid);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn fields_are_summed_in_bytes() {
        let text = "Name:\tsh\nRssAnon:\t      12 kB\nRssFile:\t 99 kB\nRssShmem:\t 3 kB\nVmSwap:\t  1 kB\n";
        assert_eq!(sum(text, &["RssAnon:", "VmSwap:"]), 13 * 1024);
        assert_eq!(sum("", &["RssAnon:"]), 0);
    }

    #[test]
    fn only_headers_of_shared_mappings_are_counted() {
        let zero = "7f00-7f10 rw-s 00000000 00:01 1234      /dev/zero (deleted)";
        assert_eq!(parse_mapping(zero), Some(Some((libc::makedev(0, 1), 1234))));
        assert_eq!(
            parse_mapping("7f00-7f10 rw-s 00000000 00:01 9 /memfd:x y (deleted)"),
            Some(Some((libc::makedev(0, 1), 9)))
        );
        assert_eq!(parse_mapping("7f00-7f10 r-xp 00000000 fe:00 77 /usr/lib/libc.so"), Some(None));
        assert_eq!(parse_mapping("7f00-7f10 rw-p 00000000 00:00 0"), Some(None));
        assert_eq!(parse_mapping("Pss:                 12 kB"), None);
        assert_eq!(parse_mapping("VmFlags: rd wr mr mw me ac sd"), None);
    }

    #[test]
    fn a_child_s_memory_use_is_measured() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut budget = Budget::new(Instant::now());
        assert!(descendants(&budget).unwrap().contains(&pid));
        assert!(resident_bytes(pid) > 0 && private_bytes(pid) > 0);
        assert_eq!(uses_more_than(0, &[pid], &mut budget), Ok(true), "anything is more than nothing");
        assert_eq!(uses_more_than(1 << 40, &[pid], &mut budget), Ok(false));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(uses_more_than(0, &[pid], &mut budget), Ok(false), "a process that has ended uses nothing");
    }

    #[test]
    fn a_measurement_is_bounded_in_time_and_descriptors_and_the_next_one_follows_soon() {
        let own = [getpid().as_raw()];
        let mut budget = Budget { descriptors: 2, ..Budget::new(Instant::now()) };
        assert_eq!(uses_more_than(1 << 40, &own, &mut budget), Err(MeasurementError::TooManyDescriptors));
        let mut late = Budget { deadline: Instant::now(), ..Budget::new(Instant::now()) };
        assert_eq!(uses_more_than(1 << 40, &own, &mut late), Err(MeasurementError::OutOfTime));
        assert_eq!(descendants(&late), Err(MeasurementError::OutOfTime));
        let mut denied = Budget { denied: own.to_vec(), ..Budget::new(Instant::now()) };
        assert_eq!(uses_more_than(1 << 40, &own, &mut denied), Err(MeasurementError::AccessDenied));
        assert_eq!(uses_more_than(0, &own, &mut denied), Ok(true), "what is known is enough");
        denied.denied = vec![i32::MAX];
        assert_eq!(uses_more_than(1 << 40, &own, &mut denied), Ok(false), "it has ended");
        assert_eq!(pause_after(Duration::ZERO), INTERVAL);
        assert_eq!(pause_after(Duration::from_secs(3_600)), PAUSE_MAX);
    }

    #[test]
    fn the_estimate_counts_swap_and_starts_from_the_most_that_was_left() {
        let machine = |available, free_swap| SystemMemory { total: 100, available, free_swap };
        assert_eq!(machine(20, 5).lost_since(machine(30, 10)), 15);
        assert_eq!(machine(50, 5).lost_since(machine(30, 10)), 0);
        assert_eq!(machine(20, 5).max(machine(10, 20)).left(), 30);
    }

    #[test]
    fn the_last_resort_needs_low_memory_and_a_large_drop_since_the_start() {
        const GIB: u64 = 1 << 30;
        let machine = |available: u64| SystemMemory { total: 32 * GIB, available, free_swap: 0 };
        assert!(machine(GIB).is_almost_out_of_memory(machine(20 * GIB), 8 * GIB));
        assert!(!machine(2 * GIB).is_almost_out_of_memory(machine(20 * GIB), 8 * GIB), "there is some left");
        assert!(!machine(GIB).is_almost_out_of_memory(machine(2 * GIB), 8 * GIB), "there was none before");
        let now = SystemMemory::now();
        assert!(now.total > now.available && now.available > 0, "{now:?}");
    }
}
