//! The decision about a call of a model: it combines all rules that apply and allows, asks or denies.

use std::sync::Arc;

use serde_json::Value;

use crate::agent::policy::{Call, CallContext, Decision, Policy, RuleSource, Sandbox};
use crate::config::sandbox::{SandboxKind, SandboxMechanism};
use crate::config::settings::rule::Rule;
use crate::kernel::effect::TurnRequest;
use crate::kernel::event::{DenialEffect, ToolError};
use crate::kernel::gate::is_approval_policy;
use crate::provider::{APPROVE_REMEDY, Question, Screen, ScreenDecision};
use crate::runtime::grants;
use crate::runtime::model_config::RunConfig;
use crate::runtime::services::Services;
use crate::sandbox::ConfinementStrength;
use crate::sandbox::risk::PathContext;
use crate::tools::{Request, ToolContext, ToolSet};

/// The policy of the calls of a turn.
pub(super) struct CallPolicy {
    policy: Policy,
    context: CallContext,
}

impl CallPolicy {
    /// Combines the configured rules, those of the run, and the granted ones.
    pub(super) async fn load(
        services: &Services,
        rules: &RunConfig,
        turn: &TurnRequest,
        sandbox: SandboxKind,
        tool_context: &ToolContext,
    ) -> Self {
        let workspace = tool_context.workspace.path().to_owned();
        let (kept, place) = (Arc::clone(&services.grants), workspace.clone());
        let look = move || kept.rules_in(&grants::find_repository(&place));
        let kept = match services.files.run_in(&workspace, look).await {
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
        let policy = Policy::from_settings(&rules.settings)
            .with_rules(RuleSource::Run, &parse_rules(&turn.rules))
            .with_rules(RuleSource::Granted, &parse_rules(&turn.granted))
            .with_rules(RuleSource::Granted, &parse_rules(&kept));
        Self {
            policy,
            context: CallContext {
                sandbox: sandbox_level(services, sandbox, rules.settings.sandbox.mechanism).await,
                path_context: tool_context.path_context(),
            },
        }
    }

    /// Returns the question before a call, `None` if the call is allowed, or an error if it is denied or cannot
    /// succeed.
    pub(super) async fn question(
        &self,
        request: &Request,
        tool_context: &ToolContext,
    ) -> Result<Option<Question>, ToolError> {
        let call = |request| Call { request, escalation: request.escalation() };
        let mut verdict = self.policy.decide(&call(request), &self.context);
        // Host names of a call that is denied by its arguments are not resolved.
        let found = match verdict.decision {
            Decision::Deny => Vec::new(),
            Decision::Allow | Decision::Ask => request.resolve_addresses(tool_context).await?,
        };
        if !found.is_empty() {
            let place = self.context.path_context.clone().with_addresses(found);
            verdict = self.policy.decide(&call(request), &CallContext { path_context: place, ..self.context.clone() });
        }
        // A path that is a symbolic link is also decided by its target, and the stricter decision counts.
        if let Some(real) = request.with_resolved_paths(tool_context).await? {
            let behind = self.policy.decide(&call(&real), &self.context);
            if (behind.decision, behind.risk) > (verdict.decision, verdict.risk) {
                verdict = behind;
            }
        }
        match verdict.decision {
            Decision::Allow => return Ok(None),
            Decision::Deny => return Err(denied_by_rule(verdict.reason)),
            Decision::Ask => {}
        }
        let mut asked = request.approval_question(tool_context).await?;
        asked.details["category"] = verdict.category.as_str().into();
        asked.details["risk"] = verdict.risk.as_str().into();
        let policy_comment = policy_comment(&verdict.reason, &verdict.grant_rules);
        asked.details["reason"] = verdict.reason.into();
        let rules: Vec<_> = verdict.grant_rules.iter().map(ToString::to_string).collect();
        let plain = Question::plain(asked.kind, asked.title, asked.summary, asked.details.to_string());
        Ok(Some(Question {
            grant_rule: (!rules.is_empty()).then(|| rules.join("\n")),
            digest: Some(asked.digest),
            denial: DenialEffect::InformModel,
            policy_comment,
            ..plain
        }))
    }
}

/// Returns a screen that checks a user's steps against the configured rules and those of the run; `None` if no rule
/// asks or denies.
pub(in crate::runtime) fn screen(
    rules: &RunConfig,
    run_rules: &[String],
    place: PathContext,
    tools: ToolSet,
) -> Option<Screen> {
    let policy = Policy::from_settings(&rules.settings).with_rules(RuleSource::Run, &parse_rules(run_rules));
    if !policy.has_restrictive_rules() {
        return None;
    }
    let context = CallContext { sandbox: Sandbox::Disabled, path_context: place };
    Some(Screen::new(move |tool, args| {
        // Invalid arguments fail when the call is executed.
        let Ok(request) = tools.parse(tool, args) else { return ScreenDecision::Allow };
        let (decision, reason) =
            policy.decide_user_command(&Call { request: &request, escalation: request.escalation() }, &context);
        match decision {
            Decision::Allow => ScreenDecision::Allow,
            Decision::Deny => ScreenDecision::Deny(denied_by_rule(reason)),
            Decision::Ask => ScreenDecision::Ask(Box::new(step_question(&request, args, &reason))),
        }
    }))
}

/// Returns the question about a playbook step for which a rule asks.
fn step_question(request: &Request, args: &str, reason: &str) -> Question {
    let mut details: Value = serde_json::from_str(args).unwrap_or_default();
    let step = ["command", "path"].into_iter().find_map(|name| details.get(name)?.as_str().map(str::to_owned));
    let summary = step.unwrap_or_else(|| request.tool().to_owned());
    details["reason"] = reason.into();
    let plain = Question::plain(request.category().as_str(), "Approve step".to_owned(), summary, details.to_string());
    Question { policy_comment: policy_comment(reason, &[]), ..plain }
}

/// Returns why a call needed an approval, and how to allow it in a run that cannot ask.
fn policy_comment(reason: &str, rules: &[Rule]) -> String {
    let options: String = rules.iter().map(|rule| format!(" --allow {}", quoted_target(rule))).collect();
    if options.is_empty() || options.len() > MAX_REMEDY_BYTES {
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
const MAX_REMEDY_BYTES: usize = 1024;

fn denied_by_rule(reason: String) -> ToolError {
    ToolError { kind: "DENIED_BY_RULE".to_owned(), retryable: false, message: reason, detail: None }
}

async fn sandbox_level(services: &Services, sandbox: SandboxKind, mechanism: SandboxMechanism) -> Sandbox {
    if sandbox == SandboxKind::None {
        return Sandbox::Disabled;
    }
    match services.sandboxes.provider(sandbox, mechanism).layers().await.strength {
        ConfinementStrength::Full => Sandbox::Full,
        ConfinementStrength::Partial => Sandbox::Partial,
        ConfinementStrength::Missing => Sandbox::Unavailable,
    }
}

/// Parses stored rules, each of one or more lines; an invalid rule allows nothing.
fn parse_rules(texts: &[String]) -> Vec<Rule> {
    let lines = texts.iter().flat_map(|text| text.lines());
    lines
        .filter(|line| !is_approval_policy(line))
        .filter_map(|line| line.parse().inspect_err(|error| tracing::warn!(%error, "invalid rule ignored")).ok())
        .collect()
}
