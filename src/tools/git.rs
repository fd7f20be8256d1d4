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

use super::context::ToolContext;
use super::error::{ToolError, ToolErrorKind};
use super::exec;
use super::git_access::GitAccess;
use super::resolve;
use crate::sandbox::confinement::StepPermissions;
use crate::sandbox::program::SearchPath;
use crate::sandbox::repository::Repository;
use crate::sandbox::workspace::{ReachPolicy, stays_beneath};
use crate::sandbox::{Chunk, OutputMode, Step, Stream};

/// The options before the arguments of every call.
const HARDENED_ARGUMENTS: &[&str] = &[
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
const STDERR_MAX: usize = 4096;
/// The capacity of the output channel, in chunks.
const CHUNK_BUFFER: usize = 16;

/// The output of git.
#[derive(Debug)]
pub(super) struct GitOutput {
    pub(super) bytes: Vec<u8>,
    /// Whether the output exceeded the limit.
    pub(super) truncated: bool,
}

/// A sequence of git calls; each runs only if the previous ones succeeded.
pub(super) struct GitScript(Vec<ScriptPart>);

/// A part of a script.
enum ScriptPart {
    /// Shell syntax.
    Shell(&'static str),
    /// A git call.
    Git(Vec<String>),
}

impl GitScript {
    /// Starts with a git call.
    pub(super) fn git(args: &[&str]) -> Self {
        Self(Vec::new()).then(args)
    }

    /// Adds a call that runs if the previous ones succeeded.
    pub(super) fn then(self, args: &[&str]) -> Self {
        let joint = if self.0.is_empty() { "" } else { " && " };
        self.push_shell(joint).push_git(args)
    }

    /// Pipes the output of the last call into another one.
    pub(super) fn pipe_to(self, args: &[&str]) -> Self {
        self.push_shell(" | ").push_git(args)
    }

    /// Discards the output of the last call.
    pub(super) fn discard_output(self) -> Self {
        self.push_shell(" >/dev/null")
    }

    /// Continues only if a quiet diff finds a change.
    pub(super) fn if_changed(self, args: &[&str]) -> Self {
        // Any other error is reported by the next call.
        self.push_shell(" && { ").push_git(args).push_shell(" && { echo 'nothing to commit' >&2; exit 1; } || :; }")
    }

    /// Redirects the output of the last call to standard error.
    pub(super) fn output_to_stderr(self) -> Self {
        self.push_shell(" >&2")
    }

    fn push_shell(mut self, words: &'static str) -> Self {
        self.0.push(ScriptPart::Shell(words));
        self
    }

    fn push_git(mut self, args: &[&str]) -> Self {
        self.0.push(ScriptPart::Git(args.iter().map(|word| (*word).to_owned()).collect()));
        self
    }

    /// Returns the script as a shell command.
    fn to_shell_command(&self, program: &GitProgram, repository: &Repository) -> String {
        let git = program.for_repository(repository);
        // If the repository belongs to another user, git itself checks whether it is trusted.
        let mut command = match repository.foreign {
            true => format!("{} rev-parse --git-dir >/dev/null && ", program.base_command()),
            false => String::new(),
        };
        for part in &self.0 {
            match part {
                ScriptPart::Shell(words) => command.push_str(words),
                ScriptPart::Git(args) => {
                    let words = args.iter().map(|word| shell_quote(word));
                    command.push_str(&[git.clone()].into_iter().chain(words).collect::<Vec<_>>().join(" "));
                }
            }
        }
        command
    }

    /// Runs the script in the workspace without write access to the repository.
    pub(super) async fn run(self, context: &ToolContext) -> Result<GitOutput, ToolError> {
        let (program, repository) = find_program_and_repository(context).await?;
        self.run_with(context, (&program, &repository), None).await
    }

    /// Runs the script in the workspace with write access to the repository; a failure restores the index.
    pub(super) async fn run_writable(self, context: &ToolContext) -> Result<GitOutput, ToolError> {
        let (program, repository) = find_program_and_repository(context).await?;
        let access = GitAccess::for_commit(&repository, context).await?;
        self.run_with(context, (&program, &repository), Some(access)).await
    }

    async fn run_with(
        self,
        context: &ToolContext,
        (program, repository): (&GitProgram, &Repository),
        access: Option<GitAccess>,
    ) -> Result<GitOutput, ToolError> {
        let step = Step {
            command: self.to_shell_command(program, repository),
            cwd: context.workspace.path().to_owned(),
            env: git_environment(&context.env, &program.path),
            time_limit: context.limits.git_timeout.min(context.limits.step_timeout),
            permissions: StepPermissions::default(),
            output_mode: OutputMode::Separate,
        };
        let time_limit = step.time_limit;
        let (chunks, mut output) = mpsc::channel::<Chunk>(CHUNK_BUFFER);
        let limit = context.limits.git_bytes;
        let gather = async {
            let (mut printed, mut stderr) = (GitOutput { bytes: Vec::new(), truncated: false }, Vec::new());
            while let Some(chunk) = output.recv().await {
                let (buffer, limit) = match chunk.stream {
                    Stream::Stdout => (&mut printed.bytes, limit),
                    Stream::Stderr => (&mut stderr, STDERR_MAX),
                };
                let fitting = chunk.bytes.len().min(limit.saturating_sub(buffer.len()));
                buffer.extend_from_slice(&chunk.bytes[..fitting]);
                printed.truncated |= fitting < chunk.bytes.len() && chunk.stream == Stream::Stdout;
            }
            (printed, stderr)
        };
        let run = async {
            match access {
                Some(access) => access.run(step, context, chunks).await,
                None => Ok(context.sandbox.run(step, chunks).await),
            }
        };
        let (end, (printed, stderr)) = tokio::join!(run, gather);
        let outcome = exec::result_of(end?, time_limit);
        match (outcome.error, outcome.exit_code) {
            (None, _) => Ok(printed),
            (Some(_), Some(code)) => Err(git_error(code, &String::from_utf8_lossy(&stderr))),
            (Some(error), None) => Err(error),
        }
    }
}

/// The git program, and the search path for its helpers.
struct GitProgram {
    git: PathBuf,
    path: OsString,
}

impl GitProgram {
    /// Returns the start of a call for a repository.
    fn for_repository(&self, repository: &Repository) -> String {
        let named = |option: &str, path: &Path| shell_quote(&format!("{option}={}", path.display()));
        let git_dir = named("--git-dir", &repository.git_dir);
        format!("{} {git_dir} {}", self.base_command(), named("--work-tree", &repository.work_tree))
    }

    /// Returns the start of a call for which git searches the repository itself.
    fn base_command(&self) -> String {
        let git = self.git.display().to_string();
        [&*git].into_iter().chain(HARDENED_ARGUMENTS.iter().copied()).map(shell_quote).collect::<Vec<_>>().join(" ")
    }
}

/// Finds the git program and the repository of the workspace.
async fn find_program_and_repository(context: &ToolContext) -> Result<(GitProgram, Repository), ToolError> {
    let path = context.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
    let writable = context.writable.clone();
    context
        .run_blocking(move |fs_context| {
            let workspace = fs_context.workspace.path();
            let repository = Repository::find(workspace, &writable)?;
            let writable: Vec<PathBuf> = writable.into_iter().chain([workspace.to_owned()]).collect();
            let path = SearchPath::trusted(path.as_deref(), &writable);
            let git = path.find("git").ok_or_else(git_not_found)?;
            let used_paths = [&git, &repository.git_dir, &repository.work_tree];
            if used_paths.into_iter().any(|path| path.to_str().is_none()) {
                let message = "the path of the repository is not UTF-8, which is not supported";
                return Err(ToolError::new(ToolErrorKind::GitFailed, message));
            }
            Ok((GitProgram { git, path: path.value() }, repository))
        })
        .await
}

fn git_not_found() -> ToolError {
    let message = "no trusted git program on the PATH: directories in the workspace, relative ones and those \
        that other users can write are skipped";
    ToolError::new(ToolErrorKind::ExecFailed, message)
}

/// Maps the standard error of git to an error.
fn git_error(code: i32, stderr: &str) -> ToolError {
    let says = |text: &str| stderr.contains(text);
    let (kind, message) = match code {
        127 => return git_not_found(),
        _ if says("not a git repository") => {
            (ToolErrorKind::NotARepository, "the workspace is not in a git repository".to_owned())
        }
        _ if says("nothing to commit") || says("nothing added to commit") || says("no changes added") => {
            (ToolErrorKind::NothingToCommit, "there is nothing to commit".to_owned())
        }
        _ if says("did not match any file") => {
            (ToolErrorKind::NotFound, "no file known to git matches the path".to_owned())
        }
        _ => (ToolErrorKind::GitFailed, format!("git failed with exit code {code}")),
    };
    let stderr = stderr.trim();
    let message = match reason_line(stderr) {
        Some(reason) if kind != ToolErrorKind::NothingToCommit => format!("{message}: {reason}"),
        Some(_) | None => message,
    };
    // A single line is already in the message.
    let detail = if stderr.lines().nth(1).is_some() { stderr } else { "" };
    ToolError::new(kind, message).with_detail(detail.to_owned())
}

/// The line with the reason: the last fatal or error line, or the first line.
fn reason_line(stderr: &str) -> Option<&str> {
    let mut lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.clone().next();
    lines.rfind(|line| line.starts_with("fatal:") || line.starts_with("error:")).or(first)
}

/// The user's environment without variables that control git, its shell or the linker; the identity is kept.
fn git_environment(env: &[(OsString, OsString)], path: &OsString) -> Vec<(OsString, OsString)> {
    let steers = |name: &OsString| {
        let name = name.to_string_lossy();
        !IDENTITY.contains(&&*name)
            && (CONTROL_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || CONTROL_VARIABLES.contains(&&*name))
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
    let inherited = env.iter().filter(|(name, _)| !steers(name)).cloned();
    let ours = ours.map(|(name, value)| (name.into(), value.into()));
    inherited.chain(ours).chain([("PATH".into(), path.clone())]).collect()
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
const CONTROL_PREFIXES: [&str; 5] = ["GIT_", "LC_", "LD_", "DYLD_", "BASH_"];
const CONTROL_VARIABLES: [&str; 7] = ["PATH", "LANGUAGE", "SSH_ASKPASS", "ENV", "IFS", "CDPATH", "SHELLOPTS"];

/// Quotes a word for the shell.
fn shell_quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Checks the pathspecs of a call. None may leave the workspace lexically, and git follows no links. None may lead
/// to a path that is denied to tools, which git could read without confinement.
pub(super) async fn check_pathspecs(paths: &[String], context: &ToolContext) -> Result<Vec<String>, ToolError> {
    resolve::check_reachable(paths.to_vec(), context).await?;
    let inside = |path: &String| {
        let relative = Path::new(path).strip_prefix(context.workspace.path()).unwrap_or(Path::new(path));
        match context.workspace.reach() {
            ReachPolicy::Workspace if !stays_beneath(relative) => {
                let message = format!("{path} is outside the workspace");
                Err(ToolError::new(ToolErrorKind::OutsideWorkspace, message))
            }
            ReachPolicy::Workspace | ReachPolicy::Anywhere => {
                let relative = relative.to_string_lossy().into_owned();
                Ok(if relative.is_empty() { ".".to_owned() } else { relative })
            }
        }
    };
    paths.iter().map(inside).collect()
}

/// The line counts of one file in a diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileStat {
    pub(super) path: String,
    pub(super) insertions: u64,
    pub(super) deletions: u64,
}

/// Parses the output of `--numstat -z --no-renames`; binary files have no line counts.
pub(super) fn parse_numstat(text: &str) -> Vec<FileStat> {
    let counted = |record: &str| {
        let mut fields = record.splitn(3, '\t');
        let (insertions, deletions) = (fields.next()?, fields.next()?);
        let path = fields.next().filter(|path| !path.is_empty())?.to_owned();
        let number = |field: &str| field.trim().parse().unwrap_or(0);
        Some(FileStat { path, insertions: number(insertions), deletions: number(deletions) })
    };
    text.split('\0').filter_map(counted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_reach_git_literally() {
        let script = GitScript::git(&["add", "--", "it's $HOME"]).output_to_stderr().then(&["status"]);
        let command = script.to_shell_command(&program(), &repository(false));
        assert!(command.contains(r"'add' '--' 'it'\''s $HOME' >&2 && '/usr/bin/git'"), "{command}");
        assert!(command.contains("'core.hooksPath=/dev/null'"), "{command}");
    }

    #[test]
    fn the_repository_is_passed_to_git_explicitly() {
        let command = GitScript::git(&["status"]).to_shell_command(&program(), &repository(false));
        assert!(command.starts_with("'/usr/bin/git' '--no-pager'"), "{command}");
        assert!(command.ends_with("'--git-dir=/w/.git' '--work-tree=/w' 'status'"), "{command}");
        // For a repository of another user, git checks first whether it is trusted.
        let command = GitScript::git(&["status"]).to_shell_command(&program(), &repository(true));
        let (first, _) = command.split_once(" && ").unwrap();
        assert!(first.ends_with("rev-parse --git-dir >/dev/null") && !first.contains("--git-dir="), "{command}");
    }

    #[test]
    fn variables_that_control_git_are_removed_from_the_environment() {
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
        let env = git_environment(&env.map(|(name, value)| (name.into(), value.into())), &"/usr/bin".into());
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

    fn program() -> GitProgram {
        GitProgram { git: "/usr/bin/git".into(), path: "/usr/bin".into() }
    }

    fn repository(foreign: bool) -> Repository {
        let git = PathBuf::from("/w/.git");
        Repository { work_tree: "/w".into(), git_dir: git.clone(), common_dir: git, foreign }
    }

    #[test]
    fn numstat_output_is_parsed() {
        let counted = parse_numstat("3\t1\ta b\0-\t-\tlogo.png\0");
        assert_eq!(counted.len(), 2);
        assert_eq!(counted[0], FileStat { path: "a b".into(), insertions: 3, deletions: 1 });
        assert_eq!((counted[1].insertions, counted[1].deletions), (0, 0));
        assert_eq!(parse_numstat(""), []);
    }

    #[test]
    fn an_error_output_is_mapped_to_its_kind() {
        let kind = |code, text: &str| git_error(code, text).kind;
        assert_eq!(kind(128, "fatal: not a git repository (or any parent)"), ToolErrorKind::NotARepository);
        assert_eq!(kind(1, "nothing to commit, working tree clean"), ToolErrorKind::NothingToCommit);
        assert_eq!(kind(127, "sh: git: not found"), ToolErrorKind::ExecFailed);
        assert_eq!(kind(128, "fatal: pathspec 'x' did not match any files"), ToolErrorKind::NotFound);
        let other = git_error(128, "fatal: bad\n");
        assert_eq!(
            (other.kind, &*other.message),
            (ToolErrorKind::GitFailed, "git failed with exit code 128: fatal: bad")
        );
        assert_eq!(other.detail, None);
        let long = git_error(128, "Author identity unknown\n\n*** Please tell me who you are.\n\nfatal: empty ident\n");
        assert_eq!(long.message, "git failed with exit code 128: fatal: empty ident");
        assert!(long.detail.unwrap().contains("tell me who you are"));
        assert_eq!(git_error(1, "hint: x\n").message, "git failed with exit code 1: hint: x");
        assert_eq!(git_error(1, "").message, "git failed with exit code 1");
    }
}
