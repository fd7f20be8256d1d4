//! A reader of Rust source as text: tokens, paths and functions, only as much as the rules need.
//!
//! It knows comments, strings, character literals, `use` trees and code behind `#[cfg(test)]`. It expands no macro
//! and resolves no name: a rule that needs that belongs in the compiler.

use std::collections::BTreeSet;
use std::fmt;
use std::iter::Peekable;
use std::str::CharIndices;

/// One file under `src`, without its comments and without its test code.
pub(crate) struct Source {
    /// Its path below `src`, with forward slashes.
    pub(crate) path: String,
    /// Its text, unchanged.
    pub(crate) text: String,
    /// The module path of its items, below the crate root.
    pub(crate) module: Vec<String>,
    /// The file that declares it by `#[path]`, directly or through another file.
    pub(crate) parent: Option<String>,
    /// The tokens that are compiled outside of tests.
    pub(crate) tokens: Vec<Token>,
}

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// Its kind.
    pub(crate) kind: Kind,
    /// Its text; the contents of a string, without its quotes.
    pub(crate) text: String,
    /// The line it begins on, counted from one.
    pub(crate) line: usize,
    /// The line it ends on.
    pub(crate) end: usize,
}

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier, a keyword or a number.
    Word,
    /// A string literal.
    Text,
    /// `::`.
    Separator,
    /// Any other character.
    Mark,
}

/// A path that the source names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    /// Its segments; `*` for a glob.
    pub(crate) segments: Vec<String>,
    /// The inline modules around it.
    pub(crate) inside: Vec<String>,
    /// Its line.
    pub(crate) line: usize,
}

impl Path {
    /// Tells whether the path begins with the segments of `prefix`, written as in source.
    pub(crate) fn begins_with(&self, prefix: &str) -> bool {
        begins_with(&self.segments, prefix)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.segments.join("::"))
    }
}

/// A function and its size.
pub(crate) struct Function {
    /// Its name.
    pub(crate) name: String,
    /// Its first line.
    pub(crate) line: usize,
    /// How many lines of code it has.
    pub(crate) lines: usize,
}

impl Source {
    /// Reads one file; `path` is relative to `src`.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            module: module_of(path),
            parent: None,
            tokens: without_tests(&lex(text)),
        }
    }

    /// Returns every path that is named, with `use` trees expanded.
    pub(crate) fn paths(&self) -> Vec<Path> {
        let tokens = &self.tokens;
        let mut found = Vec::new();
        let mut inline: Vec<(String, usize)> = Vec::new();
        let (mut depth, mut at) = (0_usize, 0_usize);
        while at < tokens.len() {
            if mark(tokens, at, "{") {
                if at >= 2 && word(tokens, at - 2, "mod") {
                    inline.push((tokens[at - 1].text.clone(), depth));
                }
                depth += 1;
            } else if mark(tokens, at, "}") {
                depth = depth.saturating_sub(1);
                inline.retain(|(_, opened)| *opened < depth);
            } else if begins_path(tokens, at) {
                let inside: Vec<String> = inline.iter().map(|(name, _)| name.clone()).collect();
                at = tree(tokens, at, &[], &inside, &mut found);
                continue;
            }
            at += 1;
        }
        found
    }

    /// Returns every function with a body.
    pub(crate) fn functions(&self) -> Vec<Function> {
        let tokens = &self.tokens;
        let mut found = Vec::new();
        for at in 0..tokens.len() {
            if !word(tokens, at, "fn") || !tokens.get(at + 1).is_some_and(|next| next.kind == Kind::Word) {
                continue;
            }
            let Some(open) = body(tokens, at) else { continue };
            let close = closing(tokens, open);
            found.push(Function {
                name: tokens[at + 1].text.clone(),
                line: tokens[at].line,
                lines: lines_of(&tokens[at..=close]),
            });
        }
        found
    }

    /// Returns how many lines hold code.
    pub(crate) fn lines_of_code(&self) -> usize {
        lines_of(&self.tokens)
    }

    /// Returns the `mod name;` declarations: the name, and the file that a `#[path]` gives it.
    pub(crate) fn declared_modules(&self) -> Vec<(String, Option<String>)> {
        let tokens = &self.tokens;
        let mut found = Vec::new();
        let mut file = None;
        for at in 0..tokens.len() {
            if mark(tokens, at, "#") && word(tokens, at + 2, "path") && tokens[at + 4].kind == Kind::Text {
                file = Some(tokens[at + 4].text.clone());
            } else if word(tokens, at, "mod") && mark(tokens, at + 2, ";") {
                found.push((tokens[at + 1].text.clone(), file.take()));
            }
        }
        found
    }
}

/// Returns the files that a file at `path` declares for tests only, `#[cfg(test)] mod name;`, without `.rs`.
pub(crate) fn test_files(path: &str, text: &str) -> Vec<String> {
    let tokens = lex(text);
    let beside = path.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    let below = match path.strip_suffix("mod.rs").or_else(|| path.strip_suffix("lib.rs")) {
        Some(folder) => folder.to_owned(),
        None => format!("{}/", path.trim_end_matches(".rs")),
    };
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let Some(after) = test_attribute(&tokens, at) else { continue };
        let item = skip_attributes(&tokens, after);
        let Some(name) = (item..item + 5).find(|&i| word(&tokens, i, "mod")).map(|i| i + 1) else { continue };
        if mark(&tokens, name + 1, ";") {
            let elsewhere = tokens[after..item].iter().find(|token| token.kind == Kind::Text);
            found.push(match elsewhere {
                Some(file) => format!("{beside}{}", file.text.trim_end_matches(".rs")),
                None => format!("{below}{}", tokens[name].text),
            });
        }
    }
    found
}

/// Tells whether `segments` begin with the segments of `prefix`, written as in source.
pub(crate) fn begins_with(segments: &[String], prefix: &str) -> bool {
    let wanted: Vec<&str> = prefix.split("::").collect();
    segments.len() >= wanted.len() && segments.iter().zip(&wanted).all(|(have, want)| have == want)
}

fn module_of(path: &str) -> Vec<String> {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let mut module: Vec<String> = stem.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| last == "mod" || (last == "lib" && module.len() == 1)) {
        module.pop();
    }
    module
}

fn word(tokens: &[Token], at: usize, text: &str) -> bool {
    tokens.get(at).is_some_and(|token| token.kind == Kind::Word && token.text == text)
}

fn mark(tokens: &[Token], at: usize, text: &str) -> bool {
    tokens.get(at).is_some_and(|token| token.kind == Kind::Mark && token.text == text)
}

fn separator(tokens: &[Token], at: usize) -> bool {
    tokens.get(at).is_some_and(|token| token.kind == Kind::Separator)
}

/// A path begins at a word that `::` follows and does not precede, at a leading `::`, and after `use`.
fn begins_path(tokens: &[Token], at: usize) -> bool {
    if tokens[at].kind != Kind::Word {
        return false;
    }
    let after_separator = at > 0 && separator(tokens, at - 1);
    let leading = after_separator && (at < 2 || tokens[at - 2].kind != Kind::Word);
    let imported = at > 0 && word(tokens, at - 1, "use");
    (separator(tokens, at + 1) && (!after_separator || leading)) || imported
}

/// Reads a `use` tree or a plain path that begins at `at`, and returns where it ends.
fn tree(tokens: &[Token], mut at: usize, prefix: &[String], inside: &[String], found: &mut Vec<Path>) -> usize {
    let mut segments = prefix.to_vec();
    let line = tokens.get(at).map_or(0, |token| token.line);
    loop {
        if mark(tokens, at, "{") {
            at += 1;
            while at < tokens.len() && !mark(tokens, at, "}") {
                let next = tree(tokens, at, &segments, inside, found);
                at = if mark(tokens, next, ",") { next + 1 } else { next.max(at + 1) };
            }
            return at + 1;
        }
        let Some(token) = tokens.get(at) else { break };
        if token.kind != Kind::Word && token.text != "*" {
            break;
        }
        if segments.is_empty() || token.text != "self" {
            segments.push(token.text.clone());
        }
        at += 1;
        if !separator(tokens, at) {
            break;
        }
        at += 1;
    }
    if word(tokens, at, "as") {
        at += 2;
    }
    found.push(Path { segments, inside: inside.to_vec(), line });
    at
}

/// Returns where the body of the function at `at` opens, if it has one.
fn body(tokens: &[Token], at: usize) -> Option<usize> {
    let mut nesting = 0_i32;
    for (index, token) in tokens.iter().enumerate().skip(at).filter(|(_, token)| token.kind == Kind::Mark) {
        match token.text.as_str() {
            "(" | "[" => nesting += 1,
            ")" | "]" => nesting -= 1,
            "{" if nesting == 0 => return Some(index),
            ";" if nesting == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Returns the brace that closes the one at `open`, or the last token.
fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0_usize;
    for at in open..tokens.len() {
        if mark(tokens, at, "{") {
            depth += 1;
        } else if mark(tokens, at, "}") {
            depth -= 1;
            if depth == 0 {
                return at;
            }
        }
    }
    tokens.len() - 1
}

fn lines_of(tokens: &[Token]) -> usize {
    tokens.iter().flat_map(|token| token.line..=token.end).collect::<BTreeSet<_>>().len()
}

fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if let Some(after) = test_attribute(tokens, at) {
            if mark(tokens, at + 1, "!") {
                return Vec::new();
            }
            at = end_of_item(tokens, skip_attributes(tokens, after));
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// Returns where the attribute that begins at `at` ends, if it makes an item test-only.
fn test_attribute(tokens: &[Token], at: usize) -> Option<usize> {
    let after = attribute(tokens, at)?;
    let inner = &tokens[at..after];
    let says = |text: &str| inner.iter().any(|token| token.kind == Kind::Word && token.text == text);
    let is_test = says("test") && !says("not") && !says("any") && !says("cfg_attr");
    (is_test && (says("cfg") || inner.len() == 4)).then_some(after)
}

/// Returns where the attribute that begins at `at` ends.
fn attribute(tokens: &[Token], at: usize) -> Option<usize> {
    let open = if mark(tokens, at + 1, "!") { at + 2 } else { at + 1 };
    if !mark(tokens, at, "#") || !mark(tokens, open, "[") {
        return None;
    }
    let mut nesting = 0_usize;
    for index in open..tokens.len() {
        if mark(tokens, index, "[") {
            nesting += 1;
        } else if mark(tokens, index, "]") {
            nesting -= 1;
            if nesting == 0 {
                return Some(index + 1);
            }
        }
    }
    None
}

fn skip_attributes(tokens: &[Token], mut at: usize) -> usize {
    while let Some(after) = attribute(tokens, at) {
        at = after;
    }
    at
}

fn end_of_item(tokens: &[Token], at: usize) -> usize {
    match body(tokens, at) {
        Some(open) => closing(tokens, open) + 1,
        None => (at..tokens.len()).find(|&index| mark(tokens, index, ";")).map_or(tokens.len(), |end| end + 1),
    }
}

/// Splits a text into tokens; comments are dropped.
pub(crate) fn lex(text: &str) -> Vec<Token> {
    let mut lexer = Lexer { text, rest: text.char_indices().peekable(), line: 1, tokens: Vec::new() };
    while lexer.step() {}
    lexer.tokens
}

struct Lexer<'a> {
    text: &'a str,
    rest: Peekable<CharIndices<'a>>,
    line: usize,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    fn step(&mut self) -> bool {
        let Some(&(at, first)) = self.rest.peek() else { return false };
        let ahead = &self.text[at..];
        if ahead.starts_with("//") {
            self.skip(ahead.find('\n').unwrap_or(ahead.len()));
        } else if ahead.starts_with("/*") {
            self.skip(block_comment(ahead));
        } else if let Some((quote, hashes)) = raw_string(ahead) {
            let close = format!("\"{}", "#".repeat(hashes));
            let length = ahead[quote..].find(&close).map_or(ahead.len() - quote, |length| length);
            self.push(Kind::Text, &ahead[quote..quote + length], (quote + length + close.len()).min(ahead.len()));
        } else if let Some(quote) = plain_string(ahead) {
            let length = quoted(&ahead[quote..], '"');
            self.push(Kind::Text, &ahead[quote..quote + length], (quote + length + 1).min(ahead.len()));
        } else if first == '\'' {
            self.skip(character_or_lifetime(ahead));
        } else if first.is_alphanumeric() || first == '_' {
            let raw = if ahead.starts_with("r#") { 2 } else { 0 };
            let length = ahead[raw..].find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(ahead.len() - raw);
            self.push(Kind::Word, &ahead[raw..raw + length], raw + length);
        } else if ahead.starts_with("::") {
            self.push(Kind::Separator, "::", 2);
        } else if first.is_whitespace() {
            self.skip(first.len_utf8());
        } else {
            self.push(Kind::Mark, &ahead[..first.len_utf8()], first.len_utf8());
        }
        true
    }

    fn push(&mut self, kind: Kind, text: &str, bytes: usize) {
        let (text, line) = (text.to_owned(), self.line);
        self.skip(bytes);
        self.tokens.push(Token { kind, text, line, end: self.line });
    }

    fn skip(&mut self, bytes: usize) {
        let Some(&(start, _)) = self.rest.peek() else { return };
        while let Some((_, c)) = self.rest.next_if(|(at, _)| *at < start + bytes) {
            self.line += usize::from(c == '\n');
        }
    }
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0_usize);
    while at < text.len() {
        let ahead = &text.as_bytes()[at..];
        if ahead.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if ahead.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Returns where the contents of a raw string begin and how many hashes close it.
fn raw_string(text: &str) -> Option<(usize, usize)> {
    let prefix = ["br", "cr", "r"].into_iter().find(|prefix| text.starts_with(prefix))?;
    let after = &text[prefix.len()..];
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then_some((prefix.len() + hashes + 1, hashes))
}

/// Returns where the contents of a string begin.
fn plain_string(text: &str) -> Option<usize> {
    ["b\"", "c\"", "\""].into_iter().find(|prefix| text.starts_with(prefix)).map(str::len)
}

/// Returns how long the text is before its closing quote.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return at;
        }
    }
    text.len()
}

fn character_or_lifetime(text: &str) -> usize {
    let mut inner = text.chars().skip(1);
    let (first, second) = (inner.next(), inner.next());
    if first == Some('\\') || second == Some('\'') {
        return (1 + quoted(&text[1..], '\'') + 1).min(text.len());
    }
    let name = &text[1..];
    1 + name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len())
}
