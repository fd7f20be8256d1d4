//! The budget flags of a run.

use serde_json::{Map, Value};

/// The budget of a run; when a limit is reached, the run pauses and asks for approval.
#[derive(Debug, clap::Args)]
pub(super) struct BudgetArgs {
    /// Cost limit in US dollars; the run pauses and asks when it is reached
    #[arg(long, value_name = "USD", value_parser = dollars)]
    max_cost: Option<f64>,
    /// Limit of model turns; the run pauses and asks when it is reached
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_turns: Option<u32>,
    /// Limit of input and output tokens; the run pauses and asks when it is reached
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_tokens: Option<u64>,
}

impl BudgetArgs {
    /// Returns the limits in their wire format; none without a limit.
    pub(super) fn to_json(&self) -> Option<Value> {
        let mut budget = Map::new();
        if let Some(dollars) = self.max_cost {
            budget.insert("maxCostUsd".into(), dollars.into());
        }
        if let Some(turns) = self.max_turns {
            budget.insert("maxTurns".into(), turns.into());
        }
        if let Some(tokens) = self.max_tokens {
            budget.insert("maxTokens".into(), tokens.into());
        }
        (!budget.is_empty()).then_some(Value::Object(budget))
    }
}

/// Parses an amount of at least a millionth of a dollar.
fn dollars(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(dollars) if (1e-6..=1e9).contains(&dollars) => Ok(dollars),
        Ok(_) => Err("must be between 0.000001 and 1000000000".to_owned()),
        Err(_) => Err("not an amount of US dollars".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_that_are_not_set_are_not_sent() {
        let none = BudgetArgs { max_cost: None, max_turns: None, max_tokens: None };
        assert_eq!(none.to_json(), None);
        let some = BudgetArgs { max_cost: Some(1.5), max_turns: Some(20), max_tokens: Some(100_000) };
        assert_eq!(some.to_json(), Some(json!({"maxCostUsd": 1.5, "maxTurns": 20, "maxTokens": 100_000})));
    }

    #[test]
    fn an_invalid_amount_is_refused() {
        assert_eq!(dollars("0.25"), Ok(0.25));
        for text in ["", "x", "$1", "0", "-1", "NaN", "inf", "1e30"] {
            assert!(dollars(text).is_err(), "{text}");
        }
    }
}
