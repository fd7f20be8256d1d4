//! Prompts at the terminal, which the user may cancel at any time.

use super::dialogue::Talk;
use crate::cli::console::Console;
use crate::cli::exit::CliError;
use crate::cli::input::{Interrupts, OnTerminate, TypedLines, Unseen};
use crate::cli::models::environment;
use crate::cli::plain::{plain, plain_line};
use crate::provider::error::Kind;
use crate::provider::keys::Key;
use crate::provider::registry::Models;

/// A prompter at the terminal.
pub(super) struct Asked<'a> {
    typed: TypedLines,
    interrupts: Interrupts,
    console: &'a mut Console,
    models: &'a Models,
}

impl<'a> Asked<'a> {
    /// Starts reading, if standard input is a terminal in the foreground; from here on Ctrl-C cancels the prompt.
    pub(super) fn begin(console: &'a mut Console, models: &'a Models) -> Result<Option<Self>, CliError> {
        let Some(typed) = TypedLines::start(console) else { return Ok(None) };
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

impl Talk for Asked<'_> {
    fn say(&mut self, line: &str) {
        let words = line.trim_start_matches(' ');
        let indent = " ".repeat(line.len() - words.len());
        self.console.note(&format!("{indent}{}", plain(words).replace('\n', " ")));
    }

    async fn ask(&mut self, question: &str) -> Option<String> {
        self.console.ask(&plain_line(question));
        self.answer().await
    }

    async fn ask_unseen(&mut self, question: &str) -> Option<String> {
        let unseen = match Unseen::begin() {
            Ok(unseen) => unseen,
            Err(error) => {
                self.say(&format!("The terminal cannot hide typed input ({error})."));
                return None;
            }
        };
        self.typed.discard();
        self.console.ask(&plain_line(question));
        let typed = self.answer().await;
        drop(unseen);
        typed
    }

    async fn key_source(&mut self, provider: &str) -> Option<String> {
        match self.models.key_source(provider, &environment()).await {
            Ok(source) => source.map(|source| source.to_string()),
            Err(error) => {
                self.say(&error.message);
                None
            }
        }
    }

    async fn models(&mut self, provider: &str, base_url: Option<&str>, key: Option<&Key>) -> Vec<String> {
        let error = match self.models.list(provider, base_url, key, &environment()).await {
            Ok(models) => return models,
            Err(error) => error,
        };
        if error.kind == Kind::Unauthorized {
            self.say("The server refuses this key; Ctrl-D cancels without changes.");
        } else if error.kind != Kind::NotConfigured {
            // A user who exports the key later has none yet and was told so.
            self.say(&format!("Cannot list its models: {}.", error.message));
        }
        Vec::new()
    }
}
