//! The context of the calls of these tests, and shortcuts to decide them.

use std::path::Path;

use pushd::agent::policy::{Call, Policy, Sandbox, Source, Standing, Verdict};
use pushd::config::settings::Preset;
use pushd::config::settings::rule::Rule;
use pushd::sandbox::judge::{Place, Wish};
use pushd::tools::parse;
use serde_json::json;

/// A workspace in a home.
pub(crate) fn standing(sandbox: Sandbox) -> Standing {
    Standing { sandbox, place: Place::new(Path::new("/home/ann/app"), Some(Path::new("/home/ann"))) }
}

/// A policy of a preset and rules of the user.
pub(crate) fn policy(preset: Preset, rules: &[&str]) -> Policy {
    Policy::new(preset).with(Source::User, &parsed(rules))
}

pub(crate) fn parsed(rules: &[&str]) -> Vec<Rule> {
    rules.iter().map(|rule| rule.parse().unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// Decides about a command.
pub(crate) fn command(policy: &Policy, text: &str, sandbox: Sandbox) -> Verdict {
    call(policy, "sandbox_exec", &json!({ "command": text }).to_string(), sandbox)
}

/// Decides about a call.
pub(crate) fn call(policy: &Policy, tool: &str, args: &str, sandbox: Sandbox) -> Verdict {
    wishing(policy, tool, args, Wish::default(), sandbox)
}

/// Decides about a call with an escalation beyond the sandbox.
pub(crate) fn wishing(policy: &Policy, tool: &str, args: &str, wish: Wish, sandbox: Sandbox) -> Verdict {
    let request = parse(tool, args).unwrap_or_else(|fault| panic!("{}", fault.message));
    policy.decide(&Call { request: &request, wish }, &standing(sandbox))
}
