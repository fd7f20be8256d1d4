//! Prompts at the terminal, which the user may cancel at any time.

use super::dialogue::Prompter;
use crate::cli::console::Console;
use crate::cli::exit::CliError;
use crate::cli::input::{HiddenInput, InputLines, Interrupts, OnTerminate};
use crate::cli::models::environment;
use crate::cli::sanitize::{sanitize, sanitize_line};
use crate::provider::error::ModelErrorKind;
use crate::provider::keys::Key;
use crate::provider::registry::ModelRegistry;

/// A prompter at the terminal.
pub(super) struct TerminalPrompter<'a> {
    typed: InputLines,
    interrupts: Interrupts,
    console: &'a mut Console,
    models: &'a ModelRegistry,
}

impl<'a> TerminalPrompter<'a> {
    /// Starts reading, if standard input is a terminal in the foreground; from here on Ctrl-C cancels the prompt.
    pub(super) fn start(console: &'a mut Console, models: &'a ModelRegistry) -> Result<Option<Self>, CliError> {
        let Some(typed) = InputLines::start(console) else { return Ok(None) };
        Ok(Some(Self { typed, interrupts: Interrupts::listen(OnTerminate::Detach)?, console, models }))
    }

    async fn answer(&mut self) -> Option<String> {
        tokio::select! {
            biased;
            _ = self.interrupts.next() => None,
            line = self.typed.next() => line,
        }
    }
}

impl Prompter for TerminalPrompter<'_> {
    fn print(&mut self, line: &str) {
        let words = line.trim_start_matches(' ');
        let indent = " ".repeat(line.len() - words.len());
        self.console.note(&format!("{indent}{}", sanitize(words).replace('\n', " ")));
    }

    async fn ask(&mut self, question: &str) -> Option<String> {
        self.console.prompt(&sanitize_line(question));
        self.answer().await
    }

    async fn ask_hidden(&mut self, question: &str) -> Option<String> {
        let unseen = match HiddenInput::start() {
            Ok(unseen) => unseen,
            Err(error) => {
                self.print(&format!("The terminal cannot hide typed input ({error})."));
                return None;
            }
        };
        self.typed.discard_pending();
        self.console.prompt(&sanitize_line(question));
        let typed = self.answer().await;
        drop(unseen);
        typed
    }

    async fn key_source(&mut self, provider: &str) -> Option<String> {
        match self.models.key_source(provider, &environment()).await {
            Ok(source) => source.map(|source| source.to_string()),
            Err(error) => {
                self.print(&error.message);
                None
            }
        }
    }

    async fn models(&mut self, provider: &str, base_url: Option<&str>, key: Option<&Key>) -> Vec<String> {
        let error = match self.models.list_models(provider, base_url, key, &environment()).await {
            Ok(models) => return models,
            Err(error) => error,
        };
        if error.kind == ModelErrorKind::Unauthorized {
            self.print("The server refuses this key; Ctrl-D cancels without changes.");
        } else if error.kind != ModelErrorKind::NotConfigured {
            // A user who exports the key later has none yet, and the dialogue has said so.
            self.print(&format!("Cannot list its models: {}.", error.message));
        }
        Vec::new()
    }
}
