//! Evaluates one operation of a call: first the rules, then the preset.

use super::subject::{Match, Subject};
use super::{Call, Decision, Policy, Sandbox, Source, Sourced, Standing, remember};
use crate::config::settings::Preset;
use crate::config::settings::rule::{Effect, Pattern, Rule, Target};
use crate::sandbox::judge::{By, Coverage, Doubt, Part, Spelling, Touch, What};
use crate::sandbox::shell::{GLOB, HOLE};
use crate::tools::{Category, Risk};

/// The decision about one effect of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) weighed: Weighed,
    pub(super) reason: String,
    /// The rule that would allow it.
    pub(super) rule: Option<Rule>,
}

/// The basis of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Weighed {
    /// A rule denies it.
    Denied,
    /// It needs an approval, whatever the `allow` rules.
    AlwaysAsk,
    /// The preset asks, and the approval may have a wider scope than once.
    PresetAsks,
    /// It is allowed.
    GoesAhead,
}

impl Answer {
    pub(super) const fn decision(&self) -> Decision {
        match self.weighed {
            Weighed::Denied => Decision::Deny,
            Weighed::AlwaysAsk | Weighed::PresetAsks => Decision::Ask,
            Weighed::GoesAhead => Decision::Allow,
        }
    }

    fn new(weighed: Weighed, reason: String) -> Self {
        Self { weighed, reason, rule: None }
    }
}

/// Whether a rule allows a command with everything that its words imply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Command {
    /// A rule allows it.
    Allowed,
    /// The preset decides.
    Open,
}

impl Policy {
    /// Decides about an operation and each of its accesses.
    pub(super) fn part(&self, part: &Part, call: &Call<'_>, standing: &Standing) -> Vec<Answer> {
        let mut answers = Vec::new();
        let mut command = Command::Open;
        if let Some(spelling) = &part.command {
            let by_words = part.touches.iter().filter(|touch| touch.by == By::Words).map(|touch| touch.risk);
            let risk = by_words.max().unwrap_or(part.risk).max(part.risk);
            let subject = Subject::Command(spelling);
            let mut answer = self.thing(&subject, risk, call, standing);
            if answer.weighed == Weighed::GoesAhead && answer.rule.is_some() {
                command = Command::Allowed;
            }
            answer.rule = remember::of_words(&spelling.words, call);
            if let Some(why) = part.why.filter(|_| answer.weighed == Weighed::PresetAsks) {
                answer.reason = format!("{}; {why}", answer.reason);
            }
            answers.push(answer);
        }
        for touch in &part.touches {
            answers.extend(self.touch(touch, part, command, call, standing));
        }
        answers
    }

    fn touch(
        &self,
        touch: &Touch,
        part: &Part,
        command: Command,
        call: &Call<'_>,
        standing: &Standing,
    ) -> Option<Answer> {
        let subject = Subject::Touched(&touch.what);
        let mut answer = self.thing(&subject, touch.risk, call, standing);
        match (touch.by, &part.command) {
            (By::Words, Some(spelling)) => {
                answer.rule = remember::of_words(&spelling.words, call);
                // The preset has already assessed the reads and writes that the words of a command imply.
                let own = matches!(touch.what, What::Git(_) | What::Network(_));
                if answer.weighed == Weighed::PresetAsks && (command == Command::Allowed || !own) {
                    return None;
                }
            }
            (By::Words, None) | (By::Itself, _) => answer.rule = remember::of_touch(&touch.what),
        }
        Some(answer)
    }

    /// Decides by the rules and then by the preset.
    ///
    /// A decision that a rule allows contains the rule.
    fn thing(&self, subject: &Subject<'_>, risk: Risk, call: &Call<'_>, standing: &Standing) -> Answer {
        let what = described(subject);
        let tool = call.request.tool();
        let met = |rule: &Rule| subject.is_met_by(rule, tool, &standing.place);
        let allowed = |sourced: &Sourced| {
            suffices(sourced, risk)
                && !(sourced.source == Source::Granted && is_opened(subject, call))
                && subject.is_allowed_by(&sourced.rule, tool, &standing.place)
        };
        if let Some(answer) = self.by_rules(&what, met, allowed) {
            return answer;
        }
        match subject.category() {
            Some(category) => self.by_preset(category, risk, standing, &what),
            None if risk == Risk::Critical => self.by_preset(Category::Exec, risk, standing, &what),
            None => Answer::new(Weighed::GoesAhead, format!("nothing is known about {what}")),
        }
    }

    /// Decides about a command that cannot be analysed.
    ///
    /// In full confinement it can do no more than any script and is treated as one, whatever its words: rules that
    /// ask or deny apply if they may match a command that is not visible. Elsewhere it needs an approval.
    pub(super) fn unanalysed(&self, doubt: &Doubt, call: &Call<'_>, standing: &Standing) -> Answer {
        let Doubt { reason, coverage } = doubt;
        if standing.sandbox != Sandbox::Full || call.wish.outside || call.wish.network {
            let reason = format!("it cannot be told what the command does: {}", shortened(reason));
            return Answer::new(Weighed::AlwaysAsk, reason);
        }
        let hidden = Spelling { words: vec![HOLE.to_string()], outer: Vec::new() };
        let subject = Subject::Command(&hidden);
        let tool = call.request.tool();
        let met = |rule: &Rule| match (coverage, rule.target) {
            (Coverage::Complete, _) | (Coverage::Partial, Target::Tool(_)) => Match::No,
            (Coverage::Partial, Target::Exec) => subject.is_met_by(rule, tool, &standing.place),
            (Coverage::Partial, Target::Read | Target::Write | Target::Git | Target::Network) => {
                Match::Perhaps
            }
        };
        let allowed = |sourced: &Sourced| subject.is_allowed_by(&sourced.rule, tool, &standing.place);
        let what = shortened(&format!("a command that cannot be analysed ({reason})"));
        let by_rules = self.by_rules(&what, met, allowed);
        by_rules.unwrap_or_else(|| self.by_preset(Category::Exec, Risk::Medium, standing, &what))
    }

    /// Returns the decision of the rules: of the strictest one that matches, or of one that allows.
    fn by_rules(
        &self,
        what: &str,
        met: impl Fn(&Rule) -> Match,
        allowed: impl Fn(&Sourced) -> bool,
    ) -> Option<Answer> {
        let mut asked: Option<Answer> = None;
        for Sourced { rule, source } in &self.rules {
            let met = match rule.effect {
                Effect::Allow => continue,
                Effect::Ask | Effect::Deny => met(rule),
            };
            match (rule.effect, met) {
                (_, Match::No) | (Effect::Allow, _) => {}
                (Effect::Deny, Match::Yes) => {
                    return Some(Answer::new(Weighed::Denied, format!("{}: {what}", cited(rule, *source))));
                }
                (Effect::Deny, Match::Perhaps) => {
                    let reason = format!("{} may be about {what}", cited(rule, *source));
                    asked = asked.or(Some(Answer::new(Weighed::AlwaysAsk, reason)));
                }
                (Effect::Ask, Match::Yes | Match::Perhaps) => {
                    let reason = format!("{}: {what}", cited(rule, *source));
                    asked = asked.or(Some(Answer::new(Weighed::AlwaysAsk, reason)));
                }
            }
        }
        let allows = |sourced: &&Sourced| sourced.rule.effect == Effect::Allow && allowed(sourced);
        let allowance = || {
            let Sourced { rule, source } = self.rules.iter().find(allows)?;
            let reason = format!("{}: {what}", cited(rule, *source));
            Some(Answer { weighed: Weighed::GoesAhead, reason, rule: Some(rule.clone()) })
        };
        asked.or_else(allowance)
    }

    pub(super) fn by_preset(
        &self,
        category: Category,
        risk: Risk,
        standing: &Standing,
        what: &str,
    ) -> Answer {
        let preset = self.preset.word();
        if !preset_asks(self.preset, standing.sandbox, category, risk) {
            return Answer::new(Weighed::GoesAhead, format!("the preset {preset} allows it: {what}"));
        }
        let held = match (standing.sandbox, category) {
            (Sandbox::Missing | Sandbox::NoneChosen, Category::Exec | Category::Write)
                if risk < Risk::High =>
            {
                ", as there is no sandbox"
            }
            (Sandbox::Partial, Category::Exec) if risk < Risk::High => ", as the sandbox is incomplete",
            (Sandbox::Full | Sandbox::Partial | Sandbox::Missing | Sandbox::NoneChosen, _) => "",
        };
        let reason = match risk {
            Risk::High | Risk::Critical => {
                format!("the preset {preset} asks about {} risk: {what}", risk.word())
            }
            Risk::Low | Risk::Medium => {
                format!("the preset {preset} asks about {}{held}: {what}", category.word())
            }
        };
        Answer::new(Weighed::PresetAsks, reason)
    }
}

/// Returns whether a preset asks about a category and a risk.
pub(super) fn preset_asks(preset: Preset, sandbox: Sandbox, category: Category, risk: Risk) -> bool {
    let held = match sandbox {
        Sandbox::Full | Sandbox::Partial => true,
        Sandbox::Missing | Sandbox::NoneChosen => false,
    };
    match preset {
        Preset::Strict => category != Category::Read || risk >= Risk::High,
        Preset::Standard => match category {
            Category::Read => risk >= Risk::High,
            Category::Write => risk >= Risk::High || !held,
            Category::Exec => risk >= Risk::High || sandbox != Sandbox::Full,
            Category::Git | Category::Network => true,
        },
        Preset::Trusted => {
            risk == Risk::Critical || (category == Category::Exec && sandbox == Sandbox::Missing)
        }
    }
}

/// Returns whether an `allow` rule suffices for a risk: critical risk needs an exact pattern from the user.
fn suffices(Sourced { rule, source }: &Sourced, risk: Risk) -> bool {
    let exact = rule.pattern.as_ref().is_some_and(Pattern::is_exact);
    let own = match source {
        Source::User | Source::Run => true,
        Source::Project | Source::Granted => false,
    };
    risk < Risk::Critical || (own && exact)
}

/// Returns whether a command gains network access, which a grant for the same words without it does not cover.
fn is_opened(subject: &Subject<'_>, call: &Call<'_>) -> bool {
    let far = match subject {
        Subject::Command(_) | Subject::Touched(What::Network(_)) => true,
        Subject::Touched(What::Read(_) | What::Write(_) | What::Name(_) | What::Git(_)) => false,
    };
    far && remember::has_network(call)
}

fn cited(rule: &Rule, source: Source) -> String {
    let whose = match source {
        Source::User => "your configuration",
        Source::Project => "the project",
        Source::Run => "this run",
        Source::Granted => "an earlier approval",
    };
    format!("the rule `{rule}` of {whose}")
}

/// Describes a subject in a few words, with an ellipsis for unknown parts.
fn described(subject: &Subject<'_>) -> String {
    let text = match subject {
        Subject::Command(Spelling { words, .. }) if words.is_empty() => "an assignment".to_owned(),
        Subject::Command(Spelling { words, .. }) => words.join(" "),
        Subject::Touched(What::Read(spot)) => format!("reading {}", shown(&spot.path)),
        Subject::Touched(What::Write(spot)) => format!("writing {}", shown(&spot.path)),
        Subject::Touched(What::Name(spot)) => shown(&spot.path).to_owned(),
        Subject::Touched(What::Git(words)) => format!("git {words}"),
        Subject::Touched(What::Network(Some(host))) => format!("connecting to {host}"),
        Subject::Touched(What::Network(None)) => "connecting to other hosts".to_owned(),
    };
    shortened(&text)
}

/// Returns a text for people: shortened, and without control characters.
fn shortened(text: &str) -> String {
    let plain = |letter: char| match letter {
        HOLE => '…',
        GLOB => '*',
        letter if letter.is_control() => ' ',
        letter => letter,
    };
    let mut short: String = text.chars().map(plain).take(SHOWN).collect();
    if text.chars().nth(SHOWN).is_some() {
        short.push('…');
    }
    short
}

fn shown(path: &str) -> &str {
    if path.is_empty() { "the workspace" } else { path }
}

/// How many characters of a description a reason contains.
const SHOWN: usize = 100;
