//! `push config`: the interactive first set-up.

use std::fs;
use std::io;
use std::path::Path;

use super::dialogue::{self, SetupChoice, SetupContext};
use super::key;
use super::prompter::TerminalPrompter;
use crate::cli::atomic_file;
use crate::cli::context::Context;
use crate::cli::exit::{CliError, Exit};
use crate::cli::models::{find_ollama, kinds, models, read_config};
use crate::cli::sanitize::sanitize_line;
use crate::config::file;
use crate::config::file::edit::{self, ConfigEdit};
use crate::config::settings::NO_MODEL;

/// Prompts for the choices, stores them, and suggests a first command.
pub(super) async fn run(context: &mut Context) -> Result<Exit, CliError> {
    let paths = context.paths()?;
    let shown = sanitize_line(&paths.config.display().to_string());
    if !context.console.input_is_terminal {
        let text = format!(
            "cannot prompt: standard input is not a terminal; write {shown}, or set PUSH_PROVIDER and PUSH_MODEL"
        );
        return Err(CliError::Usage(text));
    }
    let file = read_config(&paths.config)?;
    let models = models(&paths, &file);
    let known = SetupContext {
        ollama_models: find_ollama(&models).await.map(|ollama| ollama.models),
        key_file: models.keys().path().display().to_string(),
        settings: file.settings.clone(),
    };
    let chosen = match TerminalPrompter::start(&mut context.console, &models)? {
        Some(mut prompter) => dialogue::run(&mut prompter, &known).await,
        None => None,
    };
    let Some(SetupChoice { change, key }) = chosen else {
        context.console.note("cancelled; nothing was written");
        return Ok(Exit::CANCELLED);
    };
    // The key comes first: if the keyring refuses it, the configuration does not change.
    if let Some((place, key)) = &key {
        let stored = key::store_key(&paths, place, &change.provider, key).await?;
        context.console.line(&format!("stored the key of {} in {stored}", sanitize_line(&change.provider)))?;
    }
    write(&paths.config, &change)?;
    context.console.line(&format!("wrote {shown}"))?;
    let next = if change.provider == NO_MODEL { "$ date" } else { "What does this project do?" };
    context.console.note(&format!("try it with: push run '{next}'"));
    Ok(Exit::SUCCESS)
}

/// Applies the change to the configuration file; the new content is validated before it replaces the file.
fn write(path: &Path, change: &ConfigEdit) -> Result<(), CliError> {
    let failed = |action, source| CliError::File { action, what: path.display().to_string(), source };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed("read", error)),
    };
    let text = edit::apply(&text, change).map_err(|error| failed("change", io::Error::other(error)))?;
    file::parse(&text, path, &kinds())?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| failed("create the directory of", error))?;
    }
    atomic_file::replace(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_merged_into_the_file_and_an_invalid_one_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/config.toml");
        let change = |provider: &str| ConfigEdit { provider: provider.into(), model: Some("m".into()), base_url: None };
        write(&path, &change("ollama")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "provider = \"ollama\"\nmodel = \"m\"\n");
        fs::write(&path, "# mine\n[tools]\nfetch = true\n").unwrap();
        write(&path, &change("openai")).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("# mine") && text.contains("fetch = true"), "{text}");
        assert!(write(&path, &change("nobody")).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}
