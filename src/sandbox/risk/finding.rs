//! The assessment of one command in progress.

use super::assessment::{AssessedAccess, Coverage, Evidence, ResourceAccess};
use super::level::Risk;
use super::path_context::{BaseDirectory, PathContext, PathRef, PathScope};
use super::secrets;
use crate::sandbox::address::{self, AddressClass};

/// The context of a command: its possible working directories and its input.
pub(super) struct CommandContext<'a> {
    pub(super) paths: &'a PathContext,
    /// The possible working directories.
    pub(super) bases: &'a [BaseDirectory],
    pub(super) input: Input,
}

/// The source of the standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Input {
    /// Empty, or a file.
    NotPiped,
    /// The output of another command.
    Pipe,
    /// A literal text.
    Text(String),
}

/// The assessment of one command.
#[derive(Debug, Default)]
pub(super) struct Finding {
    pub(super) risk: Option<Risk>,
    pub(super) reason: Option<&'static str>,
    pub(super) accesses: Vec<AssessedAccess>,
    pub(super) uncertainty: Option<(&'static str, Coverage)>,
    pub(super) nested: Vec<NestedCommand>,
    pub(super) directory_changes: Vec<String>,
    pub(super) traits: CommandTraits,
}

/// Properties that matter in combination with other commands of the same call.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct CommandTraits {
    /// It downloads from another host.
    pub(super) fetches: bool,
    /// It executes a script file or its input.
    pub(super) runs_script: bool,
    /// It prints the environment, which may contain secrets.
    pub(super) shows_environment: bool,
    /// It only runs its nested commands.
    pub(super) is_transparent: bool,
}

/// A command that another command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NestedCommand {
    /// As words.
    Words(Vec<String>),
    /// As a text for a shell.
    Text(String),
}

impl Finding {
    pub(super) fn with_risk(risk: Risk) -> Self {
        Self { risk: Some(risk), ..Self::default() }
    }

    /// Raises the risk to at least this level.
    pub(super) fn raise(&mut self, risk: Risk, why: &'static str) {
        if self.risk.is_none_or(|known| known < risk) {
            self.risk = Some(risk);
            self.reason = Some(why);
        }
    }

    /// Records that the command may run commands that are not visible here, and why.
    pub(super) fn add_uncertainty(&mut self, what: &'static str) {
        self.set_uncertainty(what, Coverage::Partial);
    }

    fn set_uncertainty(&mut self, what: &'static str, coverage: Coverage) {
        if self.uncertainty.is_none_or(|(_, known)| known < coverage) {
            self.uncertainty = Some((what, coverage));
        }
    }

    pub(super) fn add_read(&mut self, word: &str, context: &CommandContext<'_>) {
        self.add_paths(word, context, |path_ref| {
            (secrets::read_risk(&path_ref, context.paths), ResourceAccess::Read(path_ref))
        });
    }

    pub(super) fn add_write(&mut self, word: &str, context: &CommandContext<'_>) {
        self.add_paths(word, context, |path_ref| {
            (secrets::write_risk(&path_ref, context.paths), ResourceAccess::Write(path_ref))
        });
        if resolve_word(word, context).iter().any(|path_ref| path_ref.scope == PathScope::Unknown) {
            // The unknown path is among the accesses, so the coverage is complete.
            self.set_uncertainty("where it writes is known only when it runs", Coverage::Complete);
        }
    }

    /// Records a word that may be the name of a file.
    pub(super) fn add_mention(&mut self, word: &str, context: &CommandContext<'_>) {
        self.add_paths(word, context, |path_ref| {
            let risk = match secrets::read_risk(&path_ref, context.paths) {
                // In the workspace, a word that looks like the name of a secret is usually an ordinary word.
                Risk::Low | Risk::Medium => Risk::Low,
                risk @ (Risk::High | Risk::Critical) => risk,
            };
            (risk, ResourceAccess::Mention(path_ref))
        });
    }

    pub(super) fn add_network(&mut self, host: Option<String>) {
        let risk = match host.as_deref().map(address::classify_host) {
            Some(AddressClass::Metadata) => Risk::Critical,
            Some(AddressClass::Public | AddressClass::Private) | None => Risk::High,
        };
        self.accesses.push(AssessedAccess {
            access: ResourceAccess::Network(host),
            risk,
            evidence: Evidence::CommandWords,
        });
    }

    pub(super) fn add_git(&mut self, words: String) {
        self.accesses.push(AssessedAccess {
            access: ResourceAccess::Git(words),
            risk: Risk::Medium,
            evidence: Evidence::CommandWords,
        });
    }

    fn add_paths(
        &mut self,
        word: &str,
        context: &CommandContext<'_>,
        touch: impl Fn(PathRef) -> (Risk, ResourceAccess),
    ) {
        if word.is_empty() {
            return;
        }
        for path_ref in resolve_word(word, context) {
            let (risk, what) = touch(path_ref);
            let touch = AssessedAccess { access: what, risk, evidence: Evidence::CommandWords };
            if !self.accesses.contains(&touch) {
                self.accesses.push(touch);
            }
        }
    }
}

/// Resolves a word against every possible working directory.
pub(super) fn resolve_word(word: &str, context: &CommandContext<'_>) -> Vec<PathRef> {
    let mut found: Vec<PathRef> = Vec::new();
    for base in context.bases {
        let path_ref = context.paths.resolve(base, word);
        if !found.contains(&path_ref) {
            found.push(path_ref);
        }
    }
    found
}
