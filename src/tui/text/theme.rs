//! The styles of rendered text, by meaning.
//!
//! Colours are the 16 ANSI ones, so that the palette of the user's terminal applies. No meaning depends on colour alone.

use ratatui::style::{Color, Modifier, Style};

/// One style for each meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Theme {
    /// Headings.
    pub(crate) heading: Style,
    /// Inline code, and code without syntax colours.
    pub(crate) code: Style,
    /// The text of links.
    pub(crate) link: Style,
    /// The bar before quotes.
    pub(crate) quote: Style,
    /// Added lines of a diff.
    pub(crate) added: Style,
    /// Removed lines of a diff.
    pub(crate) removed: Style,
    /// Hunk headers of a diff.
    pub(crate) hunk: Style,
    /// Unchanged lines of a diff.
    pub(crate) context: Style,
    /// Secondary text: line numbers, addresses, rules.
    pub(crate) faint: Style,
    /// Strong emphasis.
    pub(crate) strong: Style,
    /// Emphasis.
    pub(crate) emphasis: Style,
    /// Deleted text.
    pub(crate) strikethrough: Style,
    /// Success.
    pub(crate) good: Style,
    /// Failure, danger.
    pub(crate) bad: Style,
    /// What the user should look at.
    pub(crate) attention: Style,
    /// Keywords of programming languages.
    pub(crate) keyword: Style,
    /// String literals.
    pub(crate) string: Style,
    /// Comments.
    pub(crate) comment: Style,
    /// Number literals.
    pub(crate) number: Style,
    /// Names of types.
    pub(crate) type_: Style,
}

impl Theme {
    /// Colours for a dark background.
    pub(crate) const fn dark() -> Self {
        Self {
            heading: Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD),
            code: Style::new().fg(Color::Cyan),
            link: Style::new().fg(Color::LightBlue).add_modifier(Modifier::UNDERLINED),
            added: Style::new().fg(Color::Green),
            removed: Style::new().fg(Color::Red),
            hunk: Style::new().fg(Color::Cyan),
            good: Style::new().fg(Color::Green),
            bad: Style::new().fg(Color::Red),
            attention: Style::new().fg(Color::Yellow),
            keyword: Style::new().fg(Color::Magenta),
            string: Style::new().fg(Color::Green),
            number: Style::new().fg(Color::Yellow),
            type_: Style::new().fg(Color::Cyan),
            ..Self::plain()
        }
    }

    /// Colours for a light background: none of the bright ones, no yellow and no cyan.
    pub(crate) const fn light() -> Self {
        Self {
            heading: Style::new().fg(Color::Blue).add_modifier(Modifier::BOLD),
            code: Style::new().fg(Color::Blue),
            link: Style::new().fg(Color::Blue).add_modifier(Modifier::UNDERLINED),
            hunk: Style::new().fg(Color::Blue),
            attention: Style::new().fg(Color::Magenta).add_modifier(Modifier::BOLD),
            number: Style::new().fg(Color::Red),
            type_: Style::new().fg(Color::Blue),
            ..Self::dark()
        }
    }

    /// No colours: bold, dim, italic, underline and strikethrough only.
    pub(crate) const fn plain() -> Self {
        const NONE: Style = Style::new();
        const DIM: Style = Style::new().add_modifier(Modifier::DIM);
        const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
        Self {
            heading: BOLD,
            code: NONE,
            link: Style::new().add_modifier(Modifier::UNDERLINED),
            quote: DIM,
            added: NONE,
            removed: NONE,
            hunk: DIM,
            context: NONE,
            faint: DIM,
            strong: BOLD,
            emphasis: Style::new().add_modifier(Modifier::ITALIC),
            strikethrough: Style::new().add_modifier(Modifier::CROSSED_OUT),
            good: NONE,
            bad: BOLD,
            attention: BOLD,
            keyword: BOLD,
            string: NONE,
            comment: DIM,
            number: NONE,
            type_: NONE,
        }
    }

    /// Every style of the theme.
    #[cfg(test)]
    fn styles(&self) -> [Style; 20] {
        [
            self.heading,
            self.code,
            self.link,
            self.quote,
            self.added,
            self.removed,
            self.hunk,
            self.context,
            self.faint,
            self.strong,
            self.emphasis,
            self.strikethrough,
            self.good,
            self.bad,
            self.attention,
            self.keyword,
            self.string,
            self.comment,
            self.number,
            self.type_,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_theme_has_no_colour() {
        assert!(Theme::plain().styles().iter().all(|style| style.fg.is_none() && style.bg.is_none()));
    }

    #[test]
    fn colours_are_the_ansi_ones_and_leave_the_background_alone() {
        for theme in [Theme::dark(), Theme::light()] {
            for style in theme.styles() {
                assert!(!matches!(style.fg, Some(Color::Rgb(..) | Color::Indexed(_))), "{style:?}");
                assert!(style.bg.is_none(), "{style:?}");
            }
        }
    }

    #[test]
    fn the_light_theme_avoids_colours_that_vanish_on_white() {
        let pale = [Color::Yellow, Color::Cyan, Color::White, Color::LightBlue, Color::LightYellow, Color::LightCyan];
        for style in Theme::light().styles() {
            assert!(style.fg.is_none_or(|color| !pale.contains(&color)), "{style:?}");
        }
    }
}
