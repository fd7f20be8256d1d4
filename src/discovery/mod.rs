//! The commands (prompt templates) and skills that users keep on disk for their coding agents.
//!
//! A project keeps them in its directory, a user in the home. Several programs have their own directories, and all
//! of these are scanned. The files are untrusted text: they are read and never run, bounded in number and size, and
//! no link is followed out of the project or the home. A file that cannot be used is skipped with a reason.

mod front_matter;
mod scan;

use std::path::{Path, PathBuf};

use scan::{DirectoryScan, FoundEntry, SearchDir};

use crate::sandbox::workspace::{ReachPolicy, WorkspaceDir};

/// Who owns a command or skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiscoverySource {
    /// The project.
    Project,
    /// The user.
    User,
}

impl DiscoverySource {
    /// Returns the name in the protocols.
    pub const fn as_str(self) -> &'static str {
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
    pub source: DiscoverySource,
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
    pub source: DiscoverySource,
    /// The path of its instructions.
    pub path: PathBuf,
}

/// A file that was found and cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedFile {
    /// Its path.
    pub path: PathBuf,
    /// The reason, as a sentence.
    pub reason: String,
}

/// The result of a scan. Of several entries with the same name only the first counts; a project's comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryResult<T> {
    /// Sorted by name.
    pub items: Vec<T>,
    /// The files that cannot be used.
    pub skipped: Vec<SkippedFile>,
}

/// The limits of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiscoveryLimits {
    /// The number of files that are read, in all directories together.
    pub files: usize,
    /// The size of a file in bytes.
    pub bytes: u64,
    /// The number of names that are read, in all directories together.
    pub names: usize,
}

impl Default for DiscoveryLimits {
    fn default() -> Self {
        Self { files: 500, bytes: 256 << 10, names: 10_000 }
    }
}

/// The directories of commands, with their owners.
const COMMAND_DIRS: [SearchDir; 6] = [
    (DiscoverySource::Project, ".pi/prompts"),
    (DiscoverySource::Project, ".pi/commands"),
    (DiscoverySource::Project, ".claude/commands"),
    (DiscoverySource::User, ".pi/agent/prompts"),
    (DiscoverySource::User, ".pi/agent/commands"),
    (DiscoverySource::User, ".claude/commands"),
];

/// The directories of skills.
const SKILL_DIRS: [SearchDir; 6] = [
    (DiscoverySource::Project, ".pi/skills"),
    (DiscoverySource::Project, ".agents/skills"),
    (DiscoverySource::Project, ".claude/skills"),
    (DiscoverySource::User, ".pi/agent/skills"),
    (DiscoverySource::User, ".agents/skills"),
    (DiscoverySource::User, ".claude/skills"),
];

/// Reads the text of a command or a skill, without its front matter and without blank lines around it.
///
/// Returns `None` if the file was removed or cannot be used any more.
pub fn read_body(path: &Path, source: DiscoverySource, cwd: &Path, home: &Path) -> Option<String> {
    let root = match source {
        DiscoverySource::Project => cwd,
        DiscoverySource::User => home,
    };
    let workspace_dir = WorkspaceDir::open(root, ReachPolicy::Workspace).ok()?;
    let below = path.strip_prefix(workspace_dir.path()).ok()?;
    let text = String::from_utf8(workspace_dir.read(below, DiscoveryLimits::default().bytes).ok()?).ok()?;
    Some(front_matter::split(&text).1.trim().to_owned())
}

/// Finds the commands for a working directory.
pub fn commands(cwd: &Path, home: &Path) -> DiscoveryResult<Command> {
    commands_with_limits(cwd, home, DiscoveryLimits::default())
}

/// Finds the commands for a working directory, with other limits.
pub fn commands_with_limits(cwd: &Path, home: &Path, limits: DiscoveryLimits) -> DiscoveryResult<Command> {
    let scan = DirectoryScan::new(cwd, home, limits).commands(&COMMAND_DIRS);
    let command = |entry: FoundEntry| Command {
        name: entry.name,
        description: entry.description,
        source: entry.source,
        path: entry.path,
    };
    scan.into_result(command)
}

/// Finds the skills for a working directory; a skill must have a description.
pub fn skills(cwd: &Path, home: &Path) -> DiscoveryResult<Skill> {
    skills_with_limits(cwd, home, DiscoveryLimits::default())
}

/// Finds the skills for a working directory, with other limits.
pub fn skills_with_limits(cwd: &Path, home: &Path, limits: DiscoveryLimits) -> DiscoveryResult<Skill> {
    let scan = DirectoryScan::new(cwd, home, limits).skills(&SKILL_DIRS);
    let skill = |entry: FoundEntry| Skill {
        name: entry.name,
        description: entry.description.unwrap_or_default(),
        source: entry.source,
        path: entry.path,
    };
    scan.into_result(skill)
}
