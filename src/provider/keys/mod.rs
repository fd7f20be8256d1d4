//! Keys: where they are looked up, in which order, and how one is put away.
//!
//! The run's own environment comes first, then a file that only its owner can read, then the system's keyring. A key
//! is shown nowhere: neither in settings, nor in logs, nor in errors.

mod file;
mod keyring;
#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

pub use keyring::Keyring;

/// A secret that opens a provider.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// Takes a key as somebody wrote it; white space around it is no part of it, and nothing is no key.
    pub fn new(written: &str) -> Option<Self> {
        let written = written.trim();
        (!written.is_empty()).then(|| Self(written.to_owned()))
    }

    /// Returns the secret itself.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the text with the key taken out.
    ///
    /// A key of fewer than 6 characters, such as the `x` that some local servers want, is in every other word and stays.
    pub(super) fn hide_in(&self, text: &str) -> String {
        if self.0.chars().count() < SHORTEST_SECRET {
            text.to_owned()
        } else {
            text.replace(&self.0, "[key]")
        }
    }

    /// Returns whether it can be sent and written down: visible characters alone, without quotes.
    pub fn is_plain(&self) -> bool {
        self.0.chars().all(|letter| letter.is_ascii_graphic() && !matches!(letter, '"' | '\'' | '\\'))
    }
}

/// How many characters a value has at least that is taken out of texts.
const SHORTEST_SECRET: usize = 6;

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(hidden)")
    }
}

/// A key and where it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The key.
    pub key: Key,
    /// Where it was.
    pub source: Source,
}

/// Where a key was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A variable of the run's environment.
    Variable(String),
    /// The file.
    File(PathBuf),
    /// The system's keyring.
    Keyring,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => f.write_str(name),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Keyring => f.write_str("the keyring"),
        }
    }
}

/// Why keys cannot be read or put away.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Others could have read or changed the file.
    #[error("{} can be read or changed by others, or is not yours; `chmod 600` makes it yours alone", .0.display())]
    Exposed(PathBuf),
    /// The file is no list of keys.
    #[error("{} is no list of keys (lines like `openai = \"…\"`): {reason}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it; the parser's place in the text, and nothing of the text.
        reason: String,
    },
    /// The key holds what no key can hold.
    #[error("the key holds characters that no key can hold")]
    Unusable,
    /// The system did not do what was wanted.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// What was wanted.
        action: &'static str,
        /// Of what.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The keyring did not do what was wanted.
    #[error("cannot use the system's keyring: {0}")]
    Keyring(String),
}

/// Where keys are kept.
#[derive(Debug, Clone)]
pub struct Keys {
    folder: PathBuf,
    keyring: Keyring,
}

/// Whether the keyring is worth a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AskKeyring {
    Yes,
    No,
}

impl Keys {
    /// Keeps keys in `keys.toml` of this folder, and in this keyring.
    pub const fn new(folder: PathBuf, keyring: Keyring) -> Self {
        Self { folder, keyring }
    }

    /// Returns where the file is.
    pub fn path(&self) -> PathBuf {
        self.folder.join("keys.toml")
    }

    /// Puts a key into the file, which only its owner can read afterwards.
    pub fn store_in_file(&self, provider: &str, key: &Key) -> Result<(), KeyError> {
        if !key.is_plain() {
            return Err(KeyError::Unusable);
        }
        file::store(&self.path(), provider, key)
    }

    /// Puts a key into the system's keyring.
    pub async fn store_in_keyring(&self, provider: &str, key: &Key) -> Result<(), KeyError> {
        if !key.is_plain() {
            return Err(KeyError::Unusable);
        }
        self.keyring.store(provider, key).await.map_err(KeyError::Keyring)
    }

    /// Looks for the key of a provider: in `variable` of the environment, in the file, in the keyring.
    pub(super) async fn find(
        &self,
        provider: &str,
        variable: &str,
        environment: &BTreeMap<String, String>,
        keyring: AskKeyring,
    ) -> Result<Option<Found>, KeyError> {
        if let Some(key) = environment.get(variable).and_then(|value| Key::new(value)) {
            return Ok(Some(Found { key, source: Source::Variable(variable.to_owned()) }));
        }
        let path = self.path();
        if let Some(key) = file::find(&path, provider)? {
            return Ok(Some(Found { key, source: Source::File(path) }));
        }
        match keyring {
            AskKeyring::No => Ok(None),
            AskKeyring::Yes => {
                let key = self.keyring.find(provider).await.map_err(KeyError::Keyring)?;
                Ok(key.map(|key| Found { key, source: Source::Keyring }))
            }
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
#[path = "unix_tests.rs"]
mod tests;
