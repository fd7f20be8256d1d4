//! The configuration file: parsing and validation.
//!
//! Every error is reported with its file, its line and the expected value. Values that look like credentials are
//! refused, and the error does not repeat them.

pub mod edit;
mod listener;
mod raw;
mod sandbox;
mod secret;
mod values;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::de::DeTable;

use self::raw::RawConfig;
use super::settings::rule::RuleError;
use super::settings::{ProviderKind, Settings};
use crate::bounded_io::{self, FileError};

/// A parsed file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigFile {
    /// Its settings, with defaults for the keys it does not set.
    pub settings: Settings,
    /// The keys it sets, in dotted form, with their lines.
    pub lines: BTreeMap<String, usize>,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The operating system returned an error.
    #[error("cannot read {}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The path is a FIFO, a device, a directory or the like.
    #[error("{what}")]
    NotAFile {
        /// The file.
        path: PathBuf,
        /// A sentence that says what the path is.
        what: String,
    },
    /// The file system did not answer in time.
    #[error("cannot read the configuration of {}: {why}", .path.display())]
    NoAnswer {
        /// The directory whose configuration was to be read.
        path: PathBuf,
        /// The reason, as far as it is known.
        why: String,
    },
    /// The content is invalid.
    #[error("{}, line {line}: {error}", .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong.
        error: ContentError,
    },
}

/// What is wrong with the content of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// The text is not TOML, or does not have the expected structure.
    #[error("{0}")]
    Shape(String),
    /// The file is not UTF-8.
    #[error("the file is not UTF-8")]
    NotText,
    /// The file is larger than the limit.
    #[error("the file has more than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// A value is invalid.
    #[error("`{key}` must be {expected}")]
    Value {
        /// The key of the value.
        key: String,
        /// What the value must be.
        expected: String,
    },
    /// A rule cannot be parsed.
    #[error("{0}")]
    Rule(RuleError),
    /// A project file contains an `allow` rule.
    #[error("`{rule}` is an `allow` rule, and a project can only ask and deny: move it to your own configuration")]
    AllowsInProject {
        /// The rule.
        rule: String,
    },
    /// A value looks like a credential.
    #[error(
        "`{key}` looks like a credential, which the configuration file must not contain: store it with `push config key \
         PROVIDER`, or export it as the provider's variable (OPENAI_API_KEY, ANTHROPIC_API_KEY)"
    )]
    Secret {
        /// The key of the value.
        key: String,
    },
    /// A project file sets a key that is reserved for the user.
    #[error(
        "`{key}` is reserved for your own configuration; a project can restrict approvals.preset, limits, tools.fetch \
         and sandbox, and have approvals.rules that ask and deny"
    )]
    NotForProjects {
        /// The key.
        key: String,
    },
}

/// The maximum size of the file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads a file; a missing one gives the defaults. `kinds` are the kinds of providers that it may name.
pub fn read(path: &Path, kinds: &[ProviderKind]) -> Result<ConfigFile, ConfigError> {
    let wrong = |line, error| ConfigError::Invalid { path: path.to_owned(), line, error };
    let bytes = match bounded_io::read(path, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(FileError::NotFound { .. }) => return Ok(ConfigFile::default()),
        Err(FileError::TooLarge { limit, .. }) => return Err(wrong(1, ContentError::TooLarge { limit })),
        Err(error @ FileError::NotRegular { .. }) => {
            return Err(ConfigError::NotAFile { path: path.to_owned(), what: error.to_string() });
        }
        Err(FileError::Io { path, source }) => return Err(ConfigError::Unreadable { path, source }),
    };
    match std::str::from_utf8(&bytes) {
        Ok(text) => parse(text, path, kinds),
        Err(error) => {
            let before = bytes.iter().take(error.valid_up_to()).filter(|byte| **byte == b'\n');
            Err(wrong(before.count() + 1, ContentError::NotText))
        }
    }
}

/// Returns whether an error means that the file does not exist.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Parses the text of a file; `path` is used in errors.
pub fn parse(text: &str, path: &Path, kinds: &[ProviderKind]) -> Result<ConfigFile, ConfigError> {
    parse_file(text, kinds).map_err(|(at, error)| ConfigError::Invalid {
        path: path.to_owned(),
        line: line_of(text, at),
        error,
    })
}

/// An error with its byte offset.
type LocatedError = (usize, ContentError);

fn parse_file(text: &str, kinds: &[ProviderKind]) -> Result<ConfigFile, LocatedError> {
    let table = DeTable::parse(text).map_err(|error| shape_error(&error))?;
    let values = values::collect(table.get_ref());
    if let Some(found) = secret::find_credential(&values) {
        return Err(found);
    }
    let lines = values.iter().map(|value| (value.key.clone(), line_of(text, value.offset))).collect();
    let raw = RawConfig::deserialize(toml::Deserializer::from(table)).map_err(|error| shape_error(&error))?;
    Ok(ConfigFile { settings: raw.into_settings(kinds)?, lines })
}

fn shape_error(error: &toml::de::Error) -> LocatedError {
    let lines: Vec<&str> = error.message().lines().map(str::trim).collect();
    (error.span().map_or(0, |span| span.start), ContentError::Shape(lines.join(", ")))
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}
