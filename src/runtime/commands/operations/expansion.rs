//! Expansion of messages that name a slash command or a skill.
//!
//! `/name arguments` becomes the text of the command, with the arguments substituted for `$1`, `$2`, `$@`, `$ARGUMENTS`,
//! `${@:N}` and `${@:N:L}`.
//! `/skill:name text` becomes the instructions of the skill with their path, and the text. Other messages are unchanged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Execution, OperationError, Result};
use crate::discovery;
use crate::protocol::operation::UserInput;
use crate::runtime::commands::session_view::SessionView;

impl Execution {
    /// Returns the expanded input.
    pub(super) async fn expanded(&self, view: &Arc<SessionView>, input: &UserInput) -> Result<UserInput> {
        if !input.message.starts_with('/') {
            return Ok(input.clone());
        }
        let (snapshot, _) = self.service.describe(view, None, &self.peer).await?;
        let (cwd, home) = (PathBuf::from(&snapshot.opening.cwd), self.service.home().to_owned());
        let text = input.message.clone();
        let message = self.run_blocking(&cwd.clone(), move || expand(&text, &cwd, &home)).await?;
        let Some(message) = message else { return Ok(input.clone()) };
        let (limit, found) = (self.service.protocol().max_message_chars(), message.chars().count());
        if found > limit {
            return Err(OperationError::MessageTooLong { limit, found });
        }
        Ok(UserInput { message, images: input.images.clone() })
    }
}

/// Expands a message; `None` if it names no command and no skill.
fn expand(message: &str, cwd: &Path, home: &Path) -> Option<String> {
    let called = message.strip_prefix('/')?;
    let (name, rest) = called.split_once(' ').unwrap_or((called, ""));
    if let Some(name) = name.strip_prefix("skill:") {
        let skill = discovery::skills(cwd, home).items.into_iter().find(|skill| skill.name == name)?;
        let body = discovery::read_body(&skill.path, skill.source, cwd, home)?;
        let (path, directory) = (skill.path.display(), skill.path.parent()?.display());
        let head = format!("<skill name=\"{name}\" location=\"{path}\">\nReferences are relative to {directory}.");
        let block = format!("{head}\n\n{body}\n</skill>");
        let rest = rest.trim();
        return Some(if rest.is_empty() { block } else { format!("{block}\n\n{rest}") });
    }
    let command = discovery::commands(cwd, home).items.into_iter().find(|command| command.name == name)?;
    let body = discovery::read_body(&command.path, command.source, cwd, home)?;
    Some(substitute(&body, &arguments(rest)))
}

/// Splits a text into arguments at blanks outside of quotation marks.
fn arguments(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut argument, mut mark) = (String::new(), None);
    for letter in text.chars() {
        match mark {
            Some(open) if letter == open => mark = None,
            Some(_) => argument.push(letter),
            None if letter == '"' || letter == '\'' => mark = Some(letter),
            None if letter == ' ' || letter == '\t' => {
                if !argument.is_empty() {
                    found.push(std::mem::take(&mut argument));
                }
            }
            None => argument.push(letter),
        }
    }
    if !argument.is_empty() {
        found.push(argument);
    }
    found
}

/// Substitutes arguments; placeholders within arguments are not substituted.
fn substitute(text: &str, arguments: &[String]) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        filled.push_str(before);
        let digits = after.len() - after.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        if digits > 0 {
            let number = after[..digits].parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            filled.push_str(number.and_then(|at| arguments.get(at)).map_or("", String::as_str));
            rest = &after[digits..];
        } else if let Some(after) = after.strip_prefix("ARGUMENTS").or_else(|| after.strip_prefix('@')) {
            filled.push_str(&arguments.join(" "));
            rest = after;
        } else if let Some((slice, after)) = parse_slice(after, arguments) {
            filled.push_str(&slice.join(" "));
            rest = after;
        } else {
            filled.push('$');
            rest = after;
        }
    }
    filled.push_str(rest);
    filled
}

/// Parses `{@:N}` or `{@:N:L}`; returns the arguments from the N-th on, at most L of them, and the rest of the text.
fn parse_slice<'t, 'a>(text: &'t str, arguments: &'a [String]) -> Option<(&'a [String], &'t str)> {
    let (range, after) = text.strip_prefix("{@:")?.split_once('}')?;
    let (start, length) = match range.split_once(':') {
        Some((start, length)) => (start, Some(number(length)?)),
        None => (range, None),
    };
    // Arguments are numbered from 1; 0 means the same.
    let from = number(start)?.saturating_sub(1).min(arguments.len());
    let until = length.map_or(arguments.len(), |length| from.saturating_add(length).min(arguments.len()));
    Some((&arguments[from..until], after))
}

/// Parses digits; a number that is too large becomes the maximum.
fn number(digits: &str) -> Option<usize> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_cut_at_blanks_outside_of_quotation_marks() {
        for (text, expected) in [
            ("", vec![]),
            ("  one\ttwo ", vec!["one", "two"]),
            ("\"one two\" 'three \" four' fi've s'ix", vec!["one two", "three \" four", "five six"]),
            ("'open end", vec!["open end"]),
        ] {
            assert_eq!(arguments(text), expected, "{text}");
        }
    }

    #[test]
    fn arguments_are_filled_in_once() {
        let arguments = ["$2", "b", "$@"].map(str::to_owned);
        for (text, expected) in [
            ("$1-$2-$3-$4-$0-$12.", "$2-b-$@---."),
            ("$@|$ARGUMENTS", "$2 b $@|$2 b $@"),
            ("costs 5$ or $x; $", "costs 5$ or $x; $"),
        ] {
            assert_eq!(substitute(text, &arguments), expected, "{text}");
        }
    }

    #[test]
    fn a_slice_of_the_arguments_is_filled_in() {
        let arguments = ["a", "b", "$1", "d"].map(str::to_owned);
        for (text, expected) in [
            ("${@:2}", "b $1 d"),
            ("${@:2:2}.", "b $1."),
            ("${@:0}|${@:1:1}|${@:0:1}", "a b $1 d|a|a"),
            ("<${@:5}> <${@:4:9}> <${@:1:0}>", "<> <d> <>"),
            ("<${@:99999999999999999999999}> <${@:3:99999999999999999999999}>", "<> <$1 d>"),
            (
                "${@} ${@:} ${@:x} ${@:1:} ${@:-1} ${@:1:2:3} ${@:1",
                "${@} ${@:} ${@:x} ${@:1:} ${@:-1} ${@:1:2:3} ${@:1",
            ),
        ] {
            assert_eq!(substitute(text, &arguments), expected, "{text}");
        }
    }
}
