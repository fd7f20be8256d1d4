//! The cost of a turn, where its server does not report it.

use crate::kernel::event::TokenUsage;
use crate::provider::model::Usage;

/// The price of a model, in millionths of a US dollar per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Price {
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Tokens read from the server's cache.
    pub cache_read: u64,
    /// Tokens written to the server's cache.
    pub cache_write: u64,
}

/// Returns the cost of a turn in millionths of a dollar, rounded up: the server's value, or else the price.
pub fn cost(usage: &Usage, price: Option<&Price>) -> Option<u64> {
    usage.cost_microusd.or_else(|| price.map(|price| price.cost_of(usage)))
}

/// Returns the usage of a turn, estimated from `prompt_tokens` input tokens and `written` output bytes if the server counts
/// nothing.
///
/// Without the estimate no limit on tokens or cost would apply to such a server.
pub fn usage_or_estimate(usage: &Usage, price: Option<&Price>, prompt_tokens: u64, written: usize) -> TokenUsage {
    let estimated = usage.input == 0 && usage.output == 0;
    let counted =
        if estimated { Usage { input: prompt_tokens, output: estimate_tokens(written), ..*usage } } else { *usage };
    TokenUsage {
        input: counted.input,
        output: counted.output,
        cache_read: counted.cache_read,
        cache_write: counted.cache_write,
        cost: cost(&counted, price),
        estimated,
    }
}

/// Estimates the number of tokens in a text of this many bytes.
pub const fn estimate_tokens(bytes: usize) -> u64 {
    bytes as u64 / BYTES_PER_TOKEN
}

/// The approximate number of bytes per token.
pub const BYTES_PER_TOKEN: u64 = 4;

impl Price {
    fn cost_of(&self, usage: &Usage) -> u64 {
        let cached = usage.cache_read.saturating_add(usage.cache_write);
        let parts = [
            (usage.input.saturating_sub(cached), self.input),
            (usage.output, self.output),
            (usage.cache_read, self.cache_read),
            (usage.cache_write, self.cache_write),
        ];
        let sum: u128 = parts.iter().map(|(tokens, price)| u128::from(*tokens) * u128::from(*price)).sum();
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: Price = Price { input: 2_000_000, output: 10_000_000, cache_read: 500_000, cache_write: 2_500_000 };

    #[test]
    fn cached_tokens_have_their_own_price_and_are_not_charged_twice() {
        let usage = Usage { input: 100, output: 10, cache_read: 60, cache_write: 20, cost_microusd: None };
        assert_eq!(cost(&usage, Some(&PRICE)), Some(40 + 100 + 30 + 50));
    }

    #[test]
    fn the_cost_reported_by_the_server_takes_precedence() {
        let usage = Usage { input: 100, cost_microusd: Some(7), ..Usage::default() };
        assert_eq!(cost(&usage, Some(&PRICE)), Some(7));
        assert_eq!(cost(&Usage::default(), None), None);
    }

    #[test]
    fn missing_usage_is_estimated_and_priced() {
        let silent = usage_or_estimate(&Usage::default(), Some(&PRICE), 1_000, 400);
        assert_eq!((silent.input, silent.output, silent.estimated), (1_000, 100, true));
        assert_eq!(silent.cost, Some(2_000 + 1_000));
        let counted = usage_or_estimate(&Usage { input: 7, ..Usage::default() }, Some(&PRICE), 1_000, 400);
        assert_eq!((counted.input, counted.output, counted.estimated), (7, 0, false));
        let usage = Usage { cost_microusd: Some(9), ..Usage::default() };
        assert_eq!(usage_or_estimate(&usage, None, 1_000, 400).cost, Some(9), "the server's cost takes precedence");
    }

    #[test]
    fn fractions_of_a_micro_dollar_are_rounded_up() {
        let usage = Usage { input: 1, cache_read: 1, ..Usage::default() };
        assert_eq!(cost(&usage, Some(&PRICE)), Some(1));
    }
}
