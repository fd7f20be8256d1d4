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

use pushd::sandbox::confine::Leave;
use pushd::sandbox::{Chunk, Local, Outputs, RunTree, Step, StepEnd, StepError, Stream, layers};
use tokio::sync::mpsc;

mod run;

use run::{Run, cgroups_of, children_of, collect, is_alone, local, path, resident};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_step_ends_with_the_code_of_its_shell() {
    for run in Run::both() {
        for code in [0, 1, 42, 255] {
            assert_eq!(run.end(&format!("exit {code}")).await, StepEnd::Exited(code));
        }
        assert_eq!(run.end("kill -TERM $$").await, StepEnd::Signaled(15));
        assert_eq!(run.end("no-such-program-here 2>/dev/null").await, StepEnd::Exited(127));
        run.leaves_nothing().await;
    }
}

#[tokio::test]
async fn both_outputs_arrive_apart_and_whole() {
    let run = Run::new();
    let said = run.says("echo out; echo err >&2; printf 'no newline'; cat").await;
    assert_eq!(said, ("out\nno newline".to_owned(), "err\n".to_owned()));
    run.leaves_nothing().await;
}

#[tokio::test]
async fn output_arrives_while_the_step_runs() {
    let run = Run::new();
    let (out, mut heard) = mpsc::channel(4);
    let going = run.start("echo begun; exec sleep 1000", out);
    assert_eq!(&heard.recv().await.unwrap().bytes[..], b"begun\n");
    run.tree.kill_now();
    assert_eq!(going.await.unwrap().unwrap(), StepEnd::Stopped);
    run.leaves_nothing().await;
}

#[tokio::test]
async fn a_grandchild_in_a_session_of_its_own_is_ended() {
    for run in Run::both() {
        let dir = run.dir.path().display();
        let going =
            run.begin(&format!("setsid setsid sh -c 'touch {dir}/up; sleep 1000 & wait' & sleep 1000"));
        run.until(|| run.dir.path().join("up").exists() && run.marked().len() >= 3).await;
        run.leaves_nothing().await;
        assert_eq!(going.await.unwrap().unwrap(), StepEnd::Stopped);
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
        assert!(run.marked().len() >= 2, "{:?}", run.marked());
        run.leaves_nothing().await;
    }
}

#[tokio::test]
async fn a_background_process_serves_later_steps_and_ends_with_the_run() {
    for run in Run::both() {
        // It writes to the step's output for ever, which must neither block the step nor kill the server.
        let serve = "(while :; do echo serving; sleep 0.01; done) & echo $! > server";
        assert_eq!(run.end(serve).await, StepEnd::Exited(0));
        assert_eq!(run.end("sleep 0.2; kill -0 $(cat server)").await, StepEnd::Exited(0));
        assert!(!run.marked().is_empty());
        run.leaves_nothing().await;
    }
}

#[tokio::test]
async fn a_background_process_that_floods_does_not_hold_its_step() {
    let run = Run::new();
    assert_eq!(run.end("yes & yes >&2 & exit 3").await, StepEnd::Exited(3));
    run.leaves_nothing().await;
}

#[tokio::test]
async fn a_bomb_of_some_hundred_forks_is_ended_in_the_middle() {
    for run in Run::both() {
        let bomb = "bomb() { if [ $1 -gt 0 ]; then bomb $(($1-1)) & bomb $(($1-1)) & fi; exec sleep 1000; }
                    bomb 8";
        let going = run.begin(bomb);
        run.until(|| run.marked().len() > 60).await;
        run.leaves_nothing().await;
        assert_eq!(going.await.unwrap().unwrap(), StepEnd::Stopped);
    }
}

#[tokio::test]
async fn a_process_that_forks_and_leaves_over_and_over_is_caught() {
    for run in Run::both() {
        let dir = run.dir.path().display();
        let hop = format!("echo 'touch {dir}/hopping; setsid sh {dir}/hop >/dev/null 2>&1 &' > hop; sh hop");
        assert_eq!(run.end(&hop).await, StepEnd::Exited(0));
        run.until(|| run.dir.path().join("hopping").exists()).await;
        run.leaves_nothing().await;
    }
}

#[tokio::test]
async fn the_death_of_the_daemon_leaves_nothing() {
    for cgroups in ["with", "without"] {
        let run = Run::new();
        let mut daemon = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_daemon_to_be_killed", "--nocapture"])
            .env("KEEPER_TEST_DIR", run.dir.path())
            .env("KEEPER_TEST_MARK", &run.mark)
            .env("KEEPER_TEST_CGROUPS", cgroups)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        run.until(|| run.dir.path().join("up").exists() && run.marked().len() >= 3).await;
        let holder = children_of(daemon.id());
        assert_eq!(holder.len(), 1);
        let keepers = children_of(holder[0]);
        assert!(!keepers.is_empty());
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        run.until(|| run.marked().is_empty()).await;
        let held = [holder, keepers.clone()].concat();
        run.until(|| held.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())).await;
        assert_eq!(cgroups_of(&keepers), Vec::<PathBuf>::new());
    }
}

/// Not a test by itself: the process that [`a_killed_daemon_leaves_no_process_of_a_step`] starts and kills.
#[tokio::test]
async fn a_daemon_to_be_killed() {
    let Ok(dir) = std::env::var("KEEPER_TEST_DIR") else { return };
    let local = match std::env::var("KEEPER_TEST_CGROUPS").as_deref() {
        Ok("without") => local().without_cgroups(),
        Ok(_) | Err(_) => local(),
    };
    let env = vec![("MARK".into(), std::env::var_os("KEEPER_TEST_MARK").unwrap()), path()];
    let command =
        "(setsid sh -c 'trap \"\" HUP TERM; touch up; sleep 1000; sleep 1000' &); sleep 1000; sleep 1000";
    let step = Step {
        command: command.into(),
        cwd: dir.into(),
        env,
        time_limit: LONG,
        leave: Leave::default(),
        outputs: Outputs::Apart,
    };
    let (out, _heard) = mpsc::channel(4);
    let _never = RunTree::new(local).run(step, out).await;
}

#[tokio::test]
async fn dropping_the_tree_or_the_step_ends_everything() {
    let run = Run::new();
    assert_eq!(run.end("setsid sleep 1000 &").await, StepEnd::Exited(0));
    let going = run.begin("touch up; setsid sleep 1000 & sleep 1000");
    run.until(|| run.dir.path().join("up").exists()).await;
    going.abort();
    assert!(going.await.unwrap_err().is_cancelled());
    run.until(|| run.marked().len() == 1).await;
    let Run { tree, mark, dir, env } = run;
    drop(tree);
    let run = Run { tree: RunTree::new(local()), mark, dir, env };
    run.until(|| run.marked().is_empty()).await;
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
async fn a_stop_at_any_moment_leaves_nothing() {
    for round in 0..60 {
        let run = Run::new();
        let going = run.begin("sh -c 'setsid sleep 1000 & sleep 1000' & sleep 1000");
        let moment = Instant::now() + Duration::from_micros(round * 150);
        run.until(|| Instant::now() >= moment).await;
        run.leaves_nothing().await;
        assert_eq!(going.await.unwrap().unwrap(), StepEnd::Stopped, "round {round}");
    }
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_listener_that_does_not_listen() {
    let run = Run::new();
    let (out, mut heard) = mpsc::channel(1);
    let going = run.start("yes", out);
    assert!(heard.recv().await.is_some());
    run.leaves_nothing().await;
    assert_eq!(going.await.unwrap().unwrap(), StepEnd::Stopped);
}

#[tokio::test]
async fn the_time_limit_ends_the_whole_step() {
    for run in Run::both() {
        let mut step = run.step("echo before; setsid sleep 1000 & trap '' TERM; sleep 1000; sleep 1000");
        step.time_limit = Duration::from_millis(400);
        let (out, heard) = mpsc::channel(4);
        let (end, said) = tokio::join!(run.tree.run(step, out), collect(heard));
        assert_eq!(end.unwrap(), StepEnd::TimedOut);
        assert_eq!(said.0, b"before\n");
        assert_eq!(run.marked(), [0_u32; 0]);
        assert_eq!(run.end("exit 5").await, StepEnd::Exited(5));
        run.leaves_nothing().await;
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
    run.leaves_nothing().await;
}

#[tokio::test]
async fn what_the_system_cannot_start_is_said() {
    let run = Run::new();
    let mut step = run.step("true");
    step.env.push(("BIG".into(), "x".repeat(4 * 1024 * 1024).into()));
    let error = run.tree.run(step, mpsc::channel(1).0).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot start /bin/sh: Argument list too long (os error 7)");
    let tree = RunTree::new(Local::new("/no/such/keeper".into()));
    let error = tree.run(run.step("true"), mpsc::channel(1).0).await.unwrap_err();
    assert!(
        error.to_string().starts_with("cannot start the supervisor /no/such/keeper: No such file"),
        "{error}"
    );
    run.leaves_nothing().await;
}

#[tokio::test]
async fn a_killed_keeper_is_noticed_and_cleaned_up_after() {
    for run in Run::both() {
        let (out, _heard) = mpsc::channel(4);
        let orphans =
            "setsid sh -c 'setsid sleep 1000 & sleep 1000' & setsid sleep 1000 & kill -9 $PPID; sleep 1000";
        let error = run.start(orphans, out).await.unwrap().unwrap_err();
        assert!(matches!(error, StepError::KeeperLost), "{error}");
        // No process is left when the end of the step is reported, not only some time later.
        assert_eq!(run.marked(), [0_u32; 0]);
        run.leaves_nothing().await;
    }
}

#[tokio::test]
async fn a_bomb_whose_keeper_is_killed_is_ended() {
    for run in Run::both() {
        let bomb =
            "K=$PPID; bomb() { if [ $1 -gt 0 ]; then bomb $(($1-1)) & bomb $(($1-1)) & fi; exec sleep 1000; }
                    (sleep 0.2; kill -9 $K) & bomb 7";
        let (out, _heard) = mpsc::channel(4);
        let error = run.start(bomb, out).await.unwrap().unwrap_err();
        assert!(matches!(error, StepError::KeeperLost), "{error}");
        assert_eq!(run.marked(), [0_u32; 0]);
        run.leaves_nothing().await;
    }
}

#[tokio::test]
async fn a_stopped_keeper_is_killed_when_its_step_is_to_end() {
    for run in Run::both() {
        let going = run.begin("setsid sleep 1000 & kill -STOP $PPID; touch up; sleep 1000");
        run.until(|| run.dir.path().join("up").exists()).await;
        run.leaves_nothing().await;
        assert_eq!(going.await.unwrap().unwrap(), StepEnd::Stopped);
    }
}

#[tokio::test]
async fn a_stopped_holder_goes_on_and_a_killed_one_is_replaced() {
    if !is_alone("a_stopped_holder_goes_on_and_a_killed_one_is_replaced") {
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
    run.until(|| !Path::new(&format!("/proc/{holder}")).exists()).await;
    assert_eq!(run.end("exit 6").await, StepEnd::Exited(6));
    run.leaves_nothing().await;
}

#[tokio::test]
async fn the_holder_ends_with_the_last_run() {
    if !is_alone("the_holder_ends_with_the_last_run") {
        return;
    }
    let run = Run::new();
    assert_eq!(run.end("setsid sleep 1000 &").await, StepEnd::Exited(0));
    let Run { tree, mark, dir, env } = run;
    drop(tree);
    let run = Run { tree: RunTree::new(local()), mark, dir, env };
    run.until(|| run.marked().is_empty() && children_of(std::process::id()).is_empty()).await;
}

#[tokio::test]
async fn a_terminated_keeper_ends_its_step() {
    for run in Run::both() {
        let end = run.end("setsid sleep 1000 & kill -TERM $PPID; sleep 1000; sleep 1000").await;
        assert_eq!(end, StepEnd::Signaled(9));
        run.until(|| run.marked().is_empty()).await;
        run.leaves_nothing().await;
    }
}

#[tokio::test]
async fn the_environment_is_exactly_what_was_given() {
    let run = Run::new();
    let mut step = run.step("cat /proc/self/environ");
    step.env = vec![("PATH".into(), "/usr/bin:/bin".into()), ("Z_1".into(), "ä\nb=c".into())];
    let (out, heard) = mpsc::channel(4);
    let (end, said) = tokio::join!(run.tree.run(step, out), collect(heard));
    assert_eq!(end.unwrap(), StepEnd::Exited(0));
    let mut variables: Vec<_> = said.0.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    variables.sort();
    // The shell itself adds PWD.
    variables.retain(|variable| !variable.is_empty() && !variable.starts_with("PWD="));
    assert_eq!(variables, ["PATH=/usr/bin:/bin", "Z_1=ä\nb=c"]);
    run.leaves_nothing().await;
}

#[tokio::test]
async fn the_keeper_shows_nothing_of_its_step() {
    let run = Run::new();
    let (out, mut heard) = mpsc::channel(4);
    let going = run.start("echo $PPID; : hidden-word; sleep 1000", out);
    let keeper = String::from_utf8(heard.recv().await.unwrap().bytes.to_vec()).unwrap();
    let of_keeper = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", keeper.trim())).unwrap();
    assert_eq!(of_keeper("cmdline"), "push\0__hold\0");
    assert_eq!(of_keeper("environ"), "");
    assert_eq!(of_keeper("comm"), "step-keeper\n");
    run.leaves_nothing().await;
    assert_eq!(going.await.unwrap().unwrap(), StepEnd::Stopped);
}

#[tokio::test]
async fn a_step_inherits_three_descriptors_and_plain_signals() {
    let run = Run::new();
    // A descriptor that every process started from here would inherit.
    let leaky = fs::File::open("/dev/null").unwrap();
    let leaked = nix::fcntl::fcntl(&leaky, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()));
    leaked.unwrap();
    let (listed, _) = run.says("ls -l /proc/$$/fd; :").await;
    let listed: Vec<&str> = listed.lines().filter(|line| line.contains("->")).collect();
    assert_eq!(listed.len(), 3, "{listed:#?}");
    assert!(listed[0].ends_with(" 0 -> /dev/null"), "{listed:#?}");
    let (signals, _) = run.says("grep -E '^Sig(Ign|Blk)' /proc/self/status | cut -f2").await;
    // Two more signals belong to the C library, which lets no program set them.
    for set in signals.lines() {
        assert_eq!(u64::from_str_radix(set, 16).unwrap() & 0x7fff_ffff, 0, "{signals}");
    }
    let (place, _) = run.says("[ $(ps -o sid= -p $$) = $$ ] && pwd").await;
    assert_eq!(place.trim(), run.dir.path().canonicalize().unwrap().to_str().unwrap());
    run.leaves_nothing().await;
}

#[tokio::test]
async fn what_the_shell_wrote_before_it_left_is_passed_on_to_a_late_listener() {
    let run = Run::new();
    let (out, heard) = mpsc::channel(1);
    // The background process holds both pipes open, so no end of file marks the end of the output.
    let going =
        run.start("head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2; sleep 1000 & touch left", out);
    run.until(|| run.dir.path().join("left").exists() && run.marked().len() == 1).await;
    let (stdout, stderr) = collect(heard).await;
    assert_eq!((stdout.len(), stderr.len()), (60_000, 60_000));
    assert_eq!(going.await.unwrap().unwrap(), StepEnd::Exited(0));
    run.leaves_nothing().await;
}

#[tokio::test]
async fn much_output_to_a_slow_listener_is_neither_lost_nor_gathered() {
    if !is_alone("much_output_to_a_slow_listener_is_neither_lost_nor_gathered") {
        return;
    }
    const LENGTH: usize = 100 * 1024 * 1024;
    let run = Run::new();
    let (out, mut heard) = mpsc::channel(2);
    let going = run.start(&format!("yes 0123456789abcde | head -c {LENGTH}"), out);
    let before = resident();
    let (mut length, mut most) = (0, 0);
    while let Some(Chunk { stream, bytes }) = heard.recv().await {
        assert_eq!(stream, Stream::Stdout);
        assert!(bytes.len() <= 16 * 1024);
        for (index, byte) in bytes.iter().enumerate() {
            assert_eq!(*byte, b"0123456789abcde\n"[(length + index) % 16]);
        }
        if length / (1024 * 1024) != (length + bytes.len()) / (1024 * 1024) {
            tokio::task::yield_now().await;
            most = most.max(resident());
        }
        length += bytes.len();
    }
    assert_eq!(going.await.unwrap().unwrap(), StepEnd::Exited(0));
    assert_eq!(length, LENGTH);
    assert!(most < before + 8 * 1024 * 1024, "{before} bytes before, {most} at most");
    run.leaves_nothing().await;
}

#[tokio::test]
async fn two_hundred_steps_leave_no_process_descriptor_or_cgroup() {
    if !is_alone("two_hundred_steps_leave_no_process_descriptor_or_cgroup") {
        return;
    }
    let run = Run::new();
    assert_eq!(run.end("true").await, StepEnd::Exited(0));
    let holder = children_of(std::process::id());
    assert_eq!(holder.len(), 1);
    run.until(|| children_of(holder[0]).is_empty()).await;
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let mut keepers = BTreeSet::new();
    for number in 0..200 {
        let (said, _) = run.says(&format!("echo $PPID; exit {}", number % 3)).await;
        keepers.insert(said.trim().parse().unwrap());
    }
    run.leaves_nothing().await;
    assert_eq!((children_of(std::process::id()), children_of(holder[0])), (holder, vec![]));
    run.until(|| descriptors() < before).await;
    let keepers: Vec<u32> = keepers.into_iter().collect();
    assert_eq!(cgroups_of(&keepers), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn where_cgroups_can_be_made_a_step_is_in_one() {
    if !layers().contains("cgroup") {
        return;
    }
    let [with, without] = Run::both();
    let ask = "echo $PPID; sed -n s/^0:://p /proc/self/cgroup";
    let (said, _) = with.says(ask).await;
    let (keeper, cgroup) = said.trim().split_once('\n').unwrap();
    assert!(cgroup.ends_with(&format!("/pushd-step-{keeper}")), "{cgroup}");
    let (said, _) = without.says(ask).await;
    assert!(!said.contains("pushd-step"), "{said}");
    with.leaves_nothing().await;
    without.leaves_nothing().await;
    assert_eq!(cgroups_of(&[keeper.parse().unwrap()]), Vec::<PathBuf>::new());
}
