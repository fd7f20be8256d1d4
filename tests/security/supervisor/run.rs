//! Helpers for the tests of steps: a run with a mark, and queries of `/proc`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pushd::sandbox::confinement::StepPermissions;
use pushd::sandbox::{Chunk, LocalSandbox, OutputMode, RunTree, Step, StepEnd, StepError, Stream};
use tokio::sync::mpsc;

use super::LONG;
use crate::support::test_name::test_name;

/// One run in its own directory, with a mark in its environment.
pub(crate) struct Run {
    pub(crate) tree: RunTree,
    pub(crate) mark: String,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) env: Vec<(std::ffi::OsString, std::ffi::OsString)>,
}

impl Run {
    pub(crate) fn new() -> Self {
        Self::with_sandbox(local())
    }

    /// One run with all layers, one with the process sweep alone.
    pub(crate) fn both() -> [Self; 2] {
        [Self::with_sandbox(local()), Self::with_sandbox(local().without_cgroups())]
    }

    fn with_sandbox(local: LocalSandbox) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let env = vec![("MARK".into(), (&mark).into()), path_variable()];
        Self { tree: RunTree::new(local), mark, dir: tempfile::tempdir().unwrap(), env }
    }

    pub(crate) fn step(&self, command: &str) -> Step {
        Step {
            command: command.into(),
            cwd: self.dir.path().into(),
            env: self.env.clone(),
            time_limit: LONG,
            permissions: StepPermissions::default(),
            output_mode: OutputMode::Separate,
        }
    }

    pub(crate) fn start(&self, command: &str, out: mpsc::Sender<Chunk>) -> StepHandle {
        let (tree, step) = (self.tree.clone(), self.step(command));
        tokio::spawn(async move { tree.run(step, out).await })
    }

    /// Starts a step whose output nobody reads.
    pub(crate) fn start_unread(&self, command: &str) -> StepHandle {
        self.start(command, mpsc::channel(1).0)
    }

    pub(crate) async fn end(&self, command: &str) -> StepEnd {
        self.start_unread(command).await.unwrap().unwrap()
    }

    pub(crate) async fn output(&self, command: &str) -> (String, String) {
        let (out, chunks) = mpsc::channel(4);
        let (end, (stdout, stderr)) = tokio::join!(self.tree.run(self.step(command), out), collect(chunks));
        assert!(matches!(end.unwrap(), StepEnd::Exited(_)), "{command}");
        (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    }

    /// The processes with the mark, without zombies.
    pub(crate) fn marked_processes(&self) -> Vec<u32> {
        let wanted = format!("MARK={}", self.mark);
        let carries = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
        };
        processes().filter(carries).collect()
    }

    /// Stops the run, and checks that no process is left.
    pub(crate) async fn assert_nothing_left(&self) {
        let stopped = self.tree.stop(Duration::from_secs(20)).await;
        assert_eq!(stopped, Ok(()));
        assert_eq!(self.marked_processes(), [0_u32; 0]);
    }

    pub(crate) async fn wait_until(&self, mut reached: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !reached() {
            assert!(Instant::now() < deadline, "waited in vain; marked: {:?}", self.marked_processes());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Tells whether this process runs the test alone, as a test that counts resources of the process must; if not,
/// starts it that way.
pub(crate) fn is_alone(test: impl Fn()) -> bool {
    if std::env::var_os("SUPERVISOR_TEST_ALONE").is_some() {
        return true;
    }
    let alone = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test_name(test), "--nocapture"])
        .env("SUPERVISOR_TEST_ALONE", "yes")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&alone.stdout);
    assert!(alone.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&alone.stderr));
    false
}

pub(crate) type StepHandle = tokio::task::JoinHandle<Result<StepEnd, StepError>>;

pub(crate) fn local() -> LocalSandbox {
    LocalSandbox::new(env!("CARGO_BIN_EXE_push").into())
}

pub(crate) fn path_variable() -> (std::ffi::OsString, std::ffi::OsString) {
    ("PATH".into(), std::env::var_os("PATH").unwrap())
}

pub(crate) async fn collect(mut chunks: mpsc::Receiver<Chunk>) -> (Vec<u8>, Vec<u8>) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    while let Some(chunk) = chunks.recv().await {
        match chunk.stream {
            Stream::Stdout => stdout.extend_from_slice(&chunk.bytes),
            Stream::Stderr => stderr.extend_from_slice(&chunk.bytes),
        }
    }
    (stdout, stderr)
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The children of a process, zombies included.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line.strip_prefix("PPid:\t") == Some(&parent.to_string()))
    };
    processes().filter(is_child).collect()
}

/// The cgroups of these supervisors that still exist.
pub(crate) fn cgroups_of(supervisors: &[u32]) -> Vec<PathBuf> {
    let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let all = supervisors
        .iter()
        .flat_map(|supervisor| mounts.map(|mount| Path::new(mount).join(own).join(format!("pushd-step-{supervisor}"))));
    all.filter(|cgroup| cgroup.exists()).collect()
}

/// The resident memory of this process, in bytes.
pub(crate) fn resident_memory() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
