//! A git worktree for one run, beside the repository, so that several runs do not change the same files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ulid::Ulid;

use crate::cli::exit::CliError;
use crate::cli::plain::plain_line;
use crate::client::Repository;
use crate::sandbox::program::SearchPath;

/// A worktree that was added.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Worktree {
    /// The directory in which the run works: in the worktree what the given one is in its repository.
    pub(super) directory: String,
    root: PathBuf,
    branch: String,
}

impl Worktree {
    /// Returns what its user should know.
    pub(super) fn announcement(&self) -> String {
        let root = plain_line(&self.root.display().to_string());
        let branch = plain_line(&self.branch);
        format!("the run works in {root}, on branch {branch}; `git worktree remove` removes it")
    }
}

/// Adds a worktree of the repository of `directory`, on `branch`, which is made if it is not there.
pub(super) fn add(directory: &str, branch: Option<&str>) -> Result<Worktree, CliError> {
    let repository = Repository::find(Path::new(directory)).ok_or_else(|| {
        CliError::Usage(format!("--worktree needs a git repository, and {directory} is in none"))
    })?;
    let branch = branch.map_or_else(fresh_branch, str::to_owned);
    let name = repository.root.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let root = repository.root.with_file_name(format!("{name}-{}", branch.replace(['/', '\\'], "-")));
    let reference = format!("refs/heads/{branch}");
    let git = Git::find(&repository.root)?;
    let exists = git.run(&["show-ref", "--verify", "--quiet", &reference]).is_ok();
    let path = text(&root)?;
    let words: &[&str] = if exists {
        &["worktree", "add", "--quiet", &path, &branch]
    } else {
        &["worktree", "add", "--quiet", "-b", &branch, "--", &path]
    };
    git.run(words).map_err(|why| CliError::Usage(format!("cannot add a worktree: {why}")))?;
    let below = Path::new(directory).strip_prefix(&repository.root).unwrap_or(Path::new(""));
    let inside = Some(root.join(below)).filter(|inside| !below.as_os_str().is_empty() && inside.is_dir());
    let directory = text(inside.as_deref().unwrap_or(&root))?;
    Ok(Worktree { directory, root, branch })
}

fn fresh_branch() -> String {
    let id = Ulid::generate().to_string().to_ascii_lowercase();
    format!("push/{}", id.get(id.len() - 6..).unwrap_or(&id))
}

/// The git program, found as the daemon finds it: in no directory that a repository or another user could have put it in.
struct Git<'a> {
    program: PathBuf,
    /// Where it finds other programs.
    path: OsString,
    root: &'a Path,
}

impl<'a> Git<'a> {
    fn find(root: &'a Path) -> Result<Self, CliError> {
        let search = SearchPath::trusted(std::env::var_os("PATH").as_deref(), &[root.to_owned()]);
        let program = search.find("git").ok_or_else(|| {
            CliError::Usage(
                "--worktree needs git, and no directory of the PATH has it that only root or you can write to: \
                 directories of the repository, relative ones and those that others can write to are not searched"
                    .to_owned(),
            )
        })?;
        Ok(Self { program, path: search.value(), root })
    }

    /// Runs it and returns what it complained about where it failed.
    fn run(&self, words: &[&str]) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        command.arg("-C").arg(self.root).args(words).env("PATH", &self.path).stdin(Stdio::null());
        match command.output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(plain_line(&String::from_utf8_lossy(&output.stderr))),
            Err(error) => Err(format!("{} cannot be run: {error}", self.program.display())),
        }
    }
}

fn text(path: &Path) -> Result<String, CliError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| CliError::Usage(format!("the path {} is not UTF-8", path.display())))
}
