//! Completion of the word before the cursor: `/` commands and `@` files.
//!
//! Pure.

use super::commands::COMMANDS;

/// The candidates for the word before the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Completion {
    /// Where the word starts.
    pub(crate) start: usize,
    /// What can stand in its place, with a description.
    pub(crate) candidates: Vec<(String, &'static str)>,
    /// The selected candidate.
    pub(crate) selected: usize,
}

/// How many candidates are shown.
pub(crate) const SHOWN: usize = 6;

impl Completion {
    /// Finds the candidates for the end of a text; none if nothing can be completed.
    pub(crate) fn find(before: &str, files: Option<&[String]>) -> Option<Self> {
        let start = before
            .rfind(char::is_whitespace)
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let word = before.get(start..)?;
        let candidates: Vec<(String, &'static str)> = if start == 0 && word.starts_with('/') {
            let fits = |(name, _, _): &&(&str, &str, &str)| name.starts_with(word) && *name != word;
            COMMANDS.iter().filter(fits).map(|(name, _, about)| ((*name).to_owned(), *about)).collect()
        } else {
            let typed = word.strip_prefix('@')?;
            find_files(typed, files?).into_iter().map(|file| (format!("@{file}"), "")).collect()
        };
        (!candidates.is_empty()).then_some(Self { start, candidates, selected: 0 })
    }

    /// Selects the next or the previous candidate.
    pub(crate) fn select(&mut self, down: bool) {
        let count = self.candidates.len();
        self.selected = if down { self.selected + 1 } else { self.selected + count - 1 } % count;
    }

    /// Returns the selected candidate.
    pub(crate) fn chosen(&self) -> &str {
        self.candidates.get(self.selected).map_or("", |(text, _)| text)
    }
}

/// Returns whether a text ends with the start of a file name.
pub(crate) fn wants_files(before: &str) -> bool {
    before.split(char::is_whitespace).next_back().is_some_and(|word| word.starts_with('@'))
}

/// Returns the files that fit best: first those whose name starts with what was typed, then those that contain it.
fn find_files(typed: &str, files: &[String]) -> Vec<String> {
    let typed = typed.to_lowercase();
    let rank = |path: &String| {
        let lower = path.to_lowercase();
        let name = lower.rsplit('/').next().unwrap_or_default().to_owned();
        match () {
            () if lower == typed => None,
            () if lower.starts_with(&typed) => Some((0, path.len())),
            () if name.starts_with(&typed) => Some((1, path.len())),
            () if lower.contains(&typed) => Some((2, path.len())),
            () if is_subsequence(&typed, &lower) => Some((3, path.len())),
            () => None,
        }
    };
    let mut found: Vec<_> = files.iter().filter_map(|path| Some((rank(path)?, path))).collect();
    found.sort();
    found.into_iter().take(SHOWN * 4).map(|(_, path)| path.clone()).collect()
}

fn is_subsequence(typed: &str, text: &str) -> bool {
    let mut letters = text.chars();
    typed.chars().all(|wanted| letters.any(|letter| letter == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_completed_at_the_start_and_files_anywhere() {
        let files = ["src/main.rs".to_owned(), "README.md".to_owned(), "src/domain.rs".to_owned()];
        let names = |text: &str| {
            let found = Completion::find(text, Some(&files));
            found.map(|found| found.candidates.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
        };
        assert_eq!(names("/comp"), Some(vec!["/compact".to_owned()]));
        assert_eq!(names("a /comp"), None);
        assert_eq!(names("see @mai"), Some(vec!["@src/main.rs".to_owned(), "@src/domain.rs".to_owned()]));
        assert_eq!(names("see @README.md"), None);
        assert_eq!(names("see "), None);
    }
}
