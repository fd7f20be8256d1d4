//! The system's keyring, accessed through the system's own programs or API; no keyring library is linked.

use std::path::PathBuf;
use std::time::Duration;

use super::{Key, os};

/// The system's keyring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyring {
    /// The program that accesses the keyring, on systems that use one; `None` is the system's default.
    pub program: Option<PathBuf>,
    /// The timeout, which allows for an unlock prompt.
    pub timeout: Duration,
}

impl Default for Keyring {
    fn default() -> Self {
        Self { program: None, timeout: Duration::from_secs(20) }
    }
}

impl Keyring {
    /// Looks up a provider's key; a system without a keyring has none.
    pub(super) async fn find(&self, provider: &str) -> Result<Option<Key>, String> {
        let found = os::find(self.program.as_deref(), provider);
        let found = tokio::time::timeout(self.timeout, found).await.map_err(|_| self.timeout_error())??;
        Ok(found.as_deref().and_then(Key::new))
    }

    /// Stores a provider's key.
    pub(super) async fn store(&self, provider: &str, key: &Key) -> Result<(), String> {
        let stored = os::store(self.program.as_deref(), provider, key.expose());
        tokio::time::timeout(self.timeout, stored).await.map_err(|_| self.timeout_error())?
    }

    fn timeout_error(&self) -> String {
        format!("it did not answer within {} s", self.timeout.as_secs())
    }
}
