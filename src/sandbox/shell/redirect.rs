//! Parses redirections.

use super::ParseError;
use super::ast::{Redirect, RedirectKind};
use super::parse::{LeadingTabs, Parser};

impl Parser<'_> {
    /// Parses a redirection, if one starts at the current position.
    pub(super) fn redirect(&mut self) -> Result<Option<Redirect>, ParseError> {
        let digits = self.chars[self.at..].iter().take_while(|letter| letter.is_ascii_digit()).count();
        let operator = self.chars.get(self.at + digits).is_some_and(|letter| matches!(letter, '<' | '>'));
        if !operator {
            return Ok(None);
        }
        if digits > 1 {
            return self.fail("a descriptor above 9 differs between shells");
        }
        self.at += digits;
        if ["<<<", "<(", ">("].iter().any(|text| self.next_is(text)) {
            return self.fail("a redirection that is not supported by every shell");
        }
        let found = OPERATORS.iter().find(|(text, _)| self.next_is(text));
        let Some((text, operator)) = found else { return self.fail("an unknown redirection") };
        self.at += text.len();
        self.skip_blanks();
        let kind = match operator {
            Operator::Heredoc(tabs) => return self.heredoc(*tabs).map(Some),
            Operator::Redirect(kind) => *kind,
        };
        let target = self.word()?;
        let number = target.text == "-" || target.text.bytes().all(|byte| byte.is_ascii_digit());
        if kind == RedirectKind::Descriptor && !number {
            return self.fail("`>&` with a file is not supported by every shell");
        }
        Ok(Some(Redirect { kind, target }))
    }
}

enum Operator {
    Redirect(RedirectKind),
    Heredoc(LeadingTabs),
}

/// Every redirection operator; longer ones precede their prefixes.
const OPERATORS: [(&str, Operator); 9] = [
    ("<<-", Operator::Heredoc(LeadingTabs::Strip)),
    ("<<", Operator::Heredoc(LeadingTabs::Keep)),
    ("<&", Operator::Redirect(RedirectKind::Descriptor)),
    (">&", Operator::Redirect(RedirectKind::Descriptor)),
    ("<>", Operator::Redirect(RedirectKind::ReadWrite)),
    (">>", Operator::Redirect(RedirectKind::Write)),
    (">|", Operator::Redirect(RedirectKind::Write)),
    ("<", Operator::Redirect(RedirectKind::Read)),
    (">", Operator::Redirect(RedirectKind::Write)),
];
