//! The `git` program, without the doors through which a repository could run something or somebody could be asked.
//!
//! Hooks, file system monitors, external differences, text conversions, pagers, editors, signing and credential helpers
//! are off, variables of the environment that steer git are taken out, and paths are taken by the letter. Filters that
//! the user's own configuration names still run, as files could not be committed right without them. Those of a repository
//! inside the workspace would be its author's: no call that may change something looks into one.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, FileType};
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use super::bench::Bench;
use super::exec;
use super::fault::{Fault, FaultKind};
use crate::sandbox::confine::Leave;
use crate::sandbox::ground::{Reach, stays_beneath};
use crate::sandbox::{Chunk, Step, Stream};

/// What every call is given before its own words.
const HARDENED: &[&str] = &[
    "git",
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
pub(super) struct Script(String);

impl Script {
    /// Begins with a call of git.
    pub(super) fn git(args: &[&str]) -> Self {
        Self(String::new()).then(args)
    }

    /// Goes on with another call.
    pub(super) fn then(mut self, args: &[&str]) -> Self {
        if !self.0.is_empty() {
            self.0.push_str(" && ");
        }
        let words: Vec<String> = HARDENED.iter().chain(args).map(|word| quoted(word)).collect();
        self.0.push_str(&words.join(" "));
        self
    }

    /// Has the last call read by another.
    pub(super) fn read_by(mut self, args: &[&str]) -> Self {
        let words: Vec<String> = HARDENED.iter().chain(args).map(|word| quoted(word)).collect();
        self.0.push_str(" | ");
        self.0.push_str(&words.join(" "));
        self
    }

    /// Has nobody hear what the last call prints.
    pub(super) fn unheard(mut self) -> Self {
        self.0.push_str(" >/dev/null");
        self
    }

    /// Goes on only when a difference that is asked for quietly is one.
    pub(super) fn if_different(mut self, args: &[&str]) -> Self {
        let words: Vec<String> = HARDENED.iter().chain(args).map(|word| quoted(word)).collect();
        // Whatever else is wrong, the next call says itself.
        let nothing = "{ echo 'nothing to commit' >&2; exit 1; }";
        self.0.push_str(&format!(" && {{ {} && {nothing} || :; }}", words.join(" ")));
        self
    }

    /// Has what the last call prints taken for a complaint.
    pub(super) fn quietly(mut self) -> Self {
        self.0.push_str(" >&2");
        self
    }

    /// Runs it in the workspace, where it changes nothing of the repository.
    pub(super) async fn run(self, bench: &Bench) -> Result<Printed, Fault> {
        self.run_with(bench, Leave::default()).await
    }

    /// Runs it in the workspace with leave to change the repository, wherever that is.
    pub(super) async fn run_and_change(self, bench: &Bench) -> Result<Printed, Fault> {
        let places = ["rev-parse", "--path-format=absolute", "--git-dir", "--git-common-dir"];
        let printed = Self::git(&places).run(bench).await?;
        let text = String::from_utf8_lossy(&printed.bytes);
        let writable: Vec<PathBuf> = text.lines().map(PathBuf::from).collect();
        let dirs = writable.clone();
        let before = bench.away(move |_| Ok(believed(&dirs))).await?;
        let closed = before.iter().filter(|(_, stands)| stands.can_be_closed()).map(|(path, _)| path.clone());
        let leave = Leave { closed: closed.collect(), writable: writable.clone(), ..Leave::default() };
        let printed = self.run_with(bench, leave).await;
        let after = bench.away(move |_| Ok(believed(&writable))).await?;
        match before.iter().zip(&after).find(|(before, after)| before != after) {
            None => printed,
            Some(((path, _), _)) => Err(Fault::new(
                FaultKind::GitFailed,
                format!("{} changed meanwhile: look at it before git is used again", path.display()),
            )),
        }
    }

    async fn run_with(self, bench: &Bench, leave: Leave) -> Result<Printed, Fault> {
        let step = Step {
            command: self.0,
            cwd: bench.ground.path().to_owned(),
            env: environment(&bench.env),
            time_limit: bench.limits.git.min(bench.limits.step),
            leave,
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
        let (end, (printed, complaint)) = tokio::join!(bench.tree.run(step, chunks), gather);
        let outcome = exec::ended(end, time_limit);
        match (outcome.fault, outcome.exit_code) {
            (None, _) => Ok(printed),
            (Some(_), Some(code)) => Err(refused(code, &String::from_utf8_lossy(&complaint))),
            (Some(fault), None) => Err(fault),
        }
    }
}

/// What of a repository is run or believed, and changed by no commit.
const BELIEVED: [&str; 11] = [
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
];

/// What stands under a name.
#[derive(Debug, PartialEq, Eq)]
enum Stands {
    Nothing,
    Link(PathBuf),
    Something(FileType),
}

impl Stands {
    /// Whether a mount can stand on it.
    const fn can_be_closed(&self) -> bool {
        match self {
            Self::Something(_) => true,
            Self::Nothing | Self::Link(_) => false,
        }
    }
}

/// Looks at what is believed of these directories of a repository; it blocks.
fn believed(dirs: &[PathBuf]) -> Vec<(PathBuf, Stands)> {
    let paths: BTreeSet<PathBuf> =
        dirs.iter().flat_map(|dir| BELIEVED.iter().map(|name| dir.join(name))).collect();
    let look = |path: PathBuf| {
        let stands = match (fs::symlink_metadata(&path), fs::read_link(&path)) {
            (Err(_), _) => Stands::Nothing,
            (Ok(_), Ok(target)) => Stands::Link(target),
            (Ok(there), Err(_)) => Stands::Something(there.file_type()),
        };
        (path, stands)
    };
    paths.into_iter().map(look).collect()
}

/// Makes sense of what git complained about.
fn refused(code: i32, complaint: &str) -> Fault {
    let says = |text: &str| complaint.contains(text);
    let (kind, message) = match code {
        127 => (FaultKind::ExecFailed, "there is no git program on the PATH".to_owned()),
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
    Fault::new(kind, message).with_detail(complaint.trim().to_owned())
}

/// The user's environment without what steers git.
fn environment(env: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let steers = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with("GIT_") || name.starts_with("LC_") || name == "LANGUAGE" || name == "SSH_ASKPASS"
    };
    let ours = [
        ("LC_ALL", "C"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_EDITOR", "false"),
        ("GIT_PAGER", "cat"),
    ];
    let kept = env.iter().filter(|(name, _)| !steers(name)).cloned();
    kept.chain(ours.map(|(name, value)| (name.into(), value.into()))).collect()
}

/// A word as the shell takes it by the letter.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Paths as git is to take them; none leaves the workspace by its words, and git follows no links.
pub(super) fn inside(paths: &[String], bench: &Bench) -> Result<Vec<String>, Fault> {
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
        let Script(script) = Script::git(&["add", "--", "it's $HOME"]).quietly().then(&["status"]);
        assert!(script.contains(r"'add' '--' 'it'\''s $HOME' >&2 && 'git'"), "{script}");
        assert!(script.contains("'core.hooksPath=/dev/null'"), "{script}");
    }

    #[test]
    fn what_steers_git_is_taken_out_of_the_environment() {
        let env = [("GIT_DIR", "/x"), ("HOME", "/h"), ("LC_ALL", "de_DE"), ("GIT_SSH_COMMAND", "evil")];
        let env = environment(&env.map(|(name, value)| (name.into(), value.into())));
        let value = |name: &str| env.iter().filter(|(known, _)| known == name).count();
        assert_eq!(
            (value("GIT_DIR"), value("GIT_SSH_COMMAND"), value("HOME"), value("LC_ALL")),
            (0, 0, 1, 1)
        );
        assert!(env.contains(&("GIT_TERMINAL_PROMPT".into(), "0".into())));
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
        assert_eq!((other.kind, other.detail.as_deref()), (FaultKind::GitFailed, Some("fatal: bad")));
    }
}
