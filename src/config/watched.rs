//! A configuration file that is read again when it has changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::file::{self, ConfigError};
use super::settings::Settings;

/// A configuration file with a cache of its settings.
#[derive(Debug)]
pub struct Watched {
    path: PathBuf,
    known: Mutex<Option<Known>>,
}

/// The settings of a file, and the stamp they were read at.
#[derive(Debug)]
struct Known {
    looks: Looks,
    settings: Arc<Settings>,
}

/// The metadata that identifies a version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looks {
    /// The file does not exist.
    Absent,
    /// The modification time and the size of the file.
    Written { at: SystemTime, bytes: u64 },
}

impl Watched {
    /// Creates the cache for a file, which need not exist; nothing is read yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, known: Mutex::new(None) }
    }

    /// Returns the settings of the file; it is read only if it has changed since the last call.
    ///
    /// A file with a mistake is an error on every call, until the mistake is fixed.
    pub fn current(&self) -> Result<Arc<Settings>, ConfigError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // The stamp is taken before the file is read: a write in between is found on the next call.
        let looks = self.looks()?;
        if let Some(known) = known.as_ref().filter(|known| known.looks == looks) {
            return Ok(Arc::clone(&known.settings));
        }
        let settings = Arc::new(file::read(&self.path)?.settings);
        let settled = looks.are_settled(SystemTime::now());
        *known = settled.then(|| Known { looks, settings: Arc::clone(&settings) });
        Ok(settings)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn looks(&self) -> Result<Looks, ConfigError> {
        let written = fs::metadata(&self.path)
            .and_then(|found| Ok(Looks::Written { at: found.modified()?, bytes: found.len() }));
        match written {
            Ok(looks) => Ok(looks),
            Err(error) if file::is_absent(&error) => Ok(Looks::Absent),
            Err(source) => Err(ConfigError::Unreadable { path: self.path.clone(), source }),
        }
    }
}

impl Looks {
    /// Whether a later change would change the stamp: two changes within the granularity of the file system's clock
    /// are indistinguishable.
    fn are_settled(self, now: SystemTime) -> bool {
        match self {
            Self::Absent => true,
            Self::Written { at, .. } => now.duration_since(at).is_ok_and(|age| age > TICK),
        }
    }
}

/// The coarsest clock granularity of the supported file systems.
const TICK: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_file_that_appears_changes_and_goes_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let watched = Watched::new(folder.path().join("config.toml"));
        assert_eq!(watched.current().unwrap().provider, None);
        write(&watched, "provider = 'ollama'\n", 100);
        assert_eq!(watched.current().unwrap().provider.as_deref(), Some("ollama"));
        write(&watched, "provider = 'openai'\n", 99);
        assert_eq!(watched.current().unwrap().provider.as_deref(), Some("openai"));
        fs::remove_file(watched.path()).unwrap();
        assert_eq!(watched.current().unwrap().provider, None);
    }

    #[test]
    fn what_has_not_changed_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let watched = Watched::new(folder.path().join("config.toml"));
        write(&watched, "model = 'a'\n", 100);
        let first = watched.current().unwrap();
        assert!(Arc::ptr_eq(&first, &watched.current().unwrap()));
        // The same size and modification time give the same stamp.
        write_at(&watched, "model = 'b'\n", first_time(&watched));
        assert!(Arc::ptr_eq(&first, &watched.current().unwrap()));
    }

    #[test]
    fn a_change_within_the_tick_of_a_clock_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let watched = Watched::new(folder.path().join("config.toml"));
        write(&watched, "model = 'a'\n", 0);
        assert_eq!(watched.current().unwrap().model.as_deref(), Some("a"));
        write_at(&watched, "model = 'b'\n", first_time(&watched));
        assert_eq!(watched.current().unwrap().model.as_deref(), Some("b"));
    }

    #[test]
    fn a_mistake_is_said_until_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let watched = Watched::new(folder.path().join("config.toml"));
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
    fn write(watched: &Watched, text: &str, seconds_ago: u64) {
        write_at(watched, text, SystemTime::now() - Duration::from_secs(seconds_ago));
    }

    fn write_at(watched: &Watched, text: &str, at: SystemTime) {
        fs::write(watched.path(), text).unwrap();
        File::options().write(true).open(watched.path()).unwrap().set_modified(at).unwrap();
    }

    fn first_time(watched: &Watched) -> SystemTime {
        fs::metadata(watched.path()).unwrap().modified().unwrap()
    }
}
