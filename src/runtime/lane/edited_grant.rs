//! The check of a rule that the approver of a call wrote in place of the offered one.

use std::path::Path;

use serde_json::Value;

use super::Lane;
use super::tool_context::{session_cwd, workspace_path};
use crate::agent::policy;
use crate::config::settings::rule::{Effect, Rule};
use crate::kernel::command::Command;
use crate::kernel::event::GateQuestion;
use crate::kernel::refusal::Refusal;
use crate::kernel::state::State;
use crate::runtime::session_files;
use crate::sandbox::risk::PathContext;

impl Lane {
    /// Returns why the rule of a vote cannot be granted; `None` if it can, or if the session refuses the vote anyway.
    pub(super) fn rule_refusal(&self, command: &Command) -> Option<Refusal> {
        let Command::Decide(vote) = command else { return None };
        let state = self.session.state();
        let (rule, gate) = (vote.rule.as_ref()?, state.gates.get(&vote.gate)?);
        let offered = gate.question.grant_rule.as_ref()?;
        let Some(rules) = parse_allow_rules(rule) else { return Some(Refusal::InvalidRule) };
        // A stored rule is compared with calls, so it cannot be redacted.
        if self.unredacted.redact(rule) != *rule {
            return Some(Refusal::SecretInRule);
        }
        let offered = parse_allow_rules(offered).unwrap_or_default();
        let covered = policy::rules_cover(&rules, &offered, &tool_of(&gate.question), &path_context(state));
        (!covered).then_some(Refusal::RuleTooNarrow)
    }
}

/// Parses `allow` rules, one a line; `None` if any line is something else, or there is none.
fn parse_allow_rules(text: &str) -> Option<Vec<Rule>> {
    let rules: Vec<Rule> = text.lines().map(str::parse).collect::<Result<_, _>>().ok()?;
    let all_allow = rules.iter().all(|rule| rule.effect == Effect::Allow);
    (all_allow && !rules.is_empty()).then_some(rules)
}

fn tool_of(question: &GateQuestion) -> String {
    let details: Value = serde_json::from_str(question.details.as_str()).unwrap_or_default();
    details.get("tool").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn path_context(state: &State) -> PathContext {
    let (workspace, cwd) = (workspace_path(state), session_cwd(state));
    PathContext::new(&workspace, Some(Path::new(&session_files::home()))).with_alias(&cwd)
}
