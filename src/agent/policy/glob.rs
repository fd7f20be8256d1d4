//! Matches the patterns of rules against texts with unknown parts.
//!
//! There are two questions. An `allow` rule needs a match whatever the unknown parts expand to. A rule that asks or
//! denies needs a possible match, and ignores case.

use crate::config::settings::rule::PatternToken;
use crate::sandbox::shell::{GLOB, UNKNOWN};

/// Represents a space inside a word, in texts of joined words.
pub(super) const INNER_SPACE: char = '\u{2}';

/// The required certainty of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Certainty {
    /// It matches whatever the unknown parts expand to, case-sensitively.
    Exact,
    /// It matches whatever the unknown parts expand to; case is ignored.
    Certain,
    /// It may match; case is ignored.
    Possible,
}

/// What `*` matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StarScope {
    /// Any text: words and hosts.
    Text,
    /// Names in paths: only `**` matches slashes, and a path also covers everything below it.
    Path,
}

/// Returns whether a pattern matches a text.
pub(super) fn glob_matches(tokens: &[PatternToken], text: &str, over: StarScope, sure: Certainty) -> bool {
    let mut run = Matcher { tokens, scope: over, certainty: sure, states: vec![false; tokens.len() + 1] };
    run.reach(0);
    let mut before = None;
    for letter in text.chars() {
        if letter == '/' && over == StarScope::Path && run.is_done() {
            return true;
        }
        run.advance(letter, before);
        if run.is_dead() {
            return false;
        }
        before = Some(letter);
    }
    run.is_done()
}

/// The simulation of a pattern: `states` marks the positions that are reachable.
struct Matcher<'a> {
    tokens: &'a [PatternToken],
    scope: StarScope,
    certainty: Certainty,
    states: Vec<bool>,
}

impl Matcher<'_> {
    fn is_done(&self) -> bool {
        self.states.last().copied().unwrap_or(false)
    }

    fn is_dead(&self) -> bool {
        !self.states.contains(&true)
    }

    /// Marks a position as reachable, and those after it that need no character.
    fn reach(&mut self, mut at: usize) {
        loop {
            if let Some(state) = self.states.get_mut(at) {
                *state = true;
            }
            match self.tokens.get(at) {
                Some(PatternToken::AnyText | PatternToken::AnyPath) => at += 1,
                Some(PatternToken::Literal(_) | PatternToken::EscapedSpace | PatternToken::AnyChar) | None => return,
            }
        }
    }

    fn advance(&mut self, letter: char, before: Option<char>) {
        let reached: Vec<usize> = (0..self.states.len()).filter(|at| self.states[*at]).collect();
        self.states.fill(false);
        for at in reached {
            match letter {
                UNKNOWN => self.advance_unknown(at, None, before),
                GLOB => self.advance_unknown(at, Some('/').filter(|_| self.scope == StarScope::Path), before),
                letter => self.advance_char(at, letter),
            }
        }
    }

    fn advance_char(&mut self, at: usize, letter: char) {
        match self.tokens.get(at) {
            Some(PatternToken::AnyPath) => self.reach(at),
            Some(PatternToken::AnyText) if self.scope == StarScope::Text || letter != '/' => self.reach(at),
            Some(PatternToken::AnyChar) if self.scope == StarScope::Text || letter != '/' => self.reach(at + 1),
            Some(PatternToken::EscapedSpace) if letter == INNER_SPACE => self.reach(at + 1),
            Some(PatternToken::Literal(expected)) if self.chars_equal(*expected, letter) => self.reach(at + 1),
            Some(
                PatternToken::AnyText | PatternToken::AnyChar | PatternToken::EscapedSpace | PatternToken::Literal(_),
            )
            | None => {}
        }
    }

    fn chars_equal(&self, expected: char, letter: char) -> bool {
        match self.certainty {
            Certainty::Exact => expected == letter,
            Certainty::Certain | Certainty::Possible => {
                let letter = if letter == INNER_SPACE { ' ' } else { letter };
                expected == letter || expected.to_lowercase().eq(letter.to_lowercase())
            }
        }
    }

    /// Advances over an unknown text, or over one that does not contain `without`.
    fn advance_unknown(&mut self, at: usize, without: Option<char>, before: Option<char>) {
        let takes_all = match self.tokens.get(at) {
            Some(PatternToken::AnyPath) => true,
            Some(PatternToken::AnyText) => self.scope == StarScope::Text || without.is_some(),
            Some(PatternToken::AnyChar | PatternToken::EscapedSpace | PatternToken::Literal(_)) | None => false,
        };
        match self.certainty {
            Certainty::Exact | Certainty::Certain if takes_all => self.reach(at),
            Certainty::Exact | Certainty::Certain => {}
            Certainty::Possible => {
                // Shell globbing never produces names that begin with a dot.
                let first = before.is_none_or(|letter| letter == '/');
                let hidden = without.is_some() && first && self.tokens.get(at) == Some(&PatternToken::Literal('.'));
                self.reach(at);
                let mut next = at;
                while let Some(token) = self.tokens.get(next).filter(|_| !hidden) {
                    if without.is_some_and(|letter| *token == PatternToken::Literal(letter)) {
                        break;
                    }
                    next += 1;
                    self.reach(next);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::rule::Rule;

    #[test]
    fn a_star_matches_across_words_but_not_across_directories() {
        for (pattern, text, fit) in [
            ("cargo test*", "cargo test --all -- x", true),
            ("cargo test*", "cargo testing", true),
            ("cargo test*", "cargo tes", false),
            ("cargo test", "cargo test ", false),
            ("*", "", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("cargo *", "cargo /x/y", true),
            ("a b", "a\u{2}b", false),
            ("a\\ b", "a\u{2}b", true),
            ("a\\ b", "a b", false),
            ("a*b", "a\u{2}b", true),
            ("A", "a", false),
        ] {
            assert_eq!(
                glob_matches(&tokens("exec", pattern), text, StarScope::Text, Certainty::Exact),
                fit,
                "{pattern} {text:?}"
            );
        }
        for (pattern, text, fit) in [
            ("src/*.rs", "src/a.rs", true),
            ("src/*.rs", "src/a/b.rs", false),
            ("src/**", "src/a/b.rs", true),
            ("src", "src/a/b.rs", true),
            ("src", "srcs/a", false),
            ("a/*", "a/b/c", true),
            ("a?b", "a/b", false),
        ] {
            assert_eq!(
                glob_matches(&tokens("read", pattern), text, StarScope::Path, Certainty::Exact),
                fit,
                "{pattern} {text:?}"
            );
        }
    }

    #[test]
    fn an_unknown_part_certainly_matches_only_a_star_and_possibly_matches_anything() {
        for (pattern, text, always, perhaps) in [
            ("git push*", "git \0", false, true),
            ("git push*", "git push \0", true, true),
            ("git push*", "git p\0 origin", false, true),
            ("git push*", "git log \0", false, false),
            ("git log", "git log\0", false, true),
            ("*", "\0", true, true),
            ("RM *", "rm x", false, true),
            ("rm a b", "rm a\u{2}b", false, true),
        ] {
            let tokens = tokens("exec", pattern);
            assert_eq!(glob_matches(&tokens, text, StarScope::Text, Certainty::Exact), always, "{pattern} {text:?}");
            assert_eq!(
                glob_matches(&tokens, text, StarScope::Text, Certainty::Possible),
                perhaps,
                "{pattern} {text:?}"
            );
        }
        for (pattern, text, perhaps) in [
            (".env*", "\u{1}", false),
            (".env*", ".e\u{1}", true),
            (".env*", "\0", true),
            ("secret.txt", "\u{1}", true),
            ("secret.txt", "\u{1}.rs", false),
            ("a/b", "\u{1}", false),
        ] {
            let fit = glob_matches(&tokens("read", pattern), text, StarScope::Path, Certainty::Possible);
            assert_eq!(fit, perhaps, "{pattern} {text:?}");
        }
    }

    fn tokens(target: &str, pattern: &str) -> Vec<PatternToken> {
        let rule: Rule = format!("ask: {target}({pattern})").parse().unwrap();
        rule.pattern.unwrap().tokens()
    }
}
