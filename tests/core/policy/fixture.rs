//! The context of the calls of these tests, and shortcuts to decide them.

use std::path::Path;

use pushd::agent::policy::{Call, CallContext, Policy, PolicyDecision, RuleSource, Sandbox};
use pushd::config::settings::Preset;
use pushd::config::settings::rule::Rule;
use pushd::sandbox::risk::{Escalation, PathContext};
use pushd::tools::ToolSet;
use serde_json::json;

/// A workspace in a home.
pub(crate) fn call_context(sandbox: Sandbox) -> CallContext {
    CallContext { sandbox, path_context: PathContext::new(Path::new("/home/ann/app"), Some(Path::new("/home/ann"))) }
}

/// A policy of a preset and rules of the user.
pub(crate) fn policy(preset: Preset, rules: &[&str]) -> Policy {
    Policy::new(preset).with_rules(RuleSource::User, &parse_rules(rules))
}

pub(crate) fn parse_rules(rules: &[&str]) -> Vec<Rule> {
    rules.iter().map(|rule| rule.parse().unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// Decides about a command.
pub(crate) fn command(policy: &Policy, text: &str, sandbox: Sandbox) -> PolicyDecision {
    call(policy, "sandbox_exec", &json!({ "command": text }).to_string(), sandbox)
}

/// Decides about a call.
pub(crate) fn call(policy: &Policy, tool: &str, args: &str, sandbox: Sandbox) -> PolicyDecision {
    call_with_escalation(policy, tool, args, Escalation::default(), sandbox)
}

/// Decides about a call with an escalation beyond the sandbox.
pub(crate) fn call_with_escalation(
    policy: &Policy,
    tool: &str,
    args: &str,
    escalation: Escalation,
    sandbox: Sandbox,
) -> PolicyDecision {
    let request = ToolSet::builtin().parse(tool, args).unwrap_or_else(|fault| panic!("{}", fault.message));
    policy.decide(&Call { request: &request, escalation }, &call_context(sandbox))
}
