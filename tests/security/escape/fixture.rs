//! The fixture of the escape attempts: a home with secrets, workspaces, listeners outside, and runs with and without
//! confinement.

use std::fs::{self, DirBuilder, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pushd::sandbox::confinement::{
    Confinement, Mechanism, ResourceLimits, StepPermissions, credential_stores, toolchain,
};
use pushd::sandbox::{
    Chunk, ConfinementStrength, ExecutionPolicy, Layers, LocalSandbox, OutputMode, RunTree, SandboxProvider, Step,
    StepEnd, StepError,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::attempts::{Attempt, Group, StartDir};
use super::outside::{
    self, Listeners, SECRET, Victim, describe_tree, first_difference, machine_state, marked_processes,
};
use crate::support::ordinary_user::visible_dir;
use crate::support::program::copy_program;
use crate::support::skip::skip;
use crate::support::test_name::test_name;

pub(crate) struct Fixture {
    pub(crate) base: TempDir,
    process_mark: String,
    runtime: Runtime,
    listeners: Listeners,
    victim: Victim,
    /// Descriptors that every process started from here would inherit.
    _inheritable: [File; 2],
}

impl Fixture {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let process_mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let base = tempfile::Builder::new().prefix("e").rand_bytes(4).tempdir_in(visible_dir()).unwrap();
        let at = |name: &str| base.path().join(name);
        for folder in [
            "outside",
            "fresh",
            "scratch",
            "work/.git/hooks",
            "work/.push",
            "home/bin",
            "home/.ssh",
            "home/.config/push",
            "home/.push/run",
            "home/.push/state",
            "home/.push/logs",
        ] {
            DirBuilder::new().recursive(true).mode(0o700).create(at(folder)).unwrap();
        }
        for (name, text) in [
            ("outside/file", ORDINARY_TEXT),
            ("work/.git/config", "[core]\n\trepositoryformatversion = 0\n"),
            ("work/.git/HEAD", "ref: refs/heads/main\n"),
            ("work/.push/config.toml", "[limits]\nmax_turns = 3\n"),
            ("home/.bashrc", ""),
            ("home/.profile", ""),
            ("home/.netrc", SECRET),
            ("home/.ssh/id_ed25519", SECRET),
            ("home/.config/push/keys.toml", SECRET),
            ("home/.push/state/pushd.db", SECRET),
            ("home/.push/state/token", SECRET),
            ("home/.push/logs/pushd.log", SECRET),
        ] {
            fs::write(at(name), text).unwrap();
        }
        for folder in ["work/.git/objects", "work/.git/refs"] {
            fs::create_dir(at(folder)).unwrap();
        }
        create_home_files(&at("home"));
        for (program, name) in [(own_program(), "test"), (env!("CARGO_BIN_EXE_push").into(), "push")] {
            link_or_copy(&program, &at(name));
        }
        let listeners = Listeners::start(&at("home"), &at("work"), &process_mark);
        let victim = Victim::start(&at("outside"));
        let leaks = [open_inheritable(&at("home/.netrc")), open_inheritable(&at("outside"))];
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { base, process_mark, runtime, listeners, victim, _inheritable: leaks }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    /// The confinement of a model's commands.
    pub(crate) fn confinement(&self, at: StartDir) -> Confinement {
        self.confinement_with(at, &|_| None)
    }

    /// The same, with environment variables.
    pub(crate) fn confinement_with(&self, at: StartDir, variable: toolchain::EnvironmentLookup<'_>) -> Confinement {
        let home = self.path("home");
        let mut confinement = Confinement::new(self.workspace(at));
        confinement.homes = vec![home.clone()];
        confinement.toolchain_paths = toolchain::default_paths(&home);
        confinement.toolchain_paths.extend(toolchain::paths_from_environment(variable));
        confinement.caches = toolchain::caches(&home, variable);
        confinement.cache_root = Some(self.path("scratch/cache"));
        confinement.hidden = credential_stores(&home);
        confinement.hidden.extend([self.path("home/.push"), self.path("home/.config/push"), self.path("scratch")]);
        confinement.limits = ResourceLimits { processes: 400, memory: 512 << 20, file: 64 << 20 };
        confinement
    }

    fn workspace(&self, at: StartDir) -> PathBuf {
        match at {
            StartDir::Work => self.path("work"),
            StartDir::Fresh => self.path("fresh"),
        }
    }

    pub(crate) fn local(&self) -> LocalSandbox {
        LocalSandbox::new(env!("CARGO_BIN_EXE_push").into()).with_scratch_root(self.path("scratch"))
    }

    /// Tells whether a mechanism works on this machine; skips the test otherwise.
    pub(crate) fn works(&self, mechanism: Mechanism) -> bool {
        let layers = self.layers(mechanism);
        let wanted = match mechanism {
            Mechanism::Bubblewrap | Mechanism::Namespaces => ConfinementStrength::Full,
            Mechanism::Rules => ConfinementStrength::Partial,
        };
        if layers.strength != wanted {
            skip(&format!("{} does not work here: {}", mechanism.as_str(), layers.reason.unwrap_or_default()));
        }
        layers.strength == wanted
    }

    pub(crate) fn layers(&self, mechanism: Mechanism) -> Layers {
        let local = self.local().with_mechanism(mechanism);
        self.runtime.block_on(local.layers())
    }

    /// Runs an attempt; the error says what it achieved.
    pub(crate) fn attempt(&self, mechanism: Option<Mechanism>, attempt: &Attempt) -> Result<(), String> {
        let before = self.snapshot();
        let (end, output) = self.run(mechanism, attempt);
        let after = self.snapshot();
        if let Some(changed) = first_difference(&before.0, &after.0) {
            return Err(changed);
        }
        if before.1 != after.1 {
            return Err(format!("the machine was {:?} and is {:?}", before.1, after.1));
        }
        if let Some(who) = self.listeners.reached() {
            return Err(format!("{who} was reached"));
        }
        if let Some(harm) = self.victim.damage() {
            return Err(harm);
        }
        if output.contains(SECRET) {
            return Err(format!("a secret was printed: {output}"));
        }
        if output.contains("ESCAPED") {
            return Err(format!("it reported an escape: {output}"));
        }
        if output.contains("UNREACHED") {
            return Err(format!("something it needs is missing: {output}"));
        }
        match end {
            Ok(StepEnd::Exited(_)) if output.contains("TRIED") => Ok(()),
            // An attempt that runs out of processes or memory may end before it prints `TRIED`, or be killed.
            Ok(StepEnd::Exited(_) | StepEnd::Signaled(_) | StepEnd::TimedOut | StepEnd::OutOfMemory)
                if attempt.group == Group::Resources =>
            {
                Ok(())
            }
            other => Err(format!("it did not run: {other:?}: {output}")),
        }
    }

    /// The state that no attempt may change, and the processes of attempts that still run.
    fn snapshot(&self) -> (std::collections::BTreeMap<PathBuf, String>, Vec<String>) {
        let (work, fresh) = (self.path("work"), self.path("fresh"));
        let (scratch, test, push) = (self.path("scratch"), self.path("test"), self.path("push"));
        let mut looks = describe_tree(self.base.path(), &[&work, &fresh, &scratch, &test, &push]);
        for place in [work, fresh] {
            looks.extend(
                [place.join(".git"), place.join(".push")].iter().flat_map(|path| outside::describe_tree(path, &[])),
            );
        }
        let mut machine = machine_state(&self.process_mark);
        for program in [test, push] {
            machine.push(format!("the program has {} bytes", fs::metadata(program).unwrap().len()));
        }
        machine.push(format!("left processes: {}", marked_processes(&self.process_mark).len()));
        (looks, machine)
    }

    fn run(&self, mechanism: Option<Mechanism>, attempt: &Attempt) -> (Result<StepEnd, StepError>, String) {
        clear_workspace(&self.workspace(attempt.start_dir));
        let script = format!("{PRELUDE}\n(\n{}\n)\necho TRIED", attempt.script);
        let tree = match mechanism {
            None => RunTree::with_policy(self.local(), ExecutionPolicy::User),
            Some(Mechanism::Rules) if attempt.group == Group::Resources => self.tree_with_few_processes(attempt),
            Some(mechanism) => self.confined_tree(mechanism, self.confinement(attempt.start_dir)),
        };
        let (end, output) = self.run_step(&tree, self.step(attempt.start_dir, &script));
        if mechanism == Some(Mechanism::Rules) {
            // With Landlock alone, background processes of a command live until the run ends.
            self.block_on(tree.stop(Duration::from_secs(60))).unwrap();
        }
        if mechanism.is_none() {
            // The attempt is about processes that survive; count them before the run ends them.
            let left = marked_processes(&self.process_mark).len();
            self.block_on(tree.stop(Duration::from_secs(20))).unwrap();
            if left > 0 {
                return (end, format!("{output} ESCAPED: {left} processes survive"));
            }
        }
        (end, output)
    }

    /// A run confined by one mechanism.
    pub(crate) fn confined_tree(&self, mechanism: Mechanism, mut confinement: Confinement) -> RunTree {
        if mechanism == Mechanism::Rules {
            // Without namespaces all processes of the user count, those of other tests included.
            confinement.limits.processes += 10_000;
        }
        RunTree::with_policy(self.local().with_mechanism(mechanism), ExecutionPolicy::Model(Box::new(confinement)))
    }

    /// A run confined by Landlock alone that may start a few processes more than the user has.
    fn tree_with_few_processes(&self, attempt: &Attempt) -> RunTree {
        let mut confinement = self.confinement(attempt.start_dir);
        confinement.limits.processes = threads_of_this_user() + 150;
        let local = self.local().with_mechanism(Mechanism::Rules);
        RunTree::with_policy(local, ExecutionPolicy::Model(Box::new(confinement)))
    }

    pub(crate) fn step(&self, at: StartDir, command: &str) -> Step {
        Step {
            command: command.to_owned(),
            cwd: self.workspace(at),
            env: self.environment(),
            time_limit: Duration::from_secs(60),
            permissions: StepPermissions::default(),
            output_mode: OutputMode::Separate,
        }
    }

    /// Runs a command and returns how it ended, and its output.
    pub(crate) fn run_step(&self, tree: &RunTree, step: Step) -> (Result<StepEnd, StepError>, String) {
        self.block_on(async {
            let (out, mut chunks) = mpsc::channel::<Chunk>(16);
            let listen = async {
                let mut output = Vec::new();
                while let Some(chunk) = chunks.recv().await {
                    output.extend_from_slice(&chunk.bytes);
                }
                String::from_utf8_lossy(&output).into_owned()
            };
            tokio::join!(tree.run(step, out), listen)
        })
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// The processes of this fixture's commands.
    pub(crate) fn marked_processes(&self) -> Vec<u32> {
        marked_processes(&self.process_mark)
    }

    pub(crate) fn reached(&self) -> Option<&'static str> {
        self.listeners.reached()
    }

    fn environment(&self) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
        let text = |name: &str, value: String| (name.into(), value.into());
        let path = |name: &str, value: &Path| (name.into(), value.into());
        vec![
            ("PATH".into(), std::env::var_os("PATH").unwrap()),
            path("HOME", &self.path("home")),
            path("OUT", &self.path("outside")),
            path("WORK", &self.path("work")),
            path("FRESH", &self.path("fresh")),
            path("CLIENT", &self.path("push")),
            path("TEST", &self.path("test")),
            text("CALL", test_name(super::a_call_from_inside).to_owned()),
            text("LIMITS_CALL", test_name(super::attempts_limits::a_limits_call_from_inside).to_owned()),
            text("MARK", self.process_mark.clone()),
            text("ABSTRACT", self.process_mark.clone()),
            text("VICTIM", self.victim.pid().to_string()),
            text("PORT", self.listeners.port().to_string()),
            text("UDP_PORT", self.listeners.udp_port().to_string()),
            text("SSH_AUTH_SOCK", "/nowhere".to_owned()),
            text("PUSH_HOME", self.path("home/.push").display().to_string()),
            text("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere".to_owned()),
        ]
    }
}

/// The number of threads of this process's user, which the kernel compares with the limit of processes.
fn threads_of_this_user() -> u64 {
    let user = format!("\nUid:\t{}\t", nix::unistd::getuid());
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let threads = entries.filter_map(|entry| {
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        let number = status.split_once("\nThreads:\t")?.1.lines().next()?.parse::<u64>().ok()?;
        status.contains(&user).then_some(number)
    });
    threads.sum()
}

const ORDINARY_TEXT: &str = "precious\n";

/// The toolchain files of the home; each contains its own name.
pub(crate) const TOOLCHAIN_FILES: &[&str] = &[
    ".cargo/bin/tool",
    ".cargo/config.toml",
    ".cargo/env",
    ".rustup/settings.toml",
    ".rustup/toolchains/stable/bin/rustc",
    ".nvm/nvm.sh",
    ".pyenv/version",
    ".local/bin/program",
    ".local/lib/python3/site-packages/module.py",
    "go/bin/gopls",
    ".config/git/ignore",
];

/// Puts toolchains, caches and a few more secrets into a home.
fn create_home_files(home: &Path) {
    let file = |name: &str, text: String| {
        let path = home.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for name in TOOLCHAIN_FILES {
        file(name, format!("tool {name}\n"));
    }
    for name in [".cargo/registry/cache/crate", ".npm/_cacache/index", "go/pkg/mod/module"] {
        file(name, format!("tool {name}\n"));
    }
    for name in [
        ".python_history",
        ".cargo/credentials.toml",
        ".cargo/credentials.toml.bak",
        ".cargo/.credentials.toml.swp",
        ".config/git/credentials",
        ".config/git/credentials~",
        ".pyenv/token",
        ".nvm/auth.json",
    ] {
        file(name, format!("{SECRET}\n"));
    }
    // A complete repository, so that git would use it.
    file("private/.git/HEAD", "ref: refs/heads/main\n".to_owned());
    file("private/.git/config", format!("[remote \"origin\"]\n\turl = https://{SECRET}@example.org/r\n"));
    for name in ["objects", "refs"] {
        fs::create_dir(home.join("private/.git").join(name)).unwrap();
    }
    file(".gitconfig", "[user]\n\tname = tool .gitconfig\n".to_owned());
    symlink("../.ssh/id_ed25519", home.join(".nvm/leak")).unwrap();
    symlink(home.join(".ssh"), home.join(".nvm/keys")).unwrap();
}

/// Checks that everything an attempt needs exists, so that none fails for another reason, and lets a script run the
/// system calls of this program.
const PRELUDE: &str = r#"[ -x "$TEST" ] && [ -x "$CLIENT" ] && [ -d "$OUT" ] && [ -d "$HOME" ] || echo UNREACHED
call() { ATTEMPT_CALL=$1; shift; ATTEMPT_WORDS="$*"; export ATTEMPT_CALL ATTEMPT_WORDS
"$TEST" --exact "$CALL" --nocapture; }"#;

/// Removes what earlier attempts left in a workspace, except the protected directories and the sockets.
fn clear_workspace(workspace: &Path) {
    for entry in fs::read_dir(workspace).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if [".git", ".push", "dev.sock", "log.sock"].contains(&name) {
            continue;
        }
        let _removed =
            if path.is_dir() && !path.is_symlink() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
}

pub(crate) fn own_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Makes a program available to attempts: as a hard link, or where that is not possible as a hard link to one copy that
/// all fixtures of this process share.
fn link_or_copy(program: &Path, to: &Path) {
    static COPYING: Mutex<()> = Mutex::new(());
    if fs::hard_link(program, to).is_ok() {
        return;
    }
    let _one_at_a_time = COPYING.lock().unwrap_or_else(PoisonError::into_inner);
    let name = format!("copy-{}-{}", std::process::id(), to.file_name().unwrap().display());
    let copy = visible_dir().join(name);
    if !copy.exists() {
        copy_program(program, &copy);
    }
    if fs::hard_link(&copy, to).is_err() {
        copy_program(program, to);
    }
}

fn open_inheritable(path: &Path) -> File {
    let file = File::open(path).unwrap();
    let inherited = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty());
    nix::fcntl::fcntl(&file, inherited).unwrap();
    assert!(file.as_raw_fd() > 2);
    file
}
