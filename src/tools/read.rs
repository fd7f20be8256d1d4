//! `sandbox_read_file`: returns the lines of a text file.

use std::io::Read as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::context::FsContext;
use super::error::{ToolError, ToolErrorKind};
use super::partial_pem::{KEY_BYTES_MAX, redact_after};
use super::{
    ApprovalDigest, CallDescription, Category, ExecutionResult, Tool, ToolContext, assess_reads, parse_arguments,
    schema,
};
use crate::sandbox::Chunk;
use crate::sandbox::risk::{Escalation, PathContext, RiskAssessment};
use crate::sandbox::workspace::WorkspaceError;

pub(super) const NAME: &str = "sandbox_read_file";
const DESCRIPTION: &str = "Read a text file of the workspace. A complete file is returned unchanged; a part, \
    requested or because the file is long, starts with a line like `[lines 11-20 of 340]`. Binary files are refused.";

/// How many bytes are read beyond the limit, so that a secret at the boundary is complete for the redactor.
const LOOK_AHEAD: usize = 4096;

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The file, relative to the workspace.
    path: String,
    /// The first line to return, counted from 1.
    offset: Option<u64>,
    /// How many lines to return at most.
    limit: Option<u64>,
}

/// The tool.
#[derive(Debug)]
pub(super) struct Read;

impl Tool for Read {
    type Args = Args;

    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        DESCRIPTION
    }

    fn schema(&self) -> Value {
        schema::<Args>()
    }

    fn category(&self) -> Category {
        Category::Read
    }

    fn parse(&self, args: &str) -> Result<Self::Args, ToolError> {
        parse_arguments(NAME, args)
    }

    fn paths<'a>(&self, args: &'a mut Self::Args) -> Vec<&'a mut String> {
        vec![&mut args.path]
    }

    fn assess(&self, args: &Self::Args, _escalation: Escalation, paths: &PathContext) -> RiskAssessment {
        assess_reads([args.path.as_str()], paths)
    }

    async fn describe(
        &self,
        args: &Self::Args,
        digest: ApprovalDigest,
        _context: &ToolContext,
    ) -> Result<CallDescription, ToolError> {
        Ok(CallDescription::new("Approve reading", &args.path, json!({ "path": args.path }), digest))
    }

    async fn run(&self, args: Self::Args, context: &ToolContext, _out: mpsc::Sender<Chunk>) -> ExecutionResult {
        context.run_blocking(move |fs_context| read(&args, fs_context)).await.into()
    }
}

fn read(args: &Args, fs_context: &FsContext) -> Result<String, ToolError> {
    let path = Path::new(&args.path);
    let first = args.offset.unwrap_or(1).max(1);
    let last = args.limit.map_or(u64::MAX, |limit| first.saturating_add(limit.max(1) - 1));
    let mut lines = LineWindow::new(first, last, fs_context.limits.result_bytes);
    let mut file = fs_context.workspace.open_file(path)?.take(fs_context.limits.scan_bytes);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        if fs_context.is_stopped() {
            return Err(ToolError::new(ToolErrorKind::Aborted, "the call was aborted because its run ended"));
        }
        let length = file
            .read(&mut buffer)
            .map_err(|source| ToolError::from(WorkspaceError::Io { action: "read", path: path.to_owned(), source }))?;
        if length == 0 {
            break;
        }
        if memchr::memchr(0, &buffer[..length]).is_some() {
            return Err(ToolError::new(ToolErrorKind::BinaryFile, format!("{} is not a text file", args.path)));
        }
        lines.push(&buffer[..length]);
    }
    lines.finish(args, file.limit() == 0, fs_context)
}

/// Collects the requested lines of a file.
struct LineWindow {
    first: u64,
    last: u64,
    byte_limit: usize,
    /// The line of the next byte.
    line: u64,
    inside_line: bool,
    /// The end of the text before the first line.
    text_before: Vec<u8>,
    page: Vec<u8>,
    /// Whether all requested lines were kept.
    complete: bool,
}

impl LineWindow {
    const fn new(first: u64, last: u64, byte_limit: usize) -> Self {
        Self {
            first,
            last,
            byte_limit,
            line: 1,
            inside_line: false,
            text_before: Vec::new(),
            page: Vec::new(),
            complete: true,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line < self.first {
                self.skip(line);
            } else if self.line <= self.last {
                let fitting = line.len().min((self.byte_limit + LOOK_AHEAD).saturating_sub(self.page.len()));
                self.page.extend_from_slice(&line[..fitting]);
                self.complete &= fitting == line.len();
            }
            self.inside_line = !line.ends_with(b"\n");
            self.line += u64::from(!self.inside_line);
        }
    }

    /// Records text before the requested lines.
    fn skip(&mut self, line: &[u8]) {
        self.text_before.extend_from_slice(line);
        if self.text_before.len() > 2 * KEY_BYTES_MAX {
            self.text_before.drain(..self.text_before.len() - KEY_BYTES_MAX);
        }
    }

    fn finish(mut self, args: &Args, more: bool, fs_context: &FsContext) -> Result<String, ToolError> {
        let total = self.line - u64::from(!self.inside_line);
        if self.first > total.max(1) {
            let message = format!("{} has {total} lines; line {} does not exist", args.path, self.first);
            return Err(ToolError::new(ToolErrorKind::OutOfRange, message));
        }
        let mut cut_line = false;
        if self.page.len() > self.byte_limit {
            self.complete = false;
            match memchr::memrchr(b'\n', &self.page[..self.byte_limit]) {
                Some(end) => self.page.truncate(end + 1),
                None => cut_line = true,
            }
        }
        let lines = memchr::memchr_iter(b'\n', &self.page).count() as u64;
        let begun = u64::from(!self.page.is_empty() && !self.page.ends_with(b"\n"));
        let mut text = redact_after(&self.text_before, &String::from_utf8_lossy(&self.page), &fs_context.redact);
        if cut_line {
            text.truncate(text.floor_char_boundary(self.byte_limit));
            let head = format!("[line {} is long: its first {} bytes", self.first, text.len());
            return Ok(format!("{head}; the file has {total} lines]\n{text}"));
        }
        let last = self.first + (lines + begun).saturating_sub(1);
        if self.complete && !more && self.first == 1 && last >= total {
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
    fn a_complete_file_is_returned_unchanged() {
        for text in ["", "one", "one\n", "one\ntwo\n", "\n\n", "caf\u{e9}\r\nx"] {
            assert_eq!(run_read(text, None, None, 1000), Ok(text.to_owned()));
        }
        assert_eq!(run_read("one\ntwo\n", Some(1), Some(2), 1000), Ok("one\ntwo\n".to_owned()));
    }

    #[test]
    fn a_partial_result_names_its_lines() {
        let text = "a\nb\nc\nd";
        let part = |offset, limit| run_read(text, offset, limit, 1000).unwrap();
        assert_eq!(part(Some(2), Some(2)), "[lines 2-3 of 4]\nb\nc\n");
        assert_eq!(part(Some(4), None), "[lines 4-4 of 4]\nd");
        assert_eq!(part(None, Some(1)), "[lines 1-1 of 4]\na\n");
        let beyond = run_read(text, Some(5), None, 1000).unwrap_err();
        assert_eq!(beyond.kind, ToolErrorKind::OutOfRange);
        assert!(beyond.message.contains("4 lines"), "{}", beyond.message);
    }

    #[test]
    fn a_long_file_ends_at_the_last_line_that_fits() {
        let text = "12345\n".repeat(2000);
        assert_eq!(run_read(&text, None, None, 20).unwrap(), "[lines 1-3 of 2000]\n12345\n12345\n12345\n");
        let long_line = "é".repeat(10_000);
        let cut = run_read(&long_line, None, None, 21).unwrap();
        let head = "[line 1 is long: its first 20 bytes; the file has 1 lines]\n";
        assert_eq!(cut, format!("{head}{}", "é".repeat(10)));
    }

    #[test]
    fn a_file_longer_than_the_scan_limit_is_marked() {
        let (dir, mut limits) = (tempfile::tempdir().unwrap(), Limits::default());
        fs::write(dir.path().join("f"), "1\n2\n3\n4\n").unwrap();
        limits.scan_bytes = 4;
        let args = Args { path: "f".into(), offset: None, limit: None };
        let text = read(&args, &FsContext::test(dir.path(), limits)).unwrap();
        assert_eq!(text, "[lines 1-2 of more than 2]\n1\n2\n");
    }

    #[test]
    fn binary_files_and_unreadable_paths_are_refused() {
        assert_eq!(run_read("a\0b", None, None, 1000).unwrap_err().kind, ToolErrorKind::BinaryFile);
        let late = format!("{}\0", "x\n".repeat(100_000));
        assert_eq!(run_read(&late, None, Some(1), 1000).unwrap_err().kind, ToolErrorKind::BinaryFile);
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("latin"), b"caf\xe9").unwrap();
        let fs_context = FsContext::test(dir.path(), Limits::default());
        let read = |path: &str| read(&Args { path: path.into(), offset: None, limit: None }, &fs_context);
        assert_eq!(read("latin").unwrap(), "caf\u{fffd}");
        assert_eq!(read("none").unwrap_err().kind, ToolErrorKind::NotFound);
        assert_eq!(read(".").unwrap_err().kind, ToolErrorKind::IsDirectory);
        assert_eq!(read("../x").unwrap_err().kind, ToolErrorKind::OutsideWorkspace);
    }

    fn run_read(text: &str, offset: Option<u64>, limit: Option<u64>, result_bytes: usize) -> Result<String, ToolError> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), text).unwrap();
        let limits = Limits { result_bytes, ..Limits::default() };
        read(&Args { path: "f".into(), offset, limit }, &FsContext::test(dir.path(), limits))
    }
}
