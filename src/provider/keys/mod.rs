//! API keys: the sources, their precedence, and how a key is stored.
//!
//! The run's environment takes precedence over a file that only its owner can read, and the file over the system's
//! keyring. A key is never displayed: not in settings, logs or errors.

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
use std::path::PathBuf;

pub use keyring::Keyring;

use crate::private_file::PrivateFileError;

/// The API key of a provider.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// Creates a key from user input; surrounding white space is removed, and an empty text is `None`.
    pub fn new(written: &str) -> Option<Self> {
        let written = written.trim();
        (!written.is_empty()).then(|| Self(written.to_owned()))
    }

    /// Returns the secret itself.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the text with the key redacted.
    ///
    /// A key of fewer than 6 characters, such as the `x` that some local servers require, is not redacted: it would
    /// match ordinary words.
    pub(super) fn redact_in(&self, text: &str) -> String {
        if self.0.chars().count() < MIN_REDACTED_CHARS { text.to_owned() } else { text.replace(&self.0, "[key]") }
    }

    /// Returns whether the key can be sent and stored: visible ASCII characters without quotes or backslashes.
    pub fn has_valid_chars(&self) -> bool {
        self.0.chars().all(|letter| letter.is_ascii_graphic() && !matches!(letter, '"' | '\'' | '\\'))
    }
}

/// The minimum length of a value that is redacted.
const MIN_REDACTED_CHARS: usize = 6;

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(hidden)")
    }
}

/// A key and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedKey {
    /// The key.
    pub key: Key,
    /// The source.
    pub source: KeySource,
}

/// The source of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// An environment variable of the run.
    Variable(String),
    /// The key file.
    File(PathBuf),
    /// The system's keyring.
    Keyring,
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => f.write_str(name),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Keyring => f.write_str("the keyring"),
        }
    }
}

/// Why keys cannot be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// The file is not a valid key file.
    #[error("{} is not a key file (lines like `openai = \"…\"`): {reason}", .path.display())]
    Malformed {
        /// The key file.
        path: PathBuf,
        /// The parser's message, which quotes nothing of the file.
        reason: String,
    },
    /// The key contains characters that are not allowed.
    #[error("the key contains characters that are not allowed in a key")]
    InvalidCharacters,
    /// The keyring operation failed.
    #[error("cannot use the system's keyring: {0}")]
    Keyring(String),
}

/// The store of keys: a file and the system's keyring.
#[derive(Debug, Clone)]
pub struct KeyStore {
    folder: PathBuf,
    keyring: Keyring,
}

/// Whether the keyring is queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyringUse {
    Yes,
    No,
}

impl KeyStore {
    /// Creates a store with `keys.toml` in this directory and with this keyring.
    pub const fn new(folder: PathBuf, keyring: Keyring) -> Self {
        Self { folder, keyring }
    }

    /// Returns the path of the key file.
    pub fn path(&self) -> PathBuf {
        self.folder.join("keys.toml")
    }

    /// Stores a key in the file, with permissions for its owner only.
    pub fn store_in_file(&self, provider: &str, key: &Key) -> Result<(), KeyError> {
        if !key.has_valid_chars() {
            return Err(KeyError::InvalidCharacters);
        }
        file::store(&self.path(), provider, key)
    }

    /// Stores a key in the system's keyring.
    pub async fn store_in_keyring(&self, provider: &str, key: &Key) -> Result<(), KeyError> {
        if !key.has_valid_chars() {
            return Err(KeyError::InvalidCharacters);
        }
        self.keyring.store(provider, key).await.map_err(KeyError::Keyring)
    }

    /// Looks up the key of a provider: in `variable` of the environment, then in the file, then in the keyring.
    pub(super) async fn find(
        &self,
        provider: &str,
        variable: &str,
        environment: &BTreeMap<String, String>,
        keyring: KeyringUse,
    ) -> Result<Option<ResolvedKey>, KeyError> {
        if let Some(key) = environment.get(variable).and_then(|value| Key::new(value)) {
            return Ok(Some(ResolvedKey { key, source: KeySource::Variable(variable.to_owned()) }));
        }
        let path = self.path();
        if let Some(key) = file::find(&path, provider)? {
            return Ok(Some(ResolvedKey { key, source: KeySource::File(path) }));
        }
        match keyring {
            KeyringUse::No => Ok(None),
            KeyringUse::Yes => {
                let key = self.keyring.find(provider).await.map_err(KeyError::Keyring)?;
                Ok(key.map(|key| ResolvedKey { key, source: KeySource::Keyring }))
            }
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
#[path = "unix_tests.rs"]
mod tests;
