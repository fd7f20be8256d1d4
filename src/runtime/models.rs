//! The models that sessions may use, as the owner configured them.
//!
//! The configuration is read when a run starts, so that a change applies from the next run. A project file can only
//! tighten it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::bounded_io::{FileTasks, NoAnswer};
use crate::config::file::ConfigError;
use crate::config::paths::Paths;
use crate::config::project;
use crate::config::sandbox::{SandboxChoice, SandboxSettings};
use crate::config::settings::{ProviderSettings, RunLimits, Settings, Switch};
use crate::config::watched::Watched;
use crate::kernel::event::Budget;
use crate::provider::keys::{Keyring, Keys};
use crate::provider::limits::Limits;
use crate::provider::registry::{CircuitReport, Models};
use crate::tools::Network;

/// The configured models and their settings.
#[derive(Debug)]
pub struct House {
    watched: Watched,
    /// The home directory, in which no project file is searched.
    home: PathBuf,
    keys: Keys,
    limits: Limits,
    /// The threads that read project files.
    files: FileTasks,
    current: Mutex<Option<Configured>>,
}

/// The configuration of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// The user's settings, tightened by the project.
    pub settings: Settings,
    /// The limits of the project, which no request can exceed.
    pub bounds: RunLimits,
    /// Whether the project forbids sessions without a sandbox.
    pub wants_walls: bool,
}

impl Rules {
    /// Returns the budget of a run: the requested values, else the configured ones, within the project's limits.
    pub fn budget(&self, said: &Budget) -> Budget {
        let (set, bounds) = (&self.settings.limits, &self.bounds);
        let least = |said: Option<u64>, bound: Option<u64>| said.into_iter().chain(bound).min();
        let turns = said.turns.or(set.max_turns.map(u64::from));
        Budget {
            cost: least(said.cost.or(set.max_cost_micro_usd), bounds.max_cost_micro_usd),
            turns: least(turns, bounds.max_turns.map(u64::from)),
            tokens: least(said.tokens.or(set.max_tokens), bounds.max_tokens),
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
type Configured = (BTreeMap<String, ProviderSettings>, Arc<Models>);

impl House {
    /// Creates the configuration from the paths of its file and of the keys; reads nothing yet.
    pub fn new(paths: &Paths, limits: Limits, files: FileTasks) -> Self {
        let home = paths.home.parent().map_or_else(|| paths.home.clone(), Path::to_path_buf);
        let keys = Keys::new(paths.keys().to_owned(), Keyring::default());
        let watched = Watched::new(paths.config.clone());
        Self { watched, home, keys, limits, files, current: Mutex::new(None) }
    }

    /// Returns the owner's settings.
    pub fn settings(&self) -> Result<Arc<Settings>, ConfigError> {
        self.watched.current()
    }

    /// Returns the configuration of a run in a workspace, tightened by the project files.
    pub async fn rules_in(&self, place: &Path) -> Result<Rules, ConfigError> {
        let own = (*self.watched.current()?).clone();
        let own = Settings { limits: own.limits.with_usual(), ..own };
        let (from, home) = (place.to_owned(), self.home.clone());
        let projects = self.files.run_in(place, move || project::around(&from, &home)).await;
        let no_answer =
            |why: NoAnswer| ConfigError::NoAnswer { path: place.to_owned(), why: why.to_string() };
        let projects = projects.map_err(no_answer)??;
        let tightened = |settings| {
            projects.iter().fold(settings, |settings, each| project::tighten(settings, each.tightening()))
        };
        // The most permissive settings, so that only the project's own limits remain.
        let free = Settings {
            sandbox: SandboxSettings { provider: SandboxChoice::None, ..SandboxSettings::default() },
            ..Settings::default()
        };
        let theirs = tightened(free);
        let wants_walls = theirs.sandbox.provider == SandboxChoice::Local;
        Ok(Rules { bounds: theirs.limits, wants_walls, settings: tightened(own) })
    }

    /// Returns the registry for these settings; known servers keep their circuit breakers.
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

    /// Returns the state of every server's circuit breaker.
    pub fn circuits(&self) -> Vec<CircuitReport> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().map_or_else(Vec::new, |(_, models)| models.circuits())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_said_for_a_run_goes_before_what_is_configured_and_never_past_its_project() {
        let limits =
            |turns, tokens| RunLimits { max_turns: turns, max_tokens: tokens, ..RunLimits::default() };
        let rules = |own, bounds| Rules {
            settings: Settings { limits: own, ..Settings::default() },
            bounds,
            wants_walls: false,
        };
        let said = Budget { turns: Some(9), tokens: Some(900), cost: None };
        let free = rules(limits(Some(5), None), limits(None, None));
        assert_eq!(free.budget(&said), said);
        assert_eq!(free.budget(&Budget::default()), Budget { turns: Some(5), ..Budget::default() });
        let bound = rules(limits(Some(3), Some(500)), limits(Some(3), Some(500)));
        assert_eq!(bound.budget(&said), Budget { turns: Some(3), tokens: Some(500), cost: None });
        let less = Budget { turns: Some(1), tokens: Some(100), cost: Some(1) };
        assert_eq!(bound.budget(&less), less);
    }

    #[tokio::test]
    async fn a_project_raises_no_limit_that_nobody_has_set() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("work");
        std::fs::create_dir_all(place.join(".push")).unwrap();
        let home = |name: &str| (name == "HOME").then(|| folder.path().as_os_str().to_owned());
        let paths = Paths::from_environment(&home).unwrap();
        let house = House::new(&paths, Limits::default(), FileTasks::new(1, Duration::from_secs(60)));
        for (written, turns) in
            [("", 200), ("[limits]\nmax_turns = 900\n", 200), ("[limits]\nmax_turns = 9\n", 9)]
        {
            std::fs::write(place.join(".push/config.toml"), written).unwrap();
            let budget = house.rules_in(&place).await.unwrap().budget(&Budget::default());
            assert_eq!(budget.turns, Some(turns), "{written}");
        }
    }
}
