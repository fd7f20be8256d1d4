//! The providers as a run would use them, for `push config` and hints.

use std::time::Duration;

use crate::client;
use crate::config::file::File;
use crate::config::paths::Paths;
use crate::provider::keys::{Keyring, Keys};
use crate::provider::limits::Limits;
use crate::provider::registry::{Environment, Models, RunningOllama};

/// How long a server or a keyring may take to answer a lookup that the user did not ask for.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Returns the key store that the daemon uses.
pub(crate) fn keys(paths: &Paths, keyring: Keyring) -> Keys {
    Keys::new(paths.keys().to_owned(), keyring)
}

/// Returns the configured models, with short timeouts for lookups.
pub(crate) fn models(paths: &Paths, file: &File) -> Models {
    let keys = keys(paths, Keyring { within: PATIENCE, ..Keyring::default() });
    let limits = Limits { connect: PATIENCE, lookup: PATIENCE, ..Limits::default() };
    Models::configured(&file.settings.providers, keys, limits)
}

/// Returns the environment that a run started here would have.
pub(crate) fn environment() -> Environment {
    client::collect_environment(std::env::vars_os())
}

/// Looks for a running Ollama server, with a short timeout.
pub(crate) async fn find_ollama(models: &Models) -> Option<RunningOllama> {
    tokio::time::timeout(PATIENCE, models.find_ollama(&environment())).await.ok()?
}
