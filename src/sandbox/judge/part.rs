//! The result of a risk assessment.

use super::level::{Category, Risk};
use super::place::Spot;

/// The risk assessment of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The category of the call.
    pub category: Category,
    /// The risk: that of the riskiest operation, or of a combination of operations.
    pub risk: Risk,
    /// The reason for the risk, if the kind of operation does not explain it.
    pub why: Option<&'static str>,
    /// Every operation of the call.
    pub parts: Vec<Part>,
    /// Why the command could not be analysed completely, if so.
    pub unclear: Option<Doubt>,
}

/// Why a command could not be analysed completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
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
pub struct Part {
    /// The command, if the operation is one.
    pub command: Option<Spelling>,
    /// The risk of the command itself, without its accesses.
    pub risk: Risk,
    /// The reason for the risk, if the kind of operation does not explain it.
    pub why: Option<&'static str>,
    /// The resources that the operation accesses.
    pub touches: Vec<Touch>,
}

/// The words of a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spelling {
    /// The words without wrappers such as `env`; [`UNKNOWN`](crate::sandbox::shell::UNKNOWN) marks unknown text.
    pub words: Vec<String>,
    /// The forms with wrappers, as written, and with the bare name of the program.
    pub outer: Vec<Vec<String>>,
}

/// An access to a resource, with its risk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    /// The resource and the kind of access.
    pub what: What,
    /// The risk of the access.
    pub risk: Risk,
    /// How the access is known.
    pub by: By,
}

/// A resource and the kind of access to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A file is read.
    Read(Spot),
    /// A file is written, moved or removed.
    Write(Spot),
    /// A file is named as an argument of an unknown program.
    Name(Spot),
    /// The repository is changed; holds the words after `git`.
    Git(String),
    /// A network connection; holds the host if it is known.
    Network(Option<String>),
}

/// How an access is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// From the words of the command: a rule that allows the command also allows the access.
    Words,
    /// From a redirection, an argument of the tool, or the tool itself.
    Itself,
}

impl Part {
    /// Returns the risk of the operation including all its accesses.
    pub fn whole_risk(&self) -> Risk {
        self.touches.iter().map(|touch| touch.risk).max().unwrap_or(self.risk).max(self.risk)
    }
}
