//! Overhead of confinement for a trivial command.

use std::path::Path;
use std::time::{Duration, Instant};

use pushd::sandbox::confinement::{Confinement, Mechanism, StepPermissions, credential_stores, toolchain};
use pushd::sandbox::{
    ConfinementStrength, ExecutionPolicy, LocalSandbox, OutputMode, RunTree, SandboxProvider, Step, StepEnd,
};
use tokio::sync::mpsc;

use super::table::{Table, median};

const TIMES: usize = 60;

/// `true` confined by every mechanism, compared with the unconfined command.
pub(crate) fn measure(table: &mut Table) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let local = LocalSandbox::new(env!("CARGO_BIN_EXE_push").into()).with_scratch_root(place.path().join("scratch"));
    let workspace = place.path().join("work");
    std::fs::create_dir(&workspace).expect("a workspace");
    let bare = runtime.block_on(median_time(&RunTree::new(local.clone()), &workspace));
    for way in Mechanism::ALL {
        let local = local.clone().with_mechanism(way);
        if runtime.block_on(local.layers()).strength == ConfinementStrength::Missing {
            println!("skipped: {} does not work here", way.as_str());
            continue;
        }
        for (name, terms) in [
            ("", confinement(place.path(), &workspace)),
            (", without caches", Confinement { caches: Vec::new(), ..confinement(place.path(), &workspace) }),
            (", without a home", Confinement::new(workspace.clone())),
        ] {
            let tree = RunTree::with_policy(local.clone(), ExecutionPolicy::Model(Box::new(terms)));
            let confined = runtime.block_on(median_time(&tree, &workspace));
            table.compare(
                format!("a confined command, {}{name}", way.as_str()),
                "ms",
                confined,
                ("the same unconfined", bare),
            );
        }
    }
}

/// A confinement with a typical home: toolchains, caches and credential stores.
fn confinement(place: &Path, workspace: &Path) -> Confinement {
    let home = place.join("home");
    for name in
        [".cargo/bin", ".cargo/registry", ".rustup", ".nvm", ".local/bin", ".npm", ".cache/pip", ".ssh", "go/pkg"]
    {
        std::fs::create_dir_all(home.join(name)).expect("a home");
    }
    std::fs::write(home.join(".gitconfig"), "").expect("a file");
    std::fs::write(home.join(".cargo/credentials.toml"), "").expect("a file");
    let mut terms = Confinement::new(workspace.to_owned());
    terms.toolchain_paths = toolchain::default_paths(&home);
    terms.caches = toolchain::caches(&home, &|_| None);
    terms.cache_root = Some(place.join("cache"));
    terms.hidden = credential_stores(&home);
    terms.daemon_paths = vec![place.join("cache")];
    terms.homes = vec![home];
    terms
}

async fn median_time(tree: &RunTree, cwd: &Path) -> f64 {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let step = Step {
            command: "true".to_owned(),
            cwd: cwd.to_owned(),
            env: Vec::new(),
            time_limit: Duration::from_secs(60),
            permissions: StepPermissions::default(),
            output_mode: OutputMode::Separate,
        };
        let begun = Instant::now();
        let end = tree.run(step, mpsc::channel(1).0).await.expect("a command");
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        assert_eq!(end, StepEnd::Exited(0));
    }
    median(times)
}
