//! Suggests a running Ollama server after a run that failed because no model is configured.
//!
//! Only then, and only if notes are printed, is Ollama looked up.

use crate::cli::console::Console;
use crate::cli::models::{find_ollama, models};
use crate::cli::phrase::field;
use crate::cli::plain::plain_line;
use crate::cli::report::Report;
use crate::config::file;
use crate::config::paths::Paths;
use crate::provider::registry::RunningOllama;

/// Suggests a running Ollama server if the run failed because no provider is configured.
pub(super) async fn offer(report: &Report, paths: &Paths, console: &mut Console) {
    if field(report.completion(), "reason") != "provider_not_configured" || !console.is_watched() {
        return;
    }
    // An invalid configuration was reported when the session was opened.
    let Ok(file) = file::read(&paths.config) else { return };
    if file.settings.provider.is_some() {
        return;
    }
    let found = find_ollama(&models(paths, &file)).await;
    if let Some(said) = found.as_ref().and_then(words) {
        console.note(&said);
    }
}

fn words(ollama: &RunningOllama) -> Option<String> {
    let first = plain_line(ollama.models.first()?);
    let others = match ollama.models.len() - 1 {
        0 => String::new(),
        1 => " and another model".to_owned(),
        more => format!(" and {more} other models"),
    };
    Some(format!(
        "Ollama is running here with {first}{others}: `push run --provider ollama --model {first} '…'` uses it, and \
         `push config` makes it the default"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ollama_is_offered_with_a_command_that_works_and_one_without_models_is_not() {
        let said = |models: &[&str]| {
            words(&RunningOllama {
                base_url: String::new(),
                version: String::new(),
                models: models.iter().map(|name| (*name).to_owned()).collect(),
            })
        };
        assert_eq!(said(&[]), None);
        let one = said(&["qwen3:8b"]).unwrap();
        assert!(one.starts_with(
            "Ollama is running here with qwen3:8b: `push run --provider ollama --model qwen3:8b '"
        ));
        assert!(said(&["a", "b", "c"]).unwrap().contains("with a and 2 other models:"));
        assert!(!said(&["a\u{1b}[2J"]).unwrap().contains('\u{1b}'));
    }
}
