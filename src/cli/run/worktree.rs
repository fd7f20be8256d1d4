//! Adds a git worktree for a run next to the repository, so that parallel runs do not change the same files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ulid::Ulid;

use crate::cli::exit::CliError;
use crate::cli::sanitize::sanitize_line;
use crate::client::Repository;
use crate::sandbox::program::SearchPath;

/// A new worktree.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Worktree {
    /// The directory of the run: it corresponds to the given directory of the repository.
    pub(super) directory: String,
    root: PathBuf,
    branch: String,
}

impl Worktree {
    /// Returns the note for the user.
    pub(super) fn note(&self) -> String {
        let root = sanitize_line(&self.root.display().to_string());
        let branch = sanitize_line(&self.branch);
        format!("the run works in the new worktree {root}, on branch {branch}; `git worktree remove` removes it")
    }
}

/// Adds a worktree of the repository of `directory`, on `branch`, which is created if it does not exist.
pub(super) fn add(directory: &str, branch: Option<&str>) -> Result<Worktree, CliError> {
    let repository = Repository::find(Path::new(directory))
        .ok_or_else(|| CliError::Usage(format!("--worktree requires a git repository; {directory} is not in one")))?;
    let branch = branch.map_or_else(new_branch_name, str::to_owned);
    let name = repository.root.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let root = repository.root.with_file_name(format!("{name}-{}", branch.replace(['/', '\\'], "-")));
    let reference = format!("refs/heads/{branch}");
    let git = Git::find(&repository.root)?;
    let exists = git.run(&["show-ref", "--verify", "--quiet", &reference]).is_ok();
    let path = utf8_path(&root)?;
    let args: &[&str] = if exists {
        &["worktree", "add", "--quiet", &path, &branch]
    } else {
        &["worktree", "add", "--quiet", "-b", &branch, "--", &path]
    };
    git.run(args).map_err(|why| match git.worktree_of(&reference) {
        Some(existing) => CliError::Usage(format!(
            "branch {} already has a worktree: --cwd {} runs in it, `git worktree remove` removes it",
            sanitize_line(&branch),
            sanitize_line(&existing)
        )),
        None => CliError::Usage(format!("cannot add a worktree: {why}; --worktree=BRANCH uses another branch")),
    })?;
    let below = Path::new(directory).strip_prefix(&repository.root).unwrap_or(Path::new(""));
    let inside = Some(root.join(below)).filter(|inside| !below.as_os_str().is_empty() && inside.is_dir());
    let directory = utf8_path(inside.as_deref().unwrap_or(&root))?;
    Ok(Worktree { directory, root, branch })
}

fn new_branch_name() -> String {
    let id = Ulid::generate().to_string().to_ascii_lowercase();
    format!("push/{}", id.get(id.len() - 6..).unwrap_or(&id))
}

/// The git executable, from the trusted search path: never from the repository or from a directory that others can
/// write to.
struct Git<'a> {
    program: PathBuf,
    /// The PATH of its child processes.
    path: OsString,
    root: &'a Path,
}

impl<'a> Git<'a> {
    fn find(root: &'a Path) -> Result<Self, CliError> {
        let search = SearchPath::trusted(std::env::var_os("PATH").as_deref(), &[root.to_owned()]);
        let program = search.find("git").ok_or_else(|| {
            CliError::Usage(
                "--worktree requires git, which is in no trusted directory of the PATH: \
                 directories in the repository, relative directories and those that other users can write to are not searched"
                    .to_owned(),
            )
        })?;
        Ok(Self { program, path: search.value(), root })
    }

    /// Returns the worktree in which a branch is checked out.
    fn worktree_of(&self, reference: &str) -> Option<String> {
        let listed = self.run(&["worktree", "list", "--porcelain"]).ok()?;
        listed.split("\n\n").find_map(|worktree| {
            let mut lines = worktree.lines();
            let path = lines.next()?.strip_prefix("worktree ")?;
            lines.any(|line| line.strip_prefix("branch ") == Some(reference)).then(|| path.to_owned())
        })
    }

    /// Runs git and returns its standard output, or its standard error if it failed.
    fn run(&self, args: &[&str]) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        // Nothing that the repository's configuration names runs, except its filters, without which files are not
        // checked out as git does it.
        command.args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-C"]).arg(self.root).args(args);
        command.env("PATH", &self.path).stdin(Stdio::null());
        match command.output() {
            Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            Ok(output) if output.stderr.trim_ascii().is_empty() => Err(format!("git ended with {}", output.status)),
            Ok(output) => Err(sanitize_line(&String::from_utf8_lossy(&output.stderr))),
            Err(error) => Err(format!("cannot run {}: {error}", self.program.display())),
        }
    }
}

fn utf8_path(path: &Path) -> Result<String, CliError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| CliError::Usage(format!("the path {} is not UTF-8", path.display())))
}
