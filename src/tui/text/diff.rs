//! Renders unified diffs, also those of git.
//!
//! Every line is shown with its `+`, `-` or space, so that no meaning depends on colour. Lines of hunks get their line
//! number: that of the old file for removed lines, that of the new file for others.

use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;

use super::theme::Theme;

/// Renders a diff, one row for each line; the rows are not wrapped.
///
/// If there are more than `max_lines` lines, the last row says how many more there are.
pub(crate) fn render(diff: &str, theme: &Theme, max_lines: Option<usize>) -> Vec<Line<'static>> {
    let total = diff.lines().count();
    let shown = max_lines.unwrap_or(usize::MAX).min(total);
    let lines: Vec<DiffLine<'_>> = classify(diff.lines().take(shown));
    let digits = lines.iter().filter_map(|line| line.number).max().map_or(0, |number| number.to_string().len());
    let gutter = if digits > MAX_DIGITS { 0 } else { digits };
    let mut rows = Vec::with_capacity(shown + 1);
    let mut at = 0;
    while let Some(rest) = lines.get(at..).filter(|rest| !rest.is_empty()) {
        let (removed, added) = replacement(rest);
        if removed > 0 && removed == added {
            let (old, new) = rest.split_at(removed);
            let emphasis: Vec<_> = old.iter().zip(new).map(|(old, new)| changed_parts(old.text, new.text)).collect();
            rows.extend(old.iter().zip(&emphasis).map(|(line, parts)| line.row(gutter, Some(parts.0), theme)));
            rows.extend(new.iter().zip(&emphasis).map(|(line, parts)| line.row(gutter, Some(parts.1), theme)));
            at += removed + added;
        } else {
            let count = (removed + added).max(1);
            rows.extend(rest.iter().take(count).map(|line| line.row(gutter, None, theme)));
            at += count;
        }
    }
    if total > shown {
        let plural = if total - shown == 1 { "line" } else { "lines" };
        rows.push(Line::styled(format!("… {} more {plural}", total - shown), theme.faint));
    }
    rows
}

/// Line numbers with more digits are left out.
const MAX_DIGITS: usize = 6;

/// What a line of a diff is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineKind {
    /// `--- a/file`, `+++ b/file` and `diff --git`.
    FileHeader,
    /// `@@ -1,2 +1,2 @@`.
    HunkHeader,
    Added,
    Removed,
    Context,
    /// Anything else: modes, renames, `\ No newline at end of file`.
    Note,
}

/// A line of a diff.
#[derive(Debug)]
struct DiffLine<'a> {
    kind: LineKind,
    text: &'a str,
    number: Option<u64>,
}

/// The bytes of a line that differ from its counterpart: from, to.
type ChangedPart = (usize, usize);

impl DiffLine<'_> {
    fn row(&self, gutter: usize, changed: Option<ChangedPart>, theme: &Theme) -> Line<'static> {
        let style = match self.kind {
            LineKind::FileHeader => theme.strong,
            LineKind::HunkHeader => theme.hunk,
            LineKind::Added => theme.added,
            LineKind::Removed => theme.removed,
            LineKind::Context => theme.context,
            LineKind::Note => theme.faint,
        };
        let mut spans = Vec::new();
        match self.number {
            _ if gutter == 0 => {}
            Some(number) => spans.push(Span::styled(format!("{number:>gutter$} "), theme.faint)),
            None if self.kind == LineKind::FileHeader => {}
            None => spans.push(Span::raw(" ".repeat(gutter + 1))),
        }
        let parts = changed
            .and_then(|(from, to)| Some([self.text.get(..from)?, self.text.get(from..to)?, self.text.get(to..)?]));
        let [before, changed, after] = parts.unwrap_or([self.text, "", ""]);
        let emphasis = style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        for (part, style) in [(before, style), (changed, emphasis), (after, style)] {
            if !part.is_empty() {
                spans.push(Span::styled(part.to_owned(), style));
            }
        }
        Line::from(spans)
    }
}

/// Positions in the current hunk.
#[derive(Debug, Default)]
struct HunkPosition {
    old: u64,
    new: u64,
    /// Lines of the hunk that are still to come.
    old_left: u64,
    new_left: u64,
}

fn classify<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<DiffLine<'a>> {
    let mut hunk = HunkPosition::default();
    lines
        .map(|text| {
            let (kind, number) = hunk.classify(text);
            DiffLine { kind, text, number }
        })
        .collect()
}

impl HunkPosition {
    /// Returns what the next line is, and its number.
    fn classify(&mut self, line: &str) -> (LineKind, Option<u64>) {
        let inside = self.old_left > 0 || self.new_left > 0;
        match line.as_bytes().first() {
            Some(b'+') if inside => (LineKind::Added, Some(self.advance(Side::New))),
            Some(b'-') if inside => (LineKind::Removed, Some(self.advance(Side::Old))),
            Some(b' ') | None if inside => {
                self.advance(Side::Old);
                (LineKind::Context, Some(self.advance(Side::New)))
            }
            _ => (self.classify_outside(line), None),
        }
    }

    /// Returns what a line is that belongs to no hunk with known length.
    fn classify_outside(&mut self, line: &str) -> LineKind {
        if line.starts_with("@@") {
            *self = parse_hunk(line).unwrap_or_default();
            LineKind::HunkHeader
        } else if ["--- ", "+++ ", "diff "].iter().any(|start| line.starts_with(start)) {
            *self = Self::default();
            LineKind::FileHeader
        } else {
            match line.as_bytes().first() {
                Some(b'+') => LineKind::Added,
                Some(b'-') => LineKind::Removed,
                Some(b' ') | None => LineKind::Context,
                Some(_) => LineKind::Note,
            }
        }
    }

    /// Counts a line and returns its number.
    fn advance(&mut self, side: Side) -> u64 {
        let (next, left) = match side {
            Side::Old => (&mut self.old, &mut self.old_left),
            Side::New => (&mut self.new, &mut self.new_left),
        };
        let number = *next;
        *next = next.saturating_add(1);
        *left = left.saturating_sub(1);
        number
    }
}

/// The two files of a diff.
#[derive(Debug, Clone, Copy)]
enum Side {
    Old,
    New,
}

/// Parses `@@ -1,2 +3,4 @@`.
fn parse_hunk(line: &str) -> Option<HunkPosition> {
    let ranges = line.strip_prefix("@@ -")?;
    let (old, rest) = ranges.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let range = |text: &str| match text.split_once(',') {
        Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
        None => Some((text.parse().ok()?, 1)),
    };
    let ((old, old_left), (new, new_left)) = (range(old)?, range(new)?);
    Some(HunkPosition { old, new, old_left, new_left })
}

/// Counts the removed lines at the beginning, and the added lines that follow them.
fn replacement(lines: &[DiffLine<'_>]) -> (usize, usize) {
    let removed = lines.iter().take_while(|line| line.kind == LineKind::Removed).count();
    let added = lines.iter().skip(removed).take_while(|line| line.kind == LineKind::Added).count();
    (removed, added)
}

/// Finds what differs between two lines: what is left without the words they begin and end with in common.
///
/// Lines that have little in common are not divided: their whole content is the change, and no part is emphasized.
fn changed_parts(old: &str, new: &str) -> (ChangedPart, ChangedPart) {
    let (old_words, new_words) = (words(old), words(new));
    let same = |(old, new): &(&&str, &&str)| old == new;
    let content = |words: &[&str]| words.iter().map(|word| word.len()).sum::<usize>();
    let old_body = old_words.get(1..).unwrap_or_default();
    let new_body = new_words.get(1..).unwrap_or_default();
    let first = old_body.iter().zip(new_body).take_while(same).count();
    let (old_body, new_body) = (old_body.get(first..).unwrap_or_default(), new_body.get(first..).unwrap_or_default());
    let last = old_body.iter().rev().zip(new_body.iter().rev()).take_while(same).count();
    let part = |line: &str, body: &[&str]| {
        let after = content(body.get(body.len().saturating_sub(last)..).unwrap_or_default());
        let from = line.len() - content(body);
        (from, line.len() - after)
    };
    let (old_part, new_part) = (part(old, old_body), part(new, new_body));
    let common = old.len() - (old_part.1 - old_part.0);
    if common * 3 < old.len().max(new.len()) {
        ((old.len(), old.len()), (new.len(), new.len()))
    } else {
        (old_part, new_part)
    }
}

/// Divides a line into its sign, words, spaces and symbols.
fn words(line: &str) -> Vec<&str> {
    let Some((sign, body)) = line.split_at_checked(1) else { return vec![line] };
    std::iter::once(sign).chain(body.split_word_bounds()).collect()
}

#[cfg(test)]
mod tests {
    use ratatui::style::Style;

    use super::super::test_text::{plain, random_text};
    use super::*;
    use crate::random::Random;

    const THEME: Theme = Theme::dark();
    const DIFF: &str = "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n@@ -8,3 +8,4 @@ fn x()\n same\n-old line\n\
        +new line\n+more\n last\n\\ No newline at end of file\n";

    #[test]
    fn hunks_have_line_numbers_and_signs() {
        let expected = [
            "diff --git a/f b/f",
            "   index 1..2 100644",
            "--- a/f",
            "+++ b/f",
            "   @@ -8,3 +8,4 @@ fn x()",
            " 8  same",
            " 9 -old line",
            " 9 +new line",
            "10 +more",
            "11  last",
            "   \\ No newline at end of file",
        ];
        assert_eq!(plain(&render(DIFF, &THEME, None)), expected);
    }

    #[test]
    fn lines_have_the_style_of_their_kind() {
        let rows = render(DIFF, &THEME, None);
        let style = |row: usize| rows[row].spans.last().unwrap().style;
        assert_eq!([style(2), style(4), style(5)], [THEME.strong, THEME.hunk, THEME.context]);
        assert_eq!([style(6), style(8), style(10)], [THEME.removed, THEME.added, THEME.faint]);
    }

    #[test]
    fn changed_lines_that_look_like_file_headers_are_content() {
        let rows = render("--- a\n+++ b\n@@ -1,2 +1,2 @@\n--- x\n+++ y\n-- z\n++ w\n", &THEME, None);
        let kinds: Vec<Style> = rows[3..].iter().map(|row| row.spans.last().unwrap().style).collect();
        assert_eq!(kinds, [THEME.removed, THEME.added, THEME.removed, THEME.added]);
    }

    #[test]
    fn changed_words_are_emphasized() {
        let rows = render("@@ -1 +1 @@\n-let a = one(x);\n+let a = two(x);\n", &THEME, None);
        let emphasized = |row: &Line<'_>| {
            let strong = row.spans.iter().filter(|span| span.style.add_modifier.contains(Modifier::UNDERLINED));
            strong.map(|span| span.content.to_string()).collect::<String>()
        };
        assert_eq!((emphasized(&rows[1]), emphasized(&rows[2])), ("one".to_owned(), "two".to_owned()));
        let rows = render("@@ -1 +1 @@\n-completely different\n+nothing alike here\n", &THEME, None);
        assert_eq!(emphasized(&rows[1]), "");
    }

    #[test]
    fn a_cut_diff_says_how_much_is_missing() {
        assert_eq!(plain(&render("+a\n+b\n+c", &THEME, Some(1))), ["+a", "… 2 more lines"]);
        assert_eq!(plain(&render("+a\n+b", &THEME, Some(1))), ["+a", "… 1 more line"]);
        assert_eq!(plain(&render("+a\n+b", &THEME, Some(2))), ["+a", "+b"]);
        assert_eq!(plain(&render("+a", &THEME, Some(0))), ["… 1 more line"]);
        assert!(render("", &THEME, Some(0)).is_empty());
    }

    #[test]
    fn very_large_line_numbers_are_left_out() {
        assert_eq!(plain(&render("@@ -1 +1234567 @@\n+a\n", &THEME, None)), ["@@ -1 +1234567 @@", "+a"]);
        let huge = format!("@@ -{0},{0} +{0},{0} @@\n-a\n+b\n", u64::MAX);
        assert_eq!(plain(&render(&huge, &THEME, None)).last().unwrap(), "+b");
    }

    #[test]
    fn every_line_is_shown_for_any_input() {
        let mut random = Random::new(23);
        for round in 0..1000 {
            let text = random_text(&mut random, 20);
            let rows = plain(&render(&text, &THEME, None));
            assert_eq!(rows.len(), text.lines().count(), "round {round}: {text:?}");
            for (row, line) in rows.iter().zip(text.lines()) {
                assert!(row.ends_with(line), "round {round}: {row:?} {line:?}");
            }
        }
    }
}
