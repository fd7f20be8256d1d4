//! Creates the model registry from the user's configuration, for the daemon and for the client's setup dialogue.

use std::collections::BTreeMap;

use super::dialect::Dialect;
use super::keys::KeyStore;
use super::limits::Limits;
use super::model::Thinking;
use super::registry::{ModelRegistry, Settings};
use crate::config::settings::{ProviderKind, ProviderSettings, ThinkingLevel};

impl ModelRegistry {
    /// Creates a registry of the built-in and the configured providers.
    pub fn from_config(providers: &BTreeMap<String, ProviderSettings>, keys: KeyStore, limits: Limits) -> Self {
        Self::with_keys(settings_by_name(providers), keys, limits)
    }

    /// Creates a registry of the built-in and the newly configured providers; known servers keep their circuit
    /// breakers.
    #[must_use]
    pub fn with_config(&self, providers: &BTreeMap<String, ProviderSettings>) -> Self {
        self.with_settings(settings_by_name(providers))
    }
}

fn settings_by_name(providers: &BTreeMap<String, ProviderSettings>) -> BTreeMap<String, Settings> {
    providers.iter().map(|(name, provider)| (name.clone(), Settings::from(provider))).collect()
}

impl Dialect {
    /// Returns the provider kind of this dialect.
    pub(super) const fn kind(self) -> ProviderKind {
        match self {
            Self::Ollama => ProviderKind::Ollama,
            Self::OpenAi => ProviderKind::OpenAi,
            Self::Anthropic => ProviderKind::Anthropic,
        }
    }
}

impl From<&ProviderSettings> for Settings {
    fn from(provider: &ProviderSettings) -> Self {
        Self {
            dialect: match provider.kind {
                ProviderKind::Ollama => Dialect::Ollama,
                ProviderKind::OpenAi => Dialect::OpenAi,
                ProviderKind::Anthropic => Dialect::Anthropic,
            },
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
        }
    }
}
