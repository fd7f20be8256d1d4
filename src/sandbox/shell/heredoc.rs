//! Parses here-documents: the delimiter after the operator, and the body after the line.

use super::ParseError;
use super::ast::{Redirect, RedirectKind, Word};
use super::expansion::Quotes;
use super::parse::{HeredocKind, LeadingTabs, Parser, PendingHeredoc, is_meta};

impl Parser<'_> {
    /// Parses the delimiter: a plain word, which may be quoted as a whole.
    pub(super) fn heredoc(&mut self, tabs: LeadingTabs) -> Result<Redirect, ParseError> {
        let raw: String = self.chars[self.at..].iter().take_while(|letter| !is_meta(**letter)).collect();
        self.at += raw.chars().count();
        let quoted = ['\'', '"'].into_iter().find_map(|quote| raw.strip_prefix(quote)?.strip_suffix(quote));
        let (delimiter, kind) = match quoted.or_else(|| raw.strip_prefix('\\')) {
            Some(delimiter) => (delimiter.to_owned(), HeredocKind::Literal),
            None => (raw, HeredocKind::Expanded),
        };
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "_.+-".contains(letter);
        if delimiter.is_empty() || !delimiter.chars().all(plain) {
            return self.fail("the delimiter of a here-document is not a plain word");
        }
        let body = self.shared.bodies.len();
        self.shared.bodies.push(Word::default());
        let target = Word { text: delimiter.clone(), ..Word::default() };
        self.pending.push(PendingHeredoc { delimiter, body, kind, tabs });
        Ok(Redirect { kind: RedirectKind::Heredoc(body), target })
    }

    /// Reads the pending bodies, which start after a line break.
    pub(super) fn read_heredoc_bodies(&mut self) -> Result<(), ParseError> {
        for pending in std::mem::take(&mut self.pending) {
            let body = self.heredoc_body(&pending)?;
            self.shared.bodies[pending.body] = body;
        }
        Ok(())
    }

    fn heredoc_body(&mut self, pending: &PendingHeredoc) -> Result<Word, ParseError> {
        let begin = self.at;
        let mut text: Vec<char> = Vec::new();
        loop {
            if self.at == self.chars.len() {
                return self.fail("a here-document is not terminated");
            }
            let rest = &self.chars[self.at..];
            let length = rest.iter().position(|letter| *letter == '\n');
            let line = &rest[..length.unwrap_or(rest.len())];
            self.at += length.map_or(line.len(), |length| length + 1);
            let tabs = match pending.tabs {
                LeadingTabs::Keep => 0,
                LeadingTabs::Strip => line.iter().take_while(|letter| **letter == '\t').count(),
            };
            let line = &line[tabs..];
            if line.iter().copied().eq(pending.delimiter.chars()) {
                break;
            }
            // Shells disagree on whether the next line can be the delimiter.
            if pending.kind == HeredocKind::Expanded && line.last() == Some(&'\\') {
                return self.fail("a here-document with continued lines");
            }
            text.extend(line);
            text.push('\n');
        }
        match pending.kind {
            HeredocKind::Literal => Ok(Word { text: text.into_iter().collect(), quoted: true, ..Word::default() }),
            HeredocKind::Expanded => self.expanded_heredoc(&text, begin),
        }
    }

    fn expanded_heredoc(&mut self, text: &[char], begin: usize) -> Result<Word, ParseError> {
        let mut word = Word { quoted: true, ..Word::default() };
        let mut parser = Parser::new(text, self.limits);
        parser.depth = self.depth;
        parser.shared = std::mem::take(&mut self.shared);
        let mut read = Ok(());
        while let (Some(letter), Ok(())) = (parser.peek(), &read) {
            read = parser.quoted_char(letter, &mut word, Quotes::Heredoc);
        }
        self.shared = parser.shared;
        read.map_err(|error| ParseError { at: error.at + begin, ..error })?;
        Ok(word)
    }
}
