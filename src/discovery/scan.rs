//! Scans the directories of commands and skills.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::sandbox::workspace::{FileKind, ReachPolicy, WorkspaceDir, WorkspaceError};

use super::front_matter::{field, first_line, split};
use super::{DiscoveryLimits, DiscoveryResult, DiscoverySource, SkippedFile};

/// Who owns a directory, and its path relative to the project or the home.
pub(super) type SearchDir = (DiscoverySource, &'static str);

/// How many levels of directories are scanned.
const DEPTH_MAX: usize = 3;

/// The maximum number of characters of a name.
const NAME_MAX: usize = 64;

/// The maximum number of skipped entries that are reported.
const SKIPPED_MAX: usize = 100;

/// The file name of a skill.
const SKILL_FILE: &str = "SKILL.md";

/// A command or skill that was found.
pub(super) struct FoundEntry {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) source: DiscoverySource,
    pub(super) path: PathBuf,
}

/// The state of a scan.
pub(super) struct DirectoryScan {
    project: Option<WorkspaceDir>,
    user: Option<WorkspaceDir>,
    limits: DiscoveryLimits,
    entries: BTreeMap<String, FoundEntry>,
    skipped: Vec<SkippedFile>,
}

/// A directory during the scan.
struct ScannedDir<'g> {
    root: &'g WorkspaceDir,
    source: DiscoverySource,
    /// Relative to the root.
    path: PathBuf,
    /// The names of the directories between the search directory and this one.
    parents: Vec<String>,
}

impl ScannedDir<'_> {
    fn child(&self, name: &str) -> Self {
        Self {
            root: self.root,
            source: self.source,
            path: self.path.join(name),
            parents: self.parents.iter().cloned().chain([name.to_owned()]).collect(),
        }
    }

    fn absolute(&self, name: &str) -> PathBuf {
        self.root.path().join(&self.path).join(name)
    }
}

impl DirectoryScan {
    pub(super) fn new(cwd: &Path, home: &Path, limits: DiscoveryLimits) -> Self {
        // If the project is the home, the directories of the user cover it.
        let project = if cwd == home { None } else { Some(cwd) };
        let open = |path: &Path| {
            if path.is_absolute() { WorkspaceDir::open(path, ReachPolicy::Workspace).ok() } else { None }
        };
        Self {
            project: project.and_then(open),
            user: open(home),
            limits,
            entries: BTreeMap::new(),
            skipped: Vec::new(),
        }
    }

    /// Scans for commands: every Markdown file is one.
    pub(super) fn commands(mut self, directories: &[SearchDir]) -> Self {
        self.scan_all(directories, Self::scan_commands);
        self
    }

    /// Scans for skills: every directory with a `SKILL.md` is one.
    pub(super) fn skills(mut self, directories: &[SearchDir]) -> Self {
        self.scan_all(directories, Self::scan_skills);
        self
    }

    pub(super) fn into_result<T>(self, make: impl Fn(FoundEntry) -> T) -> DiscoveryResult<T> {
        DiscoveryResult { items: self.entries.into_values().map(make).collect(), skipped: self.skipped }
    }

    fn scan_all(&mut self, directories: &[SearchDir], scan: fn(&mut Self, &ScannedDir<'_>)) {
        for (source, path) in directories {
            let root = match source {
                DiscoverySource::Project => self.project.clone(),
                DiscoverySource::User => self.user.clone(),
            };
            let Some(root) = root else { continue };
            scan(self, &ScannedDir { root: &root, source: *source, path: path.into(), parents: Vec::new() });
        }
    }

    fn scan_commands(&mut self, dir: &ScannedDir<'_>) {
        for name in self.list(dir) {
            let Some(stem) = name.strip_suffix(".md") else {
                if dir.parents.len() + 1 < DEPTH_MAX {
                    self.scan_commands(&dir.child(&name));
                }
                continue;
            };
            let Some(text) = self.read(dir, &name) else { continue };
            let (head, body) = split(&text);
            let description = field(head, "description").or_else(|| first_line(body));
            let full = dir.parents.iter().map(String::as_str).chain([stem]).collect::<Vec<_>>().join(":");
            self.add(dir, &name, full, description);
        }
    }

    fn scan_skills(&mut self, dir: &ScannedDir<'_>) {
        for name in self.list(dir) {
            let inner = dir.child(&name);
            let file = inner.path.join(SKILL_FILE);
            match dir.root.open_file(&file) {
                Ok(_) => self.add_skill(&inner, &name),
                // A directory may contain directories of skills.
                Err(WorkspaceError::NotFound { .. }) if inner.parents.len() < DEPTH_MAX => self.scan_skills(&inner),
                Err(WorkspaceError::NotFound { .. } | WorkspaceError::NotADirectory { .. }) => {}
                Err(error) => self.skip(inner.absolute(SKILL_FILE), error.to_string()),
            }
        }
    }

    fn add_skill(&mut self, dir: &ScannedDir<'_>, directory: &str) {
        let Some(text) = self.read(dir, SKILL_FILE) else { return };
        let (head, _) = split(&text);
        let name = field(head, "name").unwrap_or_else(|| directory.to_owned());
        match field(head, "description") {
            Some(description) => self.add(dir, SKILL_FILE, name, Some(description)),
            None => self.skip(dir.absolute(SKILL_FILE), "it has no description".to_owned()),
        }
    }

    /// Returns the names in a directory, sorted; a missing directory has none.
    fn list(&mut self, dir: &ScannedDir<'_>) -> Vec<String> {
        let opened = dir.root.open_directory(&dir.path).and_then(|folder| folder.entries(self.limits.names));
        let (entries, more) = match opened {
            Ok(found) => found,
            Err(WorkspaceError::NotFound { .. } | WorkspaceError::NotADirectory { .. }) => return Vec::new(),
            Err(error) => {
                self.skip(dir.absolute(""), error.to_string());
                return Vec::new();
            }
        };
        self.limits.names -= entries.len();
        if more {
            self.skip(dir.absolute(""), "there are too many files".to_owned());
        }
        let usable = |kind| match kind {
            FileKind::Directory | FileKind::File | FileKind::Link => true,
            FileKind::Other => false,
        };
        let mut names = Vec::new();
        for entry in entries {
            match entry.name.to_str() {
                Some(name) if name.starts_with('.') => {}
                Some(name) if usable(entry.kind) => names.push(name.to_owned()),
                Some(name) => self.skip(dir.absolute(name), "it is not a regular file".to_owned()),
                None => self.skip(dir.root.path().join(&dir.path).join(&entry.name), "its name is not text".to_owned()),
            }
        }
        names.sort();
        names
    }

    fn read(&mut self, dir: &ScannedDir<'_>, name: &str) -> Option<String> {
        if self.limits.files == 0 {
            self.skip(dir.absolute(name), "there are too many files".to_owned());
            return None;
        }
        self.limits.files -= 1;
        let read = dir.root.read(&dir.path.join(OsStr::new(name)), self.limits.bytes);
        let reason = match read.map(String::from_utf8) {
            Ok(Ok(text)) => return Some(text),
            Ok(Err(_)) => "it is not text".to_owned(),
            Err(error) => error.to_string(),
        };
        self.skip(dir.absolute(name), reason);
        None
    }

    fn add(&mut self, dir: &ScannedDir<'_>, file: &str, name: String, description: Option<String>) {
        let path = dir.absolute(file);
        let odd = |letter: char| letter.is_control() || letter.is_whitespace() || letter == '/';
        if name.is_empty() || name.chars().count() > NAME_MAX || name.contains(odd) {
            return self.skip(path, "its name is empty, too long, or has spaces in it".to_owned());
        }
        if let Some(first) = self.entries.get(&name) {
            let reason = format!("{} has the same name and comes first", first.path.display());
            return self.skip(path, reason);
        }
        self.entries.insert(name.clone(), FoundEntry { name, description, source: dir.source, path });
    }

    fn skip(&mut self, path: PathBuf, reason: String) {
        if self.skipped.len() < SKIPPED_MAX {
            self.skipped.push(SkippedFile { path, reason });
        }
    }
}
