//! What a confined command may do, how it ends, and when it is refused.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pushd::sandbox::confinement::{Mechanism, StepPermissions};
use pushd::sandbox::{
    ConfinementStrength, ExecutionPolicy, RunTree, SandboxProvider, StepEnd, StepError, UnconfinedSandbox,
};
use tokio::sync::mpsc;

use super::attempts::StartDir;
use super::fixture::Fixture;

const WITH_NAMESPACES: [Mechanism; 2] = [Mechanism::Bubblewrap, Mechanism::Namespaces];

#[test]
fn a_confined_command_has_the_exit_code_and_output_of_its_shell() {
    for_each_mechanism(|fixture, mechanism| {
        let says =
            |command: &str| fixture.run_step(&confined_tree(fixture, mechanism), fixture.step(StartDir::Work, command));
        for code in [0, 1, 42, 255] {
            assert_eq!(says(&format!("exit {code}")).0.unwrap(), StepEnd::Exited(code));
        }
        assert_eq!(says("kill -TERM $$").0.unwrap(), StepEnd::Signaled(15));
        assert_eq!(says("kill -9 $$").0.unwrap(), StepEnd::Signaled(9));
        let (end, output) = says("echo out; echo err >&2; cat; echo $TMPDIR; pwd; echo x > /tmp/t && cat /tmp/t");
        assert_eq!(end.unwrap(), StepEnd::Exited(0));
        for line in ["out\n", "err\n", "/tmp\n", "/work\n", "x\n"] {
            assert!(output.contains(line), "{output}");
        }
        let (end, output) = says(
            "head -c 3000000 /dev/zero | tr '\\0' a; for d in null zero full random urandom; do [ -c /dev/$d ] || echo no $d; done; echo x > /dev/null; ls /proc/self/fd >/dev/null && echo sound",
        );
        assert_eq!((end.unwrap(), output.len()), (StepEnd::Exited(0), 3_000_006));
        let mut step = fixture.step(StartDir::Work, "true");
        step.cwd = fixture.path("work/nowhere");
        let (end, _) = fixture.run_step(&confined_tree(fixture, mechanism), step);
        assert!(matches!(end, Err(StepError::Directory { .. })), "{end:?}");
        let mut step = fixture.step(StartDir::Work, "true");
        step.env.push(("BIG".into(), "x".repeat(4 << 20).into()));
        let (end, _) = fixture.run_step(&confined_tree(fixture, mechanism), step);
        assert!(matches!(end, Err(StepError::Shell { .. })), "{end:?}");
    });
}

#[test]
fn a_stop_a_timeout_and_a_killed_supervisor_end_every_confined_process() {
    for_each_mechanism(|fixture, mechanism| {
        let deaf = "trap '' TERM HUP INT; setsid sh -c 'sleep 1000 & sleep 1000' & touch up; sleep 1000; sleep 1000";
        for how in ["stop", "kill the supervisor"] {
            let tree = confined_tree(fixture, mechanism);
            fixture.block_on(async {
                let (out, _heard) = mpsc::channel(1);
                let handle = tree.run(fixture.step(StartDir::Work, deaf), out);
                tokio::pin!(handle);
                let begun = Instant::now();
                while fixture.marked_processes().len() < 4 {
                    assert!(begun.elapsed() < Duration::from_secs(30), "it does not begin");
                    let _not_yet = tokio::time::timeout(Duration::from_millis(1), &mut handle).await;
                }
                if how == "stop" {
                    tree.kill_now();
                    assert_eq!(handle.await.unwrap(), StepEnd::Stopped);
                } else {
                    kill(Pid::from_raw(supervisor_of(fixture.marked_processes()[0])), Signal::SIGKILL).unwrap();
                    assert!(matches!(handle.await, Err(StepError::SupervisorLost)));
                    while !fixture.marked_processes().is_empty() {
                        assert!(begun.elapsed() < Duration::from_secs(30), "it lives on");
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            });
            fixture.block_on(tree.stop(Duration::from_secs(10))).unwrap();
            assert_eq!(fixture.marked_processes(), [0_u32; 0], "{how}");
        }
        let mut step = fixture.step(StartDir::Work, deaf);
        step.time_limit = Duration::from_millis(300);
        let (end, _) = fixture.run_step(&confined_tree(fixture, mechanism), step);
        assert_eq!(end.unwrap(), StepEnd::TimedOut);
        assert_eq!(fixture.marked_processes(), [0_u32; 0]);
    });
}

#[test]
fn the_network_needs_permission_and_the_private_loopback_always_works() {
    for_each_mechanism(|fixture, mechanism| {
        let call =
            "ATTEMPT_CALL=connect_port ATTEMPT_WORDS=\"127.0.0.1 $PORT\" \"$TEST\" --exact \"$CALL\" --nocapture";
        let mut step = fixture.step(StartDir::Work, call);
        step.permissions = StepPermissions { network: true, ..StepPermissions::default() };
        let (end, output) = fixture.run_step(&confined_tree(fixture, mechanism), step);
        assert!(output.contains("ESCAPED: connect_port"), "{end:?} {output}");
        assert_eq!(fixture.reached(), Some("the port"));
        let own = "ATTEMPT_CALL=own_loopback \"$TEST\" --exact \"$CALL\" --nocapture";
        let (end, output) = fixture.run_step(&confined_tree(fixture, mechanism), fixture.step(StartDir::Work, own));
        assert!(output.contains("connected to itself"), "{end:?} {output}");
    });
}

#[test]
fn permitted_paths_are_writable_and_nothing_else_is() {
    for_each_mechanism(|fixture, mechanism| {
        let mut confinement = fixture.confinement(StartDir::Work);
        confinement.writable = vec![fixture.path("outside")];
        let tree = fixture.confined_tree(mechanism, confinement);
        let (end, output) = fixture.run_step(
            &tree,
            fixture.step(StartDir::Work, "echo x > $OUT/new && ! echo x > .git/new && ! echo x > $HOME/new"),
        );
        assert_eq!(end.unwrap(), StepEnd::Exited(0), "{output}");
        fs::remove_file(fixture.path("outside/new")).unwrap();
        let mut step = fixture.step(StartDir::Work, "echo x > .git/new && ! echo x > .push/new");
        step.permissions.writable = vec![fixture.path("work/.git")];
        let (end, output) = fixture.run_step(&tree, step);
        assert_eq!(end.unwrap(), StepEnd::Exited(0), "{output}");
        fs::remove_file(fixture.path("work/.git/new")).unwrap();
        let mut step = fixture.step(StartDir::Work, "echo x > $OUT/../free");
        step.permissions.unconfined = true;
        assert_eq!(fixture.run_step(&tree, step).0.unwrap(), StepEnd::Exited(0));
        fs::remove_file(fixture.path("free")).unwrap();
    });
}

#[test]
fn a_workspace_that_cannot_be_confined_is_refused_and_nothing_runs() {
    for_each_mechanism(|fixture, mechanism| {
        let refused = |confinement, word: &str| {
            let mut step = fixture.step(StartDir::Work, "echo ran > $WORK/ran");
            step.cwd = "/".into();
            let (end, output) = fixture.run_step(&fixture.confined_tree(mechanism, confinement), step);
            let error = end.unwrap_err().to_string();
            assert!(error.contains(word), "{error} {output}");
            assert!(!fixture.path("work/ran").exists());
        };
        let at = |path: &str| {
            let mut confinement = fixture.confinement(StartDir::Work);
            confinement.workspace = path.into();
            confinement
        };
        refused(at("/"), "root of the file system");
        refused(at("/nowhere/at/all"), "does not exist");
        refused(at(fixture.path("home/.push/state").to_str().unwrap()), "hidden from commands");
        symlink(fixture.path("outside"), fixture.path("fresh/.git")).unwrap();
        refused(fixture.confinement(StartDir::Fresh), "symbolic link");
        fs::remove_file(fixture.path("fresh/.git")).unwrap();
    });
}

#[test]
fn workspaces_behind_a_link_or_with_hidden_files_are_confined() {
    for_each_mechanism(|fixture, mechanism| {
        symlink(fixture.path("work"), fixture.path("alias")).unwrap();
        let mut confinement = fixture.confinement(StartDir::Work);
        confinement.workspace = fixture.path("alias");
        let mut step = fixture.step(StartDir::Work, "echo x > new && ! echo x > .git/new && ! echo x > $OUT/new");
        step.cwd = fixture.path("alias");
        let (end, output) = fixture.run_step(&fixture.confined_tree(mechanism, confinement), step);
        assert_eq!(end.unwrap(), StepEnd::Exited(0), "{output}");
        fs::remove_file(fixture.path("alias")).unwrap();
        let mut confinement = fixture.confinement(StartDir::Work);
        confinement.workspace = fixture.path("");
        let mut step = fixture.step(StartDir::Work, "echo x > new && rm new && ! cat home/.ssh/id_ed25519 && ! echo x > home/.push/new && ls -A home/.push home/.ssh; ! cat home/.netrc");
        step.cwd = fixture.path("");
        let (end, output) = fixture.run_step(&fixture.confined_tree(mechanism, confinement), step);
        assert_eq!(end.unwrap(), StepEnd::Exited(0), "{output}");
        assert!(!output.contains(super::outside::SECRET) && !output.contains("pushd"), "{output}");
    });
}

#[test]
fn concurrent_steps_keep_git_protected_and_leave_no_placeholder() {
    for_each_mechanism(|fixture, mechanism| {
        let tree = fixture.confined_tree(mechanism, fixture.confinement(StartDir::Fresh));
        fixture.block_on(async {
            let one = |command: String| tree.run(fixture.step(StartDir::Fresh, &command), mpsc::channel(1).0);
            // The second step continues after the first has ended; `.git` is still protected.
            let first = one("touch a; until [ -e b ]; do sleep 0.01; done".to_owned());
            let second =
                one("until [ -e a ]; do sleep 0.01; done; touch b; sleep 0.3; rmdir .git; ! mkdir .git".to_owned());
            let (first, second) = tokio::join!(first, second);
            assert_eq!((first.unwrap(), second.unwrap()), (StepEnd::Exited(0), StepEnd::Exited(0)));
        });
        assert!(!fixture.path("fresh/.git").exists() && !fixture.path("fresh/.push").exists());
    });
}

#[test]
fn without_namespaces_landlock_protects_files_and_sockets() {
    let fixture = Fixture::new();
    let layers = fixture.block_on(fixture.local().with_mechanism(Mechanism::Rules).layers());
    if layers.strength == ConfinementStrength::Missing {
        return crate::support::skip::skip("this kernel has no Landlock");
    }
    assert_eq!(layers.strength, ConfinementStrength::Partial);
    assert!(layers.names.contains(&"landlock"), "{layers:?}");
    let tree = confined_tree(&fixture, Mechanism::Rules);
    let command = "echo x > new && echo x > $TMPDIR/t && ! echo x > $OUT/new && ! cat $HOME/.ssh/id_ed25519 && ! cat $HOME/.push/state/token && ! kill -9 $VICTIM";
    let (end, output) = fixture.run_step(&tree, fixture.step(StartDir::Work, command));
    assert_eq!(end.unwrap(), StepEnd::Exited(0), "{output}");
    let connect = "ATTEMPT_CALL=connect ATTEMPT_WORDS=$HOME/agent.sock \"$TEST\" --exact \"$CALL\" --nocapture";
    let (_, output) = fixture.run_step(&tree, fixture.step(StartDir::Work, connect));
    assert!(output.contains("refused: connect"), "{output}");
    assert_eq!(fixture.reached(), None);
}

#[test]
fn missing_confinement_is_reported() {
    let fixture = Fixture::new();
    let none = UnconfinedSandbox::new(fixture.local());
    let layers = fixture.block_on(none.layers());
    assert_eq!((none.name(), layers.strength), ("none", ConfinementStrength::Missing));
    assert!(layers.reason.unwrap().contains("switched off"));
    let run_tree = none.open(ExecutionPolicy::Model(Box::new(fixture.confinement(StartDir::Work))));
    let step = fixture.step(StartDir::Work, "echo x > $OUT/new");
    assert_eq!(fixture.block_on(run_tree.run(step, mpsc::channel(1).0)).unwrap(), StepEnd::Exited(0));
    assert!(fixture.path("outside/new").exists());
}

#[test]
fn active_layers_are_found_by_probing() {
    let fixture = Fixture::new();
    let layers = fixture.block_on(fixture.local().layers());
    if fixture.works(Mechanism::Namespaces) {
        assert_eq!((layers.strength, layers.reason), (ConfinementStrength::Full, None));
        assert!(layers.names.contains(&"namespaces") && layers.names.contains(&"seccomp"), "{:?}", layers.names);
    }
}

/// Calls `does` with every mechanism that makes namespaces and works on this machine.
fn for_each_mechanism(does: impl Fn(&Fixture, Mechanism)) {
    for mechanism in WITH_NAMESPACES {
        let fixture = Fixture::new();
        if fixture.works(mechanism) {
            does(&fixture, mechanism);
        }
    }
}

/// The supervisor of one of this process's descendants: the child of the holder.
fn supervisor_of(pid: u32) -> i32 {
    let parent = parent_of(pid);
    if parent_of(parent) == std::process::id() { i32::try_from(pid).unwrap() } else { supervisor_of(parent) }
}

fn parent_of(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

fn confined_tree(fixture: &Fixture, mechanism: Mechanism) -> RunTree {
    fixture.confined_tree(mechanism, fixture.confinement(StartDir::Work))
}
