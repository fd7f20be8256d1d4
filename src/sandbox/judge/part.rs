//! What a call would do, part by part.

use super::level::{Category, Risk};
use super::place::Spot;

/// What a call would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// What kind of thing it is.
    pub category: Category,
    /// How much harm it may do: that of its worst part, or of parts together.
    pub risk: Risk,
    /// Why it is of that risk, where there is more to say than its kind.
    pub why: Option<&'static str>,
    /// Everything that it would do.
    pub parts: Vec<Part>,
    /// Why it cannot be told what it does, if it cannot.
    pub unclear: Option<Doubt>,
}

/// Why it cannot be told what a command does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// The reason.
    pub reason: String,
    /// How much of the command is among the parts all the same.
    pub coverage: Coverage,
}

/// How much of a command is among its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Coverage {
    /// Every command that the shell runs: rules can be held against them.
    Complete,
    /// Not all of them: a rule may be about one that is not there.
    Partial,
}

/// One thing that a call would do: a file tool, or one command among several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The command, if it is one.
    pub command: Option<Spelling>,
    /// How much harm it may do, by its words alone.
    pub risk: Risk,
    /// Why, where there is more to say than its kind.
    pub why: Option<&'static str>,
    /// What it touches.
    pub touches: Vec<Touch>,
}

/// The words of a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spelling {
    /// They, without what only runs another command; [`HOLE`](crate::sandbox::shell::HOLE) stands for what is not known.
    pub words: Vec<String>,
    /// The same with what stands before, as it is written, and by the plain name of the program.
    pub outer: Vec<Vec<String>>,
}

/// Something that is touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touch {
    /// What, and how.
    pub what: What,
    /// How much harm that may do.
    pub risk: Risk,
    /// How it is known.
    pub by: By,
}

/// What is touched, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A file is read.
    Read(Spot),
    /// A file is written, moved or removed.
    Write(Spot),
    /// A file is named to a program of which nothing is known.
    Name(Spot),
    /// The repository is changed: the words after `git`.
    Git(String),
    /// Another machine is talked to, if its name is known.
    Network(Option<String>),
}

/// How it is known that something is touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// By the words of the command: who allows the command allows this.
    Words,
    /// By itself: a redirection, an argument of the tool, or the tool.
    Itself,
}

impl Part {
    /// Returns how much harm the part may do with everything that it touches.
    pub fn whole_risk(&self) -> Risk {
        self.touches.iter().map(|touch| touch.risk).max().unwrap_or(self.risk).max(self.risk)
    }
}
