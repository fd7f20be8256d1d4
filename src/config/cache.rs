//! A configuration file that is read again when it has changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::file::{self, ConfigError};
use super::settings::{ProviderKind, Settings};

/// A configuration file with a cache of its settings.
#[derive(Debug)]
pub struct ConfigCache {
    path: PathBuf,
    kinds: Vec<ProviderKind>,
    cached: Mutex<Option<CachedSettings>>,
}

/// The settings of a file, and the stamp they were read at.
#[derive(Debug)]
struct CachedSettings {
    stamp: FileStamp,
    settings: Arc<Settings>,
}

/// The metadata that identifies a version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileStamp {
    /// The file does not exist.
    Absent,
    /// The modification time and the size of the file.
    Present { modified: SystemTime, bytes: u64 },
}

impl ConfigCache {
    /// Creates the cache for a file, which need not exist; nothing is read yet. `kinds` are the kinds of providers that
    /// it may name.
    pub fn new(path: PathBuf, kinds: Vec<ProviderKind>) -> Self {
        Self { path, kinds, cached: Mutex::new(None) }
    }

    /// Returns the settings of the file; it is read only if it has changed since the last call.
    ///
    /// An invalid file is an error on every call, until it is fixed.
    pub fn current(&self) -> Result<Arc<Settings>, ConfigError> {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        // The stamp is taken before the file is read: a write in between is found on the next call.
        let stamp = self.stamp()?;
        if let Some(cached) = cached.as_ref().filter(|cached| cached.stamp == stamp) {
            return Ok(Arc::clone(&cached.settings));
        }
        let settings = Arc::new(file::read(&self.path, &self.kinds)?.settings);
        let settled = stamp.is_settled(SystemTime::now());
        *cached = settled.then(|| CachedSettings { stamp, settings: Arc::clone(&settings) });
        Ok(settings)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn stamp(&self) -> Result<FileStamp, ConfigError> {
        let written = fs::metadata(&self.path)
            .and_then(|found| Ok(FileStamp::Present { modified: found.modified()?, bytes: found.len() }));
        match written {
            Ok(stamp) => Ok(stamp),
            Err(error) if file::is_absent(&error) => Ok(FileStamp::Absent),
            Err(source) => Err(ConfigError::Unreadable { path: self.path.clone(), source }),
        }
    }
}

impl FileStamp {
    /// Whether a later change would change the stamp: two changes within the granularity of the file system's clock
    /// are indistinguishable.
    fn is_settled(self, now: SystemTime) -> bool {
        match self {
            Self::Absent => true,
            Self::Present { modified: at, .. } => now.duration_since(at).is_ok_and(|age| age > CLOCK_GRANULARITY),
        }
    }
}

/// The coarsest clock granularity of the supported file systems.
const CLOCK_GRANULARITY: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::config::settings::TEST_KINDS;

    #[test]
    fn a_file_that_appears_changes_and_goes_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let watched = ConfigCache::new(dir.path().join("config.toml"), TEST_KINDS.to_vec());
        assert_eq!(watched.current().unwrap().provider, None);
        write(&watched, "provider = 'ollama'\n", 100);
        assert_eq!(watched.current().unwrap().provider.as_deref(), Some("ollama"));
        write(&watched, "provider = 'openai'\n", 99);
        assert_eq!(watched.current().unwrap().provider.as_deref(), Some("openai"));
        fs::remove_file(watched.path()).unwrap();
        assert_eq!(watched.current().unwrap().provider, None);
    }

    #[test]
    fn an_unchanged_file_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let watched = ConfigCache::new(dir.path().join("config.toml"), TEST_KINDS.to_vec());
        write(&watched, "model = 'a'\n", 100);
        let first = watched.current().unwrap();
        assert!(Arc::ptr_eq(&first, &watched.current().unwrap()));
        // The same size and modification time give the same stamp.
        write_at(&watched, "model = 'b'\n", modified_time(&watched));
        assert!(Arc::ptr_eq(&first, &watched.current().unwrap()));
    }

    #[test]
    fn a_change_within_the_clock_granularity_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let watched = ConfigCache::new(dir.path().join("config.toml"), TEST_KINDS.to_vec());
        write(&watched, "model = 'a'\n", 0);
        assert_eq!(watched.current().unwrap().model.as_deref(), Some("a"));
        write_at(&watched, "model = 'b'\n", modified_time(&watched));
        assert_eq!(watched.current().unwrap().model.as_deref(), Some("b"));
    }

    #[test]
    fn a_mistake_is_reported_until_it_is_fixed() {
        let dir = tempfile::tempdir().unwrap();
        let watched = ConfigCache::new(dir.path().join("config.toml"), TEST_KINDS.to_vec());
        write(&watched, "model = 'a'\n", 100);
        watched.current().unwrap();
        write(&watched, "modle = 'a'\n", 90);
        for _ in 0..2 {
            assert!(watched.current().unwrap_err().to_string().contains("line 1: unknown field `modle`"));
        }
        write(&watched, "model = 'c'\n", 80);
        assert_eq!(watched.current().unwrap().model.as_deref(), Some("c"));
    }

    /// Writes the file with a modification time in the past.
    fn write(watched: &ConfigCache, text: &str, seconds_ago: u64) {
        write_at(watched, text, SystemTime::now() - Duration::from_secs(seconds_ago));
    }

    fn write_at(watched: &ConfigCache, text: &str, at: SystemTime) {
        fs::write(watched.path(), text).unwrap();
        File::options().write(true).open(watched.path()).unwrap().set_modified(at).unwrap();
    }

    fn modified_time(watched: &ConfigCache) -> SystemTime {
        fs::metadata(watched.path()).unwrap().modified().unwrap()
    }
}
