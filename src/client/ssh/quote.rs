//! Quoting of a command line for the shell of another machine.

/// Returns a command line that a POSIX shell splits into exactly these words.
///
/// ssh joins its arguments with spaces and passes them to the login shell of the user.
pub(super) fn command_line<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

fn quote(word: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "_-./:,@%+=".contains(char);
    // Some shells expand a word that begins with `=`.
    if !word.is_empty() && !word.starts_with('=') && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_stay_readable_and_others_are_quoted() {
        assert_eq!(command_line(["push", "doctor", "--json"]), "push doctor --json");
        assert_eq!(command_line(["", "=x", "a b", "it's"]), r"'' '=x' 'a b' 'it'\''s'");
    }

    #[cfg(unix)]
    #[test]
    fn a_shell_reads_the_words_that_were_quoted() {
        use std::process::Command;
        let alphabet: Vec<char> = "a~'\"\\$`!*?[]{}()<>|&;#=% \t\n-ä\u{1f600}\u{7f}\u{1b}".chars().collect();
        // A fixed linear congruential generator: the words are the same in every run.
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut next = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % limit
        };
        for round in 0..50 {
            let words: Vec<String> =
                (0..next(9) + 1).map(|_| (0..next(12)).map(|_| alphabet[next(alphabet.len())]).collect()).collect();
            let line = command_line(words.iter().map(String::as_str));
            let script = format!("print() {{ printf '%s\\0' \"$@\"; }}; print {line}");
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            let expected: String = words.iter().flat_map(|word| [word, "\0"]).collect();
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "round {round}: {line}");
        }
    }
}
