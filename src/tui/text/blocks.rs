//! Parses the block structure of Markdown line by line and renders each block as soon as it can no longer change.
//!
//! This is the algorithm of the CommonMark specification: a line continues open containers, opens blocks, or continues a
//! paragraph. Code is rendered line by line; a paragraph or a table is rendered when it ends. Deviations: link reference
//! definitions and footnotes are shown as they are written, because they may follow their use; and rows between the items
//! of a list are blank where the source has blank lines, because an item may not depend on later ones.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::block_syntax::{self as syntax, FenceStart, HtmlEnd, ListMarker, indentation, strip_spaces};
use super::containers::{ContainerStack, RowBuffer, Spacing};
use super::highlight::Highlighter;
use super::inline;
use super::table::Table;
use super::theme::Theme;
use super::wrap::{expand_tabs, wrap_exact, wrap_line};

/// The state after the lines so far.
#[derive(Debug, Clone)]
pub(super) struct BlockParser {
    theme: Theme,
    containers: ContainerStack,
    leaf: Leaf,
}

/// The open block that contains text; it belongs to the innermost container.
#[derive(Debug, Clone)]
enum Leaf {
    None,
    Paragraph {
        /// The lines, joined.
        text: String,
        /// Where the last line begins.
        last_line: usize,
    },
    Fence {
        marker: char,
        length: usize,
        indent: usize,
        highlighter: Highlighter,
    },
    IndentedCode {
        /// Blank lines that belong to the code if more of it follows.
        blanks: usize,
    },
    Html(HtmlEnd),
    Table(Table),
}

/// Before every row of code.
const CODE_INDENT: &str = "  ";
/// A longer paragraph is rendered in parts.
const PARAGRAPH_BYTES: usize = 64 * 1024;
/// How much of an open paragraph a preview shows, in bytes.
const PREVIEW_TEXT: usize = 8 * 1024;
/// How many rows of an open table a preview shows.
const PREVIEW_ROWS: usize = 64;

impl BlockParser {
    /// Begins a document.
    pub(super) fn new(theme: Theme) -> Self {
        Self { theme, containers: ContainerStack::new(theme), leaf: Leaf::None }
    }

    /// Parses one complete line, without its line feed, and renders what it finishes.
    pub(super) fn line(&mut self, line: &str, out: &mut RowBuffer) {
        #[cfg(test)]
        super::test_text::count_parsed(line.len());
        let content = line.trim_end_matches([' ', '\t']);
        // Two spaces at the end are a hard break, tabs are not.
        let has_tab = line.get(content.len()..).unwrap_or_default().contains('\t');
        let line = expand_tabs(if has_tab { content } else { line });
        let (matched, rest) = self.containers.match_line(&line);
        if matched == self.containers.depth() && self.continue_code(rest, out) {
            return;
        }
        if is_blank(rest) {
            self.close(matched, out);
            self.containers.set_blank();
            return;
        }
        if let Some((matched, rest)) = self.open_blocks(matched, rest, out) {
            self.text(matched, rest.trim_start_matches(' '), out);
        }
    }

    /// Renders what is open and begins a new document.
    pub(super) fn finish(&mut self, out: &mut RowBuffer) {
        self.close(1, out);
        *self = Self::new(self.theme);
    }

    /// Returns a copy for a preview; if the open block is long, with its end only.
    pub(super) fn preview(&self) -> Self {
        let leaf = match &self.leaf {
            Leaf::Paragraph { text, last_line } if text.len() > PREVIEW_TEXT => {
                let cut = text.ceil_char_boundary(text.len() - PREVIEW_TEXT);
                let end = text.get(cut..).unwrap_or_default();
                Leaf::Paragraph { text: end.to_owned(), last_line: last_line.saturating_sub(cut) }
            }
            Leaf::Table(table) => Leaf::Table(table.end(PREVIEW_ROWS)),
            Leaf::None | Leaf::Paragraph { .. } | Leaf::Fence { .. } | Leaf::IndentedCode { .. } | Leaf::Html(_) => {
                self.leaf.clone()
            }
        };
        Self { theme: self.theme, containers: self.containers.clone(), leaf }
    }

    /// Renders a line of open code or HTML; returns whether it was one.
    fn continue_code(&mut self, rest: &str, out: &mut RowBuffer) -> bool {
        match &mut self.leaf {
            Leaf::Fence { marker, length, .. } if syntax::ends_fence(rest, *marker, *length) => self.leaf = Leaf::None,
            Leaf::Fence { indent, highlighter, .. } => {
                let spans = highlighter.line(strip_spaces(rest, *indent), &self.theme);
                self.emit_code(spans, out);
            }
            Leaf::IndentedCode { blanks } if is_blank(rest) => *blanks += 1,
            Leaf::IndentedCode { blanks } if indentation(rest) >= 4 => {
                for _ in 0..std::mem::take(blanks) {
                    self.emit_code(Vec::new(), out);
                }
                self.emit_indented_code(rest, out);
            }
            Leaf::Html(HtmlEnd::Blank) if is_blank(rest) => return false,
            Leaf::Html(end) => {
                let ends = syntax::ends_html(rest, *end);
                self.emit_html(rest, out);
                if ends {
                    self.leaf = Leaf::None;
                }
            }
            Leaf::None | Leaf::Paragraph { .. } | Leaf::IndentedCode { .. } | Leaf::Table(_) => return false,
        }
        true
    }

    /// Opens the blocks that begin in a line; returns what of it is text, or nothing if it is used up.
    fn open_blocks<'a>(
        &mut self,
        mut matched: usize,
        mut rest: &'a str,
        out: &mut RowBuffer,
    ) -> Option<(usize, &'a str)> {
        loop {
            let in_paragraph = matches!(self.leaf, Leaf::Paragraph { .. });
            if indentation(rest) >= 4 {
                if in_paragraph {
                    return Some((matched, rest));
                }
                self.open(matched, Spacing::Separate, Leaf::IndentedCode { blanks: 0 }, out);
                self.emit_indented_code(rest, out);
                return None;
            }
            let interrupts = in_paragraph && matched == self.containers.depth();
            if !ContainerStack::may_nest(matched) {
                // Deeper markers are text.
            } else if let Some(content) = syntax::quote_content(rest) {
                self.close(matched, out);
                self.containers.open_quote();
                rest = content;
                matched = self.containers.depth();
                if is_blank(rest) {
                    return None;
                }
                continue;
            } else if let Some(marker) = item_start(rest, interrupts) {
                self.close(matched, out);
                rest = self.containers.open_item(marker, rest);
                matched = self.containers.depth();
                if rest.is_empty() {
                    return None;
                }
                continue;
            }
            return if self.open_leaf(matched, rest, out) { None } else { Some((matched, rest)) };
        }
    }

    /// Opens a block other than a container, a paragraph or a table; returns whether the line begins one.
    fn open_leaf(&mut self, matched: usize, rest: &str, out: &mut RowBuffer) -> bool {
        let text = rest.trim_start_matches(' ');
        let in_paragraph = matches!(self.leaf, Leaf::Paragraph { .. });
        let interrupts = in_paragraph && matched == self.containers.depth();
        if let Some((level, content)) = syntax::heading(text) {
            self.open(matched, Spacing::Separate, Leaf::None, out);
            self.emit_heading(level, content, out);
        } else if let Some(FenceStart { marker, length, language }) = syntax::fence_start(text) {
            let (indent, highlighter) = (indentation(rest), Highlighter::new(language));
            self.open(matched, Spacing::Separate, Leaf::Fence { marker, length, indent, highlighter }, out);
        } else if let Some(end) = syntax::html_start(text, in_paragraph) {
            self.open(matched, Spacing::AsWritten, Leaf::Html(end), out);
            self.emit_html(rest, out);
            if syntax::ends_html(rest, end) {
                self.leaf = Leaf::None;
            }
        } else if interrupts && let Some(level) = syntax::underline_level(text) {
            self.close_as_heading(level, out);
        } else if syntax::is_rule(text) {
            self.open(matched, Spacing::Separate, Leaf::None, out);
            let rule = "─".repeat(usize::from(self.containers.text_width(out.width)));
            self.containers.emit([Line::styled(rule, self.theme.faint)], out);
        } else {
            return false;
        }
        true
    }

    /// Adds text to the open paragraph or table, or begins a paragraph.
    fn text(&mut self, matched: usize, text: &str, out: &mut RowBuffer) {
        // A paragraph continues even if the markers of its containers are missing.
        if matched < self.containers.depth() && !matches!(self.leaf, Leaf::Paragraph { .. }) {
            self.close(matched, out);
        }
        if matched == self.containers.depth() && self.open_table(text, out) {
            return;
        }
        match &mut self.leaf {
            Leaf::Paragraph { text: open, .. } if open.len() > PARAGRAPH_BYTES => {
                let paragraph = Leaf::Paragraph { text: text.to_owned(), last_line: 0 };
                self.open(matched.max(1), Spacing::AsWritten, paragraph, out);
            }
            Leaf::Paragraph { text: open, last_line } => {
                join_line(open);
                *last_line = open.len();
                open.push_str(text);
            }
            Leaf::Table(table) => {
                table.push(text);
                let finished = table.take_finished(self.containers.text_width(out.width), &self.theme);
                self.containers.emit(finished, out);
            }
            Leaf::None | Leaf::Fence { .. } | Leaf::IndentedCode { .. } | Leaf::Html(_) => {
                let paragraph = Leaf::Paragraph { text: text.to_owned(), last_line: 0 };
                self.open(matched, Spacing::AsWritten, paragraph, out);
            }
        }
    }

    /// If the line is the second one of a table, makes the last line of the open paragraph its head.
    fn open_table(&mut self, line: &str, out: &mut RowBuffer) -> bool {
        let Leaf::Paragraph { text, last_line } = &mut self.leaf else { return false };
        let Some(alignments) = syntax::delimiter_row(line) else { return false };
        let head = syntax::split_cells(text.get(*last_line..).unwrap_or_default());
        if head.len() != alignments.len() {
            return false;
        }
        text.truncate(*last_line);
        let alone = text.is_empty();
        if alone {
            self.leaf = Leaf::None;
            self.containers.change_spacing(Spacing::Separate);
        } else {
            self.open(self.containers.depth(), Spacing::Separate, Leaf::None, out);
        }
        self.leaf = Leaf::Table(Table::new(head, alignments));
        true
    }

    /// Closes all but the first `matched` containers and the open leaf, and begins a block.
    fn open(&mut self, matched: usize, spacing: Spacing, leaf: Leaf, out: &mut RowBuffer) {
        self.close(matched, out);
        self.containers.begin_block(spacing);
        self.leaf = leaf;
    }

    /// Renders the open leaf, and closes all but the first `depth` containers.
    fn close(&mut self, depth: usize, out: &mut RowBuffer) {
        let width = self.containers.text_width(out.width);
        match std::mem::replace(&mut self.leaf, Leaf::None) {
            Leaf::Paragraph { text, .. } => {
                let text = self.containers.take_check_box(&text);
                let width = self.containers.text_width(out.width);
                let lines = inline::render(text, Style::new(), &self.theme);
                self.containers.emit(lines.iter().flat_map(|line| wrap_line(line, width, "")), out);
            }
            Leaf::Table(table) => self.containers.emit(table.render(width, &self.theme), out),
            Leaf::IndentedCode { blanks } if blanks > 0 => self.containers.set_blank(),
            Leaf::None | Leaf::Fence { .. } | Leaf::IndentedCode { .. } | Leaf::Html(_) => {}
        }
        self.containers.truncate(depth, out);
    }

    fn close_as_heading(&mut self, level: usize, out: &mut RowBuffer) {
        if let Leaf::Paragraph { text, .. } = std::mem::replace(&mut self.leaf, Leaf::None) {
            self.containers.change_spacing(Spacing::Separate);
            self.emit_heading(level, &text, out);
        }
    }

    fn emit_heading(&mut self, level: usize, content: &str, out: &mut RowBuffer) {
        let style = match level {
            1 => self.theme.heading.add_modifier(Modifier::UNDERLINED),
            _ => self.theme.heading,
        };
        let width = self.containers.text_width(out.width);
        let lines = inline::render(content, style, &self.theme);
        self.containers.emit(lines.iter().flat_map(|line| wrap_line(line, width, "")), out);
    }

    fn emit_indented_code(&mut self, line: &str, out: &mut RowBuffer) {
        self.emit_code(vec![Span::styled(strip_spaces(line, 4).to_owned(), self.theme.code)], out);
    }

    fn emit_code(&mut self, spans: Vec<Span<'static>>, out: &mut RowBuffer) {
        let width = self.containers.text_width(out.width);
        let indent = if width > 8 { CODE_INDENT } else { "" };
        let rows = wrap_exact(&Line::from(spans), width - indent.len() as u16);
        let indented = |mut row: Line<'static>| {
            if !row.spans.is_empty() {
                row.spans.insert(0, Span::raw(indent));
            }
            row
        };
        self.containers.emit(rows.into_iter().map(indented), out);
    }

    fn emit_html(&mut self, line: &str, out: &mut RowBuffer) {
        let width = self.containers.text_width(out.width);
        self.containers.emit(wrap_exact(&Line::styled(line.trim_end().to_owned(), self.theme.faint), width), out);
    }
}

/// Joins the next line to a paragraph: with a line feed at a hard break, else with a space.
fn join_line(text: &mut String) {
    let hard = text.ends_with("  ");
    text.truncate(text.trim_end_matches(' ').len());
    match (hard, text.ends_with('\\')) {
        // In an indented line nothing begins a block. The tab itself is not shown.
        (true, _) => text.push_str("  \n\t"),
        (false, true) => text.push_str("\n\t"),
        (false, false) => text.push(' '),
    }
}

/// Recognizes the first line of a list item; `interrupts` says whether it would end a paragraph.
fn item_start(line: &str, interrupts: bool) -> Option<ListMarker> {
    let text = line.trim_start_matches(' ');
    if syntax::is_rule(text) || (interrupts && syntax::underline_level(text).is_some()) {
        return None;
    }
    let marker = syntax::list_marker(text)?;
    let is_empty = is_blank(text.get(marker.length..).unwrap_or_default());
    let allowed = !interrupts || (!is_empty && marker.number.is_none_or(|number| number == 1));
    allowed.then_some(marker)
}

fn is_blank(text: &str) -> bool {
    text.trim_matches(' ').is_empty()
}
