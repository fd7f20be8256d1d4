//! The narrowest rules that allow a call the next time.

use super::Call;
use super::weigh::{Answer, Weighed};
use crate::config::settings::rule::{Effect, Pattern, Rule, Target};
use crate::sandbox::judge::{Judgement, Spot, What, Zone};
use crate::sandbox::shell::{GLOB, HOLE};
use crate::tools::{Category, Risk};

/// Returns the rules that would have allowed everything about which the preset asked.
///
/// The result is empty if the call is allowed anyway, or if no rule may allow it: critical risk, a command that
/// cannot be analysed and needs an approval, a rule that asks or denies, or words that expand when they run.
pub(super) fn rules(answers: &[Answer], judgement: &Judgement) -> Vec<Rule> {
    if judgement.risk == Risk::Critical {
        return Vec::new();
    }
    let mut rules = Vec::new();
    for answer in answers {
        match (answer.weighed, &answer.rule) {
            (Weighed::GoesAhead, _) => {}
            (Weighed::PresetAsks, Some(rule)) => rules.push(rule.clone()),
            (Weighed::PresetAsks, None) | (Weighed::AlwaysAsk | Weighed::Denied, _) => return Vec::new(),
        }
    }
    rules.sort();
    rules.dedup();
    rules
}

/// Returns the rule for a command of exactly these words; `None` for a command with network access, which rules do
/// not express.
pub(super) fn of_words(words: &[String], call: &Call<'_>) -> Option<Rule> {
    if has_network(call) || words.is_empty() || words.iter().any(|word| word.contains([HOLE, GLOB])) {
        return None;
    }
    allow(Target::Exec, Pattern::exact_words(words))
}

/// Returns whether a call is a command with network access.
pub(super) fn has_network(call: &Call<'_>) -> bool {
    call.wish.network && call.request.category() == Category::Exec
}

/// Returns the rule for an access.
pub(super) fn of_touch(what: &What) -> Option<Rule> {
    match what {
        What::Read(spot) => allow(Target::Read, path(spot)),
        What::Write(spot) => allow(Target::Write, path(spot)),
        What::Name(_) => None,
        What::Git(words) => allow(Target::Git, Pattern::exact(words)),
        What::Network(host) => allow(Target::Network, Pattern::exact(host.as_ref()?)),
    }
}

fn path(spot: &Spot) -> Option<Pattern> {
    if spot.path.contains([HOLE, GLOB]) {
        return None;
    }
    match spot.zone {
        // A rule for the workspace itself would cover everything in it.
        Zone::Inside if spot.path.is_empty() => None,
        Zone::Inside => Pattern::exact(&format!("/{}", spot.path)),
        Zone::Outside if spot.path.starts_with('/') => Pattern::exact(&format!("/{}", spot.path)),
        Zone::Outside if spot.path.starts_with("~/") => Pattern::exact(&spot.path),
        Zone::Outside | Zone::Unknown => None,
    }
}

fn allow(target: Target, pattern: Option<Pattern>) -> Option<Rule> {
    pattern.map(|pattern| Rule { effect: Effect::Allow, target, pattern: Some(pattern) })
}
