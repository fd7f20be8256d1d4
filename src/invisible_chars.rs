//! Unicode characters that are invisible, or that look like others.
//!
//! Code that displays untrusted text removes or escapes them, and the risk assessment treats text with them as
//! suspicious. Both use this one list, so that they agree.

/// Returns whether a character is invisible or changes the text direction.
pub const fn is_invisible(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{13455}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns whether a character looks like a space and is not the ASCII one.
pub fn is_unusual_space(letter: char) -> bool {
    (letter.is_whitespace() && !letter.is_ascii()) || letter == '\u{2800}'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_and_unusual_spaces_are_classified() {
        for letter in ['\u{200b}', '\u{200d}', '\u{202e}', '\u{2066}', '\u{feff}', '\u{e0041}', '\u{13430}'] {
            assert!(is_invisible(letter) && !is_unusual_space(letter), "{letter:?}");
        }
        for letter in ['\u{a0}', '\u{1680}', '\u{2009}', '\u{202f}', '\u{205f}', '\u{2800}', '\u{3000}'] {
            assert!(is_unusual_space(letter) && !is_invisible(letter), "{letter:?}");
        }
        assert!("aé漢🦀e\u{301} \t\n".chars().all(|letter| !is_invisible(letter) && !is_unusual_space(letter)));
    }
}
