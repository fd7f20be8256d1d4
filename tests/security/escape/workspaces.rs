//! Workspaces that are swapped while a command is about to be confined to them.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use pushd::sandbox::confinement::{Confinement, Mechanism};
use pushd::sandbox::workspace::FileId;
use pushd::sandbox::{ExecutionPolicy, SandboxProvider, StepEnd, StepError, UnconfinedSandbox};
use tokio::sync::mpsc;

use super::attempts::StartDir;
use super::fixture::Fixture;
use super::outside::SECRET;
use crate::support::ordinary_user::also_as_an_ordinary_user;

#[test]
fn a_command_is_not_confined_to_another_directory_than_its_workspace() {
    also_as_an_ordinary_user(a_command_is_not_confined_to_another_directory_than_its_workspace);
    let fixture = Fixture::new();
    for mechanism in working_mechanisms(&fixture) {
        let (work, base) = (fixture.path("nested/work"), fixture.path("nested"));
        fs::create_dir_all(&work).unwrap();
        let confinement = confinement_for(&fixture, StartDir::Work, &work);
        let run = |command: &str| {
            let mut step = fixture.step(StartDir::Work, command);
            step.cwd.clone_from(&work);
            fixture.run_step(&fixture.confined_tree(mechanism, confinement.clone()), step)
        };
        assert_eq!(run("echo x > f").0.unwrap(), StepEnd::Exited(0), "{}", mechanism.as_str());
        fs::rename(&work, base.join("old")).unwrap();
        // A link to outside, a link to the same directory, another directory, nothing, a file.
        for exchange in [
            (&|| symlink(fixture.path("outside"), &work).unwrap()) as &dyn Fn(),
            &|| symlink("old", &work).unwrap(),
            &|| fs::create_dir(&work).unwrap(),
            &|| (),
            &|| fs::write(&work, "").unwrap(),
        ] {
            exchange();
            let (end, output) = run("echo escaped > escaped; pwd");
            // Without mounts, a missing directory is reported before anything else.
            let refused = matches!(end, Err(StepError::Confinement { .. } | StepError::Directory { .. }));
            assert!(refused, "{}: {end:?} {output}", mechanism.as_str());
            let _removed = fs::remove_file(&work).or_else(|_| fs::remove_dir(&work));
        }
        assert!(!fixture.path("outside/escaped").exists() && !base.join("old/escaped").exists());
        fs::remove_dir_all(base).unwrap();
    }
}

#[test]
fn a_workspace_that_is_swapped_repeatedly_never_leads_a_command_outside() {
    also_as_an_ordinary_user(a_workspace_that_is_swapped_repeatedly_never_leads_a_command_outside);
    let fixture = Fixture::new();
    for mechanism in working_mechanisms(&fixture) {
        for above in [false, true] {
            let base = fixture.path("nested");
            let work = base.join("a/work");
            fs::create_dir_all(&work).unwrap();
            fs::create_dir_all(fixture.path("outside/work")).unwrap();
            let confinement = confinement_for(&fixture, StartDir::Work, &work);
            // Swap either the workspace itself or its parent directory.
            let (place, aside) =
                if above { (base.join("a"), base.join("b")) } else { (work.clone(), base.join("a/b")) };
            let target = if above { fixture.path("outside") } else { fixture.path("outside/work") };
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
                    let mut step = fixture.step(StartDir::Work, "echo escaped > escaped; echo x > $OUT/escaped");
                    step.cwd.clone_from(&work);
                    // It runs in the workspace, or not at all.
                    let _ended = fixture.run_step(&fixture.confined_tree(mechanism, confinement.clone()), step);
                }
                over.store(true, Ordering::Relaxed);
            });
            for name in ["outside/escaped", "outside/work/escaped"] {
                assert!(!fixture.path(name).exists(), "{} wrote {name}", mechanism.as_str());
            }
            // No placeholder for `.git` or `.push` is left.
            let left: Vec<_> = fs::read_dir(fixture.path("outside/work")).unwrap().flatten().collect();
            assert!(left.is_empty(), "{left:?}");
            fs::remove_dir_all(base).unwrap();
            fs::remove_dir_all(fixture.path("outside/work")).unwrap();
        }
    }
}

#[test]
fn a_command_without_confinement_does_not_start_in_another_directory_than_its_workspace() {
    let fixture = Fixture::new();
    let (base, work) = (fixture.path("nested"), fixture.path("nested/work"));
    fs::create_dir_all(work.join("sub")).unwrap();
    let terms = ExecutionPolicy::Model(Box::new(confinement_for(&fixture, StartDir::Work, &work)));
    // Approved to run unconfined, and in a session without a sandbox.
    let run = |outside: bool, sub: &str, command: &str| {
        let mut step = fixture.step(StartDir::Work, command);
        step.cwd = work.join(sub);
        step.permissions.unconfined = outside;
        let run_tree = match outside {
            true => fixture.local().open(terms.clone()),
            false => UnconfinedSandbox::new(fixture.local()).open(terms.clone()),
        };
        fixture.block_on(run_tree.run(step, mpsc::channel(16).0))
    };
    for outside in [true, false] {
        for sub in ["", "sub"] {
            assert_eq!(run(outside, sub, ": > f").unwrap(), StepEnd::Exited(0), "{outside} {sub}");
            fs::remove_file(work.join(sub).join("f")).unwrap();
        }
        fs::rename(&work, base.join("old")).unwrap();
        fs::create_dir_all(fixture.path("outside/sub")).unwrap();
        for exchange in [(&|| symlink(fixture.path("outside"), &work).unwrap()) as &dyn Fn(), &|| {
            fs::create_dir_all(work.join("sub")).unwrap()
        }] {
            exchange();
            for sub in ["", "sub"] {
                let end = run(outside, sub, "echo escaped > escaped");
                assert!(matches!(end, Err(StepError::Confinement { .. })), "{outside} {sub}: {end:?}");
            }
            let _removed = fs::remove_file(&work).or_else(|_| fs::remove_dir_all(&work));
        }
        fs::rename(base.join("old"), &work).unwrap();
        // A directory of the workspace is swapped for a link to outside.
        fs::rename(work.join("sub"), work.join("aside")).unwrap();
        symlink(fixture.path("outside"), work.join("sub")).unwrap();
        let end = run(outside, "sub", "echo escaped > escaped");
        assert!(matches!(end, Err(StepError::Confinement { .. })), "{outside}: {end:?}");
        fs::remove_file(work.join("sub")).unwrap();
        fs::rename(work.join("aside"), work.join("sub")).unwrap();
    }
    assert!(!fixture.path("outside/escaped").exists() && !fixture.path("outside/sub/escaped").exists());
}

#[test]
fn a_home_is_refused_as_a_workspace_wherever_the_daemon_keeps_its_files() {
    let fixture = Fixture::new();
    fs::write(fixture.path("home/.python_history"), SECRET).unwrap();
    for mechanism in Mechanism::ALL.into_iter().filter(|mechanism| fixture.works(*mechanism)) {
        let mut confinement = fixture.confinement(StartDir::Work);
        // The daemon's own files are elsewhere.
        confinement.hidden.retain(|path| !path.ends_with(".push") && !path.ends_with("push"));
        confinement.workspace = fixture.path("home");
        let mut step = fixture.step(StartDir::Work, "cat .python_history; echo x > .profile");
        step.cwd = fixture.path("home");
        let (end, output) = fixture.run_step(&fixture.confined_tree(mechanism, confinement), step);
        assert!(matches!(end, Err(StepError::Confinement { .. })), "{}: {end:?} {output}", mechanism.as_str());
        assert!(!output.contains(SECRET), "{}: {output}", mechanism.as_str());
    }
}

fn working_mechanisms(fixture: &Fixture) -> Vec<Mechanism> {
    Mechanism::ALL.into_iter().filter(|mechanism| fixture.works(*mechanism)).collect()
}

/// The confinement of a session whose workspace is `work`.
fn confinement_for(fixture: &Fixture, at: StartDir, work: &std::path::Path) -> Confinement {
    let about = fs::metadata(work).unwrap();
    let mut confinement = fixture.confinement(at);
    confinement.workspace = work.canonicalize().unwrap();
    confinement.workspace_id = Some(FileId { device: about.dev(), inode: about.ino() });
    confinement
}
