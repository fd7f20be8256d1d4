//! Private copies of caches: one store per workspace, below the daemon's home.
//!
//! Writes of a confined command to a cache go to the store of its workspace, and only commands of that workspace see
//! them. A store is removed when its workspace no longer exists or when it has not been used for a month. When all
//! stores together exceed the size limit, the least recently used stores are removed first. A store in use holds a
//! shared lock and is not removed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use super::confinement::toolchain::Cache;
use super::os;
use super::removal::{self, Remover};
use super::tree_size::tree_size;

/// The file in a store that names its workspace; its modification time is the time of the last use.
const WORKSPACE_MARKER: &str = "workspace";

/// The directory in a store that environment variables point to where no mount is possible.
pub(super) const ENV_CACHES_DIR: &str = "variables";

/// How often opening a store is retried while other processes remove it.
const OPEN_ATTEMPTS: usize = 100;

/// Limits on the age and the total size of the stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CacheLimits {
    /// How long an unused store is retained.
    pub(super) unused: Duration,
    /// The maximum size of all stores together, in bytes.
    pub(super) bytes: u64,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { unused: Duration::from_secs(30 * 24 * 60 * 60), bytes: 10 * 1024 * 1024 * 1024 }
    }
}

/// The store of a workspace, locked against removal.
#[derive(Debug)]
pub(super) struct CacheStore {
    path: PathBuf,
    _lock: File,
}

impl CacheStore {
    /// Opens the store of `workspace` below `root` and records the time of use.
    pub(super) fn open(root: &Path, workspace: &Path) -> io::Result<Self> {
        let workspace = fs::canonicalize(workspace)?;
        let digest = Sha256::digest(workspace.as_os_str().as_encoded_bytes());
        let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let path = root.join(name);
        for _ in 0..OPEN_ATTEMPTS {
            os::create_private_dir_all(&path)?;
            let held = match File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            held.lock_shared()?;
            // The directory may have been removed before this process acquired the lock.
            if os::is_same_file(&path, &held) {
                fs::write(path.join(WORKSPACE_MARKER), workspace.as_os_str().as_encoded_bytes())?;
                return Ok(Self { path, _lock: held });
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Returns the path of the store.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates directories for caches that cannot be mounted over, and returns the environment variables that point to
    /// them.
    ///
    /// Commands may write in these directories but not in their parent, so a command cannot replace a name that the
    /// daemon relies on.
    pub(super) fn create_env_caches(&self, caches: &[Cache]) -> io::Result<Vec<(OsString, OsString)>> {
        let mut variables: Vec<(OsString, OsString)> = Vec::new();
        for cache in caches {
            let (variable, name) = cache.kind.variable();
            let directory = self.path.join(ENV_CACHES_DIR).join(name);
            os::create_private_dir_all(&directory)?;
            if variable == "CARGO_HOME"
                && let Some(home) = cache.path.parent()
            {
                for settings in ["config.toml", "config"] {
                    let (file, link) = (home.join(settings), directory.join(settings));
                    // A file that a command put there affects only its own workspace.
                    if file.exists() && fs::symlink_metadata(&link).is_err() {
                        os::symlink(&file, &link)?;
                    }
                }
            }
            let entry = (OsString::from(variable), directory.into_os_string());
            if !variables.contains(&entry) {
                variables.push(entry);
            }
        }
        Ok(variables)
    }
}

/// Removes stores according to `limits`.
///
/// Blocks for as long as it takes to stat all files in the stores.
pub(super) fn sweep_caches(root: &Path, limits: CacheLimits, now: SystemTime, remover: &Remover) {
    let mut stores = Vec::new();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(removal::PREFIX)) {
            // An earlier removal was interrupted.
            remover.remove(path);
            continue;
        }
        let marker = path.join(WORKSPACE_MARKER);
        // A store that is being created has no marker yet.
        let Ok(used) = fs::metadata(&marker).and_then(|metadata| metadata.modified()) else { continue };
        let workspace = fs::read(&marker).map(|bytes| os::path(&bytes)).unwrap_or_default();
        let unused = now.duration_since(used).unwrap_or_default();
        if unused > limits.unused || was_removed(&workspace) {
            remove_if_unlocked(&path, remover);
        } else {
            stores.push((used, size(&path), path));
        }
    }
    stores.sort();
    let mut total = stores.iter().fold(0_u64, |sum, (_, bytes, _)| sum.saturating_add(*bytes));
    for (_, bytes, path) in &stores {
        if total <= limits.bytes {
            break;
        }
        if remove_if_unlocked(path, remover) {
            total = total.saturating_sub(*bytes);
        }
    }
}

/// Returns whether `name` is the name of a store, or of a store that is being removed.
pub fn is_store(name: &str) -> bool {
    // Earlier versions used another prefix for a store that is being removed.
    let former = removal::former_name(name).or_else(|| name.strip_prefix("removed-"));
    let digest = former.unwrap_or(name);
    digest.len() == 32 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Removes an unused store, whatever commands have written in it. Blocks without a time limit.
pub fn remove(store: &Path) -> io::Result<()> {
    removal::remove_now(store)
}

/// Returns whether a workspace no longer exists; a workspace on a disk that cannot be read at the moment still counts
/// as existing.
fn was_removed(workspace: &Path) -> bool {
    matches!(fs::symlink_metadata(workspace), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// Removes a store that no process has locked; returns whether it was removed.
fn remove_if_unlocked(path: &Path, remover: &Remover) -> bool {
    let Ok(held) = File::open(path) else { return false };
    if held.try_lock().is_err() {
        return false;
    }
    // The store is renamed while the lock is held: a process that waits for the lock then creates a new store.
    remover.remove(path.to_owned());
    true
}

/// Returns how many bytes a directory and everything below it occupy on disk; symbolic links are not followed. Blocks.
pub fn size(path: &Path) -> u64 {
    tree_size(path)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::super::confinement::toolchain::CacheKind;
    use super::*;

    #[test]
    fn every_workspace_has_its_own_store_whatever_path_leads_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let (root, one, other) = test_paths(&dir);
        std::os::unix::fs::symlink(&one, dir.path().join("link")).unwrap();
        let store = CacheStore::open(&root, &one).unwrap();
        assert_eq!(CacheStore::open(&root, &dir.path().join("link")).unwrap().path(), store.path());
        assert_ne!(CacheStore::open(&root, &other).unwrap().path(), store.path());
        assert!(CacheStore::open(&root, &dir.path().join("none")).is_err());
    }

    #[test]
    fn stores_of_removed_workspaces_and_unused_stores_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, one, other) = test_paths(&dir);
        let path = |store: CacheStore| store.path().to_owned();
        let (gone, kept) =
            (path(CacheStore::open(&root, &one).unwrap()), path(CacheStore::open(&root, &other).unwrap()));
        fs::create_dir_all(gone.join("overlay-0/npm/upper/deep")).unwrap();
        fs::remove_dir(&one).unwrap();
        sweep_caches(&root, CacheLimits::default(), SystemTime::now(), &remover());
        assert!(!gone.exists() && kept.exists());
        let held = CacheStore::open(&root, &other).unwrap();
        let later = SystemTime::now() + Duration::from_secs(31 * 24 * 60 * 60);
        sweep_caches(&root, CacheLimits::default(), later, &remover());
        assert!(kept.exists(), "it is in use");
        drop(held);
        // A child that another thread has just forked may hold a copy of the lock until it calls `exec`.
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while kept.exists() {
            assert!(std::time::Instant::now() < deadline, "an unused store is removed");
            sweep_caches(&root, CacheLimits::default(), later, &remover());
        }
    }

    #[test]
    fn a_store_is_recognised_by_its_name_also_while_it_is_removed() {
        let digest = "0123456789abcdef0123456789abcdef";
        for name in [digest, &format!("removing-3-{digest}"), &format!("removed-{digest}")] {
            assert!(is_store(name), "{name}");
        }
        for name in ["", "my-cache", "removing-3-mine", &digest[1..], &format!("old-{digest}")] {
            assert!(!is_store(name), "{name}");
        }
    }

    #[test]
    fn the_least_recently_used_store_is_removed_first() {
        let dir = tempfile::tempdir().unwrap();
        let (root, one, other) = test_paths(&dir);
        let fill = |workspace: &Path, age: u64| {
            let store = CacheStore::open(&root, workspace).unwrap();
            fs::write(store.path().join("file"), [1; 600 << 10]).unwrap();
            // A sparse file occupies no disk space, whatever its length.
            File::create(store.path().join("sparse")).unwrap().set_len(1 << 40).unwrap();
            let marker = File::options().write(true).open(store.path().join(WORKSPACE_MARKER)).unwrap();
            marker.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
            store.path().to_owned()
        };
        let (old, new) = (fill(&one, 100), fill(&other, 1));
        let limits = CacheLimits { bytes: 2000 << 10, ..CacheLimits::default() };
        sweep_caches(&root, limits, SystemTime::now(), &remover());
        assert!(old.exists() && new.exists());
        sweep_caches(&root, CacheLimits { bytes: 1000 << 10, ..limits }, SystemTime::now(), &remover());
        assert!(!old.exists() && new.exists());
    }

    #[test]
    fn a_file_below_the_longest_path_and_one_in_a_closed_directory_count() {
        use nix::fcntl::{AT_FDCWD, OFlag, openat};
        use nix::sys::stat::{Mode, mkdirat};
        use std::os::unix::fs::PermissionsExt;

        let dir = tempfile::tempdir().unwrap();
        let name = "d".repeat(255);
        let mut deepest = openat(AT_FDCWD, dir.path(), OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..20 {
            mkdirat(&deepest, name.as_str(), Mode::S_IRWXU).unwrap();
            deepest = openat(&deepest, name.as_str(), OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        }
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY;
        let file = openat(&deepest, "file", flags, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        std::io::Write::write_all(&mut File::from(file), &[1; 600 << 10]).unwrap();
        let counted = size(dir.path());
        assert!((600 << 10..1200 << 10).contains(&counted), "{counted}");
        fs::create_dir(dir.path().join("closed")).unwrap();
        fs::write(dir.path().join("closed/file"), [1; 600 << 10]).unwrap();
        fs::set_permissions(dir.path().join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
        assert!(size(dir.path()) >= 1200 << 10, "{}", size(dir.path()));
        std::os::unix::fs::symlink("/", dir.path().join("link")).unwrap();
        assert!(size(dir.path()) < 2400 << 10, "a link is not followed");
        removal::remove_now(dir.path()).unwrap();
        fs::create_dir(dir.path()).unwrap();
    }

    #[test]
    fn variables_point_into_the_store_and_cargo_keeps_its_settings() {
        let dir = tempfile::tempdir().unwrap();
        let (root, one, _) = test_paths(&dir);
        let cargo = dir.path().join("home/.cargo");
        fs::create_dir_all(&cargo).unwrap();
        fs::write(cargo.join("config.toml"), "settings").unwrap();
        let store = CacheStore::open(&root, &one).unwrap();
        let at = |kind, path: PathBuf| Cache { kind, path };
        let caches = [
            at(CacheKind::CargoRegistry, cargo.join("registry")),
            at(CacheKind::CargoGit, cargo.join("git")),
            at(CacheKind::Npm, dir.path().join("home/.npm")),
        ];
        let private = store.path().join(ENV_CACHES_DIR);
        for _ in 0..2 {
            let variables = store.create_env_caches(&caches).unwrap();
            assert_eq!(
                variables,
                [("CARGO_HOME", "cargo"), ("npm_config_cache", "npm")]
                    .map(|(name, subdirectory)| (name.into(), private.join(subdirectory).into_os_string()))
            );
        }
        assert_eq!(fs::read_to_string(private.join("cargo/config.toml")).unwrap(), "settings");
    }

    /// Only renames what is to be removed, which is all that these tests check.
    fn remover() -> Remover {
        Remover::new(Path::new("/bin/false").into())
    }

    fn test_paths(dir: &tempfile::TempDir) -> (PathBuf, PathBuf, PathBuf) {
        let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&other).unwrap();
        (dir.path().join("cache"), one, other)
    }
}
