//! Renders Markdown as HTML.
//!
//! Raw HTML is text. A link leads only to http, https or mailto. An image is a link to it and is not loaded.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::calls::render_diff;
use super::escape::{escape, text as escaped};
use crate::display::sanitize::sanitize;

/// What a line break inside a paragraph is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineBreaks {
    /// A line break, as its author typed it.
    Kept,
    /// A space, as Markdown defines it.
    Joined,
}

/// Renders a text.
pub(super) fn render_markdown(text: &str, breaks: LineBreaks, out: &mut String) {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let text = sanitize(text);
    let mut writer =
        Writer { out, breaks, code: None, links: Vec::new(), alignments: Vec::new(), is_head: false, cell: 0 };
    for event in Parser::new_ext(&text, options) {
        writer.event(event);
    }
}

struct Writer<'a> {
    out: &'a mut String,
    breaks: LineBreaks,
    /// The language and the content of the code block that is being read.
    code: Option<(String, String)>,
    /// For each open link or image, the address that is shown behind it.
    links: Vec<Option<String>>,
    alignments: Vec<Alignment>,
    is_head: bool,
    cell: usize,
}

impl Writer<'_> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.open(&tag),
            Event::End(tag) => self.close(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => match &mut self.code {
                Some((_, code)) => code.push_str(&text),
                None => *self.out += &escaped(&text),
            },
            Event::Code(code) | Event::InlineMath(code) | Event::DisplayMath(code) => {
                *self.out += &format!("<code>{}</code>", escaped(&code));
            }
            Event::SoftBreak if self.breaks == LineBreaks::Joined => self.out.push('\n'),
            Event::SoftBreak | Event::HardBreak => *self.out += "<br>\n",
            Event::Rule => *self.out += "<hr>\n",
            Event::TaskListMarker(done) => *self.out += if done { "☑ " } else { "☐ " },
            Event::FootnoteReference(name) => *self.out += &format!("[{}]", escaped(&name)),
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "an element that the parser is not asked for is its content")]
    fn open(&mut self, tag: &Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => *self.out += &format!("<h{}>", heading(*level as u8)),
            Tag::CodeBlock(kind) => {
                let language = match kind {
                    CodeBlockKind::Fenced(info) => info.split_whitespace().next().unwrap_or_default().to_owned(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((language, String::new()));
            }
            Tag::List(Some(first)) => *self.out += &format!("<ol start=\"{first}\">\n"),
            Tag::Link { dest_url, .. } => self.open_link(dest_url, ""),
            Tag::Image { dest_url, .. } => self.open_link(dest_url, "image: "),
            Tag::Table(alignments) => {
                self.alignments.clone_from(alignments);
                *self.out += "<div class=\"table\"><table>\n";
            }
            Tag::TableHead => {
                self.is_head = true;
                self.cell = 0;
                *self.out += "<thead><tr>";
            }
            Tag::TableRow => {
                self.cell = 0;
                *self.out += "<tr>";
            }
            Tag::TableCell => {
                let class = match self.alignments.get(self.cell) {
                    Some(Alignment::Right) => " class=\"right\"",
                    Some(Alignment::Center) => " class=\"center\"",
                    Some(Alignment::Left | Alignment::None) | None => "",
                };
                self.cell += 1;
                *self.out += &format!("<{}{class}>", if self.is_head { "th" } else { "td" });
            }
            _ => {
                if let Some(name) = element(&tag.to_end()) {
                    *self.out += &format!("<{name}>");
                }
            }
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "an element that the parser is not asked for is its content")]
    fn close(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(level) => *self.out += &format!("</h{}>\n", heading(level as u8)),
            TagEnd::CodeBlock => self.close_code(),
            TagEnd::Link | TagEnd::Image => match self.links.pop().flatten() {
                Some(address) => *self.out += &format!(" <span class=\"address\">({address})</span>"),
                None => *self.out += "</a>",
            },
            TagEnd::Table => *self.out += "</tbody></table></div>\n",
            TagEnd::TableHead => {
                self.is_head = false;
                *self.out += "</tr></thead>\n<tbody>";
            }
            TagEnd::TableRow => *self.out += "</tr>\n",
            TagEnd::TableCell => *self.out += if self.is_head { "</th>" } else { "</td>" },
            TagEnd::List(true) => *self.out += "</ol>\n",
            tag => {
                if let Some(name) = element(&tag) {
                    *self.out += &format!("</{name}>\n");
                }
            }
        }
    }

    /// Opens a link, or shows an address to which no link may lead.
    fn open_link(&mut self, address: &str, what: &str) {
        if is_safe_address(address) {
            *self.out += &format!("<a href=\"{}\" rel=\"noreferrer noopener\">{what}", escape(address));
            self.links.push(None);
        } else {
            *self.out += what;
            self.links.push(Some(escaped(address)));
        }
    }

    fn close_code(&mut self) {
        let Some((language, code)) = self.code.take() else { return };
        if matches!(language.as_str(), "diff" | "patch") {
            return render_diff(&code, self.out);
        }
        *self.out += &format!("<pre><code>{}</code></pre>\n", escaped(&code));
    }
}

/// Headings of messages are below those of the page.
const fn heading(level: u8) -> u8 {
    if level >= 4 { 6 } else { level + 2 }
}

/// Returns the element without attributes that a tag is.
#[allow(clippy::wildcard_enum_match_arm, reason = "an element that the parser is not asked for is its content")]
const fn element(tag: &TagEnd) -> Option<&'static str> {
    match tag {
        TagEnd::Paragraph => Some("p"),
        TagEnd::BlockQuote(_) => Some("blockquote"),
        TagEnd::List(false) => Some("ul"),
        TagEnd::Item => Some("li"),
        TagEnd::Emphasis => Some("em"),
        TagEnd::Strong => Some("strong"),
        TagEnd::Strikethrough => Some("s"),
        _ => None,
    }
}

/// Returns whether a link may lead to an address: an absolute one of a scheme that runs nothing.
fn is_safe_address(address: &str) -> bool {
    let scheme = address.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    let is_plain = !address.chars().any(|c| c.is_control() || c.is_whitespace());
    is_plain && matches!(scheme.as_deref(), Some("http" | "https" | "mailto"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> String {
        let mut out = String::new();
        render_markdown(text, LineBreaks::Joined, &mut out);
        out
    }

    #[test]
    fn markdown_becomes_elements() {
        assert_eq!(
            rendered("# A\n\n*b* **c** `d` ~~e~~\n\n- f\n- [x] g\n\n3. h\n\n> i"),
            "<h3>A</h3>\n<p><em>b</em>\n <strong>c</strong>\n <code>d</code> <s>e</s>\n</p>\n<ul><li>f</li>\n<li>☑ g</li>\n</ul>\n\
             <ol start=\"3\">\n<li>h</li>\n</ol>\n<blockquote><p>i</p>\n</blockquote>\n"
                .replace("</em>\n", "</em>")
                .replace("</strong>\n", "</strong>")
                .replace("</s>\n", "</s>")
        );
        assert_eq!(
            rendered("| a | b |\n|---|--:|\n| 1 | 2 |"),
            "<div class=\"table\"><table>\n<thead><tr><th>a</th><th class=\"right\">b</th></tr></thead>\n<tbody><tr>\
             <td>1</td><td class=\"right\">2</td></tr>\n</tbody></table></div>\n"
        );
    }

    #[test]
    fn raw_html_is_text() {
        let shown = rendered("a <b onclick=\"x()\">c</b>\n\n<script>alert(1)</script>\n\n<style>@import 'x'</style>");
        assert!(!shown.contains("<b") && !shown.contains("<script") && !shown.contains("<style"), "{shown}");
        assert!(shown.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{shown}");
    }

    #[test]
    fn links_lead_only_to_safe_addresses_and_images_are_links() {
        let safe = rendered("[a](https://x.test/?q=\"1\"&b) ![i](http://x.test/i.png) <mailto:a@b.test>");
        assert!(
            safe.contains("<a href=\"https://x.test/?q=%221%22&amp;b\" rel=\"noreferrer noopener\">a</a>")
                || safe.contains("<a href=\"https://x.test/?q=&quot;1&quot;&amp;b\" rel=\"noreferrer noopener\">a</a>"),
            "{safe}"
        );
        assert!(!safe.contains("<img") && safe.contains(">image: i</a>"), "{safe}");
        for address in [
            "javascript:alert(1)",
            "JAVASCRIPT:x",
            "data:text/html,x",
            "vbscript:x",
            "/etc/passwd",
            "//x.test",
            "java\tscript:x",
            "&#106;avascript:x",
            "file:///x",
            "x",
        ] {
            let shown = rendered(&format!("[a](<{address}>)"));
            assert!(!shown.contains("<a "), "{address}: {shown}");
        }
    }

    #[test]
    fn a_code_block_keeps_its_text_and_a_diff_is_coloured() {
        assert_eq!(
            rendered("```html\n</code></pre><b>\n```"),
            "<pre><code>&lt;/code&gt;&lt;/pre&gt;&lt;b&gt;\n</code></pre>\n"
        );
        assert!(rendered("```diff\n-a\n+b\n```").contains("<del>-a\n</del><ins>+b\n</ins>"));
    }
}
