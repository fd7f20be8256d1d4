//! The syntax tree of a command text.

/// Marks the result of an expansion in a word: any text, possibly several words.
pub const UNKNOWN: char = '\0';
/// Marks a file name pattern in a word: any part of a name.
pub const GLOB: char = '\u{1}';

/// A parsed text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    /// The commands.
    pub list: List,
    /// The bodies of its here-documents, in the order of their operators.
    pub bodies: Vec<Word>,
    /// Whether arithmetic reads variables; bash evaluates a value that looks like a subscript.
    pub arithmetic_uses_variables: bool,
}

/// Pipelines in sequence, whatever operators separate them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct List(pub Vec<Pipeline>);

/// Commands that are connected by pipes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pipeline {
    /// The commands of the pipeline.
    pub commands: Vec<Command>,
    /// Whether the shell waits for the pipeline.
    pub background: Background,
    /// The condition under which the pipeline runs.
    pub condition: RunCondition,
}

/// The condition under which a pipeline runs after the preceding one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunCondition {
    /// Unconditionally.
    Always,
    /// If the preceding pipeline succeeded.
    Succeeded,
    /// If the preceding pipeline failed.
    Failed,
}

/// Whether a pipeline runs in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Background {
    /// The shell waits for it.
    No,
    /// The shell does not wait for it.
    Yes,
}

/// One command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A program or a builtin with its arguments.
    Simple(SimpleCommand),
    /// A compound command.
    Compound {
        /// The kind of compound command.
        kind: CompoundKind,
        /// The words of `for` and `case`, and the patterns.
        words: Vec<Word>,
        /// The lists of commands in it.
        lists: Vec<List>,
        /// The redirections.
        redirects: Vec<Redirect>,
    },
    /// A function definition.
    Function {
        /// The name of the function.
        name: String,
        /// The body of the function.
        body: Box<Command>,
    },
}

/// The kind of a compound command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompoundKind {
    /// `{ …; }`
    Group,
    /// `( … )`
    Subshell,
    /// `if`
    If,
    /// `while` or `until`
    While,
    /// `for`
    For {
        /// The loop variable.
        variable: String,
    },
    /// `case`
    Case,
}

/// A program or a builtin with its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SimpleCommand {
    /// The assignments before the command.
    pub assignments: Vec<Assignment>,
    /// The words; the first names the program.
    pub words: Vec<Word>,
    /// The redirections.
    pub redirects: Vec<Redirect>,
}

/// A variable and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The variable.
    pub name: String,
    /// The value.
    pub value: Word,
}

/// A redirection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// The kind of redirection.
    pub kind: RedirectKind,
    /// The file; for a here-document its delimiter.
    pub target: Word,
}

/// The kind of a redirection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectKind {
    /// `<`
    Read,
    /// `>`, `>>` and `>|`
    Write,
    /// `<>`
    ReadWrite,
    /// `<&` and `>&` with a number or `-`
    Descriptor,
    /// `<<`; the number is that of the body
    Heredoc(usize),
}

/// A word without its quotes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Word {
    /// The text; [`UNKNOWN`] and [`GLOB`] mark unknown parts.
    pub text: String,
    /// The commands of its substitutions.
    pub substitutions: Vec<List>,
    /// Variables that its expansion assigns.
    pub assigns: Vec<String>,
    /// How many of its unknown parts are results of arithmetic.
    pub numeric_unknowns: usize,
    /// Whether a part of it is quoted, so that it is neither a reserved word nor an assignment.
    pub(super) quoted: bool,
    /// The offset of the value, if the word looks like an assignment.
    pub(super) value_at: Option<usize>,
}

impl Word {
    /// Returns whether the text has no unknown parts.
    pub fn is_literal(&self) -> bool {
        !self.text.contains([UNKNOWN, GLOB])
    }
}
