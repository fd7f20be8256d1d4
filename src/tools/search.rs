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
use serde_json::json;

use super::armour;
use super::bench::{Items, Site, floor};
use super::fault::{Fault, FaultKind};
use super::ignores::Ignores;
use crate::sandbox::ground::{Folder, Kind};

pub(super) const NAME: &str = "sandbox_search";
pub(super) const DESCRIPTION: &str = "Search the workspace. With `pattern`, a regular expression, return matching lines \
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
pub struct Args {
    /// The text to search for in lines: a regular expression, or plain text with `literal`.
    pub pattern: Option<String>,
    /// True if the pattern is plain text.
    pub literal: Option<bool>,
    /// True to ignore case.
    pub ignore_case: Option<bool>,
    /// Which files: `*.rs` by name in any directory, `src/**/*.rs` by path below `path`.
    pub glob: Option<String>,
    /// The directory or file to search, relative to the workspace; the workspace itself when left out.
    pub path: Option<String>,
}

impl Args {
    /// Refuses arguments without a pattern or glob, and invalid ones.
    pub(super) fn checked(self) -> Result<Self, Fault> {
        if self.pattern.is_none() && self.glob.is_none() {
            return Err(Fault::new(FaultKind::BadArguments, "pattern or glob is required"));
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
            Err(error) => Err(Fault::new(FaultKind::BadArguments, format!("invalid glob: {error}"))),
        }
    }

    fn matcher(&self) -> Result<Option<RegexMatcher>, Fault> {
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
            Err(error) => Err(Fault::new(FaultKind::BadArguments, format!("invalid pattern: {error}"))),
        }
    }
}

pub(super) fn search(args: &Args, site: &Site) -> Result<String, Fault> {
    let start = Path::new(args.path.as_deref().unwrap_or("."));
    let (glob, matcher) = (args.glob()?, args.matcher()?);
    let mut hunt = Hunt {
        site,
        items: Items::new(site.limits.hits, site.limits.result_bytes),
        ignores: Ignores::new(site.limits.ignores),
        deadline: Instant::now() + site.limits.search,
        late: false,
    };
    match site.ground.folder(start) {
        Ok(folder) => drop(hunt.search(&folder, start, glob.as_ref(), matcher.as_ref())),
        Err(error) => match site.ground.file(start) {
            Ok(file) => drop(hunt.look_at(start, file, matcher.as_ref())),
            Err(_) => return Err(error.into()),
        },
    }
    if site.is_stopped() {
        return Err(Fault::new(FaultKind::Cut, "ended with its run"));
    }
    let late = hunt.late;
    let notes = hunt.ignores.into_notes();
    let (found, truncated) = hunt.items.finish();
    let key = if matcher.is_some() { "hits" } else { "paths" };
    let mut result = json!({ key: found, "truncated": truncated || late });
    if late {
        result["timeLimit"] = json!(true);
    }
    if !notes.is_empty() {
        result["notes"] = json!(notes);
    }
    Ok(result.to_string())
}

/// A search in progress.
struct Hunt<'a> {
    site: &'a Site,
    items: Items,
    ignores: Ignores,
    deadline: Instant,
    late: bool,
}

/// What to search for.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    /// The start of the search, as requested.
    start: &'a Path,
    glob: Option<&'a GlobMatcher>,
    matcher: Option<&'a RegexMatcher>,
}

/// Whether the search continues.
#[derive(PartialEq, Eq)]
enum Going {
    On,
    Over,
}

impl Hunt<'_> {
    /// Searches a directory and everything below it.
    fn search(
        &mut self,
        folder: &Folder,
        start: &Path,
        glob: Option<&GlobMatcher>,
        matcher: Option<&RegexMatcher>,
    ) -> Going {
        let root = self.site.ground.path();
        if let Some((home, config_home)) = self.site.homes() {
            self.ignores.add_users(&home, &config_home, root);
        }
        self.ignores.add_above(root);
        // Ignore files of parent directories apply too.
        let start_inside = normalized(&self.site.ground.seen(start));
        let above: Vec<&Path> = start_inside.ancestors().skip(1).collect();
        for outer in above.into_iter().rev() {
            let Ok(outer_folder) = self.site.ground.folder(outer) else { continue };
            let entries = outer_folder.entries(NAMES_MAX).map(|(entries, _)| entries).unwrap_or_default();
            self.ignores.enter(&outer_folder, &entries, &self.absolute(outer));
        }
        self.walk(folder, Path::new(""), 0, Wanted { start, glob, matcher })
    }

    /// Searches a directory in the order of names; `below` is its path relative to the start.
    fn walk(&mut self, folder: &Folder, below: &Path, depth: usize, wanted: Wanted<'_>) -> Going {
        if self.is_over() {
            return Going::Over;
        }
        // A directory that cannot be read is skipped.
        let Ok((mut entries, more)) = folder.entries(NAMES_MAX) else { return Going::On };
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let place = self.absolute(&wanted.start.join(below));
        if more {
            self.ignores.note(format!("{}: only {NAMES_MAX} of its entries were searched", place.display()));
        }
        let before = self.ignores.enter(folder, &entries, &place);
        let mut going = Going::On;
        for entry in &entries {
            if self.is_over() {
                going = Going::Over;
                break;
            }
            if entry.name == ".git"
                || self.ignores.ignores(&place.join(&entry.name), entry.kind == Kind::Directory)
            {
                continue;
            }
            going = match entry.kind {
                Kind::Directory => self.descend(folder, &entry.name, &below.join(&entry.name), depth, wanted),
                Kind::File => self.file(folder, &entry.name, &below.join(&entry.name), wanted),
                Kind::Link | Kind::Other => Going::On,
            };
            if going == Going::Over {
                break;
            }
        }
        self.ignores.leave(&before);
        going
    }

    fn descend(
        &mut self,
        folder: &Folder,
        name: &OsStr,
        below: &Path,
        depth: usize,
        wanted: Wanted<'_>,
    ) -> Going {
        if depth == DEPTH_MAX {
            self.ignores.note(format!("{}: deeper directories were not searched", below.display()));
            return Going::On;
        }
        match folder.folder(name) {
            Ok(inner) => self.walk(&inner, below, depth + 1, wanted),
            Err(_) => Going::On,
        }
    }

    fn file(&mut self, folder: &Folder, name: &OsStr, below: &Path, wanted: Wanted<'_>) -> Going {
        if wanted.glob.is_some_and(|glob| !glob.is_match(below)) {
            return Going::On;
        }
        let Ok(file) = folder.file(name) else { return Going::On };
        let path = if wanted.start == Path::new(".") { below.to_owned() } else { wanted.start.join(below) };
        self.look_at(&path, file, wanted.matcher)
    }

    /// Searches one file.
    fn look_at(&mut self, path: &Path, file: File, matcher: Option<&RegexMatcher>) -> Going {
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
        // A file that cannot be read completely contributes the matches so far.
        let _rest = searcher.search_reader(matcher, file, &mut finds);
        finds.going
    }

    /// The absolute path of a directory of the workspace, without `.` components.
    fn absolute(&self, path: &Path) -> PathBuf {
        let ground = &self.site.ground;
        ground.path().join(ground.seen(path)).components().collect()
    }

    fn is_over(&mut self) -> bool {
        self.late |= Instant::now() >= self.deadline;
        self.late || self.site.is_stopped()
    }
}

/// Returns a path without `.` components, and without `..` where it follows a name.
fn normalized(path: &Path) -> PathBuf {
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
struct Watched<'a> {
    file: Take<File>,
    site: &'a Site,
    deadline: Instant,
    /// Whether the header of a private key was read.
    armoured: &'a Cell<bool>,
    /// The end of the bytes that were read before.
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

/// Collects the matching lines of one file.
struct Finds<'a> {
    path: &'a Path,
    site: &'a Site,
    items: &'a mut Items,
    going: Going,
    /// Whether the header of a private key was read: the reader is ahead of the matches.
    armoured: &'a Cell<bool>,
}

impl Finds<'_> {
    /// Returns the text before an offset of the file, as far as a private key may reach.
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
    fn a_tree_deeper_than_any_path_is_searched_as_far_as_is_sensible() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("near"), "needle\n").unwrap();
        let mut deep = dir.path().to_owned();
        while deep.as_os_str().len() < 3_900 {
            deep.push("d");
        }
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("far"), "needle\n").unwrap();
        let found = searching(dir.path(), r#"{"pattern":"needle"}"#, Limits::default());
        assert_eq!(found["hits"].as_array().unwrap().len(), 1, "{found}");
        assert_eq!(found["hits"][0]["path"], "near");
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

    #[cfg(unix)]
    #[test]
    fn what_is_no_regular_file_is_neither_waited_for_nor_silently_left_out() {
        use nix::sys::stat::Mode;
        use nix::unistd::mkfifo;

        let dir = tree();
        fs::remove_file(dir.path().join(".gitignore")).unwrap();
        for fifo in [".gitignore", ".ignore", "src/.gitignore", "src/pipe"] {
            mkfifo(&dir.path().join(fifo), Mode::S_IRWXU).unwrap();
        }
        fs::create_dir_all(dir.path().join(".git/info")).unwrap();
        mkfifo(&dir.path().join(".git/info/exclude"), Mode::S_IRWXU).unwrap();
        let found = searching(dir.path(), r#"{"pattern":"fn one"}"#, Limits::default());
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

        let dir = tree();
        fs::remove_file(dir.path().join(".gitignore")).unwrap();
        mkfifo(&dir.path().join(".gitignore"), Mode::S_IRWXU).unwrap();
        for path in
            [None, Some("."), Some("./"), Some("./src"), Some("src/."), Some("src"), Some("src/../src")]
        {
            let args = json!({ "pattern": "fn", "path": path }).to_string();
            let found = searching(dir.path(), &args, Limits::default());
            assert_eq!(found["notes"].as_array().unwrap().len(), 1, "{path:?}: {found}");
        }
        // Patterns that were counted twice would exceed the total limit.
        fs::remove_file(dir.path().join(".gitignore")).unwrap();
        fs::write(dir.path().join(".gitignore"), "target\nbinary\n").unwrap();
        let mut limits = Limits::default();
        limits.ignores.all_patterns = 3;
        let found = searching(dir.path(), r#"{"pattern":"fn"}"#, limits);
        assert_eq!(found["notes"], Value::Null, "{found}");
    }

    #[test]
    fn a_huge_list_of_what_is_ignored_is_used_up_to_its_bound_and_that_is_said() {
        let dir = tree();
        let mut patterns = String::from("target\n");
        for number in 0..200_000 {
            patterns.push_str(&format!("*a{number}*[b-z]?\n"));
        }
        assert!(patterns.len() > 3_000_000);
        fs::write(dir.path().join(".gitignore"), &patterns).unwrap();
        let found = searching(dir.path(), r#"{"pattern":"needle"}"#, Limits::default());
        assert_eq!(found["hits"].as_array().unwrap().len(), 1, "{found}");
        assert!(found["notes"][0].as_str().unwrap().contains("patterns are used"), "{found}");
    }

    #[test]
    fn what_is_ignored_above_and_below_the_place_of_a_search_holds() {
        let dir = tempfile::tempdir().unwrap();
        for folder in [".git", "work/src/deep", "work/inner/.git"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
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
            let found = searching(&dir.path().join("work").canonicalize().unwrap(), args, Limits::default());
            let hits = found["hits"].as_array().unwrap().clone();
            hits.iter().map(|hit| hit["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        // A nested repository has its own rules.
        let all = ["inner/y.log", "src/deep/here", "src/kept.log"];
        assert_eq!(paths(r#"{"pattern":"needle"}"#), all);
        assert_eq!(paths(r#"{"pattern":"needle","path":"src"}"#), all[1..]);
        assert_eq!(paths(r#"{"pattern":"needle","path":"src/deep"}"#), all[1..2]);
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
