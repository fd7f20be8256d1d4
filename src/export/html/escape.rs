//! Escapes text for HTML.

use crate::display::sanitize::{escape as visible, sanitize};

/// Escapes every character that has a meaning in text or in a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + text.len() / 16);
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// Escapes text of the session: without control sequences, and with characters that reorder text or are invisible
/// shown as what they are.
pub(super) fn text(text: &str) -> String {
    escape(&visible(&sanitize(text)))
}

/// Escapes a command or a question: nothing of it is removed, because it says what ran.
pub(super) fn command(text: &str) -> String {
    escape(&visible(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_no_markup_no_control_sequence_and_no_hidden_character() {
        assert_eq!(text("<a href='x' b=\"y\">&"), "&lt;a href=&#39;x&#39; b=&quot;y&quot;&gt;&amp;");
        assert_eq!(text("\u{1b}[31mred\u{1b}[0m"), "red");
        assert!(!text("a\u{202e}b").contains('\u{202e}'));
        let hidden = command("echo '\u{1b}]0;'; touch x; echo '\u{7}'");
        assert!(hidden.contains("touch x") && !hidden.contains('\u{1b}'), "{hidden}");
    }
}
