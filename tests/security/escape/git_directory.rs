//! Attempts of a command that may write the git directory at files that git executes or trusts.
//!
//! Each attempt is a script of the workspace that runs by an alias of the user, because nothing else lets a script
//! run while the git directory is writable. The test compares the git directory from outside. Then the user works
//! with git as usual: nothing that the command planted may run, and nothing may be written elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pushd::sandbox::confinement::{Confinement, Mechanism};
use pushd::sandbox::workspace::{ReachPolicy, WorkspaceDir};
use pushd::sandbox::{Chunk, ExecutionPolicy, SandboxProvider};
use pushd::tools::{
    ExecutionResult, Limits, Network, PinnedAddresses, Request, ToolContext, ToolErrorKind, ToolSet, run,
};
use serde_json::json;
use tokio::sync::mpsc;

use super::fixture::Fixture;
use crate::support::ordinary_user::also_as_an_ordinary_user;

/// How an attempt ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptEnd {
    /// The system refused it, or it had no effect.
    NoEffect,
    /// It succeeded at first; then the tool call failed, and the change was reverted.
    Reverted,
    /// Either, depending on the moment at which the command was ended.
    Either,
}
use AttemptEnd::{Either, NoEffect, Reverted};

/// Name, how it ends where there are mounts, and the command; `$TRAP` is a program that leaves a mark.
pub(super) const ATTEMPTS: &[(&str, AttemptEnd, &str)] = &[
    ("a hook", NoEffect, "cp $TRAP .git/hooks/post-commit; git add new"),
    (
        "a hook by another name of the directory",
        NoEffect,
        "mv .git/hooks .git/old; mkdir .git/hooks; cp $TRAP .git/hooks/post-commit; git add new",
    ),
    ("hooks removed", NoEffect, "rm -rf .git/hooks; ln -s $PWD/hooks .git/hooks; git add new"),
    ("the configuration", NoEffect, "printf '[core]\\n\\tfsmonitor = %s\\n' $TRAP >> .git/config; git add new"),
    (
        "the configuration replaced",
        NoEffect,
        "printf '[core]\\n\\tfsmonitor = %s\\n' $TRAP > c; mv c .git/config; rm -f .git/config; git add new",
    ),
    (
        "the configuration by git in a script",
        NoEffect,
        "printf 'git config core.fsmonitor %s\\ngit config core.hooksPath %s\\n' $TRAP $PWD/hooks > s; sh ./s; git add new",
    ),
    (
        "a configuration of the working tree",
        Reverted,
        "printf '[core]\\n\\tfsmonitor = %s\\n' $TRAP > .git/config.worktree; git add new",
    ),
    ("attributes with a filter", NoEffect, "echo '* filter=x' > .git/info/attributes; git add new"),
    ("objects of another repository", Reverted, "echo $OUT > .git/objects/info/alternates; git add new"),
    (
        "objects of another repository, by another directory",
        Reverted,
        "cp -r .git/objects o; mv .git/objects .git/was && mv o .git/objects; mkdir -p .git/objects/info; echo $OUT > .git/objects/info/alternates; git add new",
    ),
    ("another common directory", Reverted, "git add new; cp -r .git evil; echo ../evil > .git/commondir"),
    ("another working tree", Reverted, "git add new; echo $PWD/.git > .git/gitdir"),
    (
        "the working tree of somebody else",
        NoEffect,
        "git add new; echo $PWD/x > .git/worktrees/side/gitdir; echo /tmp > .git/worktrees/side/commondir; rm -rf .git/worktrees/side",
    ),
    (
        "the working trees by another directory",
        NoEffect,
        "git add new; cp -r .git/worktrees w; mv .git/worktrees .git/was && mv w .git/worktrees; echo $PWD/x > .git/worktrees/side/gitdir",
    ),
    (
        "a configuration of the working tree of somebody else",
        NoEffect,
        "git add new; printf '[core]\\n\\tfsmonitor = %s\\n' $TRAP > .git/worktrees/side/config.worktree",
    ),
    (
        "steps of a rebase",
        Reverted,
        "git add new; mkdir .git/rebase-merge; echo \"exec $TRAP\" > .git/rebase-merge/git-rebase-todo; echo 1 > .git/rebase-merge/interactive",
    ),
    ("patches to be applied", Reverted, "git add new; mkdir .git/rebase-apply; echo x > .git/rebase-apply/0001"),
    ("steps of a sequence", Reverted, "git add new; mkdir .git/sequencer; echo \"exec $TRAP\" > .git/sequencer/todo"),
    (
        "commits that stand for others",
        Reverted,
        "git add new; mkdir .git/refs/replace; git rev-parse HEAD > .git/refs/replace/$(git rev-parse HEAD)",
    ),
    (
        "a submodule with a configuration",
        Reverted,
        "git add new; mkdir -p .git/modules/m/hooks; cp $TRAP .git/modules/m/hooks/post-checkout; printf '[core]\\n\\tfsmonitor = %s\\n' $TRAP > .git/modules/m/config",
    ),
    (
        "a repository inside, in the index",
        Reverted,
        "git init -q inner; git -C inner commit -q --allow-empty -m x; printf '[core]\\n\\tfsmonitor = %s\\n' $TRAP >> inner/.git/config; git add new inner",
    ),
    (
        "a repository inside, in the index by its parts",
        Reverted,
        "git init -q inner; git -C inner commit -q --allow-empty -m x; printf '[core]\\n\\tfsmonitor = %s\\n' $TRAP >> inner/.git/config; git update-index --add --cacheinfo 160000,$(git -C inner rev-parse HEAD),inner",
    ),
    (
        "a repository inside, committed",
        Reverted,
        "git init -q inner; git -C inner commit -q --allow-empty -m x; printf '[core]\\n\\tfsmonitor = %s\\n' $TRAP >> inner/.git/config; git add inner; git commit -q -m inner",
    ),
    (
        "a repository inside, in a split index",
        Reverted,
        "git init -q inner; git -C inner commit -q --allow-empty -m x; printf '[core]\\n\\tfsmonitor = %s\\n' $TRAP >> inner/.git/config; git update-index --split-index; git add new inner; git update-index --split-index",
    ),
    ("an index that is none", Reverted, "git add new; echo rubbish > .git/index"),
    ("an index elsewhere", Reverted, "git add new; mv .git/index i; ln -s ../i .git/index"),
    (
        "hooks of a template",
        NoEffect,
        "mkdir -p t/hooks t/info; cp $TRAP t/hooks/post-commit; echo 'git init --template=t .' > s; sh ./s; git add new",
    ),
    (
        "a message that is written elsewhere",
        Reverted,
        "git add new; rm -f .git/COMMIT_EDITMSG; ln -s $HOME/.bashrc .git/COMMIT_EDITMSG",
    ),
    (
        "a history that is written elsewhere",
        Reverted,
        "git add new; rm -f .git/logs/HEAD; ln -s $HOME/.bashrc .git/logs/HEAD",
    ),
    (
        "branches that are written elsewhere",
        Reverted,
        "git add new; mv .git/refs/heads h; ln -s $OUT .git/refs/heads; cp h/* $OUT",
    ),
    ("a link deep in the git directory", Reverted, "git add new; mkdir -p .git/a/b/c; ln -s $HOME .git/a/b/c/d"),
    ("a pipe that is waited for", Reverted, "git add new; rm -f .git/COMMIT_EDITMSG; mkfifo .git/COMMIT_EDITMSG"),
    ("directories without end", Reverted, "git add new; d=.git/x; for i in $(seq 100); do d=$d/x; done; mkdir -p $d"),
    (
        "a directory that cannot be looked into",
        Reverted,
        "git add new; mkdir .git/sequencer; echo x > .git/sequencer/todo; chmod 0 .git/sequencer",
    ),
    (
        "a process that goes on",
        Either,
        "git add new; setsid sh -c 'while :; do mkdir -p .git/sequencer; echo x > .git/sequencer/todo; rm -rf .git/sequencer; done' & ",
    ),
    (
        "a process that waits for the comparison",
        NoEffect,
        "git add new; (while [ ! -e never ]; do :; done; mkdir .git/sequencer) & (sleep 3; echo x > .git/commondir) & setsid sh -c 'trap \"\" TERM HUP; sleep 1; cp $TRAP .git/hooks/post-commit; echo x > .git/gitdir' & ",
    ),
    (
        "another name by a hard link",
        NoEffect,
        "git add new; ln .git/config c; ln .git/hooks/pre-push.sample h; printf '[core]\\n\\tfsmonitor = %s\\n' $TRAP >> c",
    ),
    ("the directory itself", Reverted, "git add new; mv .git .was; cp -r .was .git; echo x > .git/commondir"),
    ("a mount over it", NoEffect, "git add new; mount -t tmpfs x .git/hooks; unshare -rm mount -t tmpfs x .git/hooks"),
];

/// The attempts that succeed, or may succeed, with Landlock alone, and why; `docs/escape-attempts.md` lists them.
pub(super) const UNDEFENDED_WITHOUT_MOUNTS: &[(&str, &str)] = &[
    ("a process that goes on", "what a command leaves in the background outlives the comparison"),
    ("a process that waits for the comparison", "what a command leaves in the background outlives the comparison"),
    ("another name by a hard link", "the configuration is put back, and can be written by its other name later"),
    ("the directory itself", "a git directory that was exchanged as a whole is not the one that is compared"),
];

#[test]
fn a_command_with_a_writable_git_directory_changes_nothing_that_git_executes_or_trusts() {
    also_as_an_ordinary_user(a_command_with_a_writable_git_directory_changes_nothing_that_git_executes_or_trusts);
    let fixture = Fixture::new();
    let mut otherwise: Vec<String> = Vec::new();
    for mechanism in
        [Mechanism::Namespaces, Mechanism::Bubblewrap].into_iter().filter(|mechanism| fixture.works(*mechanism))
    {
        for (number, (name, ends, command)) in ATTEMPTS.iter().enumerate() {
            let repository = Repository::new(&fixture, mechanism, &format!("{}-{number}", mechanism.as_str()));
            let outcome = repository.attempt(command, &format!("{name} with {}", mechanism.as_str()));
            let undone = outcome.error.as_ref().is_some_and(|fault| fault.kind == ToolErrorKind::ProtectedPath);
            if *ends != Either && undone != (*ends == Reverted) {
                otherwise.push(format!("{name} with {}: {outcome:?}", mechanism.as_str()));
            }
        }
    }
    assert_eq!(otherwise, [""; 0]);
}

/// Without mounts no file is read-only: the supervisor compares everything and restores what changed, except for
/// `UNDEFENDED_WITHOUT_MOUNTS`.
#[test]
fn files_that_git_executes_or_trusts_are_restored_with_landlock_alone() {
    also_as_an_ordinary_user(files_that_git_executes_or_trusts_are_restored_with_landlock_alone);
    let fixture = Fixture::new();
    if !fixture.works(Mechanism::Rules) {
        return;
    }
    for (number, (name, _, command)) in ATTEMPTS.iter().enumerate() {
        if UNDEFENDED_WITHOUT_MOUNTS.iter().any(|(known, _)| known == name) {
            continue;
        }
        Repository::new(&fixture, Mechanism::Rules, &format!("rules-{number}")).attempt(command, name);
    }
}

#[test]
fn a_cancelled_command_leaves_nothing_that_git_executes_or_trusts() {
    let fixture = Fixture::new();
    for mechanism in [Mechanism::Namespaces, Mechanism::Bubblewrap, Mechanism::Rules]
        .into_iter()
        .filter(|mechanism| fixture.works(*mechanism))
    {
        for stopped in [false, true] {
            let repository = Repository::new(&fixture, mechanism, &format!("c-{}-{stopped}", mechanism.as_str()));
            let before = repository.snapshot();
            fixture.block_on(async {
                let (out, mut received) = mpsc::channel::<Chunk>(4);
                let script = "git add new; echo ../evil > .git/commondir; echo up; sleep 1000";
                let request = repository.request(script);
                let going = run(request, &repository.context, out);
                tokio::pin!(going);
                tokio::select! {
                    _ = &mut going => panic!("it ended by itself"),
                    chunk = received.recv() => assert!(chunk.is_some()),
                }
                assert!(repository.path(".git/commondir").exists());
                if stopped {
                    repository.context.sandbox.kill_now();
                }
            });
            let begun = Instant::now();
            while repository.path(".git/commondir").exists() {
                assert!(begun.elapsed() < Duration::from_secs(60), "it stays");
                fixture.block_on(async { tokio::time::sleep(Duration::from_millis(5)).await });
            }
            repository.compare(&before, "cancelled");
        }
    }
}

#[test]
fn a_file_planted_by_one_command_is_not_restored_by_another() {
    let fixture = Fixture::new();
    for mechanism in Mechanism::ALL.into_iter().filter(|mechanism| fixture.works(*mechanism)) {
        let repository = Repository::new(&fixture, mechanism, &format!("two-{}", mechanism.as_str()));
        let before = repository.snapshot();
        let planting = "mkdir ev; ln -s ../ev .git/rebase-merge; echo up; sleep 1; rm .git/rebase-merge";
        fixture.block_on(async {
            let (out, mut received) = mpsc::channel::<Chunk>(4);
            let first = run(repository.request(planting), &repository.context, out);
            let second = async {
                assert!(received.recv().await.is_some());
                let request = ToolSet::builtin().parse("sandbox_exec", r#"{"command": "git add new"}"#).unwrap();
                run(request, &repository.context, mpsc::channel::<Chunk>(4).0).await
            };
            let (_, second) = tokio::join!(first, second);
            assert!(second.error.is_none(), "{second:?}");
        });
        repository.compare(&before, "two at a time");
    }
}

/// A repository with a linked working tree, two branches and a user who works with it.
struct Repository<'a> {
    fixture: &'a Fixture,
    name: String,
    context: ToolContext,
}

impl<'a> Repository<'a> {
    fn new(fixture: &'a Fixture, mechanism: Mechanism, name: &str) -> Self {
        let work = fixture.path(name);
        fs::create_dir_all(work.join("hooks")).unwrap();
        let home = fixture.path("home");
        let config = "[user]\n\tname = Ann\n\temail = ann@example.org\n[init]\n\tdefaultBranch = main\n[advice]\n\taddEmbeddedRepo = false\n[alias]\n\tattempt = !sh ./attempt.sh\n";
        fs::write(home.join(".gitconfig"), config).unwrap();
        let mut confinement = Confinement::new(work.clone());
        confinement.hidden = vec![fixture.path("home/.push"), fixture.path("scratch")];
        let env = vec![
            ("PATH".into(), std::env::var_os("PATH").unwrap()),
            ("HOME".into(), home.into()),
            ("OUT".into(), fixture.path("outside").into()),
            ("TRAP".into(), work.join("trap").into()),
        ];
        let bench = ToolContext {
            workspace: WorkspaceDir::open(&work, ReachPolicy::Workspace).unwrap(),
            sandbox: fixture.local().with_mechanism(mechanism).open(ExecutionPolicy::Model(Box::new(confinement))),
            env,
            writable: Vec::new(),
            network: Network::Off,
            addresses: Arc::new(PinnedAddresses::with_system_resolver()),
            limits: Limits::default(),
            redact: Arc::new(str::to_owned),
            safe_cut: Arc::new(|text, at| at.min(text.len())),
            approved_digest: None,
        };
        let repository = Self { fixture, name: name.to_owned(), context: bench };
        let trap = format!("#!/bin/sh\necho $0 >> {}\n", fixture.path("outside/sprung").display());
        fs::write(repository.path("trap"), trap).unwrap();
        fs::set_permissions(repository.path("trap"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(repository.path("trap"), repository.path("hooks/post-commit")).unwrap();
        repository.git(&["init", "-q"]);
        fs::write(repository.path("tracked"), "first\n").unwrap();
        // Other files that attempts leave behind are not checked.
        fs::write(repository.path(".git/info/exclude"), "/trap\n/hooks\n/attempt.sh\n").unwrap();
        repository.git(&["add", "tracked"]);
        repository.git(&["commit", "-q", "-m", "first"]);
        repository.git(&["worktree", "add", "-q", &format!("../{name}-trees/side"), "-b", "side"]);
        fs::write(repository.path("new"), "new\n").unwrap();
        repository
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fixture.path(&self.name).join(name)
    }

    /// Runs git as the user does; returns whether it succeeded, and its output.
    fn try_git(&self, args: &[&str]) -> (bool, String) {
        let output = Command::new("git")
            .args(args)
            .current_dir(self.fixture.path(&self.name))
            .env_clear()
            .envs(self.context.env.iter().cloned())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }

    fn git(&self, args: &[&str]) {
        let (succeeded, text) = self.try_git(args);
        assert!(succeeded, "git {args:?}: {text}");
    }

    /// A tool call that runs a script.
    fn request(&self, script: &str) -> Request {
        fs::write(self.path("attempt.sh"), script).unwrap();
        ToolSet::builtin().parse("sandbox_exec", &json!({ "command": "git attempt" }).to_string()).unwrap()
    }

    fn exec(&self, script: &str) -> ExecutionResult {
        let request = self.request(script);
        self.fixture.block_on(async {
            let (out, mut received) = mpsc::channel::<Chunk>(4);
            let listen = async { while received.recv().await.is_some() {} };
            tokio::join!(run(request, &self.context, out), listen).0
        })
    }

    /// Runs an attempt, and has the user work afterwards.
    fn attempt(&self, command: &str, name: &str) -> ExecutionResult {
        let before = self.snapshot();
        let outcome = self.exec(command);
        self.compare(&before, name);
        for args in [
            &["status"][..],
            &["add", "tracked"],
            &["commit", "-q", "--allow-empty", "-m", "by its user"],
            &["checkout", "-q", "-b", "another"],
            &["diff"],
        ] {
            // Some attempts break the repository, which the user notices; only planted programs that run count.
            let _may_fail = self.try_git(args);
        }
        let sprung = fs::read_to_string(self.fixture.path("outside/sprung")).unwrap_or_default();
        assert_eq!(sprung, "", "{name}: this ran");
        let bashrc = fs::read_to_string(self.fixture.path("home/.bashrc")).unwrap();
        assert_eq!(bashrc, "", "{name}: this was written");
        outcome
    }

    /// The files that git executes or trusts, and every link and special file.
    fn snapshot(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        collect_files(&self.path(".git"), Path::new(""), &mut found);
        found
    }

    fn compare(&self, before: &BTreeMap<PathBuf, Vec<u8>>, name: &str) {
        let after = self.snapshot();
        for path in before.keys().chain(after.keys()) {
            let text = |found: Option<&Vec<u8>>| found.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            assert_eq!(text(after.get(path)), text(before.get(path)), "{name}: {}", path.display());
        }
    }
}

const TRUSTED_FILES: [&str; 12] = [
    "hooks",
    "config",
    "config.worktree",
    "info",
    "modules",
    "commondir",
    "gitdir",
    "branches",
    "remotes",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
];

fn collect_files(dir: &Path, inner: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (inner.join(entry.file_name()), entry.file_type().unwrap());
        let name = entry.file_name().into_string().unwrap();
        let is_aside = path.iter().any(|part| part.to_str().unwrap().contains(".rejected-"));
        let first = path.iter().next().unwrap().to_str().unwrap();
        let is_believed = TRUSTED_FILES.contains(&first)
            || TRUSTED_FILES.contains(&&*name) && path.starts_with("worktrees")
            || path.ends_with("objects/info/alternates")
            || path.starts_with("refs/replace");
        if kind.is_symlink() {
            found.insert(path, fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes());
        } else if kind.is_fifo() {
            found.insert(path, b"pipe".to_vec());
        } else if kind.is_dir() {
            // A git directory as small as this has nothing deeper.
            if path.iter().count() < 20 && !is_aside {
                collect_files(&entry.path(), &path, found);
            }
        } else if is_believed && !is_aside {
            found.insert(path, fs::read(entry.path()).unwrap());
        }
    }
}
