//! Parses redirections.

use super::Unclear;
use super::parse::{Parser, Tabs};
use super::tree::{Redirect, Way};

impl Parser<'_> {
    /// Parses a redirection, if one starts at the current position.
    pub(super) fn redirect(&mut self) -> Result<Option<Redirect>, Unclear> {
        let digits = self.chars[self.at..].iter().take_while(|letter| letter.is_ascii_digit()).count();
        let operator = self.chars.get(self.at + digits).is_some_and(|letter| matches!(letter, '<' | '>'));
        if !operator {
            return Ok(None);
        }
        if digits > 1 {
            return self.unclear("a descriptor above 9 differs between shells");
        }
        self.at += digits;
        if ["<<<", "<(", ">("].iter().any(|text| self.next_is(text)) {
            return self.unclear("a redirection that is not supported by every shell");
        }
        let found = OPERATORS.iter().find(|(text, _)| self.next_is(text));
        let Some((text, operator)) = found else { return self.unclear("an unknown redirection") };
        self.at += text.len();
        self.skip_blanks();
        let way = match operator {
            Operator::Document(tabs) => return self.document(*tabs).map(Some),
            Operator::Way(way) => *way,
        };
        let target = self.word()?;
        let number = target.text == "-" || target.text.bytes().all(|byte| byte.is_ascii_digit());
        if way == Way::Descriptor && !number {
            return self.unclear("`>&` with a file is not supported by every shell");
        }
        Ok(Some(Redirect { way, target }))
    }
}

enum Operator {
    Way(Way),
    Document(Tabs),
}

/// Every redirection operator; longer ones precede their prefixes.
const OPERATORS: [(&str, Operator); 9] = [
    ("<<-", Operator::Document(Tabs::Dropped)),
    ("<<", Operator::Document(Tabs::Kept)),
    ("<&", Operator::Way(Way::Descriptor)),
    (">&", Operator::Way(Way::Descriptor)),
    ("<>", Operator::Way(Way::Both)),
    (">>", Operator::Way(Way::Write)),
    (">|", Operator::Way(Way::Write)),
    ("<", Operator::Way(Way::Read)),
    (">", Operator::Way(Way::Write)),
];
