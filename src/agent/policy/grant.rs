//! The narrowest rules that allow a call the next time.

use super::Call;
use super::evaluate::{DecisionBasis, PartialDecision};
use crate::config::settings::rule::{Effect, Pattern, Rule, Target};
use crate::sandbox::risk::{PathRef, PathScope, ResourceAccess, RiskAssessment};
use crate::sandbox::shell::{GLOB, UNKNOWN};
use crate::tools::{Category, Risk};

/// Returns the rules that would have allowed everything about which the preset asked.
///
/// The result is empty if the call is allowed anyway, or if no rule may allow it: critical risk, a command that
/// cannot be analysed and needs an approval, a rule that asks or denies, or words that expand when they run.
pub(super) fn rules(answers: &[PartialDecision], assessment: &RiskAssessment) -> Vec<Rule> {
    if assessment.risk == Risk::Critical {
        return Vec::new();
    }
    let mut rules = Vec::new();
    for answer in answers {
        match (answer.basis, &answer.rule) {
            (DecisionBasis::Allowed, _) => {}
            (DecisionBasis::PresetAsks, Some(rule)) => rules.push(rule.clone()),
            (DecisionBasis::PresetAsks, None) | (DecisionBasis::AlwaysAsk | DecisionBasis::Denied, _) => {
                return Vec::new();
            }
        }
    }
    rules.sort();
    rules.dedup();
    rules
}

/// Returns the rule for a command of exactly these words; `None` for a command with network access, which rules do
/// not express.
pub(super) fn rule_for_words(words: &[String], call: &Call<'_>) -> Option<Rule> {
    if has_network(call) || words.is_empty() || words.iter().any(|word| word.contains([UNKNOWN, GLOB])) {
        return None;
    }
    allow_rule(Target::Exec, Pattern::exact_words(words))
}

/// Returns whether a call is a command with network access.
pub(super) fn has_network(call: &Call<'_>) -> bool {
    call.escalation.network && call.request.category() == Category::Exec
}

/// Returns the rule for an access.
pub(super) fn rule_for_access(what: &ResourceAccess) -> Option<Rule> {
    match what {
        ResourceAccess::Read(path_ref) => allow_rule(Target::Read, path_pattern(path_ref)),
        ResourceAccess::Write(path_ref) => allow_rule(Target::Write, path_pattern(path_ref)),
        ResourceAccess::Mention(_) => None,
        ResourceAccess::Git(words) => allow_rule(Target::Git, Pattern::exact(words)),
        ResourceAccess::Network(host) => allow_rule(Target::Network, Pattern::exact(host.as_ref()?)),
    }
}

fn path_pattern(path_ref: &PathRef) -> Option<Pattern> {
    if path_ref.path.contains([UNKNOWN, GLOB]) {
        return None;
    }
    match path_ref.scope {
        // A rule for the workspace itself would cover everything in it.
        PathScope::Inside if path_ref.path.is_empty() => None,
        PathScope::Inside => Pattern::exact(&format!("/{}", path_ref.path)),
        PathScope::Outside if path_ref.path.starts_with('/') => Pattern::exact(&format!("/{}", path_ref.path)),
        PathScope::Outside if path_ref.path.starts_with("~/") => Pattern::exact(&path_ref.path),
        PathScope::Outside | PathScope::Unknown => None,
    }
}

fn allow_rule(target: Target, pattern: Option<Pattern>) -> Option<Rule> {
    pattern.map(|pattern| Rule { effect: Effect::Allow, target, pattern: Some(pattern) })
}
