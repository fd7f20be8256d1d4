//! What a command text consists of.

/// Stands in a word for what an expansion makes of it: any text at all, several words too.
pub const HOLE: char = '\0';
/// Stands in a word for what a pattern of file names matches: any part of a name.
pub const GLOB: char = '\u{1}';

/// A whole text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    /// What it runs.
    pub list: List,
    /// The bodies of its here-documents, in the order of their operators.
    pub bodies: Vec<Word>,
    /// Whether arithmetic looks at variables; bash runs what it finds there, if that looks like a subscript.
    pub counts_with_variables: bool,
}

/// Pipelines, one after the other, whatever stands between them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct List(pub Vec<Pipeline>);

/// Commands that read from each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pipeline {
    /// They.
    pub commands: Vec<Command>,
    /// Whether anybody waits for them.
    pub background: Background,
    /// When they run.
    pub when: When,
}

/// When a pipeline runs, after what stands before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// In any case.
    Always,
    /// If that went well.
    Succeeded,
    /// If that failed.
    Failed,
}

/// Whether a command is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Background {
    /// It is.
    No,
    /// It is not.
    Yes,
}

/// One command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A program or a builtin with its words.
    Simple(Simple),
    /// Something that holds other commands.
    Compound {
        /// What it is.
        block: Block,
        /// The words it looks at: those of `for` and `case`, and the patterns.
        words: Vec<Word>,
        /// What it holds.
        lists: Vec<List>,
        /// Where its input and output go.
        redirects: Vec<Redirect>,
    },
    /// The definition of a function.
    Function {
        /// Its name.
        name: String,
        /// What it does.
        body: Box<Command>,
    },
}

/// What holds other commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
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
        /// Its variable.
        variable: String,
    },
    /// `case`
    Case,
}

/// A program or a builtin with its words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Simple {
    /// What is assigned before.
    pub assignments: Vec<Assignment>,
    /// The words; the first names what is run.
    pub words: Vec<Word>,
    /// Where input and output go.
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

/// Where input comes from or output goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// In which way.
    pub way: Way,
    /// The file; for a here-document its delimiter.
    pub target: Word,
}

/// The way of a redirection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// `<`
    Read,
    /// `>`, `>>` and `>|`
    Write,
    /// `<>`
    Both,
    /// `<&` and `>&` with a number or `-`
    Descriptor,
    /// `<<`; the number is that of the body
    Document(usize),
}

/// A word, with its quotes taken away.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Word {
    /// Its text; [`HOLE`] and [`GLOB`] stand for what is not known.
    pub text: String,
    /// What it runs to become a text.
    pub scripts: Vec<List>,
    /// Variables that it assigns by being expanded.
    pub assigns: Vec<String>,
    /// How many of its unknown parts are numbers.
    pub numbers: usize,
    /// Whether something in it was quoted, so that it is no reserved word and no assignment.
    pub(super) quoted: bool,
    /// Where the value begins, if it looks like an assignment.
    pub(super) value_at: Option<usize>,
}

impl Word {
    /// Tells whether its text is known to the letter.
    pub fn is_literal(&self) -> bool {
        !self.text.contains([HOLE, GLOB])
    }
}
