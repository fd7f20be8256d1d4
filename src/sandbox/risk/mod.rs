//! Risk assessment of a tool call, from its tool and its arguments and never from the model's description of them.
//!
//! A command is parsed with the grammar of the shell, and every command in it is assessed, also behind wrappers such as
//! `env` and `sudo`. The assessment is lexical: it cannot know what a program really does; the sandbox limits that. It
//! reads no files, so the same call always gets the same assessment.

mod analyzer;
mod assessment;
mod dangerous_programs;
mod files;
mod finding;
mod git;
mod level;
mod network;
mod path_context;
mod programs;
mod secrets;
mod startup;
mod variables;
mod words;
mod wrappers;

use crate::sandbox::shell::Limits;
use analyzer::CommandAnalyzer;

pub use assessment::{
    AssessedAccess, CommandWords, Coverage, Evidence, Operation, ResourceAccess, RiskAssessment, Uncertainty,
};
pub use level::{Category, Risk};
pub use path_context::{PathContext, PathRef, PathScope};

/// Permissions that a call of `sandbox_exec` requests beyond running a command in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Escalation {
    /// Access to the network.
    pub network: bool,
    /// Running outside the sandbox.
    pub unconfined: bool,
}

/// Assesses a command for `/bin/sh -c`, in the directory `cwd` of the workspace or in the workspace itself.
pub fn assess_command(
    text: &str,
    cwd: Option<&str>,
    escalation: Escalation,
    paths: &PathContext,
    limits: Limits,
) -> RiskAssessment {
    let mut analyzer = CommandAnalyzer::new(paths, cwd, limits);
    analyzer.analyze(text);
    if escalation.network {
        add_network_access(&mut analyzer.operations);
    }
    let worst = analyzer.operations.iter().max_by_key(|part| part.total_risk());
    let mut risk = worst.map_or(Risk::Low, Operation::total_risk);
    let mut why = worst.and_then(|part| part.reason);
    let mut raise = |least: Risk, reason: &'static str| {
        if risk < least {
            (risk, why) = (least, Some(reason));
        }
    };
    let what = || analyzer.operations.iter().flat_map(|part| &part.accesses).map(|touch| &touch.access);
    let far = what().any(|what| matches!(what, ResourceAccess::Network(_)));
    let secret = what().any(|what| match what {
        ResourceAccess::Read(path_ref) | ResourceAccess::Mention(path_ref) => secrets::holds_secrets(path_ref, paths),
        ResourceAccess::Write(_) | ResourceAccess::Git(_) | ResourceAccess::Network(_) => false,
    });
    if far && (secret || analyzer.traits.shows_environment) {
        raise(Risk::Critical, "it may send secrets to another host");
    }
    if analyzer.traits.fetches && analyzer.traits.runs_script {
        raise(Risk::Critical, "it may run code that it has just downloaded");
    }
    if analyzer.fork_bomb {
        raise(Risk::Critical, "it starts itself recursively, like a fork bomb");
    }
    if escalation.unconfined {
        raise(Risk::High, "it runs outside the sandbox");
    }
    if analyzer.uncertainty.is_some() {
        raise(Risk::High, "it cannot be analysed completely");
    }
    RiskAssessment {
        category: Category::Exec,
        risk,
        reason: why,
        operations: analyzer.operations,
        uncertainty: analyzer.uncertainty,
    }
}

/// Adds access to unknown hosts to every command that does not name a host.
fn add_network_access(parts: &mut Vec<Operation>) {
    let far = |part: &Operation| part.accesses.iter().any(|touch| matches!(touch.access, ResourceAccess::Network(_)));
    let touch =
        || AssessedAccess { access: ResourceAccess::Network(None), risk: Risk::High, evidence: Evidence::Explicit };
    if parts.iter().all(|part| part.command.is_none()) {
        parts.push(Operation { command: None, risk: Risk::Low, reason: None, accesses: vec![touch()] });
    }
    for part in parts.iter_mut().filter(|part| part.command.is_some() && !far(part)) {
        part.accesses.push(touch());
    }
}

/// Assesses a tool other than a command, which accesses these resources.
pub(crate) fn assess_tool(category: Category, touches: Vec<(ResourceAccess, Risk)>, least: Risk) -> RiskAssessment {
    let touches = touches
        .into_iter()
        .map(|(what, risk)| AssessedAccess { access: what, risk, evidence: Evidence::Explicit })
        .collect();
    let part = Operation { command: None, risk: least, reason: None, accesses: touches };
    RiskAssessment { category, risk: part.total_risk(), reason: None, operations: vec![part], uncertainty: None }
}

/// Returns the risk of reading a file and of writing it.
pub(crate) fn read_and_write_risk(path_ref: &PathRef, paths: &PathContext) -> (Risk, Risk) {
    (secrets::read_risk(path_ref, paths), secrets::write_risk(path_ref, paths))
}

/// Returns the host of a URL.
pub fn host_of_url(url: &str) -> Option<String> {
    network::host_of(url)
}
