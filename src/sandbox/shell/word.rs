//! Parses words: removes quotes and marks the parts that a shell would expand.

use super::ParseError;
use super::ast::{GLOB, UNKNOWN, Word};
use super::expansion::Quotes;
use super::parse::{Parser, is_meta, is_name};

impl Parser<'_> {
    /// Parses a word, which must be present.
    pub(super) fn word(&mut self) -> Result<Word, ParseError> {
        let mut word = Word::default();
        let mut marks = PatternMarks::default();
        let begin = self.at;
        while let Some(letter) = self.peek().filter(|letter| !is_meta(*letter)) {
            match letter {
                '\'' => self.single_quoted(&mut word)?,
                '"' => self.double_quoted(&mut word)?,
                '\\' => self.escaped(&mut word)?,
                '$' => self.dollar(&mut word, Quotes::None)?,
                '`' => self.backquoted(&mut word, Quotes::None)?,
                '~' if self.at == begin => self.tilde(&mut word),
                letter => {
                    self.at += 1;
                    marks.plain(letter, &mut word);
                }
            }
        }
        if self.at == begin {
            return self.fail("a word is missing");
        }
        if self.peek().is_some_and(|letter| matches!(letter, '<' | '>')) && word.text.ends_with('}') {
            return self.fail("a variable for a descriptor is not supported by every shell");
        }
        marks.apply(&mut word);
        Ok(word)
    }

    fn single_quoted(&mut self, word: &mut Word) -> Result<(), ParseError> {
        word.quoted = true;
        self.at += 1;
        loop {
            let Some(letter) = self.peek() else { return self.fail("a quote is not terminated") };
            self.at += 1;
            if letter == '\'' {
                return Ok(());
            }
            push_quoted(letter, word);
        }
    }

    fn double_quoted(&mut self, word: &mut Word) -> Result<(), ParseError> {
        word.quoted = true;
        self.at += 1;
        loop {
            match self.peek() {
                None => return self.fail("a quote is not terminated"),
                Some('"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(letter) => self.quoted_char(letter, word, Quotes::Double)?,
            }
        }
    }

    /// Parses one character or one expansion between double quotes or in a here-document.
    pub(super) fn quoted_char(&mut self, letter: char, word: &mut Word, quotes: Quotes) -> Result<(), ParseError> {
        match letter {
            '\\' => {
                let next = self.chars.get(self.at + 1).copied();
                let special = match next {
                    Some('$' | '`' | '\\' | '\n') => true,
                    Some('"') => quotes == Quotes::Double,
                    Some(_) | None => false,
                };
                if !special {
                    push_quoted('\\', word);
                    self.at += 1;
                    return Ok(());
                }
                if let Some(letter) = next.filter(|letter| *letter != '\n') {
                    push_quoted(letter, word);
                }
                self.at += 2;
                Ok(())
            }
            '$' => self.dollar(word, quotes),
            '`' => self.backquoted(word, quotes),
            letter => {
                push_quoted(letter, word);
                self.at += 1;
                Ok(())
            }
        }
    }

    fn escaped(&mut self, word: &mut Word) -> Result<(), ParseError> {
        match self.chars.get(self.at + 1).copied() {
            // A continuation could be part of a reserved word or an operator; such words are refused.
            None | Some('\n') => self.fail("a word is continued on the next line"),
            Some(letter) => {
                word.quoted = true;
                push_quoted(letter, word);
                self.at += 2;
                Ok(())
            }
        }
    }

    /// Parses a tilde at the start of a word: the user's home, or another user's.
    fn tilde(&mut self, word: &mut Word) {
        self.at += 1;
        let name = |letter: &char| letter.is_ascii_alphanumeric() || "._+-".contains(*letter);
        let begin = self.at;
        while self.peek().as_ref().is_some_and(name) {
            self.at += 1;
        }
        let ends = self.at == begin && self.peek().is_none_or(|letter| letter == '/' || is_meta(letter));
        word.text.push(if ends { '~' } else { UNKNOWN });
    }
}

/// Appends a literal character.
fn push_quoted(letter: char, word: &mut Word) {
    // A quoted tilde is a file of that name, and must not be mistaken for the home.
    word.text.push(if letter == '~' && word.text.is_empty() { UNKNOWN } else { letter });
}

/// Positions of unquoted pattern characters, whose meaning is known only at the end of the word.
#[derive(Default)]
struct PatternMarks {
    bracket: Option<usize>,
    brace: Option<usize>,
}

impl PatternMarks {
    /// Appends an unquoted character.
    fn plain(&mut self, letter: char, word: &mut Word) {
        let at = word.text.len();
        match letter {
            '*' | '?' => word.text.push(GLOB),
            // After empty quotes it is a literal character, and must not be mistaken for the home.
            '~' if at == 0 => word.text.push(UNKNOWN),
            '[' => {
                self.bracket = self.bracket.or(Some(at));
                word.text.push(letter);
            }
            '{' => {
                self.brace = self.brace.or(Some(at));
                word.text.push(letter);
            }
            '=' => {
                word.text.push(letter);
                if word.value_at.is_none() && !word.quoted && is_name(&word.text[..at]) {
                    word.value_at = Some(at + 1);
                }
            }
            letter => word.text.push(letter),
        }
    }

    /// Marks the parts that a shell would expand, once the word is complete.
    fn apply(self, word: &mut Word) {
        let keep = word.value_at.unwrap_or(0);
        if self.bracket.is_some() && word.text != "[" {
            let at = self.bracket.unwrap_or(0);
            word.text.truncate(at);
            word.text.push(UNKNOWN);
        }
        // Only bash expands `{a,b}` and `{1..3}` to several words.
        let braces = self.brace.and_then(|at| word.text.get(at..));
        if braces.is_some_and(|rest| rest.contains(',') || rest.contains("..") || rest.contains(UNKNOWN)) {
            word.text.truncate(keep);
            word.text.push(UNKNOWN);
        }
    }
}
