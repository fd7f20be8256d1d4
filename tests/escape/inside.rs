//! What a confined command may do, how it ends, and when it is refused.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pushd::sandbox::confine::{Leave, Way};
use pushd::sandbox::{RunTree, SandboxProvider, StepEnd, StepError, Strength, Terms, Unconfined};
use tokio::sync::mpsc;

use super::attempts::Where;
use super::stage::Stage;

const NAMESPACES: [Way; 2] = [Way::Bubblewrap, Way::Namespaces];

#[test]
fn a_confined_command_ends_as_its_shell_does_and_says_what_it_says() {
    each(|stage, way| {
        let says = |command: &str| stage.command(&room(stage, way), stage.step(Where::Work, command));
        for code in [0, 1, 42, 255] {
            assert_eq!(says(&format!("exit {code}")).0.unwrap(), StepEnd::Exited(code));
        }
        assert_eq!(says("kill -TERM $$").0.unwrap(), StepEnd::Signaled(15));
        assert_eq!(says("kill -9 $$").0.unwrap(), StepEnd::Signaled(9));
        let (end, said) =
            says("echo out; echo err >&2; cat; echo $TMPDIR; pwd; echo x > /tmp/t && cat /tmp/t");
        assert_eq!(end.unwrap(), StepEnd::Exited(0));
        for line in ["out\n", "err\n", "/tmp\n", "/work\n", "x\n"] {
            assert!(said.contains(line), "{said}");
        }
        let (end, said) = says(
            "head -c 3000000 /dev/zero | tr '\\0' a; for d in null zero full random urandom; do [ -c /dev/$d ] || echo no $d; done; echo x > /dev/null; ls /proc/self/fd >/dev/null && echo sound",
        );
        assert_eq!((end.unwrap(), said.len()), (StepEnd::Exited(0), 3_000_006));
        let mut step = stage.step(Where::Work, "true");
        step.cwd = stage.at("work/nowhere");
        let (end, _) = stage.command(&room(stage, way), step);
        assert!(matches!(end, Err(StepError::Directory { .. })), "{end:?}");
        let mut step = stage.step(Where::Work, "true");
        step.env.push(("BIG".into(), "x".repeat(4 << 20).into()));
        let (end, _) = stage.command(&room(stage, way), step);
        assert!(matches!(end, Err(StepError::Shell { .. })), "{end:?}");
    });
}

#[test]
fn a_stop_a_limit_and_a_killed_keeper_end_everything_behind_walls() {
    each(|stage, way| {
        let deaf =
            "trap '' TERM HUP INT; setsid sh -c 'sleep 1000 & sleep 1000' & touch up; sleep 1000; sleep 1000";
        for how in ["stop", "kill the supervisor"] {
            let tree = room(stage, way);
            stage.wait(async {
                let (out, _heard) = mpsc::channel(1);
                let going = tree.run(stage.step(Where::Work, deaf), out);
                tokio::pin!(going);
                let begun = Instant::now();
                while stage.marked().len() < 4 {
                    assert!(begun.elapsed() < Duration::from_secs(30), "it does not begin");
                    let _not_yet = tokio::time::timeout(Duration::from_millis(1), &mut going).await;
                }
                if how == "stop" {
                    tree.kill_now();
                    assert_eq!(going.await.unwrap(), StepEnd::Stopped);
                } else {
                    kill(Pid::from_raw(keeper_of(stage.marked()[0])), Signal::SIGKILL).unwrap();
                    assert!(matches!(going.await, Err(StepError::KeeperLost)));
                    while !stage.marked().is_empty() {
                        assert!(begun.elapsed() < Duration::from_secs(30), "it lives on");
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            });
            stage.wait(tree.stop(Duration::from_secs(10))).unwrap();
            assert_eq!(stage.marked(), [0_u32; 0], "{how}");
        }
        let mut step = stage.step(Where::Work, deaf);
        step.time_limit = Duration::from_millis(300);
        let (end, _) = stage.command(&room(stage, way), step);
        assert_eq!(end.unwrap(), StepEnd::TimedOut);
        assert_eq!(stage.marked(), [0_u32; 0]);
    });
}

#[test]
fn the_network_is_there_where_a_step_has_leave_and_its_own_loopback_always() {
    each(|stage, way| {
        let call = "ATTEMPT_CALL=connect_port ATTEMPT_WORDS=\"127.0.0.1 $PORT\" \"$TEST\" --exact a_call_from_inside --nocapture";
        let mut step = stage.step(Where::Work, call);
        step.leave = Leave { network: true, ..Leave::default() };
        let (end, said) = stage.command(&room(stage, way), step);
        assert!(said.contains("ESCAPED: connect_port"), "{end:?} {said}");
        assert_eq!(stage.reached(), Some("the port"));
        let own = "ATTEMPT_CALL=own_loopback \"$TEST\" --exact a_call_from_inside --nocapture";
        let (end, said) = stage.command(&room(stage, way), stage.step(Where::Work, own));
        assert!(said.contains("connected to itself"), "{end:?} {said}");
    });
}

#[test]
fn more_may_be_written_where_that_is_said_and_nothing_else() {
    each(|stage, way| {
        let mut confinement = stage.confinement(Where::Work);
        confinement.writable = vec![stage.at("outside")];
        let tree = stage.room(way, confinement);
        let (end, said) = stage.command(
            &tree,
            stage.step(Where::Work, "echo x > $OUT/new && ! echo x > .git/new && ! echo x > $HOME/new"),
        );
        assert_eq!(end.unwrap(), StepEnd::Exited(0), "{said}");
        fs::remove_file(stage.at("outside/new")).unwrap();
        let mut step = stage.step(Where::Work, "echo x > .git/new && ! echo x > .push/new");
        step.leave.writable = vec![stage.at("work/.git")];
        let (end, said) = stage.command(&tree, step);
        assert_eq!(end.unwrap(), StepEnd::Exited(0), "{said}");
        fs::remove_file(stage.at("work/.git/new")).unwrap();
        let mut step = stage.step(Where::Work, "echo x > $OUT/../free");
        step.leave.outside = true;
        assert_eq!(stage.command(&tree, step).0.unwrap(), StepEnd::Exited(0));
        fs::remove_file(stage.at("free")).unwrap();
    });
}

#[test]
fn a_workspace_that_cannot_be_confined_is_refused_and_nothing_runs() {
    each(|stage, way| {
        let refused = |confinement, word: &str| {
            let mut step = stage.step(Where::Work, "echo ran > $WORK/ran");
            step.cwd = "/".into();
            let (end, said) = stage.command(&stage.room(way, confinement), step);
            let error = end.unwrap_err().to_string();
            assert!(error.contains(word), "{error} {said}");
            assert!(!stage.at("work/ran").exists());
        };
        let at = |path: &str| {
            let mut confinement = stage.confinement(Where::Work);
            confinement.workspace = path.into();
            confinement
        };
        refused(at("/"), "root of the file system");
        refused(at("/nowhere/at/all"), "does not exist");
        refused(at(stage.at("home/.push/state").to_str().unwrap()), "hidden from commands");
        symlink(stage.at("outside"), stage.at("fresh/.git")).unwrap();
        refused(stage.confinement(Where::Fresh), "symbolic link");
        fs::remove_file(stage.at("fresh/.git")).unwrap();
    });
}

#[test]
fn a_workspace_reached_by_a_link_and_one_that_holds_what_is_hidden_are_confined() {
    each(|stage, way| {
        symlink(stage.at("work"), stage.at("alias")).unwrap();
        let mut confinement = stage.confinement(Where::Work);
        confinement.workspace = stage.at("alias");
        let mut step = stage.step(Where::Work, "echo x > new && ! echo x > .git/new && ! echo x > $OUT/new");
        step.cwd = stage.at("alias");
        let (end, said) = stage.command(&stage.room(way, confinement), step);
        assert_eq!(end.unwrap(), StepEnd::Exited(0), "{said}");
        fs::remove_file(stage.at("alias")).unwrap();
        let mut confinement = stage.confinement(Where::Work);
        confinement.workspace = stage.at("");
        let mut step = stage.step(Where::Work, "echo x > new && rm new && ! cat home/.ssh/id_ed25519 && ! echo x > home/.push/new && ls -A home/.push home/.ssh; ! cat home/.netrc");
        step.cwd = stage.at("");
        let (end, said) = stage.command(&stage.room(way, confinement), step);
        assert_eq!(end.unwrap(), StepEnd::Exited(0), "{said}");
        assert!(!said.contains(super::outside::SECRET) && !said.contains("pushd"), "{said}");
    });
}

#[test]
fn steps_beside_each_other_leave_no_place_unprotected_and_none_behind() {
    each(|stage, way| {
        let tree = stage.room(way, stage.confinement(Where::Fresh));
        stage.wait(async {
            let one = |command: String| tree.run(stage.step(Where::Fresh, &command), mpsc::channel(1).0);
            // The second step continues after the first has ended; `.git` is still protected.
            let first = one("touch a; until [ -e b ]; do sleep 0.01; done".to_owned());
            let second =
                one("until [ -e a ]; do sleep 0.01; done; touch b; sleep 0.3; rmdir .git; ! mkdir .git"
                    .to_owned());
            let (first, second) = tokio::join!(first, second);
            assert_eq!((first.unwrap(), second.unwrap()), (StepEnd::Exited(0), StepEnd::Exited(0)));
        });
        assert!(!stage.at("fresh/.git").exists() && !stage.at("fresh/.push").exists());
    });
}

#[test]
fn without_namespaces_rules_keep_files_and_sockets() {
    let stage = Stage::new();
    let layers = stage.wait(stage.local().with_way(Way::Rules).layers());
    if layers.strength == Strength::Missing {
        return super::skip::skip("this kernel has no Landlock");
    }
    assert_eq!(layers.strength, Strength::Partial);
    assert!(layers.names.contains(&"landlock"), "{layers:?}");
    let tree = room(&stage, Way::Rules);
    let command = "echo x > new && echo x > $TMPDIR/t && ! echo x > $OUT/new && ! cat $HOME/.ssh/id_ed25519 && ! cat $HOME/.push/state/token && ! kill -9 $VICTIM";
    let (end, said) = stage.command(&tree, stage.step(Where::Work, command));
    assert_eq!(end.unwrap(), StepEnd::Exited(0), "{said}");
    let connect = "ATTEMPT_CALL=connect ATTEMPT_WORDS=$HOME/agent.sock \"$TEST\" --exact a_call_from_inside --nocapture";
    let (_, said) = stage.command(&tree, stage.step(Where::Work, connect));
    assert!(said.contains("refused: connect"), "{said}");
    assert_eq!(stage.reached(), None);
}

#[test]
fn no_walls_are_said_loudly() {
    let stage = Stage::new();
    let none = Unconfined::new(stage.local());
    let layers = stage.wait(none.layers());
    assert_eq!((none.name(), layers.strength), ("none", Strength::Missing));
    assert!(layers.why.unwrap().contains("switched off"));
    let room = none.open(Terms::Model(Box::new(stage.confinement(Where::Work))));
    let step = stage.step(Where::Work, "echo x > $OUT/new");
    assert_eq!(stage.wait(room.run(step, mpsc::channel(1).0)).unwrap(), StepEnd::Exited(0));
    assert!(stage.at("outside/new").exists());
}

#[test]
fn the_layers_in_force_are_found_out_by_trying() {
    let stage = Stage::new();
    let layers = stage.wait(stage.local().layers());
    if stage.works(Way::Namespaces) {
        assert_eq!((layers.strength, layers.why), (Strength::Full, None));
        assert!(
            layers.names.contains(&"namespaces") && layers.names.contains(&"seccomp"),
            "{:?}",
            layers.names
        );
    }
}

/// Calls `does` with every mechanism that makes namespaces and works on this machine.
fn each(does: impl Fn(&Stage, Way)) {
    for way in NAMESPACES {
        let stage = Stage::new();
        if stage.works(way) {
            does(&stage, way);
        }
    }
}

/// The supervisor of one of this process's descendants: the child of the holder.
fn keeper_of(pid: u32) -> i32 {
    let parent = parent_of(pid);
    if parent_of(parent) == std::process::id() { i32::try_from(pid).unwrap() } else { keeper_of(parent) }
}

fn parent_of(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().parse().unwrap()
}

fn room(stage: &Stage, way: Way) -> RunTree {
    stage.room(way, stage.confinement(Where::Work))
}
