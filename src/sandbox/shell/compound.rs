//! Parses compound commands: `if`, `for`, `case` and functions.

use super::ParseError;
use super::ast::{Command, CompoundKind, SimpleCommand, Word};
use super::parse::{ListEnd, Parser, is_meta, is_name};

impl Parser<'_> {
    pub(super) fn conditional(&mut self) -> Result<Command, ParseError> {
        let mut lists = Vec::new();
        self.at += "if".len();
        loop {
            lists.push(self.until(&["then"])?);
            lists.push(self.list(ListEnd::Words(&["elif", "else", "fi"]))?);
            let word = self.reserved();
            self.at += word.map_or(0, str::len);
            if word == Some("else") {
                lists.push(self.until(&["fi"])?);
            }
            if word != Some("elif") {
                return self.compound(CompoundKind::If, Vec::new(), lists);
            }
        }
    }

    pub(super) fn for_loop(&mut self) -> Result<Command, ParseError> {
        self.at += "for".len();
        self.skip_blanks();
        let variable = self.word()?;
        if variable.quoted || !is_name(&variable.text) {
            return self.fail("the variable of `for` is not a name");
        }
        self.skip_lines()?;
        let mut words = Vec::new();
        if self.reserved() == Some("in") {
            self.at += "in".len();
            self.skip_blanks();
            while self.peek().is_some_and(|letter| !is_meta(letter)) {
                words.push(self.word()?);
                self.skip_blanks();
            }
            if !matches!(self.peek(), Some(';' | '\n')) {
                return self.fail("the words of `for` are not terminated");
            }
        }
        if self.peek() == Some(';') {
            self.at += 1;
        }
        self.skip_lines()?;
        self.expect_word("do")?;
        let body = self.until(&["done"])?;
        self.compound(CompoundKind::For { variable: variable.text }, words, vec![body])
    }

    pub(super) fn case(&mut self) -> Result<Command, ParseError> {
        self.at += "case".len();
        self.skip_blanks();
        let mut words = vec![self.word()?];
        let mut lists = Vec::new();
        self.skip_lines()?;
        self.expect_word("in")?;
        loop {
            self.skip_lines()?;
            if self.reserved() == Some("esac") {
                self.at += "esac".len();
                return self.compound(CompoundKind::Case, words, lists);
            }
            if self.peek() == Some('(') {
                self.at += 1;
            }
            self.patterns(&mut words)?;
            lists.push(self.list(ListEnd::Case)?);
            if self.next_is(";;&") || self.next_is(";;;") {
                return self.fail("`;;&` is not supported by every shell");
            }
            if self.next_is(";;") {
                self.at += 2;
            }
        }
    }

    /// Parses the patterns of a `case` branch, and the parenthesis after them.
    fn patterns(&mut self, words: &mut Vec<Word>) -> Result<(), ParseError> {
        loop {
            self.skip_blanks();
            words.push(self.word()?);
            self.skip_blanks();
            match self.peek() {
                Some('|') => self.at += 1,
                Some(')') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(_) | None => return self.fail("a pattern of `case` is not terminated"),
            }
        }
    }

    pub(super) fn function(&mut self, simple: SimpleCommand) -> Result<Command, ParseError> {
        let name = match simple {
            SimpleCommand { assignments, words, redirects } if assignments.is_empty() && redirects.is_empty() => {
                match <[Word; 1]>::try_from(words) {
                    Ok([name]) if !name.quoted && name.is_literal() => name.text,
                    Ok(_) | Err(_) => return self.fail("a parenthesis is misplaced"),
                }
            }
            SimpleCommand { .. } => return self.fail("a parenthesis is misplaced"),
        };
        self.at += 1;
        self.skip_blanks();
        if self.peek() != Some(')') {
            return self.fail("a parenthesis is misplaced");
        }
        self.at += 1;
        self.skip_lines()?;
        let body = self.nested(Self::command)?;
        match body {
            Command::Compound { .. } => Ok(Command::Function { name, body: Box::new(body) }),
            Command::Simple(_) | Command::Function { .. } => {
                self.fail("the body of a function is not a compound command")
            }
        }
    }
}
