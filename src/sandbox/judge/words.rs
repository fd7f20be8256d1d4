//! The words of a command, seen as options and operands.

use crate::sandbox::shell::HOLE;

/// Returns the name of a program without its folders, in small letters.
pub(super) fn plain_name(word: &str) -> String {
    word.rsplit('/').next().unwrap_or(word).to_lowercase()
}

/// Tells whether one of the words is this option: a long one, also with a value or cut short, or a letter among short
/// ones.
pub(super) fn has(args: &[String], long: &str, short: Option<char>) -> bool {
    options(args).any(|arg| is_long(arg, long) || short.is_some_and(|letter| is_short(arg, letter)))
}

fn is_long(arg: &str, long: &str) -> bool {
    let name = arg.split('=').next().unwrap_or(arg);
    // Programs take any beginning of a long option that is the only one.
    name.len() > 2 && name.starts_with("--") && !long.is_empty() && format!("--{long}").starts_with(name)
}

fn is_short(arg: &str, letter: char) -> bool {
    arg.starts_with('-') && !arg.starts_with("--") && arg.contains(letter)
}

fn options(args: &[String]) -> impl Iterator<Item = &str> {
    args.iter()
        .map(String::as_str)
        .take_while(|arg| *arg != "--")
        .filter(|arg| arg.len() > 1 && arg.starts_with('-'))
}

/// Returns the words that are no options; `valued` are the letters of options whose value is the next word.
pub(super) fn operands<'a>(args: &'a [String], valued: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut rest = args.iter().map(String::as_str);
    while let Some(arg) = rest.next() {
        if arg == "--" {
            found.extend(rest.by_ref());
        } else if arg.len() > 1 && arg.starts_with('-') {
            let takes =
                !arg.starts_with("--") && arg.chars().last().is_some_and(|last| valued.contains(last));
            if takes && arg.len() == 2 {
                rest.next();
            }
        } else {
            found.push(arg);
        }
    }
    found
}

/// Returns the values that stand behind `=` in options.
pub(super) fn values(args: &[String]) -> impl Iterator<Item = &str> {
    options(args)
        .filter_map(|arg| arg.split_once('='))
        .map(|(_, value)| value)
        .filter(|value| !value.is_empty())
}

/// Tells whether a word may become another, or several.
pub(super) fn is_open(word: &str) -> bool {
    word.contains(HOLE)
}
