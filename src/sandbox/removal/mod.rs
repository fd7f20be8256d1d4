//! Background removal of directories with arbitrary content from commands.
//!
//! A tree may be too deep for recursion and for a path, and very large. A child process of low priority removes one
//! tree at a time, without recursion and with a fixed number of descriptors; no caller waits for it. A directory is
//! renamed before it is removed, and its new name counts the attempts. After a few failed attempts the directory is
//! logged and left in place, also by later daemons.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::{debug, warn};

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

/// The argument that makes a supervisor process remove the directory in the next argument.
pub(super) const ARGUMENT: &str = "remove";

/// The prefix of a directory that is being removed; the number of attempts and its former name follow.
pub(super) const PREFIX: &str = "removing-";

/// The maximum number of attempts for a directory.
const ATTEMPTS: u32 = 5;

/// The time limit of one attempt. An attempt that times out is continued and not counted.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// The result of a removal.
#[derive(Debug, PartialEq, Eq)]
enum Removal {
    /// The directory is removed.
    Removed,
    /// The time limit was reached while the removal made progress.
    #[cfg_attr(windows, allow(dead_code, reason = "there a removal is never interrupted"))]
    TimedOut,
    /// Something could not be removed; the text says what, and why.
    Failed(String),
}

/// The exit code of a child that reached the time limit.
const TIMED_OUT: u8 = 3;

/// Removes directories by running a program, whose `main` must call [`main`] for [`ARGUMENT`].
#[derive(Debug, Clone)]
pub(super) struct Remover(Arc<Path>);

impl Remover {
    pub(super) const fn new(program: Arc<Path>) -> Self {
        Self(program)
    }

    /// Queues a directory for removal in the background; it does not wait and cannot fail.
    pub(super) fn remove(&self, path: PathBuf) {
        // The new name marks the directory as unused.
        let path = rename_with_attempts(&path, attempts(&path)).unwrap_or(path);
        let mut queue = queue();
        queue.waiting.push_back((self.clone(), path));
        if !queue.has_worker {
            let started = std::thread::Builder::new().name("removal".to_owned()).spawn(run_worker);
            // If no thread can be started, the directory waits for the next call.
            queue.has_worker = started.is_ok();
        }
    }

    /// Makes one attempt; returns the path if the attempt timed out and has to be continued.
    fn attempt(&self, path: &Path) -> Option<PathBuf> {
        let made = attempts(path);
        if made >= ATTEMPTS {
            warn!(path = %path.display(), attempts = made, "a temporary directory cannot be removed and is left; remove it by hand");
            return None;
        }
        let Some(counted) = rename_with_attempts(path, made + 1) else {
            warn!(path = %path.display(), "a temporary directory cannot be renamed and is left");
            return None;
        };
        match os::remove_in_child(&self.0, &counted) {
            Ok(Removal::Removed) => debug!(path = %path.display(), "a temporary directory was removed"),
            Ok(Removal::TimedOut) => return rename_with_attempts(&counted, made),
            Ok(Removal::Failed(problem)) => {
                warn!(path = %counted.display(), problem, "a temporary directory could not be removed; the next daemon will try again");
            }
            Err(error) => {
                warn!(path = %counted.display(), %error, "cannot start a process to remove a temporary directory");
            }
        }
        None
    }
}

/// The directories to remove. One thread removes them all and ends when the queue is empty.
struct Queue {
    waiting: VecDeque<(Remover, PathBuf)>,
    has_worker: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { waiting: VecDeque::new(), has_worker: false });

fn queue() -> MutexGuard<'static, Queue> {
    // The queue is consistent between any two statements, so a poisoned lock can be used.
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run_worker() {
    loop {
        let next = {
            let mut queue = queue();
            let next = queue.waiting.pop_front();
            queue.has_worker = next.is_some();
            next
        };
        let Some((remover, path)) = next else { return };
        if let Some(again) = remover.attempt(&path) {
            queue().waiting.push_back((remover, again));
        }
    }
}

/// Removes a directory tree in this process, without a time limit; the error names what could not be removed.
pub(super) fn remove_now(path: &Path) -> io::Result<()> {
    loop {
        match os::remove_tree(path, Instant::now() + TIME_LIMIT)? {
            Removal::Removed => return Ok(()),
            Removal::TimedOut => {}
            Removal::Failed(problem) => return Err(io::Error::other(problem)),
        }
    }
}

/// Returns the name that a directory had before its removal started; `None` if its removal has not started.
pub(super) fn former_name(name: &str) -> Option<&str> {
    parse_name(Path::new(name)).map(|(_, former)| former)
}

/// Returns the number of attempts in the name of a directory.
fn attempts(path: &Path) -> u32 {
    parse_name(path).map_or(0, |(attempts, _)| attempts)
}

/// Returns the number of attempts and the former name.
fn parse_name(path: &Path) -> Option<(u32, &str)> {
    let (attempts, former) = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
    Some((attempts.parse().ok()?, former))
}

/// Renames a directory so that its name has this number of attempts; `None` if the rename fails.
fn rename_with_attempts(path: &Path, attempts: u32) -> Option<PathBuf> {
    let former = parse_name(path).map_or_else(|| path.file_name()?.to_str(), |(_, former)| Some(former))?;
    let to = path.with_file_name(format!("{PREFIX}{attempts}-{former}"));
    if to != path {
        std::fs::rename(path, &to).ok()?;
    }
    Some(to)
}

/// The main function of the child process: removes the directory in the last argument, and reports on standard error
/// what could not be removed.
pub(super) fn main() -> ExitCode {
    let Some(path) = std::env::args_os().nth(3) else { return ExitCode::FAILURE };
    os::lower_priority();
    match os::remove_tree(Path::new(&path), Instant::now() + TIME_LIMIT) {
        Ok(Removal::Removed) => ExitCode::SUCCESS,
        Ok(Removal::TimedOut) => ExitCode::from(TIMED_OUT),
        Ok(Removal::Failed(problem)) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_directory_counts_its_attempts() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("run-7-0");
        std::fs::create_dir(&path).unwrap();
        assert_eq!(attempts(&path), 0);
        let path = rename_with_attempts(&path, 1).unwrap();
        assert_eq!(path, root.path().join("removing-1-run-7-0"));
        let path = rename_with_attempts(&path, 2).unwrap();
        assert_eq!((attempts(&path), path.as_path()), (2, &*root.path().join("removing-2-run-7-0")));
        assert!(path.is_dir());
    }

    #[test]
    fn a_directory_is_left_alone_after_a_few_attempts() {
        let root = tempfile::tempdir().unwrap();
        // A program that fails, like a child that cannot remove everything.
        let remover = Remover::new(Path::new("/bin/false").into());
        let mut path = root.path().join("run-7-0");
        std::fs::create_dir(&path).unwrap();
        for made in 1..=ATTEMPTS {
            assert_eq!(remover.attempt(&path), None);
            path = root.path().join(format!("removing-{made}-run-7-0"));
            assert!(path.is_dir(), "attempt {made}");
        }
        assert_eq!(remover.attempt(&path), None);
        assert!(path.is_dir(), "it keeps its name and is not tried again");
    }

    #[test]
    fn a_program_that_cannot_be_started_leaves_the_directory() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("run-7-0");
        std::fs::create_dir(&path).unwrap();
        assert_eq!(Remover::new(root.path().join("none").into()).attempt(&path), None);
        assert!(root.path().join("removing-1-run-7-0").is_dir());
    }
}
