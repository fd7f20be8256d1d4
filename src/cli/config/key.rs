//! `push config key`: stores the key of a provider.
//!
//! The key is typed without echo or read from a pipe. It is never a command line argument, because those are visible
//! to other users.

use std::io::Read;

use super::dialogue::{KeyStorage, Prompter};
use super::prompter::TerminalPrompter;
use crate::cli::context::Context;
use crate::cli::exit::{CliError, Exit};
use crate::cli::models::{environment, keys, models, read_config};
use crate::cli::sanitize::sanitize_line;
use crate::config::paths::Paths;
use crate::provider::keys::{Key, KeySource, Keyring};
use crate::provider::registry::ModelRegistry;

/// Store the key of a provider; it is typed without echo, or read from a pipe
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The key is stored in keys.toml next to the configuration file, which only you can read, or in the keyring of this system. \
Runs use the provider's environment variable first, then the file, then the keyring.

Examples:
  push config key openai
  push config key anthropic --keyring
  pass show openrouter | push config key openrouter")]
pub(super) struct KeyArgs {
    /// The provider: openai, anthropic, ollama, or one of the configuration
    provider: String,
    /// Store the key in the keyring of this system
    #[arg(long)]
    keyring: bool,
}

/// Reads the key and stores it.
pub(super) async fn run(args: &KeyArgs, context: &mut Context) -> Result<Exit, CliError> {
    let paths = context.paths()?;
    let models = models(&paths, &read_config(&paths.config)?);
    if !models.names().any(|name| name == args.provider) {
        let known: Vec<&str> = models.names().collect();
        let text = format!("unknown provider {}; known providers: {}", args.provider, known.join(", "));
        return Err(CliError::Usage(text));
    }
    let typed = if context.console.input_is_terminal {
        let question = format!("key of {} (not shown):", args.provider);
        match TerminalPrompter::start(&mut context.console, &models)? {
            Some(mut prompter) => prompter.ask_hidden(&question).await,
            None => None,
        }
    } else {
        Some(read_piped()?)
    };
    let Some(typed) = typed else {
        context.console.note("cancelled; no key was stored");
        return Ok(Exit::CANCELLED);
    };
    let Some(key) = Key::new(&typed) else {
        return Err(CliError::Usage("the key is empty; nothing was stored".to_owned()));
    };
    let place = if args.keyring { KeyStorage::Keyring } else { KeyStorage::File };
    let stored = store_key(&paths, &place, &args.provider, &key).await?;
    context.console.line(&format!("stored the key of {} in {stored}", sanitize_line(&args.provider)))?;
    if let Some(other) = precedence_warning(&models, place, &args.provider).await {
        context.console.warn(&other);
    }
    Ok(Exit::SUCCESS)
}

/// Stores a key and returns where, as text.
pub(super) async fn store_key(
    paths: &Paths,
    place: &KeyStorage,
    provider: &str,
    key: &Key,
) -> Result<String, CliError> {
    // The user may have to unlock the keyring first, so there is no short timeout.
    let keys = keys(paths, Keyring::default());
    match place {
        KeyStorage::File => {
            keys.store_in_file(provider, key)?;
            Ok(sanitize_line(&keys.path().display().to_string()))
        }
        KeyStorage::Keyring => {
            keys.store_in_keyring(provider, key).await?;
            Ok("the keyring".to_owned())
        }
    }
}

/// Returns a warning if runs use another key than the one that was just stored.
async fn precedence_warning(models: &ModelRegistry, place: KeyStorage, provider: &str) -> Option<String> {
    match (models.key_source(provider, &environment()).await, place) {
        (Ok(Some(KeySource::Variable(name))), _) => {
            Some(format!("{name} is set and takes precedence over the stored key"))
        }
        (Ok(Some(KeySource::File(path))), KeyStorage::Keyring) => Some(format!(
            "{} has a key for this provider, which takes precedence over the keyring",
            sanitize_line(&path.display().to_string())
        )),
        (Ok(None), KeyStorage::Keyring) => Some("the keyring is not used for servers on this machine".to_owned()),
        (Ok(Some(KeySource::File(_))), KeyStorage::File)
        | (Ok(Some(KeySource::Keyring)), _)
        | (Ok(None), KeyStorage::File) => None,
        (Err(error), _) => Some(sanitize_line(&error.message)),
    }
}

fn read_piped() -> Result<String, CliError> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(MAX_INPUT_BYTES).read_to_string(&mut text);
    let failed = |source| CliError::File { action: "read", what: "standard input".to_owned(), source };
    read.map_err(failed)?;
    Ok(text)
}

/// The longest input that is read, in bytes.
const MAX_INPUT_BYTES: u64 = 64 * 1024;
