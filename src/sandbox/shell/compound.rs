//! Parses compound commands: `if`, `for`, `case` and functions.

use super::Unclear;
use super::parse::{End, Parser, is_meta, is_name};
use super::tree::{Block, Command, Simple, Word};

impl Parser<'_> {
    pub(super) fn conditional(&mut self) -> Result<Command, Unclear> {
        let mut lists = Vec::new();
        self.at += "if".len();
        loop {
            lists.push(self.until(&["then"])?);
            lists.push(self.list(End::Words(&["elif", "else", "fi"]))?);
            let word = self.reserved();
            self.at += word.map_or(0, str::len);
            if word == Some("else") {
                lists.push(self.until(&["fi"])?);
            }
            if word != Some("elif") {
                return self.compound(Block::If, Vec::new(), lists);
            }
        }
    }

    pub(super) fn for_loop(&mut self) -> Result<Command, Unclear> {
        self.at += "for".len();
        self.skip_blanks();
        let variable = self.word()?;
        if variable.quoted || !is_name(&variable.text) {
            return self.unclear("the variable of `for` is not a name");
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
                return self.unclear("the words of `for` are not terminated");
            }
        }
        if self.peek() == Some(';') {
            self.at += 1;
        }
        self.skip_lines()?;
        self.expect_word("do")?;
        let body = self.until(&["done"])?;
        self.compound(Block::For { variable: variable.text }, words, vec![body])
    }

    pub(super) fn case(&mut self) -> Result<Command, Unclear> {
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
                return self.compound(Block::Case, words, lists);
            }
            if self.peek() == Some('(') {
                self.at += 1;
            }
            self.patterns(&mut words)?;
            lists.push(self.list(End::Case)?);
            if self.next_is(";;&") || self.next_is(";;;") {
                return self.unclear("`;;&` is not supported by every shell");
            }
            if self.next_is(";;") {
                self.at += 2;
            }
        }
    }

    /// Parses the patterns of a `case` branch, and the parenthesis after them.
    fn patterns(&mut self, words: &mut Vec<Word>) -> Result<(), Unclear> {
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
                Some(_) | None => return self.unclear("a pattern of `case` is not terminated"),
            }
        }
    }

    pub(super) fn function(&mut self, simple: Simple) -> Result<Command, Unclear> {
        let name = match simple {
            Simple { assignments, words, redirects } if assignments.is_empty() && redirects.is_empty() => {
                match <[Word; 1]>::try_from(words) {
                    Ok([name]) if !name.quoted && name.is_literal() => name.text,
                    Ok(_) | Err(_) => return self.unclear("a parenthesis is misplaced"),
                }
            }
            Simple { .. } => return self.unclear("a parenthesis is misplaced"),
        };
        self.at += 1;
        self.skip_blanks();
        if self.peek() != Some(')') {
            return self.unclear("a parenthesis is misplaced");
        }
        self.at += 1;
        self.skip_lines()?;
        let body = self.deeper(Self::command)?;
        match body {
            Command::Compound { .. } => Ok(Command::Function { name, body: Box::new(body) }),
            Command::Simple(_) | Command::Function { .. } => {
                self.unclear("the body of a function is not a compound command")
            }
        }
    }
}
