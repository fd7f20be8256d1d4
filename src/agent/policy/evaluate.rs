//! Evaluates one operation of a call: first the rules, then the preset.

use super::subject::{RuleMatch, Subject};
use super::{Call, CallContext, Decision, Policy, RuleSource, Sandbox, SourcedRule, grant};
use crate::config::settings::Preset;
use crate::config::settings::rule::{Effect, Pattern, Rule, Target};
use crate::sandbox::risk::{AssessedAccess, CommandWords, Coverage, Evidence, Operation, ResourceAccess, Uncertainty};
use crate::sandbox::shell::{GLOB, UNKNOWN};
use crate::tools::{Category, Risk};

/// The decision about one effect of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PartialDecision {
    pub(super) basis: DecisionBasis,
    pub(super) reason: String,
    /// The rule that would allow it.
    pub(super) rule: Option<Rule>,
}

/// The basis of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecisionBasis {
    /// A rule denies it.
    Denied,
    /// It needs an approval, whatever the `allow` rules.
    AlwaysAsk,
    /// The preset asks, and the approval may have a wider scope than once.
    PresetAsks,
    /// It is allowed.
    Allowed,
}

impl PartialDecision {
    pub(super) const fn decision(&self) -> Decision {
        match self.basis {
            DecisionBasis::Denied => Decision::Deny,
            DecisionBasis::AlwaysAsk | DecisionBasis::PresetAsks => Decision::Ask,
            DecisionBasis::Allowed => Decision::Allow,
        }
    }

    fn new(basis: DecisionBasis, reason: String) -> Self {
        Self { basis, reason, rule: None }
    }
}

/// Whether a rule allows a command with everything that its words imply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CommandRule {
    /// A rule allows it.
    Allowed,
    /// The preset decides.
    Undecided,
}

impl Policy {
    /// Decides about an operation and each of its accesses.
    pub(super) fn decide_operation(
        &self,
        part: &Operation,
        call: &Call<'_>,
        context: &CallContext,
    ) -> Vec<PartialDecision> {
        let mut answers = Vec::new();
        let mut command = CommandRule::Undecided;
        if let Some(spelling) = &part.command {
            let by_words = part
                .accesses
                .iter()
                .filter(|assessed| assessed.evidence == Evidence::CommandWords)
                .map(|assessed| assessed.risk);
            let risk = by_words.max().unwrap_or(part.risk).max(part.risk);
            let subject = Subject::Command(spelling);
            let mut answer = self.decide_subject(&subject, risk, call, context);
            if answer.basis == DecisionBasis::Allowed && answer.rule.is_some() {
                command = CommandRule::Allowed;
            }
            answer.rule = grant::rule_for_words(&spelling.words, call);
            if let Some(why) = part.reason.filter(|_| answer.basis == DecisionBasis::PresetAsks) {
                answer.reason = format!("{}; {why}", answer.reason);
            }
            answers.push(answer);
        }
        for assessed in &part.accesses {
            answers.extend(self.decide_access(assessed, part, command, call, context));
        }
        answers
    }

    fn decide_access(
        &self,
        assessed: &AssessedAccess,
        part: &Operation,
        command: CommandRule,
        call: &Call<'_>,
        context: &CallContext,
    ) -> Option<PartialDecision> {
        let subject = Subject::Access(&assessed.access);
        let mut answer = self.decide_subject(&subject, assessed.risk, call, context);
        match (assessed.evidence, &part.command) {
            (Evidence::CommandWords, Some(spelling)) => {
                answer.rule = grant::rule_for_words(&spelling.words, call);
                // The preset has already assessed the reads and writes that the words of a command imply.
                let own = matches!(assessed.access, ResourceAccess::Git(_) | ResourceAccess::Network(_));
                if answer.basis == DecisionBasis::PresetAsks && (command == CommandRule::Allowed || !own) {
                    return None;
                }
            }
            (Evidence::CommandWords, None) | (Evidence::Explicit, _) => {
                answer.rule = grant::rule_for_access(&assessed.access)
            }
        }
        Some(answer)
    }

    /// Decides by the rules and then by the preset.
    ///
    /// A decision that a rule allows contains the rule.
    fn decide_subject(
        &self,
        subject: &Subject<'_>,
        risk: Risk,
        call: &Call<'_>,
        context: &CallContext,
    ) -> PartialDecision {
        let what = describe(subject);
        let tool = call.request.tool();
        let met = |rule: &Rule| subject.match_rule(rule, tool, &context.path_context);
        let allowed = |sourced: &SourcedRule| {
            is_sufficient(sourced, risk)
                && !(sourced.source == RuleSource::Granted && gains_network(subject, call))
                && subject.is_allowed_by(&sourced.rule, tool, &context.path_context)
        };
        if let Some(answer) = self.decide_by_rules(&what, met, allowed) {
            return answer;
        }
        match subject.category() {
            Some(category) => self.decide_by_preset(category, risk, context, &what),
            None if risk == Risk::Critical => self.decide_by_preset(Category::Exec, risk, context, &what),
            None => PartialDecision::new(DecisionBasis::Allowed, format!("no rule applies to {what}")),
        }
    }

    /// Decides about a command that cannot be analysed.
    ///
    /// In full confinement it can do no more than any script and is treated as one, whatever its words: rules that
    /// ask or deny apply if they may match a command that is not visible. Elsewhere it needs an approval.
    pub(super) fn decide_unparsed(
        &self,
        uncertainty: &Uncertainty,
        call: &Call<'_>,
        context: &CallContext,
    ) -> PartialDecision {
        let Uncertainty { reason, coverage } = uncertainty;
        if context.sandbox != Sandbox::Full || call.escalation.unconfined || call.escalation.network {
            let reason = format!("the command cannot be analysed: {}", shorten(reason));
            return PartialDecision::new(DecisionBasis::AlwaysAsk, reason);
        }
        let hidden = CommandWords { words: vec![UNKNOWN.to_string()], wrapped_forms: Vec::new() };
        let subject = Subject::Command(&hidden);
        let tool = call.request.tool();
        let met = |rule: &Rule| match (coverage, &rule.target) {
            (Coverage::Complete, _) | (Coverage::Partial, Target::Tool(_)) => RuleMatch::No,
            (Coverage::Partial, Target::Exec) => subject.match_rule(rule, tool, &context.path_context),
            (Coverage::Partial, Target::Read | Target::Write | Target::Git | Target::Network) => RuleMatch::Possible,
        };
        let allowed = |sourced: &SourcedRule| subject.is_allowed_by(&sourced.rule, tool, &context.path_context);
        let what = shorten(&format!("a command that cannot be analysed ({reason})"));
        let by_rules = self.decide_by_rules(&what, met, allowed);
        by_rules.unwrap_or_else(|| self.decide_by_preset(Category::Exec, Risk::Medium, context, &what))
    }

    /// Returns the decision of the rules: of the strictest one that matches, or of one that allows.
    fn decide_by_rules(
        &self,
        what: &str,
        met: impl Fn(&Rule) -> RuleMatch,
        allowed: impl Fn(&SourcedRule) -> bool,
    ) -> Option<PartialDecision> {
        let mut ask_decision: Option<PartialDecision> = None;
        for SourcedRule { rule, source } in &self.rules {
            let met = match rule.effect {
                Effect::Allow => continue,
                Effect::Ask | Effect::Deny => met(rule),
            };
            match (rule.effect, met) {
                (_, RuleMatch::No) | (Effect::Allow, _) => {}
                (Effect::Deny, RuleMatch::Yes) => {
                    return Some(PartialDecision::new(
                        DecisionBasis::Denied,
                        format!("{}: {what}", describe_rule(rule, *source)),
                    ));
                }
                (Effect::Deny, RuleMatch::Possible) => {
                    let reason = format!("{} may apply to {what}", describe_rule(rule, *source));
                    ask_decision = ask_decision.or(Some(PartialDecision::new(DecisionBasis::AlwaysAsk, reason)));
                }
                (Effect::Ask, RuleMatch::Yes | RuleMatch::Possible) => {
                    let reason = format!("{}: {what}", describe_rule(rule, *source));
                    ask_decision = ask_decision.or(Some(PartialDecision::new(DecisionBasis::AlwaysAsk, reason)));
                }
            }
        }
        let allows = |sourced: &&SourcedRule| sourced.rule.effect == Effect::Allow && allowed(sourced);
        let allowance = || {
            let SourcedRule { rule, source } = self.rules.iter().find(allows)?;
            let reason = format!("{}: {what}", describe_rule(rule, *source));
            Some(PartialDecision { basis: DecisionBasis::Allowed, reason, rule: Some(rule.clone()) })
        };
        ask_decision.or_else(allowance)
    }

    pub(super) fn decide_by_preset(
        &self,
        category: Category,
        risk: Risk,
        context: &CallContext,
        what: &str,
    ) -> PartialDecision {
        let preset = self.preset.word();
        if !preset_asks(self.preset, context.sandbox, category, risk) {
            return PartialDecision::new(DecisionBasis::Allowed, format!("the preset {preset} allows it: {what}"));
        }
        let cause = match (context.sandbox, category) {
            (Sandbox::Unavailable | Sandbox::Disabled, Category::Exec | Category::Write) if risk < Risk::High => {
                " because there is no sandbox"
            }
            (Sandbox::Partial, Category::Exec) if risk < Risk::High => " because the sandbox is incomplete",
            (Sandbox::Full | Sandbox::Partial | Sandbox::Unavailable | Sandbox::Disabled, _) => "",
        };
        let reason = match risk {
            Risk::High | Risk::Critical => {
                format!("the preset {preset} asks about {} risk: {what}", risk.as_str())
            }
            Risk::Low | Risk::Medium => {
                format!("the preset {preset} asks about {}{cause}: {what}", category.as_str())
            }
        };
        PartialDecision::new(DecisionBasis::PresetAsks, reason)
    }
}

/// Returns whether a preset asks about a category and a risk.
pub(super) fn preset_asks(preset: Preset, sandbox: Sandbox, category: Category, risk: Risk) -> bool {
    let is_confined = match sandbox {
        Sandbox::Full | Sandbox::Partial => true,
        Sandbox::Unavailable | Sandbox::Disabled => false,
    };
    match preset {
        Preset::Strict => category != Category::Read || risk >= Risk::High,
        Preset::Standard => match category {
            Category::Read => risk >= Risk::High,
            Category::Write => risk >= Risk::High || !is_confined,
            Category::Exec => risk >= Risk::High || sandbox != Sandbox::Full,
            Category::Git | Category::Network => true,
        },
        Preset::Trusted => risk == Risk::Critical || (category == Category::Exec && sandbox == Sandbox::Unavailable),
    }
}

/// Returns whether an `allow` rule suffices for a risk: critical risk needs an exact pattern from the user.
fn is_sufficient(SourcedRule { rule, source }: &SourcedRule, risk: Risk) -> bool {
    let exact = rule.pattern.as_ref().is_some_and(Pattern::is_exact);
    let own = match source {
        RuleSource::User | RuleSource::Run => true,
        RuleSource::Project | RuleSource::Granted => false,
    };
    risk < Risk::Critical || (own && exact)
}

/// Returns whether a command gains network access, which a grant for the same words without it does not cover.
fn gains_network(subject: &Subject<'_>, call: &Call<'_>) -> bool {
    let may_use_network = match subject {
        Subject::Command(_) | Subject::Access(ResourceAccess::Network(_)) => true,
        Subject::Access(
            ResourceAccess::Read(_) | ResourceAccess::Write(_) | ResourceAccess::Mention(_) | ResourceAccess::Git(_),
        ) => false,
    };
    may_use_network && grant::has_network(call)
}

fn describe_rule(rule: &Rule, source: RuleSource) -> String {
    let origin = match source {
        RuleSource::User => "your configuration",
        RuleSource::Project => "the project",
        RuleSource::Run => "this run",
        RuleSource::Granted => "an earlier approval",
    };
    format!("the rule `{rule}` of {origin}")
}

/// Describes a subject in a few words, with an ellipsis for unknown parts.
fn describe(subject: &Subject<'_>) -> String {
    let text = match subject {
        Subject::Command(CommandWords { words, .. }) if words.is_empty() => "an assignment".to_owned(),
        Subject::Command(CommandWords { words, .. }) => words.join(" "),
        Subject::Access(ResourceAccess::Read(path_ref)) => format!("reading {}", display_path(&path_ref.path)),
        Subject::Access(ResourceAccess::Write(path_ref)) => format!("writing {}", display_path(&path_ref.path)),
        Subject::Access(ResourceAccess::Mention(path_ref)) => display_path(&path_ref.path).to_owned(),
        Subject::Access(ResourceAccess::Git(words)) => format!("git {words}"),
        Subject::Access(ResourceAccess::Network(Some(host))) => format!("connecting to {host}"),
        Subject::Access(ResourceAccess::Network(None)) => "connecting to other hosts".to_owned(),
    };
    shorten(&text)
}

/// Returns a text for people: shortened, and without control characters.
fn shorten(text: &str) -> String {
    let plain = |letter: char| match letter {
        UNKNOWN => '…',
        GLOB => '*',
        letter if letter.is_control() => ' ',
        letter => letter,
    };
    let mut short: String = text.chars().map(plain).take(MAX_REASON_CHARS).collect();
    if text.chars().nth(MAX_REASON_CHARS).is_some() {
        short.push('…');
    }
    short
}

fn display_path(path: &str) -> &str {
    if path.is_empty() { "the workspace" } else { path }
}

/// How many characters of a description a reason contains.
const MAX_REASON_CHARS: usize = 100;
