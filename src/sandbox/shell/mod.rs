//! The grammar of the shell, read strictly: what a command text consists of, or that nobody can tell.
//!
//! It is the grammar of POSIX as dash and bash both understand it, since either may be `/bin/sh`. What only one of them
//! knows, what they read differently, and what depends on how a value is spelled in memory, is refused as [`Unclear`]:
//! better one question too many than a command that was taken for another. Nothing is expanded and nothing is run.
//!
//! The work is linear in the text, and the depth of recursion is bounded by [`Limits`].

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

/// How much of a text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest text, in bytes.
    pub bytes: usize,
    /// How deep groups, substitutions and the like may lie in each other.
    pub depth: usize,
    /// How many commands there may be.
    pub commands: usize,
    /// How many words a command may have.
    pub words: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 64 * 1024, depth: 24, commands: 256, words: 1024 }
    }
}

/// Why it cannot be told what a text does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} (at character {at})")]
pub struct Unclear {
    /// Where, counted in characters from 1.
    pub at: usize,
    /// What stands there.
    pub what: &'static str,
}

/// Reads a text.
pub fn parse(text: &str, limits: &Limits) -> Result<Script, Unclear> {
    if text.len() > limits.bytes {
        return Err(Unclear { at: 1, what: "the command is too long to be read" });
    }
    let chars: Vec<char> = text.chars().collect();
    let odd = |letter: &char| letter.is_control() && !matches!(letter, '\t' | '\n');
    if let Some(at) = chars.iter().position(odd) {
        return Err(Unclear { at: at + 1, what: "there is a control character" });
    }
    if let Some(at) = chars.iter().position(|letter| is_unseen(*letter) || is_odd_blank(*letter)) {
        return Err(Unclear { at: at + 1, what: "there is a letter that cannot be seen" });
    }
    let mut parser = Parser::new(&chars, *limits);
    let list = parser.list(End::Text)?;
    Ok(parser.finish(list))
}
