//! Finds the git repository of a directory by reading its files.
//!
//! It starts no process and changes nothing. What takes more than reading a small file is left out.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::bounded_io;

/// The repository that a directory belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// The directory with `.git` in it.
    pub root: PathBuf,
    /// The branch that is checked out.
    pub branch: Option<String>,
    /// The URL of the remote `origin`, without credentials.
    pub remote: Option<String>,
}

/// Returns whether a `.git` entry belongs to a repository: while a confined command runs outside of one, an empty
/// directory of that name serves as a placeholder.
fn is_git(place: &Path) -> bool {
    place.is_file() || place.join("HEAD").exists()
}

impl Repository {
    /// Finds the repository that contains `directory`.
    pub fn find(directory: &Path) -> Option<Self> {
        let root = directory.ancestors().find(|above| is_git(&above.join(".git")))?;
        let git = git_directory(root)?;
        let head = read(&git.join("HEAD"))?;
        let common = match read(&git.join("commondir")) {
            Some(path) => git.join(path.trim()),
            None => git,
        };
        Some(Self {
            root: root.to_owned(),
            branch: head.trim().strip_prefix("ref: refs/heads/").map(str::to_owned),
            remote: read(&common.join("config")).and_then(|text| origin(&text)).map(|url| without_credentials(&url)),
        })
    }

    /// Returns the repository in its wire format.
    pub fn to_json(&self) -> Value {
        let mut repo = Map::new();
        repo.insert("rootPath".into(), self.root.to_string_lossy().into());
        if let Some(remote) = &self.remote {
            repo.insert("remoteUrl".into(), remote.as_str().into());
        }
        if let Some(branch) = &self.branch {
            repo.insert("currentBranch".into(), branch.as_str().into());
        }
        Value::Object(repo)
    }
}

/// Returns the git directory; in a worktree `.git` is a file that names it.
fn git_directory(root: &Path) -> Option<PathBuf> {
    let git = root.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = read(&git)?;
    Some(root.join(text.trim().strip_prefix("gitdir:")?.trim()))
}

/// Reads the first 64 KiB of a regular file; it never blocks on a FIFO or a device.
fn read(path: &Path) -> Option<String> {
    let (bytes, _) = bounded_io::read_prefix(path, 64 * 1024).ok()?;
    String::from_utf8(bytes).ok()
}

/// Returns the URL of the remote `origin` in a git configuration file.
fn origin(config: &str) -> Option<String> {
    let mut inside = false;
    for line in config.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line.replace(' ', "") == "[remote\"origin\"]";
        } else if let Some((name, value)) = line.split_once('=')
            && inside
            && name.trim() == "url"
        {
            return Some(value.trim().trim_matches('"').to_owned());
        }
    }
    None
}

/// Removes credentials from a URL.
///
/// The user part of an HTTP URL may be a token, so all of it is removed; of an SSH URL the user name is kept.
fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let kept = match authority.rsplit_once('@') {
        None => authority.to_owned(),
        Some((_, host)) if scheme.starts_with("http") => host.to_owned(),
        Some((user, host)) => format!("{}@{host}", user.split(':').next().unwrap_or_default()),
    };
    format!("{scheme}://{kept}{path}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_directory_below_a_repository_belongs_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b");
        fs::create_dir_all(&deep).unwrap();
        repository(dir.path(), "[remote \"origin\"]\n\turl = https://me:token@host.example/o/r.git\n");
        let found = Repository::find(&deep).unwrap();
        assert_eq!(found.root, dir.path());
        assert_eq!(found.branch.as_deref(), Some("topic/x"));
        assert_eq!(found.remote.as_deref(), Some("https://host.example/o/r.git"));
        assert_eq!(found.to_json()["currentBranch"], "topic/x");
    }

    #[test]
    fn a_worktree_has_its_own_branch_and_the_remote_of_the_common_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (main, tree) = (dir.path().join("main"), dir.path().join("tree"));
        fs::create_dir_all(&main).unwrap();
        fs::create_dir_all(&tree).unwrap();
        repository(&main, "[core]\nurl = no\n[remote \"origin\"]\nurl = git@host.example:o/r.git\n");
        let own = main.join(".git/worktrees/tree");
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("HEAD"), "ref: refs/heads/other\n").unwrap();
        fs::write(own.join("commondir"), "../..\n").unwrap();
        fs::write(tree.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
        let found = Repository::find(&tree).unwrap();
        assert_eq!(found.branch.as_deref(), Some("other"));
        assert_eq!(found.remote.as_deref(), Some("git@host.example:o/r.git"));
    }

    #[test]
    fn a_detached_head_has_no_branch_and_no_repository_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Repository::find(dir.path()), None);
        repository(dir.path(), "");
        fs::write(dir.path().join(".git/HEAD"), "0123456789abcdef\n").unwrap();
        let found = Repository::find(dir.path()).unwrap();
        assert_eq!((found.branch, found.remote), (None, None));
    }

    #[test]
    fn credentials_are_removed_from_remote_urls() {
        for (url, safe) in [
            ("https://token@host.example/o/r", "https://host.example/o/r"),
            ("https://u:p@host.example:8443/o?key=1", "https://host.example:8443/o"),
            ("ssh://git:pw@host.example/o", "ssh://git@host.example/o"),
            ("git@host.example:o/r.git", "git@host.example:o/r.git"),
            ("https://host.example", "https://host.example"),
        ] {
            assert_eq!(without_credentials(url), safe);
        }
    }

    fn repository(root: &Path, config: &str) {
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::write(root.join(".git/HEAD"), "ref: refs/heads/topic/x\n").unwrap();
        fs::write(root.join(".git/config"), config).unwrap();
    }
}
