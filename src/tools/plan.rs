//! `update_plan`: the steps of a task and how far they are, for the user to see.
//!
//! It changes nothing: the call itself, with its arguments, is the plan, and the journal keeps it.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::context::ToolContext;
use super::error::{ToolError, ToolErrorKind};
use super::{ApprovalDigest, CallDescription, Category, ExecutionResult, Tool, parse_arguments, schema};
use crate::sandbox::Chunk;
use crate::sandbox::risk::{Escalation, PathContext, RiskAssessment};

pub(super) const NAME: &str = "update_plan";
const DESCRIPTION: &str = "Show the user the plan for a task of several steps, or how far it is. Every call contains \
    all steps; it replaces the plan before. Use it when a task has three steps or more: once before the first step, and \
    again whenever a step is begun or done. At most one step is in progress.";

/// How many steps a plan may have, and how long each may be, in characters.
const MAX_STEPS: usize = 50;
const MAX_STEP_CHARS: usize = 300;

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// All steps, in order, from 1 to 50.
    steps: Vec<Step>,
}

/// A step of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Step {
    /// What is done, in a few words.
    step: String,
    /// How far it is.
    status: Status,
}

/// How far a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    InProgress,
    Done,
}

/// The tool.
#[derive(Debug)]
pub(super) struct Plan;

impl Tool for Plan {
    type Args = Args;

    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        DESCRIPTION
    }

    fn schema(&self) -> Value {
        schema::<Args>()
    }

    fn category(&self) -> Category {
        Category::Read
    }

    fn parse(&self, args: &str) -> Result<Self::Args, ToolError> {
        let args: Args = parse_arguments(NAME, args)?;
        let refuse = |message: String| Err(ToolError::new(ToolErrorKind::BadArguments, message));
        if !(1..=MAX_STEPS).contains(&args.steps.len()) {
            return refuse(format!("the plan has {} steps, but must have from 1 to {MAX_STEPS}", args.steps.len()));
        }
        let is_bad = |step: &Step| step.step.trim().is_empty() || step.step.chars().count() > MAX_STEP_CHARS;
        if let Some(at) = args.steps.iter().position(is_bad) {
            return refuse(format!("step {} must have from 1 to {MAX_STEP_CHARS} characters", at + 1));
        }
        Ok(args)
    }

    fn assess(&self, _args: &Self::Args, _escalation: Escalation, paths: &PathContext) -> RiskAssessment {
        super::assess_reads([], paths)
    }

    async fn describe(
        &self,
        args: &Self::Args,
        digest: ApprovalDigest,
        _context: &ToolContext,
    ) -> Result<CallDescription, ToolError> {
        let steps: Vec<_> = args.steps.iter().map(|step| step.step.as_str()).collect();
        Ok(CallDescription::new("Approve plan", "show the plan", json!({ "steps": steps }), digest))
    }

    async fn run(&self, args: Self::Args, _context: &ToolContext, _out: mpsc::Sender<Chunk>) -> ExecutionResult {
        let count = |status| args.steps.iter().filter(|step| step.status == status).count();
        let (done, total) = (count(Status::Done), args.steps.len());
        let text = match count(Status::InProgress) {
            0 | 1 => format!("the plan is shown: {done} of {total} steps done"),
            several => format!("the plan is shown: {done} of {total} steps done; {several} are in progress at once"),
        };
        Ok::<_, ToolError>(text).into()
    }

    fn takes_rule_pattern(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_a_bounded_number_of_steps_with_known_states() {
        let parse = |steps: Value| Plan.parse(&json!({ "steps": steps }).to_string());
        assert!(parse(json!([{"step": "read", "status": "in_progress"}])).is_ok());
        for steps in [
            json!([]),
            json!([{"step": " ", "status": "done"}]),
            json!([{"step": "x", "status": "begun"}]),
            json!([{"step": "x".repeat(MAX_STEP_CHARS + 1), "status": "done"}]),
            Value::Array(vec![json!({"step": "x", "status": "done"}); MAX_STEPS + 1]),
        ] {
            assert!(parse(steps.clone()).is_err(), "{steps}");
        }
    }
}
