//! The subjects of rules, and how rules match them.

use super::glob::{Certainty, INNER_SPACE, StarScope, glob_matches};
use crate::config::settings::rule::{Pattern, PatternToken, Rule, Target};
use crate::sandbox::risk::{CommandWords, PathContext, PathRef, PathScope, ResourceAccess};
use crate::sandbox::shell::UNKNOWN;
use crate::tools::{Category, rule_name};

/// An effect of a call, as rules see it.
pub(super) enum Subject<'a> {
    /// A command.
    Command(&'a CommandWords),
    /// An access, by a tool or by a command.
    Access(&'a ResourceAccess),
}

/// Whether a rule matches a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleMatch {
    /// It does not match.
    No,
    /// It may match; only execution would tell.
    Possible,
    /// It matches.
    Yes,
}

impl Subject<'_> {
    /// Returns the category; `None` for a file that is only named.
    pub(super) const fn category(&self) -> Option<Category> {
        match self {
            Self::Command(_) => Some(Category::Exec),
            Self::Access(ResourceAccess::Read(_)) => Some(Category::Read),
            Self::Access(ResourceAccess::Write(_)) => Some(Category::Write),
            Self::Access(ResourceAccess::Git(_)) => Some(Category::Git),
            Self::Access(ResourceAccess::Network(_)) => Some(Category::Network),
            Self::Access(ResourceAccess::Mention(_)) => None,
        }
    }

    /// Returns whether an `allow` rule matches it, whatever its unknown parts expand to.
    pub(super) fn is_allowed_by(&self, rule: &Rule, tool: &str, path_context: &PathContext) -> bool {
        if !self.is_target(&rule.target, tool) || matches!(self, Self::Access(ResourceAccess::Mention(_))) {
            return false;
        }
        let Some(pattern) = &rule.pattern else { return true };
        match self {
            Self::Command(spelling) => words_match(pattern, &spelling.words, Certainty::Exact),
            Self::Access(
                ResourceAccess::Read(path_ref) | ResourceAccess::Write(path_ref) | ResourceAccess::Mention(path_ref),
            ) => {
                path_ref.scope != PathScope::Unknown && path_matches(pattern, path_ref, path_context, Certainty::Exact)
            }
            Self::Access(ResourceAccess::Git(words)) => {
                words.len() <= MAX_MATCH_BYTES
                    && glob_matches(&pattern.tokens(), words, StarScope::Text, Certainty::Exact)
            }
            Self::Access(ResourceAccess::Network(host)) => {
                let unknown = UNKNOWN.to_string();
                let host = host.as_ref().unwrap_or(&unknown);
                glob_matches(&pattern.tokens(), host, StarScope::Text, Certainty::Exact)
            }
        }
    }

    /// Returns whether a rule that asks or denies matches it, or may match it.
    pub(super) fn match_rule(&self, rule: &Rule, tool: &str, path_context: &PathContext) -> RuleMatch {
        if !self.is_target(&rule.target, tool) {
            return RuleMatch::No;
        }
        // A file that is only named may not be accessed at all.
        let most =
            if matches!(self, Self::Access(ResourceAccess::Mention(_))) { RuleMatch::Possible } else { RuleMatch::Yes };
        let Some(pattern) = &rule.pattern else {
            return if most == RuleMatch::Yes { RuleMatch::Yes } else { RuleMatch::No };
        };
        let met = |certainty: Certainty| match self {
            Self::Command(spelling) => {
                let spellings = std::iter::once(&spelling.words).chain(&spelling.wrapped_forms);
                spellings.into_iter().any(|words| words_match(pattern, words, certainty))
            }
            Self::Access(
                ResourceAccess::Read(path_ref) | ResourceAccess::Write(path_ref) | ResourceAccess::Mention(path_ref),
            ) => path_matches(pattern, path_ref, path_context, certainty),
            Self::Access(ResourceAccess::Git(words)) => {
                glob_matches(&pattern.tokens(), words, StarScope::Text, certainty)
            }
            Self::Access(ResourceAccess::Network(host)) => {
                let unknown = UNKNOWN.to_string();
                glob_matches(&pattern.tokens(), host.as_ref().unwrap_or(&unknown), StarScope::Text, certainty)
            }
        };
        if self.exceeds_length_limit() {
            return RuleMatch::Possible;
        }
        match () {
            () if met(Certainty::Certain) => most,
            () if met(Certainty::Possible) => RuleMatch::Possible,
            () => RuleMatch::No,
        }
    }

    /// Returns whether it is too long to be matched against every rule.
    fn exceeds_length_limit(&self) -> bool {
        match self {
            Self::Command(spelling) => std::iter::once(&spelling.words)
                .chain(&spelling.wrapped_forms)
                .any(|words| words.iter().map(String::len).sum::<usize>() > MAX_MATCH_BYTES),
            Self::Access(
                ResourceAccess::Read(path_ref) | ResourceAccess::Write(path_ref) | ResourceAccess::Mention(path_ref),
            ) => path_ref.path.len() > MAX_MATCH_BYTES,
            Self::Access(ResourceAccess::Git(words)) => words.len() > MAX_MATCH_BYTES,
            Self::Access(ResourceAccess::Network(host)) => {
                host.as_ref().is_some_and(|host| host.len() > MAX_MATCH_BYTES)
            }
        }
    }

    fn is_target(&self, target: &Target, tool: &str) -> bool {
        match (target, self) {
            (Target::Exec, Self::Command(_))
            | (Target::Read, Self::Access(ResourceAccess::Read(_) | ResourceAccess::Mention(_)))
            | (Target::Write, Self::Access(ResourceAccess::Write(_) | ResourceAccess::Mention(_)))
            | (Target::Git, Self::Access(ResourceAccess::Git(_)))
            | (Target::Network, Self::Access(ResourceAccess::Network(_))) => true,
            (Target::Tool(name), Self::Access(_)) => rule_name(tool) == name,
            (Target::Exec | Target::Read | Target::Write | Target::Git | Target::Network, _)
            | (Target::Tool(_), Self::Command(_)) => false,
        }
    }
}

/// Joins words into the text that patterns match.
pub(super) fn join_words(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| word.replace(' ', &INNER_SPACE.to_string())).collect();
    words.join(" ")
}

fn words_match(pattern: &Pattern, words: &[String], certainty: Certainty) -> bool {
    let text = join_words(words);
    text.len() <= MAX_MATCH_BYTES && glob_matches(&pattern.tokens(), &text, StarScope::Text, certainty)
}

/// Matches a pattern against a path: `/x` is relative to the workspace, `//x` to the root, `~/x` to the home. A
/// pattern with another slash is relative to the workspace; one without a slash matches in any directory. `/` alone
/// is the workspace.
fn path_matches(pattern: &Pattern, path_ref: &PathRef, path_context: &PathContext, certainty: Certainty) -> bool {
    let text = pattern.as_str();
    let mut tokens = pattern.tokens();
    if tokens.last() == Some(&PatternToken::Literal('/')) {
        tokens.pop();
    }
    let fit = |tokens: &[PatternToken], path: &str| glob_matches(tokens, path, StarScope::Path, certainty);
    // A path with an unknown beginning may begin anywhere.
    let below_unknown = (path_ref.scope == PathScope::Unknown).then(|| format!("{UNKNOWN}/{}", path_ref.path));
    let spellings = || std::iter::once(&path_ref.path).chain(&below_unknown);
    if let Some(home) = text.strip_prefix("~/").map(|_| path_context.home().unwrap_or("~")) {
        let tokens: Vec<PatternToken> = home.chars().map(PatternToken::Literal).chain(tokens.drain(1..)).collect();
        return fit(&tokens, &path_context.absolute_path(path_ref))
            || below_unknown.is_some_and(|path| fit(&tokens, &path));
    }
    if text.starts_with("//") {
        return fit(&tokens[1..], &path_context.absolute_path(path_ref))
            || below_unknown.is_some_and(|path| fit(&tokens[1..], &path));
    }
    if text == "/" {
        return match path_ref.scope {
            PathScope::Inside => true,
            PathScope::Outside => false,
            PathScope::Unknown => certainty == Certainty::Possible,
        };
    }
    let from = usize::from(text.starts_with('/'));
    if from == 1 || tokens.contains(&PatternToken::Literal('/')) {
        return path_ref.scope != PathScope::Outside && spellings().any(|path| fit(&tokens[from..], path));
    }
    let anywhere = |path: &String| {
        let starts = path.match_indices('/').map(|(at, _)| at + 1);
        starts.chain([0]).any(|at| fit(&tokens, &path[at..]))
    };
    spellings().any(anywhere)
}

/// The longest text that is matched against a pattern, in bytes.
const MAX_MATCH_BYTES: usize = 8192;
