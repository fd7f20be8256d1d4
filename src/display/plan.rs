//! The plan of a model: the steps in the arguments of a call of `update_plan`.
//!
//! Pure. The texts are sanitized.

use serde::Deserialize;

use super::sanitize::sanitize_line;
use super::style::{Palette, Style};
use crate::kernel::event::Intention;

/// The name of the tool.
const UPDATE_PLAN: &str = "update_plan";

/// The arguments of a call.
#[derive(Debug, Deserialize)]
struct PlanArgs {
    steps: Vec<PlanStep>,
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct PlanStep {
    /// What is done.
    #[serde(rename = "step")]
    pub(crate) text: String,
    /// How far it is.
    pub(crate) status: StepStatus,
}

/// How far a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StepStatus {
    /// Not begun.
    Pending,
    /// Begun.
    InProgress,
    /// Done.
    Done,
}

impl StepStatus {
    /// Returns the mark in a checklist.
    pub(crate) const fn mark(self) -> &'static str {
        match self {
            Self::Pending => "☐",
            Self::InProgress => "▸",
            Self::Done => "✓",
        }
    }

    /// Returns the words for it.
    const fn words(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in progress",
            Self::Done => "done",
        }
    }

    /// Returns the style of the step.
    pub(crate) const fn style(self) -> Style {
        match self {
            Self::Pending => Style::Faint,
            Self::InProgress => Style::Strong,
            Self::Done => Style::Good,
        }
    }
}

/// Returns the plan that a call shows; none if it is another call or has no valid steps.
pub(crate) fn of_call(call: &Intention) -> Option<Vec<PlanStep>> {
    if call.tool != UPDATE_PLAN {
        return None;
    }
    let args: PlanArgs = serde_json::from_str(call.args.as_str()).ok()?;
    let mut steps = args.steps;
    steps.iter_mut().for_each(|step| step.text = sanitize_line(&step.text));
    (!steps.is_empty()).then_some(steps)
}

/// Returns a plan as lines, with its states in words.
pub(crate) fn render(steps: &[PlanStep], palette: Palette) -> String {
    let mut text = format!("{}\n", palette.paint(Style::Strong, &heading(steps)));
    for step in steps {
        let line = format!("  {}: {}", step.status.words(), step.text);
        text += &format!("{}\n", palette.paint(step.status.style(), &line));
    }
    text
}

/// Returns the heading of a plan.
pub(crate) fn heading(steps: &[PlanStep]) -> String {
    let done = steps.iter().filter(|step| step.status == StepStatus::Done).count();
    format!("plan: {done} of {} steps done", steps.len())
}
