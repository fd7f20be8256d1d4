//! `push config check`: whether what is configured can be used.

use std::fs;
use std::path::PathBuf;

use super::projects;
use crate::cli::context::Context;
use crate::cli::exit::{CliError, Exit};
use crate::cli::plain::plain_line;
use crate::config::file::{self, File};
use crate::config::settings::{NO_MODEL, ProviderKind};

/// Check the configuration; 1 with the line of a mistake
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Looks at the configuration file, at the project's .push/config.toml around the current directory, and at PUSH_PROVIDER.

Examples:
  push config check
  push config check dotfiles/push.toml")]
pub(super) struct CheckArgs {
    /// Another file than the one in use
    file: Option<PathBuf>,
}

/// Looks at everything, and ends at the first mistake.
pub(super) fn run(args: &CheckArgs, context: &mut Context) -> Result<Exit, CliError> {
    if let Some(path) = &args.file {
        // One that was named must be there.
        fs::metadata(path).map_err(|source| CliError::File {
            action: "read",
            what: path.display().to_string(),
            source,
        })?;
        file::read(path)?;
        context.console.line(&fine(path))?;
        return Ok(Exit::SUCCESS);
    }
    let path = context.paths()?.config;
    let file = file::read(&path)?;
    let said = if path.exists() { fine(&path) } else { format!("{}: not there", named(&path)) };
    context.console.line(&said)?;
    for project in projects()? {
        context.console.line(&fine(&project.path))?;
    }
    match std::env::var("PUSH_PROVIDER") {
        Ok(provider) if !provider.is_empty() && !is_known(&provider, &file) => {
            Err(CliError::UnknownProvider { variable: "PUSH_PROVIDER", name: provider })
        }
        Ok(_) | Err(_) => Ok(Exit::SUCCESS),
    }
}

fn is_known(provider: &str, file: &File) -> bool {
    provider == NO_MODEL
        || ProviderKind::parse(provider).is_some()
        || file.settings.providers.contains_key(provider)
}

fn fine(path: &std::path::Path) -> String {
    format!("{}: ok", named(path))
}

fn named(path: &std::path::Path) -> String {
    plain_line(&path.display().to_string())
}
