//! The price of a model's tokens, and the size of its context window.

use super::ModelTurn;
use crate::agent::compaction::Window;
use crate::agent::price::Price;
use crate::provider::registry::ModelHandle;

impl ModelTurn {
    pub(super) fn window(&self, handle: &ModelHandle) -> Window {
        let tokens = u64::from(handle.window()).min(self.token_ceiling.unwrap_or(u64::MAX));
        self.window_of(tokens)
    }

    pub(super) fn window_of(&self, tokens: u64) -> Window {
        let compact_at = f64::from(self.run_config.settings.limits.compact_at_permille) / 1_000.0;
        Window { tokens, compact_at }
    }

    /// Returns the price of a model: zero for a local one, else the configured price.
    pub(super) fn price(&self, handle: &ModelHandle) -> Option<Price> {
        if handle.dialect().is_local() {
            return Some(Price::default());
        }
        self.run_config.settings.price(handle.model()).map(|price| Price {
            input: price.input,
            output: price.output,
            cache_read: price.cache_read,
            cache_write: price.cache_write,
        })
    }
}
