//! The fixture of the escape attempts: a home with secrets, workspaces, listeners outside, and runs with and without
//! confinement.

use std::fs::{self, DirBuilder, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pushd::sandbox::confine::{Bounds, Confinement, Leave, Way, credential_stores, toolchain};
use pushd::sandbox::{
    Chunk, Layers, Local, Outputs, RunTree, SandboxProvider, Step, StepEnd, StepError, Strength, Terms,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::attempts::{Attempt, Group, Where};
use super::ordinary_user::visible_place;
use super::outside::{self, Listeners, SECRET, Victim, difference, looks, machine, marked};
use super::skip::skip;

pub(crate) struct Stage {
    pub(crate) base: TempDir,
    mark: String,
    runtime: Runtime,
    listeners: Listeners,
    victim: Victim,
    /// Descriptors that every process started from here would inherit.
    _leaks: [File; 2],
}

impl Stage {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let base = tempfile::Builder::new().prefix("e").rand_bytes(4).tempdir_in(visible_place()).unwrap();
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
            ("outside/file", SECRET_FREE),
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
        furnish(&at("home"));
        for (program, name) in [(own_program(), "test"), (env!("CARGO_BIN_EXE_push").into(), "push")] {
            bring(&program, &at(name));
        }
        let listeners = Listeners::start(&at("home"), &at("work"), &mark);
        let victim = Victim::start(&at("outside"));
        let leaks = [leak(&at("home/.netrc")), leak(&at("outside"))];
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { base, mark, runtime, listeners, victim, _leaks: leaks }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    /// The confinement of a model's commands.
    pub(crate) fn confinement(&self, at: Where) -> Confinement {
        self.confinement_with(at, &|_| None)
    }

    /// The same, with environment variables.
    pub(crate) fn confinement_with(&self, at: Where, variable: toolchain::Variable<'_>) -> Confinement {
        let home = self.at("home");
        let mut confinement = Confinement::of(self.workspace(at));
        confinement.homes = vec![home.clone()];
        confinement.opened = toolchain::defaults(&home);
        confinement.opened.extend(toolchain::named(variable));
        confinement.caches = toolchain::caches(&home, variable);
        confinement.cache_root = Some(self.at("scratch/cache"));
        confinement.hidden = credential_stores(&home);
        confinement.hidden.extend([self.at("home/.push"), self.at("home/.config/push"), self.at("scratch")]);
        confinement.bounds = Bounds { processes: 400, memory: 512 << 20, file: 64 << 20 };
        confinement
    }

    fn workspace(&self, at: Where) -> PathBuf {
        match at {
            Where::Work => self.at("work"),
            Where::Fresh => self.at("fresh"),
        }
    }

    pub(crate) fn local(&self) -> Local {
        Local::new(env!("CARGO_BIN_EXE_push").into()).with_scratch(self.at("scratch"))
    }

    /// Tells whether a mechanism works on this machine; skips the test otherwise.
    pub(crate) fn works(&self, way: Way) -> bool {
        let layers = self.layers(way);
        let wanted = match way {
            Way::Bubblewrap | Way::Namespaces => Strength::Full,
            Way::Rules => Strength::Partial,
        };
        if layers.strength != wanted {
            skip(&format!("{} does not work here: {}", way.word(), layers.why.unwrap_or_default()));
        }
        layers.strength == wanted
    }

    pub(crate) fn layers(&self, way: Way) -> Layers {
        let local = self.local().with_way(way);
        self.runtime.block_on(local.layers())
    }

    /// Runs an attempt; the error says what it achieved.
    pub(crate) fn attempt(&self, way: Option<Way>, attempt: &Attempt) -> Result<(), String> {
        let before = self.look();
        let (end, said) = self.run(way, attempt);
        let after = self.look();
        if let Some(changed) = difference(&before.0, &after.0) {
            return Err(changed);
        }
        if before.1 != after.1 {
            return Err(format!("the machine was {:?} and is {:?}", before.1, after.1));
        }
        if let Some(who) = self.listeners.reached() {
            return Err(format!("{who} was reached"));
        }
        if let Some(harm) = self.victim.harmed() {
            return Err(harm);
        }
        if said.contains(SECRET) {
            return Err(format!("a secret was printed: {said}"));
        }
        if said.contains("ESCAPED") {
            return Err(format!("it reported an escape: {said}"));
        }
        if said.contains("UNREACHED") {
            return Err(format!("something it needs is missing: {said}"));
        }
        match end {
            Ok(StepEnd::Exited(_)) if said.contains("TRIED") => Ok(()),
            // An attempt that runs out of processes or memory may end before it prints `TRIED`, or be killed.
            Ok(StepEnd::Exited(_) | StepEnd::Signaled(_) | StepEnd::TimedOut | StepEnd::OutOfMemory)
                if attempt.group == Group::Use =>
            {
                Ok(())
            }
            other => Err(format!("it did not run: {other:?}: {said}")),
        }
    }

    /// The state that no attempt may change, and the processes of attempts that still run.
    fn look(&self) -> (std::collections::BTreeMap<PathBuf, String>, Vec<String>) {
        let (work, fresh) = (self.at("work"), self.at("fresh"));
        let (scratch, test, push) = (self.at("scratch"), self.at("test"), self.at("push"));
        let mut looks = looks(self.base.path(), &[&work, &fresh, &scratch, &test, &push]);
        for place in [work, fresh] {
            looks.extend(
                [place.join(".git"), place.join(".push")].iter().flat_map(|path| outside::looks(path, &[])),
            );
        }
        let mut machine = machine(&self.mark);
        for program in [test, push] {
            machine.push(format!("the program has {} bytes", fs::metadata(program).unwrap().len()));
        }
        machine.push(format!("left processes: {}", marked(&self.mark).len()));
        (looks, machine)
    }

    fn run(&self, way: Option<Way>, attempt: &Attempt) -> (Result<StepEnd, StepError>, String) {
        tidy(&self.workspace(attempt.at));
        let script = format!("{PRELUDE}\n(\n{}\n)\necho TRIED", attempt.script);
        let tree = match way {
            None => RunTree::on(self.local(), Terms::User),
            Some(way) => self.room(way, self.confinement(attempt.at)),
        };
        let (end, said) = self.command(&tree, self.step(attempt.at, &script));
        if way == Some(Way::Rules) {
            // With Landlock alone, background processes of a command live until the run ends.
            self.wait(tree.stop(Duration::from_secs(60))).unwrap();
        }
        if way.is_none() {
            // The attempt is about processes that survive; count them before the run ends them.
            let left = marked(&self.mark).len();
            self.wait(tree.stop(Duration::from_secs(20))).unwrap();
            if left > 0 {
                return (end, format!("{said} ESCAPED: {left} processes survive"));
            }
        }
        (end, said)
    }

    /// A run confined by one mechanism.
    pub(crate) fn room(&self, way: Way, confinement: Confinement) -> RunTree {
        RunTree::on(self.local().with_way(way), Terms::Model(Box::new(confinement)))
    }

    pub(crate) fn step(&self, at: Where, command: &str) -> Step {
        Step {
            command: command.to_owned(),
            cwd: self.workspace(at),
            env: self.environment(),
            time_limit: Duration::from_secs(60),
            leave: Leave::default(),
            outputs: Outputs::Apart,
        }
    }

    /// Runs a command and returns how it ended, and its output.
    pub(crate) fn command(&self, tree: &RunTree, step: Step) -> (Result<StepEnd, StepError>, String) {
        self.wait(async {
            let (out, mut heard) = mpsc::channel::<Chunk>(16);
            let listen = async {
                let mut said = Vec::new();
                while let Some(chunk) = heard.recv().await {
                    said.extend_from_slice(&chunk.bytes);
                }
                String::from_utf8_lossy(&said).into_owned()
            };
            tokio::join!(tree.run(step, out), listen)
        })
    }

    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// The processes of this fixture's commands.
    pub(crate) fn marked(&self) -> Vec<u32> {
        marked(&self.mark)
    }

    pub(crate) fn reached(&self) -> Option<&'static str> {
        self.listeners.reached()
    }

    fn environment(&self) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
        let text = |name: &str, value: String| (name.into(), value.into());
        let path = |name: &str, value: &Path| (name.into(), value.into());
        vec![
            ("PATH".into(), std::env::var_os("PATH").unwrap()),
            path("HOME", &self.at("home")),
            path("OUT", &self.at("outside")),
            path("WORK", &self.at("work")),
            path("FRESH", &self.at("fresh")),
            path("CLIENT", &self.at("push")),
            path("TEST", &self.at("test")),
            text("MARK", self.mark.clone()),
            text("ABSTRACT", self.mark.clone()),
            text("VICTIM", self.victim.pid().to_string()),
            text("PORT", self.listeners.port().to_string()),
            text("UDP_PORT", self.listeners.udp_port().to_string()),
            text("SSH_AUTH_SOCK", "/nowhere".to_owned()),
            text("PUSH_HOME", self.at("home/.push").display().to_string()),
            text("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere".to_owned()),
        ]
    }
}

const SECRET_FREE: &str = "precious\n";

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
fn furnish(home: &Path) {
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
"$TEST" --exact a_call_from_inside --nocapture; }"#;

/// Removes what earlier attempts left in a workspace, except the protected directories and the sockets.
fn tidy(workspace: &Path) {
    for entry in fs::read_dir(workspace).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if [".git", ".push", "dev.sock", "log.sock"].contains(&name) {
            continue;
        }
        let _removed = if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
    }
}

pub(crate) fn own_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Makes a program available to attempts: as a hard link, or as a copy where that is not possible.
fn bring(program: &Path, to: &Path) {
    if fs::hard_link(program, to).is_err() {
        fs::copy(program, to).unwrap();
    }
}

fn leak(path: &Path) -> File {
    let file = File::open(path).unwrap();
    let inherited = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty());
    nix::fcntl::fcntl(&file, inherited).unwrap();
    assert!(file.as_raw_fd() > 2);
    file
}
