//! The providers as a run would find them, for those who set up.

use std::time::Duration;

use crate::client;
use crate::config::file::File;
use crate::config::paths::Paths;
use crate::provider::keys::{Keyring, Keys};
use crate::provider::limits::Limits;
use crate::provider::registry::{Environment, Models, RunningOllama};

/// How long a server or a keyring may take that nobody has asked for by name.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Returns the keys, at the places where the daemon looks for them.
pub(crate) fn keys(paths: &Paths, keyring: Keyring) -> Keys {
    Keys::new(paths.keys().to_owned(), keyring)
}

/// Returns the models that are configured, to be looked at and not to be asked: with little patience.
pub(crate) fn models(paths: &Paths, file: &File) -> Models {
    let keys = keys(paths, Keyring { within: PATIENCE, ..Keyring::default() });
    let limits = Limits { connect: PATIENCE, lookup: PATIENCE, ..Limits::default() };
    Models::configured(&file.settings.providers, keys, limits)
}

/// Returns the variables that a run begun here would have.
pub(crate) fn environment() -> Environment {
    client::collect_environment(std::env::vars_os())
}

/// Looks for an Ollama that runs, and does not wait long.
pub(crate) async fn find_ollama(models: &Models) -> Option<RunningOllama> {
    tokio::time::timeout(PATIENCE, models.find_ollama(&environment())).await.ok()?
}
