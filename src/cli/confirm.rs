//! A question before something that cannot be undone.
//!
//! Where nobody can be asked, nothing is done unless it was agreed to beforehand.

use super::context::Context;
use super::exit::CliError;
use super::input::TypedLines;

/// Whether somebody still has to agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consent {
    /// It was agreed to on the command line.
    Given,
    /// Somebody who types is asked.
    Wanted,
}

impl Consent {
    /// Reads a flag; without it there must be somebody to ask.
    pub(crate) fn read(yes: bool, context: &Context) -> Result<Self, CliError> {
        match (yes, context.console.input_is_terminal) {
            (true, _) => Ok(Self::Given),
            (false, true) => Ok(Self::Wanted),
            (false, false) => {
                Err(CliError::Usage("nobody can be asked here: say --yes to go ahead".to_owned()))
            }
        }
    }

    /// Returns whether to go ahead; `question` must be harmless.
    pub(crate) async fn asks(self, question: &str, context: &mut Context) -> Result<bool, CliError> {
        if self == Self::Given {
            return Ok(true);
        }
        let Some(mut typed) = TypedLines::start(&context.console) else { return Ok(false) };
        typed.discard();
        loop {
            context.console.ask(question);
            let Some(line) = typed.next().await else { return Ok(false) };
            match line.trim().to_lowercase().as_str() {
                "y" | "yes" => return Ok(true),
                "n" | "no" => return Ok(false),
                _ => {}
            }
        }
    }
}
