//! The commands (prompt templates) and skills that users keep on disk for their coding agents.
//!
//! A project keeps them in its directory, a user in the home. Several programs have their own directories, and all
//! of these are scanned. The files are untrusted text: they are read and never run, bounded in number and size, and
//! no link is followed out of the project or the home. A file that cannot be used is skipped with a reason.

mod front;
mod looking;

use std::path::{Path, PathBuf};

use looking::{Kept, Looking, Place};

use crate::sandbox::ground::{Ground, Reach};

/// Who owns a command or skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The project.
    Project,
    /// The user.
    User,
}

impl Source {
    /// Returns the name in the protocols.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::User => "user",
        }
    }
}

/// A command: a prompt that is sent in place of its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Its name, without the slash; one in a subdirectory has the directory's name and a colon before it.
    pub name: String,
    /// Its description for the user.
    pub description: Option<String>,
    /// Its owner.
    pub source: Source,
    /// The path of its file.
    pub path: PathBuf,
}

/// A skill: instructions that a model reads when it needs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Its owner.
    pub source: Source,
    /// The path of its instructions.
    pub path: PathBuf,
}

/// A file that was found and cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its path.
    pub path: PathBuf,
    /// The reason, as a sentence.
    pub reason: String,
}

/// The result of a scan. Of several entries with the same name only the first counts; a project's comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<T> {
    /// Sorted by name.
    pub found: Vec<T>,
    /// The files that cannot be used.
    pub skipped: Vec<Skipped>,
}

/// The limits of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The number of files that are read, in all directories together.
    pub files: usize,
    /// The size of a file in bytes.
    pub bytes: u64,
    /// The number of names that are read, in all directories together.
    pub names: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { files: 500, bytes: 256 << 10, names: 10_000 }
    }
}

/// The directories of commands, with their owners.
const COMMANDS: [Place; 6] = [
    (Source::Project, ".pi/prompts"),
    (Source::Project, ".pi/commands"),
    (Source::Project, ".claude/commands"),
    (Source::User, ".pi/agent/prompts"),
    (Source::User, ".pi/agent/commands"),
    (Source::User, ".claude/commands"),
];

/// The directories of skills.
const SKILLS: [Place; 6] = [
    (Source::Project, ".pi/skills"),
    (Source::Project, ".agents/skills"),
    (Source::Project, ".claude/skills"),
    (Source::User, ".pi/agent/skills"),
    (Source::User, ".agents/skills"),
    (Source::User, ".claude/skills"),
];

/// Reads the text of a command or a skill, without its front matter and without blank lines around it.
///
/// Returns `None` if the file was removed or cannot be used any more.
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

/// Finds the commands for a working directory.
pub fn commands(cwd: &Path, home: &Path) -> Found<Command> {
    commands_within(cwd, home, Bounds::default())
}

/// Finds the commands for a working directory, with other limits.
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

/// Finds the skills for a working directory; a skill must have a description.
pub fn skills(cwd: &Path, home: &Path) -> Found<Skill> {
    skills_within(cwd, home, Bounds::default())
}

/// Finds the skills for a working directory, with other limits.
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
