//! `sandbox_search`: searches lines by content and files by name, without ignored files.
//!
//! Each directory is opened from its parent and each file from its directory, without following links, so that
//! nothing outside is shown even if a directory is replaced by a link at the same time. Only regular files are
//! opened, and the search stops between any two entries when it is cancelled.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Take};
use std::path::{Component, Path, PathBuf};
use std::time::Instant;

use globset::{GlobBuilder, GlobMatcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::context::{BoundedItems, FsContext};
use super::error::{ToolError, ToolErrorKind};
use super::ignores::IgnoreRules;
use super::partial_pem;
use super::{
    ApprovalDigest, CallDescription, Category, ExecutionResult, Tool, ToolContext, assess_reads, parse_arguments,
    schema,
};
use crate::sandbox::Chunk;
use crate::sandbox::risk::{Escalation, PathContext, RiskAssessment};
use crate::sandbox::workspace::{DirHandle, FileKind};

pub(super) const NAME: &str = "sandbox_search";
const DESCRIPTION: &str = "Search the workspace. With `pattern`, a regular expression, return matching lines \
    with path and line number; with `glob` alone return the paths of matching files; with both search only those \
    files. Files that git ignores, `.git` and binary files are skipped.";

/// The maximum number of bytes of one line in memory.
const LINE_MAX: usize = 16 * 1024 * 1024;

/// The memory limits of a regular expression and its search.
const REGEX_MAX: usize = 16 * 1024 * 1024;

/// How many entries of one directory are searched.
const NAMES_MAX: usize = 100_000;

/// The maximum depth of directories.
const DEPTH_MAX: usize = 128;

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Args {
    /// The text to search for in lines: a regular expression, or plain text with `literal`.
    pattern: Option<String>,
    /// True if the pattern is plain text.
    literal: Option<bool>,
    /// True to ignore case.
    ignore_case: Option<bool>,
    /// Which files: `*.rs` by name in any directory, `src/**/*.rs` by path below `path`.
    glob: Option<String>,
    /// The directory or file to search, relative to the workspace; the workspace itself when left out.
    path: Option<String>,
}

impl Args {
    /// Refuses arguments without a pattern or glob, and invalid ones.
    fn validate(self) -> Result<Self, ToolError> {
        if self.pattern.is_none() && self.glob.is_none() {
            return Err(ToolError::new(ToolErrorKind::BadArguments, "pattern or glob is required"));
        }
        self.glob()?;
        self.matcher()?;
        Ok(self)
    }

    fn glob(&self) -> Result<Option<GlobMatcher>, ToolError> {
        let Some(glob) = &self.glob else { return Ok(None) };
        let everywhere = if glob.contains('/') { glob.clone() } else { format!("**/{glob}") };
        let built = GlobBuilder::new(everywhere.trim_start_matches("./")).literal_separator(true).build();
        match built {
            Ok(glob) => Ok(Some(glob.compile_matcher())),
            Err(error) => Err(ToolError::new(ToolErrorKind::BadArguments, format!("invalid glob: {error}"))),
        }
    }

    fn matcher(&self) -> Result<Option<RegexMatcher>, ToolError> {
        let Some(pattern) = &self.pattern else { return Ok(None) };
        let mut builder = RegexMatcherBuilder::new();
        builder
            .fixed_strings(self.literal.unwrap_or(false))
            .case_insensitive(self.ignore_case.unwrap_or(false))
            .size_limit(REGEX_MAX)
            .dfa_size_limit(REGEX_MAX)
            .line_terminator(Some(b'\n'));
        match builder.build(pattern) {
            Ok(matcher) => Ok(Some(matcher)),
            Err(error) => Err(ToolError::new(ToolErrorKind::BadArguments, format!("invalid pattern: {error}"))),
        }
    }
}

/// The tool.
#[derive(Debug)]
pub(super) struct Search;

impl Tool for Search {
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
        parse_arguments::<Args>(NAME, args)?.validate()
    }

    fn paths<'a>(&self, args: &'a mut Self::Args) -> Vec<&'a mut String> {
        args.path.iter_mut().collect()
    }

    fn assess(&self, args: &Self::Args, _escalation: Escalation, paths: &PathContext) -> RiskAssessment {
        assess_reads([args.path.as_deref().unwrap_or(".")], paths)
    }

    async fn describe(
        &self,
        args: &Self::Args,
        digest: ApprovalDigest,
        _context: &ToolContext,
    ) -> Result<CallDescription, ToolError> {
        let pattern = args.pattern.as_deref().or(args.glob.as_deref()).unwrap_or_default();
        let details = json!({ "pattern": args.pattern, "glob": args.glob, "path": args.path });
        Ok(CallDescription::new("Approve searching", pattern, details, digest))
    }

    async fn run(&self, args: Self::Args, context: &ToolContext, _out: mpsc::Sender<Chunk>) -> ExecutionResult {
        context.run_blocking(move |fs_context| search(&args, fs_context)).await.into()
    }
}

fn search(args: &Args, site: &FsContext) -> Result<String, ToolError> {
    let start = Path::new(args.path.as_deref().unwrap_or("."));
    let (glob, matcher) = (args.glob()?, args.matcher()?);
    let mut run = SearchRun {
        site,
        items: BoundedItems::new(site.limits.hits, site.limits.result_bytes),
        ignores: IgnoreRules::new(site.limits.ignores),
        deadline: Instant::now() + site.limits.search_timeout,
        timed_out: false,
    };
    match site.workspace.open_directory(start) {
        Ok(handle) => drop(run.search(&handle, start, glob.as_ref(), matcher.as_ref())),
        Err(error) => match site.workspace.open_file(start) {
            Ok(file) => drop(run.search_file(start, file, matcher.as_ref())),
            Err(_) => return Err(error.into()),
        },
    }
    if site.is_stopped() {
        return Err(ToolError::new(ToolErrorKind::Aborted, "the call was aborted because its run ended"));
    }
    let timed_out = run.timed_out;
    let notes = run.ignores.into_notes();
    let (found, truncated) = run.items.finish();
    let key = if matcher.is_some() { "hits" } else { "paths" };
    let mut result = json!({ key: found, "truncated": truncated || timed_out });
    if timed_out {
        result["timeLimit"] = json!(true);
    }
    if !notes.is_empty() {
        result["notes"] = json!(notes);
    }
    Ok(result.to_string())
}

/// A search in progress.
struct SearchRun<'a> {
    site: &'a FsContext,
    items: BoundedItems,
    ignores: IgnoreRules,
    deadline: Instant,
    timed_out: bool,
}

/// What to search for.
#[derive(Clone, Copy)]
struct SearchQuery<'a> {
    /// The start of the search, as requested.
    start: &'a Path,
    glob: Option<&'a GlobMatcher>,
    matcher: Option<&'a RegexMatcher>,
}

/// Whether the search continues.
#[derive(PartialEq, Eq)]
enum SearchFlow {
    Continue,
    Stop,
}

impl SearchRun<'_> {
    /// Searches a directory and everything below it.
    fn search(
        &mut self,
        handle: &DirHandle,
        start: &Path,
        glob: Option<&GlobMatcher>,
        matcher: Option<&RegexMatcher>,
    ) -> SearchFlow {
        let root = self.site.workspace.path();
        if let Some((home, config_home)) = self.site.homes() {
            self.ignores.add_user_patterns(&home, &config_home, root);
        }
        self.ignores.add_parent_patterns(root);
        // Ignore files of parent directories apply too.
        let start_inside = normalize(&self.site.workspace.to_relative(start));
        let above: Vec<&Path> = start_inside.ancestors().skip(1).collect();
        for outer in above.into_iter().rev() {
            let Ok(outer_folder) = self.site.workspace.open_directory(outer) else { continue };
            let entries = outer_folder.entries(NAMES_MAX).map(|(entries, _)| entries).unwrap_or_default();
            self.ignores.enter(&outer_folder, &entries, &self.absolute(outer));
        }
        self.walk(handle, Path::new(""), 0, SearchQuery { start, glob, matcher })
    }

    /// Searches a directory in the order of names; `below` is its path relative to the start.
    fn walk(&mut self, handle: &DirHandle, below: &Path, depth: usize, query: SearchQuery<'_>) -> SearchFlow {
        if self.should_stop() {
            return SearchFlow::Stop;
        }
        // A directory that cannot be read is skipped.
        let Ok((mut entries, more)) = handle.entries(NAMES_MAX) else { return SearchFlow::Continue };
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let directory = self.absolute(&query.start.join(below));
        if more {
            self.ignores.note(format!("{}: only {NAMES_MAX} of its entries were searched", directory.display()));
        }
        let before = self.ignores.enter(handle, &entries, &directory);
        let mut flow = SearchFlow::Continue;
        for entry in &entries {
            if self.should_stop() {
                flow = SearchFlow::Stop;
                break;
            }
            if entry.name == ".git"
                || self.ignores.is_ignored(&directory.join(&entry.name), entry.kind == FileKind::Directory)
            {
                continue;
            }
            flow = match entry.kind {
                FileKind::Directory => self.descend(handle, &entry.name, &below.join(&entry.name), depth, query),
                FileKind::File => self.visit_file(handle, &entry.name, &below.join(&entry.name), query),
                FileKind::Link | FileKind::Other => SearchFlow::Continue,
            };
            if flow == SearchFlow::Stop {
                break;
            }
        }
        self.ignores.leave(&before);
        flow
    }

    fn descend(
        &mut self,
        handle: &DirHandle,
        name: &OsStr,
        below: &Path,
        depth: usize,
        query: SearchQuery<'_>,
    ) -> SearchFlow {
        if depth == DEPTH_MAX {
            self.ignores.note(format!("{}: deeper directories were not searched", below.display()));
            return SearchFlow::Continue;
        }
        match handle.open_directory(name) {
            Ok(inner) => self.walk(&inner, below, depth + 1, query),
            Err(_) => SearchFlow::Continue,
        }
    }

    fn visit_file(&mut self, handle: &DirHandle, name: &OsStr, below: &Path, query: SearchQuery<'_>) -> SearchFlow {
        if query.glob.is_some_and(|glob| !glob.is_match(below)) {
            return SearchFlow::Continue;
        }
        let Ok(file) = handle.open_file(name) else { return SearchFlow::Continue };
        let path = if query.start == Path::new(".") { below.to_owned() } else { query.start.join(below) };
        self.search_file(&path, file, query.matcher)
    }

    /// Searches one file.
    fn search_file(&mut self, path: &Path, file: File, matcher: Option<&RegexMatcher>) -> SearchFlow {
        let Some(matcher) = matcher else {
            let added = self.items.push(path.to_string_lossy().into());
            return if added { SearchFlow::Continue } else { SearchFlow::Stop };
        };
        let mut searcher = SearcherBuilder::new()
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(LINE_MAX))
            .line_number(true)
            .build();
        let key_seen = Cell::new(false);
        let file = BoundedReader {
            file: file.take(self.site.limits.scan_bytes),
            site: self.site,
            deadline: self.deadline,
            key_seen: &key_seen,
            tail: Vec::new(),
        };
        let (items, flow) = (&mut self.items, SearchFlow::Continue);
        let mut finds = MatchSink { path, site: self.site, items, flow, key_seen: &key_seen };
        // A file that cannot be read completely contributes the matches so far.
        let _rest = searcher.search_reader(matcher, file, &mut finds);
        finds.flow
    }

    /// The absolute path of a directory of the workspace, without `.` components.
    fn absolute(&self, path: &Path) -> PathBuf {
        let workspace = &self.site.workspace;
        workspace.path().join(workspace.to_relative(path)).components().collect()
    }

    fn should_stop(&mut self) -> bool {
        self.timed_out |= Instant::now() >= self.deadline;
        self.timed_out || self.site.is_stopped()
    }
}

/// Returns a path without `.` components, and without `..` where it follows a name.
fn normalize(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if whole.pop() => {}
            Component::Prefix(_) | Component::RootDir | Component::ParentDir | Component::Normal(_) => {
                whole.push(part);
            }
        }
    }
    whole
}

/// Reads a file until the search times out or is cancelled.
struct BoundedReader<'a> {
    file: Take<File>,
    site: &'a FsContext,
    deadline: Instant,
    /// Whether the header of a private key was read.
    key_seen: &'a Cell<bool>,
    /// The end of the bytes that were read before.
    tail: Vec<u8>,
}

impl BoundedReader<'_> {
    fn scan_for_keys(&mut self, read: &[u8]) {
        let head = read.get(..partial_pem::KEY_HEADER_END.len().min(read.len())).unwrap_or_default();
        self.tail.extend_from_slice(head);
        let found = |bytes: &[u8]| memchr::memmem::find(bytes, partial_pem::KEY_HEADER_END).is_some();
        if found(&self.tail) || found(read) {
            self.key_seen.set(true);
        }
        if read.len() >= partial_pem::KEY_HEADER_END.len() {
            self.tail = read[read.len() - partial_pem::KEY_HEADER_END.len()..].to_vec();
        }
    }
}

impl Read for BoundedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.site.is_stopped() || Instant::now() >= self.deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let length = self.file.read(buffer)?;
        if !self.key_seen.get() {
            self.scan_for_keys(buffer.get(..length).unwrap_or_default());
        }
        Ok(length)
    }
}

/// Collects the matching lines of one file.
struct MatchSink<'a> {
    path: &'a Path,
    site: &'a FsContext,
    items: &'a mut BoundedItems,
    flow: SearchFlow,
    /// Whether the header of a private key was read: the reader is ahead of the matches.
    key_seen: &'a Cell<bool>,
}

impl MatchSink<'_> {
    /// Returns the text before an offset of the file, as far as a private key may reach.
    fn text_before(&self, directory: u64) -> io::Result<Vec<u8>> {
        let mut file = self.site.workspace.open_file(self.path).map_err(io::Error::other)?;
        let from = directory.saturating_sub(partial_pem::KEY_BYTES_MAX as u64);
        file.seek(SeekFrom::Start(from))?;
        let mut before = Vec::new();
        file.take(directory - from).read_to_end(&mut before)?;
        Ok(before)
    }
}

impl Sink for MatchSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        let line = String::from_utf8_lossy(found.bytes());
        let line = line.trim_end_matches(['\n', '\r']);
        let before = if self.key_seen.get() { self.text_before(found.absolute_byte_offset())? } else { Vec::new() };
        let mut text = partial_pem::redact_after(&before, line, &self.site.redact);
        let cut = text.floor_char_boundary(self.site.limits.hit_bytes);
        if cut < text.len() {
            text.truncate(cut);
            text.push('…');
        }
        let path: PathBuf = self.path.to_owned();
        let hit = json!({ "path": path.to_string_lossy(), "line": found.line_number(), "text": text });
        let added = self.items.push(hit);
        if !added {
            self.flow = SearchFlow::Stop;
        }
        Ok(added)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use serde_json::Value;

    use super::super::limits::Limits;
    use super::*;

    #[test]
    fn lines_are_found_by_expression_and_by_text() {
        let dir = test_dir();
        let found = run_search(dir.path(), r#"{"pattern":"fn \\w+\\(\\)"}"#, Limits::default());
        assert_eq!(
            found,
            json!({ "hits": [
                { "path": "src/a.rs", "line": 2, "text": "fn one() {" },
                { "path": "src/deep/b.rs", "line": 1, "text": "fn two() {" },
            ], "truncated": false })
        );
        let literal = run_search(dir.path(), r#"{"pattern":"one()","literal":true}"#, Limits::default());
        assert_eq!(literal["hits"][0]["path"], "src/a.rs");
        let none = run_search(dir.path(), r#"{"pattern":"FN ONE"}"#, Limits::default());
        assert_eq!(none["hits"], json!([]));
        let some = run_search(dir.path(), r#"{"pattern":"FN ONE","ignoreCase":true}"#, Limits::default());
        assert_eq!(some["hits"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn files_are_found_by_name_and_by_path() {
        let dir = test_dir();
        let paths = |args: &str| run_search(dir.path(), args, Limits::default())["paths"].clone();
        assert_eq!(paths(r#"{"glob":"*.rs"}"#), json!(["src/a.rs", "src/deep/b.rs"]));
        assert_eq!(paths(r#"{"glob":"src/*.rs"}"#), json!(["src/a.rs"]));
        assert_eq!(paths(r#"{"glob":"*.rs","path":"src/deep"}"#), json!(["src/deep/b.rs"]));
        assert_eq!(paths(r#"{"glob":".*"}"#), json!([".gitignore", ".hidden"]));
        let both = run_search(dir.path(), r#"{"pattern":"two","glob":"a.rs"}"#, Limits::default());
        assert_eq!(both["hits"], json!([]));
        let alone = run_search(dir.path(), r#"{"pattern":"fn one","path":"src/a.rs"}"#, Limits::default());
        assert_eq!(alone["hits"][0]["line"], 2);
    }

    #[test]
    fn ignored_and_binary_files_are_not_searched() {
        let dir = test_dir();
        let found = run_search(dir.path(), r#"{"pattern":"needle"}"#, Limits::default());
        let paths: Vec<_> = found["hits"].as_array().unwrap().iter().map(|hit| &hit["path"]).collect();
        assert_eq!(paths, [".hidden"]);
    }

    #[test]
    fn a_search_is_bounded_in_hits_bytes_and_time() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "needle and more é\n".repeat(50)).unwrap();
        let args = r#"{"pattern":"needle"}"#;
        let few = run_search(dir.path(), args, Limits { hits: 3, ..Limits::default() });
        assert_eq!((few["hits"].as_array().unwrap().len(), &few["truncated"]), (3, &json!(true)));
        let small = run_search(dir.path(), args, Limits { result_bytes: 200, ..Limits::default() });
        assert_eq!(small["truncated"], true);
        assert!(small.to_string().len() < 260, "{small}");
        let short = run_search(dir.path(), args, Limits { hit_bytes: 17, ..Limits::default() });
        assert_eq!(short["hits"][0]["text"], "needle and more …");
        let timed_out = run_search(dir.path(), args, Limits { search_timeout: Duration::ZERO, ..Limits::default() });
        assert_eq!(timed_out, json!({ "hits": [], "truncated": true, "timeLimit": true }));
    }

    #[test]
    fn a_very_deep_tree_is_searched_down_to_the_depth_limit() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("near"), "needle\n").unwrap();
        let mut deep = dir.path().to_owned();
        while deep.as_os_str().len() < 3_900 {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("far"), "needle\n").unwrap();
        let found = run_search(dir.path(), r#"{"pattern":"needle"}"#, Limits::default());
        assert_eq!(found["hits"].as_array().unwrap().len(), 1, "{found}");
        assert_eq!(found["hits"][0]["path"], "near");
    }

    #[test]
    fn a_cancelled_search_stops() {
        let dir = test_dir();
        let site = FsContext::test(dir.path(), Limits::default());
        site.stop();
        let args: Args = serde_json::from_str(r#"{"pattern":"needle"}"#).unwrap();
        assert_eq!(search(&args, &site).unwrap_err().kind, ToolErrorKind::Aborted);
    }

    #[test]
    fn invalid_search_arguments_are_refused() {
        for args in ["{}", r#"{"pattern":"("}"#, r#"{"glob":"a["}"#, r#"{"path":"src"}"#] {
            let args: Args = serde_json::from_str(args).unwrap();
            assert_eq!(args.validate().unwrap_err().kind, ToolErrorKind::BadArguments);
        }
        let dir = test_dir();
        let site = FsContext::test(dir.path(), Limits::default());
        let kind = |path: &str| {
            let args = json!({ "pattern": "x", "path": path }).to_string();
            search(&serde_json::from_str(&args).unwrap(), &site).unwrap_err().kind
        };
        assert_eq!(kind(".."), ToolErrorKind::OutsideWorkspace);
        assert_eq!(kind("none"), ToolErrorKind::NotFound);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_leads_out_is_not_searched() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(dir.path().join("out")).unwrap();
        fs::write(dir.path().join("out/f"), "needle").unwrap();
        std::os::unix::fs::symlink("../out", root.join("link")).unwrap();
        std::os::unix::fs::symlink("../out/f", root.join("file")).unwrap();
        let found = run_search(&root, r#"{"pattern":"needle"}"#, Limits::default());
        assert_eq!(found["hits"], json!([]));
        let args: Args = serde_json::from_str(r#"{"pattern":"needle","path":"link"}"#).unwrap();
        let error = search(&args, &FsContext::test(&root, Limits::default())).unwrap_err();
        assert_eq!(error.kind, ToolErrorKind::OutsideWorkspace);
    }

    #[cfg(unix)]
    #[test]
    fn special_files_do_not_block_a_search_and_are_reported() {
        use nix::sys::stat::Mode;
        use nix::unistd::mkfifo;

        let dir = test_dir();
        fs::remove_file(dir.path().join(".gitignore")).unwrap();
        for fifo in [".gitignore", ".ignore", "src/.gitignore", "src/pipe"] {
            mkfifo(&dir.path().join(fifo), Mode::S_IRWXU).unwrap();
        }
        fs::create_dir_all(dir.path().join(".git/info")).unwrap();
        mkfifo(&dir.path().join(".git/info/exclude"), Mode::S_IRWXU).unwrap();
        let found = run_search(dir.path(), r#"{"pattern":"fn one"}"#, Limits::default());
        assert_eq!(found["hits"][0]["path"], "src/a.rs");
        let notes = found["notes"].to_string();
        for name in [".gitignore is not a regular file", ".ignore is not", "exclude is not a regular file"] {
            assert!(notes.contains(name), "{name}: {notes}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_note_appears_once_however_the_start_of_the_search_is_spelled() {
        use nix::sys::stat::Mode;
        use nix::unistd::mkfifo;

        let dir = test_dir();
        fs::remove_file(dir.path().join(".gitignore")).unwrap();
        mkfifo(&dir.path().join(".gitignore"), Mode::S_IRWXU).unwrap();
        for path in [None, Some("."), Some("./"), Some("./src"), Some("src/."), Some("src"), Some("src/../src")] {
            let args = json!({ "pattern": "fn", "path": path }).to_string();
            let found = run_search(dir.path(), &args, Limits::default());
            assert_eq!(found["notes"].as_array().unwrap().len(), 1, "{path:?}: {found}");
        }
        // Patterns that were counted twice would exceed the total limit.
        fs::remove_file(dir.path().join(".gitignore")).unwrap();
        fs::write(dir.path().join(".gitignore"), "target\nbinary\n").unwrap();
        let mut limits = Limits::default();
        limits.ignores.all_patterns = 3;
        let found = run_search(dir.path(), r#"{"pattern":"fn"}"#, limits);
        assert_eq!(found["notes"], Value::Null, "{found}");
    }

    #[test]
    fn a_huge_ignore_file_is_used_up_to_its_limit_and_reported() {
        let dir = test_dir();
        let mut patterns = String::from("target\n");
        for number in 0..200_000 {
            patterns.push_str(&format!("*a{number}*[b-z]?\n"));
        }
        assert!(patterns.len() > 3_000_000);
        fs::write(dir.path().join(".gitignore"), &patterns).unwrap();
        let found = run_search(dir.path(), r#"{"pattern":"needle"}"#, Limits::default());
        assert_eq!(found["hits"].as_array().unwrap().len(), 1, "{found}");
        assert!(found["notes"][0].as_str().unwrap().contains("patterns are used"), "{found}");
    }

    #[test]
    fn ignore_files_above_and_below_the_search_directory_apply() {
        let dir = tempfile::tempdir().unwrap();
        for handle in [".git", "work/src/deep", "work/inner/.git"] {
            fs::create_dir_all(dir.path().join(handle)).unwrap();
        }
        for (name, text) in [
            (".gitignore", "*.log\n/work/src/only\n"),
            ("work/.gitignore", "!kept.log\nsrc/deep/gone\n"),
            ("work/src/x.log", "needle"),
            ("work/src/kept.log", "needle"),
            ("work/src/only", "needle"),
            ("work/src/deep/gone", "needle"),
            ("work/src/deep/here", "needle"),
            ("work/inner/y.log", "needle"),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let paths = |args: &str| {
            let found = run_search(&dir.path().join("work").canonicalize().unwrap(), args, Limits::default());
            let hits = found["hits"].as_array().unwrap().clone();
            hits.iter().map(|hit| hit["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        // A nested repository has its own rules.
        let all = ["inner/y.log", "src/deep/here", "src/kept.log"];
        assert_eq!(paths(r#"{"pattern":"needle"}"#), all);
        assert_eq!(paths(r#"{"pattern":"needle","path":"src"}"#), all[1..]);
        assert_eq!(paths(r#"{"pattern":"needle","path":"src/deep"}"#), all[1..2]);
    }

    fn test_dir() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for handle in ["src/deep", "target", ".git"] {
            fs::create_dir_all(dir.path().join(handle)).unwrap();
        }
        for (name, text) in [
            ("src/a.rs", "// one\nfn one() {\n}\n"),
            ("src/deep/b.rs", "fn two() {\n"),
            ("target/out", "needle"),
            (".git/config", "needle"),
            (".gitignore", "target\n"),
            (".hidden", "needle\n"),
            ("binary", "needle\0"),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn run_search(root: &Path, args: &str, limits: Limits) -> Value {
        let args = serde_json::from_str::<Args>(args).unwrap().validate().unwrap();
        serde_json::from_str(&search(&args, &FsContext::test(root, limits)).unwrap()).unwrap()
    }
}
