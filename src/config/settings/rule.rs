//! Approval rules as a user writes them: `allow|ask|deny: TARGET` or `allow|ask|deny: TARGET(PATTERN)`.
//!
//! This module parses and prints rules; the policy decides what they apply to. Printing a parsed rule gives a rule
//! with the same meaning. A rule that cannot be parsed is an error with its position: a misspelt `deny` must not be
//! ignored.

use std::fmt;
use std::str::FromStr;

use crate::tools::{find_for_rule, rule_name};

/// An approval rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// Its effect.
    pub effect: Effect,
    /// What it applies to.
    pub target: Target,
    /// Restricts the target; `None` matches all of it.
    pub pattern: Option<Pattern>,
}

/// The effect of a rule; ordered from lenient to strict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// The call is made without an approval.
    Allow,
    /// The call needs an approval.
    Ask,
    /// The call is refused.
    Deny,
}

/// What a rule applies to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Reading a file, with any tool.
    Read,
    /// Writing, moving or removing a file, with any tool.
    Write,
    /// Running a command.
    Exec,
    /// Changing the repository.
    Git,
    /// Network access.
    Network,
    /// One tool, by its name in rules; commands are [`Target::Exec`].
    Tool(String),
}

/// A validated glob with `*` and `?`, as it was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(String);

/// A token of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternToken {
    /// This character.
    Literal(char),
    /// A space inside a word, written `\ `.
    EscapedSpace,
    /// Any character: `?`.
    AnyChar,
    /// Any text: `*`.
    AnyText,
    /// Any text across directories: `**`.
    AnyPath,
}

/// Why a text is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a rule: at character {at}, {expected}")]
pub struct RuleError {
    /// The text.
    pub text: String,
    /// The position, counted from 1.
    pub at: usize,
    /// What is expected there.
    pub expected: &'static str,
}

impl Rule {
    /// The maximum length of a rule, in bytes.
    pub const BYTES_MAX: usize = 4096;

    /// Returns a rule for every call of a target.
    pub const fn all(effect: Effect, target: Target) -> Self {
        Self { effect, target, pattern: None }
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let wrong = |byte: usize, expected| {
            let at = text.get(..byte).map_or(1, |before| before.chars().count() + 1);
            let text = text.chars().take(80).collect();
            Err(RuleError { text, at, expected })
        };
        if text.len() > Self::BYTES_MAX {
            return wrong(0, "a rule of at most 4096 bytes is expected");
        }
        let Some((effect, rest)) = text.split_once(':') else {
            return wrong(0, "`allow:`, `ask:` or `deny:` is expected");
        };
        let Some(effect) = Effect::parse(effect.trim()) else {
            return wrong(0, "`allow:`, `ask:` or `deny:` is expected");
        };
        let from = text.len() - rest.trim_start().len();
        let rest = rest.trim();
        let (name, pattern) = match rest.split_once('(') {
            None => (rest, None),
            Some((name, pattern)) => match pattern.strip_suffix(')') {
                Some(pattern) => (name.trim_end(), Some((from + rest.len() - pattern.len() - 1, pattern))),
                None => return wrong(from + rest.len(), "`)` is expected at the end"),
            },
        };
        let Some((target, takes_pattern)) = Target::parse(name) else {
            return wrong(from, "a category (read, write, exec, git, network) or the name of a tool is expected");
        };
        let pattern = match pattern {
            None => None,
            Some((at, _)) if !takes_pattern => {
                return wrong(at, "no pattern is expected: this tool takes none");
            }
            Some((at, pattern)) => match Pattern::new(pattern) {
                Ok(pattern) => Some(pattern),
                Err((byte, expected)) => return wrong(at + byte, expected),
            },
        };
        Ok(Self { effect, target, pattern })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.effect.as_str(), self.target.as_str())?;
        match &self.pattern {
            Some(pattern) => write!(f, "({})", pattern.as_str()),
            None => Ok(()),
        }
    }
}

impl Effect {
    const ALL: [Self; 3] = [Self::Allow, Self::Ask, Self::Deny];

    /// Returns the keyword.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effect| effect.as_str() == word)
    }
}

impl Target {
    /// Every category.
    const CATEGORIES: [Self; 5] = [Self::Read, Self::Write, Self::Exec, Self::Git, Self::Network];

    /// Returns the keyword: a category, or the name of a tool in rules.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Exec => "exec",
            Self::Git => "git",
            Self::Network => "network",
            Self::Tool(name) => name,
        }
    }

    /// Parses a keyword. The second value is whether a rule for the target may have a pattern.
    fn parse(word: &str) -> Option<(Self, bool)> {
        if word == "sandbox_exec" {
            return Some((Self::Exec, true));
        }
        if let Some(category) = Self::CATEGORIES.into_iter().find(|category| category.as_str() == word) {
            return Some((category, true));
        }
        let tool = find_for_rule(word)?;
        Some((Self::Tool(rule_name(tool.name()).to_owned()), tool.takes_rule_pattern()))
    }
}

impl Pattern {
    fn new(text: &str) -> Result<Self, (usize, &'static str)> {
        if text.is_empty() {
            return Err((0, "a pattern is expected between the parentheses"));
        }
        let mut letters = text.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '[' => return Err((at, "`\\[` is expected: character classes are not supported")),
                letter if letter.is_control() => return Err((at, "no control character is expected")),
                '\\' if letters.next().and_then(|(_, letter)| unescape(letter)).is_none() => {
                    return Err((at, "one of \\* \\? \\[ \\\\ \\n \\t or `\\ ` is expected"));
                }
                _ => {}
            }
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns a pattern that matches exactly these words.
    pub fn exact_words(words: &[String]) -> Option<Self> {
        let words: Vec<String> = words.iter().map(|word| escape(word).replace(' ', "\\ ")).collect();
        Self::new(&words.join(" ")).ok().filter(Self::fits_rule_limit)
    }

    /// Returns a pattern that matches exactly this text.
    pub fn exact(text: &str) -> Option<Self> {
        Self::new(&escape(text)).ok().filter(Self::fits_rule_limit)
    }

    fn fits_rule_limit(&self) -> bool {
        self.0.len() + "allow: network()".len() <= Rule::BYTES_MAX
    }

    /// Returns the text as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns its tokens.
    pub fn tokens(&self) -> Vec<PatternToken> {
        let mut tokens = Vec::new();
        let mut letters = self.0.chars().peekable();
        while let Some(letter) = letters.next() {
            tokens.push(match letter {
                '*' if letters.next_if_eq(&'*').is_some() => PatternToken::AnyPath,
                '*' => PatternToken::AnyText,
                '?' => PatternToken::AnyChar,
                '\\' => letters.next().and_then(unescape).unwrap_or(PatternToken::Literal('\\')),
                letter => PatternToken::Literal(letter),
            });
        }
        tokens
    }

    /// Returns whether it matches only one text.
    pub fn is_exact(&self) -> bool {
        self.tokens().iter().all(|token| matches!(token, PatternToken::Literal(_) | PatternToken::EscapedSpace))
    }
}

fn unescape(letter: char) -> Option<PatternToken> {
    match letter {
        '*' | '?' | '[' | '\\' => Some(PatternToken::Literal(letter)),
        'n' => Some(PatternToken::Literal('\n')),
        't' => Some(PatternToken::Literal('\t')),
        ' ' => Some(PatternToken::EscapedSpace),
        _ => None,
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '*' | '?' | '[' | '\\' => escaped.extend(['\\', letter]),
            '\n' => escaped.push_str("\\n"),
            '\t' => escaped.push_str("\\t"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_round_trip() {
        for text in [
            "allow: exec(cargo test*)",
            "deny: write(.env*)",
            "ask: git",
            "deny: read_file(~/.ssh/**)",
            "allow: network(*.example.org)",
            "allow: exec(echo \\*\\?\\[\\\\ a\\ b\\n)",
            "allow: exec(f (x))",
            "ask: exec( )",
        ] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
        for (text, plain) in [
            ("allow:sandbox_exec(x)", "allow: exec(x)"),
            ("  deny  :  sandbox_read_file ( a )  ", "deny: read_file( a )"),
            ("ask: sandbox_git_commit", "ask: git_commit"),
        ] {
            let rule: Rule = text.parse().unwrap();
            assert_eq!(rule.to_string(), plain);
            assert_eq!(plain.parse::<Rule>().unwrap(), rule);
        }
        let tools = ["read_file", "list_dir", "search", "write_file", "edit_file", "git_status", "git_diff", "fetch"];
        let tools = tools.map(|name| Target::Tool(name.to_owned()));
        for target in Target::CATEGORIES.into_iter().chain(tools) {
            let rule = Rule::all(Effect::Ask, target);
            assert_eq!(rule.to_string().parse::<Rule>().unwrap(), rule);
        }
    }

    #[test]
    fn an_invalid_rule_is_refused_with_its_position() {
        for (text, at, word) in [
            ("", 1, "`allow:`"),
            ("exec(x)", 1, "`allow:`"),
            ("Allow: exec", 1, "`allow:`"),
            ("permit: exec", 1, "`allow:`"),
            ("deny: exce", 7, "a category"),
            ("deny: sandbox_read", 7, "a category"),
            ("deny:", 6, "a category"),
            ("deny: exec(rm", 14, "`)`"),
            ("deny: exec(rm) x", 17, "`)`"),
            ("deny: exec()", 12, "a pattern is expected"),
            ("deny: read(a[bc])", 13, "`\\[`"),
            ("deny: read(äö\\x)", 14, "one of"),
            ("deny: read(x\\)", 13, "one of"),
            ("deny: read(a\nb)", 13, "no control"),
            ("ask: git_commit(x)", 17, "no pattern"),
        ] {
            let error = text.parse::<Rule>().unwrap_err();
            assert_eq!(error.at, at, "{error}");
            assert!(error.expected.contains(word), "{error}");
        }
        let long = format!("deny: exec({})", "x".repeat(5000));
        assert!(long.parse::<Rule>().unwrap_err().to_string().len() < 300);
    }

    #[test]
    fn an_exact_pattern_matches_only_its_words() {
        let words = ["git".to_owned(), "commit".to_owned(), "a b*\n\\".to_owned()];
        let pattern = Pattern::exact_words(&words).unwrap();
        assert_eq!(pattern.as_str(), "git commit a\\ b\\*\\n\\\\");
        assert!(pattern.is_exact());
        assert!(!Pattern::new("a*").unwrap().is_exact());
        let tokens = Pattern::new("*.r?/**").unwrap().tokens();
        let letter = PatternToken::Literal;
        assert_eq!(
            tokens,
            [
                PatternToken::AnyText,
                letter('.'),
                letter('r'),
                PatternToken::AnyChar,
                letter('/'),
                PatternToken::AnyPath
            ]
        );
    }
}
