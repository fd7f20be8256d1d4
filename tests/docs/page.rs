//! A page of the documentation, taken apart: code blocks, inline code, links and anchors.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A Markdown file of the repository.
pub(crate) struct Page {
    /// Its path, relative to the repository.
    pub(crate) name: String,
    text: String,
}

/// A fenced block.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// The page and the line of the fence.
    pub(crate) location: String,
    pub(crate) language: String,
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn open(name: &str) -> Self {
        let text = fs::read_to_string(repository().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { name: name.to_owned(), text }
    }

    /// Every page that a user or a contributor is shown.
    pub(crate) fn all() -> Vec<Self> {
        let mut names = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned(), "CHANGELOG.md".to_owned()];
        for folder in ["docs", "docs/protocols"] {
            let files =
                fs::read_dir(repository().join(folder)).expect("a folder").map(|entry| entry.expect("an entry"));
            let pages =
                files.filter_map(|file| file.file_name().into_string().ok()).filter(|name| name.ends_with(".md"));
            names.extend(pages.map(|name| format!("{folder}/{name}")));
        }
        names.sort();
        names.iter().map(|name| Self::open(name)).collect()
    }

    /// The fenced blocks. A fence inside of a longer fence belongs to that block.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut lines = self.text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            let Some((fence, language)) = fence(line) else { continue };
            let text: Vec<&str> =
                lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != fence).collect();
            let location = format!("{}:{}", self.name, number + 1);
            blocks.push(Block { location, language: language.to_owned(), text: text.join("\n") + "\n" });
        }
        blocks
    }

    /// The text outside of fenced blocks.
    pub(crate) fn prose(&self) -> String {
        let mut prose = String::new();
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            match fence(line) {
                Some((fence, _)) => drop(lines.by_ref().find(|line| line.trim() == fence)),
                None => prose = prose + line + "\n",
            }
        }
        prose
    }

    /// The contents of the code spans in the text.
    pub(crate) fn inline_code(&self) -> Vec<String> {
        let prose = self.prose();
        let mut found = Vec::new();
        let mut rest = prose.as_str();
        while let Some(start) = rest.find('`') {
            let ticks = rest[start..].len() - rest[start..].trim_start_matches('`').len();
            let delimiter = &rest[start..start + ticks];
            let after = &rest[start + ticks..];
            let Some(end) = after.find(delimiter) else {
                panic!("{}: a code span does not end: {after:.60}", self.name)
            };
            // In a table a vertical bar is escaped.
            found.push(after[..end].replace("\\|", "|").split_whitespace().collect::<Vec<_>>().join(" "));
            rest = &after[end + ticks..];
        }
        found
    }

    /// The targets of the links in the text.
    pub(crate) fn links(&self) -> Vec<String> {
        let prose = self.prose();
        prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
    }

    /// The anchors of the headings, as GitHub makes them.
    pub(crate) fn anchors(&self) -> BTreeSet<String> {
        let prose = self.prose();
        let headings = prose.lines().filter(|line| line.starts_with('#'));
        headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
    }
}

impl Block {
    pub(crate) fn first_line(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }

    /// Whether a user is meant to type it, or to put it into a file that runs it.
    pub(crate) fn has_commands(&self) -> bool {
        ["sh", "bash", "console", "yaml", "groovy", "make", "crontab"].contains(&self.language.as_str())
    }
}

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// The marks and the language of a line that opens a fence.
fn fence(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    let marks = line.len() - line.trim_start_matches('`').len();
    (marks >= 3).then(|| line.split_at(marks))
}

fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    heading.to_lowercase().chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect()
}
