//! Commands, lists and redirections.

use super::ast::{
    Assignment, Background, Command, CompoundKind, List, Pipeline, RunCondition, Script, SimpleCommand, Word,
};
use super::{Limits, ParseError};

/// Parses one text. A text inside a text gets its own parser, which continues with the same [`SharedState`].
pub(super) struct Parser<'a> {
    pub(super) chars: &'a [char],
    pub(super) at: usize,
    pub(super) depth: usize,
    pub(super) limits: Limits,
    pub(super) shared: SharedState,
    /// Here-documents whose bodies begin after the next line break.
    pub(super) pending: Vec<PendingHeredoc>,
}

/// Counters and results of the whole text.
#[derive(Default)]
pub(super) struct SharedState {
    pub(super) commands: usize,
    pub(super) bodies: Vec<Word>,
    pub(super) arithmetic_uses_variables: bool,
}

/// A here-document whose body has not been read yet.
pub(super) struct PendingHeredoc {
    pub(super) delimiter: String,
    pub(super) body: usize,
    pub(super) kind: HeredocKind,
    pub(super) tabs: LeadingTabs,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HeredocKind {
    Literal,
    Expanded,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LeadingTabs {
    Keep,
    Strip,
}

/// What ends a list.
#[derive(Clone, Copy)]
pub(super) enum ListEnd {
    /// The end of the text.
    Text,
    /// A `)`.
    Paren,
    /// A `)`; the list may be empty.
    Substitution,
    /// One of these words.
    Words(&'static [&'static str]),
    /// A `;;` or `esac`; the list may be empty.
    Case,
}

const RESERVED: [&str; 16] =
    ["if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for", "{", "}", "!", "in"];
/// Words that only bash reserves: it parses what follows them differently.
const BASH_RESERVED: [&str; 4] = ["[[", "function", "select", "coproc"];

impl<'a> Parser<'a> {
    pub(super) fn new(chars: &'a [char], limits: Limits) -> Self {
        Self { chars, at: 0, depth: 0, limits, shared: SharedState::default(), pending: Vec::new() }
    }

    pub(super) fn finish(self, list: List) -> Script {
        let SharedState { bodies, arithmetic_uses_variables, .. } = self.shared;
        Script { list, bodies, arithmetic_uses_variables }
    }

    pub(super) fn fail<T>(&self, what: &'static str) -> Result<T, ParseError> {
        Err(ParseError { at: self.at + 1, what })
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    pub(super) fn next_is(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(index, letter)| self.chars.get(self.at + index) == Some(&letter))
    }

    /// Runs a parser one nesting level deeper.
    pub(super) fn nested<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T, ParseError>) -> Result<T, ParseError> {
        if self.depth == self.limits.depth {
            return self.fail("it is nested too deeply");
        }
        self.depth += 1;
        let done = work(self);
        self.depth -= 1;
        done
    }

    /// Skips blanks, continued lines and a comment.
    pub(super) fn skip_blanks(&mut self) {
        loop {
            match self.peek() {
                Some(' ' | '\t') => self.at += 1,
                Some('\\') if self.next_is("\\\n") => self.at += 2,
                Some('#') => {
                    while self.peek().is_some_and(|letter| letter != '\n') {
                        self.at += 1;
                    }
                }
                Some(_) | None => return,
            }
        }
    }

    pub(super) fn skip_lines(&mut self) -> Result<(), ParseError> {
        self.skip_blanks();
        while self.peek() == Some('\n') {
            self.at += 1;
            self.read_heredoc_bodies()?;
            self.skip_blanks();
        }
        Ok(())
    }

    /// Returns the reserved word at the current position.
    pub(super) fn reserved(&self) -> Option<&'static str> {
        let word: String = self.chars[self.at.min(self.chars.len())..]
            .iter()
            .take(8)
            .take_while(|letter| !is_meta(**letter))
            .collect();
        RESERVED.into_iter().find(|known| *known == word)
    }

    pub(super) fn expect_word(&mut self, word: &'static str) -> Result<(), ParseError> {
        if self.reserved() != Some(word) {
            return self.fail("a compound command is incomplete");
        }
        self.at += word.len();
        Ok(())
    }

    fn is_at(&self, end: ListEnd) -> bool {
        match end {
            ListEnd::Text => self.peek().is_none(),
            ListEnd::Paren | ListEnd::Substitution => self.peek() == Some(')'),
            ListEnd::Words(words) => self.reserved().is_some_and(|word| words.contains(&word)),
            ListEnd::Case => self.next_is(";;") || self.reserved() == Some("esac"),
        }
    }

    pub(super) fn list(&mut self, end: ListEnd) -> Result<List, ParseError> {
        let mut list = List::default();
        loop {
            self.skip_lines()?;
            if self.is_at(end) {
                break;
            }
            let first = list.0.len();
            self.and_or(&mut list)?;
            self.skip_blanks();
            match self.peek() {
                Some(';') if !self.next_is(";;") => self.at += 1,
                Some('&') if self.next_is("&>") => return self.fail("`&>` differs between shells"),
                Some('&') => {
                    self.at += 1;
                    for pipeline in &mut list.0[first..] {
                        pipeline.background = Background::Yes;
                    }
                }
                Some('\n') => {}
                Some(_) | None if self.is_at(end) => break,
                Some(_) | None => return self.fail("this is a syntax error"),
            }
        }
        match end {
            ListEnd::Text | ListEnd::Substitution if !self.pending.is_empty() => {
                self.fail("a here-document has no body")
            }
            ListEnd::Paren | ListEnd::Words(_) if list.0.is_empty() => self.fail("a command is missing"),
            ListEnd::Text | ListEnd::Substitution | ListEnd::Case | ListEnd::Paren | ListEnd::Words(_) => Ok(list),
        }
    }

    fn and_or(&mut self, list: &mut List) -> Result<(), ParseError> {
        let mut condition = RunCondition::Always;
        loop {
            list.0.push(self.pipeline(condition)?);
            self.skip_blanks();
            condition = match () {
                () if self.next_is("&&") => RunCondition::Succeeded,
                () if self.next_is("||") => RunCondition::Failed,
                () => return Ok(()),
            };
            self.at += 2;
            self.skip_lines()?;
        }
    }

    fn pipeline(&mut self, condition: RunCondition) -> Result<Pipeline, ParseError> {
        if self.reserved() == Some("!") {
            self.at += 1;
            self.skip_blanks();
        }
        let mut commands = Vec::new();
        loop {
            commands.push(self.nested(Self::command)?);
            self.skip_blanks();
            if self.peek() != Some('|') || self.next_is("||") {
                return Ok(Pipeline { commands, background: Background::No, condition });
            }
            if self.next_is("|&") {
                return self.fail("`|&` is not supported by every shell");
            }
            self.at += 1;
            self.skip_lines()?;
        }
    }

    pub(super) fn command(&mut self) -> Result<Command, ParseError> {
        self.shared.commands += 1;
        if self.shared.commands > self.limits.commands {
            return self.fail("there are too many commands");
        }
        if self.next_is("((") {
            return self.fail("`((` differs between shells");
        }
        if self.peek() == Some('(') {
            self.at += 1;
            let list = self.list(ListEnd::Paren)?;
            self.at += 1;
            return self.compound(CompoundKind::Subshell, Vec::new(), vec![list]);
        }
        match self.reserved() {
            Some("{") => {
                self.at += 1;
                let list = self.until(&["}"])?;
                self.compound(CompoundKind::Group, Vec::new(), vec![list])
            }
            Some("if") => self.conditional(),
            Some("while" | "until") => {
                self.at += "while".len();
                let condition = self.until(&["do"])?;
                let body = self.until(&["done"])?;
                self.compound(CompoundKind::While, Vec::new(), vec![condition, body])
            }
            Some("for") => self.for_loop(),
            Some("case") => self.case(),
            Some(_) => self.fail("a reserved word is misplaced"),
            None => self.simple(),
        }
    }

    /// Parses a list and the reserved word that ends it.
    pub(super) fn until(&mut self, words: &'static [&'static str]) -> Result<List, ParseError> {
        let list = self.list(ListEnd::Words(words))?;
        self.at += self.reserved().map_or(0, str::len);
        Ok(list)
    }

    pub(super) fn compound(
        &mut self,
        kind: CompoundKind,
        words: Vec<Word>,
        lists: Vec<List>,
    ) -> Result<Command, ParseError> {
        let mut redirects = Vec::new();
        self.skip_blanks();
        while let Some(redirect) = self.redirect()? {
            redirects.push(redirect);
            self.skip_blanks();
        }
        Ok(Command::Compound { kind, words, lists, redirects })
    }

    fn simple(&mut self) -> Result<Command, ParseError> {
        let mut simple = SimpleCommand::default();
        loop {
            self.skip_blanks();
            if let Some(redirect) = self.redirect()? {
                simple.redirects.push(redirect);
                continue;
            }
            match self.peek() {
                Some('(') => return self.function(simple),
                Some(letter) if !is_meta(letter) => {}
                Some(_) | None => break,
            }
            let word = self.word()?;
            match word.value_at {
                Some(at) if simple.words.is_empty() => simple.assignments.push(assignment(word, at)),
                Some(_) | None => simple.words.push(word),
            }
            if simple.words.len() + simple.assignments.len() + simple.redirects.len() > self.limits.words {
                return self.fail("a command has too many words");
            }
        }
        if let Some(first) = simple.words.first() {
            if !first.quoted && BASH_RESERVED.contains(&first.text.as_str()) {
                return self.fail("a word that only bash reserves");
            }
            if is_bash_assignment(first) {
                return self.fail("an assignment that only bash supports");
            }
        } else if simple.assignments.is_empty() && simple.redirects.is_empty() {
            return self.fail("a command is missing");
        }
        Ok(Command::Simple(simple))
    }
}

fn assignment(mut word: Word, at: usize) -> Assignment {
    let value = word.text.split_off(at);
    let name = word.text.trim_end_matches('=').to_owned();
    Assignment { name, value: Word { text: value, value_at: None, ..word } }
}

fn is_bash_assignment(word: &Word) -> bool {
    let name = word.text.chars().take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_').count();
    let rest = &word.text[name..];
    name > 0 && rest.starts_with("+=")
}

/// Returns whether a character ends a word.
pub(super) const fn is_meta(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>')
}

/// Returns whether a text is a valid variable name.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
