//! Unified diffs: parsing, and applying to texts. Pure.
//!
//! Strict where an error would do harm: a hunk must have the number of lines it declares, and every line of its
//! context must match. Lenient about line numbers: a hunk also applies elsewhere if its lines match at exactly one
//! position.

use super::error::{ToolError, ToolErrorKind};

/// A diff of one or several files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Patch {
    /// The files, in order, without duplicates.
    pub(super) files: Vec<FilePatch>,
}

/// The diff of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FilePatch {
    pub(super) path: String,
    pub(super) change: Change,
    hunks: Vec<Hunk>,
}

/// The kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Created,
    Modified,
    Deleted,
}

/// A hunk: the old and the new lines, each with its line end.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hunk {
    /// The line number in its header, counted from 0.
    at: usize,
    old: Vec<String>,
    new: Vec<String>,
}

fn bad_arguments(message: String) -> ToolError {
    ToolError::new(ToolErrorKind::BadArguments, message)
}

impl Patch {
    /// Parses a unified diff.
    pub(super) fn parse(text: &str) -> Result<Self, ToolError> {
        let mut lines = text.split_inclusive('\n').enumerate().peekable();
        let mut files: Vec<FilePatch> = Vec::new();
        while let Some((number, line)) = lines.next() {
            if let Some(old) = line.strip_prefix("--- ") {
                let new = lines.next().and_then(|(_, line)| line.strip_prefix("+++ "));
                let Some(new) = new else {
                    return Err(bad_arguments(format!("line {}: no +++ line follows", number + 1)));
                };
                let file = FilePatch::from_names(old, new)?;
                if files.iter().any(|other| other.path == file.path) {
                    return Err(bad_arguments(format!("{} is in the patch twice", file.path)));
                }
                files.push(file);
            } else if line.starts_with("@@ ") {
                let Some(file) = files.last_mut() else {
                    return Err(bad_arguments(format!("line {}: a hunk before any file", number + 1)));
                };
                file.hunks.push(parse_hunk(number, line, &mut lines)?);
            } else if line.starts_with("rename ") || line.starts_with("GIT binary patch") {
                return Err(bad_arguments(format!("line {}: renames and binary files are not supported", number + 1)));
            }
        }
        match files.iter().find(|file| file.hunks.is_empty()) {
            Some(file) => Err(bad_arguments(format!("the patch changes nothing in {}", file.path))),
            None if files.is_empty() => Err(bad_arguments("the patch names no file (--- and +++ lines)".to_owned())),
            None => Ok(Self { files }),
        }
    }
}

impl FilePatch {
    fn from_names(old: &str, new: &str) -> Result<Self, ToolError> {
        // A timestamp follows the tab.
        let name = |line: &str| line.trim_end().split('\t').next().unwrap_or_default().to_owned();
        let (old, new) = (name(old), name(new));
        let without = |name: &str, prefix: &str| name.strip_prefix(prefix).unwrap_or(name).to_owned();
        let (path, change) = match (old.as_str(), new.as_str()) {
            ("/dev/null", "/dev/null") => {
                return Err(bad_arguments("the patch has a file without a name".to_owned()));
            }
            ("/dev/null", new) => (without(new, "b/"), Change::Created),
            (old, "/dev/null") => (without(old, "a/"), Change::Deleted),
            (old, new) if old == new => (new.to_owned(), Change::Modified),
            (old, new) if without(old, "a/") == without(new, "b/") => (without(new, "b/"), Change::Modified),
            (old, new) => {
                return Err(bad_arguments(format!("{old} is another file than {new}: renames are not supported")));
            }
        };
        if path.is_empty() {
            return Err(bad_arguments("the patch has a file without a name".to_owned()));
        }
        Ok(Self { path, change, hunks: Vec::new() })
    }

    /// Applies the diff to the text of the file, which is empty for a new file.
    pub(super) fn apply(&self, text: &str) -> Result<String, ToolError> {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let mut result = String::with_capacity(text.len());
        let mut done = 0;
        for (index, hunk) in self.hunks.iter().enumerate() {
            let at = hunk.locate(&lines, done).map_err(|error| ToolError {
                message: format!("{}: hunk {} {}", self.path, index + 1, error.message),
                ..error
            })?;
            result.extend(lines[done..at].iter().copied());
            result.extend(hunk.new.iter().map(String::as_str));
            done = at + hunk.old.len();
        }
        result.extend(lines[done..].iter().copied());
        Ok(result)
    }
}

impl Hunk {
    /// Finds the position of the hunk, at or after the line `from`.
    fn locate(&self, lines: &[&str], from: usize) -> Result<usize, ToolError> {
        let matches =
            |at: usize| lines.get(at..at + self.old.len()).is_some_and(|found| found.iter().eq(self.old.iter()));
        if self.old.is_empty() {
            // Without old lines only the line number gives the position.
            return match self.at {
                at if (from..=lines.len()).contains(&at) => Ok(at),
                _ => Err(ToolError::new(ToolErrorKind::NoMatch, "has no context, and its line number does not exist")),
            };
        }
        if self.at >= from && matches(self.at) {
            return Ok(self.at);
        }
        let mut positions = (from..lines.len()).filter(|at| matches(*at));
        match (positions.next(), positions.count()) {
            (Some(at), 0) => Ok(at),
            (Some(_), more) => {
                let message = format!("matches at {} places, but not at its line number", more + 1);
                Err(ToolError::new(ToolErrorKind::Ambiguous, message))
            }
            (None, _) => {
                let expected: String = self.old.concat();
                Err(ToolError::new(ToolErrorKind::NoMatch, "does not match: its lines are not in the file")
                    .with_detail(expected))
            }
        }
    }
}

/// Parses a hunk, whose header was read already.
fn parse_hunk<'a>(
    number: usize,
    head: &str,
    lines: &mut std::iter::Peekable<impl Iterator<Item = (usize, &'a str)>>,
) -> Result<Hunk, ToolError> {
    let Some(Ranges { at, mut old, mut new }) = Ranges::parse(head) else {
        return Err(bad_arguments(format!("line {}: invalid hunk header: {}", number + 1, head.trim_end())));
    };
    let mut hunk = Hunk { at, old: Vec::new(), new: Vec::new() };
    let mut last = Side::Both;
    while old > 0 || new > 0 {
        let Some((_, line)) = lines.next() else {
            let missing = format!("line {}: the hunk ends too early", number + 1);
            return Err(bad_arguments(format!("{missing}: {old} old and {new} new lines are missing")));
        };
        last = hunk.push_line(line);
        let (olds, news) = last.counts();
        match (old.checked_sub(olds), new.checked_sub(news)) {
            (Some(less_old), Some(less_new)) if last != Side::Neither => (old, new) = (less_old, less_new),
            _ => {
                let message = format!("line {}: the hunk does not have the lines that its header declares", number + 1);
                return Err(bad_arguments(format!("{message}: {}", line.trim_end())));
            }
        }
        if lines.peek().is_some_and(|(_, line)| line.starts_with("\\ ")) {
            lines.next();
            hunk.strip_line_end(last);
        }
    }
    // The last line of the patch may lack its line end; only a `\` line means that the file has none.
    if let Some((_, line)) = lines.peek()
        && line.starts_with(['+', '-'])
        && !line.starts_with("--- ")
        && last != Side::Neither
    {
        return Err(bad_arguments(format!("line {}: the hunk has more lines than its header declares", number + 1)));
    }
    Ok(hunk)
}

/// The side that a line of a hunk belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Old,
    New,
    Both,
    Neither,
}

impl Side {
    const fn counts(self) -> (usize, usize) {
        match self {
            Self::Old => (1, 0),
            Self::New => (0, 1),
            Self::Both => (1, 1),
            Self::Neither => (0, 0),
        }
    }
}

impl Hunk {
    fn push_line(&mut self, line: &str) -> Side {
        let ended = |text: &str| if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") };
        match line.split_at_checked(1) {
            Some(("-", text)) => {
                self.old.push(ended(text));
                Side::Old
            }
            Some(("+", text)) => {
                self.new.push(ended(text));
                Side::New
            }
            Some((" ", text)) => {
                self.old.push(ended(text));
                self.new.push(ended(text));
                Side::Both
            }
            // An empty context line often loses its leading space.
            Some(("\n", _)) | Some(("\r", "\n")) => {
                self.old.push(line.to_owned());
                self.new.push(line.to_owned());
                Side::Both
            }
            Some(_) | None => Side::Neither,
        }
    }

    fn strip_line_end(&mut self, side: Side) {
        let (olds, news) = side.counts();
        for (lines, count) in [(&mut self.old, olds), (&mut self.new, news)] {
            if let Some(line) = lines.last_mut().filter(|_| count > 0) {
                line.pop();
            }
        }
    }
}

/// The line numbers in a hunk header.
struct Ranges {
    at: usize,
    old: usize,
    new: usize,
}

impl Ranges {
    /// Parses `@@ -3,4 +3,5 @@ anything`.
    fn parse(head: &str) -> Option<Self> {
        let (ranges, _) = head.strip_prefix("@@ -")?.split_once(" @@")?;
        let (old, new) = ranges.split_once(" +")?;
        let range = |text: &str| -> Option<(usize, usize)> {
            match text.split_once(',') {
                Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
                None => Some((text.parse().ok()?, 1)),
            }
        };
        let ((start, old), (_, new)) = (range(old)?, range(new)?);
        // Without old lines the number is that of the preceding line.
        Some(Self { at: if old == 0 { start } else { start.checked_sub(1)? }, old, new })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "one\ntwo\nthree\nfour\nfive\n";

    #[test]
    fn a_hunk_is_applied_at_its_line_numbers() {
        let patch = "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n@@ -5 +5,2 @@\n five\n+six\n";
        assert_eq!(apply_first(patch, TEXT).unwrap(), "one\nTWO\nthree\nfour\nfive\nsix\n");
    }

    #[test]
    fn a_hunk_with_wrong_line_numbers_is_applied_where_it_matches_once() {
        let patch = "--- f\n+++ f\n@@ -40,2 +40,2 @@\n-two\n+TWO\n three\n";
        assert_eq!(apply_first(patch, TEXT).unwrap(), "one\nTWO\nthree\nfour\nfive\n");
        let twice = apply_first(patch, "two\nthree\ntwo\nthree\n").unwrap_err();
        assert_eq!(twice.kind, ToolErrorKind::Ambiguous);
        assert!(twice.message.contains("2 places"), "{}", twice.message);
        let exact = "--- f\n+++ f\n@@ -3,2 +3,2 @@\n-two\n+TWO\n three\n";
        assert_eq!(apply_first(exact, "two\nthree\ntwo\nthree\n").unwrap(), "two\nthree\nTWO\nthree\n");
    }

    #[test]
    fn a_context_that_does_not_match_is_refused() {
        let patch = "--- f\n+++ f\n@@ -1,2 +1,2 @@\n one\n-2\n+TWO\n";
        let error = apply_first(patch, TEXT).unwrap_err();
        assert_eq!((error.kind, error.detail.as_deref()), (ToolErrorKind::NoMatch, Some("one\n2\n")));
        let backwards = "--- f\n+++ f\n@@ -4 +4 @@\n-four\n+4\n@@ -2 +2 @@\n-two\n+2\n";
        assert_eq!(apply_first(backwards, TEXT).unwrap_err().kind, ToolErrorKind::NoMatch);
    }

    #[test]
    fn files_are_created_and_deleted() {
        let created = Patch::parse("--- /dev/null\n+++ b/dir/new\n@@ -0,0 +1,2 @@\n+a\n+b\n").unwrap();
        assert_eq!((created.files[0].path.as_str(), created.files[0].change), ("dir/new", Change::Created));
        assert_eq!(created.files[0].apply("").unwrap(), "a\nb\n");
        let deleted = Patch::parse("--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n").unwrap();
        assert_eq!((deleted.files[0].path.as_str(), deleted.files[0].change), ("old", Change::Deleted));
        assert_eq!(deleted.files[0].apply("a\n").unwrap(), "");
    }

    #[test]
    fn a_missing_line_end_is_kept_and_made() {
        let remove = "--- f\n+++ f\n@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n";
        assert_eq!(apply_first(remove, "a\n").unwrap(), "a");
        let add = "--- f\n+++ f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n";
        assert_eq!(apply_first(add, "a").unwrap(), "a\n");
        assert_eq!(apply_first(add, "a\n").unwrap_err().kind, ToolErrorKind::NoMatch);
        let lost_blank = "--- f\n+++ f\n@@ -1,3 +1,3 @@\n a\n\n-b\n+c";
        assert_eq!(apply_first(lost_blank, "a\n\nb\n").unwrap(), "a\n\nc\n");
    }

    #[test]
    fn git_headers_around_a_diff_are_skipped() {
        let patch = "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\t2026-01-01\n+++ b/f\t2026-01-01\n\
            @@ -1 +1 @@ fn main\n-one\n+ONE\ndiff --git a/g b/g\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-x\n+y\n";
        let patch = Patch::parse(patch).unwrap();
        let paths: Vec<_> = patch.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["f", "g"]);
    }

    #[test]
    fn malformed_patches_are_refused() {
        for (patch, word) in [
            ("", "names no file"),
            ("hello", "names no file"),
            ("@@ -1 +1 @@\n-a\n+b\n", "before any file"),
            ("--- a/f\nx", "no +++"),
            ("--- a/f\n+++ b/f\n", "changes nothing"),
            ("--- a/f\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n", "renames"),
            ("--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n-a\n+b\n", "ends too early"),
            ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n-b\n", "does not have the lines"),
            ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n+c\n", "more lines"),
            ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n*b\n", "does not have the lines"),
            ("--- a/f\n+++ b/f\n@@ one @@\n-a\n+b\n", "invalid hunk"),
            ("--- f\n+++ f\n@@ -1 +1 @@\n-a\n+b\n--- f\n+++ f\n@@ -1 +1 @@\n-a\n+b\n", "twice"),
        ] {
            let error = Patch::parse(patch).unwrap_err();
            assert!(error.message.contains(word), "{patch:?}: {}", error.message);
        }
    }

    fn apply_first(patch: &str, text: &str) -> Result<String, ToolError> {
        Patch::parse(patch)?.files[0].apply(text)
    }
}
