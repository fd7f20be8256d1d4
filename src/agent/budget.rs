//! The budget of a run, and the question when it is exhausted.

use serde_json::json;

use crate::kernel::event::Budget;
use crate::kernel::gate::BudgetResource;
use crate::kernel::state::RunUsage;

/// A limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExceededLimit {
    /// The limited resource.
    pub kind: BudgetResource,
    /// The limit, raises included.
    pub limit: u64,
    /// The amount used.
    pub spent: u64,
    /// The amount that one raise adds.
    pub step: u64,
}

impl ExceededLimit {
    /// Returns the first limit that was reached.
    ///
    /// A raise allows the original limit again, counted from the usage at the time of the raise.
    pub fn find(budget: &Budget, spent: &RunUsage) -> Option<Self> {
        let limits = [
            (BudgetResource::Cost, budget.cost, spent.cost, spent.baseline.cost),
            (BudgetResource::Turns, budget.turns, spent.turns, spent.baseline.turns),
            (BudgetResource::Tokens, budget.tokens, spent.tokens, spent.baseline.tokens),
        ];
        limits.into_iter().find_map(|(of, set, spent, raised)| {
            let set = set?;
            let step = set.max(1);
            let limit = raised.map_or(set, |from| from.saturating_add(step));
            (spent >= limit).then_some(Self { kind: of, limit, spent, step })
        })
    }

    /// Returns the limit of the day, if all runs together have reached it.
    ///
    /// A raise allows this run to cost the same amount again, counted from its cost at the time of the raise.
    pub fn find_daily(limit: u64, spent_today: u64, run: &RunUsage) -> Option<Self> {
        let step = limit.max(1);
        let is_allowed = run.daily_baseline.is_some_and(|from| run.cost < from.saturating_add(step));
        (spent_today >= limit && !is_allowed).then_some(Self {
            kind: BudgetResource::DailyCost,
            limit,
            spent: spent_today,
            step,
        })
    }

    /// Returns the question for people.
    pub fn summary(&self) -> String {
        let Self { kind: of, limit, spent, step } = *self;
        match of {
            BudgetResource::Cost => format!(
                "the run has cost {} of {}; approving allows {} more",
                format_dollars(spent),
                format_dollars(limit),
                format_dollars(step)
            ),
            BudgetResource::DailyCost => format!(
                "all runs of today have cost {} of {}; approving allows this run {} more",
                format_dollars(spent),
                format_dollars(limit),
                format_dollars(step)
            ),
            BudgetResource::Turns => {
                format!("the run has taken {spent} of {limit} turns; approving allows {step} more")
            }
            BudgetResource::Tokens => {
                format!("the run has used {spent} of {limit} tokens; approving allows {step} more")
            }
        }
    }

    /// Returns the same for programs: a JSON object.
    pub fn details(&self) -> String {
        let of = match self.kind {
            BudgetResource::Cost => "costMicroUsd",
            BudgetResource::DailyCost => "dailyCostMicroUsd",
            BudgetResource::Turns | BudgetResource::Tokens => self.kind.name(),
        };
        json!({"of": of, "limit": self.limit, "spent": self.spent, "raise": self.step}).to_string()
    }
}

/// Formats millionths of a dollar, to the cent where that is exact.
fn format_dollars(millionths: u64) -> String {
    let (whole, rest) = (millionths / 1_000_000, millionths % 1_000_000);
    if rest.is_multiple_of(10_000) { format!("${whole}.{:02}", rest / 10_000) } else { format!("${whole}.{rest:06}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_reached_when_all_of_it_is_used() {
        let budget = Budget { cost: Some(1_000), turns: Some(3), tokens: None };
        let spent = |cost, turns| RunUsage { cost, turns, tokens: 1 << 40, ..RunUsage::default() };
        assert_eq!(ExceededLimit::find(&budget, &spent(999, 2)), None);
        let exceeded = ExceededLimit::find(&budget, &spent(1_000, 2)).unwrap();
        assert_eq!(
            (exceeded.kind, exceeded.limit, exceeded.spent, exceeded.step),
            (BudgetResource::Cost, 1_000, 1_000, 1_000)
        );
        assert_eq!(ExceededLimit::find(&budget, &spent(0, 3)).unwrap().kind, BudgetResource::Turns);
        assert_eq!(ExceededLimit::find(&Budget::default(), &spent(9, 9)), None, "no limit was set");
    }

    #[test]
    fn a_raise_allows_as_much_again_of_what_it_was_asked_for() {
        let budget = Budget { cost: Some(5), turns: None, tokens: Some(10) };
        let raised = Budget { tokens: Some(35), ..Budget::default() };
        let spent = |cost, tokens| RunUsage { cost, tokens, baseline: raised, ..RunUsage::default() };
        assert_eq!(ExceededLimit::find(&budget, &spent(4, 44)), None, "ten more than had been used by then");
        let exceeded = ExceededLimit::find(&budget, &spent(4, 45)).unwrap();
        assert_eq!(exceeded.summary(), "the run has used 45 of 45 tokens; approving allows 10 more");
        assert_eq!(
            ExceededLimit::find(&budget, &spent(5, 44)).unwrap().kind,
            BudgetResource::Cost,
            "nobody raised that"
        );
        let nothing = Budget { turns: Some(0), ..Budget::default() };
        let once = RunUsage { baseline: Budget { turns: Some(0), ..Budget::default() }, ..RunUsage::default() };
        assert_eq!(ExceededLimit::find(&nothing, &once), None, "a raise has an effect, whatever the limit");
    }

    #[test]
    fn the_limit_of_the_day_counts_all_runs_and_a_raise_counts_this_one() {
        let run = |cost, daily_baseline| RunUsage { cost, daily_baseline, ..RunUsage::default() };
        assert_eq!(ExceededLimit::find_daily(100, 99, &run(99, None)), None);
        let exceeded = ExceededLimit::find_daily(100, 250, &run(0, None)).unwrap();
        assert_eq!(
            (exceeded.kind, exceeded.limit, exceeded.spent, exceeded.step),
            (BudgetResource::DailyCost, 100, 250, 100)
        );
        assert_eq!(ExceededLimit::find_daily(100, 400, &run(149, Some(50))), None, "a hundred more than at the raise");
        assert!(ExceededLimit::find_daily(100, 400, &run(150, Some(50))).is_some());
        assert_eq!(ExceededLimit::find_daily(100, 0, &run(150, Some(50))), None, "the next day");
    }

    #[test]
    fn the_details_name_the_limit() {
        for of in BudgetResource::ALL {
            let details = ExceededLimit { kind: of, limit: 1, spent: 2, step: 3 }.details();
            assert!(details.contains(&format!("\"of\":\"{}", of.name())), "{details}");
        }
    }

    #[test]
    fn amounts_are_formatted_to_the_cent_where_exact() {
        assert_eq!(format_dollars(1_500_000), "$1.50");
        assert_eq!(format_dollars(412), "$0.000412");
        assert_eq!(format_dollars(0), "$0.00");
    }
}
