//! What the models of a run have used, added up.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::client::Event;

/// What was used so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Usage {
    models: BTreeSet<String>,
    counts: [u64; 4],
    cost: Cost,
}

/// What it cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Cost {
    /// Nothing was used.
    #[default]
    None,
    /// So many US dollars.
    Known(f64),
    /// Some of it has no price, so the sum would be too low.
    Unknown,
}

impl Usage {
    /// Adds what one turn used.
    pub(super) fn add(&mut self, event: &Event) {
        if !event.text("model").is_empty() {
            self.models.insert(event.text("model").to_owned());
        }
        for (count, name) in self.counts.iter_mut().zip(NAMES) {
            let more = event.payload.get(name).and_then(Value::as_u64).unwrap_or_default();
            *count = count.saturating_add(more);
        }
        let dollars = event.payload.get("costUsd").and_then(Value::as_f64);
        self.cost = match (self.cost, dollars) {
            (Cost::None, Some(dollars)) => Cost::Known(dollars),
            (Cost::Known(sum), Some(dollars)) => Cost::Known(sum + dollars),
            (Cost::Unknown, _) | (Cost::None | Cost::Known(_), None) => Cost::Unknown,
        };
    }

    /// Returns it for programs; none when nothing was used.
    pub(super) fn to_json(&self) -> Option<Value> {
        if self.cost == Cost::None {
            return None;
        }
        let mut usage = json!({"models": self.models});
        for (count, name) in self.counts.iter().zip(NAMES) {
            usage[name] = json!(count);
        }
        if let Cost::Known(dollars) = self.cost {
            // A sum of fractions of cents is not exact to the last digit, and nobody is charged less than a millionth.
            usage["costUsd"] = json!((dollars * 1e6).round() / 1e6);
        }
        Some(usage)
    }
}

const NAMES: [&str; 4] = ["inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_added_up() {
        let usage = after(&[
            json!({"model": "b", "inputTokens": 10, "outputTokens": 2, "cacheReadTokens": 1, "costUsd": 0.1}),
            json!({"model": "a", "inputTokens": 5, "outputTokens": 3, "cacheWriteTokens": 4, "costUsd": 0.2}),
        ]);
        assert_eq!(
            usage,
            Some(json!({"models": ["a", "b"], "inputTokens": 15, "outputTokens": 5, "cacheReadTokens": 1,
                "cacheWriteTokens": 4, "costUsd": 0.3}))
        );
    }

    #[test]
    fn a_cost_that_is_not_known_in_full_is_not_told() {
        let usage = after(&[json!({"inputTokens": 1, "costUsd": 0.1}), json!({"inputTokens": 1})]).unwrap();
        assert_eq!((usage.get("costUsd"), &usage["inputTokens"]), (None, &json!(2)));
        assert_eq!(after(&[]), None);
    }

    fn after(payloads: &[Value]) -> Option<Value> {
        let mut usage = Usage::default();
        for payload in payloads {
            usage.add(&Event {
                session: "s".into(),
                run: None,
                seq: 1,
                at: 0,
                kind: "usage".into(),
                payload: payload.clone(),
                line: String::new(),
            });
        }
        usage.to_json()
    }
}
