//! `sandbox_read_file`: returns the lines of a text file.

use std::io::Read;
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use super::armour::{REACH, safe_after};
use super::bench::{Site, floor};
use super::fault::{Fault, FaultKind};
use crate::sandbox::ground::GroundError;

pub(super) const NAME: &str = "sandbox_read_file";
pub(super) const DESCRIPTION: &str = "Read a text file of the workspace. A complete file is returned unchanged; a part, \
    requested or because the file is long, starts with a line like `[lines 11-20 of 340]`. Binary files are refused.";

/// How many bytes are read beyond the limit, so that a secret at the boundary is complete for the redactor.
const EDGE: usize = 4096;

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Args {
    /// The file, relative to the workspace.
    pub path: String,
    /// The first line to return, counted from 1.
    pub offset: Option<u64>,
    /// How many lines to return at most.
    pub limit: Option<u64>,
}

pub(super) fn read(args: &Args, site: &Site) -> Result<String, Fault> {
    let path = Path::new(&args.path);
    let first = args.offset.unwrap_or(1).max(1);
    let last = args.limit.map_or(u64::MAX, |limit| first.saturating_add(limit.max(1) - 1));
    let mut lines = Lines::new(first, last, site.limits.result_bytes);
    let mut file = site.ground.file(path)?.take(site.limits.scan_bytes);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        if site.is_stopped() {
            return Err(Fault::new(FaultKind::Cut, "ended with its run"));
        }
        let length = file.read(&mut buffer).map_err(|source| {
            Fault::from(GroundError::Io { action: "read", path: path.to_owned(), source })
        })?;
        if length == 0 {
            break;
        }
        if memchr::memchr(0, &buffer[..length]).is_some() {
            return Err(Fault::new(FaultKind::BinaryFile, format!("{} is not a text file", args.path)));
        }
        lines.take(&buffer[..length]);
    }
    lines.finish(args, file.limit() == 0, site)
}

/// Collects the requested lines of a file.
struct Lines {
    first: u64,
    last: u64,
    room: usize,
    /// The line of the next byte.
    at: u64,
    inside_line: bool,
    /// The end of the text before the first line.
    before: Vec<u8>,
    kept: Vec<u8>,
    /// Whether all requested lines were kept.
    whole: bool,
}

impl Lines {
    const fn new(first: u64, last: u64, room: usize) -> Self {
        Self {
            first,
            last,
            room,
            at: 1,
            inside_line: false,
            before: Vec::new(),
            kept: Vec::new(),
            whole: true,
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.at < self.first {
                self.pass(piece);
            } else if self.at <= self.last {
                let fitting = piece.len().min((self.room + EDGE).saturating_sub(self.kept.len()));
                self.kept.extend_from_slice(&piece[..fitting]);
                self.whole &= fitting == piece.len();
            }
            self.inside_line = !piece.ends_with(b"\n");
            self.at += u64::from(!self.inside_line);
        }
    }

    /// Records text before the requested lines.
    fn pass(&mut self, piece: &[u8]) {
        self.before.extend_from_slice(piece);
        if self.before.len() > 2 * REACH {
            self.before.drain(..self.before.len() - REACH);
        }
    }

    fn finish(mut self, args: &Args, more: bool, site: &Site) -> Result<String, Fault> {
        let total = self.at - u64::from(!self.inside_line);
        if self.first > total.max(1) {
            let message = format!("{} has {total} lines; line {} does not exist", args.path, self.first);
            return Err(Fault::new(FaultKind::OutOfRange, message));
        }
        let mut cut_line = false;
        if self.kept.len() > self.room {
            self.whole = false;
            match memchr::memrchr(b'\n', &self.kept[..self.room]) {
                Some(end) => self.kept.truncate(end + 1),
                None => cut_line = true,
            }
        }
        let lines = memchr::memchr_iter(b'\n', &self.kept).count() as u64;
        let begun = u64::from(!self.kept.is_empty() && !self.kept.ends_with(b"\n"));
        let mut text = safe_after(&self.before, &String::from_utf8_lossy(&self.kept), &site.safe);
        if cut_line {
            text.truncate(floor(&text, self.room));
            let head = format!("[line {} is long: its first {} bytes", self.first, text.len());
            return Ok(format!("{head}; the file has {total} lines]\n{text}"));
        }
        let last = self.first + (lines + begun).saturating_sub(1);
        if self.whole && !more && self.first == 1 && last >= total {
            return Ok(text);
        }
        let of = if more { format!("more than {total}") } else { total.to_string() };
        Ok(format!("[lines {}-{last} of {of}]\n{text}", self.first))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::limits::Limits;
    use super::*;

    #[test]
    fn a_whole_file_is_returned_as_it_is() {
        for text in ["", "one", "one\n", "one\ntwo\n", "\n\n", "caf\u{e9}\r\nx"] {
            assert_eq!(reading(text, None, None, 1000), Ok(text.to_owned()));
        }
        assert_eq!(reading("one\ntwo\n", Some(1), Some(2), 1000), Ok("one\ntwo\n".to_owned()));
    }

    #[test]
    fn a_part_says_which_lines_it_has() {
        let text = "a\nb\nc\nd";
        let part = |offset, limit| reading(text, offset, limit, 1000).unwrap();
        assert_eq!(part(Some(2), Some(2)), "[lines 2-3 of 4]\nb\nc\n");
        assert_eq!(part(Some(4), None), "[lines 4-4 of 4]\nd");
        assert_eq!(part(None, Some(1)), "[lines 1-1 of 4]\na\n");
        let beyond = reading(text, Some(5), None, 1000).unwrap_err();
        assert_eq!(beyond.kind, FaultKind::OutOfRange);
        assert!(beyond.message.contains("4 lines"), "{}", beyond.message);
    }

    #[test]
    fn a_long_file_ends_at_the_last_line_that_fits() {
        let text = "12345\n".repeat(2000);
        assert_eq!(reading(&text, None, None, 20).unwrap(), "[lines 1-3 of 2000]\n12345\n12345\n12345\n");
        let long_line = "é".repeat(10_000);
        let cut = reading(&long_line, None, None, 21).unwrap();
        let head = "[line 1 is long: its first 20 bytes; the file has 1 lines]\n";
        assert_eq!(cut, format!("{head}{}", "é".repeat(10)));
    }

    #[test]
    fn a_file_that_is_not_looked_through_to_its_end_says_so() {
        let (dir, mut limits) = (tempfile::tempdir().unwrap(), Limits::default());
        fs::write(dir.path().join("f"), "1\n2\n3\n4\n").unwrap();
        limits.scan_bytes = 4;
        let args = Args { path: "f".into(), offset: None, limit: None };
        let text = read(&args, &Site::test(dir.path(), limits)).unwrap();
        assert_eq!(text, "[lines 1-2 of more than 2]\n1\n2\n");
    }

    #[test]
    fn what_is_no_text_is_refused() {
        assert_eq!(reading("a\0b", None, None, 1000).unwrap_err().kind, FaultKind::BinaryFile);
        let late = format!("{}\0", "x\n".repeat(100_000));
        assert_eq!(reading(&late, None, Some(1), 1000).unwrap_err().kind, FaultKind::BinaryFile);
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("latin"), b"caf\xe9").unwrap();
        let site = Site::test(dir.path(), Limits::default());
        let read = |path: &str| read(&Args { path: path.into(), offset: None, limit: None }, &site);
        assert_eq!(read("latin").unwrap(), "caf\u{fffd}");
        assert_eq!(read("none").unwrap_err().kind, FaultKind::NotFound);
        assert_eq!(read(".").unwrap_err().kind, FaultKind::IsDirectory);
        assert_eq!(read("../x").unwrap_err().kind, FaultKind::OutsideWorkspace);
    }

    fn reading(text: &str, offset: Option<u64>, limit: Option<u64>, room: usize) -> Result<String, Fault> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), text).unwrap();
        let limits = Limits { result_bytes: room, ..Limits::default() };
        read(&Args { path: "f".into(), offset, limit }, &Site::test(dir.path(), limits))
    }
}
