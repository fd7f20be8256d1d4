//! Parses here-documents: the delimiter after the operator, and the body after the line.

use super::Unclear;
use super::expansion::Quotes;
use super::parse::{Document, Parser, Pending, Tabs, is_meta};
use super::tree::{Redirect, Way, Word};

impl Parser<'_> {
    /// Parses the delimiter: a plain word, which may be quoted as a whole.
    pub(super) fn document(&mut self, tabs: Tabs) -> Result<Redirect, Unclear> {
        let raw: String = self.chars[self.at..].iter().take_while(|letter| !is_meta(**letter)).collect();
        self.at += raw.chars().count();
        let quoted = ['\'', '"'].into_iter().find_map(|quote| raw.strip_prefix(quote)?.strip_suffix(quote));
        let (delimiter, kind) = match quoted.or_else(|| raw.strip_prefix('\\')) {
            Some(delimiter) => (delimiter.to_owned(), Document::Literal),
            None => (raw, Document::Expanded),
        };
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "_.+-".contains(letter);
        if delimiter.is_empty() || !delimiter.chars().all(plain) {
            return self.unclear("the delimiter of a here-document is not a plain word");
        }
        let body = self.shared.bodies.len();
        self.shared.bodies.push(Word::default());
        let target = Word { text: delimiter.clone(), ..Word::default() };
        self.pending.push(Pending { delimiter, body, kind, tabs });
        Ok(Redirect { way: Way::Document(body), target })
    }

    /// Reads the pending bodies, which start after a line break.
    pub(super) fn read_documents(&mut self) -> Result<(), Unclear> {
        for pending in std::mem::take(&mut self.pending) {
            let body = self.body(&pending)?;
            self.shared.bodies[pending.body] = body;
        }
        Ok(())
    }

    fn body(&mut self, pending: &Pending) -> Result<Word, Unclear> {
        let begin = self.at;
        let mut text: Vec<char> = Vec::new();
        loop {
            if self.at == self.chars.len() {
                return self.unclear("a here-document is not terminated");
            }
            let rest = &self.chars[self.at..];
            let length = rest.iter().position(|letter| *letter == '\n');
            let line = &rest[..length.unwrap_or(rest.len())];
            self.at += length.map_or(line.len(), |length| length + 1);
            let tabs = match pending.tabs {
                Tabs::Kept => 0,
                Tabs::Dropped => line.iter().take_while(|letter| **letter == '\t').count(),
            };
            let line = &line[tabs..];
            if line.iter().copied().eq(pending.delimiter.chars()) {
                break;
            }
            // Shells disagree on whether the next line can be the delimiter.
            if pending.kind == Document::Expanded && line.last() == Some(&'\\') {
                return self.unclear("a here-document with continued lines");
            }
            text.extend(line);
            text.push('\n');
        }
        match pending.kind {
            Document::Literal => {
                Ok(Word { text: text.into_iter().collect(), quoted: true, ..Word::default() })
            }
            Document::Expanded => self.expanded(&text, begin),
        }
    }

    fn expanded(&mut self, text: &[char], begin: usize) -> Result<Word, Unclear> {
        let mut word = Word { quoted: true, ..Word::default() };
        let mut parser = Parser::new(text, self.limits);
        parser.depth = self.depth;
        parser.shared = std::mem::take(&mut self.shared);
        let mut read = Ok(());
        while let (Some(letter), Ok(())) = (parser.peek(), &read) {
            read = parser.inside(letter, &mut word, Quotes::Document);
        }
        self.shared = parser.shared;
        read.map_err(|unclear| Unclear { at: unclear.at + begin, ..unclear })?;
        Ok(word)
    }
}
