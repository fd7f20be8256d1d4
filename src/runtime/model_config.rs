//! The models that sessions may use, as the owner configured them.
//!
//! The configuration is read when a run starts, so that a change applies from the next run. A project file can only
//! tighten it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::bounded_io::{FileTaskError, FileTasks};
use crate::config::cache::ConfigCache;
use crate::config::file::ConfigError;
use crate::config::paths::Paths;
use crate::config::project;
use crate::config::sandbox::{SandboxKind, SandboxSettings};
use crate::config::settings::{ProviderSettings, RunLimits, Settings, Switch};
use crate::kernel::event::Budget;
use crate::provider::dialect::{Dialects, kinds};
use crate::provider::keys::{KeyStore, Keyring};
use crate::provider::limits::Limits;
use crate::provider::registry::{CircuitReport, ModelRegistry};
use crate::tools::Network;

/// The configured models and their settings.
#[derive(Debug)]
pub struct ModelConfig {
    config: ConfigCache,
    /// The dialects that providers may have.
    dialects: Dialects,
    /// The home directory, in which no project file is searched.
    home: PathBuf,
    keys: KeyStore,
    limits: Limits,
    /// The threads that read project files.
    files: FileTasks,
    registry: Mutex<Option<CachedRegistry>>,
}

/// The configuration of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunConfig {
    /// The user's settings, tightened by the project.
    pub settings: Settings,
    /// The limits of the project, which no request can exceed.
    pub project_limits: RunLimits,
    /// Whether the project forbids sessions without a sandbox.
    pub requires_sandbox: bool,
}

impl RunConfig {
    /// Returns the budget of a run: the requested values, else the configured ones, within the project's limits.
    pub fn budget(&self, requested: &Budget) -> Budget {
        let (set, bounds) = (&self.settings.limits, &self.project_limits);
        let least = |requested: Option<u64>, bound: Option<u64>| requested.into_iter().chain(bound).min();
        let turns = requested.turns.or(set.max_turns.map(u64::from));
        Budget {
            cost: least(requested.cost.or(set.max_cost_micro_usd), bounds.max_cost_micro_usd),
            turns: least(turns, bounds.max_turns.map(u64::from)),
            tokens: least(requested.tokens.or(set.max_tokens), bounds.max_tokens),
        }
    }

    /// Returns whether tools may use the network.
    pub const fn network(&self) -> Network {
        match self.settings.tools.fetch {
            Switch::On => Network::Allowed,
            Switch::Off => Network::Off,
        }
    }
}

/// The provider settings, and the registry that was built from them.
type CachedRegistry = (BTreeMap<String, ProviderSettings>, Arc<ModelRegistry>);

impl ModelConfig {
    /// Creates the configuration from the paths of its file and of the keys; reads nothing yet.
    pub fn new(paths: &Paths, dialects: Dialects, limits: Limits, files: FileTasks) -> Self {
        let home = paths.home.parent().map_or_else(|| paths.home.clone(), Path::to_path_buf);
        let keys = KeyStore::new(paths.keys_dir().to_owned(), Keyring::default());
        let config = ConfigCache::new(paths.config.clone(), kinds(dialects));
        Self { config, dialects, home, keys, limits, files, registry: Mutex::new(None) }
    }

    /// Returns the owner's settings.
    pub fn settings(&self) -> Result<Arc<Settings>, ConfigError> {
        self.config.current()
    }

    /// Returns the configuration of a run in a workspace, tightened by the project files.
    pub async fn run_config(&self, workspace: &Path) -> Result<RunConfig, ConfigError> {
        let own = (*self.config.current()?).clone();
        let own = Settings { limits: own.limits.with_defaults(), ..own };
        let (from, home, kinds) = (workspace.to_owned(), self.home.clone(), kinds(self.dialects));
        let projects = self.files.run_in(workspace, move || project::load_for(&from, &home, &kinds)).await;
        let no_answer = |why: FileTaskError| ConfigError::NoAnswer { path: workspace.to_owned(), why: why.to_string() };
        let projects = projects.map_err(no_answer)??;
        let tightened =
            |settings| projects.iter().fold(settings, |settings, each| project::tighten(settings, each.tightening()));
        // The most permissive settings, so that only the project's own limits remain.
        let free = Settings {
            sandbox: SandboxSettings { provider: SandboxKind::None, ..SandboxSettings::default() },
            ..Settings::default()
        };
        let theirs = tightened(free);
        let wants_walls = theirs.sandbox.provider == SandboxKind::Local;
        Ok(RunConfig { project_limits: theirs.limits, requires_sandbox: wants_walls, settings: tightened(own) })
    }

    /// Returns the registry for these settings; known servers keep their circuit breakers.
    pub fn registry(&self, settings: &Settings) -> Arc<ModelRegistry> {
        let mut current = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, models)) = current.as_ref().filter(|(known, _)| *known == settings.providers) {
            return Arc::clone(models);
        }
        let models = Arc::new(match current.as_ref() {
            Some((_, before)) => before.with_config(&settings.providers),
            None => ModelRegistry::from_config(self.dialects, &settings.providers, self.keys.clone(), self.limits),
        });
        *current = Some((settings.providers.clone(), Arc::clone(&models)));
        models
    }

    /// Returns the state of every server's circuit breaker.
    pub fn circuits(&self) -> Vec<CircuitReport> {
        let current = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().map_or_else(Vec::new, |(_, models)| models.circuits())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_run_budget_overrides_the_configuration_within_the_project_limits() {
        let limits = |turns, tokens| RunLimits { max_turns: turns, max_tokens: tokens, ..RunLimits::default() };
        let rules = |own, bounds| RunConfig {
            settings: Settings { limits: own, ..Settings::default() },
            project_limits: bounds,
            requires_sandbox: false,
        };
        let requested = Budget { turns: Some(9), tokens: Some(900), cost: None };
        let free = rules(limits(Some(5), None), limits(None, None));
        assert_eq!(free.budget(&requested), requested);
        assert_eq!(free.budget(&Budget::default()), Budget { turns: Some(5), ..Budget::default() });
        let bound = rules(limits(Some(3), Some(500)), limits(Some(3), Some(500)));
        assert_eq!(bound.budget(&requested), Budget { turns: Some(3), tokens: Some(500), cost: None });
        let less = Budget { turns: Some(1), tokens: Some(100), cost: Some(1) };
        assert_eq!(bound.budget(&less), less);
    }

    #[tokio::test]
    async fn a_project_cannot_raise_a_default_limit() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().join("work");
        std::fs::create_dir_all(workspace.join(".push")).unwrap();
        let home = |name: &str| (name == "HOME").then(|| folder.path().as_os_str().to_owned());
        let paths = Paths::from_environment(&home).unwrap();
        let model_config = ModelConfig::new(&paths, &[], Limits::default(), FileTasks::new(1, Duration::from_secs(60)));
        for (written, turns) in [("", 200), ("[limits]\nmax_turns = 900\n", 200), ("[limits]\nmax_turns = 9\n", 9)] {
            std::fs::write(workspace.join(".push/config.toml"), written).unwrap();
            let budget = model_config.run_config(&workspace).await.unwrap().budget(&Budget::default());
            assert_eq!(budget.turns, Some(turns), "{written}");
        }
    }
}
