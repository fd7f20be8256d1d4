//! Syntax colours for code, line by line.
//!
//! A small lexer driven by tables: comments, strings, numbers, keywords and types. It does not parse, and it is wrong
//! in rare cases, such as regular expressions of JavaScript. `syntect` would do better, but its dependencies `bincode`
//! and `yaml-rust` are unmaintained.

use ratatui::style::Style;
use ratatui::text::Span;

use super::syntaxes::{self, Literal, Syntax};
use super::theme::Theme;

/// The state of highlighting one block of code.
#[derive(Debug, Clone)]
pub(crate) struct Highlighter {
    language: Language,
    /// The comment or string that the previous line left open.
    open: Option<&'static Literal>,
}

/// How lines are coloured.
#[derive(Debug, Clone, Copy)]
enum Language {
    /// Not at all.
    Unknown,
    /// By the first character.
    Diff,
    /// By tokens.
    Lexed(&'static Syntax),
}

impl Highlighter {
    /// Begins a block in a language, as named after the fence of a code block; unknown ones are not coloured.
    pub(crate) fn new(language: &str) -> Self {
        let name = language.to_ascii_lowercase();
        let language = match syntaxes::find(&name) {
            Some(syntax) => Language::Lexed(syntax),
            None if matches!(&*name, "diff" | "patch") => Language::Diff,
            None => Language::Unknown,
        };
        Self { language, open: None }
    }

    /// Returns the next line, coloured; the text of the spans is the line.
    pub(crate) fn line(&mut self, line: &str, theme: &Theme) -> Vec<Span<'static>> {
        match self.language {
            Language::Unknown => vec![Span::styled(line.to_owned(), theme.code)],
            Language::Diff => vec![Span::styled(line.to_owned(), diff_style(line, theme))],
            Language::Lexed(syntax) => {
                let mut lexer = Lexer { rest: line, last: None, spans: Vec::new(), theme, syntax };
                self.open = lexer.run(self.open);
                lexer.spans
            }
        }
    }
}

/// The state of highlighting one line.
struct Lexer<'a> {
    rest: &'a str,
    /// The character before the rest.
    last: Option<char>,
    spans: Vec<Span<'static>>,
    theme: &'a Theme,
    syntax: &'static Syntax,
}

impl Lexer<'_> {
    /// Consumes the line; returns the literal that stays open.
    fn run(&mut self, open: Option<&'static Literal>) -> Option<&'static Literal> {
        if let Some(literal) = open
            && !self.literal(literal, 0)
        {
            return Some(literal);
        }
        while let Some(first) = self.rest.chars().next() {
            let inside_word = self.last.is_some_and(is_word);
            if self.line_comment() {
                return None;
            }
            if let Some(literal) = self.syntax.literals.iter().find(|literal| self.begins(literal)) {
                let ends = self.literal(literal, literal.begin.len());
                if !ends {
                    return literal.spans_lines.then_some(literal);
                }
            } else if first.is_ascii_digit() && !inside_word {
                let length = number_length(self.rest);
                self.take(length, self.theme.number);
            } else if is_word(first) {
                self.word();
            } else {
                self.take(first.len_utf8(), Style::new());
            }
        }
        None
    }

    /// Takes the rest of the line if it is a comment.
    fn line_comment(&mut self) -> bool {
        let begins = |start: &&str| self.rest.starts_with(*start);
        // `#` and `--` inside words are no comments: `$#`, `a--b` in shells.
        let separate = self.last.is_none_or(|last| last.is_whitespace() || ";({[,".contains(last));
        let found = self.syntax.line_comments.iter().any(|start| begins(start) && (start.starts_with('/') || separate));
        if found {
            self.take(self.rest.len(), self.theme.comment);
        }
        found
    }

    fn begins(&self, literal: &Literal) -> bool {
        let separate = !literal.begin.starts_with(is_word) || !self.last.is_some_and(is_word);
        separate && self.rest.starts_with(literal.begin) && !is_lifetime(self.rest, literal, self.syntax)
    }

    /// Takes a literal of which `begun` bytes are known to belong to it; returns whether it ends in this line.
    fn literal(&mut self, literal: &Literal, begun: usize) -> bool {
        let end = literal.end_in(self.rest.get(begun..).unwrap_or_default()).map(|end| begun + end);
        let after = end.and_then(|end| self.rest.get(end..)).unwrap_or_default();
        let style = if literal.is_comment {
            self.theme.comment
        } else if self.syntax.has_keys && after.trim_start().starts_with(':') {
            self.theme.type_
        } else {
            self.theme.string
        };
        self.take(end.unwrap_or(self.rest.len()), style);
        end.is_some()
    }

    fn word(&mut self) {
        let dashes = self.syntax.has_keys;
        let length = self.rest.find(|c| !(is_word(c) || (dashes && c == '-'))).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(length).unwrap_or_default();
        let style = if self.syntax.has_tags && self.last.is_some_and(|last| matches!(last, '<' | '/')) {
            self.theme.keyword
        } else if self.syntax.has_keys && rest.trim_start().starts_with([':', '=']) || self.syntax.is_type(word) {
            self.theme.type_
        } else if self.syntax.is_keyword(word) {
            self.theme.keyword
        } else {
            Style::new()
        };
        self.take(length, style);
    }

    /// Moves bytes from the rest to the spans.
    fn take(&mut self, length: usize, style: Style) {
        let Some((token, rest)) = self.rest.split_at_checked(length) else { return };
        self.rest = rest;
        self.last = token.chars().next_back().or(self.last);
        match self.spans.last_mut() {
            Some(last) if last.style == style => last.content.to_mut().push_str(token),
            Some(_) | None if token.is_empty() => {}
            Some(_) | None => self.spans.push(Span::styled(token.to_owned(), style)),
        }
    }
}

/// Returns the style of a line of a diff.
fn diff_style(line: &str, theme: &Theme) -> Style {
    match line.as_bytes() {
        [b'@', b'@', ..] => theme.hunk,
        [b'+', b'+', b'+', b' ', ..] | [b'-', b'-', b'-', b' ', ..] => theme.strong,
        [b'+', ..] => theme.added,
        [b'-', ..] => theme.removed,
        _ => theme.context,
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns whether a quotation mark begins a lifetime of Rust.
fn is_lifetime(text: &str, literal: &Literal, syntax: &Syntax) -> bool {
    if !syntax.has_lifetimes || literal.begin != "'" {
        return false;
    }
    let mut chars = text.chars().skip(1);
    let first = chars.next();
    first.is_some_and(is_word) && chars.next() != Some('\'')
}

/// Returns the bytes of the number at the beginning of a text.
fn number_length(text: &str) -> usize {
    let mut last = '0';
    let part_of_number = |c: char| {
        let exponent_sign = matches!(c, '+' | '-') && matches!(last, 'e' | 'E') && !text.starts_with("0x");
        let part = c.is_ascii_alphanumeric() || c == '_' || (c == '.' && last != '.') || exponent_sign;
        last = c;
        !part
    };
    let length = text.find(part_of_number).unwrap_or(text.len());
    // The point after a number may end a sentence or begin a range or a call.
    text.get(..length).map_or(0, |number| number.trim_end_matches('.').len())
}

#[cfg(test)]
mod tests {
    use super::super::test_text::random_text;
    use super::*;
    use crate::random::Random;

    const THEME: Theme = Theme::dark();

    #[test]
    fn tokens_have_their_styles() {
        for (language, line, tokens) in [
            (
                "rust",
                "let x: u8 = 1; // c",
                vec![("let", THEME.keyword), ("u8", THEME.type_), ("1", THEME.number), ("// c", THEME.comment)],
            ),
            (
                "rs",
                "fn f<'a>(s: &'a str) -> char { 'x' }",
                vec![("fn", THEME.keyword), ("'x'", THEME.string), ("str", THEME.type_)],
            ),
            ("rust", "r#\"a\"b\"# + \"q\\\"r\"", vec![("r#\"a\"b\"#", THEME.string), ("\"q\\\"r\"", THEME.string)]),
            (
                "python",
                "def f(): return 'a' # b",
                vec![("def", THEME.keyword), ("'a'", THEME.string), ("# b", THEME.comment)],
            ),
            (
                "ts",
                "const a: string = `b`;",
                vec![("const", THEME.keyword), ("string", THEME.type_), ("`b`", THEME.string)],
            ),
            (
                "go",
                "func f() error { return nil }",
                vec![("func", THEME.keyword), ("error", THEME.type_), ("nil", THEME.keyword)],
            ),
            (
                "c++",
                "static int x = 0x1F; /* y */",
                vec![
                    ("static", THEME.keyword),
                    ("int", THEME.type_),
                    ("0x1F", THEME.number),
                    ("/* y */", THEME.comment),
                ],
            ),
            ("java", "public class A {}", vec![("public", THEME.keyword), ("class", THEME.keyword)]),
            ("c#", "using System;", vec![("using", THEME.keyword), ("System", THEME.type_)]),
            (
                "bash",
                "if [ $# -gt 0 ]; then # x",
                vec![("if", THEME.keyword), ("then", THEME.keyword), ("# x", THEME.comment), ("0", THEME.number)],
            ),
            (
                "json",
                "{\"a\": \"b\", \"c\": [1.5e-3, true]}",
                vec![
                    ("\"a\"", THEME.type_),
                    ("\"b\"", THEME.string),
                    ("1.5e-3", THEME.number),
                    ("true", THEME.keyword),
                ],
            ),
            (
                "yaml",
                "my-key: true # x",
                vec![("my-key", THEME.type_), ("true", THEME.keyword), ("# x", THEME.comment)],
            ),
            ("toml", "name = \"x\"", vec![("name", THEME.type_), ("\"x\"", THEME.string)]),
            (
                "sql",
                "SELECT a FROM b -- c",
                vec![("SELECT", THEME.keyword), ("FROM", THEME.keyword), ("-- c", THEME.comment)],
            ),
            (
                "html",
                "<a href=\"x\">y</a><!-- z -->",
                vec![
                    ("a", THEME.keyword),
                    ("href", THEME.type_),
                    ("\"x\"", THEME.string),
                    ("<!-- z -->", THEME.comment),
                ],
            ),
            (
                "css",
                "a { font-size: 12px; } /* b */",
                vec![("font-size", THEME.type_), ("12px", THEME.number), ("/* b */", THEME.comment)],
            ),
            (
                "ruby",
                "def a; nil; end # b",
                vec![("def", THEME.keyword), ("end", THEME.keyword), ("# b", THEME.comment)],
            ),
            ("diff", "+a", vec![("+a", THEME.added)]),
            ("rust", "0..10", vec![("0", THEME.number), ("10", THEME.number)]),
        ] {
            let spans = Highlighter::new(language).line(line, &THEME);
            for (text, style) in tokens {
                let found = spans.iter().any(|span| span.content == text && span.style == style);
                assert!(found, "{language}: {text:?} in {spans:?}");
            }
        }
    }

    #[test]
    fn comments_and_strings_continue_in_the_next_line() {
        for (language, lines, style) in [
            ("rust", ["a /* b", "let", "c */ d"], THEME.comment),
            ("python", ["x = \"\"\"a", "def", "b\"\"\" + y"], THEME.string),
            ("js", ["x = `a", "let", "b`; y"], THEME.string),
            ("html", ["<!--", "a=\"b\"", "--> x"], THEME.comment),
        ] {
            let mut highlighter = Highlighter::new(language);
            highlighter.line(lines[0], &THEME);
            assert_eq!(highlighter.line(lines[1], &THEME), [Span::styled(lines[1], style)], "{language}");
            let last = highlighter.line(lines[2], &THEME);
            assert_eq!(last.last().map(|span| span.style), Some(Style::new()), "{language}: {last:?}");
        }
    }

    #[test]
    fn an_ordinary_string_ends_with_its_line() {
        let mut highlighter = Highlighter::new("c");
        highlighter.line("x = \"not closed", &THEME);
        assert_eq!(highlighter.line("int", &THEME), [Span::styled("int", THEME.type_)]);
    }

    #[test]
    fn unknown_languages_have_one_style() {
        assert_eq!(Highlighter::new("klingon").line("let x = 1", &THEME), [Span::styled("let x = 1", THEME.code)]);
        assert_eq!(Highlighter::new("").line("", &THEME).len(), 1);
    }

    #[test]
    fn the_spans_are_the_line_for_any_input() {
        let languages = [
            "rust", "python", "js", "go", "c", "java", "cs", "sh", "json", "yaml", "toml", "sql", "html", "css", "rb",
            "diff", "",
        ];
        let mut random = Random::new(17);
        for language in languages {
            let mut highlighter = Highlighter::new(language);
            for round in 0..300 {
                let line = random_text(&mut random, 10);
                let text: String = highlighter.line(&line, &THEME).iter().map(|span| &*span.content).collect();
                assert_eq!(text, line, "{language}, round {round}");
            }
        }
    }
}
