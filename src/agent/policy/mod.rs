//! The approval policy: which calls of a model are allowed, need an approval, or are denied.
//!
//! The risk assessment ([`crate::sandbox::risk`]) splits a call into operations. Each operation is matched against
//! the rules and then against the preset, and the strictest decision applies to the whole call: deny before ask
//! before allow before preset. A command that cannot be analysed counts as a script in full confinement, and needs
//! an approval elsewhere. The policy performs no I/O and stores nothing.

mod coverage;
mod evaluate;
mod glob;
mod grant;
mod subject;

#[cfg(test)]
mod tests;

use crate::config::settings::rule::{Effect, Rule};
use crate::config::settings::{Preset, Settings};
use crate::sandbox::risk::{Escalation, Operation, PathContext, PathRef, ResourceAccess, RiskAssessment};
use crate::tools::{Category, Request, Risk};
pub use coverage::rules_cover;
use evaluate::{DecisionBasis, PartialDecision};

/// The approval policy of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    preset: Preset,
    rules: Vec<SourcedRule>,
    max_rules: usize,
}

/// A rule and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcedRule {
    /// The rule.
    pub rule: Rule,
    /// The source.
    pub source: RuleSource,
}

/// The source of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleSource {
    /// The user, in the configuration.
    User,
    /// A project, which can only ask and deny.
    Project,
    /// The user, for this run.
    Run,
    /// An approval with a wider scope than once.
    Granted,
}

/// The context of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallContext {
    /// The confinement of commands.
    pub sandbox: Sandbox,
    /// The paths that the call is resolved against.
    pub path_context: PathContext,
}

/// The confinement of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// Every layer is active.
    Full,
    /// Some layers are active.
    Partial,
    /// None: this machine supports no layer.
    Unavailable,
    /// None: the user disabled it.
    Disabled,
}

/// A call to decide about.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The request.
    pub request: &'a Request,
    /// The access that it requests beyond the sandbox.
    pub escalation: Escalation,
}

/// The decision about a call, ordered from lenient to strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// The call is allowed.
    Allow,
    /// The call needs an approval.
    Ask,
    /// The call is denied.
    Deny,
}

/// A decision with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDecision {
    /// The decision.
    pub decision: Decision,
    /// The risk of the call.
    pub risk: Risk,
    /// The category of the call.
    pub category: Category,
    /// The rule or preset that decided, and the operation that it applies to.
    pub reason: String,
    /// The operations of the call.
    pub operations: Vec<Operation>,
    /// The narrowest rules that allow the same call; empty if the approval cannot be granted beyond this call.
    pub grant_rules: Vec<Rule>,
}

impl Policy {
    /// Creates a policy with a preset and without rules.
    pub const fn new(preset: Preset) -> Self {
        Self { preset, rules: Vec::new(), max_rules: MAX_RULES }
    }

    /// Creates the policy of the configuration.
    pub fn from_settings(settings: &Settings) -> Self {
        Self::new(settings.approvals)
            .with_rules(RuleSource::User, &settings.rules.user)
            .with_rules(RuleSource::Project, &settings.rules.projects)
    }

    /// Adds rules; `allow` rules of a project are ignored, because projects cannot allow anything.
    #[must_use]
    pub fn with_rules(mut self, source: RuleSource, rules: &[Rule]) -> Self {
        let may = |rule: &&Rule| source != RuleSource::Project || rule.effect != Effect::Allow;
        self.rules.extend(rules.iter().filter(may).map(|rule| SourcedRule { rule: rule.clone(), source }));
        self
    }

    /// Decides about a call.
    pub fn decide(&self, call: &Call<'_>, context: &CallContext) -> PolicyDecision {
        let assessment = call.request.assess_risk(call.escalation, &context.path_context);
        self.combine(&assessment, call, context)
    }

    /// Returns whether any rule asks or denies.
    pub fn has_restrictive_rules(&self) -> bool {
        self.rules.iter().any(|sourced| sourced.rule.effect != Effect::Allow)
    }

    /// Decides about a call that the user wrote: it is allowed unless a rule asks or denies.
    pub fn decide_user_command(&self, call: &Call<'_>, context: &CallContext) -> (Decision, String) {
        let nothing = (Decision::Allow, String::new());
        if !self.has_restrictive_rules() {
            return nothing;
        }
        let assessment = call.request.assess_risk(call.escalation, &context.path_context);
        let parts = assessment.operations.iter().flat_map(|part| self.decide_operation(part, call, context));
        let by_rule = parts.filter(|answer| matches!(answer.basis, DecisionBasis::Denied | DecisionBasis::AlwaysAsk));
        let strictest = by_rule.max_by_key(PartialDecision::decision);
        match (strictest, assessment.uncertainty) {
            (Some(answer), _) if answer.decision() == Decision::Deny => (Decision::Deny, answer.reason),
            (_, Some(unclear)) => {
                let reason = unclear.reason;
                (Decision::Ask, format!("cannot determine whether a rule applies to the command: {reason}"))
            }
            (Some(answer), None) => (answer.decision(), answer.reason),
            (None, None) => nothing,
        }
    }

    fn combine(&self, assessment: &RiskAssessment, call: &Call<'_>, context: &CallContext) -> PolicyDecision {
        let mut answers = self.decide_whole(assessment, call, context);
        answers.extend(decide_hidden(assessment, call, context));
        answers.extend(assessment.operations.iter().flat_map(|part| self.decide_operation(part, call, context)));
        if answers.is_empty() {
            // A text without a command has no effect, but it is still an exec call.
            answers.push(self.decide_by_preset(
                assessment.category,
                assessment.risk,
                context,
                "a text without a command",
            ));
        }
        let remember = grant::rules(&answers, assessment);
        let decision = answers.iter().map(PartialDecision::decision).max().unwrap_or(Decision::Ask);
        let strictest = answers.into_iter().find(|answer| answer.decision() == decision);
        let reason = strictest.map(|answer| answer.reason).unwrap_or_default();
        let RiskAssessment { category, risk, operations: parts, .. } = assessment.clone();
        PolicyDecision { decision, risk, category, reason, operations: parts, grant_rules: remember }
    }

    /// Returns the decisions about the call as a whole.
    fn decide_whole(
        &self,
        assessment: &RiskAssessment,
        call: &Call<'_>,
        context: &CallContext,
    ) -> Vec<PartialDecision> {
        let unclear = assessment.uncertainty.as_ref();
        let mut answers: Vec<_> = unclear.map(|doubt| self.decide_unparsed(doubt, call, context)).into_iter().collect();
        let mut ask =
            |reason: String| answers.push(PartialDecision { basis: DecisionBasis::AlwaysAsk, reason, rule: None });
        if self.rules.len() > self.max_rules {
            ask(format!("there are more than {} rules", self.max_rules));
        }
        let worst = assessment.operations.iter().map(Operation::total_risk).max();
        if assessment.risk == Risk::Critical && worst < Some(Risk::Critical) {
            ask(format!("its parts together are of critical risk: {}", assessment.reason.unwrap_or_default()));
        }
        if call.escalation.unconfined && self.preset != Preset::Trusted {
            ask(format!("the preset {} asks before anything runs outside the sandbox", self.preset.word()));
        }
        answers
    }
}

/// Requires an approval for a file tool that accesses paths hidden from commands, whatever the rules and the
/// preset.
fn decide_hidden(assessment: &RiskAssessment, call: &Call<'_>, context: &CallContext) -> Option<PartialDecision> {
    match assessment.category {
        Category::Read | Category::Write | Category::Git => {}
        Category::Exec | Category::Network => return None,
    }
    let path_context = &context.path_context;
    // Git reads everything below a directory.
    let whole = call.request.covers_directories();
    let is_hidden =
        |path_ref: &&PathRef| path_context.hides(path_ref) || (whole && path_context.contains_hidden(path_ref));
    let path_refs =
        assessment.operations.iter().flat_map(|part| &part.accesses).filter_map(|assessed| match &assessed.access {
            ResourceAccess::Read(path_ref) | ResourceAccess::Write(path_ref) | ResourceAccess::Mention(path_ref) => {
                Some(path_ref)
            }
            ResourceAccess::Git(_) | ResourceAccess::Network(_) => None,
        });
    let path_ref = path_refs.into_iter().find(is_hidden)?;
    let path = if path_ref.path.is_empty() { "the workspace, which is a home," } else { &path_ref.path };
    let reason = format!(
        "{path} is or contains a path hidden from commands; `readable` under [sandbox] in the configuration exposes it"
    );
    Some(PartialDecision { basis: DecisionBasis::AlwaysAsk, reason, rule: None })
}

/// The maximum number of rules; with more, every call needs an approval.
const MAX_RULES: usize = 1000;
