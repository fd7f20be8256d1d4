//! Whether the rules that an approver wrote cover the call that is approved.

use super::subject::Subject;
use crate::config::settings::rule::{Pattern, PatternToken, Rule, Target};
use crate::sandbox::risk::{CommandWords, PathContext, PathRef, PathScope, ResourceAccess};

/// Returns whether `allow` rules cover everything that the narrowest rules for a call allow.
///
/// The narrowest rules are those of [`PolicyDecision::grant_rules`](super::PolicyDecision::grant_rules): each has a
/// pattern that matches one text. `tool` is the tool of the call.
pub fn rules_cover(rules: &[Rule], narrowest: &[Rule], tool: &str, path_context: &PathContext) -> bool {
    let covered = |narrow: &Rule| rules.iter().any(|rule| rule == narrow || covers(rule, narrow, tool, path_context));
    !narrowest.is_empty() && narrowest.iter().all(covered)
}

fn covers(rule: &Rule, narrow: &Rule, tool: &str, path_context: &PathContext) -> bool {
    let Some(pattern) = narrow.pattern.as_ref().filter(|pattern| pattern.is_exact()) else { return false };
    let access = match narrow.target {
        Target::Exec => {
            let words = CommandWords { words: words_of(pattern), wrapped_forms: Vec::new() };
            return Subject::Command(&words).is_allowed_by(rule, tool, path_context);
        }
        Target::Read => ResourceAccess::Read(path_of(pattern)),
        Target::Write => ResourceAccess::Write(path_of(pattern)),
        Target::Git => ResourceAccess::Git(text_of(pattern)),
        Target::Network => ResourceAccess::Network(Some(text_of(pattern))),
        Target::Tool(_) => return false,
    };
    Subject::Access(&access).is_allowed_by(rule, tool, path_context)
}

/// Returns the words that a pattern of words matches.
fn words_of(pattern: &Pattern) -> Vec<String> {
    let mut words = vec![String::new()];
    for token in pattern.tokens() {
        match (token, words.last_mut()) {
            (PatternToken::Literal(' '), _) => words.push(String::new()),
            (token, Some(word)) => word.extend(letter(token)),
            (_, None) => {}
        }
    }
    words
}

/// Returns the path that a pattern of a path matches.
fn path_of(pattern: &Pattern) -> PathRef {
    let text = text_of(pattern);
    match text.strip_prefix('/') {
        Some(absolute) if absolute.starts_with('/') => PathRef { path: absolute.to_owned(), scope: PathScope::Outside },
        Some(relative) => PathRef { path: relative.to_owned(), scope: PathScope::Inside },
        None => PathRef { path: text, scope: PathScope::Outside },
    }
}

fn text_of(pattern: &Pattern) -> String {
    pattern.tokens().into_iter().filter_map(letter).collect()
}

const fn letter(token: PatternToken) -> Option<char> {
    match token {
        PatternToken::Literal(letter) => Some(letter),
        PatternToken::EscapedSpace => Some(' '),
        PatternToken::AnyChar | PatternToken::AnyText | PatternToken::AnyPath => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_rule_covers_what_it_would_allow() {
        for (written, narrowest, covered) in [
            ("allow: exec(cargo test)", "allow: exec(cargo test)", true),
            ("allow: exec(cargo *)", "allow: exec(cargo test)", true),
            ("allow: exec", "allow: exec(cargo test)", true),
            ("allow: exec(cargo build)", "allow: exec(cargo test)", false),
            ("allow: exec(echo a*)", "allow: exec(echo a\\ b)", true),
            ("allow: exec(echo a b)", "allow: exec(echo a\\ b)", false),
            ("allow: exec(echo \\*)", "allow: exec(echo \\*)", true),
            ("allow: write(*)", "allow: exec(cargo test)", false),
            ("allow: exec(cargo *)", "allow: exec(cargo test)\nallow: exec(make)", false),
            ("allow: exec(cargo *)\nallow: exec(make)", "allow: exec(cargo test)\nallow: exec(make)", true),
            ("allow: write(/src/**)", "allow: write(/src/a.rs)", true),
            ("allow: write(src)", "allow: write(/src/a.rs)", true),
            ("allow: write(*.rs)", "allow: write(/src/a.rs)", true),
            ("allow: edit_file(src/**)", "allow: write(/src/a.rs)", true),
            ("allow: write_file(src/**)", "allow: write(/src/a.rs)", false),
            ("allow: write(/lib/**)", "allow: write(/src/a.rs)", false),
            ("allow: write(//etc/**)", "allow: write(//etc/hosts)", true),
            ("allow: write(/etc/**)", "allow: write(//etc/hosts)", false),
            ("allow: read(/src/**)", "allow: write(/src/a.rs)", false),
            ("allow: git", "allow: git(commit)", true),
            ("allow: git(push)", "allow: git(commit)", false),
            ("allow: network(*.org)", "allow: network(example.org)", true),
            ("allow: network(*.com)", "allow: network(example.org)", false),
        ] {
            let context = PathContext::new(Path::new("/work"), Some(Path::new("/home/ann")));
            let found = rules_cover(&rules(written), &rules(narrowest), "sandbox_edit_file", &context);
            assert_eq!(found, covered, "{written} for {narrowest}");
        }
    }

    fn rules(text: &str) -> Vec<Rule> {
        text.lines().map(|line| line.parse().unwrap()).collect()
    }
}
