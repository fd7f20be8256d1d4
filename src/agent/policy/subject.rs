//! The subjects of rules, and how rules match them.

use super::glob::{INNER, Over, Sure, fits};
use crate::config::settings::rule::{Pattern, Rule, Target, Token};
use crate::sandbox::judge::{Place, Spelling, Spot, What, Zone};
use crate::sandbox::shell::HOLE;
use crate::tools::Category;

/// An effect of a call, as rules see it.
pub(super) enum Subject<'a> {
    /// A command.
    Command(&'a Spelling),
    /// An access, by a tool or by a command.
    Touched(&'a What),
}

/// Whether a rule matches a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    /// It does not match.
    No,
    /// It may match; only execution would tell.
    Perhaps,
    /// It matches.
    Yes,
}

impl Subject<'_> {
    /// Returns the category; `None` for a file that is only named.
    pub(super) const fn category(&self) -> Option<Category> {
        match self {
            Self::Command(_) => Some(Category::Exec),
            Self::Touched(What::Read(_)) => Some(Category::Read),
            Self::Touched(What::Write(_)) => Some(Category::Write),
            Self::Touched(What::Git(_)) => Some(Category::Git),
            Self::Touched(What::Network(_)) => Some(Category::Network),
            Self::Touched(What::Name(_)) => None,
        }
    }

    /// Returns whether an `allow` rule matches it, whatever its unknown parts expand to.
    pub(super) fn is_allowed_by(&self, rule: &Rule, tool: &str, place: &Place) -> bool {
        if !self.is_target(rule.target, tool) || matches!(self, Self::Touched(What::Name(_))) {
            return false;
        }
        let Some(pattern) = &rule.pattern else { return true };
        match self {
            Self::Command(spelling) => fits_words(pattern, &spelling.words, Sure::Always),
            Self::Touched(What::Read(spot) | What::Write(spot) | What::Name(spot)) => {
                spot.zone != Zone::Unknown && fits_path(pattern, spot, place, Sure::Always)
            }
            Self::Touched(What::Git(words)) => {
                words.len() <= LONGEST && fits(&pattern.tokens(), words, Over::Everything, Sure::Always)
            }
            Self::Touched(What::Network(host)) => {
                let unknown = HOLE.to_string();
                let host = host.as_ref().unwrap_or(&unknown);
                fits(&pattern.tokens(), host, Over::Everything, Sure::Always)
            }
        }
    }

    /// Returns whether a rule that asks or denies matches it, or may match it.
    pub(super) fn is_met_by(&self, rule: &Rule, tool: &str, place: &Place) -> Match {
        if !self.is_target(rule.target, tool) {
            return Match::No;
        }
        // A file that is only named may not be accessed at all.
        let most = if matches!(self, Self::Touched(What::Name(_))) { Match::Perhaps } else { Match::Yes };
        let Some(pattern) = &rule.pattern else {
            return if most == Match::Yes { Match::Yes } else { Match::No };
        };
        let met = |sure: Sure| match self {
            Self::Command(spelling) => {
                let spellings = std::iter::once(&spelling.words).chain(&spelling.outer);
                spellings.into_iter().any(|words| fits_words(pattern, words, sure))
            }
            Self::Touched(What::Read(spot) | What::Write(spot) | What::Name(spot)) => {
                fits_path(pattern, spot, place, sure)
            }
            Self::Touched(What::Git(words)) => fits(&pattern.tokens(), words, Over::Everything, sure),
            Self::Touched(What::Network(host)) => {
                let unknown = HOLE.to_string();
                fits(&pattern.tokens(), host.as_ref().unwrap_or(&unknown), Over::Everything, sure)
            }
        };
        if self.is_long() {
            return Match::Perhaps;
        }
        match () {
            () if met(Sure::Really) => most,
            () if met(Sure::Perhaps) => Match::Perhaps,
            () => Match::No,
        }
    }

    /// Returns whether it is too long to be matched against every rule.
    fn is_long(&self) -> bool {
        match self {
            Self::Command(spelling) => std::iter::once(&spelling.words)
                .chain(&spelling.outer)
                .any(|words| words.iter().map(String::len).sum::<usize>() > LONGEST),
            Self::Touched(What::Read(spot) | What::Write(spot) | What::Name(spot)) => {
                spot.path.len() > LONGEST
            }
            Self::Touched(What::Git(words)) => words.len() > LONGEST,
            Self::Touched(What::Network(host)) => host.as_ref().is_some_and(|host| host.len() > LONGEST),
        }
    }

    fn is_target(&self, target: Target, tool: &str) -> bool {
        match (target, self) {
            (Target::Exec, Self::Command(_))
            | (Target::Read, Self::Touched(What::Read(_) | What::Name(_)))
            | (Target::Write, Self::Touched(What::Write(_) | What::Name(_)))
            | (Target::Git, Self::Touched(What::Git(_)))
            | (Target::Network, Self::Touched(What::Network(_))) => true,
            (Target::Tool(_), Self::Touched(_)) => tool.strip_prefix("sandbox_") == Some(target.word()),
            (Target::Exec | Target::Read | Target::Write | Target::Git | Target::Network, _)
            | (Target::Tool(_), Self::Command(_)) => false,
        }
    }
}

/// Joins words into the text that patterns match.
pub(super) fn joined(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| word.replace(' ', &INNER.to_string())).collect();
    words.join(" ")
}

fn fits_words(pattern: &Pattern, words: &[String], sure: Sure) -> bool {
    let text = joined(words);
    text.len() <= LONGEST && fits(&pattern.tokens(), &text, Over::Everything, sure)
}

/// Matches a pattern against a path: `/x` is relative to the workspace, `//x` to the root, `~/x` to the home. A
/// pattern with another slash is relative to the workspace; one without a slash matches in any directory. `/` alone
/// is the workspace.
fn fits_path(pattern: &Pattern, spot: &Spot, place: &Place, sure: Sure) -> bool {
    let text = pattern.as_str();
    let mut tokens = pattern.tokens();
    if tokens.last() == Some(&Token::Letter('/')) {
        tokens.pop();
    }
    let fit = |tokens: &[Token], path: &str| fits(tokens, path, Over::Names, sure);
    // A path with an unknown beginning may begin anywhere.
    let adrift = (spot.zone == Zone::Unknown).then(|| format!("{HOLE}/{}", spot.path));
    let spellings = || std::iter::once(&spot.path).chain(&adrift);
    if let Some(home) = text.strip_prefix("~/").map(|_| place.home().unwrap_or("~")) {
        let tokens: Vec<Token> = home.chars().map(Token::Letter).chain(tokens.drain(1..)).collect();
        return fit(&tokens, &place.whole(spot)) || adrift.is_some_and(|path| fit(&tokens, &path));
    }
    if text.starts_with("//") {
        return fit(&tokens[1..], &place.whole(spot)) || adrift.is_some_and(|path| fit(&tokens[1..], &path));
    }
    if text == "/" {
        return match spot.zone {
            Zone::Inside => true,
            Zone::Outside => false,
            Zone::Unknown => sure == Sure::Perhaps,
        };
    }
    let from = usize::from(text.starts_with('/'));
    if from == 1 || tokens.contains(&Token::Letter('/')) {
        return spot.zone != Zone::Outside && spellings().any(|path| fit(&tokens[from..], path));
    }
    let anywhere = |path: &String| {
        let starts = path.match_indices('/').map(|(at, _)| at + 1);
        starts.chain([0]).any(|at| fit(&tokens, &path[at..]))
    };
    spellings().any(anywhere)
}

/// The longest text that is matched against a pattern, in bytes.
const LONGEST: usize = 8192;
