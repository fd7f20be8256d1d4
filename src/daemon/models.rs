//! The models that this daemon's sessions may ask, as its owner has configured them.
//!
//! The configuration is looked at when a run needs it, so that a change of it counts from the next turn on. A project's own
//! file can only make it stricter.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::file::ConfigError;
use crate::config::paths::Paths;
use crate::config::project;
use crate::config::settings::{ProviderSettings, Settings, Switch};
use crate::config::watched::Watched;
use crate::provider::keys::{Keyring, Keys};
use crate::provider::limits::Limits;
use crate::provider::registry::{CircuitReport, Models};
use crate::sandbox::tools::Network;

/// The models, and what is configured about them.
#[derive(Debug)]
pub struct House {
    watched: Watched,
    /// Where a project's file is not looked for.
    home: PathBuf,
    keys: Keys,
    limits: Limits,
    current: Mutex<Option<Configured>>,
}

/// The models of a configuration.
type Configured = (BTreeMap<String, ProviderSettings>, Arc<Models>);

impl House {
    /// Knows where the configuration and the keys are; nothing is read yet.
    pub fn new(paths: &Paths, limits: Limits) -> Self {
        let home = paths.home.parent().map_or_else(|| paths.home.clone(), Path::to_path_buf);
        let keys = Keys::new(paths.keys().to_owned(), Keyring::default());
        Self { watched: Watched::new(paths.config.clone()), home, keys, limits, current: Mutex::new(None) }
    }

    /// Returns what the owner has configured.
    pub fn settings(&self) -> Result<Arc<Settings>, ConfigError> {
        self.watched.current()
    }

    /// Returns what holds in a workspace: its project's own files may make it stricter.
    pub fn settings_in(&self, place: &Path) -> Result<Settings, ConfigError> {
        let settings = (*self.watched.current()?).clone();
        let projects = project::around(place, &self.home)?;
        Ok(projects.iter().fold(settings, |settings, each| project::tighten(settings, each.tightening())))
    }

    /// Tells whether tools may talk to other machines from a workspace; a configuration that cannot be read allows nothing.
    pub fn network_in(&self, place: &Path) -> Network {
        match self.settings_in(place).map(|settings| settings.tools.fetch) {
            Ok(Switch::On) => Network::Allowed,
            Ok(Switch::Off) | Err(_) => Network::Off,
        }
    }

    /// Returns the models as they are configured; servers that are known keep their circuit breakers.
    pub fn models(&self, settings: &Settings) -> Arc<Models> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, models)) = current.as_ref().filter(|(known, _)| *known == settings.providers) {
            return Arc::clone(models);
        }
        let models = Arc::new(match current.as_ref() {
            Some((_, before)) => before.reconfigured(&settings.providers),
            None => Models::configured(&settings.providers, self.keys.clone(), self.limits),
        });
        *current = Some((settings.providers.clone(), Arc::clone(&models)));
        models
    }

    /// Returns what is known of every server's circuit breaker.
    pub fn circuits(&self) -> Vec<CircuitReport> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().map_or_else(Vec::new, |(_, models)| models.circuits())
    }
}
