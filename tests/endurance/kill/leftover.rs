//! Searches `/proc` for processes of steps that should have ended.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Waits until no process has any of `marks` in its environment, command line or working directory.
///
/// Returns what is left after `limit`, without the process `except`.
pub(crate) fn wait_for_none(marks: &[String], except: Option<u32>, limit: Duration) -> Vec<String> {
    let deadline = Instant::now() + limit;
    loop {
        let left = find(marks, except);
        if left.is_empty() || Instant::now() > deadline {
            return left;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a daemon has no child but the holder of its supervisors, and the holder has none; returns what is left
/// after `limit`.
pub(crate) fn wait_for_no_child(daemon: u32, limit: Duration) -> Vec<String> {
    let deadline = Instant::now() + limit;
    loop {
        let (holders, mut left): (Vec<String>, Vec<String>) =
            children_of(&daemon.to_string()).into_iter().partition(|pid| is_holder(pid));
        left.extend(holders.iter().skip(1).cloned());
        left.extend(holders.iter().flat_map(|holder| children_of(holder)));
        if left.is_empty() || Instant::now() > deadline {
            return left.iter().map(|pid| describe(pid)).collect();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The id of a process, with its name, its state and its command line.
fn describe(pid: &str) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let state = read("status").lines().find(|line| line.starts_with("State:")).unwrap_or_default().to_owned();
    format!("{pid} {} {state} {}", read("comm").trim(), read("cmdline").replace('\0', " "))
}

fn children_of(pid: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    children.flat_map(|pids| pids.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

fn is_holder(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "step-holder")
}

fn find(marks: &[String], except: Option<u32>) -> Vec<String> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != own && Some(*pid) != except)
        .filter_map(|pid| {
            let place = Path::new("/proc").join(pid.to_string());
            // A process that is exiting cannot be read, and does not count.
            let mut traces = fs::read(place.join("environ")).unwrap_or_default();
            traces.extend(fs::read(place.join("cmdline")).unwrap_or_default());
            traces.push(0);
            let cwd = fs::read_link(place.join("cwd")).unwrap_or_default();
            traces.extend_from_slice(cwd.as_os_str().as_bytes());
            let marked = marks.iter().any(|mark| memchr::memmem::find(&traces, mark.as_bytes()).is_some());
            marked.then(|| {
                let line = fs::read(place.join("cmdline")).unwrap_or_default();
                format!("{pid}: {}", String::from_utf8_lossy(&line).replace('\0', " "))
            })
        })
        .collect()
}
