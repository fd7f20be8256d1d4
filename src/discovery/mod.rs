//! What people keep on disk for their coding agents: commands that stand for a longer text, and skills.
//!
//! A project keeps them in its directory, a user in the home; several programs have their own places, and all of these are
//! looked at. Everything found is text of unknown origin: it is read and never run, bounded in number and size, and no
//! link is followed out of the project or the home. What cannot be used is left out, with the reason.

mod front;
mod looking;

use std::path::{Path, PathBuf};

use looking::{Kept, Looking, Place};

use crate::sandbox::ground::{Ground, Reach};

/// Whose something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The project's.
    Project,
    /// The user's.
    User,
}

impl Source {
    /// Returns the protocols' word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::User => "user",
        }
    }
}

/// A command: a text that is sent when its name is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Its name, without the slash; one in a directory has that before a colon.
    pub name: String,
    /// What it does, for people.
    pub description: Option<String>,
    /// Whose it is.
    pub source: Source,
    /// Where it lies.
    pub path: PathBuf,
}

/// A skill: instructions that a model reads when it needs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Whose it is.
    pub source: Source,
    /// Where its instructions lie.
    pub path: PathBuf,
}

/// Something that is there and cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Where it lies.
    pub path: PathBuf,
    /// Why, in a sentence.
    pub reason: String,
}

/// What was found; of two with one name the project's comes first, and only the first counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<T> {
    /// Sorted by name.
    pub found: Vec<T>,
    /// What was left out.
    pub skipped: Vec<Skipped>,
}

/// How much is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Files that are read, in all places together.
    pub files: usize,
    /// Bytes of a file.
    pub bytes: u64,
    /// Names that are looked at in all directories together.
    pub names: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { files: 500, bytes: 256 << 10, names: 10_000 }
    }
}

/// Where commands lie: whose they are, and the directory.
const COMMANDS: [Place; 6] = [
    (Source::Project, ".pi/prompts"),
    (Source::Project, ".pi/commands"),
    (Source::Project, ".claude/commands"),
    (Source::User, ".pi/agent/prompts"),
    (Source::User, ".pi/agent/commands"),
    (Source::User, ".claude/commands"),
];

/// Where skills lie.
const SKILLS: [Place; 6] = [
    (Source::Project, ".pi/skills"),
    (Source::Project, ".agents/skills"),
    (Source::Project, ".claude/skills"),
    (Source::User, ".pi/agent/skills"),
    (Source::User, ".agents/skills"),
    (Source::User, ".claude/skills"),
];

/// Reads the text of a command or of a skill, without its head and without blank lines around it.
///
/// Nothing is returned where it went away or cannot be used any more.
pub fn body(path: &Path, source: Source, cwd: &Path, home: &Path) -> Option<String> {
    let root = match source {
        Source::Project => cwd,
        Source::User => home,
    };
    let ground = Ground::open(root, Reach::Workspace).ok()?;
    let below = path.strip_prefix(ground.path()).ok()?;
    let text = String::from_utf8(ground.content(below, Bounds::default().bytes).ok()?).ok()?;
    Some(front::split(&text).1.trim().to_owned())
}

/// Finds the commands for work in a directory.
pub fn commands(cwd: &Path, home: &Path) -> Found<Command> {
    commands_within(cwd, home, Bounds::default())
}

/// The same, with bounds of the caller's.
pub fn commands_within(cwd: &Path, home: &Path, bounds: Bounds) -> Found<Command> {
    let looked = Looking::new(cwd, home, bounds).commands(&COMMANDS);
    let command = |kept: Kept| Command {
        name: kept.name,
        description: kept.description,
        source: kept.source,
        path: kept.path,
    };
    looked.into_found(command)
}

/// Finds the skills for work in a directory; one without a description is none.
pub fn skills(cwd: &Path, home: &Path) -> Found<Skill> {
    skills_within(cwd, home, Bounds::default())
}

/// The same, with bounds of the caller's.
pub fn skills_within(cwd: &Path, home: &Path, bounds: Bounds) -> Found<Skill> {
    let looked = Looking::new(cwd, home, bounds).skills(&SKILLS);
    let skill = |kept: Kept| Skill {
        name: kept.name,
        description: kept.description.unwrap_or_default(),
        source: kept.source,
        path: kept.path,
    };
    looked.into_found(skill)
}
