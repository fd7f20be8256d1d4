//! The `git` program, without the doors through which a repository could run something or somebody could be asked.
//!
//! The program is found where nobody can have planted it, and is told which repository it works with; it looks for none
//! itself. Hooks, file system monitors, external differences, text conversions, pagers, editors, signing, credential helpers
//! and the fetching of what is missing are off, variables of the environment that steer git are taken out, and paths are
//! taken by the letter. Filters that the user's own configuration names still run, as files could not be committed right
//! without them. Those of a repository inside the workspace would be its author's: no call that may change something looks
//! into one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use super::bench::Bench;
use super::exec;
use super::fault::{Fault, FaultKind};
use super::git_access::GitAccess;
use super::resolve;
use crate::sandbox::confine::Leave;
use crate::sandbox::ground::{Reach, stays_beneath};
use crate::sandbox::program::SearchPath;
use crate::sandbox::repository::Repository;
use crate::sandbox::{Chunk, Outputs, Step, Stream};

/// What every call is given before its own words.
const HARDENED: &[&str] = &[
    "--no-pager",
    "--literal-pathspecs",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.pager=cat",
    "-c",
    "core.editor=false",
    "-c",
    "core.quotePath=false",
    "-c",
    "core.askPass=",
    "-c",
    "credential.helper=",
    "-c",
    "core.sshCommand=false",
    "-c",
    "protocol.allow=never",
    "-c",
    "commit.gpgSign=false",
    "-c",
    "submodule.recurse=false",
    "-c",
    "safe.bareRepository=explicit",
    "-c",
    "gc.auto=0",
    "-c",
    "maintenance.auto=false",
];

/// How much of its complaints is kept.
const COMPLAINT_MAX: usize = 4096;
/// How many chunks of output wait before git does.
const CHUNKS: usize = 16;

/// What git printed.
#[derive(Debug)]
pub(super) struct Printed {
    pub(super) bytes: Vec<u8>,
    /// Whether there was more than may be kept.
    pub(super) truncated: bool,
}

/// One use of git after another: each after the first is made only when those before it succeeded.
pub(super) struct Script(Vec<Part>);

/// A part of a script.
enum Part {
    /// Words of the shell.
    Shell(&'static str),
    /// A call of git.
    Git(Vec<String>),
}

impl Script {
    /// Begins with a call of git.
    pub(super) fn git(args: &[&str]) -> Self {
        Self(Vec::new()).then(args)
    }

    /// Goes on with another call.
    pub(super) fn then(self, args: &[&str]) -> Self {
        let joint = if self.0.is_empty() { "" } else { " && " };
        self.shell(joint).call(args)
    }

    /// Has the last call read by another.
    pub(super) fn read_by(self, args: &[&str]) -> Self {
        self.shell(" | ").call(args)
    }

    /// Has nobody hear what the last call prints.
    pub(super) fn unheard(self) -> Self {
        self.shell(" >/dev/null")
    }

    /// Goes on only when a difference that is asked for quietly is one.
    pub(super) fn if_different(self, args: &[&str]) -> Self {
        // Whatever else is wrong, the next call says itself.
        self.shell(" && { ").call(args).shell(" && { echo 'nothing to commit' >&2; exit 1; } || :; }")
    }

    /// Has what the last call prints taken for a complaint.
    pub(super) fn quietly(self) -> Self {
        self.shell(" >&2")
    }

    fn shell(mut self, words: &'static str) -> Self {
        self.0.push(Part::Shell(words));
        self
    }

    fn call(mut self, args: &[&str]) -> Self {
        self.0.push(Part::Git(args.iter().map(|word| (*word).to_owned()).collect()));
        self
    }

    /// Returns it as a command of the shell.
    fn command(&self, program: &Program, repository: &Repository) -> String {
        let git = program.with(repository);
        // Where something belongs to another user, git itself says whether it may be used.
        let mut command = match repository.foreign {
            true => format!("{} rev-parse --git-dir >/dev/null && ", program.alone()),
            false => String::new(),
        };
        for part in &self.0 {
            match part {
                Part::Shell(words) => command.push_str(words),
                Part::Git(args) => {
                    let words = args.iter().map(|word| quoted(word));
                    command.push_str(&[git.clone()].into_iter().chain(words).collect::<Vec<_>>().join(" "));
                }
            }
        }
        command
    }

    /// Runs it in the workspace, where it changes nothing of the repository.
    pub(super) async fn run(self, bench: &Bench) -> Result<Printed, Fault> {
        let (program, repository) = found(bench).await?;
        self.run_with(bench, (&program, &repository), None).await
    }

    /// Runs it in the workspace with leave to change the repository, wherever that is; a failure leaves the index as it was.
    pub(super) async fn run_and_change(self, bench: &Bench) -> Result<Printed, Fault> {
        let (program, repository) = found(bench).await?;
        let access = GitAccess::to_commit(&repository, bench).await?;
        self.run_with(bench, (&program, &repository), Some(access)).await
    }

    async fn run_with(
        self,
        bench: &Bench,
        (program, repository): (&Program, &Repository),
        access: Option<GitAccess>,
    ) -> Result<Printed, Fault> {
        let step = Step {
            command: self.command(program, repository),
            cwd: bench.ground.path().to_owned(),
            env: environment(&bench.env, &program.path),
            time_limit: bench.limits.git.min(bench.limits.step),
            leave: Leave::default(),
            outputs: Outputs::Apart,
        };
        let time_limit = step.time_limit;
        let (chunks, mut output) = mpsc::channel::<Chunk>(CHUNKS);
        let most = bench.limits.git_bytes;
        let gather = async {
            let (mut printed, mut complaint) = (Printed { bytes: Vec::new(), truncated: false }, Vec::new());
            while let Some(chunk) = output.recv().await {
                let (kept, most) = match chunk.stream {
                    Stream::Stdout => (&mut printed.bytes, most),
                    Stream::Stderr => (&mut complaint, COMPLAINT_MAX),
                };
                let fitting = chunk.bytes.len().min(most.saturating_sub(kept.len()));
                kept.extend_from_slice(&chunk.bytes[..fitting]);
                printed.truncated |= fitting < chunk.bytes.len() && chunk.stream == Stream::Stdout;
            }
            (printed, complaint)
        };
        let run = async {
            match access {
                Some(access) => access.run(step, bench, chunks).await,
                None => Ok(bench.tree.run(step, chunks).await),
            }
        };
        let (end, (printed, complaint)) = tokio::join!(run, gather);
        let outcome = exec::ended(end?, time_limit);
        match (outcome.fault, outcome.exit_code) {
            (None, _) => Ok(printed),
            (Some(_), Some(code)) => Err(refused(code, &String::from_utf8_lossy(&complaint))),
            (Some(fault), None) => Err(fault),
        }
    }
}

/// The program, and the directories in which it finds others.
struct Program {
    git: PathBuf,
    path: OsString,
}

impl Program {
    /// Returns the beginning of a call that works with a repository.
    fn with(&self, repository: &Repository) -> String {
        let named = |option: &str, path: &Path| quoted(&format!("{option}={}", path.display()));
        let git_dir = named("--git-dir", &repository.git_dir);
        format!("{} {git_dir} {}", self.alone(), named("--work-tree", &repository.work_tree))
    }

    /// Returns the beginning of a call for which git looks for the repository itself.
    fn alone(&self) -> String {
        let git = self.git.display().to_string();
        [&*git].into_iter().chain(HARDENED.iter().copied()).map(quoted).collect::<Vec<_>>().join(" ")
    }
}

/// Finds the program and the repository of the workspace.
async fn found(bench: &Bench) -> Result<(Program, Repository), Fault> {
    let path = bench.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
    let writable = bench.writable.clone();
    bench
        .away(move |site| {
            let workspace = site.ground.path();
            let repository = Repository::find(workspace, &writable)?;
            let writable: Vec<PathBuf> = writable.into_iter().chain([workspace.to_owned()]).collect();
            let path = SearchPath::trusted(path.as_deref(), &writable);
            let git = path.find("git").ok_or_else(missing)?;
            let said = [&git, &repository.git_dir, &repository.work_tree];
            if said.into_iter().any(|path| path.to_str().is_none()) {
                let message = "the path of the repository is not UTF-8, which git is not run with";
                return Err(Fault::new(FaultKind::GitFailed, message));
            }
            Ok((Program { git, path: path.value() }, repository))
        })
        .await
}

fn missing() -> Fault {
    let message = "there is no git program on the PATH that only root or you could have put there: \
        directories of the workspace, relative ones and those that others can write to are not looked at";
    Fault::new(FaultKind::ExecFailed, message)
}

/// Makes sense of what git complained about, in its own words.
fn refused(code: i32, complaint: &str) -> Fault {
    let says = |text: &str| complaint.contains(text);
    let (kind, message) = match code {
        127 => return missing(),
        _ if says("not a git repository") => {
            (FaultKind::NotARepository, "the workspace is in no git repository".to_owned())
        }
        _ if says("nothing to commit") || says("nothing added to commit") || says("no changes added") => {
            (FaultKind::NothingToCommit, "there is nothing to commit".to_owned())
        }
        _ if says("did not match any file") => {
            (FaultKind::NotFound, "git knows no file of this name".to_owned())
        }
        _ => (FaultKind::GitFailed, format!("git left with exit code {code}")),
    };
    let complaint = complaint.trim();
    let message = match reason(complaint) {
        Some(reason) if kind != FaultKind::NothingToCommit => format!("{message}: {reason}"),
        Some(_) | None => message,
    };
    // Who has read the only line needs no particulars.
    let detail = if complaint.lines().nth(1).is_some() { complaint } else { "" };
    Fault::new(kind, message).with_detail(detail.to_owned())
}

/// The line that says why: the one that git ends with, or else the first.
fn reason(complaint: &str) -> Option<&str> {
    let mut lines = complaint.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.clone().next();
    lines.rfind(|line| line.starts_with("fatal:") || line.starts_with("error:")).or(first)
}

/// The user's environment without what steers git, the shell that starts it, or the linker; who commits stays.
fn environment(env: &[(OsString, OsString)], path: &OsString) -> Vec<(OsString, OsString)> {
    let steers = |name: &OsString| {
        let name = name.to_string_lossy();
        !IDENTITY.contains(&&*name)
            && (STEERING.iter().any(|prefix| name.starts_with(prefix)) || STEERING_NAMES.contains(&&*name))
    };
    let ours = [
        ("LC_ALL", "C"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_EDITOR", "false"),
        ("GIT_PAGER", "cat"),
        // A repository may say that what it lacks is fetched, and by which program.
        ("GIT_NO_LAZY_FETCH", "1"),
        ("GIT_ALLOW_PROTOCOL", "none"),
    ];
    let kept = env.iter().filter(|(name, _)| !steers(name)).cloned();
    let ours = ours.map(|(name, value)| (name.into(), value.into()));
    kept.chain(ours).chain([("PATH".into(), path.clone())]).collect()
}

/// Who commits, and when.
const IDENTITY: [&str; 6] = [
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_DATE",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_DATE",
];
const STEERING: [&str; 5] = ["GIT_", "LC_", "LD_", "DYLD_", "BASH_"];
const STEERING_NAMES: [&str; 7] = ["PATH", "LANGUAGE", "SSH_ASKPASS", "ENV", "IFS", "CDPATH", "SHELLOPTS"];

/// A word as the shell takes it by the letter.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Paths as git is to take them: none leaves the workspace by its words, and git follows no links; none leads to what is closed
/// to tools, which without confinement git would read.
pub(super) async fn inside(paths: &[String], bench: &Bench) -> Result<Vec<String>, Fault> {
    resolve::may_reach(paths.to_vec(), bench).await?;
    let inside = |path: &String| {
        let relative = Path::new(path).strip_prefix(bench.ground.path()).unwrap_or(Path::new(path));
        match bench.ground.reach() {
            Reach::Workspace if !stays_beneath(relative) => {
                let message = format!("{path} leads outside of the workspace");
                Err(Fault::new(FaultKind::OutsideWorkspace, message))
            }
            Reach::Workspace | Reach::Anywhere => {
                let relative = relative.to_string_lossy().into_owned();
                Ok(if relative.is_empty() { ".".to_owned() } else { relative })
            }
        }
    };
    paths.iter().map(inside).collect()
}

/// How many lines a commit or difference adds and takes away in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) path: String,
    pub(super) insertions: u64,
    pub(super) deletions: u64,
}

/// Reads what `--numstat -z --no-renames` prints; binary files count no lines.
pub(super) fn numstat(text: &str) -> Vec<Counted> {
    let counted = |record: &str| {
        let mut fields = record.splitn(3, '\t');
        let (insertions, deletions) = (fields.next()?, fields.next()?);
        let path = fields.next().filter(|path| !path.is_empty())?.to_owned();
        let number = |field: &str| field.trim().parse().unwrap_or(0);
        Some(Counted { path, insertions: number(insertions), deletions: number(deletions) })
    };
    text.split('\0').filter_map(counted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_git_by_the_letter() {
        let script = Script::git(&["add", "--", "it's $HOME"]).quietly().then(&["status"]);
        let command = script.command(&program(), &repository(false));
        assert!(command.contains(r"'add' '--' 'it'\''s $HOME' >&2 && '/usr/bin/git'"), "{command}");
        assert!(command.contains("'core.hooksPath=/dev/null'"), "{command}");
    }

    #[test]
    fn git_is_told_which_repository_it_works_with() {
        let command = Script::git(&["status"]).command(&program(), &repository(false));
        assert!(command.starts_with("'/usr/bin/git' '--no-pager'"), "{command}");
        assert!(command.ends_with("'--git-dir=/w/.git' '--work-tree=/w' 'status'"), "{command}");
        // One that belongs to another user is looked at by git itself first, which refuses it unless that is allowed.
        let command = Script::git(&["status"]).command(&program(), &repository(true));
        let (first, _) = command.split_once(" && ").unwrap();
        assert!(
            first.ends_with("rev-parse --git-dir >/dev/null") && !first.contains("--git-dir="),
            "{command}"
        );
    }

    #[test]
    fn what_steers_git_is_taken_out_of_the_environment() {
        let env = [
            ("GIT_DIR", "/x"),
            ("GIT_EXEC_PATH", "/x"),
            ("HOME", "/h"),
            ("LC_ALL", "de_DE"),
            ("GIT_SSH_COMMAND", "evil"),
            ("LD_LIBRARY_PATH", "lib"),
            ("BASH_FUNC_git%%", "() { evil; }"),
            ("GIT_AUTHOR_NAME", "Ann"),
            ("GIT_COMMITTER_EMAIL", "ann@example.org"),
            ("PATH", "/w/.venv/bin:/usr/bin"),
        ];
        let env = environment(&env.map(|(name, value)| (name.into(), value.into())), &"/usr/bin".into());
        let count = |name: &str| env.iter().filter(|(known, _)| known == name).count();
        for (name, expected) in [
            ("GIT_DIR", 0),
            ("GIT_EXEC_PATH", 0),
            ("GIT_SSH_COMMAND", 0),
            ("LD_LIBRARY_PATH", 0),
            ("BASH_FUNC_git%%", 0),
            ("GIT_AUTHOR_NAME", 1),
            ("GIT_COMMITTER_EMAIL", 1),
            ("HOME", 1),
            ("LC_ALL", 1),
            ("PATH", 1),
        ] {
            assert_eq!(count(name), expected, "{name}");
        }
        assert!(env.contains(&("GIT_TERMINAL_PROMPT".into(), "0".into())));
        assert!(env.contains(&("PATH".into(), "/usr/bin".into())));
    }

    fn program() -> Program {
        Program { git: "/usr/bin/git".into(), path: "/usr/bin".into() }
    }

    fn repository(foreign: bool) -> Repository {
        let git = PathBuf::from("/w/.git");
        Repository { work_tree: "/w".into(), git_dir: git.clone(), common_dir: git, foreign }
    }

    #[test]
    fn counted_lines_are_read() {
        let counted = numstat("3\t1\ta b\0-\t-\tlogo.png\0");
        assert_eq!(counted.len(), 2);
        assert_eq!(counted[0], Counted { path: "a b".into(), insertions: 3, deletions: 1 });
        assert_eq!((counted[1].insertions, counted[1].deletions), (0, 0));
        assert_eq!(numstat(""), []);
    }

    #[test]
    fn a_complaint_becomes_its_kind() {
        let kind = |code, text: &str| refused(code, text).kind;
        assert_eq!(kind(128, "fatal: not a git repository (or any parent)"), FaultKind::NotARepository);
        assert_eq!(kind(1, "nothing to commit, working tree clean"), FaultKind::NothingToCommit);
        assert_eq!(kind(127, "sh: git: not found"), FaultKind::ExecFailed);
        assert_eq!(kind(128, "fatal: pathspec 'x' did not match any files"), FaultKind::NotFound);
        let other = refused(128, "fatal: bad\n");
        assert_eq!(
            (other.kind, &*other.message),
            (FaultKind::GitFailed, "git left with exit code 128: fatal: bad")
        );
        assert_eq!(other.detail, None);
        let long = refused(
            128,
            "Author identity unknown\n\n*** Please tell me who you are.\n\nfatal: empty ident\n",
        );
        assert_eq!(long.message, "git left with exit code 128: fatal: empty ident");
        assert!(long.detail.unwrap().contains("tell me who you are"));
        assert_eq!(refused(1, "hint: x\n").message, "git left with exit code 1: hint: x");
        assert_eq!(refused(1, "").message, "git left with exit code 1");
    }
}
