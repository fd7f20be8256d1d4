//! Parses expansions, which begin with a dollar sign or a backquote.

use super::ParseError;
use super::ast::{List, UNKNOWN, Word};
use super::parse::{ListEnd, Parser, is_name};

/// The quoting context of an expansion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quotes {
    None,
    Double,
    Heredoc,
}

impl Parser<'_> {
    /// Parses an expansion that begins with a dollar sign.
    pub(super) fn dollar(&mut self, word: &mut Word, quotes: Quotes) -> Result<(), ParseError> {
        let next = self.chars.get(self.at + 1).copied();
        match next {
            Some('(') if self.next_is("$((") => self.arithmetic(word),
            Some('(') => {
                self.at += 2;
                word.substitutions.push(self.substitution()?);
                word.text.push(UNKNOWN);
                Ok(())
            }
            Some('{') => self.braced(word),
            Some('\'' | '"') if quotes == Quotes::None => self.fail("`$'…'` and `$\"…\"` differ between shells"),
            Some('[') => self.fail("`$[` differs between shells"),
            Some('\\') if self.next_is("$\\\n") => self.fail("a word is continued on the next line"),
            Some(letter) if letter.is_ascii_alphabetic() || letter == '_' => {
                self.at += 1;
                let name = self.name();
                word.text.push(placeholder_for(&name, word));
                Ok(())
            }
            Some('0'..='9' | '@' | '*' | '#' | '?' | '-' | '$' | '!') => {
                self.at += 2;
                word.text.push(UNKNOWN);
                Ok(())
            }
            Some(_) | None => {
                self.at += 1;
                word.text.push('$');
                Ok(())
            }
        }
    }

    /// Parses the commands of `$(…)`.
    fn substitution(&mut self) -> Result<List, ParseError> {
        let waiting = std::mem::take(&mut self.pending);
        let begin = self.at;
        let list = self.nested(|parser| parser.list(ListEnd::Substitution))?;
        if !waiting.is_empty() && self.chars[begin..self.at].contains(&'\n') {
            return self.fail("a here-document that begins inside or after a substitution");
        }
        self.pending = waiting;
        self.at += 1;
        Ok(list)
    }

    /// Parses the name of a variable.
    fn name(&mut self) -> String {
        let rest = &self.chars[self.at..];
        let name: String = rest.iter().take_while(|letter| letter.is_ascii_alphanumeric() || **letter == '_').collect();
        self.at += name.len();
        name
    }

    /// Parses `${…}`. Only the POSIX forms with a plain word are accepted.
    fn braced(&mut self, word: &mut Word) -> Result<(), ParseError> {
        self.at += 2;
        let length = self.peek() == Some('#') && !self.next_is("#}");
        if length {
            self.at += 1;
        }
        let mut name = self.name();
        if name.is_empty() {
            match self.peek() {
                Some(letter @ ('@' | '*' | '#' | '?' | '-' | '$' | '!')) => {
                    self.at += 1;
                    name.push(letter);
                }
                Some(_) | None => return self.fail("an expansion that is not supported by every shell"),
            }
        }
        let begin = self.at;
        while self.peek().is_some_and(is_plain) {
            self.at += 1;
        }
        if self.peek() != Some('}') {
            return self.fail("an expansion with more than a plain word in it");
        }
        let rest: String = self.chars[begin..self.at].iter().collect();
        let operator = rest.strip_prefix(':').unwrap_or(&rest);
        let known = match operator.chars().next() {
            None => rest.is_empty(),
            Some('-' | '=' | '?' | '+') => !length,
            Some('#' | '%') => !length && !rest.starts_with(':'),
            Some(_) => false,
        };
        if !known || (!is_name(&name) && !rest.is_empty() && name.parse::<u32>().is_err()) {
            return self.fail("an expansion that is not supported by every shell");
        }
        if operator.starts_with('=') {
            word.assigns.push(name.clone());
        }
        self.at += 1;
        word.text.push(if rest.is_empty() && !length { placeholder_for(&name, word) } else { UNKNOWN });
        Ok(())
    }

    /// Parses `$((…))` with numbers, names and operators.
    fn arithmetic(&mut self, word: &mut Word) -> Result<(), ParseError> {
        let begin = self.at + "$((".len();
        let mut open = 0_usize;
        self.at = begin;
        loop {
            match self.peek() {
                Some(')') if open == 0 && self.next_is("))") => break,
                Some(')') if open > 0 => open -= 1,
                Some('(') => open += 1,
                Some(letter) if letter.is_ascii_alphanumeric() || " _+-*/%<>=!&|^?:$\t".contains(letter) => {}
                Some(_) | None => return self.fail("arithmetic that is not supported by every shell"),
            }
            self.at += 1;
        }
        let text: String = self.chars[begin..self.at].iter().collect();
        let compared = text.replace("==", "").replace("!=", "").replace("<=", "").replace(">=", "");
        if compared.contains('=') || text.contains("++") || text.contains("--") {
            return self.fail("arithmetic that assigns");
        }
        let numbers = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_' || letter == '$'));
        if numbers.filter(|word| !word.is_empty()).any(|word| word.parse::<u64>().is_err()) {
            self.shared.arithmetic_uses_variables = true;
        }
        self.at += 2;
        word.numeric_unknowns += 1;
        word.text.push(UNKNOWN);
        Ok(())
    }

    /// Parses a backquoted substitution without escapes.
    pub(super) fn backquoted(&mut self, word: &mut Word, quotes: Quotes) -> Result<(), ParseError> {
        let begin = self.at + 1;
        let Some(length) = self.chars[begin..].iter().position(|letter| *letter == '`') else {
            return self.fail("a backquote is not terminated");
        };
        let inner = &self.chars[begin..begin + length];
        if inner.contains(&'\\') || (quotes != Quotes::None && inner.contains(&'"')) {
            return self.fail("a backquoted command with something escaped in it");
        }
        let mut parser = Parser::new(inner, self.limits);
        parser.depth = self.depth;
        parser.shared = std::mem::take(&mut self.shared);
        let list = parser.nested(|parser| parser.list(ListEnd::Text));
        self.shared = parser.shared;
        word.substitutions.push(list.map_err(|error| ParseError { at: error.at + begin, ..error })?);
        word.text.push(UNKNOWN);
        self.at = begin + length + 1;
        Ok(())
    }
}

/// Returns the placeholder of a variable. At the start of a word `HOME` becomes `~` and `PWD` becomes `.`.
fn placeholder_for(name: &str, word: &Word) -> char {
    match name {
        "HOME" if word.text.is_empty() => '~',
        "PWD" if word.text.is_empty() => '.',
        _ => UNKNOWN,
    }
}

/// Returns whether a character in `${…}` is literal in every shell.
fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_./:@%+,-*?= #~".contains(letter)
}
