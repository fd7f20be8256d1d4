//! Suggests a running Ollama server after a run that failed because no model is configured.
//!
//! Only then, and only if notes are printed, is Ollama looked up.

use crate::cli::console::Console;
use crate::cli::models::{find_ollama, models, read_config};
use crate::cli::report::Report;
use crate::cli::sanitize::sanitize_line;
use crate::config::paths::Paths;
use crate::provider::RunningOllama;

/// Suggests a running Ollama server if the run failed because no provider is configured.
pub(super) async fn suggest_ollama(report: &Report, paths: &Paths, console: &mut Console) {
    let reason = report.completion().and_then(|completion| completion.reason.as_deref());
    if reason != Some("provider_not_configured") || !console.shows_notes() {
        return;
    }
    // An invalid configuration was reported when the session was opened.
    let Ok(file) = read_config(&paths.config) else { return };
    if file.settings.provider.is_some() {
        return;
    }
    let found = find_ollama(&models(paths, &file)).await;
    if let Some(said) = found.as_ref().and_then(suggestion) {
        console.note(&said);
    }
}

fn suggestion(ollama: &RunningOllama) -> Option<String> {
    let first = sanitize_line(ollama.models.first()?);
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
    fn a_running_ollama_with_models_is_suggested_with_a_command() {
        let said = |models: &[&str]| {
            suggestion(&RunningOllama {
                base_url: String::new(),
                version: String::new(),
                models: models.iter().map(|name| (*name).to_owned()).collect(),
            })
        };
        assert_eq!(said(&[]), None);
        let one = said(&["qwen3:8b"]).unwrap();
        assert!(
            one.starts_with("Ollama is running here with qwen3:8b: `push run --provider ollama --model qwen3:8b '")
        );
        assert!(said(&["a", "b", "c"]).unwrap().contains("with a and 2 other models:"));
        assert!(!said(&["a\u{1b}[2J"]).unwrap().contains('\u{1b}'));
    }
}
