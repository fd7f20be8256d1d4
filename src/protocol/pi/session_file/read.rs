//! Parses a session file, line by line, as untrusted input.
//!
//! Every line passes the same canonicalization as the lines of a client: UTF-8, JSON, one object, bounded depth, no
//! duplicate key. A line that fails refuses the whole file, because its descendants in the tree could not be
//! distinguished from other entries. Only a truncated line is skipped, since a crash leaves one behind: it is the last
//! line, or one that was terminated later so that others could follow. Its descendants are refused.

use std::collections::BTreeSet;

use crate::transport::canonical_json::{JsonError, Limits as JsonLimits, canonicalize};

use super::entry::{Entry, Header, ParsedSession, VERSION};
use super::entry_parser::EntryParser;
use super::wire::{Line, ListingLine};

/// Size limits of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes of a line.
    pub line: usize,
    /// Nesting depth of objects and arrays.
    pub depth: usize,
    /// Number of entries after the header.
    pub entries: usize,
    /// Total number of content blocks.
    pub blocks: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 64 << 20, line: 16 << 20, depth: 64, entries: 100_000, blocks: 200_000 }
    }
}

/// Maximum bytes of an id, of the header or of an entry.
const ID_MAX: usize = 256;

/// Why a file is invalid; the text is meant for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The file is too large.
    #[error("it has more than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// A line is too long.
    #[error("line {line} has more than {limit} bytes")]
    LongLine {
        /// The line number, from one.
        line: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A line is not a valid, unambiguous JSON object.
    #[error("line {line}: {problem}")]
    Line {
        /// The line number.
        line: usize,
        /// The reason.
        problem: JsonError,
    },
    /// The file has no session header.
    #[error("it does not begin with a session header")]
    NoHeader,
    /// The header is invalid.
    #[error("its header {why}")]
    BadHeader {
        /// The reason.
        why: &'static str,
    },
    /// The format version of the file is not supported.
    #[error("it has format version {found}, and the newest supported version is {VERSION}")]
    NewerVersion {
        /// Its version.
        found: u64,
    },
    /// There are too many entries.
    #[error("it has more than {limit} entries")]
    TooManyEntries {
        /// The limit.
        limit: usize,
    },
    /// There are too many content blocks.
    #[error("its messages have more than {limit} blocks")]
    TooManyBlocks {
        /// The limit.
        limit: usize,
    },
    /// An entry of a known kind is malformed.
    #[error("line {line}: {why}")]
    Malformed {
        /// The line number.
        line: usize,
        /// The reason.
        why: &'static str,
    },
    /// The parent of an entry is not an earlier entry.
    #[error("line {line}: its parent {parent:?} is not an earlier entry")]
    UnknownParent {
        /// The line number.
        line: usize,
        /// The parent it names.
        parent: String,
    },
    /// Two entries have the same id.
    #[error("line {line}: another entry has the id {id:?}")]
    DuplicateId {
        /// The line of the second one.
        line: usize,
        /// The id.
        id: String,
    },
}

/// Parses a file.
pub fn parse(bytes: &[u8], limits: &Limits) -> Result<ParsedSession, ParseError> {
    if bytes.len() as u64 > limits.bytes {
        return Err(ParseError::TooLarge { limit: limits.bytes });
    }
    let mut reader = FileParser {
        limits,
        file: None,
        ids: BTreeSet::new(),
        entries: EntryParser { blocks_left: limits.blocks, skipped: 0 },
    };
    let mut torn = false;
    for (number, line, ended) in lines_of(bytes) {
        if line.len() > limits.line {
            return Err(ParseError::LongLine { line: number, limit: limits.line });
        }
        match canonicalize(line, JsonLimits { depth: limits.depth }) {
            Ok(line) => reader.line(number, &line)?,
            Err(problem) if !ended && may_be_torn(&problem) => torn = true,
            Err(problem) if number > 1 && is_truncated_entry(line, &problem) => reader.entries.skipped += 1,
            Err(problem) if number == 1 && reader.file.is_none() => {
                return Err(header_error(problem));
            }
            Err(problem) => return Err(ParseError::Line { line: number, problem }),
        }
    }
    let unknown = reader.entries.skipped;
    let FileContents { header, header_name, entries } = reader.file.ok_or(ParseError::NoHeader)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1) as u64;
    Ok(ParsedSession {
        header,
        header_name,
        entries,
        torn,
        skipped: unknown,
        bytes: bytes.len() as u64,
        complete_bytes: whole,
    })
}

/// The summary of a file, for listings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSummary {
    /// The header.
    pub header: Header,
    /// The last name set.
    pub name: Option<String>,
    /// The number of messages on all branches.
    pub messages: u64,
    /// The provider and model that answered last or were selected since.
    pub model: Option<(String, String)>,
    /// The last thinking level set.
    pub thinking: Option<String>,
}

/// Scans a file without parsing its messages; only the header is validated.
pub fn summarize(bytes: &[u8], limits: &Limits) -> Result<FileSummary, ParseError> {
    let mut lines = lines_of(bytes);
    let (number, first, _) = lines.next().ok_or(ParseError::NoHeader)?;
    if first.len() > limits.line {
        return Err(ParseError::LongLine { line: number, limit: limits.line });
    }
    let first = canonicalize(first, JsonLimits { depth: limits.depth }).map_err(header_error)?;
    let (header, mut name) = header(&read_line(number, &first)?)?;
    let (mut messages, mut model, mut thinking) = (0, None, None);
    for (_, line, _) in lines {
        // An unreadable line adds nothing to the summary.
        let Ok(entry) = serde_json::from_slice::<ListingLine>(line) else { continue };
        match entry.r#type.as_str() {
            "message" => {
                messages += 1;
                model = entry.message.provider.zip(entry.message.model).or(model);
            }
            "model_change" => model = entry.provider.zip(entry.model_id).or(model),
            "thinking_level_change" => thinking = entry.thinking_level.or(thinking),
            "session_info" => name = entry.name,
            _ => {}
        }
    }
    Ok(FileSummary { header, name: sanitize_name(name), messages, model, thinking })
}

/// Returns the lines that have an id, with their ids; other lines are skipped.
pub(crate) fn lines_with_id(bytes: &[u8]) -> impl Iterator<Item = (&[u8], String)> {
    lines_of(bytes).skip(1).filter_map(|(_, line, _)| {
        let id = serde_json::from_slice::<Line<'_>>(line).ok()?.id?;
        Some((line, id))
    })
}

/// Splits a file into non-empty lines, with their numbers and whether each ends in a newline.
fn lines_of(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8], bool)> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    bytes.split_inclusive(|byte| *byte == b'\n').enumerate().filter_map(|(index, line)| {
        let ended = line.ends_with(b"\n");
        let line = line.trim_ascii();
        if line.is_empty() { None } else { Some((index + 1, line, ended)) }
    })
}

/// Maps an error of the first line: a file that is not JSON has no header, and byte positions would not help.
fn header_error(problem: JsonError) -> ParseError {
    match problem {
        JsonError::NotJson { .. } | JsonError::NotAnObject | JsonError::NotUtf8 { .. } => ParseError::NoHeader,
        JsonError::TooDeep { .. }
        | JsonError::DuplicateKey { .. }
        | JsonError::LoneSurrogate { .. }
        | JsonError::NumberOutOfRange { .. }
        | JsonError::TooLong => ParseError::Line { line: 1, problem },
    }
}

/// Returns whether a prefix of a valid line can have this error.
const fn may_be_torn(problem: &JsonError) -> bool {
    match problem {
        JsonError::NotUtf8 { .. } | JsonError::NotJson { .. } | JsonError::LoneSurrogate { .. } => true,
        JsonError::NotAnObject
        | JsonError::TooDeep { .. }
        | JsonError::DuplicateKey { .. }
        | JsonError::NumberOutOfRange { .. }
        | JsonError::TooLong => false,
    }
}

/// Returns whether a line is the prefix of an entry that was not written completely.
fn is_truncated_entry(line: &[u8], problem: &JsonError) -> bool {
    let is_open = !line.ends_with(b"}") || *problem == JsonError::NotJson { at: line.len() };
    // Some file systems fill unwritten ranges with zeros.
    (line.starts_with(b"{") || line.starts_with(b"\0")) && is_open && may_be_torn(problem)
}

fn read_line(number: usize, line: &[u8]) -> Result<Line<'_>, ParseError> {
    serde_json::from_slice(line).map_err(|_| ParseError::Malformed { line: number, why: "it is not a valid entry" })
}

/// The part of the file parsed so far.
struct FileContents {
    header: Header,
    header_name: Option<String>,
    entries: Vec<Entry>,
}

struct FileParser<'l> {
    limits: &'l Limits,
    file: Option<FileContents>,
    ids: BTreeSet<String>,
    entries: EntryParser,
}

impl FileParser<'_> {
    fn line(&mut self, number: usize, line: &[u8]) -> Result<(), ParseError> {
        let line = read_line(number, line)?;
        let Some(found) = &mut self.file else {
            let (header, header_name) = header(&line)?;
            self.file = Some(FileContents { header, header_name, entries: Vec::new() });
            return Ok(());
        };
        if line.r#type == "session" {
            return Err(ParseError::Malformed { line: number, why: "it is a second header" });
        }
        if found.entries.len() >= self.limits.entries {
            return Err(ParseError::TooManyEntries { limit: self.limits.entries });
        }
        let Some((id, parent)) = entry_ids(&line, found, number)? else {
            self.entries.skipped += 1;
            return Ok(());
        };
        if let Some(parent) = parent.as_ref().filter(|parent| !self.ids.contains(*parent)) {
            return Err(ParseError::UnknownParent { line: number, parent: prefix(parent) });
        }
        if !self.ids.insert(id.clone()) {
            return Err(ParseError::DuplicateId { line: number, id: prefix(&id) });
        }
        let at = line.timestamp.0.unwrap_or_default();
        let change = self
            .entries
            .parse_entry(&line, at, &found.entries)
            .map_err(|problem| problem.into_parse_error(number, self.limits.blocks))?;
        found.entries.push(Entry { id, parent, at, change });
        Ok(())
    }
}

/// Returns the id and the parent id of an entry; `None` for an entry of unknown kind without an id.
fn entry_ids(
    line: &Line<'_>,
    found: &FileContents,
    number: usize,
) -> Result<Option<(String, Option<String>)>, ParseError> {
    if found.header.version == 1 {
        // Version 1 is a plain sequence without ids.
        let previous = found.entries.last().map(|entry| entry.id.clone());
        return Ok(Some((format!("{:08x}", number - 1), previous)));
    }
    match &line.id {
        Some(id) if id.is_empty() || id.len() > ID_MAX => {
            Err(ParseError::Malformed { line: number, why: "its id is empty or too long" })
        }
        Some(id) => Ok(Some((id.clone(), line.parent_id.clone()))),
        None if EntryParser::is_known_type(&line.r#type) => {
            Err(ParseError::Malformed { line: number, why: "it has no id" })
        }
        None => Ok(None),
    }
}

/// Parses the header, and the name it may contain.
fn header(line: &Line<'_>) -> Result<(Header, Option<String>), ParseError> {
    if line.r#type != "session" {
        return Err(ParseError::NoHeader);
    }
    let version = match line.version.unwrap_or(1) {
        0 => return Err(ParseError::BadHeader { why: "has version 0" }),
        found if found > u64::from(VERSION) => return Err(ParseError::NewerVersion { found }),
        version => version as u32,
    };
    let id = line.id.clone().unwrap_or_default();
    if id.is_empty() {
        return Err(ParseError::BadHeader { why: "has no id" });
    }
    if id.len() > ID_MAX || id.chars().any(char::is_control) {
        return Err(ParseError::BadHeader { why: "has an id that is too long or has control characters" });
    }
    if line.cwd.len() > PATH_MAX || line.cwd.chars().any(char::is_control) {
        return Err(ParseError::BadHeader {
            why: "has a working directory that is too long or has control characters",
        });
    }
    let header = Header {
        version,
        id,
        created: line.timestamp.0.unwrap_or_default(),
        cwd: line.cwd.clone(),
        parent: line.parent_session.clone().filter(|parent| parent.len() <= PATH_MAX),
    };
    Ok((header, sanitize_name(line.name.clone())))
}

/// Maximum bytes of a path.
const PATH_MAX: usize = 4096;

/// Maximum characters of a name.
const NAME_MAX: usize = 256;

/// Removes control characters from a name and truncates it; an empty name becomes `None`.
pub(super) fn sanitize_name(name: Option<String>) -> Option<String> {
    let name = name?;
    let name: String = name.chars().filter(|letter| !letter.is_control()).take(NAME_MAX).collect();
    let name = name.trim();
    if name.is_empty() { None } else { Some(name.to_owned()) }
}

/// Returns the start of a text, for error messages.
fn prefix(text: &str) -> String {
    text.chars().take(40).collect()
}
