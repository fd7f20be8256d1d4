//! The providers as a run would use them, for `push config` and hints.

use std::path::Path;
use std::time::Duration;

use crate::client;
use crate::config::file::{self, ConfigError, ConfigFile};
use crate::config::paths::Paths;
use crate::config::settings::ProviderKind;
use crate::provider::RunningOllama;
use crate::provider::dialect::{self, BUILT_IN};
use crate::provider::keys::{KeyStore, Keyring};
use crate::provider::limits::Limits;
use crate::provider::registry::{Environment, ModelRegistry};

/// How long a server or a keyring may take to answer a lookup that the user did not ask for.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(1500);

/// Returns the kinds of providers that a configuration may name.
pub(crate) fn kinds() -> Vec<ProviderKind> {
    dialect::kinds(BUILT_IN)
}

/// Reads a configuration file; a missing one gives the defaults.
pub(crate) fn read_config(path: &Path) -> Result<ConfigFile, ConfigError> {
    file::read(path, &kinds())
}

/// Returns the key store that the daemon uses.
pub(crate) fn keys(paths: &Paths, keyring: Keyring) -> KeyStore {
    KeyStore::new(paths.keys_dir().to_owned(), keyring)
}

/// Returns the configured models, with short timeouts for lookups.
pub(crate) fn models(paths: &Paths, file: &ConfigFile) -> ModelRegistry {
    let keys = keys(paths, Keyring { timeout: LOOKUP_TIMEOUT, ..Keyring::default() });
    let limits = Limits { connect_timeout: LOOKUP_TIMEOUT, lookup_timeout: LOOKUP_TIMEOUT, ..Limits::default() };
    ModelRegistry::from_config(BUILT_IN, &file.settings.providers, keys, limits)
}

/// Returns the environment that a run started here would have.
pub(crate) fn environment() -> Environment {
    client::collect_environment(std::env::vars_os())
}

/// Looks for a running Ollama server, with a short timeout.
pub(crate) async fn find_ollama(models: &ModelRegistry) -> Option<RunningOllama> {
    tokio::time::timeout(LOOKUP_TIMEOUT, models.detect_ollama(&environment())).await.ok()?
}
