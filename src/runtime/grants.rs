//! Rules that users granted permanently for a repository, stored until they are revoked.
//!
//! They are in a file beside the journal, readable by its owner alone, because they belong to a repository and
//! outlive sessions. The file is read whenever it is needed, so that a revoked rule takes effect immediately.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::generate;
use crate::kernel::time::Now;
use crate::private_file::{self, Links, PrivateFileError};

/// The granted rules of all repositories.
#[derive(Debug)]
pub struct GrantStore {
    path: PathBuf,
    /// Serializes changes of the file.
    write_lock: Mutex<()>,
}

/// A granted rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Grant {
    /// Its id.
    pub grant_id: String,
    /// The repository in which it applies.
    pub repository: PathBuf,
    /// The rule.
    pub rule: String,
    /// The source of the grant, derived from the connection.
    pub by: String,
    /// When it was granted, in milliseconds.
    pub granted_at: u64,
}

/// Why the granted rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GrantsError {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// The file has an invalid format.
    #[error("{} cannot be read: {problem}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The maximum number of rules is reached.
    #[error("the limit of {MAX_GRANTS} remembered approvals is reached; revoke some with `push approvals --revoke ID`")]
    TooMany,
}

/// The format of the file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantsFile {
    version: u32,
    grants: Vec<Grant>,
}

impl GrantStore {
    /// Creates the store of a state directory; reads nothing yet.
    pub fn new(state: &Path) -> Self {
        Self { path: state.join("approvals.json"), write_lock: Mutex::new(()) }
    }

    /// Returns all grants, the oldest first.
    pub fn list(&self) -> Result<Vec<Grant>, GrantsError> {
        let Some(text) = private_file::read(&self.path, Links::Followed, FILE_BYTES)? else { return Ok(Vec::new()) };
        let malformed = |problem| GrantsError::Malformed { path: self.path.clone(), problem };
        let written: GrantsFile = serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
        if written.version != VERSION {
            return Err(malformed(format!("it has version {}; the supported version is {VERSION}", written.version)));
        }
        Ok(written.grants)
    }

    /// Returns the granted rules of a repository.
    pub fn rules_in(&self, repository: &Path) -> Result<Vec<String>, GrantsError> {
        let here = self.list()?.into_iter().filter(|grant| grant.repository == repository);
        Ok(here.map(|grant| grant.rule).collect())
    }

    /// Stores a rule for a repository durably; a known rule is unchanged.
    pub fn add(&self, repository: &Path, rule: String, by: String, at: Now) -> Result<(), GrantsError> {
        let _changing = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut grants = self.list()?;
        if grants.iter().any(|grant| grant.repository == repository && grant.rule == rule) {
            return Ok(());
        }
        if grants.len() >= MAX_GRANTS {
            return Err(GrantsError::TooMany);
        }
        let repository = repository.to_owned();
        grants.push(Grant { grant_id: generate::grant(), repository, rule, by, granted_at: at.0 });
        self.write(grants)
    }

    /// Removes a grant durably; returns whether it existed.
    pub fn revoke(&self, id: &str) -> Result<bool, GrantsError> {
        let _changing = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut grants = self.list()?;
        let before = grants.len();
        grants.retain(|grant| grant.grant_id != id);
        if grants.len() == before {
            return Ok(false);
        }
        self.write(grants).map(|()| true)
    }

    fn write(&self, grants: Vec<Grant>) -> Result<(), GrantsError> {
        // Plain data: encoding cannot fail.
        let bytes = serde_json::to_vec_pretty(&GrantsFile { version: VERSION, grants }).unwrap_or_default();
        Ok(private_file::replace(&self.path, &bytes)?)
    }
}

/// Returns the repository of a workspace: the nearest enclosing git directory, else the workspace itself.
pub fn find_repository(workspace: &Path) -> PathBuf {
    let workspace = fs::canonicalize(workspace).unwrap_or_else(|_| workspace.to_owned());
    let root = workspace.ancestors().find(|directory| is_repository(&directory.join(".git")));
    root.map_or_else(|| workspace.clone(), Path::to_path_buf)
}

/// Returns whether this is a git directory. One without `HEAD` is a placeholder that exists while a confined command
/// runs.
fn is_repository(git: &Path) -> bool {
    git.is_file() || git.join("HEAD").symlink_metadata().is_ok()
}

/// The file version that is read and written.
const VERSION: u32 = 1;
/// The maximum number of stored rules.
const MAX_GRANTS: usize = 1_000;
/// The maximum size of the file.
const FILE_BYTES: u64 = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_holds_in_its_repository_until_it_is_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let grants = GrantStore::new(dir.path());
        assert_eq!(grants.list().unwrap(), []);
        grants.add(Path::new("/a"), "allow: exec(make)".into(), "cli".into(), Now(7)).unwrap();
        grants.add(Path::new("/a"), "allow: exec(make)".into(), "app".into(), Now(8)).unwrap();
        grants.add(Path::new("/b"), "allow: git".into(), "cli".into(), Now(9)).unwrap();
        // A restarted daemon reads the same rules.
        let grants = GrantStore::new(dir.path());
        assert_eq!(grants.rules_in(Path::new("/a")).unwrap(), ["allow: exec(make)"]);
        let [first, second] = &grants.list().unwrap()[..] else { panic!("two rules") };
        assert_eq!((first.by.as_str(), first.granted_at), ("cli", 7));
        assert!(!grants.revoke("grant_unknown").unwrap());
        assert!(grants.revoke(&first.grant_id).unwrap());
        assert_eq!(grants.rules_in(Path::new("/a")).unwrap(), [""; 0]);
        assert_eq!(&grants.list().unwrap(), std::slice::from_ref(second));
    }

    #[test]
    fn an_unreadable_file_grants_nothing_and_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let grants = GrantStore::new(dir.path());
        grants.add(Path::new("/a"), "allow: git".into(), "cli".into(), Now(1)).unwrap();
        fs::write(&grants.path, "{").unwrap();
        assert!(matches!(grants.rules_in(Path::new("/a")), Err(GrantsError::Malformed { .. })));
        let added = grants.add(Path::new("/a"), "allow: exec".into(), "cli".into(), Now(2));
        assert!(matches!(added, Err(GrantsError::Malformed { .. })));
        assert_eq!(fs::read_to_string(&grants.path).unwrap(), "{");
        fs::write(&grants.path, r#"{"version":2,"grants":[]}"#).unwrap();
        assert!(grants.list().unwrap_err().to_string().contains("version 2"));
    }

    #[test]
    fn a_workspace_belongs_to_its_enclosing_repository() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(root.join("repo/.git")).unwrap();
        fs::write(root.join("repo/.git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::create_dir_all(root.join("repo/deep/er/.git")).unwrap();
        assert_eq!(find_repository(&root.join("repo/deep/er")), root.join("repo"));
        assert_eq!(find_repository(&root), root);
    }
}
