//! Sums up the usage of a run.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::kernel::event::TurnUsage;

/// Tokens and cost so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Usage {
    models: BTreeSet<String>,
    counts: [u64; 4],
    cost: Cost,
    /// Whether some of the tokens are estimated.
    estimated: bool,
}

/// The cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Cost {
    /// Nothing was used.
    #[default]
    None,
    /// In millionths of a US dollar.
    Known(u64),
    /// Some usage has no price, so a sum would be too low.
    Unknown,
}

impl Usage {
    /// Adds the usage of one turn.
    pub(super) fn add(&mut self, turn: &TurnUsage) {
        if !turn.model.is_empty() {
            self.models.insert(turn.model.clone());
        }
        let usage = &turn.usage;
        let more = [usage.input, usage.output, usage.cache_read, usage.cache_write];
        for (count, more) in self.counts.iter_mut().zip(more) {
            *count = count.saturating_add(more);
        }
        self.estimated |= usage.estimated;
        self.cost = match (self.cost, usage.cost) {
            (Cost::None, Some(more)) => Cost::Known(more),
            (Cost::Known(sum), Some(more)) => Cost::Known(sum.saturating_add(more)),
            (Cost::Unknown, _) | (Cost::None | Cost::Known(_), None) => Cost::Unknown,
        };
    }

    /// Returns the usage as JSON; none without any.
    pub(super) fn to_json(&self) -> Option<Value> {
        if self.cost == Cost::None {
            return None;
        }
        let mut usage = json!({"models": self.models});
        for (count, name) in self.counts.iter().zip(COUNTERS) {
            usage[name] = json!(count);
        }
        if let Cost::Known(millionths) = self.cost {
            usage["costUsd"] = json!(millionths as f64 / 1e6);
        }
        if self.estimated {
            usage["estimated"] = json!(true);
        }
        Some(usage)
    }
}

const COUNTERS: [&str; 4] = ["inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::test_events::event;
    use crate::kernel::event::{EventKind, RunEvent};

    #[test]
    fn turns_are_added_up() {
        let usage = after(&[
            json!({"model": "b", "inputTokens": 10, "outputTokens": 2, "cacheReadTokens": 1, "costMicroUsd": 100_000}),
            json!({"model": "a", "inputTokens": 5, "outputTokens": 3, "cacheWriteTokens": 4, "costMicroUsd": 200_001}),
        ]);
        assert_eq!(
            usage,
            Some(json!({"models": ["a", "b"], "inputTokens": 15, "outputTokens": 5, "cacheReadTokens": 1,
                "cacheWriteTokens": 4, "costUsd": 0.300_001}))
        );
    }

    #[test]
    fn an_incomplete_cost_is_left_out() {
        let usage = after(&[json!({"inputTokens": 1, "costMicroUsd": 100_000}), json!({"inputTokens": 1})]).unwrap();
        assert_eq!((usage.get("costUsd"), &usage["inputTokens"]), (None, &json!(2)));
        assert_eq!(after(&[]), None);
        let usage = after(&[json!({"inputTokens": 1, "estimated": true}), json!({"inputTokens": 1})]).unwrap();
        assert_eq!(usage["estimated"], true, "some of it nobody counted");
    }

    fn after(payloads: &[Value]) -> Option<Value> {
        let mut usage = Usage::default();
        for payload in payloads {
            let event = event("usage", payload.clone());
            let Some(EventKind::Run(RunEvent::TurnUsage(turn))) = event.recorded() else {
                panic!("not a usage: {event:?}")
            };
            usage.add(turn);
        }
        usage.to_json()
    }
}
