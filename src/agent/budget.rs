//! What a run may use, and what it says when that is used up.

use serde_json::json;

use crate::kernel::event::Budget;
use crate::kernel::state::Spent;

/// A limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breach {
    /// Of what.
    pub of: Limited,
    /// How much may be used, raises included.
    pub limit: u64,
    /// How much was used.
    pub spent: u64,
    /// How much one raise adds.
    pub step: u64,
}

/// What a budget limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    /// Money, in millionths of a US dollar.
    Cost,
    /// Turns of the model.
    Turns,
    /// Tokens, read and written.
    Tokens,
}

impl Breach {
    /// Finds a limit that was reached; each raise allows as much again.
    pub fn find(budget: &Budget, spent: &Spent) -> Option<Self> {
        let limits = [
            (Limited::Cost, budget.cost, spent.cost),
            (Limited::Turns, budget.turns, spent.turns),
            (Limited::Tokens, budget.tokens, spent.tokens),
        ];
        limits.into_iter().find_map(|(of, limit, used)| {
            let step = limit?;
            let limit = step.saturating_mul(spent.raises.saturating_add(1));
            (used >= limit).then_some(Self { of, limit, spent: used, step })
        })
    }

    /// Says what is asked, for people.
    pub fn summary(&self) -> String {
        let Self { of, limit, spent, step } = *self;
        match of {
            Limited::Cost => format!(
                "the run has cost {} of {}; going on allows {} more",
                dollars(spent),
                dollars(limit),
                dollars(step)
            ),
            Limited::Turns => {
                format!("the run has taken {spent} of {limit} turns; going on allows {step} more")
            }
            Limited::Tokens => {
                format!("the run has used {spent} of {limit} tokens; going on allows {step} more")
            }
        }
    }

    /// Says the same for programs: a JSON object.
    pub fn details(&self) -> String {
        let of = match self.of {
            Limited::Cost => "costMicroUsd",
            Limited::Turns => "turns",
            Limited::Tokens => "tokens",
        };
        json!({"of": of, "limit": self.limit, "spent": self.spent, "raise": self.step}).to_string()
    }
}

/// Spells an amount of millionths of a dollar, to the cent where that is enough.
fn dollars(millionths: u64) -> String {
    let (whole, rest) = (millionths / 1_000_000, millionths % 1_000_000);
    if rest.is_multiple_of(10_000) {
        format!("${whole}.{:02}", rest / 10_000)
    } else {
        format!("${whole}.{rest:06}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_reached_when_all_of_it_is_used() {
        let budget = Budget { cost: Some(1_000), turns: Some(3), tokens: None };
        let spent = |cost, turns, raises| Spent { cost, turns, tokens: 1 << 40, raises };
        assert_eq!(Breach::find(&budget, &spent(999, 2, 0)), None);
        let breach = Breach::find(&budget, &spent(1_000, 2, 0)).unwrap();
        assert_eq!(
            (breach.of, breach.limit, breach.spent, breach.step),
            (Limited::Cost, 1_000, 1_000, 1_000)
        );
        assert_eq!(Breach::find(&budget, &spent(0, 3, 0)).unwrap().of, Limited::Turns);
        assert_eq!(Breach::find(&Budget::default(), &spent(9, 9, 0)), None, "no limit was set");
    }

    #[test]
    fn a_raise_allows_as_much_again() {
        let budget = Budget { cost: None, turns: None, tokens: Some(10) };
        let spent = |tokens, raises| Spent { tokens, raises, ..Spent::default() };
        assert_eq!(Breach::find(&budget, &spent(19, 1)), None);
        let breach = Breach::find(&budget, &spent(20, 1)).unwrap();
        assert_eq!(breach.summary(), "the run has used 20 of 20 tokens; going on allows 10 more");
    }

    #[test]
    fn money_is_spelled_to_the_cent_where_that_is_enough() {
        assert_eq!(dollars(1_500_000), "$1.50");
        assert_eq!(dollars(412), "$0.000412");
        assert_eq!(dollars(0), "$0.00");
    }
}
