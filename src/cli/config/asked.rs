//! Somebody at the terminal, who is asked and may leave at any time.

use super::dialogue::Talk;
use crate::cli::console::Console;
use crate::cli::exit::CliError;
use crate::cli::input::{Interrupts, TypedLines, Unseen};
use crate::cli::models::environment;
use crate::cli::plain::{plain, plain_line};
use crate::provider::error::Kind;
use crate::provider::keys::Key;
use crate::provider::registry::Models;

/// Somebody at the terminal.
pub(super) struct Asked<'a> {
    typed: TypedLines,
    interrupts: Interrupts,
    console: &'a mut Console,
    models: &'a Models,
}

impl<'a> Asked<'a> {
    /// Begins to listen, if somebody types here and now; from here on Ctrl-C is an answer.
    pub(super) fn begin(console: &'a mut Console, models: &'a Models) -> Result<Option<Self>, CliError> {
        let Some(typed) = TypedLines::start(console) else { return Ok(None) };
        Ok(Some(Self { typed, interrupts: Interrupts::listen()?, console, models }))
    }

    async fn answer(&mut self) -> Option<String> {
        tokio::select! {
            biased;
            () = self.interrupts.next() => None,
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
                self.say(&format!("What is typed here cannot be hidden ({error})."));
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
            self.say("The server does not take this key; Ctrl-D leaves everything as it was.");
        } else if error.kind != Kind::NotConfigured {
            // Whoever is to export a key later has none yet, and need not hear it again.
            self.say(&format!("Its models cannot be listed: {}.", error.message));
        }
        Vec::new()
    }
}
