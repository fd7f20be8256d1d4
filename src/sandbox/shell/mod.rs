//! A strict parser for shell commands.
//!
//! It accepts the POSIX grammar as far as dash and bash agree on it, because either may be `/bin/sh`. Syntax that only
//! one of them supports, that they parse differently, or whose meaning depends on the value of a variable is refused
//! with a [`ParseError`]: one unnecessary approval is better than a misunderstood command. Nothing is expanded and
//! nothing is run.
//!
//! Parsing takes linear time, and [`Limits`] bound the depth of recursion.

mod ast;
mod compound;
mod expansion;
mod heredoc;
mod parse;
mod redirect;
mod word;

#[cfg(test)]
mod tests;

use crate::invisible_chars::{is_invisible, is_unusual_space};
use parse::{ListEnd, Parser};

pub use ast::{
    Assignment, Background, Command, CompoundKind, GLOB, List, Pipeline, Redirect, RedirectKind, RunCondition, Script,
    SimpleCommand, UNKNOWN, Word,
};

/// The limits of the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest text, in bytes.
    pub bytes: usize,
    /// The maximum nesting depth of groups, substitutions and the like.
    pub depth: usize,
    /// The maximum number of commands.
    pub commands: usize,
    /// The maximum number of words of a command.
    pub words: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 64 * 1024, depth: 24, commands: 256, words: 1024 }
    }
}

/// Why a text cannot be parsed unambiguously.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} (at character {at})")]
pub struct ParseError {
    /// The position, counted in characters from 1.
    pub at: usize,
    /// The problem.
    pub what: &'static str,
}

/// Parses a command text.
pub fn parse(text: &str, limits: &Limits) -> Result<Script, ParseError> {
    if text.len() > limits.bytes {
        return Err(ParseError { at: 1, what: "the command is too long to be analysed" });
    }
    let chars: Vec<char> = text.chars().collect();
    let odd = |letter: &char| letter.is_control() && !matches!(letter, '\t' | '\n');
    if let Some(at) = chars.iter().position(odd) {
        return Err(ParseError { at: at + 1, what: "there is a control character" });
    }
    if let Some(at) = chars.iter().position(|letter| is_invisible(*letter) || is_unusual_space(*letter)) {
        return Err(ParseError { at: at + 1, what: "there is an invisible character" });
    }
    let mut parser = Parser::new(&chars, *limits);
    let list = parser.list(ListEnd::Text)?;
    Ok(parser.finish(list))
}
