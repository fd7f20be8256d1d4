//! Which calls of a model go ahead, which are asked about first, and which do not happen.
//!
//! A call is judged in every part ([`crate::sandbox::judge`]), each part is held against the rules and then against the
//! preset, and the strictest answer is that of the whole: deny before ask before allow before preset. A command that cannot
//! be analysed counts as any script in full confinement, and is asked about elsewhere. Nothing is looked up and nothing
//! remembered.

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

/// Which calls go ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    preset: Preset,
    rules: Vec<Sourced>,
    most: usize,
}

/// A rule and who made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sourced {
    /// The rule.
    pub rule: Rule,
    /// Who made it.
    pub source: Source,
}

/// Who made a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The user, in the configuration.
    User,
    /// A project, which can ask and deny.
    Project,
    /// The user, for this run.
    Run,
    /// Somebody who answered a question with more than this once.
    Granted,
}

/// What stands around a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// What holds commands.
    pub sandbox: Sandbox,
    /// Where the call is made.
    pub place: Place,
}

/// What holds commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// Every layer.
    Full,
    /// Some layers.
    Partial,
    /// Nothing, as there is no layer on this machine.
    Missing,
    /// Nothing, as the user has chosen.
    NoneChosen,
}

/// A call to be decided.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// What is called.
    pub request: &'a Request,
    /// What it wants beyond the sandbox.
    pub wish: Wish,
}

/// What becomes of a call; the order is from lenient to strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// It goes ahead.
    Allow,
    /// Somebody is asked.
    Ask,
    /// It does not happen.
    Deny,
}

/// A decision with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What becomes of the call.
    pub decision: Decision,
    /// How much harm it may do.
    pub risk: Risk,
    /// What kind of thing it is.
    pub category: Category,
    /// In one sentence: which rule or preset, and because of which part.
    pub reason: String,
    /// What the call would do, part by part.
    pub parts: Vec<Part>,
    /// The narrowest rules that let the same call go ahead; none where nothing may be remembered.
    pub remember: Vec<Rule>,
}

impl Policy {
    /// Begins with a preset and without rules.
    pub const fn new(preset: Preset) -> Self {
        Self { preset, rules: Vec::new(), most: MOST_RULES }
    }

    /// Takes what the configuration says.
    pub fn of(settings: &Settings) -> Self {
        Self::new(settings.approvals)
            .with(Source::User, &settings.rules.own)
            .with(Source::Project, &settings.rules.projects)
    }

    /// Adds rules; an allowance of a project is left out, as projects allow nothing.
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

    /// Tells whether there is a rule that asks or denies.
    pub fn is_strict_somewhere(&self) -> bool {
        self.rules.iter().any(|sourced| sourced.rule.effect != Effect::Allow)
    }

    /// Decides about a call that is its user's own words: it goes ahead unless a rule says otherwise.
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
                (Decision::Ask, format!("it cannot be told whether a rule is about the command: {reason}"))
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
            // A text without any command does nothing, and is a command all the same.
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

    /// Returns what is to be said about the whole of a call.
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

/// Says that a file tool is asked about what commands do not see, whatever rule or preset there is.
fn hidden(judgement: &Judgement, call: &Call<'_>, standing: &Standing) -> Option<Answer> {
    match judgement.category {
        Category::Read | Category::Write | Category::Git => {}
        Category::Exec | Category::Network => return None,
    }
    let place = &standing.place;
    // Git takes everything that lies below a directory.
    let whole = matches!(call.request, Request::Diff(_) | Request::Commit(_));
    let is_hidden = |spot: &&Spot| place.hides(spot) || (whole && place.holds_hidden(spot));
    let spots = judgement.parts.iter().flat_map(|part| &part.touches).filter_map(|touch| match &touch.what {
        What::Read(spot) | What::Write(spot) | What::Name(spot) => Some(spot),
        What::Git(_) | What::Network(_) => None,
    });
    let spot = spots.into_iter().find(is_hidden)?;
    let path = if spot.path.is_empty() { "the workspace, which is a home," } else { &spot.path };
    let reason = format!(
        "{path} holds what is hidden from commands; `readable` under [sandbox] of the configuration opens it"
    );
    Some(Answer { weighed: Weighed::AlwaysAsk, reason, rule: None })
}

/// How many rules are looked at.
const MOST_RULES: usize = 1000;
