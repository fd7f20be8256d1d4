//! Runs the `git` program with everything disabled that would run code of a repository or prompt the user.
//!
//! The program is found on a trusted path, and the repository is passed to it explicitly; git does not search for
//! one. Hooks, file system monitors, external diffs, text conversions, pagers, editors, signing, credential helpers
//! and lazy fetching are disabled, environment variables that control git are removed, and pathspecs are literal.
//! Filters of the user's own configuration still run, since files could not be committed correctly without them.
//! Filters of a nested repository would be those of its author: no call that may change something enters one.

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

/// The options before the arguments of every call.
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

/// How many bytes of standard error are kept.
const COMPLAINT_MAX: usize = 4096;
/// The capacity of the output channel, in chunks.
const CHUNKS: usize = 16;

/// The output of git.
#[derive(Debug)]
pub(super) struct Printed {
    pub(super) bytes: Vec<u8>,
    /// Whether the output exceeded the limit.
    pub(super) truncated: bool,
}

/// A sequence of git calls; each runs only if the previous ones succeeded.
pub(super) struct Script(Vec<Part>);

/// A part of a script.
enum Part {
    /// Shell syntax.
    Shell(&'static str),
    /// A git call.
    Git(Vec<String>),
}

impl Script {
    /// Starts with a git call.
    pub(super) fn git(args: &[&str]) -> Self {
        Self(Vec::new()).then(args)
    }

    /// Adds a call that runs if the previous ones succeeded.
    pub(super) fn then(self, args: &[&str]) -> Self {
        let joint = if self.0.is_empty() { "" } else { " && " };
        self.shell(joint).call(args)
    }

    /// Pipes the output of the last call into another one.
    pub(super) fn read_by(self, args: &[&str]) -> Self {
        self.shell(" | ").call(args)
    }

    /// Discards the output of the last call.
    pub(super) fn unheard(self) -> Self {
        self.shell(" >/dev/null")
    }

    /// Continues only if a quiet diff finds a change.
    pub(super) fn if_different(self, args: &[&str]) -> Self {
        // Any other error is reported by the next call.
        self.shell(" && { ").call(args).shell(" && { echo 'nothing to commit' >&2; exit 1; } || :; }")
    }

    /// Redirects the output of the last call to standard error.
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

    /// Returns the script as a shell command.
    fn command(&self, program: &Program, repository: &Repository) -> String {
        let git = program.with(repository);
        // If the repository belongs to another user, git itself checks whether it is trusted.
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

    /// Runs the script in the workspace without write access to the repository.
    pub(super) async fn run(self, bench: &Bench) -> Result<Printed, Fault> {
        let (program, repository) = found(bench).await?;
        self.run_with(bench, (&program, &repository), None).await
    }

    /// Runs the script in the workspace with write access to the repository; a failure restores the index.
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

/// The git program, and the search path for its helpers.
struct Program {
    git: PathBuf,
    path: OsString,
}

impl Program {
    /// Returns the start of a call for a repository.
    fn with(&self, repository: &Repository) -> String {
        let named = |option: &str, path: &Path| quoted(&format!("{option}={}", path.display()));
        let git_dir = named("--git-dir", &repository.git_dir);
        format!("{} {git_dir} {}", self.alone(), named("--work-tree", &repository.work_tree))
    }

    /// Returns the start of a call for which git searches the repository itself.
    fn alone(&self) -> String {
        let git = self.git.display().to_string();
        [&*git].into_iter().chain(HARDENED.iter().copied()).map(quoted).collect::<Vec<_>>().join(" ")
    }
}

/// Finds the git program and the repository of the workspace.
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
                let message = "the path of the repository is not UTF-8, which is not supported";
                return Err(Fault::new(FaultKind::GitFailed, message));
            }
            Ok((Program { git, path: path.value() }, repository))
        })
        .await
}

fn missing() -> Fault {
    let message = "no trusted git program on the PATH: directories in the workspace, relative ones and those \
        that other users can write are skipped";
    Fault::new(FaultKind::ExecFailed, message)
}

/// Maps the standard error of git to an error.
fn refused(code: i32, complaint: &str) -> Fault {
    let says = |text: &str| complaint.contains(text);
    let (kind, message) = match code {
        127 => return missing(),
        _ if says("not a git repository") => {
            (FaultKind::NotARepository, "the workspace is not in a git repository".to_owned())
        }
        _ if says("nothing to commit") || says("nothing added to commit") || says("no changes added") => {
            (FaultKind::NothingToCommit, "there is nothing to commit".to_owned())
        }
        _ if says("did not match any file") => {
            (FaultKind::NotFound, "git knows no file with this name".to_owned())
        }
        _ => (FaultKind::GitFailed, format!("git failed with exit code {code}")),
    };
    let complaint = complaint.trim();
    let message = match reason(complaint) {
        Some(reason) if kind != FaultKind::NothingToCommit => format!("{message}: {reason}"),
        Some(_) | None => message,
    };
    // A single line is already in the message.
    let detail = if complaint.lines().nth(1).is_some() { complaint } else { "" };
    Fault::new(kind, message).with_detail(detail.to_owned())
}

/// The line with the reason: the last fatal or error line, or the first line.
fn reason(complaint: &str) -> Option<&str> {
    let mut lines = complaint.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.clone().next();
    lines.rfind(|line| line.starts_with("fatal:") || line.starts_with("error:")).or(first)
}

/// The user's environment without variables that control git, its shell or the linker; the identity is kept.
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
        // A repository may configure that missing objects are fetched, and by which program.
        ("GIT_NO_LAZY_FETCH", "1"),
        ("GIT_ALLOW_PROTOCOL", "none"),
    ];
    let kept = env.iter().filter(|(name, _)| !steers(name)).cloned();
    let ours = ours.map(|(name, value)| (name.into(), value.into()));
    kept.chain(ours).chain([("PATH".into(), path.clone())]).collect()
}

/// The identity and the date of a commit.
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

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Checks the pathspecs of a call. None may leave the workspace lexically, and git follows no links. None may lead
/// to a path that is denied to tools, which git could read without confinement.
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

/// The line counts of one file in a diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) path: String,
    pub(super) insertions: u64,
    pub(super) deletions: u64,
}

/// Parses the output of `--numstat -z --no-renames`; binary files have no line counts.
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
        // For a repository of another user, git checks first whether it is trusted.
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
            (FaultKind::GitFailed, "git failed with exit code 128: fatal: bad")
        );
        assert_eq!(other.detail, None);
        let long = refused(
            128,
            "Author identity unknown\n\n*** Please tell me who you are.\n\nfatal: empty ident\n",
        );
        assert_eq!(long.message, "git failed with exit code 128: fatal: empty ident");
        assert!(long.detail.unwrap().contains("tell me who you are"));
        assert_eq!(refused(1, "hint: x\n").message, "git failed with exit code 1: hint: x");
        assert_eq!(refused(1, "").message, "git failed with exit code 1");
    }
}
