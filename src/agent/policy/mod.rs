//! The approval policy: which calls of a model are allowed, need an approval, or are denied.
//!
//! The risk assessment ([`crate::sandbox::risk`]) splits a call into operations. Each operation is matched against
//! the rules and then against the preset, and the strictest decision applies to the whole call: deny before ask
//! before allow before preset. A command that cannot be analysed counts as a script in full confinement, and needs
//! an approval elsewhere. The policy performs no I/O and stores nothing.

mod glob;
mod remember;
mod subject;
mod weigh;

#[cfg(test)]
mod tests;

use crate::config::settings::rule::{Effect, Rule};
use crate::config::settings::{Preset, Settings};
use crate::sandbox::judge::{Judgement, Part, Place, Spot, What, Wish};
use crate::tools::{Category, Request, Risk};
use weigh::{Answer, Weighed};

/// The approval policy of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    preset: Preset,
    rules: Vec<Sourced>,
    most: usize,
}

/// A rule and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sourced {
    /// The rule.
    pub rule: Rule,
    /// The source.
    pub source: Source,
}

/// The source of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
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
pub struct Standing {
    /// The confinement of commands.
    pub sandbox: Sandbox,
    /// The paths that the call is resolved against.
    pub place: Place,
}

/// The confinement of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// Every layer is active.
    Full,
    /// Some layers are active.
    Partial,
    /// None: this machine supports no layer.
    Missing,
    /// None: the user disabled it.
    NoneChosen,
}

/// A call to decide about.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The request.
    pub request: &'a Request,
    /// The access that it requests beyond the sandbox.
    pub wish: Wish,
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
pub struct Verdict {
    /// The decision.
    pub decision: Decision,
    /// The risk of the call.
    pub risk: Risk,
    /// The category of the call.
    pub category: Category,
    /// The rule or preset that decided, and the operation that it applies to.
    pub reason: String,
    /// The operations of the call.
    pub parts: Vec<Part>,
    /// The narrowest rules that allow the same call; empty if the approval cannot be granted beyond this call.
    pub remember: Vec<Rule>,
}

impl Policy {
    /// Creates a policy with a preset and without rules.
    pub const fn new(preset: Preset) -> Self {
        Self { preset, rules: Vec::new(), most: MOST_RULES }
    }

    /// Creates the policy of the configuration.
    pub fn of(settings: &Settings) -> Self {
        Self::new(settings.approvals)
            .with(Source::User, &settings.rules.own)
            .with(Source::Project, &settings.rules.projects)
    }

    /// Adds rules; `allow` rules of a project are ignored, because projects cannot allow anything.
    #[must_use]
    pub fn with(mut self, source: Source, rules: &[Rule]) -> Self {
        let may = |rule: &&Rule| source != Source::Project || rule.effect != Effect::Allow;
        self.rules.extend(rules.iter().filter(may).map(|rule| Sourced { rule: rule.clone(), source }));
        self
    }

    /// Decides about a call.
    pub fn decide(&self, call: &Call<'_>, standing: &Standing) -> Verdict {
        let judgement = call.request.judge(call.wish, &standing.place);
        self.weigh(&judgement, call, standing)
    }

    /// Returns whether any rule asks or denies.
    pub fn is_strict_somewhere(&self) -> bool {
        self.rules.iter().any(|sourced| sourced.rule.effect != Effect::Allow)
    }

    /// Decides about a call that the user wrote: it is allowed unless a rule asks or denies.
    pub fn decide_own(&self, call: &Call<'_>, standing: &Standing) -> (Decision, String) {
        let nothing = (Decision::Allow, String::new());
        if !self.is_strict_somewhere() {
            return nothing;
        }
        let judgement = call.request.judge(call.wish, &standing.place);
        let parts = judgement.parts.iter().flat_map(|part| self.part(part, call, standing));
        let by_rule = parts.filter(|answer| matches!(answer.weighed, Weighed::Denied | Weighed::AlwaysAsk));
        let strictest = by_rule.max_by_key(Answer::decision);
        match (strictest, judgement.unclear) {
            (Some(answer), _) if answer.decision() == Decision::Deny => (Decision::Deny, answer.reason),
            (_, Some(unclear)) => {
                let reason = unclear.reason;
                (Decision::Ask, format!("cannot determine whether a rule applies to the command: {reason}"))
            }
            (Some(answer), None) => (answer.decision(), answer.reason),
            (None, None) => nothing,
        }
    }

    fn weigh(&self, judgement: &Judgement, call: &Call<'_>, standing: &Standing) -> Verdict {
        let mut answers = self.whole(judgement, call, standing);
        answers.extend(hidden(judgement, call, standing));
        answers.extend(judgement.parts.iter().flat_map(|part| self.part(part, call, standing)));
        if answers.is_empty() {
            // A text without a command has no effect, but it is still an exec call.
            answers.push(self.by_preset(
                judgement.category,
                judgement.risk,
                standing,
                "a text without a command",
            ));
        }
        let remember = remember::rules(&answers, judgement);
        let decision = answers.iter().map(Answer::decision).max().unwrap_or(Decision::Ask);
        let strictest = answers.into_iter().find(|answer| answer.decision() == decision);
        let reason = strictest.map(|answer| answer.reason).unwrap_or_default();
        let Judgement { category, risk, parts, .. } = judgement.clone();
        Verdict { decision, risk, category, reason, parts, remember }
    }

    /// Returns the decisions about the call as a whole.
    fn whole(&self, judgement: &Judgement, call: &Call<'_>, standing: &Standing) -> Vec<Answer> {
        let unclear = judgement.unclear.as_ref();
        let mut answers: Vec<_> =
            unclear.map(|doubt| self.unanalysed(doubt, call, standing)).into_iter().collect();
        let mut ask =
            |reason: String| answers.push(Answer { weighed: Weighed::AlwaysAsk, reason, rule: None });
        if self.rules.len() > self.most {
            ask(format!("there are more than {} rules", self.most));
        }
        let worst = judgement.parts.iter().map(Part::whole_risk).max();
        if judgement.risk == Risk::Critical && worst < Some(Risk::Critical) {
            ask(format!("its parts together are of critical risk: {}", judgement.why.unwrap_or_default()));
        }
        if call.wish.outside && self.preset != Preset::Trusted {
            ask(format!("the preset {} asks before anything runs outside the sandbox", self.preset.word()));
        }
        answers
    }
}

/// Requires an approval for a file tool that accesses paths hidden from commands, whatever the rules and the
/// preset.
fn hidden(judgement: &Judgement, call: &Call<'_>, standing: &Standing) -> Option<Answer> {
    match judgement.category {
        Category::Read | Category::Write | Category::Git => {}
        Category::Exec | Category::Network => return None,
    }
    let place = &standing.place;
    // Git reads everything below a directory.
    let whole = matches!(call.request, Request::Diff(_) | Request::Commit(_));
    let is_hidden = |spot: &&Spot| place.hides(spot) || (whole && place.holds_hidden(spot));
    let spots = judgement.parts.iter().flat_map(|part| &part.touches).filter_map(|touch| match &touch.what {
        What::Read(spot) | What::Write(spot) | What::Name(spot) => Some(spot),
        What::Git(_) | What::Network(_) => None,
    });
    let spot = spots.into_iter().find(is_hidden)?;
    let path = if spot.path.is_empty() { "the workspace, which is a home," } else { &spot.path };
    let reason = format!(
        "{path} is or contains a path hidden from commands; `readable` under [sandbox] in the configuration exposes it"
    );
    Some(Answer { weighed: Weighed::AlwaysAsk, reason, rule: None })
}

/// The maximum number of rules; with more, every call needs an approval.
const MOST_RULES: usize = 1000;
