//! Workspaces that are swapped while a command is about to be confined to them.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use pushd::sandbox::confine::{Confinement, Way};
use pushd::sandbox::ground::FileId;
use pushd::sandbox::{SandboxProvider, StepEnd, StepError, Terms, Unconfined};
use tokio::sync::mpsc;

use super::attempts::Where;
use super::ordinary_user::also_as_an_ordinary_user;
use super::outside::SECRET;
use super::stage::Stage;

#[test]
fn a_command_is_not_confined_to_another_directory_than_its_workspace() {
    also_as_an_ordinary_user("workspaces::a_command_is_not_confined_to_another_directory_than_its_workspace");
    let stage = Stage::new();
    for way in ways(&stage) {
        let (work, base) = (stage.at("nested/work"), stage.at("nested"));
        fs::create_dir_all(&work).unwrap();
        let confinement = known(&stage, Where::Work, &work);
        let run = |command: &str| {
            let mut step = stage.step(Where::Work, command);
            step.cwd.clone_from(&work);
            stage.command(&stage.room(way, confinement.clone()), step)
        };
        assert_eq!(run("echo x > f").0.unwrap(), StepEnd::Exited(0), "{}", way.word());
        fs::rename(&work, base.join("old")).unwrap();
        // A link to outside, a link to the same directory, another directory, nothing, a file.
        for exchange in [
            (&|| symlink(stage.at("outside"), &work).unwrap()) as &dyn Fn(),
            &|| symlink("old", &work).unwrap(),
            &|| fs::create_dir(&work).unwrap(),
            &|| (),
            &|| fs::write(&work, "").unwrap(),
        ] {
            exchange();
            let (end, said) = run("echo escaped > escaped; pwd");
            // Without mounts, a missing directory is reported before anything else.
            let refused = matches!(end, Err(StepError::Walls { .. } | StepError::Directory { .. }));
            assert!(refused, "{}: {end:?} {said}", way.word());
            let _removed = fs::remove_file(&work).or_else(|_| fs::remove_dir(&work));
        }
        assert!(!stage.at("outside/escaped").exists() && !base.join("old/escaped").exists());
        fs::remove_dir_all(base).unwrap();
    }
}

#[test]
fn a_workspace_that_is_exchanged_again_and_again_never_leads_a_command_outside() {
    also_as_an_ordinary_user(
        "workspaces::a_workspace_that_is_exchanged_again_and_again_never_leads_a_command_outside",
    );
    let stage = Stage::new();
    for way in ways(&stage) {
        for above in [false, true] {
            let base = stage.at("nested");
            let work = base.join("a/work");
            fs::create_dir_all(&work).unwrap();
            fs::create_dir_all(stage.at("outside/work")).unwrap();
            let confinement = known(&stage, Where::Work, &work);
            // Swap either the workspace itself or its parent directory.
            let (place, aside) =
                if above { (base.join("a"), base.join("b")) } else { (work.clone(), base.join("a/b")) };
            let target = if above { stage.at("outside") } else { stage.at("outside/work") };
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        fs::rename(&place, &aside).unwrap();
                        symlink(&target, &place).unwrap();
                        fs::remove_file(&place).unwrap();
                        fs::rename(&aside, &place).unwrap();
                    }
                });
                for _ in 0..20 {
                    let mut step = stage.step(Where::Work, "echo escaped > escaped; echo x > $OUT/escaped");
                    step.cwd.clone_from(&work);
                    // It runs in the workspace, or not at all.
                    let _ended = stage.command(&stage.room(way, confinement.clone()), step);
                }
                over.store(true, Ordering::Relaxed);
            });
            for name in ["outside/escaped", "outside/work/escaped"] {
                assert!(!stage.at(name).exists(), "{} wrote {name}", way.word());
            }
            // No placeholder for `.git` or `.push` is left.
            let left: Vec<_> = fs::read_dir(stage.at("outside/work")).unwrap().flatten().collect();
            assert!(left.is_empty(), "{left:?}");
            fs::remove_dir_all(base).unwrap();
            fs::remove_dir_all(stage.at("outside/work")).unwrap();
        }
    }
}

#[test]
fn a_command_without_confinement_does_not_start_in_another_directory_than_its_workspace() {
    let stage = Stage::new();
    let (base, work) = (stage.at("nested"), stage.at("nested/work"));
    fs::create_dir_all(work.join("sub")).unwrap();
    let terms = Terms::Model(Box::new(known(&stage, Where::Work, &work)));
    // Approved to run unconfined, and in a session without a sandbox.
    let run = |outside: bool, sub: &str, command: &str| {
        let mut step = stage.step(Where::Work, command);
        step.cwd = work.join(sub);
        step.leave.outside = outside;
        let room = match outside {
            true => stage.local().open(terms.clone()),
            false => Unconfined::new(stage.local()).open(terms.clone()),
        };
        stage.wait(room.run(step, mpsc::channel(16).0))
    };
    for outside in [true, false] {
        for sub in ["", "sub"] {
            assert_eq!(run(outside, sub, ": > f").unwrap(), StepEnd::Exited(0), "{outside} {sub}");
            fs::remove_file(work.join(sub).join("f")).unwrap();
        }
        fs::rename(&work, base.join("old")).unwrap();
        fs::create_dir_all(stage.at("outside/sub")).unwrap();
        for exchange in [(&|| symlink(stage.at("outside"), &work).unwrap()) as &dyn Fn(), &|| {
            fs::create_dir_all(work.join("sub")).unwrap()
        }] {
            exchange();
            for sub in ["", "sub"] {
                let end = run(outside, sub, "echo escaped > escaped");
                assert!(matches!(end, Err(StepError::Walls { .. })), "{outside} {sub}: {end:?}");
            }
            let _removed = fs::remove_file(&work).or_else(|_| fs::remove_dir_all(&work));
        }
        fs::rename(base.join("old"), &work).unwrap();
        // A directory of the workspace is swapped for a link to outside.
        fs::rename(work.join("sub"), work.join("aside")).unwrap();
        symlink(stage.at("outside"), work.join("sub")).unwrap();
        let end = run(outside, "sub", "echo escaped > escaped");
        assert!(matches!(end, Err(StepError::Walls { .. })), "{outside}: {end:?}");
        fs::remove_file(work.join("sub")).unwrap();
        fs::rename(work.join("aside"), work.join("sub")).unwrap();
    }
    assert!(!stage.at("outside/escaped").exists() && !stage.at("outside/sub/escaped").exists());
}

#[test]
fn no_command_is_confined_to_a_home_wherever_the_daemon_keeps_its_own_files() {
    let stage = Stage::new();
    fs::write(stage.at("home/.python_history"), SECRET).unwrap();
    for way in Way::ALL.into_iter().filter(|way| stage.works(*way)) {
        let mut confinement = stage.confinement(Where::Work);
        // The daemon's own files are elsewhere.
        confinement.hidden.retain(|path| !path.ends_with(".push") && !path.ends_with("push"));
        confinement.workspace = stage.at("home");
        let mut step = stage.step(Where::Work, "cat .python_history; echo x > .profile");
        step.cwd = stage.at("home");
        let (end, said) = stage.command(&stage.room(way, confinement), step);
        assert!(matches!(end, Err(StepError::Walls { .. })), "{}: {end:?} {said}", way.word());
        assert!(!said.contains(SECRET), "{}: {said}", way.word());
    }
}

fn ways(stage: &Stage) -> Vec<Way> {
    Way::ALL.into_iter().filter(|way| stage.works(*way)).collect()
}

/// The confinement of a session whose workspace is `work`.
fn known(stage: &Stage, at: Where, work: &std::path::Path) -> Confinement {
    let about = fs::metadata(work).unwrap();
    let mut confinement = stage.confinement(at);
    confinement.workspace = work.canonicalize().unwrap();
    confinement.workspace_id = Some(FileId { device: about.dev(), inode: about.ino() });
    confinement
}
