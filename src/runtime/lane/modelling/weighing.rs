//! The price of a model's tokens, and the size of its context window.

use super::Table;
use crate::agent::compaction::Window;
use crate::agent::price::Price;
use crate::config::settings::ProviderKind;
use crate::provider::registry::Ready;

impl Table {
    pub(super) fn window(&self, ready: &Ready) -> Window {
        let tokens = u64::from(ready.window()).min(self.ceiling.unwrap_or(u64::MAX));
        self.window_of(tokens)
    }

    pub(super) fn window_of(&self, tokens: u64) -> Window {
        let compact_at = f64::from(self.rules.settings.limits.compact_at_permille) / 1_000.0;
        Window { tokens, compact_at }
    }

    fn kind(&self, ready: &Ready) -> ProviderKind {
        let set = self.rules.settings.providers.get(ready.provider()).map(|provider| provider.kind);
        set.or_else(|| ProviderKind::parse(ready.provider())).unwrap_or(ProviderKind::OpenAi)
    }

    /// Returns the price of a model: zero for a local one, else the configured price.
    pub(super) fn price(&self, ready: &Ready) -> Option<Price> {
        if self.kind(ready) == ProviderKind::Ollama {
            return Some(Price::default());
        }
        self.rules.settings.price(ready.model()).map(|price| Price {
            input: price.input,
            output: price.output,
            cache_read: price.cache_read,
            cache_write: price.cache_write,
        })
    }
}
