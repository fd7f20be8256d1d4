//! `push config`: the first set-up, step by step.

use std::fs;
use std::io;
use std::path::Path;

use super::dialogue::{self, Known, Talk, key_variable};
use super::ollama;
use crate::cli::console::Console;
use crate::cli::context::Context;
use crate::cli::exit::{CliError, Exit};
use crate::cli::input::TypedLines;
use crate::cli::plain::plain_line;
use crate::cli::store;
use crate::config::file::edit::{self, Change};
use crate::config::file::{self, File};
use crate::config::settings::{NO_MODEL, ProviderKind};

/// Asks, writes what was chosen, and says what to try.
pub(super) async fn run(context: &mut Context) -> Result<Exit, CliError> {
    let path = context.paths()?.config;
    let shown = plain_line(&path.display().to_string());
    let Some(typed) = TypedLines::start(&context.console) else {
        let said = format!("nobody can be asked here: write {shown}, or set PUSH_PROVIDER and PUSH_MODEL");
        return Err(CliError::Usage(said));
    };
    let file = file::read(&path)?;
    let known = known(&file).await;
    let mut asked = Asked { typed, console: &mut context.console };
    let Some(change) = dialogue::hold(&mut asked, &known).await else {
        context.console.note("nothing was written");
        return Ok(Exit::CANCELLED);
    };
    write(&path, &change)?;
    context.console.line(&format!("wrote {shown}"))?;
    let next = if change.provider == NO_MODEL { "$ date" } else { "What does this project do?" };
    context.console.note(&format!("now try: push run '{next}'"));
    Ok(Exit::SUCCESS)
}

async fn known(file: &File) -> Known {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let configured = file.settings.providers.get(ProviderKind::Ollama.word());
    let host = variable("OLLAMA_HOST").or_else(|| configured.and_then(|ollama| ollama.base_url.clone()));
    let built_in = ProviderKind::ALL.iter().map(|(word, _)| (*word).to_owned());
    let names = built_in.chain(file.settings.providers.keys().cloned());
    Known {
        ollama: ollama::models(host.as_deref()).await,
        keys: names.filter(|name| variable(&key_variable(name)).is_some()).collect(),
        settings: file.settings.clone(),
    }
}

/// Writes the change into the file, which is checked before it replaces the one that was.
fn write(path: &Path, change: &Change) -> Result<(), CliError> {
    let failed = |action, source| CliError::File { action, what: path.display().to_string(), source };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed("read", error)),
    };
    let text = edit::apply(&text, change).map_err(|error| failed("change", io::Error::other(error)))?;
    file::parse(&text, path)?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| failed("make the directory of", error))?;
    }
    store::replace(path, text.as_bytes())
}

/// Somebody at the terminal.
struct Asked<'a> {
    typed: TypedLines,
    console: &'a mut Console,
}

impl Talk for Asked<'_> {
    fn say(&mut self, line: &str) {
        self.console.note(&plain_line_keeping_indent(line));
    }

    async fn ask(&mut self, question: &str) -> Option<String> {
        self.console.ask(&plain_line(question));
        self.typed.next().await
    }
}

/// Returns a harmless line with the blanks at its beginning.
fn plain_line_keeping_indent(line: &str) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len();
    format!(
        "{}{}",
        " ".repeat(indent),
        crate::cli::plain::plain(line.trim_start_matches(' ')).replace('\n', " ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_written_beside_what_is_there_and_a_wrong_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/config.toml");
        let change =
            |provider: &str| Change { provider: provider.into(), model: Some("m".into()), base_url: None };
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
