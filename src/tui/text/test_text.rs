//! Random text and helpers for the tests of this module.

use std::cell::Cell;

use ratatui::text::Line;

use super::wrap::display_width;
use crate::random::Random;

thread_local! {
    static PARSED_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Counts bytes that the parsers of lines and of inline content read.
pub(super) fn count_parsed(bytes: usize) {
    PARSED_BYTES.set(PARSED_BYTES.get() + bytes);
}

/// Returns how many bytes were parsed by this thread since the last call.
pub(super) fn take_parsed() -> usize {
    PARSED_BYTES.take()
}

/// Fragments that are likely to reach a special case.
const FRAGMENTS: &[&str] = &[
    "word",
    "long_identifier_without_spaces",
    " ",
    "  ",
    "    ",
    "\n",
    "\n",
    "\n\n",
    "\t",
    "\r\n",
    "- ",
    "* ",
    "+ ",
    "1. ",
    "2) ",
    "> ",
    ">",
    "# ",
    "## ",
    "###",
    "```",
    "```rust\n",
    "~~~\n",
    "`",
    "``",
    "*",
    "**",
    "_",
    "~~",
    "[",
    "]",
    "](",
    "(u)",
    "<https://a.example>",
    "![",
    "| a | b |\n",
    "|---|:-:|\n",
    "| - |",
    "|",
    "\\",
    "\\|",
    "---\n",
    "===\n",
    "***\n",
    "<div>",
    "</div>",
    "<!--",
    "-->",
    "<br>",
    "[ ] ",
    "[x] ",
    "&amp;",
    "&#27;",
    "&#x202e;",
    "漢字",
    "한국어",
    "👨‍👩‍👧‍👦",
    "🇨🇭",
    "❤️",
    "e\u{301}\u{302}",
    "\u{301}",
    "\u{200b}",
    "\u{200d}",
    "العربية",
    "לא",
    "\u{202e}",
    "\x1b[31m",
    "\0",
    "\u{9b}",
    "\u{7f}",
    "\u{3000}",
    "ﷺ",
    "\u{fdfa}",
    "fn main() {",
    "\"",
    "'",
    "/*",
    "*/",
    "//",
    "\"\"\"",
    "#",
    "@@ -1,2 +1,3 @@\n",
    "+added\n",
    "-removed\n",
    "--- a\n",
    "+++ b\n",
    "0x1f",
    "1.5e-3",
    "r#\"",
    "'a",
    "{",
    "}",
];

/// Returns a text of fragments and of random characters.
pub(super) fn random_text(random: &mut Random, fragments: usize) -> String {
    let mut text = String::new();
    for _ in 0..fragments {
        if random.one_in(12) {
            text.extend(char::from_u32(random.below(0x11_0000) as u32));
        } else {
            text.push_str(random.pick(FRAGMENTS).unwrap());
        }
    }
    text
}

/// Divides a text at random.
pub(super) fn random_split<'a>(random: &mut Random, text: &'a str, longest: u64) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let length = rest.ceil_char_boundary(1 + random.below(longest) as usize);
        let (part, after) = rest.split_at(length.min(rest.len()));
        parts.push(part);
        rest = after;
    }
    parts
}

/// Returns the text of rows.
pub(super) fn plain(rows: &[Line<'_>]) -> Vec<String> {
    rows.iter().map(ToString::to_string).collect()
}

/// Returns the columns of the widest row.
pub(super) fn widest(rows: &[Line<'_>]) -> usize {
    rows.iter().map(|row| row.spans.iter().map(|span| display_width(&span.content)).sum()).max().unwrap_or_default()
}
