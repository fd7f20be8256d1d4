//! The result of a risk assessment.

use super::level::{Category, Risk};
use super::path_context::PathRef;

/// The risk assessment of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RiskAssessment {
    /// The category of the call.
    pub category: Category,
    /// The risk: that of the riskiest operation, or of a combination of operations.
    pub risk: Risk,
    /// The reason for the risk, if the kind of operation does not explain it.
    pub reason: Option<&'static str>,
    /// Every operation of the call.
    pub operations: Vec<Operation>,
    /// Why the command could not be analysed completely, if so.
    pub uncertainty: Option<Uncertainty>,
}

/// Why a command could not be analysed completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncertainty {
    /// The reason.
    pub reason: String,
    /// How much of the command the operations cover nevertheless.
    pub coverage: Coverage,
}

/// How much of a command its operations cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Coverage {
    /// Every command that the shell runs: rules can be matched against them.
    Complete,
    /// Not every command: a rule may concern one that is missing.
    Partial,
}

/// One operation of a call: a file tool, or one of several commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The command, if the operation is one.
    pub command: Option<CommandWords>,
    /// The risk of the command itself, without its accesses.
    pub risk: Risk,
    /// The reason for the risk, if the kind of operation does not explain it.
    pub reason: Option<&'static str>,
    /// The resources that the operation accesses.
    pub accesses: Vec<AssessedAccess>,
}

/// The words of a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandWords {
    /// The words without wrappers such as `env`; [`UNKNOWN`](crate::sandbox::shell::UNKNOWN) marks unknown text.
    pub words: Vec<String>,
    /// The forms with wrappers, as written, and with the bare name of the program.
    pub wrapped_forms: Vec<Vec<String>>,
}

/// An access to a resource, with its risk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssessedAccess {
    /// The resource and the kind of access.
    pub access: ResourceAccess,
    /// The risk of the access.
    pub risk: Risk,
    /// How the access is known.
    pub evidence: Evidence,
}

/// A resource and the kind of access to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceAccess {
    /// A file is read.
    Read(PathRef),
    /// A file is written, moved or removed.
    Write(PathRef),
    /// A file is named as an argument of an unknown program.
    Mention(PathRef),
    /// The repository is changed; holds the words after `git`.
    Git(String),
    /// A network connection; holds the host if it is known.
    Network(Option<String>),
}

/// How an access is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// From the words of the command: a rule that allows the command also allows the access.
    CommandWords,
    /// From a redirection, an argument of the tool, or the tool itself.
    Explicit,
}

impl Operation {
    /// Returns the risk of the operation including all its accesses.
    pub fn total_risk(&self) -> Risk {
        self.accesses.iter().map(|touch| touch.risk).max().unwrap_or(self.risk).max(self.risk)
    }
}
