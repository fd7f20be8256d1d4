//! Styles of text, and whether they become colours.

/// The meaning of a piece of text, which selects its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Emphasised.
    Strong,
    /// Secondary.
    Faint,
    /// Success.
    Good,
    /// Failure.
    Bad,
    /// A warning, or something that needs an answer.
    Attention,
}

/// Whether styles become colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Palette {
    /// Yes.
    Colored,
    /// No.
    Plain,
}

impl Palette {
    /// Returns `text` in a style; it must be sanitized.
    pub(crate) fn paint(self, style: Style, text: &str) -> String {
        let code = match (self, style) {
            (Self::Plain, _) => return text.to_owned(),
            (Self::Colored, Style::Strong) => "1",
            (Self::Colored, Style::Faint) => "2",
            (Self::Colored, Style::Good) => "32",
            (Self::Colored, Style::Bad) => "31",
            (Self::Colored, Style::Attention) => "33",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}
