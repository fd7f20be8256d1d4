//! Whether a call of a model goes ahead, is asked about, or does not happen: the rules that hold here, brought together.

use std::path::Path;
use std::sync::Arc;

use crate::agent::policy::{Call, Decision, Policy, Sandbox, Source, Standing};
use crate::config::sandbox::SandboxChoice;
use crate::config::settings::rule::Rule;
use crate::daemon::grants;
use crate::daemon::models::Rules;
use crate::daemon::world::World;
use crate::kernel::effect::Turn;
use crate::kernel::event::{Denial, Fault};
use crate::provider::Question;
use crate::sandbox::Strength;
use crate::sandbox::judge::Place;
use crate::sandbox::tools::{Bench, Request};

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
            Decision::Deny => {
                let (kind, message) = ("DENIED_BY_RULE".to_owned(), verdict.reason);
                return Err(Fault { kind, retryable: false, message, detail: None });
            }
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
