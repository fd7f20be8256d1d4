//! Matches the patterns of rules against texts with unknown parts.
//!
//! There are two questions. An `allow` rule needs a match whatever the unknown parts expand to. A rule that asks or
//! denies needs a possible match, and ignores case.

use crate::config::settings::rule::Token;
use crate::sandbox::shell::{GLOB, HOLE};

/// Represents a space inside a word, in texts of joined words.
pub(super) const INNER: char = '\u{2}';

/// The required certainty of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sure {
    /// It matches whatever the unknown parts expand to, case-sensitively.
    Always,
    /// It matches whatever the unknown parts expand to; case is ignored.
    Really,
    /// It may match; case is ignored.
    Perhaps,
}

/// What `*` matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// Any text: words and hosts.
    Everything,
    /// Names in paths: only `**` matches slashes, and a path also covers everything below it.
    Names,
}

/// Returns whether a pattern matches a text.
pub(super) fn fits(tokens: &[Token], text: &str, over: Over, sure: Sure) -> bool {
    let mut run = Run { tokens, over, sure, states: vec![false; tokens.len() + 1] };
    run.reach(0);
    let mut before = None;
    for letter in text.chars() {
        if letter == '/' && over == Over::Names && run.is_done() {
            return true;
        }
        run.take(letter, before);
        if run.is_lost() {
            return false;
        }
        before = Some(letter);
    }
    run.is_done()
}

/// The simulation of a pattern: `states` marks the positions that are reachable.
struct Run<'a> {
    tokens: &'a [Token],
    over: Over,
    sure: Sure,
    states: Vec<bool>,
}

impl Run<'_> {
    fn is_done(&self) -> bool {
        self.states.last().copied().unwrap_or(false)
    }

    fn is_lost(&self) -> bool {
        !self.states.contains(&true)
    }

    /// Marks a position as reachable, and those after it that need no character.
    fn reach(&mut self, mut at: usize) {
        loop {
            if let Some(state) = self.states.get_mut(at) {
                *state = true;
            }
            match self.tokens.get(at) {
                Some(Token::Many | Token::Deep) => at += 1,
                Some(Token::Letter(_) | Token::Inner | Token::One) | None => return,
            }
        }
    }

    fn take(&mut self, letter: char, before: Option<char>) {
        let reached: Vec<usize> = (0..self.states.len()).filter(|at| self.states[*at]).collect();
        self.states.fill(false);
        for at in reached {
            match letter {
                HOLE => self.take_unknown(at, None, before),
                GLOB => self.take_unknown(at, Some('/').filter(|_| self.over == Over::Names), before),
                letter => self.take_letter(at, letter),
            }
        }
    }

    fn take_letter(&mut self, at: usize, letter: char) {
        match self.tokens.get(at) {
            Some(Token::Deep) => self.reach(at),
            Some(Token::Many) if self.over == Over::Everything || letter != '/' => self.reach(at),
            Some(Token::One) if self.over == Over::Everything || letter != '/' => self.reach(at + 1),
            Some(Token::Inner) if letter == INNER => self.reach(at + 1),
            Some(Token::Letter(wanted)) if self.same(*wanted, letter) => self.reach(at + 1),
            Some(Token::Many | Token::One | Token::Inner | Token::Letter(_)) | None => {}
        }
    }

    fn same(&self, wanted: char, letter: char) -> bool {
        match self.sure {
            Sure::Always => wanted == letter,
            Sure::Really | Sure::Perhaps => {
                let letter = if letter == INNER { ' ' } else { letter };
                wanted == letter || wanted.to_lowercase().eq(letter.to_lowercase())
            }
        }
    }

    /// Advances over an unknown text, or over one that does not contain `without`.
    fn take_unknown(&mut self, at: usize, without: Option<char>, before: Option<char>) {
        let takes_all = match self.tokens.get(at) {
            Some(Token::Deep) => true,
            Some(Token::Many) => self.over == Over::Everything || without.is_some(),
            Some(Token::One | Token::Inner | Token::Letter(_)) | None => false,
        };
        match self.sure {
            Sure::Always | Sure::Really if takes_all => self.reach(at),
            Sure::Always | Sure::Really => {}
            Sure::Perhaps => {
                // Shell globbing never produces names that begin with a dot.
                let first = before.is_none_or(|letter| letter == '/');
                let hidden = without.is_some() && first && self.tokens.get(at) == Some(&Token::Letter('.'));
                self.reach(at);
                let mut next = at;
                while let Some(token) = self.tokens.get(next).filter(|_| !hidden) {
                    if without.is_some_and(|letter| *token == Token::Letter(letter)) {
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
    fn a_star_runs_over_words_and_not_over_folders() {
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
                fits(&tokens("exec", pattern), text, Over::Everything, Sure::Always),
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
                fits(&tokens("read", pattern), text, Over::Names, Sure::Always),
                fit,
                "{pattern} {text:?}"
            );
        }
    }

    #[test]
    fn an_unknown_part_fits_surely_under_a_star_alone_and_perhaps_under_anything() {
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
            assert_eq!(fits(&tokens, text, Over::Everything, Sure::Always), always, "{pattern} {text:?}");
            assert_eq!(fits(&tokens, text, Over::Everything, Sure::Perhaps), perhaps, "{pattern} {text:?}");
        }
        for (pattern, text, perhaps) in [
            (".env*", "\u{1}", false),
            (".env*", ".e\u{1}", true),
            (".env*", "\0", true),
            ("secret.txt", "\u{1}", true),
            ("secret.txt", "\u{1}.rs", false),
            ("a/b", "\u{1}", false),
        ] {
            let fit = fits(&tokens("read", pattern), text, Over::Names, Sure::Perhaps);
            assert_eq!(fit, perhaps, "{pattern} {text:?}");
        }
    }

    fn tokens(target: &str, pattern: &str) -> Vec<Token> {
        let rule: Rule = format!("ask: {target}({pattern})").parse().unwrap();
        rule.pattern.unwrap().tokens()
    }
}
