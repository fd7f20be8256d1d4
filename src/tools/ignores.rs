//! The ignore rules for a search: patterns of `.ignore`, `.gitignore`, `.git/info/exclude` and the user's excludes
//! file.
//!
//! These files come from the author of the repository. Only regular files are opened, opening does not block, and
//! both their size and the number of their patterns are bounded, as patterns cost far more memory than bytes. A
//! note reports what is not used.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::bounded_io::{self, FileError};
use crate::sandbox::workspace::{DirHandle, Entry, FileKind, WorkspaceError};

/// The limits of ignore files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IgnoreLimits {
    /// Bytes of one file.
    pub file_bytes: usize,
    /// Patterns of one file.
    pub file_patterns: usize,
    /// Bytes of all active patterns.
    pub all_bytes: usize,
    /// The number of active patterns.
    pub all_patterns: usize,
}

impl Default for IgnoreLimits {
    fn default() -> Self {
        Self { file_bytes: 64 << 10, file_patterns: 2_000, all_bytes: 256 << 10, all_patterns: 5_000 }
    }
}

/// The maximum number of notes.
const NOTES_MAX: usize = 10;

/// How many bytes of a git configuration are read.
const CONFIG_BYTES_MAX: u64 = 256 << 10;

/// The source of patterns, in order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatternSource {
    Ignore,
    Gitignore,
    Exclude,
    User,
}

/// The patterns of one file.
struct PatternLevel {
    origin: PatternSource,
    matcher: Gitignore,
    bytes: usize,
}

/// The patterns that apply at the current position of a search.
pub(super) struct IgnoreRules {
    levels: Vec<PatternLevel>,
    /// How many of the levels belong to directories outside of the current repository.
    outer_levels: usize,
    limits: IgnoreLimits,
    notes: Vec<String>,
}

/// The state to restore when a directory is left.
pub(super) struct SavedLevels {
    levels: usize,
    outer_levels: usize,
}

impl IgnoreRules {
    pub(super) const fn new(limits: IgnoreLimits) -> Self {
        Self { levels: Vec::new(), outer_levels: 0, limits, notes: Vec::new() }
    }

    /// Returns the notes about unused patterns.
    pub(super) fn into_notes(self) -> Vec<String> {
        self.notes
    }

    /// Adds the user's excludes file: the one in the git configuration, or the default one.
    pub(super) fn add_user_patterns(&mut self, home: &Path, config_home: &Path, root: &Path) {
        let configs = [home.join(".gitconfig"), config_home.join("git/config")];
        let configured = configs.iter().find_map(|config| {
            let text = bounded_io::read(config, CONFIG_BYTES_MAX).ok()?;
            excludes_file(&String::from_utf8_lossy(&text), home)
        });
        let path = configured.unwrap_or_else(|| config_home.join("git/ignore"));
        self.add_path(PatternSource::User, &path, root);
    }

    /// Adds the files of the directories above a workspace, up to the root of its repository, if it is in one.
    pub(super) fn add_parent_patterns(&mut self, workspace: &Path) {
        let has_git = |directory: &Path| directory.join(".git").symlink_metadata().is_ok();
        if has_git(workspace) {
            return;
        }
        let above: Vec<&Path> = workspace.ancestors().skip(1).collect();
        let Some(repository) = above.iter().position(|directory| has_git(directory)) else { return };
        self.add_path(PatternSource::Exclude, &above[repository].join(".git/info/exclude"), above[repository]);
        for directory in above[..=repository].iter().rev() {
            self.add_path(PatternSource::Ignore, &directory.join(".ignore"), directory);
            self.add_path(PatternSource::Gitignore, &directory.join(".gitignore"), directory);
        }
    }

    /// Adds the files of a directory that is entered; `path` is its absolute path.
    pub(super) fn enter(&mut self, handle: &DirHandle, entries: &[Entry], path: &Path) -> SavedLevels {
        let before = SavedLevels { levels: self.levels.len(), outer_levels: self.outer_levels };
        let find = |name: &str| entries.iter().find(|entry| entry.name == name);
        if let Some(git) = find(".git") {
            self.outer_levels = self.levels.len();
            let exclude = (git.kind == FileKind::Directory).then(|| open_exclude(handle)).transpose();
            self.add_opened(PatternSource::Exclude, exclude, &path.join(".git/info/exclude"), path);
        }
        for (name, origin) in [(".ignore", PatternSource::Ignore), (".gitignore", PatternSource::Gitignore)] {
            let Some(entry) = find(name) else { continue };
            let opened = match entry.kind {
                FileKind::File => handle.open_file(OsStr::new(name)).map(Some),
                FileKind::Directory => Ok(None),
                FileKind::Link | FileKind::Other => Err(WorkspaceError::NotAFile { path: name.into() }),
            };
            self.add_opened(origin, opened, &path.join(name), path);
        }
        before
    }

    /// Removes the files of a directory that is left.
    pub(super) fn leave(&mut self, before: &SavedLevels) {
        self.levels.truncate(before.levels);
        self.outer_levels = before.outer_levels;
    }

    /// Returns whether an absolute path is ignored.
    pub(super) fn is_ignored(&self, path: &Path, is_directory: bool) -> bool {
        for origin in [PatternSource::Ignore, PatternSource::Gitignore, PatternSource::Exclude, PatternSource::User] {
            // A nested repository does not inherit the git patterns of the outer one.
            let first = match origin {
                PatternSource::Gitignore | PatternSource::Exclude => self.outer_levels,
                PatternSource::Ignore | PatternSource::User => 0,
            };
            let levels = self.levels.get(first..).unwrap_or_default();
            for level in levels.iter().rev().filter(|level| level.origin == origin) {
                match level.matcher.matched(path, is_directory) {
                    Match::None => {}
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                }
            }
        }
        false
    }

    /// Adds a note, unless there are too many.
    pub(super) fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn add_path(&mut self, origin: PatternSource, path: &Path, root: &Path) {
        match bounded_io::open(path) {
            Ok(file) => self.add_file(origin, file, path, root),
            Err(FileError::NotFound { .. }) => {}
            Err(error) => self.note(format!("{error}; its patterns are not used")),
        }
    }

    fn add_opened(
        &mut self,
        origin: PatternSource,
        opened: Result<Option<File>, WorkspaceError>,
        path: &Path,
        root: &Path,
    ) {
        match opened {
            Ok(None) | Err(WorkspaceError::NotFound { .. }) => {}
            Ok(Some(file)) => self.add_file(origin, file, path, root),
            Err(error) => self.note(format!("{error}; its patterns are not used")),
        }
    }

    fn add_file(&mut self, origin: PatternSource, file: File, path: &Path, root: &Path) {
        match bounded_io::read_prefix_of(file, self.limits.file_bytes as u64) {
            Ok((bytes, more)) => self.add(origin, &bytes, more, path, root),
            Err(error) => self.note(unusable_note(path, &error)),
        }
    }

    fn add(&mut self, origin: PatternSource, bytes: &[u8], more: bool, path: &Path, root: &Path) {
        let (mut held_bytes, mut held) = (0, 0);
        for level in &self.levels {
            held_bytes += level.bytes;
            held += level.matcher.len();
        }
        let limits = self.limits;
        let text = String::from_utf8_lossy(bytes);
        // A truncated pattern would be a different pattern.
        let whole = if more { text.rfind('\n').map_or("", |end| &text[..end]) } else { &text };
        let mut cut = more.then(|| format!("it has more than {} bytes", limits.file_bytes));
        let mut builder = GitignoreBuilder::new(root);
        let (mut patterns, mut used) = (0, 0);
        for line in whole.trim_start_matches('\u{feff}').lines() {
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            if patterns == limits.file_patterns {
                cut = Some(format!("it has more than {patterns} patterns"));
                break;
            }
            if held + patterns == limits.all_patterns || held_bytes + used + line.len() > limits.all_bytes {
                cut = Some("there are too many patterns in all ignore files together".to_owned());
                break;
            }
            patterns += 1;
            used += line.len();
            // Git ignores invalid patterns, too.
            drop(builder.add_line(None, line).err());
        }
        match builder.build() {
            Ok(matcher) if matcher.is_empty() => {}
            Ok(matcher) => self.levels.push(PatternLevel { origin, matcher, bytes: used }),
            Err(error) => self.note(unusable_note(path, &error)),
        }
        if let Some(why) = cut {
            let path = path.display();
            self.note(format!("{path}: only its first {patterns} patterns are used, as {why}"));
        }
    }
}

fn unusable_note(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: its patterns are not used: {error}", path.display())
}

fn open_exclude(handle: &DirHandle) -> Result<File, WorkspaceError> {
    handle.open_directory(OsStr::new(".git"))?.open_directory(OsStr::new("info"))?.open_file(OsStr::new("exclude"))
}

/// Finds the excludes file in a git configuration.
fn excludes_file(config: &str, home: &Path) -> Option<PathBuf> {
    let value = config.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        name.trim().eq_ignore_ascii_case("excludesfile").then(|| value.trim().trim_matches('"').trim())
    })?;
    match value.strip_prefix("~/") {
        Some(below) => Some(home.join(below)),
        None => Some(PathBuf::from(value)).filter(|path| path.is_absolute()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_s_excludes_file_is_read_from_the_git_configuration() {
        let home = Path::new("/home/ann");
        for (config, expected) in [
            ("[core]\n\texcludesFile = ~/.ignored\n", Some("/home/ann/.ignored")),
            ("[core]\nexcludesfile=\"/etc/ignored\"", Some("/etc/ignored")),
            ("[core]\nexcludesfile = relative", None),
            ("[core]\nexclude = /x", None),
        ] {
            assert_eq!(excludes_file(config, home).as_deref(), expected.map(Path::new), "{config}");
        }
    }

    #[test]
    fn a_source_of_higher_precedence_and_a_deeper_file_win() {
        let mut ignores = IgnoreRules::new(IgnoreLimits::default());
        let (root, deep) = (Path::new("/w"), Path::new("/w/deep"));
        ignores.add(PatternSource::User, b"*.log", false, root, root);
        ignores.add(PatternSource::Gitignore, b"target/\n/only-here\n!kept.log", false, root, root);
        ignores.add(PatternSource::Ignore, b"secret", false, root, root);
        for (path, directory, ignored) in [
            ("/w/a.log", false, true),
            ("/w/kept.log", false, false),
            ("/w/target", true, true),
            ("/w/target", false, false),
            ("/w/only-here", false, true),
            ("/w/deep/only-here", false, false),
            ("/w/deep/secret", false, true),
        ] {
            assert_eq!(ignores.is_ignored(Path::new(path), directory), ignored, "{path}");
        }
        ignores.add(PatternSource::Gitignore, b"!target/", false, deep, deep);
        assert!(!ignores.is_ignored(&deep.join("target"), true), "the deeper file decides");
    }

    #[test]
    fn patterns_are_bounded_per_file_and_in_total() {
        let limits = IgnoreLimits { file_bytes: 100, file_patterns: 3, all_bytes: 1_000, all_patterns: 4 };
        let mut ignores = IgnoreRules::new(limits);
        let root = Path::new("/w");
        ignores.add(PatternSource::Gitignore, b"# one\n\na\nb\nc\nd\n", false, &root.join("f"), root);
        let ignored = |ignores: &IgnoreRules, name: &str| ignores.is_ignored(&root.join(name), false);
        assert!(ignored(&ignores, "c") && !ignored(&ignores, "d"));
        ignores.add(PatternSource::Gitignore, b"e\nf\n", false, &root.join("g"), root);
        assert!(ignored(&ignores, "e") && !ignored(&ignores, "f"));
        // A file that was truncated in the middle of a pattern.
        let mut ignores = IgnoreRules::new(limits);
        ignores.add(PatternSource::Gitignore, b"a\nbc", true, &root.join("h"), root);
        assert!(ignored(&ignores, "a") && !ignored(&ignores, "bc") && !ignored(&ignores, "b"));
        assert_eq!(ignores.into_notes().len(), 1);
    }
}
