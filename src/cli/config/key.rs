//! `push config key`: puts a provider's key away where runs find it.
//!
//! It is typed unseen or comes through a pipe; a command line is visible to others, so it is never taken from there.

use std::io::Read;

use super::asked::Asked;
use super::dialogue::{KeyPlace, Talk};
use crate::cli::context::Context;
use crate::cli::exit::{CliError, Exit};
use crate::cli::models::{environment, keys, models};
use crate::cli::plain::plain_line;
use crate::config::file;
use crate::config::paths::Paths;
use crate::provider::keys::{Key, Keyring, Source};
use crate::provider::registry::Models;

/// Store the key of a provider; it is typed unseen, or comes through a pipe
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The key goes into keys.toml beside the configuration file, which only you can read, or into the keyring of this system. \
Runs look for it in the provider's variable first, then in the file, then in the keyring.

Examples:
  push config key openai
  push config key anthropic --keyring
  pass show openrouter | push config key openrouter")]
pub(super) struct KeyArgs {
    /// Whose key: openai, anthropic, ollama, or a provider of the configuration
    provider: String,
    /// Into the keyring of this system
    #[arg(long)]
    keyring: bool,
}

/// Asks for the key and puts it away.
pub(super) async fn run(args: &KeyArgs, context: &mut Context) -> Result<Exit, CliError> {
    let paths = context.paths()?;
    let models = models(&paths, &file::read(&paths.config)?);
    if !models.names().any(|name| name == args.provider) {
        let known: Vec<&str> = models.names().collect();
        let said = format!("there is no provider {}; known are {}", args.provider, known.join(", "));
        return Err(CliError::Usage(said));
    }
    let typed = if context.console.input_is_terminal {
        let question = format!("the key of {} (it is not shown):", args.provider);
        match Asked::begin(&mut context.console, &models)? {
            Some(mut asked) => asked.ask_unseen(&question).await,
            None => None,
        }
    } else {
        Some(piped()?)
    };
    let Some(typed) = typed else {
        context.console.note("nothing was stored");
        return Ok(Exit::CANCELLED);
    };
    let Some(key) = Key::new(&typed) else {
        return Err(CliError::Usage("there was no key, so nothing was stored".to_owned()));
    };
    let place = if args.keyring { KeyPlace::Keyring } else { KeyPlace::File };
    let stored = store(&paths, &place, &args.provider, &key).await?;
    context.console.line(&format!("stored the key of {} in {stored}", plain_line(&args.provider)))?;
    if let Some(other) = overruled(&models, place, &args.provider).await {
        context.console.warn(&other);
    }
    Ok(Exit::SUCCESS)
}

/// Puts a key away, and returns where in words.
pub(super) async fn store(
    paths: &Paths,
    place: &KeyPlace,
    provider: &str,
    key: &Key,
) -> Result<String, CliError> {
    // Somebody may have to open the keyring first, so it has all the time it wants.
    let keys = keys(paths, Keyring::default());
    match place {
        KeyPlace::File => {
            keys.store_in_file(provider, key)?;
            Ok(plain_line(&keys.path().display().to_string()))
        }
        KeyPlace::Keyring => {
            keys.store_in_keyring(provider, key).await?;
            Ok("the keyring".to_owned())
        }
    }
}

/// Returns what runs would use before the key that was just stored.
async fn overruled(models: &Models, place: KeyPlace, provider: &str) -> Option<String> {
    match (models.key_source(provider, &environment()).await, place) {
        (Ok(Some(Source::Variable(name))), _) => Some(format!("{name} is set here, and is used before it")),
        (Ok(Some(Source::File(path))), KeyPlace::Keyring) => Some(format!(
            "{} has a key too, which is used before it",
            plain_line(&path.display().to_string())
        )),
        (Ok(None), KeyPlace::Keyring) => {
            Some("the keyring is not asked for servers on this machine".to_owned())
        }
        (Ok(Some(Source::File(_))), KeyPlace::File)
        | (Ok(Some(Source::Keyring)), _)
        | (Ok(None), KeyPlace::File) => None,
        (Err(error), _) => Some(plain_line(&error.message)),
    }
}

fn piped() -> Result<String, CliError> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(LONGEST).read_to_string(&mut text);
    let failed = |source| CliError::File { action: "read", what: "standard input".to_owned(), source };
    read.map_err(failed)?;
    Ok(text)
}

/// More than any key has.
const LONGEST: u64 = 64 * 1024;
