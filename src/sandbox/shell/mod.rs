//! A strict parser for shell commands.
//!
//! It accepts the POSIX grammar as far as dash and bash agree on it, because either may be `/bin/sh`. Syntax that only
//! one of them supports, that they parse differently, or whose meaning depends on the value of a variable is refused
//! with a [`ParseError`]: one unnecessary approval is better than a misunderstood command. Nothing is expanded and
//! nothing is run.
//!
//! Parsing takes linear time, and [`Limits`] bound the depth of recursion.

mod compound;
mod expansion;
mod heredoc;
mod parse;
mod redirect;
mod tree;
mod word;

#[cfg(test)]
mod tests;

use crate::invisible_chars::{is_odd_blank, is_unseen};
use parse::{End, Parser};

pub use tree::{
    Assignment, Background, Block, Command, GLOB, HOLE, List, Pipeline, Redirect, Script, Simple, Way, When,
    Word,
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
pub struct Unclear {
    /// The position, counted in characters from 1.
    pub at: usize,
    /// The problem.
    pub what: &'static str,
}

/// Parses a command text.
pub fn parse(text: &str, limits: &Limits) -> Result<Script, Unclear> {
    if text.len() > limits.bytes {
        return Err(Unclear { at: 1, what: "the command is too long to be analysed" });
    }
    let chars: Vec<char> = text.chars().collect();
    let odd = |letter: &char| letter.is_control() && !matches!(letter, '\t' | '\n');
    if let Some(at) = chars.iter().position(odd) {
        return Err(Unclear { at: at + 1, what: "there is a control character" });
    }
    if let Some(at) = chars.iter().position(|letter| is_unseen(*letter) || is_odd_blank(*letter)) {
        return Err(Unclear { at: at + 1, what: "there is an invisible character" });
    }
    let mut parser = Parser::new(&chars, *limits);
    let list = parser.list(End::Text)?;
    Ok(parser.finish(list))
}
