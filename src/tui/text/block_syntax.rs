//! Recognizes the beginnings of Markdown blocks in single lines (CommonMark, and tables and task lists of GFM).
//!
//! Every function gets a line without the markers of its containers; where not stated, also without indentation.

/// A list marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListMarker {
    /// `-`, `+`, `*`, or the `.` or `)` after a number.
    pub(super) delimiter: char,
    /// The number of an ordered item.
    pub(super) number: Option<u32>,
    /// Bytes of the marker, all of them ASCII.
    pub(super) length: usize,
}

/// The beginning of a fenced code block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FenceStart<'a> {
    /// `` ` `` or `~`.
    pub(super) marker: char,
    /// How often the marker is repeated.
    pub(super) length: usize,
    /// The first word after the markers.
    pub(super) language: &'a str,
}

/// Which line ends an HTML block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HtmlEnd {
    /// The next blank line.
    Blank,
    /// The line with this text.
    Text(&'static str),
}

/// How the cells of a table column are aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnAlignment {
    /// At the left edge, the default.
    Left,
    /// In the middle.
    Center,
    /// At the right edge.
    Right,
}

/// Counts the spaces at the beginning of a line.
pub(super) fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Returns the line without up to `count` leading spaces.
pub(super) fn strip_spaces(line: &str, count: usize) -> &str {
    line.get(indentation(line).min(count)..).unwrap_or_default()
}

/// Returns level and content of a heading with `#`.
pub(super) fn heading(text: &str) -> Option<(usize, &str)> {
    let rest = text.trim_start_matches('#');
    let level = text.len() - rest.len();
    if !(1..=6).contains(&level) || !(rest.is_empty() || rest.starts_with(' ')) {
        return None;
    }
    let content = rest.trim();
    let without = content.trim_end_matches('#');
    let closed = without.is_empty() || without.ends_with(' ');
    Some((level, if closed { without.trim_end() } else { content }))
}

/// Returns the level of a heading of which this is the underline.
pub(super) fn underline_level(text: &str) -> Option<usize> {
    let text = text.trim_end();
    match text.chars().next()? {
        '=' if text.chars().all(|c| c == '=') => Some(1),
        '-' if text.chars().all(|c| c == '-') => Some(2),
        _ => None,
    }
}

/// Returns whether the line is a thematic break.
pub(super) fn is_rule(text: &str) -> bool {
    let Some(marker @ ('-' | '*' | '_')) = text.chars().next() else { return false };
    text.chars().all(|c| c == marker || c == ' ') && text.chars().filter(|c| *c == marker).count() >= 3
}

/// Returns the content of a line of a quote; the line may be indented.
pub(super) fn quote_content(line: &str) -> Option<&str> {
    let text = strip_spaces(line, 3).strip_prefix('>')?;
    Some(strip_spaces(text, 1))
}

/// Returns whether the check box at the beginning of a list item is checked, and the text after it.
pub(super) fn check_box(text: &str) -> Option<(bool, &str)> {
    if let Some(rest) = text.strip_prefix("[ ] ") {
        return Some((false, rest));
    }
    text.strip_prefix("[x] ").or_else(|| text.strip_prefix("[X] ")).map(|rest| (true, rest))
}

/// Recognizes the first line of a fenced code block.
pub(super) fn fence_start(text: &str) -> Option<FenceStart<'_>> {
    let marker = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let info = text.trim_start_matches(marker);
    let length = text.len() - info.len();
    if length < 3 || (marker == '`' && info.contains('`')) {
        return None;
    }
    let language = info.trim().split([' ', ',', '{']).next().unwrap_or_default();
    Some(FenceStart { marker, length, language })
}

/// Returns whether the line ends the code block which `length` repetitions of `marker` began.
pub(super) fn ends_fence(line: &str, marker: char, length: usize) -> bool {
    let text = strip_spaces(line, 3);
    let rest = text.trim_start_matches(marker);
    text.len() - rest.len() >= length && rest.trim().is_empty()
}

/// Recognizes a list marker.
pub(super) fn list_marker(text: &str) -> Option<ListMarker> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let delimiter = text.get(digits..)?.chars().next()?;
    let rest = text.get(digits + 1..).filter(|rest| rest.is_empty() || rest.starts_with(' '));
    let number = match (digits, delimiter) {
        (0, '-' | '+' | '*') => None,
        (1..=9, '.' | ')') => Some(text.get(..digits)?.parse().ok()?),
        _ => return None,
    };
    rest.map(|_| ListMarker { delimiter, number, length: digits + 1 })
}

/// Recognizes the first line of an HTML block; `interrupts` says whether it would end a paragraph.
pub(super) fn html_start(text: &str, interrupts: bool) -> Option<HtmlEnd> {
    let rest = text.strip_prefix('<')?;
    if rest.starts_with("!--") {
        return Some(HtmlEnd::Text("-->"));
    }
    if rest.starts_with('?') {
        return Some(HtmlEnd::Text("?>"));
    }
    if rest.starts_with('!') {
        return Some(HtmlEnd::Text(">"));
    }
    let name = rest.strip_prefix('/').unwrap_or(rest);
    let length = name.len() - name.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '-').len();
    let (name, after) = name.split_at_checked(length)?;
    let name = name.to_ascii_lowercase();
    if !(after.is_empty() || after.starts_with([' ', '>']) || after.starts_with("/>")) {
        return None;
    }
    let verbatim = ["</script>", "</pre>", "</style>", "</textarea>"];
    if let Some(end) =
        verbatim.into_iter().find(|end| !rest.starts_with('/') && end.get(2..end.len() - 1) == Some(&*name))
    {
        return Some(HtmlEnd::Text(end));
    }
    let alone = || !interrupts && text.trim_end().ends_with('>') && text.matches('>').count() == 1;
    (HTML_BLOCKS.split(' ').any(|block| block == name) || (!name.is_empty() && alone())).then_some(HtmlEnd::Blank)
}

/// Returns whether a line of an HTML block is its last one.
pub(super) fn ends_html(line: &str, end: HtmlEnd) -> bool {
    match end {
        HtmlEnd::Blank => false,
        HtmlEnd::Text(text) => line.to_ascii_lowercase().contains(text),
    }
}

/// Recognizes the line between head and body of a table.
pub(super) fn delimiter_row(text: &str) -> Option<Vec<ColumnAlignment>> {
    if !text.contains('-') || !text.chars().all(|c| matches!(c, '-' | ':' | '|' | ' ')) {
        return None;
    }
    if !text.contains(['|', ':']) {
        return None;
    }
    split_cells(text).iter().map(|cell| column_alignment(cell)).collect()
}

/// Divides a row of a table; `\|` does not end a cell.
pub(super) fn split_cells(text: &str) -> Vec<String> {
    let text = text.trim();
    let text = text.strip_prefix('|').unwrap_or(text);
    let mut cells = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let Some(cell) = cells.last_mut() else { break };
        match c {
            '\\' if chars.peek() == Some(&'|') => cell.extend(chars.next()),
            '\\' => {
                cell.push(c);
                cell.extend(chars.next());
            }
            '|' if chars.peek().is_none() => break,
            '|' => cells.push(String::new()),
            _ => cell.push(c),
        }
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

fn column_alignment(cell: &str) -> Option<ColumnAlignment> {
    let left = cell.starts_with(':');
    let right = cell.len() > 1 && cell.ends_with(':');
    let dashes = cell.trim_start_matches(':').trim_end_matches(':');
    if dashes.is_empty() || !dashes.chars().all(|c| c == '-') {
        return None;
    }
    Some(match (left, right) {
        (true, true) => ColumnAlignment::Center,
        (false, true) => ColumnAlignment::Right,
        (true | false, false) => ColumnAlignment::Left,
    })
}

/// Elements that begin an HTML block wherever they stand (CommonMark, condition 6).
const HTML_BLOCKS: &str = "address article aside base basefont blockquote body caption center col colgroup dd details dialog dir div dl \
    dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hr html iframe legend \
    li link main menu menuitem nav noframes ol optgroup option p param search section summary table tbody td tfoot \
    th thead title tr track ul";
