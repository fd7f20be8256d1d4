//! The configuration file: what may stand in it, and what is wrong with what does.
//!
//! Every mistake is named with its file, its line and what was expected. Whatever looks like a key is refused, and is
//! not repeated in the refusal.

pub mod edit;
mod pi;
mod sandbox;
mod secret;
mod spots;
mod written;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::de::DeTable;

use self::written::Written;
use super::settings::Settings;
use super::settings::rule::RuleError;
use crate::bounded_io::{self, FileError};

/// What a file says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct File {
    /// Its settings, with defaults for what it does not say.
    pub settings: Settings,
    /// What it does say: each key with dots, and its line.
    pub lines: BTreeMap<String, usize>,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The system does not hand it out.
    #[error("cannot read {}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is a FIFO, a device, a directory, or so.
    #[error("{what}")]
    NotAFile {
        /// The file.
        path: PathBuf,
        /// What is there, in a sentence.
        what: String,
    },
    /// The file system did not answer in time.
    #[error("cannot read the configuration of {}: {why}", .path.display())]
    NoAnswer {
        /// The directory whose configuration was to be read.
        path: PathBuf,
        /// What is known of the reason.
        why: String,
    },
    /// Something in it is wrong.
    #[error("{}, line {line}: {mistake}", .path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong.
        mistake: Mistake,
    },
}

/// What is wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    /// It is not TOML, or not of this shape.
    #[error("{0}")]
    Shape(String),
    /// It is not text.
    #[error("this is not UTF-8")]
    NotText,
    /// Nobody wrote this by hand.
    #[error("the file has more than {limit} bytes")]
    TooLarge {
        /// How many it may have.
        limit: u64,
    },
    /// A value cannot be used.
    #[error("`{key}` must be {expected}")]
    Value {
        /// Which one.
        key: String,
        /// What it would have to be.
        expected: String,
    },
    /// A rule cannot be understood.
    #[error("{0}")]
    Rule(RuleError),
    /// A project wants to allow something.
    #[error(
        "`{rule}` allows something, and a project can only ask and deny: put it into your own configuration"
    )]
    AllowsInProject {
        /// The rule.
        rule: String,
    },
    /// A key of a provider must not be here.
    #[error(
        "`{key}` looks like a credential, and those do not belong in a file that is shown: store it with `push config \
         key PROVIDER`, or export it as the provider's variable (OPENAI_API_KEY, ANTHROPIC_API_KEY)"
    )]
    Secret {
        /// Where it stands.
        key: String,
    },
    /// A project wants to decide what its user decides.
    #[error(
        "`{key}` is for your own configuration; a project can make approvals.preset, limits, tools.fetch and sandbox stricter, and \
         have approvals.rules that ask and deny"
    )]
    NotForProjects {
        /// Which one.
        key: String,
    },
}

/// The longest file that is read.
const LONGEST: u64 = 1024 * 1024;

/// Reads a file; one that is not there says nothing.
pub fn read(path: &Path) -> Result<File, ConfigError> {
    let wrong = |line, mistake| ConfigError::Wrong { path: path.to_owned(), line, mistake };
    let bytes = match bounded_io::read(path, LONGEST) {
        Ok(bytes) => bytes,
        Err(FileError::NotFound { .. }) => return Ok(File::default()),
        Err(FileError::TooLarge { limit, .. }) => return Err(wrong(1, Mistake::TooLarge { limit })),
        Err(error @ FileError::NotRegular { .. }) => {
            return Err(ConfigError::NotAFile { path: path.to_owned(), what: error.to_string() });
        }
        Err(FileError::Io { path, source }) => return Err(ConfigError::Unreadable { path, source }),
    };
    match std::str::from_utf8(&bytes) {
        Ok(text) => parse(text, path),
        Err(error) => {
            let before = bytes.iter().take(error.valid_up_to()).filter(|byte| **byte == b'\n');
            Err(wrong(before.count() + 1, Mistake::NotText))
        }
    }
}

/// Whether an error says that there is no such file.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Understands the text of a file; `path` is its name in mistakes.
pub fn parse(text: &str, path: &Path) -> Result<File, ConfigError> {
    understand(text).map_err(|(at, mistake)| ConfigError::Wrong {
        path: path.to_owned(),
        line: line_of(text, at),
        mistake,
    })
}

/// A mistake and where it begins, in bytes.
type Misplaced = (usize, Mistake);

fn understand(text: &str) -> Result<File, Misplaced> {
    let table = DeTable::parse(text).map_err(|error| shape(&error))?;
    let spots = spots::of(table.get_ref());
    if let Some(found) = secret::find(&spots) {
        return Err(found);
    }
    let lines = spots.iter().map(|spot| (spot.key.clone(), line_of(text, spot.at))).collect();
    let written = Written::deserialize(toml::Deserializer::from(table)).map_err(|error| shape(&error))?;
    Ok(File { settings: written.into_settings()?, lines })
}

fn shape(error: &toml::de::Error) -> Misplaced {
    let words: Vec<&str> = error.message().lines().map(str::trim).collect();
    (error.span().map_or(0, |span| span.start), Mistake::Shape(words.join(", ")))
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}
