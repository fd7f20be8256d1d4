//! What a turn costs, where its server does not say.

use crate::provider::model::Usage;

/// Prices of a model, in US dollars for a million tokens, which is millionths of a dollar for one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// A token read.
    pub input: f64,
    /// A token written.
    pub output: f64,
    /// A token read from the server's cache.
    pub cache_read: f64,
    /// A token written to the server's cache.
    pub cache_write: f64,
}

/// Returns what a turn cost in millionths of a dollar, rounded up: what its server says, or what the price says.
pub fn cost(usage: &Usage, price: Option<&Price>) -> Option<u64> {
    usage.cost_microusd.or_else(|| price.map(|price| price.of(usage)))
}

impl Price {
    fn of(&self, usage: &Usage) -> u64 {
        let cached = usage.cache_read.saturating_add(usage.cache_write);
        let parts = [
            (usage.input.saturating_sub(cached), self.input),
            (usage.output, self.output),
            (usage.cache_read, self.cache_read),
            (usage.cache_write, self.cache_write),
        ];
        let sum: f64 = parts.iter().map(|(tokens, price)| as_float(*tokens) * price).sum();
        // A float that is too large or no number becomes the nearest number there is.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "that is what is wanted")]
        {
            sum.ceil() as u64
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "nobody pays for that many tokens to the last one")]
const fn as_float(tokens: u64) -> f64 {
    tokens as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: Price = Price { input: 2.0, output: 10.0, cache_read: 0.5, cache_write: 2.5 };

    #[test]
    fn cached_tokens_have_their_own_price_and_are_not_paid_twice() {
        let usage = Usage { input: 100, output: 10, cache_read: 60, cache_write: 20, cost_microusd: None };
        assert_eq!(cost(&usage, Some(&PRICE)), Some(40 + 100 + 30 + 50));
    }

    #[test]
    fn what_the_server_says_counts() {
        let usage = Usage { input: 100, cost_microusd: Some(7), ..Usage::default() };
        assert_eq!(cost(&usage, Some(&PRICE)), Some(7));
        assert_eq!(cost(&Usage::default(), None), None);
    }

    #[test]
    fn a_part_of_a_millionth_is_rounded_up() {
        let usage = Usage { input: 1, cache_read: 1, ..Usage::default() };
        assert_eq!(cost(&usage, Some(&PRICE)), Some(1));
    }
}
