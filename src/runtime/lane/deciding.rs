//! The decision about a call of a model: it combines all rules that apply and allows, asks or denies.

use std::sync::Arc;

use serde_json::Value;

use crate::agent::policy::{Call, Decision, Policy, Sandbox, Source, Standing};
use crate::config::sandbox::SandboxChoice;
use crate::config::settings::rule::Rule;
use crate::kernel::effect::Turn;
use crate::kernel::event::{Denial, Fault};
use crate::kernel::gate::is_approval_policy;
use crate::provider::{APPROVE_REMEDY, Question, Screen, Screened};
use crate::runtime::grants;
use crate::runtime::models::Rules;
use crate::runtime::world::World;
use crate::sandbox::Strength;
use crate::sandbox::judge::Place;
use crate::tools::{self, Bench, Request};

/// The policy of the calls of a turn.
pub(super) struct Judge {
    policy: Policy,
    standing: Standing,
}

impl Judge {
    /// Combines the configured rules, those of the run, and the granted ones.
    pub(super) async fn of(
        world: &World,
        rules: &Rules,
        turn: &Turn,
        sandbox: SandboxChoice,
        bench: &Bench,
    ) -> Self {
        let workspace = bench.ground.path().to_owned();
        let (kept, place) = (Arc::clone(&world.grants), workspace.clone());
        let look = move || kept.rules_in(&grants::repository(&place));
        let kept = match world.files.run_in(&workspace, look).await {
            Ok(Ok(kept)) => kept,
            // Without them more calls are asked about, never fewer.
            Ok(Err(error)) => {
                tracing::warn!(%error, "remembered approvals are not used");
                Vec::new()
            }
            Err(why) => {
                tracing::warn!(%why, "remembered approvals are not used");
                Vec::new()
            }
        };
        let policy = Policy::of(&rules.settings)
            .with(Source::Run, &read(&turn.rules))
            .with(Source::Granted, &read(&turn.granted))
            .with(Source::Granted, &read(&kept));
        Self {
            policy,
            standing: Standing { sandbox: walls(world, sandbox).await, place: bench.path_context() },
        }
    }

    /// Returns the question before a call, `None` if the call is allowed, or an error if it is denied or cannot
    /// succeed.
    pub(super) async fn question(&self, request: &Request, bench: &Bench) -> Result<Option<Question>, Fault> {
        let call = |request| Call { request, wish: request.wish() };
        let mut verdict = self.policy.decide(&call(request), &self.standing);
        // Host names of a call that is denied by its arguments are not resolved.
        let found = match verdict.decision {
            Decision::Deny => Vec::new(),
            Decision::Allow | Decision::Ask => request.addresses(bench).await?,
        };
        if !found.is_empty() {
            let place = self.standing.place.clone().with_addresses(found);
            verdict = self.policy.decide(&call(request), &Standing { place, ..self.standing.clone() });
        }
        // A path that is a symbolic link is also decided by its target, and the stricter decision counts.
        if let Some(real) = request.resolved(bench).await? {
            let behind = self.policy.decide(&call(&real), &self.standing);
            if (behind.decision, behind.risk) > (verdict.decision, verdict.risk) {
                verdict = behind;
            }
        }
        match verdict.decision {
            Decision::Allow => return Ok(None),
            Decision::Deny => return Err(denied(verdict.reason)),
            Decision::Ask => {}
        }
        let mut asked = request.question(bench).await?;
        asked.details["category"] = verdict.category.word().into();
        asked.details["risk"] = verdict.risk.word().into();
        let policy_comment = policy_comment(&verdict.reason, &verdict.remember);
        asked.details["reason"] = verdict.reason.into();
        let rules: Vec<_> = verdict.remember.iter().map(ToString::to_string).collect();
        let plain = Question::plain(asked.kind, asked.title, asked.summary, asked.details.to_string());
        Ok(Some(Question {
            remember: (!rules.is_empty()).then(|| rules.join("\n")),
            digest: Some(asked.digest),
            denial: Denial::Told,
            policy_comment,
            ..plain
        }))
    }
}

/// Returns a screen that checks a user's steps against the configured rules and those of the run; `None` if no rule
/// asks or denies.
pub(in crate::runtime) fn screen(rules: &Rules, said: &[String], place: Place) -> Option<Screen> {
    let policy = Policy::of(&rules.settings).with(Source::Run, &read(said));
    if !policy.is_strict_somewhere() {
        return None;
    }
    let standing = Standing { sandbox: Sandbox::NoneChosen, place };
    Some(Screen::new(move |tool, args| {
        // Invalid arguments fail when the call is executed.
        let Ok(request) = tools::parse(tool, args) else { return Screened::Free };
        let (decision, reason) =
            policy.decide_own(&Call { request: &request, wish: request.wish() }, &standing);
        match decision {
            Decision::Allow => Screened::Free,
            Decision::Deny => Screened::Refuse(denied(reason)),
            Decision::Ask => Screened::Ask(Box::new(asked(&request, args, &reason))),
        }
    }))
}

/// Returns the question about a playbook step for which a rule asks.
fn asked(request: &Request, args: &str, reason: &str) -> Question {
    let mut details: Value = serde_json::from_str(args).unwrap_or_default();
    let step =
        ["command", "path"].into_iter().find_map(|name| details.get(name)?.as_str().map(str::to_owned));
    let summary = step.unwrap_or_else(|| request.tool().to_owned());
    details["reason"] = reason.into();
    let plain =
        Question::plain(request.category().word(), "Approve step".to_owned(), summary, details.to_string());
    Question { policy_comment: policy_comment(reason, &[]), ..plain }
}

/// Returns why a call needed an approval, and how to allow it in a run that cannot ask.
fn policy_comment(reason: &str, rules: &[Rule]) -> String {
    let options: String = rules.iter().map(|rule| format!(" --allow {}", quoted_target(rule))).collect();
    if options.is_empty() || options.len() > LONGEST_REMEDY {
        return format!("{reason}; {APPROVE_REMEDY}");
    }
    format!("{reason}; `push run{options}` allows it")
}

/// Returns the target of a rule, quoted for a shell.
fn quoted_target(rule: &Rule) -> String {
    let text = rule.to_string();
    let target = text.split_once(": ").map_or(text.as_str(), |(_, target)| target);
    format!("'{}'", target.replace('\'', r"'\''"))
}

/// The maximum size of the options in a remedy, in bytes.
const LONGEST_REMEDY: usize = 1024;

fn denied(reason: String) -> Fault {
    Fault { kind: "DENIED_BY_RULE".to_owned(), retryable: false, message: reason, detail: None }
}

async fn walls(world: &World, sandbox: SandboxChoice) -> Sandbox {
    if sandbox == SandboxChoice::None {
        return Sandbox::NoneChosen;
    }
    match world.sandboxes.provider(sandbox).layers().await.strength {
        Strength::Full => Sandbox::Full,
        Strength::Partial => Sandbox::Partial,
        Strength::Missing => Sandbox::Missing,
    }
}

/// Parses stored rules, each of one or more lines; an invalid rule allows nothing.
fn read(texts: &[String]) -> Vec<Rule> {
    let lines = texts.iter().flat_map(|text| text.lines());
    lines
        .filter(|line| !is_approval_policy(line))
        .filter_map(|line| {
            line.parse().inspect_err(|error| tracing::warn!(%error, "invalid rule ignored")).ok()
        })
        .collect()
}
