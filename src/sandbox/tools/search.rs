//! `sandbox_search`: lines by their content and files by their names, without what git ignores.
//!
//! The walk finds names; each file is then opened from the ground, so that nothing outside is shown even when
//! directories are exchanged for links meanwhile.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Take};
use std::path::{Path, PathBuf};
use std::time::Instant;

use globset::{GlobBuilder, GlobMatcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use ignore::{DirEntry, WalkBuilder};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::armour;
use super::bench::{Items, Site, floor};
use super::fault::{Fault, FaultKind};

pub(super) const NAME: &str = "sandbox_search";
pub(super) const DESCRIPTION: &str = "Search the workspace. With `pattern`, a regular expression, return matching lines \
    with path and line number; with `glob` alone return the paths of matching files; with both search only those \
    files. What git ignores, `.git` itself and binary files are left out.";

/// How much of one line may be held in memory.
const LINE_MAX: usize = 16 * 1024 * 1024;

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Args {
    /// What lines are to contain: a regular expression, or a plain text with `literal`.
    pub pattern: Option<String>,
    /// Whether the pattern is plain text.
    pub literal: Option<bool>,
    /// Whether upper and lower case are the same.
    pub ignore_case: Option<bool>,
    /// Which files: `*.rs` by name in any directory, `src/**/*.rs` by path below `path`.
    pub glob: Option<String>,
    /// The directory or file to search, relative to the workspace; the workspace itself when left out.
    pub path: Option<String>,
}

impl Args {
    /// Refuses arguments that search for nothing.
    pub(super) fn checked(self) -> Result<Self, Fault> {
        if self.pattern.is_none() && self.glob.is_none() {
            return Err(Fault::new(FaultKind::BadArguments, "either pattern or glob is needed"));
        }
        self.glob()?;
        self.matcher()?;
        Ok(self)
    }

    fn glob(&self) -> Result<Option<GlobMatcher>, Fault> {
        let Some(glob) = &self.glob else { return Ok(None) };
        let everywhere = if glob.contains('/') { glob.clone() } else { format!("**/{glob}") };
        let built = GlobBuilder::new(everywhere.trim_start_matches("./")).literal_separator(true).build();
        match built {
            Ok(glob) => Ok(Some(glob.compile_matcher())),
            Err(error) => Err(Fault::new(FaultKind::BadArguments, format!("the glob is wrong: {error}"))),
        }
    }

    fn matcher(&self) -> Result<Option<RegexMatcher>, Fault> {
        let Some(pattern) = &self.pattern else { return Ok(None) };
        let mut builder = RegexMatcherBuilder::new();
        builder
            .fixed_strings(self.literal.unwrap_or(false))
            .case_insensitive(self.ignore_case.unwrap_or(false))
            .line_terminator(Some(b'\n'));
        match builder.build(pattern) {
            Ok(matcher) => Ok(Some(matcher)),
            Err(error) => Err(Fault::new(FaultKind::BadArguments, format!("the pattern is wrong: {error}"))),
        }
    }
}

pub(super) fn search(args: &Args, site: &Site) -> Result<String, Fault> {
    let start = Path::new(args.path.as_deref().unwrap_or("."));
    let (glob, matcher) = (args.glob()?, args.matcher()?);
    let alone = match site.ground.folder(start) {
        Ok(_) => None,
        Err(error) => match site.ground.file(start) {
            Ok(_) => Some(start.to_owned()),
            Err(_) => return Err(error.into()),
        },
    };
    let mut hunt = Hunt {
        site,
        items: Items::new(site.limits.hits, site.limits.result_bytes),
        deadline: Instant::now() + site.limits.search,
        late: false,
    };
    match alone {
        Some(path) => drop(hunt.look_at(&path, matcher.as_ref())),
        None => hunt.walk(start, glob.as_ref(), matcher.as_ref()),
    }
    if site.is_stopped() {
        return Err(Fault::new(FaultKind::Cut, "ended with its run"));
    }
    let late = hunt.late;
    let (found, truncated) = hunt.items.finish();
    let key = if matcher.is_some() { "hits" } else { "paths" };
    let mut result = json!({ key: found, "truncated": truncated || late });
    if late {
        result["timeLimit"] = json!(true);
    }
    Ok(result.to_string())
}

/// A search under way.
struct Hunt<'a> {
    site: &'a Site,
    items: Items,
    deadline: Instant,
    late: bool,
}

/// Whether there is a point in looking further.
#[derive(PartialEq, Eq)]
enum Going {
    On,
    Over,
}

impl Hunt<'_> {
    fn walk(&mut self, start: &Path, glob: Option<&GlobMatcher>, matcher: Option<&RegexMatcher>) {
        let root = self.site.ground.path().join(start);
        let mut builder = WalkBuilder::new(&root);
        builder.hidden(false).require_git(false).follow_links(false).sort_by_file_name(Ord::cmp);
        builder.filter_entry(|entry: &DirEntry| entry.file_name() != ".git");
        for entry in builder.build() {
            if self.is_over() {
                return;
            }
            // What cannot be read is not found.
            let Ok(entry) = entry else { continue };
            if !entry.file_type().is_some_and(|kind| kind.is_file()) {
                continue;
            }
            let Ok(below) = entry.path().strip_prefix(&root) else { continue };
            if glob.is_some_and(|glob| !glob.is_match(below)) {
                continue;
            }
            let path = if start == Path::new(".") { below.to_owned() } else { start.join(below) };
            if self.look_at(&path, matcher) == Going::Over {
                return;
            }
        }
    }

    /// Looks at one file.
    fn look_at(&mut self, path: &Path, matcher: Option<&RegexMatcher>) -> Going {
        let Ok(file) = self.site.ground.file(path) else { return Going::On };
        let Some(matcher) = matcher else {
            let added = self.items.push(path.to_string_lossy().into());
            return if added { Going::On } else { Going::Over };
        };
        let mut searcher = SearcherBuilder::new()
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(LINE_MAX))
            .line_number(true)
            .build();
        let armoured = Cell::new(false);
        let file = Watched {
            file: file.take(self.site.limits.scan_bytes),
            site: self.site,
            deadline: self.deadline,
            armoured: &armoured,
            end: Vec::new(),
        };
        let (items, going) = (&mut self.items, Going::On);
        let mut finds = Finds { path, site: self.site, items, going, armoured: &armoured };
        // A file that cannot be read to its end has shown what it had.
        let _rest = searcher.search_reader(matcher, file, &mut finds);
        finds.going
    }

    fn is_over(&mut self) -> bool {
        self.late |= Instant::now() >= self.deadline;
        self.late || self.site.is_stopped()
    }
}

/// A file that is read until its time is over.
struct Watched<'a> {
    file: Take<File>,
    site: &'a Site,
    deadline: Instant,
    /// Whether a private key has come by.
    armoured: &'a Cell<bool>,
    /// The end of what was read before.
    end: Vec<u8>,
}

impl Watched<'_> {
    fn look_for_keys(&mut self, read: &[u8]) {
        let head = read.get(..armour::MARK.len().min(read.len())).unwrap_or_default();
        self.end.extend_from_slice(head);
        let found = |bytes: &[u8]| memchr::memmem::find(bytes, armour::MARK).is_some();
        if found(&self.end) || found(read) {
            self.armoured.set(true);
        }
        if read.len() >= armour::MARK.len() {
            self.end = read[read.len() - armour::MARK.len()..].to_vec();
        }
    }
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.site.is_stopped() || Instant::now() >= self.deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let length = self.file.read(buffer)?;
        if !self.armoured.get() {
            self.look_for_keys(buffer.get(..length).unwrap_or_default());
        }
        Ok(length)
    }
}

/// Takes the lines that are found in one file.
struct Finds<'a> {
    path: &'a Path,
    site: &'a Site,
    items: &'a mut Items,
    going: Going,
    /// Whether a private key has come by: what is read is ahead of what is found.
    armoured: &'a Cell<bool>,
}

impl Finds<'_> {
    /// Returns what stands before a place of the file, as far as a private key may reach.
    fn before(&self, place: u64) -> io::Result<Vec<u8>> {
        let mut file = self.site.ground.file(self.path).map_err(io::Error::other)?;
        let from = place.saturating_sub(armour::REACH as u64);
        file.seek(SeekFrom::Start(from))?;
        let mut before = Vec::new();
        file.take(place - from).read_to_end(&mut before)?;
        Ok(before)
    }
}

impl Sink for Finds<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        let line = String::from_utf8_lossy(found.bytes());
        let line = line.trim_end_matches(['\n', '\r']);
        let before =
            if self.armoured.get() { self.before(found.absolute_byte_offset())? } else { Vec::new() };
        let mut text = armour::safe_after(&before, line, &self.site.safe);
        let cut = floor(&text, self.site.limits.hit_bytes);
        if cut < text.len() {
            text.truncate(cut);
            text.push('…');
        }
        let path: PathBuf = self.path.to_owned();
        let hit = json!({ "path": path.to_string_lossy(), "line": found.line_number(), "text": text });
        let added = self.items.push(hit);
        if !added {
            self.going = Going::Over;
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
        let dir = tree();
        let found = searching(dir.path(), r#"{"pattern":"fn \\w+\\(\\)"}"#, Limits::default());
        assert_eq!(
            found,
            json!({ "hits": [
                { "path": "src/a.rs", "line": 2, "text": "fn one() {" },
                { "path": "src/deep/b.rs", "line": 1, "text": "fn two() {" },
            ], "truncated": false })
        );
        let literal = searching(dir.path(), r#"{"pattern":"one()","literal":true}"#, Limits::default());
        assert_eq!(literal["hits"][0]["path"], "src/a.rs");
        let none = searching(dir.path(), r#"{"pattern":"FN ONE"}"#, Limits::default());
        assert_eq!(none["hits"], json!([]));
        let some = searching(dir.path(), r#"{"pattern":"FN ONE","ignoreCase":true}"#, Limits::default());
        assert_eq!(some["hits"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn files_are_found_by_name_and_by_path() {
        let dir = tree();
        let paths = |args: &str| searching(dir.path(), args, Limits::default())["paths"].clone();
        assert_eq!(paths(r#"{"glob":"*.rs"}"#), json!(["src/a.rs", "src/deep/b.rs"]));
        assert_eq!(paths(r#"{"glob":"src/*.rs"}"#), json!(["src/a.rs"]));
        assert_eq!(paths(r#"{"glob":"*.rs","path":"src/deep"}"#), json!(["src/deep/b.rs"]));
        assert_eq!(paths(r#"{"glob":".*"}"#), json!([".gitignore", ".hidden"]));
        let both = searching(dir.path(), r#"{"pattern":"two","glob":"a.rs"}"#, Limits::default());
        assert_eq!(both["hits"], json!([]));
        let alone = searching(dir.path(), r#"{"pattern":"fn one","path":"src/a.rs"}"#, Limits::default());
        assert_eq!(alone["hits"][0]["line"], 2);
    }

    #[test]
    fn what_git_ignores_and_what_is_binary_is_not_found() {
        let dir = tree();
        let found = searching(dir.path(), r#"{"pattern":"needle"}"#, Limits::default());
        let paths: Vec<_> = found["hits"].as_array().unwrap().iter().map(|hit| &hit["path"]).collect();
        assert_eq!(paths, [".hidden"]);
    }

    #[test]
    fn a_search_is_bounded_in_hits_bytes_and_time() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "needle and more é\n".repeat(50)).unwrap();
        let args = r#"{"pattern":"needle"}"#;
        let few = searching(dir.path(), args, Limits { hits: 3, ..Limits::default() });
        assert_eq!((few["hits"].as_array().unwrap().len(), &few["truncated"]), (3, &json!(true)));
        let small = searching(dir.path(), args, Limits { result_bytes: 200, ..Limits::default() });
        assert_eq!(small["truncated"], true);
        assert!(small.to_string().len() < 260, "{small}");
        let short = searching(dir.path(), args, Limits { hit_bytes: 17, ..Limits::default() });
        assert_eq!(short["hits"][0]["text"], "needle and more …");
        let late = searching(dir.path(), args, Limits { search: Duration::ZERO, ..Limits::default() });
        assert_eq!(late, json!({ "hits": [], "truncated": true, "timeLimit": true }));
    }

    #[test]
    fn a_search_ends_when_nobody_waits_for_it() {
        let dir = tree();
        let site = Site::test(dir.path(), Limits::default());
        site.stop();
        let args: Args = serde_json::from_str(r#"{"pattern":"needle"}"#).unwrap();
        assert_eq!(search(&args, &site).unwrap_err().kind, FaultKind::Cut);
    }

    #[test]
    fn a_search_without_sense_is_refused() {
        for args in ["{}", r#"{"pattern":"("}"#, r#"{"glob":"a["}"#, r#"{"path":"src"}"#] {
            let args: Args = serde_json::from_str(args).unwrap();
            assert_eq!(args.checked().unwrap_err().kind, FaultKind::BadArguments);
        }
        let dir = tree();
        let site = Site::test(dir.path(), Limits::default());
        let kind = |path: &str| {
            let args = json!({ "pattern": "x", "path": path }).to_string();
            search(&serde_json::from_str(&args).unwrap(), &site).unwrap_err().kind
        };
        assert_eq!(kind(".."), FaultKind::OutsideWorkspace);
        assert_eq!(kind("none"), FaultKind::NotFound);
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
        let found = searching(&root, r#"{"pattern":"needle"}"#, Limits::default());
        assert_eq!(found["hits"], json!([]));
        let args: Args = serde_json::from_str(r#"{"pattern":"needle","path":"link"}"#).unwrap();
        let fault = search(&args, &Site::test(&root, Limits::default())).unwrap_err();
        assert_eq!(fault.kind, FaultKind::OutsideWorkspace);
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["src/deep", "target", ".git"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
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

    fn searching(root: &Path, args: &str, limits: Limits) -> Value {
        let args = serde_json::from_str::<Args>(args).unwrap().checked().unwrap();
        serde_json::from_str(&search(&args, &Site::test(root, limits)).unwrap()).unwrap()
    }
}
