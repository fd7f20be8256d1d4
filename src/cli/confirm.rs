//! Confirmation of actions that cannot be undone.
//!
//! If standard input is not a terminal, `--yes` is required.

use super::context::Context;
use super::exit::CliError;
use super::input::InputLines;

/// Whether an action is confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confirmation {
    /// Confirmed by `--yes`.
    Given,
    /// To be confirmed at the terminal.
    Required,
}

impl Confirmation {
    /// Reads the flag; without it standard input must be a terminal.
    pub(crate) fn from_flag(yes: bool, context: &Context) -> Result<Self, CliError> {
        match (yes, context.console.input_is_terminal) {
            (true, _) => Ok(Self::Given),
            (false, true) => Ok(Self::Required),
            (false, false) => {
                Err(CliError::Usage("cannot prompt: standard input is not a terminal; pass --yes".to_owned()))
            }
        }
    }

    /// Prompts if necessary and returns whether the action is confirmed; `question` must be sanitized.
    pub(crate) async fn confirm(self, question: &str, context: &mut Context) -> Result<bool, CliError> {
        if self == Self::Given {
            return Ok(true);
        }
        let Some(mut typed) = InputLines::start(&context.console) else { return Ok(false) };
        typed.discard_pending();
        loop {
            context.console.prompt(question);
            let Some(line) = typed.next().await else { return Ok(false) };
            match line.trim().to_lowercase().as_str() {
                "y" | "yes" => return Ok(true),
                "n" | "no" => return Ok(false),
                _ => {}
            }
        }
    }
}
