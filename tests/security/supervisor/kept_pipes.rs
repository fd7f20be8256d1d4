//! The holder keeps duplicates of the daemon's ends of a step's control socket and output pipes while the step runs.

use std::fs;
use std::process::{Command, Stdio};

use pushd::sandbox::{StepEnd, StepError};
use tokio::sync::mpsc;

use super::run::{Run, children_of, is_alone};
use crate::support::skip::skip;
use crate::support::test_name::test_name;

#[tokio::test]
async fn the_holder_keeps_the_pipes_of_a_step_until_it_has_ended() {
    if !can_inspect_the_holder() || !is_alone(the_holder_keeps_the_pipes_of_a_step_until_it_has_ended) {
        return;
    }
    let run = Run::new();
    assert_eq!(run.end("exit 0").await, StepEnd::Exited(0));
    let holder = holder();
    run.wait_until(|| outputs_and_sockets(holder).len() == 1).await;
    let before = descriptors(holder);
    let (out, mut chunks) = mpsc::channel(4);
    let first = run.start("echo $$ $PPID; exec sleep 1000", out);
    let (step, supervisor) = process_ids(&chunks.recv().await.unwrap().bytes);
    let [stdout, stderr] = [1, 2].map(|number| descriptor(step, number));
    let kept = descriptors(holder);
    assert!(kept.contains(&stdout) && kept.contains(&stderr), "{stdout} {stderr}: {kept:?}");
    // The control socket of the daemon, of which this process has the other copy.
    let sockets: Vec<_> = outputs_and_sockets(holder).into_iter().filter(|kept| kept.starts_with("socket:")).collect();
    assert_eq!(sockets.len(), 2, "{kept:?}");
    let own = descriptors(std::process::id());
    assert_eq!(sockets.iter().filter(|socket| own.contains(socket)).count(), 1, "{sockets:?} {own:?}");
    // Neither the next supervisor nor its step gets any of them.
    let (out, mut chunks) = mpsc::channel(4);
    let second = run.start("echo $$ $PPID; exec sleep 1000", out);
    let (other_step, other_supervisor) = process_ids(&chunks.recv().await.unwrap().bytes);
    assert_ne!(supervisor, other_supervisor);
    for process in [other_step, other_supervisor, step, supervisor] {
        let seen = descriptors(process);
        let foreign = if [step, supervisor].contains(&process) { other_step } else { step };
        let foreign = [1, 2].map(|number| descriptor(foreign, number));
        assert!(!foreign.iter().any(|pipe| seen.contains(pipe)), "{process}: {seen:?}");
        assert!(!sockets.iter().any(|socket| seen.contains(socket)), "{process}: {seen:?}");
    }
    // A program that starts has a library open for a moment.
    run.wait_until(|| descriptors(other_step).len() == 3).await;
    run.assert_nothing_left().await;
    for handle in [first, second] {
        assert_eq!(handle.await.unwrap().unwrap(), StepEnd::Stopped);
    }
    run.wait_until(|| descriptors(holder) == before).await;
}

#[tokio::test]
async fn a_holder_without_room_for_more_pipes_refuses_a_step_and_keeps_the_others() {
    if !can_inspect_the_holder() || !is_alone(a_holder_without_room_for_more_pipes_refuses_a_step_and_keeps_the_others)
    {
        return;
    }
    let run = Run::new();
    assert_eq!(run.end("exit 0").await, StepEnd::Exited(0));
    let holder = holder();
    let limited = Command::new("prlimit").args(["--pid", &holder.to_string(), "--nofile=26:26"]).status();
    assert!(limited.unwrap().success());
    let (mut running, mut refused) = (Vec::new(), 0);
    for _ in 0..4 {
        let (out, mut chunks) = mpsc::channel(4);
        let handle = run.start("echo up; exec sleep 1000", out);
        match chunks.recv().await {
            Some(_) => running.push((handle, chunks)),
            None => {
                let error = handle.await.unwrap().unwrap_err();
                let StepError::SupervisorSpawn { source, .. } = &error else { panic!("{error:?}") };
                assert_eq!(source.raw_os_error(), Some(nix::libc::EMFILE), "{error:?}");
                refused += 1;
            }
        }
    }
    assert_eq!((running.len(), refused), (2, 2));
    assert_eq!(children_of(std::process::id()), [holder], "the holder goes on");
    assert_eq!(children_of(holder).len(), 2, "the running steps go on");
    // There is room again when a step has ended.
    let (handle, _) = running.remove(0);
    handle.abort();
    run.wait_until(|| children_of(holder).len() == 1).await;
    assert_eq!(run.end("exit 3").await, StepEnd::Exited(3));
    run.assert_nothing_left().await;
}

#[tokio::test]
async fn a_step_that_keeps_stopping_the_holder_ends_with_a_killed_daemon() {
    let run = Run::new();
    let command = "H=$(cut -d' ' -f4 /proc/$PPID/stat); touch up; while :; do kill -STOP $H; done";
    let mut daemon = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test_name(super::a_daemon_to_be_killed), "--nocapture"])
        .env("SUPERVISOR_TEST_DIR", run.dir.path())
        .env("SUPERVISOR_TEST_MARK", &run.mark)
        .env("SUPERVISOR_TEST_COMMAND", command)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    run.wait_until(|| run.dir.path().join("up").exists()).await;
    let holder = children_of(daemon.id());
    assert_eq!(holder.len(), 1);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    run.wait_until(|| run.marked_processes().is_empty()).await;
    run.wait_until(|| !std::path::Path::new(&format!("/proc/{}", holder[0])).exists()).await;
}

/// The holder of this process.
fn holder() -> u32 {
    let holders = children_of(std::process::id());
    assert_eq!(holders.len(), 1, "{holders:?}");
    holders[0]
}

/// Whether this process may see the descriptors of the holder, which cannot be traced.
fn can_inspect_the_holder() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        skip("only root sees the descriptors of the holder");
    }
    is_root
}

/// What the descriptors of a process refer to, sorted.
fn descriptors(pid: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let mut targets: Vec<String> =
        entries.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string())).collect();
    targets.sort();
    targets
}

fn descriptor(pid: u32, number: u32) -> String {
    fs::read_link(format!("/proc/{pid}/fd/{number}")).unwrap().display().to_string()
}

/// The pipes and sockets that a process has open.
fn outputs_and_sockets(pid: u32) -> Vec<String> {
    let all = descriptors(pid).into_iter();
    all.filter(|target| target.starts_with("pipe:") || target.starts_with("socket:")).collect()
}

/// The numbers that a step has printed.
fn process_ids(printed: &[u8]) -> (u32, u32) {
    let printed = String::from_utf8(printed.to_vec()).unwrap();
    let mut numbers = printed.split_whitespace().map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}
