//! Creates the model registry from the user's configuration, for the daemon and for the client's setup dialogue.

use std::collections::BTreeMap;

use super::dialect::{Dialects, find};
use super::keys::KeyStore;
use super::limits::Limits;
use super::model::Thinking;
use super::registry::{ModelRegistry, Settings};
use crate::config::settings::{ProviderSettings, ThinkingLevel};

impl ModelRegistry {
    /// Creates a registry of the configured providers and those that are built into `dialects`.
    pub fn from_config(
        dialects: Dialects,
        providers: &BTreeMap<String, ProviderSettings>,
        keys: KeyStore,
        limits: Limits,
    ) -> Self {
        Self::with_keys(dialects, settings_by_name(dialects, providers), keys, limits)
    }

    /// Creates a registry of the built-in and the newly configured providers; known servers keep their circuit
    /// breakers.
    #[must_use]
    pub fn with_config(&self, providers: &BTreeMap<String, ProviderSettings>) -> Self {
        self.with_settings(settings_by_name(self.dialects(), providers))
    }
}

/// Returns the settings of the registry. A provider of a kind that is not in `dialects` is left out, so that its use is
/// answered with the list of known providers.
fn settings_by_name(dialects: Dialects, providers: &BTreeMap<String, ProviderSettings>) -> BTreeMap<String, Settings> {
    let known = providers.iter().filter_map(|(name, provider)| Some((name.clone(), settings(dialects, provider)?)));
    known.collect()
}

fn settings(dialects: Dialects, provider: &ProviderSettings) -> Option<Settings> {
    Some(Settings {
        dialect: find(dialects, provider.kind.name)?,
        base_url: provider.base_url.clone(),
        headers: provider.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        model: provider.model.clone(),
        context_tokens: provider.context_window,
        thinking: match provider.thinking {
            ThinkingLevel::Usual => Thinking::ServerDefault,
            ThinkingLevel::Off => Thinking::Off,
            ThinkingLevel::Low => Thinking::Low,
            ThinkingLevel::Medium => Thinking::Medium,
            ThinkingLevel::High => Thinking::High,
        },
    })
}
