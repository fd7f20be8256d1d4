//! The arguments of a command, as options and operands.

use crate::sandbox::shell::UNKNOWN;

/// Returns the name of a program without its directories, in lower case.
pub(super) fn program_name(word: &str) -> String {
    word.rsplit('/').next().unwrap_or(word).to_lowercase()
}

/// Returns whether an option is among the arguments: a long one, also abbreviated or with a value, or a letter among
/// short options.
pub(super) fn has_option(args: &[String], long: &str, short: Option<char>) -> bool {
    options(args).any(|arg| is_long(arg, long) || short.is_some_and(|letter| is_short(arg, letter)))
}

fn is_long(arg: &str, long: &str) -> bool {
    let name = arg.split('=').next().unwrap_or(arg);
    // Programs accept any unambiguous abbreviation of a long option.
    name.len() > 2 && name.starts_with("--") && !long.is_empty() && format!("--{long}").starts_with(name)
}

fn is_short(arg: &str, letter: char) -> bool {
    arg.starts_with('-') && !arg.starts_with("--") && arg.contains(letter)
}

fn options(args: &[String]) -> impl Iterator<Item = &str> {
    args.iter().map(String::as_str).take_while(|arg| *arg != "--").filter(|arg| arg.len() > 1 && arg.starts_with('-'))
}

/// Returns the arguments that are not options; `valued` are the letters of options whose value is the next argument.
pub(super) fn operands<'a>(args: &'a [String], valued: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut rest = args.iter().map(String::as_str);
    while let Some(arg) = rest.next() {
        if arg == "--" {
            found.extend(rest.by_ref());
        } else if arg.len() > 1 && arg.starts_with('-') {
            let takes = !arg.starts_with("--") && arg.chars().last().is_some_and(|last| valued.contains(last));
            if takes && arg.len() == 2 {
                rest.next();
            }
        } else {
            found.push(arg);
        }
    }
    found
}

/// Returns the values after `=` in options.
pub(super) fn option_values(args: &[String]) -> impl Iterator<Item = &str> {
    options(args).filter_map(|arg| arg.split_once('=')).map(|(_, value)| value).filter(|value| !value.is_empty())
}

/// Returns whether a word contains unknown text, which may expand to several words.
pub(super) fn has_unknown(word: &str) -> bool {
    word.contains(UNKNOWN)
}
