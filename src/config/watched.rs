//! A configuration file that is read again when it has changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::file::{self, ConfigError};
use super::settings::Settings;

/// A configuration file, and what it said when it was last looked at.
#[derive(Debug)]
pub struct Watched {
    path: PathBuf,
    known: Mutex<Option<Known>>,
}

/// What a file said, and how it looked then.
#[derive(Debug)]
struct Known {
    looks: Looks,
    settings: Arc<Settings>,
}

/// How a file looks from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looks {
    /// There is none.
    Absent,
    /// It was written then, and is so long.
    Written { at: SystemTime, bytes: u64 },
}

impl Watched {
    /// Watches a file, which need not be there; nothing is read yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, known: Mutex::new(None) }
    }

    /// Returns what the file says; it is read only if it has changed since the last time.
    ///
    /// A file with a mistake is an error each time, until the mistake is gone.
    pub fn current(&self) -> Result<Arc<Settings>, ConfigError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked at before it is read: what is written meanwhile is found the next time.
        let looks = self.looks()?;
        if let Some(known) = known.as_ref().filter(|known| known.looks == looks) {
            return Ok(Arc::clone(&known.settings));
        }
        let settings = Arc::new(file::read(&self.path)?.settings);
        let settled = looks.are_settled(SystemTime::now());
        *known = settled.then(|| Known { looks, settings: Arc::clone(&settings) });
        Ok(settings)
    }

    /// Returns where the file is.
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
    /// Whether a change from here on would be seen: two of them within one tick of a file system's clock look alike.
    fn are_settled(self, now: SystemTime) -> bool {
        match self {
            Self::Absent => true,
            Self::Written { at, .. } => now.duration_since(at).is_ok_and(|age| age > TICK),
        }
    }
}

/// The coarsest clock of a file system that is in use.
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
        // The same length at the same time looks the same from outside.
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

    /// Writes the file as if it had been written so many seconds ago.
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
