//! Tokens, cost and elapsed time, as text.

use crate::kernel::event::TokenUsage;

/// Tokens and cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UsageTotal {
    /// Input tokens.
    input: u64,
    /// Output tokens.
    output: u64,
    /// Millionths of a US dollar.
    cost: Option<u64>,
}

impl UsageTotal {
    /// Adds the usage of a turn.
    pub(crate) fn add(&mut self, turn: &TokenUsage) {
        self.input += turn.input;
        self.output += turn.output;
        if let Some(cost) = turn.cost {
            *self.cost.get_or_insert(0) += cost;
        }
    }

    /// Returns whether nothing was used.
    pub(crate) const fn is_empty(&self) -> bool {
        self.input + self.output == 0
    }

    /// Returns tokens and cost as text.
    pub(crate) fn words(&self) -> String {
        let short = |tokens: u64| match tokens {
            0..10_000 => group(tokens),
            _ => format!("{}k", group(tokens / 1000)),
        };
        let mut words = format!("{} in, {} out", short(self.input), short(self.output));
        if let Some(cost) = self.cost.filter(|cost| *cost > 0) {
            words += &format!(", {}", dollars(cost));
        }
        words
    }
}

/// Formats a cost in millionths of a US dollar.
pub(crate) fn dollars(cost: u64) -> String {
    format!("${}.{:04}", cost / 1_000_000, cost % 1_000_000 / 100)
}

/// Formats a number with thousands separators.
pub(crate) fn group(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a duration in whole seconds.
pub(crate) fn elapsed(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_grouped_and_a_known_cost_is_shown() {
        let mut total = UsageTotal::default();
        assert!(total.is_empty());
        total.add(&TokenUsage { input: 1234, output: 5, ..TokenUsage::default() });
        assert_eq!(total.words(), "1,234 in, 5 out");
        total.add(&TokenUsage { input: 123_000, output: 5, cost: Some(1_234_500), ..TokenUsage::default() });
        assert_eq!(total.words(), "124k in, 10 out, $1.2345");
    }
}
