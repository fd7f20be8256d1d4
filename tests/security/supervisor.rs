//! Steps as real processes: how they end, what they print, and that no process of theirs survives.
//!
//! Every step has a mark in its environment, by which the tests find its processes in `/proc`.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "what a test cannot set up is a failure of the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pushd::sandbox::confinement::StepPermissions;
use pushd::sandbox::{Chunk, LocalSandbox, OutputMode, RunTree, Step, StepEnd, StepError, Stream, process_layers};
use tokio::sync::mpsc;

mod kept_pipes;
mod run;

use crate::support::test_name::test_name;
use run::{Run, cgroups_of, children_of, collect, is_alone, local, path_variable, resident_memory};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_step_ends_with_the_code_of_its_shell() {
    for run in Run::both() {
        for code in [0, 1, 42, 255] {
            assert_eq!(run.end(&format!("exit {code}")).await, StepEnd::Exited(code));
        }
        assert_eq!(run.end("kill -TERM $$").await, StepEnd::Signaled(15));
        assert_eq!(run.end("no-such-program-here 2>/dev/null").await, StepEnd::Exited(127));
        run.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn stdout_and_stderr_arrive_separately_and_completely() {
    let run = Run::new();
    let output = run.output("echo out; echo err >&2; printf 'no newline'; cat").await;
    assert_eq!(output, ("out\nno newline".to_owned(), "err\n".to_owned()));
    run.assert_nothing_left().await;
}

#[tokio::test]
async fn output_arrives_while_the_step_runs() {
    let run = Run::new();
    let (out, mut chunks) = mpsc::channel(4);
    let handle = run.start("echo begun; exec sleep 1000", out);
    assert_eq!(&chunks.recv().await.unwrap().bytes[..], b"begun\n");
    run.tree.kill_now();
    assert_eq!(handle.await.unwrap().unwrap(), StepEnd::Stopped);
    run.assert_nothing_left().await;
}

#[tokio::test]
async fn a_grandchild_in_a_session_of_its_own_is_ended() {
    for run in Run::both() {
        let dir = run.dir.path().display();
        let handle = run.start_unread(&format!("setsid setsid sh -c 'touch {dir}/up; sleep 1000 & wait' & sleep 1000"));
        run.wait_until(|| run.dir.path().join("up").exists() && run.marked_processes().len() >= 3).await;
        run.assert_nothing_left().await;
        assert_eq!(handle.await.unwrap().unwrap(), StepEnd::Stopped);
    }
}

#[tokio::test]
async fn orphans_that_ignore_signals_are_ended() {
    for run in Run::both() {
        let dir = run.dir.path().display();
        let deaf = format!("trap \"\" HUP INT TERM QUIT PIPE; touch {dir}/$1; while :; do sleep 1000; done");
        let command = format!(
            "(setsid sh -c '{deaf}' x a </dev/null >/dev/null 2>&1 &) ; nohup sh -c '{deaf}' x b >/dev/null 2>&1 &
             cd {dir}; until [ -e a ] && [ -e b ]; do :; done"
        );
        assert_eq!(run.end(&command).await, StepEnd::Exited(0));
        assert!(run.marked_processes().len() >= 2, "{:?}", run.marked_processes());
        run.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_background_process_serves_later_steps_and_ends_with_the_run() {
    for run in Run::both() {
        // It writes to the step's output for ever, which must neither block the step nor kill the server.
        let serve = "(while :; do echo serving; sleep 0.01; done) & echo $! > server";
        assert_eq!(run.end(serve).await, StepEnd::Exited(0));
        assert_eq!(run.end("sleep 0.2; kill -0 $(cat server)").await, StepEnd::Exited(0));
        assert!(!run.marked_processes().is_empty());
        run.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_background_process_that_floods_does_not_block_its_step() {
    let run = Run::new();
    assert_eq!(run.end("yes & yes >&2 & exit 3").await, StepEnd::Exited(3));
    run.assert_nothing_left().await;
}

#[tokio::test]
async fn a_fork_bomb_is_killed_while_it_forks() {
    for run in Run::both() {
        let bomb = "bomb() { if [ $1 -gt 0 ]; then bomb $(($1-1)) & bomb $(($1-1)) & fi; exec sleep 1000; }
                    bomb 8";
        let handle = run.start_unread(bomb);
        run.wait_until(|| run.marked_processes().len() > 60).await;
        run.assert_nothing_left().await;
        assert_eq!(handle.await.unwrap().unwrap(), StepEnd::Stopped);
    }
}

#[tokio::test]
async fn a_process_that_keeps_forking_and_exiting_is_killed() {
    for run in Run::both() {
        let dir = run.dir.path().display();
        let hop = format!("echo 'touch {dir}/hopping; setsid sh {dir}/hop >/dev/null 2>&1 &' > hop; sh hop");
        assert_eq!(run.end(&hop).await, StepEnd::Exited(0));
        run.wait_until(|| run.dir.path().join("hopping").exists()).await;
        run.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_killed_daemon_leaves_no_process_of_a_step() {
    for cgroups in ["with", "without"] {
        let run = Run::new();
        let mut daemon = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test_name(a_daemon_to_be_killed), "--nocapture"])
            .env("SUPERVISOR_TEST_DIR", run.dir.path())
            .env("SUPERVISOR_TEST_MARK", &run.mark)
            .env("SUPERVISOR_TEST_CGROUPS", cgroups)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        run.wait_until(|| run.dir.path().join("up").exists() && run.marked_processes().len() >= 3).await;
        let holder = children_of(daemon.id());
        assert_eq!(holder.len(), 1);
        let supervisors = children_of(holder[0]);
        assert!(!supervisors.is_empty());
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        run.wait_until(|| run.marked_processes().is_empty()).await;
        let held = [holder, supervisors.clone()].concat();
        run.wait_until(|| held.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())).await;
        assert_eq!(cgroups_of(&supervisors), Vec::<PathBuf>::new());
    }
}

/// Not a test by itself: the process that [`a_killed_daemon_leaves_no_process_of_a_step`] starts and kills.
#[tokio::test]
async fn a_daemon_to_be_killed() {
    let Ok(dir) = std::env::var("SUPERVISOR_TEST_DIR") else { return };
    let local = match std::env::var("SUPERVISOR_TEST_CGROUPS").as_deref() {
        Ok("without") => local().without_cgroups(),
        Ok(_) | Err(_) => local(),
    };
    let env = vec![("MARK".into(), std::env::var_os("SUPERVISOR_TEST_MARK").unwrap()), path_variable()];
    let usual = "(setsid sh -c 'trap \"\" HUP TERM; touch up; sleep 1000; sleep 1000' &); sleep 1000; sleep 1000";
    let command = std::env::var("SUPERVISOR_TEST_COMMAND").unwrap_or_else(|_| usual.to_owned());
    let step = Step {
        command,
        cwd: dir.into(),
        env,
        time_limit: LONG,
        permissions: StepPermissions::default(),
        output_mode: OutputMode::Separate,
    };
    let (out, _heard) = mpsc::channel(4);
    let _never = RunTree::new(local).run(step, out).await;
}

#[tokio::test]
async fn dropping_the_tree_or_the_step_ends_everything() {
    let run = Run::new();
    assert_eq!(run.end("setsid sleep 1000 &").await, StepEnd::Exited(0));
    let handle = run.start_unread("touch up; setsid sleep 1000 & sleep 1000");
    run.wait_until(|| run.dir.path().join("up").exists()).await;
    handle.abort();
    assert!(handle.await.unwrap_err().is_cancelled());
    run.wait_until(|| run.marked_processes().len() == 1).await;
    let Run { tree, mark, dir, env } = run;
    drop(tree);
    let run = Run { tree: RunTree::new(local()), mark, dir, env };
    run.wait_until(|| run.marked_processes().is_empty()).await;
}

#[tokio::test]
async fn a_stopped_run_starts_nothing() {
    let run = Run::new();
    run.tree.kill_now();
    run.tree.stop(LONG).await.unwrap();
    run.tree.stop(LONG).await.unwrap();
    assert_eq!(run.end("touch ran").await, StepEnd::Stopped);
    assert!(!run.dir.path().join("ran").exists());
}

#[tokio::test]
async fn a_stop_at_any_moment_leaves_no_process() {
    for round in 0..60 {
        let run = Run::new();
        let handle = run.start_unread("sh -c 'setsid sleep 1000 & sleep 1000' & sleep 1000");
        let moment = Instant::now() + Duration::from_micros(round * 150);
        run.wait_until(|| Instant::now() >= moment).await;
        run.assert_nothing_left().await;
        assert_eq!(handle.await.unwrap().unwrap(), StepEnd::Stopped, "round {round}");
    }
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_reader_that_does_not_read() {
    let run = Run::new();
    let (out, mut chunks) = mpsc::channel(1);
    let handle = run.start("yes", out);
    assert!(chunks.recv().await.is_some());
    run.assert_nothing_left().await;
    assert_eq!(handle.await.unwrap().unwrap(), StepEnd::Stopped);
}

#[tokio::test]
async fn the_time_limit_ends_the_whole_step() {
    for run in Run::both() {
        let mut step = run.step("echo before; setsid sleep 1000 & trap '' TERM; sleep 1000; sleep 1000");
        step.time_limit = Duration::from_millis(400);
        let (out, chunks) = mpsc::channel(4);
        let (end, output) = tokio::join!(run.tree.run(step, out), collect(chunks));
        assert_eq!(end.unwrap(), StepEnd::TimedOut);
        assert_eq!(output.0, b"before\n");
        assert_eq!(run.marked_processes(), [0_u32; 0]);
        assert_eq!(run.end("exit 5").await, StepEnd::Exited(5));
        run.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_missing_directory_is_named() {
    let run = Run::new();
    let mut step = run.step("touch ran");
    step.cwd = run.dir.path().join("nowhere");
    let error = run.tree.run(step, mpsc::channel(1).0).await.unwrap_err();
    assert!(matches!(error, StepError::Directory { .. }));
    let text = error.to_string();
    assert!(text.contains("nowhere: No such file or directory"), "{text}");
    run.assert_nothing_left().await;
}

#[tokio::test]
async fn a_command_that_cannot_be_started_is_reported() {
    let run = Run::new();
    let mut step = run.step("true");
    step.env.push(("BIG".into(), "x".repeat(4 * 1024 * 1024).into()));
    let error = run.tree.run(step, mpsc::channel(1).0).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot start /bin/sh: Argument list too long (os error 7)");
    let tree = RunTree::new(LocalSandbox::new("/no/such/program".into()));
    let error = tree.run(run.step("true"), mpsc::channel(1).0).await.unwrap_err();
    assert!(error.to_string().starts_with("cannot start the supervisor /no/such/program: No such file"), "{error}");
    run.assert_nothing_left().await;
}

#[tokio::test]
async fn a_killed_supervisor_is_detected_and_its_processes_are_ended() {
    for run in Run::both() {
        let (out, _heard) = mpsc::channel(4);
        let orphans = "setsid sh -c 'setsid sleep 1000 & sleep 1000' & setsid sleep 1000 & kill -9 $PPID; sleep 1000";
        let error = run.start(orphans, out).await.unwrap().unwrap_err();
        assert!(matches!(error, StepError::SupervisorLost), "{error}");
        // No process is left when the end of the step is reported, not only some time later.
        assert_eq!(run.marked_processes(), [0_u32; 0]);
        run.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_fork_bomb_whose_supervisor_is_killed_is_ended() {
    for run in Run::both() {
        let bomb = "K=$PPID; bomb() { if [ $1 -gt 0 ]; then bomb $(($1-1)) & bomb $(($1-1)) & fi; exec sleep 1000; }
                    (sleep 0.2; kill -9 $K) & bomb 7";
        let (out, _heard) = mpsc::channel(4);
        let error = run.start(bomb, out).await.unwrap().unwrap_err();
        assert!(matches!(error, StepError::SupervisorLost), "{error}");
        assert_eq!(run.marked_processes(), [0_u32; 0]);
        run.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_stopped_supervisor_is_killed_when_its_step_must_end() {
    for run in Run::both() {
        let handle = run.start_unread("setsid sleep 1000 & kill -STOP $PPID; touch up; sleep 1000");
        run.wait_until(|| run.dir.path().join("up").exists()).await;
        run.assert_nothing_left().await;
        assert_eq!(handle.await.unwrap().unwrap(), StepEnd::Stopped);
    }
}

#[tokio::test]
async fn a_stopped_holder_is_continued_and_a_killed_one_is_replaced() {
    if !is_alone(a_stopped_holder_is_continued_and_a_killed_one_is_replaced) {
        return;
    }
    let run = Run::new();
    assert_eq!(run.end("exit 3").await, StepEnd::Exited(3));
    let holder = children_of(std::process::id());
    let [holder] = holder[..] else { panic!("one holder: {holder:?}") };
    let signal = |signal: &str| {
        let holder = holder.to_string();
        assert!(Command::new("kill").args([signal, &holder]).status().unwrap().success());
    };
    signal("-STOP");
    assert_eq!(run.end("exit 4").await, StepEnd::Exited(4));
    for polite in ["-TERM", "-INT", "-HUP"] {
        signal(polite);
    }
    assert_eq!(run.end("exit 5").await, StepEnd::Exited(5));
    assert_eq!(children_of(std::process::id()), [holder]);
    signal("-KILL");
    run.wait_until(|| !Path::new(&format!("/proc/{holder}")).exists()).await;
    assert_eq!(run.end("exit 6").await, StepEnd::Exited(6));
    run.assert_nothing_left().await;
}

#[tokio::test]
async fn the_holder_ends_with_the_last_run() {
    if !is_alone(the_holder_ends_with_the_last_run) {
        return;
    }
    let run = Run::new();
    assert_eq!(run.end("setsid sleep 1000 &").await, StepEnd::Exited(0));
    let Run { tree, mark, dir, env } = run;
    drop(tree);
    let run = Run { tree: RunTree::new(local()), mark, dir, env };
    run.wait_until(|| run.marked_processes().is_empty() && children_of(std::process::id()).is_empty()).await;
}

#[tokio::test]
async fn a_terminated_supervisor_ends_its_step() {
    for run in Run::both() {
        let end = run.end("setsid sleep 1000 & kill -TERM $PPID; sleep 1000; sleep 1000").await;
        assert_eq!(end, StepEnd::Signaled(9));
        run.wait_until(|| run.marked_processes().is_empty()).await;
        run.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn the_environment_is_exactly_the_given_one() {
    let run = Run::new();
    let mut step = run.step("cat /proc/self/environ");
    step.env = vec![("PATH".into(), "/usr/bin:/bin".into()), ("Z_1".into(), "ä\nb=c".into())];
    let (out, chunks) = mpsc::channel(4);
    let (end, output) = tokio::join!(run.tree.run(step, out), collect(chunks));
    assert_eq!(end.unwrap(), StepEnd::Exited(0));
    let mut variables: Vec<_> = output.0.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    variables.sort();
    // The shell itself adds PWD.
    variables.retain(|variable| !variable.is_empty() && !variable.starts_with("PWD="));
    assert_eq!(variables, ["PATH=/usr/bin:/bin", "Z_1=ä\nb=c"]);
    run.assert_nothing_left().await;
}

#[tokio::test]
async fn the_supervisor_exposes_nothing_of_its_step_in_proc() {
    let run = Run::new();
    let (out, mut chunks) = mpsc::channel(4);
    let handle = run.start("echo $PPID; : hidden-word; sleep 1000", out);
    let supervisor = String::from_utf8(chunks.recv().await.unwrap().bytes.to_vec()).unwrap();
    let of_supervisor = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", supervisor.trim())).unwrap();
    assert_eq!(of_supervisor("cmdline"), "push\0__hold\0");
    assert_eq!(of_supervisor("environ"), "");
    assert_eq!(of_supervisor("comm"), "push-supervisor\n");
    run.assert_nothing_left().await;
    assert_eq!(handle.await.unwrap().unwrap(), StepEnd::Stopped);
}

#[tokio::test]
async fn a_step_inherits_three_descriptors_and_plain_signals() {
    let run = Run::new();
    // A descriptor that every process started from here would inherit.
    let leaky = fs::File::open("/dev/null").unwrap();
    let leaked = nix::fcntl::fcntl(&leaky, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()));
    leaked.unwrap();
    let (listed, _) = run.output("ls -l /proc/$$/fd; :").await;
    let listed: Vec<&str> = listed.lines().filter(|line| line.contains("->")).collect();
    assert_eq!(listed.len(), 3, "{listed:#?}");
    assert!(listed[0].ends_with(" 0 -> /dev/null"), "{listed:#?}");
    let (signals, _) = run.output("grep -E '^Sig(Ign|Blk)' /proc/self/status | cut -f2").await;
    // Two more signals belong to the C library, which lets no program set them.
    for set in signals.lines() {
        assert_eq!(u64::from_str_radix(set, 16).unwrap() & 0x7fff_ffff, 0, "{signals}");
    }
    let (cwd, _) = run.output("[ $(ps -o sid= -p $$) = $$ ] && pwd").await;
    assert_eq!(cwd.trim(), run.dir.path().canonicalize().unwrap().to_str().unwrap());
    run.assert_nothing_left().await;
}

#[tokio::test]
async fn output_from_before_the_shell_exits_reaches_a_late_reader() {
    let run = Run::new();
    let (out, chunks) = mpsc::channel(1);
    // The background process holds both pipes open, so no end of file marks the end of the output.
    let handle = run.start("head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2; sleep 1000 & touch left", out);
    run.wait_until(|| run.dir.path().join("left").exists() && run.marked_processes().len() == 1).await;
    let (stdout, stderr) = collect(chunks).await;
    assert_eq!((stdout.len(), stderr.len()), (60_000, 60_000));
    assert_eq!(handle.await.unwrap().unwrap(), StepEnd::Exited(0));
    run.assert_nothing_left().await;
}

#[tokio::test]
async fn output_for_a_slow_reader_is_neither_lost_nor_buffered() {
    if !is_alone(output_for_a_slow_reader_is_neither_lost_nor_buffered) {
        return;
    }
    const LENGTH: usize = 100 * 1024 * 1024;
    let run = Run::new();
    let (out, mut chunks) = mpsc::channel(2);
    let handle = run.start(&format!("yes 0123456789abcde | head -c {LENGTH}"), out);
    let before = resident_memory();
    let (mut length, mut most) = (0, 0);
    while let Some(Chunk { stream, bytes }) = chunks.recv().await {
        assert_eq!(stream, Stream::Stdout);
        assert!(bytes.len() <= 16 * 1024);
        for (index, byte) in bytes.iter().enumerate() {
            assert_eq!(*byte, b"0123456789abcde\n"[(length + index) % 16]);
        }
        if length / (1024 * 1024) != (length + bytes.len()) / (1024 * 1024) {
            tokio::task::yield_now().await;
            most = most.max(resident_memory());
        }
        length += bytes.len();
    }
    assert_eq!(handle.await.unwrap().unwrap(), StepEnd::Exited(0));
    assert_eq!(length, LENGTH);
    assert!(most < before + 8 * 1024 * 1024, "{before} bytes before, {most} at most");
    run.assert_nothing_left().await;
}

#[tokio::test]
async fn two_hundred_steps_leave_no_process_descriptor_or_cgroup() {
    if !is_alone(two_hundred_steps_leave_no_process_descriptor_or_cgroup) {
        return;
    }
    let run = Run::new();
    assert_eq!(run.end("true").await, StepEnd::Exited(0));
    let holder = children_of(std::process::id());
    assert_eq!(holder.len(), 1);
    run.wait_until(|| children_of(holder[0]).is_empty()).await;
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let mut supervisors = BTreeSet::new();
    for number in 0..200 {
        let (output, _) = run.output(&format!("echo $PPID; exit {}", number % 3)).await;
        supervisors.insert(output.trim().parse().unwrap());
    }
    run.assert_nothing_left().await;
    assert_eq!((children_of(std::process::id()), children_of(holder[0])), (holder, vec![]));
    run.wait_until(|| descriptors() < before).await;
    let supervisors: Vec<u32> = supervisors.into_iter().collect();
    assert_eq!(cgroups_of(&supervisors), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_step_runs_in_a_cgroup_where_cgroups_can_be_created() {
    if !process_layers().contains("cgroup") {
        return;
    }
    let [with, without] = Run::both();
    let ask = "echo $PPID; sed -n s/^0:://p /proc/self/cgroup";
    let (output, _) = with.output(ask).await;
    let (supervisor, cgroup) = output.trim().split_once('\n').unwrap();
    assert!(cgroup.ends_with(&format!("/pushd-step-{supervisor}")), "{cgroup}");
    let (output, _) = without.output(ask).await;
    assert!(!output.contains("pushd-step"), "{output}");
    with.assert_nothing_left().await;
    without.assert_nothing_left().await;
    assert_eq!(cgroups_of(&[supervisor.parse().unwrap()]), Vec::<PathBuf>::new());
}
