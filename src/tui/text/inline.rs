//! Renders inline Markdown: emphasis, code, links, line breaks.
//!
//! Character references can spell control characters that the caller's sanitizing did not see, so control characters
//! and invisible characters are removed here.

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::theme::Theme;
use crate::invisible_chars::is_invisible;

/// Renders the inline content of one block in the style `base`; there is one line, and one more for each hard break.
pub(super) fn render(text: &str, base: Style, theme: &Theme) -> Vec<Line<'static>> {
    if text.trim().is_empty() {
        return vec![Line::default()];
    }
    #[cfg(test)]
    super::test_text::count_parsed(text.len());
    // The prefix makes the text a paragraph, whatever it begins with.
    let source = format!("{PREFIX}{text}");
    let mut writer = InlineWriter { theme, styles: vec![base], links: Vec::new(), lines: vec![Line::default()] };
    let mut prefix = Some(PREFIX);
    for event in Parser::new_ext(&source, Options::ENABLE_STRIKETHROUGH) {
        match (event, prefix) {
            (Event::Text(text), Some(expected)) => {
                prefix = None;
                writer.text(text.strip_prefix(expected).unwrap_or(&text));
            }
            (event, _) => writer.event(event),
        }
    }
    writer.lines
}

/// Not empty, ends with a space, and has no meaning in Markdown.
const PREFIX: &str = "a ";

/// Collects the spans of a block.
struct InlineWriter<'a> {
    theme: &'a Theme,
    /// The styles of the open elements; the first is that of the block.
    styles: Vec<Style>,
    /// The open links: their addresses, and their text so far.
    links: Vec<(String, String)>,
    lines: Vec<Line<'static>>,
}

impl InlineWriter<'_> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text),
            Event::Code(code) => self.styled(&code, self.style().patch(self.theme.code)),
            Event::InlineHtml(html) if is_line_break(&html) => self.lines.push(Line::default()),
            Event::Html(html) | Event::InlineHtml(html) => self.text(&html),
            Event::InlineMath(text) | Event::DisplayMath(text) => self.text(&text),
            Event::FootnoteReference(label) => self.text(&format!("[^{label}]")),
            Event::SoftBreak => self.text(" "),
            Event::HardBreak => self.lines.push(Line::default()),
            Event::Rule => self.text("---"),
            Event::TaskListMarker(true) => self.text("[x] "),
            Event::TaskListMarker(false) => self.text("[ ] "),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        let style = self.style();
        if let Tag::Emphasis = tag {
            self.styles.push(style.patch(self.theme.emphasis));
        } else if let Tag::Strong = tag {
            self.styles.push(style.patch(self.theme.strong));
        } else if let Tag::Strikethrough = tag {
            self.styles.push(style.patch(self.theme.strikethrough));
        } else if let Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } = tag {
            self.styles.push(style.patch(self.theme.link));
            self.links.push((visible(&dest_url), String::new()));
        }
    }

    fn end(&mut self, tag: TagEnd) {
        if matches!(tag, TagEnd::Link | TagEnd::Image) {
            self.pop_style();
            let Some((address, text)) = self.links.pop() else { return };
            let shown = text.strip_prefix("mailto:").unwrap_or(&text);
            if !address.is_empty() && address.strip_prefix("mailto:").unwrap_or(&address) != shown {
                let separator = if text.is_empty() { "" } else { " " };
                self.styled(&format!("{separator}({address})"), self.style().patch(self.theme.faint));
            }
        } else if matches!(tag, TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough) {
            self.pop_style();
        }
    }

    fn pop_style(&mut self) {
        if self.styles.len() > 1 {
            self.styles.pop();
        }
    }

    fn text(&mut self, text: &str) {
        self.styled(text, self.style());
    }

    fn styled(&mut self, text: &str, style: Style) {
        let text = visible(text);
        for (_, shown) in &mut self.links {
            shown.push_str(&text);
        }
        let Some(line) = self.lines.last_mut() else { return };
        match line.spans.last_mut() {
            Some(last) if last.style == style => last.content.to_mut().push_str(&text),
            Some(_) | None if text.is_empty() => {}
            Some(_) | None => line.spans.push(Span::styled(text, style)),
        }
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }
}

fn is_line_break(html: &CowStr<'_>) -> bool {
    html.strip_prefix("<br").is_some_and(|rest| matches!(rest.trim(), ">" | "/>"))
}

/// Removes control characters and invisible characters.
fn visible(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { ' ' } else { c }).filter(|c| !c.is_control() && !is_invisible(*c)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_elements_have_their_styles() {
        let theme = Theme::dark();
        let lines = render("a **b** *c* `d` ~~e~~ f", Style::new(), &theme);
        let styled: Vec<(&str, Style)> = lines[0].spans.iter().map(|span| (&*span.content, span.style)).collect();
        let plain = Style::new();
        let expected = [
            ("a ", plain),
            ("b", theme.strong),
            (" ", plain),
            ("c", theme.emphasis),
            (" ", plain),
            ("d", theme.code),
            (" ", plain),
            ("e", theme.strikethrough),
            (" f", plain),
        ];
        assert_eq!(styled, expected);
    }

    #[test]
    fn links_show_their_address_once() {
        assert_eq!(text("see [docs](https://a.example/x) now"), ["see docs (https://a.example/x) now"]);
        assert_eq!(text("<https://a.example>"), ["https://a.example"]);
        assert_eq!(text("[https://a.example](https://a.example)"), ["https://a.example"]);
        assert_eq!(text("<a@b.example>"), ["a@b.example"]);
        assert_eq!(text("![alt](pic.png)"), ["alt (pic.png)"]);
        assert_eq!(text("[https://good.example](https://bad.example)"), ["https://good.example (https://bad.example)"]);
    }

    #[test]
    fn hard_breaks_and_html_breaks_begin_a_line() {
        assert_eq!(text("a  \nb\\\nc<br>d<br />e"), ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn text_that_looks_like_a_block_is_kept() {
        for source in ["- x", "# x", "1. x", "> x", "---", "| x |", "```", "C #", "    x", "<div>", "[a]: b", "=="] {
            assert_eq!(text(source).concat().trim(), source.trim());
        }
    }

    #[test]
    fn character_references_cannot_spell_control_characters() {
        assert_eq!(text("a&#27;[2J&#x202e;b&#x9b;c"), ["a[2Jbc"]);
        assert_eq!(text("[a](x&#27;y)"), ["a (xy)"]);
        assert_eq!(text("1 &lt; 2 &amp; &copy;"), ["1 < 2 & ©"]);
    }

    #[test]
    fn html_is_shown_as_text() {
        assert_eq!(text("a <b>c</b> <!-- d -->"), ["a <b>c</b> <!-- d -->"]);
    }

    fn text(source: &str) -> Vec<String> {
        render(source, Style::new(), &Theme::dark()).iter().map(ToString::to_string).collect()
    }
}
