//! Letters that cannot be seen, or that are taken for others.
//!
//! Whoever shows foreign text leaves them out or writes them out, and whoever judges it doubts it for them. One list, so that
//! nothing is hidden from the one that the other finds.

/// Tells whether a letter shows nothing, or turns the direction of those that do.
pub const fn is_unseen(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{13455}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Tells whether a letter looks like a space and is none.
pub fn is_odd_blank(letter: char) -> bool {
    (letter.is_whitespace() && !letter.is_ascii()) || letter == '\u{2800}'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shows_nothing_is_told_from_what_does() {
        for letter in ['\u{200b}', '\u{200d}', '\u{202e}', '\u{2066}', '\u{feff}', '\u{e0041}', '\u{13430}'] {
            assert!(is_unseen(letter) && !is_odd_blank(letter), "{letter:?}");
        }
        for letter in ['\u{a0}', '\u{1680}', '\u{2009}', '\u{202f}', '\u{205f}', '\u{2800}', '\u{3000}'] {
            assert!(is_odd_blank(letter) && !is_unseen(letter), "{letter:?}");
        }
        assert!("aé漢🦀e\u{301} \t\n".chars().all(|letter| !is_unseen(letter) && !is_odd_blank(letter)));
    }
}
