//! Sanitizes untrusted text for terminals.
//!
//! Output of tools and models may contain escape sequences that move the cursor, hide a command or reorder
//! characters. Sanitized text consists of visible characters, line breaks and tabs.

use std::borrow::Cow;

use crate::invisible_chars::{is_invisible, is_unusual_space};

/// Strips control sequences from a stream of text; they may be split anywhere.
#[derive(Debug, Default)]
pub(crate) struct Sanitizer {
    state: State,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Outside any sequence (the name is that of the VT500 parser).
    #[default]
    Ground,
    /// After a carriage return, to which a line feed may belong.
    CarriageReturn,
    /// After an escape character.
    Escape,
    /// Inside an escape sequence with intermediate characters, before its final character.
    Intermediate,
    /// Inside a control sequence.
    ControlSequence,
    /// Inside a control string.
    ControlString,
    /// Inside a control string, after an escape character.
    ControlStringEscape,
}

impl Sanitizer {
    /// Returns the sanitized text of the next piece.
    pub(crate) fn push(&mut self, piece: &str) -> String {
        let mut shown = String::with_capacity(piece.len());
        for c in piece.chars() {
            self.step(c, &mut shown);
        }
        shown
    }

    fn step(&mut self, c: char, shown: &mut String) {
        // A line break ends every sequence, so that an unfinished one cannot hide the following lines.
        if c == '\n' {
            self.state = State::Ground;
            shown.push(c);
            return;
        }
        self.state = match self.state {
            State::Ground => ground(c, shown),
            State::CarriageReturn => {
                // A carriage return without a line feed would overwrite the line.
                shown.push('\n');
                ground(c, shown)
            }
            State::Escape => match c {
                '[' => State::ControlSequence,
                ']' | 'P' | 'X' | '^' | '_' => State::ControlString,
                ' '..='/' => State::Intermediate,
                '\x1b' => State::Escape,
                _ => State::Ground,
            },
            State::Intermediate => match c {
                ' '..='/' => State::Intermediate,
                '\x1b' => State::Escape,
                _ => State::Ground,
            },
            State::ControlSequence => match c {
                '@'..='~' => State::Ground,
                '\x1b' => State::Escape,
                ' '..='?' | '\0'..='\x1f' => State::ControlSequence,
                // Not a valid control sequence: the character is text.
                _ => ground(c, shown),
            },
            State::ControlString => match c {
                '\x07' | '\u{9c}' => State::Ground,
                '\x1b' => State::ControlStringEscape,
                _ => State::ControlString,
            },
            State::ControlStringEscape => match c {
                '\x07' | '\\' | '\u{9c}' => State::Ground,
                '\x1b' => State::ControlStringEscape,
                _ => State::ControlString,
            },
        };
    }
}

/// Sanitizes a complete text.
pub(crate) fn sanitize(text: &str) -> String {
    Sanitizer::default().push(text)
}

/// Escapes control characters, invisible characters and characters that reorder text as `<U+XXXX>`, for text that a
/// person has to approve.
pub(crate) fn escape(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            // The ideographic space is visible as a gap and common in CJK text.
            '\u{3000}' => shown.push(c),
            _ if c.is_control() || is_invisible(c) || is_unusual_space(c) => {
                shown += &format!("<U+{:04X}>", u32::from(c));
            }
            _ => shown.push(c),
        }
    }
    shown
}

/// Like [`escape`], with line breaks and tabs escaped as well.
pub(crate) fn escape_line(text: &str) -> String {
    escape(text).replace('\n', "<U+000A>").replace('\t', "<U+0009>")
}

/// Sanitizes a text and joins its words with single spaces.
pub(crate) fn sanitize_line(text: &str) -> String {
    sanitize(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn ground(c: char, shown: &mut String) -> State {
    match c {
        '\x1b' => return State::Escape,
        '\r' => return State::CarriageReturn,
        '\u{9b}' => return State::ControlSequence,
        '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => return State::ControlString,
        '\t' => shown.push(c),
        _ if c.is_control() || is_invisible(c) => {}
        _ => shown.push(c),
    }
    State::Ground
}

/// Escapes control characters and invisible characters in JSON text, without changing its value. JSON itself requires
/// escapes for the first 32 characters only.
pub(crate) fn escape_json(json: &str) -> Cow<'_, str> {
    let hides = |c: char| c.is_control() || is_invisible(c);
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~');
    if json.bytes().all(is_plain) || !json.contains(hides) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if hides(c) {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| safe.push_str(&format!("\\u{unit:04x}")));
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_characters_line_breaks_and_tabs_are_kept() {
        let text = "äöü 漢字 🙂\n\tx — ‘y’ e\u{301}";
        assert_eq!(sanitize(text), text);
    }

    #[test]
    fn control_sequences_are_removed() {
        for (text, shown) in [
            ("\x1b[31mred\x1b[0m", "red"),
            ("\x1b[2J\x1b[Hgone", "gone"),
            ("\x1b]0;title\x07x", "x"),
            ("\x1b]8;;http://a.example\x1b\\link\x1b]8;;\x1b\\", "link"),
            ("\x1bPq#0;2;0\x1b\\x", "x"),
            ("\u{9b}31mred", "red"),
            ("\u{9d}0;title\u{9c}x", "x"),
            ("\x1b(Bx\x1b7y\x1bcz", "xyz"),
            ("a\x08b\x07c\0d\x7fe\u{85}f", "abcdef"),
        ] {
            assert_eq!(sanitize(text), shown, "{text:?}");
        }
    }

    #[test]
    fn a_sequence_may_be_split_anywhere() {
        let text = "a\x1b[1;31mb\x1b]0;t\x1b\\c\x1b(Bd\r\ne\rf\u{9b}1mg";
        let whole = sanitize(text);
        assert_eq!(whole, "abcd\ne\nfg");
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        for first in &ends {
            for second in ends.iter().filter(|second| *second >= first) {
                let mut plain = Sanitizer::default();
                let pieces = [&text[..*first], &text[*first..*second], &text[*second..]];
                let shown: String = pieces.iter().map(|piece| plain.push(piece)).collect();
                assert_eq!(shown, whole, "split at {first} and {second}");
            }
        }
    }

    #[test]
    fn an_unfinished_sequence_hides_no_more_than_its_line() {
        assert_eq!(sanitize("\x1b]0;x\nrm -rf /"), "\nrm -rf /");
        assert_eq!(sanitize("\x1b[12\nshown"), "\nshown");
        assert_eq!(sanitize("\x1b[1ä"), "ä");
    }

    #[test]
    fn a_carriage_return_overwrites_nothing() {
        assert_eq!(sanitize("rm -rf /\recho hello"), "rm -rf /\necho hello");
        assert_eq!(sanitize("a\r\nb"), "a\nb");
    }

    #[test]
    fn bidirectional_and_invisible_characters_are_removed() {
        assert_eq!(sanitize("a\u{202e}b\u{2066}c\u{200f}d\u{61c}e"), "abcde");
        assert_eq!(sanitize("a\u{200b}b\u{feff}c\u{ad}d\u{e0041}e\u{fe0f}f\u{2060}g"), "abcdefg");
    }

    #[test]
    fn escaped_text_hides_nothing_from_the_approver() {
        let text = "rm\u{200b} -rf\r \u{202e}x\x1b[2K\n\ty\u{9b}1m";
        assert_eq!(escape(text), "rm<U+200B> -rf<U+000D> <U+202E>x<U+001B>[2K\n\ty<U+009B>1m");
        let every: String = (0..0x11_0000).filter_map(char::from_u32).collect();
        let shown = escape(&every);
        assert_eq!(sanitize(&shown), shown);
        assert_eq!(escape("äöü 漢字\u{3000}🙂\n"), "äöü 漢字\u{3000}🙂\n");
        assert_eq!(escape("rm\u{a0}-rf\u{2800}x"), "rm<U+00A0>-rf<U+2800>x");
        assert_eq!(escape_line("a\u{200b}\n\tb"), "a<U+200B><U+000A><U+0009>b");
    }

    #[test]
    fn a_sanitized_line_is_one_line() {
        assert_eq!(sanitize_line("  a\nb\t c\x1b[0m "), "a b c");
    }

    #[test]
    fn sanitized_text_has_no_control_characters() {
        let every: String = (0..0x11_0000).filter_map(char::from_u32).collect();
        let shown = sanitize(&every);
        assert!(shown.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
    }
}
