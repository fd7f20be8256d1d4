//! Whether a call of a model goes ahead, is asked about, or does not happen: the rules that hold here, brought together.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::agent::policy::{Call, Decision, Policy, Sandbox, Source, Standing};
use crate::config::sandbox::SandboxChoice;
use crate::config::settings::rule::Rule;
use crate::daemon::grants;
use crate::daemon::models::Rules;
use crate::daemon::world::World;
use crate::kernel::effect::Turn;
use crate::kernel::event::{Denial, Fault};
use crate::provider::{Question, Screen, Screened};
use crate::sandbox::Strength;
use crate::sandbox::judge::Place;
use crate::sandbox::tools::{self, Bench, Request};

/// What decides about the calls of a turn.
pub(super) struct Judge {
    policy: Policy,
    standing: Standing,
}

impl Judge {
    /// Brings together what is configured, what was said for the run and what was granted.
    pub(super) async fn of(
        world: &World,
        rules: &Rules,
        turn: &Turn,
        sandbox: SandboxChoice,
        bench: &Bench,
    ) -> Self {
        let workspace = bench.ground.path().to_owned();
        let (kept, place) = (Arc::clone(&world.grants), workspace.clone());
        let kept = tokio::task::spawn_blocking(move || kept.rules_in(&grants::repository(&place))).await;
        let kept = match kept {
            Ok(Ok(kept)) => kept,
            // Without them more is asked about, and nothing less.
            Ok(Err(error)) => {
                tracing::warn!(%error, "the remembered approvals are not used");
                Vec::new()
            }
            Err(_) => Vec::new(),
        };
        let policy = Policy::of(&rules.settings)
            .with(Source::Run, &read(&turn.rules))
            .with(Source::Granted, &read(&turn.granted))
            .with(Source::Granted, &read(&kept));
        let home = bench.env.iter().find(|(name, _)| name == "HOME").map(|(_, value)| Path::new(value));
        let place = Place::new(&workspace, home);
        Self { policy, standing: Standing { sandbox: walls(world, sandbox).await, place } }
    }

    /// Says what is to be asked before a call, nothing for one that goes ahead, or why it does not happen.
    pub(super) async fn question(&self, request: &Request, bench: &Bench) -> Result<Option<Question>, Fault> {
        let verdict = self.policy.decide(&Call { request, wish: request.wish() }, &self.standing);
        match verdict.decision {
            Decision::Allow => return Ok(None),
            Decision::Deny => return Err(denied(verdict.reason)),
            Decision::Ask => {}
        }
        let mut asked = request.question(bench).await?;
        asked.details["category"] = verdict.category.word().into();
        asked.details["risk"] = verdict.risk.word().into();
        asked.details["reason"] = verdict.reason.into();
        let rules: Vec<_> = verdict.remember.iter().map(ToString::to_string).collect();
        let plain = Question::plain(asked.kind, asked.title, asked.summary, asked.details.to_string());
        Ok(Some(Question {
            remember: (!rules.is_empty()).then(|| rules.join("\n")),
            digest: Some(asked.digest),
            denial: Denial::Told,
            ..plain
        }))
    }
}

/// Holds what a user wants done against the rules, and those that were said for it; nothing where no rule asks or denies.
pub(in crate::daemon) fn screen(
    rules: &Rules,
    said: &[String],
    cwd: &Path,
    home: Option<&Path>,
) -> Option<Screen> {
    let policy = Policy::of(&rules.settings).with(Source::Run, &read(said));
    if !policy.is_strict_somewhere() {
        return None;
    }
    let standing = Standing { sandbox: Sandbox::NoneChosen, place: Place::new(cwd, home) };
    Some(Screen::new(move |tool, args| {
        // What cannot be read fails when it is tried.
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

/// The question about a step of a playbook that a rule asks about.
fn asked(request: &Request, args: &str, reason: &str) -> Question {
    let mut details: Value = serde_json::from_str(args).unwrap_or_default();
    let step =
        ["command", "path"].into_iter().find_map(|name| details.get(name)?.as_str().map(str::to_owned));
    let summary = step.unwrap_or_else(|| request.tool().to_owned());
    details["reason"] = reason.into();
    Question::plain(request.category().word(), "Approve step".to_owned(), summary, details.to_string())
}

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

/// Reads rules that were kept as texts, each of one line or several; what is none allows nothing.
fn read(texts: &[String]) -> Vec<Rule> {
    let lines = texts.iter().flat_map(|text| text.lines());
    lines
        .filter_map(|line| {
            line.parse().inspect_err(|error| tracing::warn!(%error, "a rule is not used")).ok()
        })
        .collect()
}
