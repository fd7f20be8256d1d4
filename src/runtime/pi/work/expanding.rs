//! Messages that stand for a longer text: a slash command, or a skill by its name.
//!
//! `/name words` becomes the text of the command, with the words in the place of `$1`, `$2`, `$@`, `$ARGUMENTS`,
//! `${@:N}` and `${@:N:L}`;
//! `/skill:name words` becomes the instructions of the skill, with where they lie, and the words. Anything else is sent as it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Failure, Job, Result};
use crate::discovery;
use crate::protocol::pi::error_text;
use crate::protocol::pi::request::UserInput;
use crate::runtime::pi::seat::Seat;

impl Job {
    /// Returns what is said by a message.
    pub(super) async fn expanded(&self, seat: &Arc<Seat>, words: &UserInput) -> Result<UserInput> {
        if !words.message.starts_with('/') {
            return Ok(words.clone());
        }
        let (snapshot, _) = self.bureau.describe(seat, None, &self.peer).await?;
        let (cwd, home) = (PathBuf::from(&snapshot.opening.cwd), self.bureau.home().to_owned());
        let said = words.message.clone();
        let message = self.away(&cwd.clone(), move || expand(&said, &cwd, &home)).await?;
        let Some(message) = message else { return Ok(words.clone()) };
        let (most, found) = (self.bureau.decode_limits().message, message.chars().count());
        if found > most {
            let problem = format!("must be at most {most} characters when it is expanded, not {found}");
            return Err(Failure::said(error_text::invalid("message", problem)));
        }
        Ok(UserInput { message, images: words.images.clone() })
    }
}

/// Expands a message; nothing is returned for one that names nothing.
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
    Some(filled_in(&body, &arguments(rest)))
}

/// Cuts a text into arguments at blanks, except for what stands in quotation marks.
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

/// Puts arguments into a text; what they contain is not filled in again.
fn filled_in(text: &str, arguments: &[String]) -> String {
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
        } else if let Some((slice, after)) = sliced(after, arguments) {
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

/// Reads `{@:N}` or `{@:N:L}`: returns the arguments from the N-th on, L of them where that is said, and what follows.
fn sliced<'t, 'a>(text: &'t str, arguments: &'a [String]) -> Option<(&'a [String], &'t str)> {
    let (range, after) = text.strip_prefix("{@:")?.split_once('}')?;
    let (start, length) = match range.split_once(':') {
        Some((start, length)) => (start, Some(number(length)?)),
        None => (range, None),
    };
    // The first is 1, and 0 means the same.
    let from = number(start)?.saturating_sub(1).min(arguments.len());
    let until = length.map_or(arguments.len(), |length| from.saturating_add(length).min(arguments.len()));
    Some((&arguments[from..until], after))
}

/// Reads a number that is nothing but digits; one that is too large is as good as the largest.
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
            assert_eq!(filled_in(text, &arguments), expected, "{text}");
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
            assert_eq!(filled_in(text, &arguments), expected, "{text}");
        }
    }
}
