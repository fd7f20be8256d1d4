//! Scans the directories of commands and skills.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::sandbox::ground::{Ground, GroundError, Kind, Reach};

use super::front::{first_line, split, value};
use super::{Bounds, Found, Skipped, Source};

/// Who owns a directory, and its path relative to the project or the home.
pub(super) type Place = (Source, &'static str);

/// How many levels of directories are scanned.
const DEPTH: usize = 3;

/// The maximum number of characters of a name.
const NAME_MAX: usize = 64;

/// The maximum number of skipped entries that are reported.
const SKIPPED_MAX: usize = 100;

/// The file name of a skill.
const SKILL: &str = "SKILL.md";

/// A command or skill that was found.
pub(super) struct Kept {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) source: Source,
    pub(super) path: PathBuf,
}

/// The state of a scan.
pub(super) struct Looking {
    project: Option<Ground>,
    user: Option<Ground>,
    bounds: Bounds,
    kept: BTreeMap<String, Kept>,
    skipped: Vec<Skipped>,
}

/// A directory during the scan.
struct Here<'g> {
    ground: &'g Ground,
    source: Source,
    /// Relative to the root.
    path: PathBuf,
    /// The names of the directories between the search directory and this one.
    inner: Vec<String>,
}

impl Here<'_> {
    fn below(&self, name: &str) -> Self {
        Self {
            ground: self.ground,
            source: self.source,
            path: self.path.join(name),
            inner: self.inner.iter().cloned().chain([name.to_owned()]).collect(),
        }
    }

    fn absolute(&self, name: &str) -> PathBuf {
        self.ground.path().join(&self.path).join(name)
    }
}

impl Looking {
    pub(super) fn new(cwd: &Path, home: &Path, bounds: Bounds) -> Self {
        // If the project is the home, the directories of the user cover it.
        let project = if cwd == home { None } else { Some(cwd) };
        let open = |path: &Path| {
            if path.is_absolute() { Ground::open(path, Reach::Workspace).ok() } else { None }
        };
        Self {
            project: project.and_then(open),
            user: open(home),
            bounds,
            kept: BTreeMap::new(),
            skipped: Vec::new(),
        }
    }

    /// Scans for commands: every Markdown file is one.
    pub(super) fn commands(mut self, places: &[Place]) -> Self {
        self.places(places, Self::commands_of);
        self
    }

    /// Scans for skills: every directory with a `SKILL.md` is one.
    pub(super) fn skills(mut self, places: &[Place]) -> Self {
        self.places(places, Self::skills_of);
        self
    }

    pub(super) fn into_found<T>(self, make: impl Fn(Kept) -> T) -> Found<T> {
        Found { found: self.kept.into_values().map(make).collect(), skipped: self.skipped }
    }

    fn places(&mut self, places: &[Place], look: fn(&mut Self, &Here<'_>)) {
        for (source, path) in places {
            let ground = match source {
                Source::Project => self.project.clone(),
                Source::User => self.user.clone(),
            };
            let Some(ground) = ground else { continue };
            look(self, &Here { ground: &ground, source: *source, path: path.into(), inner: Vec::new() });
        }
    }

    fn commands_of(&mut self, here: &Here<'_>) {
        for name in self.names(here) {
            let Some(stem) = name.strip_suffix(".md") else {
                if here.inner.len() + 1 < DEPTH {
                    self.commands_of(&here.below(&name));
                }
                continue;
            };
            let Some(text) = self.read(here, &name) else { continue };
            let (head, body) = split(&text);
            let description = value(head, "description").or_else(|| first_line(body));
            let full = here.inner.iter().map(String::as_str).chain([stem]).collect::<Vec<_>>().join(":");
            self.keep(here, &name, full, description);
        }
    }

    fn skills_of(&mut self, here: &Here<'_>) {
        for name in self.names(here) {
            let inner = here.below(&name);
            let file = inner.path.join(SKILL);
            match here.ground.file(&file) {
                Ok(_) => self.skill(&inner, &name),
                // A directory may contain directories of skills.
                Err(GroundError::NotFound { .. }) if inner.inner.len() < DEPTH => self.skills_of(&inner),
                Err(GroundError::NotFound { .. } | GroundError::NotADirectory { .. }) => {}
                Err(error) => self.skip(inner.absolute(SKILL), error.to_string()),
            }
        }
    }

    fn skill(&mut self, here: &Here<'_>, directory: &str) {
        let Some(text) = self.read(here, SKILL) else { return };
        let (head, _) = split(&text);
        let name = value(head, "name").unwrap_or_else(|| directory.to_owned());
        match value(head, "description") {
            Some(description) => self.keep(here, SKILL, name, Some(description)),
            None => self.skip(here.absolute(SKILL), "it has no description".to_owned()),
        }
    }

    /// Returns the names in a directory, sorted; a missing directory has none.
    fn names(&mut self, here: &Here<'_>) -> Vec<String> {
        let opened = here.ground.folder(&here.path).and_then(|folder| folder.entries(self.bounds.names));
        let (entries, more) = match opened {
            Ok(found) => found,
            Err(GroundError::NotFound { .. } | GroundError::NotADirectory { .. }) => return Vec::new(),
            Err(error) => {
                self.skip(here.absolute(""), error.to_string());
                return Vec::new();
            }
        };
        self.bounds.names -= entries.len();
        if more {
            self.skip(here.absolute(""), "there are too many files".to_owned());
        }
        let usable = |kind| match kind {
            Kind::Directory | Kind::File | Kind::Link => true,
            Kind::Other => false,
        };
        let mut names = Vec::new();
        for entry in entries {
            match entry.name.to_str() {
                Some(name) if name.starts_with('.') => {}
                Some(name) if usable(entry.kind) => names.push(name.to_owned()),
                Some(name) => self.skip(here.absolute(name), "it is not a regular file".to_owned()),
                None => self.skip(
                    here.ground.path().join(&here.path).join(&entry.name),
                    "its name is not text".to_owned(),
                ),
            }
        }
        names.sort();
        names
    }

    fn read(&mut self, here: &Here<'_>, name: &str) -> Option<String> {
        if self.bounds.files == 0 {
            self.skip(here.absolute(name), "there are too many files".to_owned());
            return None;
        }
        self.bounds.files -= 1;
        let read = here.ground.content(&here.path.join(OsStr::new(name)), self.bounds.bytes);
        let reason = match read.map(String::from_utf8) {
            Ok(Ok(text)) => return Some(text),
            Ok(Err(_)) => "it is not text".to_owned(),
            Err(error) => error.to_string(),
        };
        self.skip(here.absolute(name), reason);
        None
    }

    fn keep(&mut self, here: &Here<'_>, file: &str, name: String, description: Option<String>) {
        let path = here.absolute(file);
        let odd = |letter: char| letter.is_control() || letter.is_whitespace() || letter == '/';
        if name.is_empty() || name.chars().count() > NAME_MAX || name.contains(odd) {
            return self.skip(path, "its name is empty, too long, or has spaces in it".to_owned());
        }
        if let Some(first) = self.kept.get(&name) {
            let reason = format!("{} has the same name and comes first", first.path.display());
            return self.skip(path, reason);
        }
        self.kept.insert(name.clone(), Kept { name, description, source: here.source, path });
    }

    fn skip(&mut self, path: PathBuf, reason: String) {
        if self.skipped.len() < SKIPPED_MAX {
            self.skipped.push(Skipped { path, reason });
        }
    }
}
