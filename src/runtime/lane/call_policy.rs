//! The decision about a call of a model: it combines all rules that apply and allows, asks or denies.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::agent::policy::{Call, CallContext, Decision, Policy, RuleSource, Sandbox};
use crate::config::sandbox::{SandboxKind, SandboxMechanism};
use crate::config::settings::rule::Rule;
use crate::kernel::command::Snapshot;
use crate::kernel::effect::TurnRequest;
use crate::kernel::event::{DenialEffect, ToolError};
use crate::kernel::gate::is_run_policy;
use crate::provider::{APPROVE_REMEDY, Question, StepDecision, StepPolicy};
use crate::runtime::grants;
use crate::runtime::model_config::RunConfig;
use crate::runtime::services::Services;
use crate::sandbox::ConfinementStrength;
use crate::sandbox::risk::PathContext;
use crate::tools::{self, Request, ToolContext, ToolErrorKind, ToolSet};

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
        let (store, root) = (Arc::clone(&services.grants), workspace.clone());
        let read_rules = move || store.rules_in(&grants::find_repository(&root));
        let granted = match services.files.run_in(&workspace, read_rules).await {
            Ok(Ok(granted)) => granted,
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
            .with_rules(RuleSource::Granted, &parse_rules(&granted));
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
        let mut assessment = self.policy.decide(&call(request), &self.context);
        // Host names of a call that is denied by its arguments are not resolved.
        let found = match assessment.decision {
            Decision::Deny => Vec::new(),
            Decision::Allow | Decision::Ask => request.resolve_addresses(tool_context).await?,
        };
        if !found.is_empty() {
            let path_context = self.context.path_context.clone().with_addresses(found);
            assessment = self.policy.decide(&call(request), &CallContext { path_context, ..self.context.clone() });
        }
        // A path that is a symbolic link is also decided by its target, and the stricter decision counts.
        if let Some(real) = request.with_resolved_paths(tool_context).await? {
            let target = self.policy.decide(&call(&real), &self.context);
            if (target.decision, target.risk) > (assessment.decision, assessment.risk) {
                assessment = target;
            }
        }
        match assessment.decision {
            Decision::Allow => return Ok(None),
            Decision::Deny => return Err(denied_by_rule(assessment.reason)),
            Decision::Ask => {}
        }
        let mut question = request.approval_question(tool_context).await?;
        question.details["category"] = assessment.category.as_str().into();
        question.details["risk"] = assessment.risk.as_str().into();
        let policy_comment = policy_comment(&assessment.reason, &assessment.grant_rules);
        question.details["reason"] = assessment.reason.into();
        let rules: Vec<_> = assessment.grant_rules.iter().map(ToString::to_string).collect();
        let plain = Question::plain(question.kind, question.title, question.summary, question.details.to_string());
        Ok(Some(Question {
            grant_rule: (!rules.is_empty()).then(|| rules.join("\n")),
            digest: Some(question.digest),
            denial: DenialEffect::InformModel,
            policy_comment,
            ..plain
        }))
    }
}

/// Returns the policy that checks a user's steps against the configured rules and those of the run; `None` if no rule
/// asks or denies.
pub(in crate::runtime) fn step_policy(
    rules: &RunConfig,
    run_rules: &[String],
    path_context: PathContext,
    tools: ToolSet,
) -> Option<StepPolicy> {
    let policy = Policy::from_settings(&rules.settings).with_rules(RuleSource::Run, &parse_rules(run_rules));
    if !policy.has_restrictive_rules() {
        return None;
    }
    let context = CallContext { sandbox: Sandbox::Disabled, path_context };
    Some(StepPolicy::new(move |tool, args| {
        // Invalid arguments fail when the call is executed.
        let Ok(request) = tools.parse(tool, args) else { return StepDecision::Allow };
        let (decision, reason) =
            policy.decide_user_command(&Call { request: &request, escalation: request.escalation() }, &context);
        match decision {
            Decision::Allow => StepDecision::Allow,
            Decision::Deny => StepDecision::Deny(denied_by_rule(reason)),
            Decision::Ask => StepDecision::Ask(Box::new(step_question(&request, args, &reason))),
        }
    }))
}

/// The commands in a message that somebody other than the owner has sent.
pub(super) struct ConfinedSteps {
    pub(super) services: Arc<Services>,
    pub(super) sandbox: SandboxKind,
    pub(super) workspace: PathBuf,
}

impl ConfinedSteps {
    /// Returns the policy that asks before each command, unless `rules` deny it, and refuses one that cannot be confined.
    pub(super) async fn policy(self, rules: Option<StepPolicy>) -> StepPolicy {
        let Self { services, sandbox, workspace } = self;
        // A configuration that cannot be read confines like the default one.
        let settings =
            services.model_config.run_config(&workspace).await.map(|rules| rules.settings).unwrap_or_default();
        let level = sandbox_level(&services, sandbox, settings.sandbox.mechanism).await;
        let tools = services.tools.clone();
        StepPolicy::new(move |tool, args| {
            if let Some(StepDecision::Deny(error)) = rules.as_ref().map(|rules| rules.check(tool, args)) {
                return StepDecision::Deny(error);
            }
            if matches!(level, Sandbox::Disabled | Sandbox::Unavailable) {
                return StepDecision::Deny(
                    tools::ToolError::new(ToolErrorKind::SandboxUnavailable, NOT_CONFINED).into(),
                );
            }
            match tools.parse(tool, args) {
                Ok(request) => StepDecision::Ask(Box::new(step_question(&request, args, NOT_THE_OWNER))),
                // Invalid arguments fail when the call is executed.
                Err(_) => StepDecision::Allow,
            }
        })
    }
}

/// Why a command in a message asks.
const NOT_THE_OWNER: &str = "the message is not from the owner of the daemon";
/// The error of a command that would run unconfined.
const NOT_CONFINED: &str = "a command in a message of a participant who is not the owner runs in the sandbox only, and this session \
    has none; `push doctor` shows why";

/// Refuses a user command that a rule denies, and one that needs an approval: outside of a run nobody can approve it.
///
/// The error is the reason.
pub(in crate::runtime) async fn check_user_command(
    services: &Services,
    snapshot: &Snapshot,
    home: &Path,
    command: &str,
) -> Result<(), String> {
    // The workspace is where the session works, even if a link leads elsewhere by now.
    let workspace = Path::new(snapshot.workspace());
    let rules = services.model_config.run_config(workspace).await;
    let rules = rules.map_err(|error| format!("the configuration cannot be used: {error}"))?;
    let paths = PathContext::new(workspace, Some(home)).with_alias(Path::new(&snapshot.opening.cwd));
    let Some(policy) = step_policy(&rules, &[], paths, services.tools.clone()) else { return Ok(()) };
    let args = serde_json::json!({ "command": command }).to_string();
    match policy.check(tools::EXEC, &args) {
        StepDecision::Allow => Ok(()),
        StepDecision::Deny(error) => Err(error.message),
        StepDecision::Ask(_) => Err(RULE_ASKS.to_owned()),
    }
}

/// The error of a user command that needs an approval.
const RULE_ASKS: &str = "a rule asks about this command; send it as a prompt, which can wait for an answer";

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
        .filter(|line| !is_run_policy(line))
        .filter_map(|line| line.parse().inspect_err(|error| tracing::warn!(%error, "invalid rule ignored")).ok())
        .collect()
}
