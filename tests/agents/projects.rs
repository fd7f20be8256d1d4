//! Real projects, built and tested by confined commands: Rust, Node and Python with dependencies from their
//! registries, Go without.
//!
//! Each project is built three times: with empty caches and the network; again without the network, from the private
//! cache of the first build; and in another workspace without the network, from the user's own cache. Registries are
//! reached with the settings of the user who runs the test. Where a toolchain or a registry is missing, the test is
//! skipped.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::skip::skip;
use pushd::sandbox::confinement::{Confinement, Mechanism, StepPermissions, credential_stores, toolchain};
use pushd::sandbox::{
    Chunk, ConfinementStrength, ExecutionPolicy, LocalSandbox, OutputMode, RunTree, SandboxProvider, Step, StepEnd,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

/// A project, and how it is built.
struct Project {
    /// The programs that must be installed.
    programs: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
    /// Fetches, builds and tests; with the network.
    cold_build: &'static str,
    /// Removes the build output in the workspace and builds again, from caches alone.
    warm_build: &'static str,
    /// Whether the tool works without its registry when its cache is warm.
    offline: bool,
}

const RUST: Project = Project {
    programs: &["cargo"],
    files: &[
        (
            "Cargo.toml",
            "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\nitoa = \"1\"\n",
        ),
        (
            "src/lib.rs",
            "#[test]\nfn a_number_is_written() {\n    assert_eq!(itoa::Buffer::new().format(42), \"42\");\n}\n",
        ),
    ],
    cold_build: "cargo test",
    warm_build: "rm -rf target Cargo.lock && cargo test --offline",
    offline: true,
};

const NODE: Project = Project {
    programs: &["node", "npm"],
    files: &[
        (
            "package.json",
            "{\"name\": \"tiny\", \"version\": \"0.1.0\", \"dependencies\": {\"is-number\": \"7.0.0\"}, \"scripts\": {\"test\": \"node test.js\"}}\n",
        ),
        ("test.js", "const is = require('is-number'); if (!is(42)) { process.exit(1); } console.log('tested');\n"),
    ],
    cold_build: "npm install --no-audit --no-fund && npm test",
    warm_build: "rm -rf node_modules package-lock.json && npm install --offline --no-audit --no-fund && npm test",
    offline: true,
};

const PYTHON: Project = Project {
    programs: &["python3"],
    files: &[(
        "test_tiny.py",
        "import unittest\nimport docopt\n\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(docopt.docopt(\"usage: x <n>\", [\"42\"])[\"<n>\"], \"42\")\n",
    )],
    cold_build: "python3 -m venv venv && venv/bin/pip install docopt && venv/bin/python -m unittest",
    warm_build: "rm -rf venv && python3 -m venv venv && venv/bin/pip install docopt > log 2>&1; cat log; grep -q 'Using cached' log && venv/bin/python -m unittest",
    // pip asks its registry for the newest version, and then takes the built package from its cache.
    offline: false,
};

const GO: Project = Project {
    programs: &["go"],
    files: &[
        ("go.mod", "module example.org/tiny\n\ngo 1.18\n"),
        ("tiny.go", "package tiny\n\nimport \"strconv\"\n\nfunc Text(n int) string { return strconv.Itoa(n) }\n"),
        (
            "tiny_test.go",
            "package tiny\n\nimport \"testing\"\n\nfunc TestText(t *testing.T) {\n\tif Text(42) != \"42\" {\n\t\tt.Fail()\n\t}\n}\n",
        ),
    ],
    cold_build: "go build ./... && go test ./...",
    warm_build: "go build ./... && go test ./...",
    offline: true,
};

#[test]
fn a_rust_project_builds_with_cold_and_warm_caches() {
    assert_builds(&RUST);
}

#[test]
fn a_node_project_builds_with_cold_and_warm_caches() {
    assert_builds(&NODE);
}

#[test]
fn a_python_project_builds_with_cold_and_warm_caches() {
    assert_builds(&PYTHON);
}

#[test]
fn a_go_project_builds_with_cold_and_warm_caches() {
    assert_builds(&GO);
}

fn assert_builds(project: &Project) {
    let mut can_be_built = false;
    for mechanism in Mechanism::ALL {
        let fixture = Fixture::new();
        if !fixture.works(mechanism) {
            continue;
        }
        if let Some(missing) = project.programs.iter().find(|name| !fixture.has(name)) {
            return skip(&format!("{missing} is not installed"));
        }
        if !can_be_built {
            let (end, output) = fixture.run_unconfined(&fixture.workspace("free", project), project.cold_build);
            if end != StepEnd::Exited(0) {
                return skip(&format!("{:?} cannot be built even without confinement: {output}", project.programs));
            }
            fixture.remove_caches();
            can_be_built = true;
        }
        let network = !project.offline;
        let workspace = fixture.workspace("one", project);
        fixture.run_confined(mechanism, &workspace, project.cold_build, true);
        fixture.run_confined(mechanism, &workspace, project.warm_build, network);
        assert_eq!(fixture.caches(), Vec::<PathBuf>::new(), "nothing is written to the user's own caches");
        if mechanism == Mechanism::Namespaces && fixture.overlays() {
            fixture.run_unconfined(&fixture.workspace("free", project), project.cold_build);
            assert_ne!(fixture.caches(), Vec::<PathBuf>::new(), "the user has caches now");
            fixture.run_confined(mechanism, &fixture.workspace("two", project), project.warm_build, network);
        }
    }
}

/// A home with its own caches, and the settings of the real one.
struct Fixture {
    dir: TempDir,
    runtime: Runtime,
    real_home: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir_in(visible_dir()).unwrap();
        let real_home = PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/".into()));
        let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| real_home.join(".cargo"), PathBuf::from);
        fs::create_dir_all(dir.path().join("home/.cargo")).unwrap();
        fs::create_dir(dir.path().join("push")).unwrap();
        for settings in ["config.toml", "config"] {
            if cargo.join(settings).is_file() {
                fs::copy(cargo.join(settings), dir.path().join("home/.cargo").join(settings)).unwrap();
            }
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self { dir, runtime: runtime.unwrap(), real_home }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn local(&self) -> LocalSandbox {
        LocalSandbox::new(env!("CARGO_BIN_EXE_push").into()).with_scratch_root(self.path("push/tmp"))
    }

    fn works(&self, mechanism: Mechanism) -> bool {
        let layers = self.runtime.block_on(self.local().with_mechanism(mechanism).layers());
        if layers.strength == ConfinementStrength::Missing {
            skip(&format!("{} does not work here: {}", mechanism.as_str(), layers.reason.unwrap_or_default()));
        }
        layers.strength != ConfinementStrength::Missing
    }

    fn overlays(&self) -> bool {
        let layers = self.runtime.block_on(self.local().with_mechanism(Mechanism::Namespaces).layers());
        layers.names.contains(&"overlay")
    }

    fn has(&self, program: &str) -> bool {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        found.is_ok_and(|found| found.status.success())
    }

    /// The environment of the user who runs the test, with another home.
    fn environment(&self) -> Vec<(OsString, OsString)> {
        // Variables that cargo sets for its tests, and variables that lead past the caches or to other ones.
        let own = ["HOME", "CARGO_HOME", "XDG_CACHE_HOME", "PIP_FIND_LINKS", "PIP_CACHE_DIR", "GOPATH", "GOCACHE"];
        let leave_out = |name: &str| {
            let of_cargo = name.starts_with("CARGO") || name == "RUSTUP_TOOLCHAIN" || name == "LD_LIBRARY_PATH";
            own.contains(&name) || of_cargo || name.eq_ignore_ascii_case("npm_config_cache")
        };
        let kept = std::env::vars_os().filter(|(name, _)| !leave_out(&name.to_string_lossy()));
        let mut environment: Vec<(OsString, OsString)> = kept.collect();
        let rustup = self.real_home.join(".rustup");
        if std::env::var_os("RUSTUP_HOME").is_none() && rustup.is_dir() {
            environment.push(("RUSTUP_HOME".into(), rustup.into()));
        }
        environment.push(("HOME".into(), self.path("home").into()));
        environment.push(("GOTOOLCHAIN".into(), "local".into()));
        environment
    }

    fn workspace(&self, name: &str, project: &Project) -> PathBuf {
        let workspace = self.path(name);
        for (file, text) in project.files {
            let path = workspace.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        workspace
    }

    /// Runs a command as the user would.
    fn run_unconfined(&self, workspace: &Path, command: &str) -> (StepEnd, String) {
        let done = self.run(&RunTree::new(self.local()), workspace, command, false);
        fs::remove_dir_all(workspace).unwrap();
        done
    }

    /// Runs a command in the sandbox; it must succeed.
    fn run_confined(&self, mechanism: Mechanism, workspace: &Path, command: &str, network: bool) {
        let environment = self.environment();
        let variable = |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let home = self.path("home");
        let mut terms = Confinement::new(workspace.to_owned());
        terms.homes = vec![home.clone(), self.real_home.clone()];
        terms.toolchain_paths = terms.homes.iter().flat_map(|home| toolchain::default_paths(home)).collect();
        terms.toolchain_paths.extend(toolchain::paths_from_environment(&variable));
        terms.caches = toolchain::caches(&home, &variable);
        terms.cache_root = Some(self.path("push/cache"));
        terms.hidden = terms.homes.iter().flat_map(|home| credential_stores(home)).collect();
        terms.daemon_paths = vec![self.path("push")];
        let tree =
            RunTree::with_policy(self.local().with_mechanism(mechanism), ExecutionPolicy::Model(Box::new(terms)));
        let (end, output) = self.run(&tree, workspace, command, network);
        assert_eq!(end, StepEnd::Exited(0), "{} {command}:\n{output}", mechanism.as_str());
    }

    fn run(&self, tree: &RunTree, cwd: &Path, command: &str, network: bool) -> (StepEnd, String) {
        let step = Step {
            command: command.to_owned(),
            cwd: cwd.to_owned(),
            env: self.environment(),
            time_limit: Duration::from_secs(300),
            permissions: StepPermissions { network, ..StepPermissions::default() },
            output_mode: OutputMode::Separate,
        };
        self.runtime.block_on(async {
            let (out, mut chunks) = mpsc::channel::<Chunk>(16);
            let listen = async {
                let mut output = Vec::new();
                while let Some(chunk) = chunks.recv().await {
                    output.extend_from_slice(&chunk.bytes);
                }
                String::from_utf8_lossy(&output).into_owned()
            };
            let (end, output) = tokio::join!(tree.run(step, out), listen);
            (end.unwrap(), output)
        })
    }

    /// The user's caches.
    fn caches(&self) -> Vec<PathBuf> {
        let caches = toolchain::caches(&self.path("home"), &|_| None).into_iter().map(|cache| cache.path);
        caches.filter(|path| path.exists()).collect()
    }

    fn remove_caches(&self) {
        for cache in self.caches() {
            // Go makes the directories of its modules read-only.
            let opened = Command::new("chmod").args(["-R", "u+w"]).arg(&cache).status();
            assert!(opened.unwrap().success());
            fs::remove_dir_all(cache).unwrap();
        }
    }
}

/// The target directory; where that lies in the machine's `/tmp`, which a confined command does not see, another one.
fn visible_dir() -> &'static str {
    let target = env!("CARGO_TARGET_TMPDIR");
    if Path::new(target).starts_with("/tmp") { "/var/tmp" } else { target }
}
