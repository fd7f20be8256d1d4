//! `push config check`: validates the configuration.

use std::fs;
use std::path::PathBuf;

use super::projects;
use crate::cli::context::Context;
use crate::cli::exit::{CliError, Exit};
use crate::cli::models::{kinds, read_config};
use crate::cli::sanitize::sanitize_line;
use crate::config::file::ConfigFile;
use crate::config::settings::{NO_MODEL, ProviderKind};

/// Check the configuration; exit code 1 and the line of an error
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Checks the configuration file, .push/config.toml of the project in the current directory, and PUSH_PROVIDER.

Examples:
  push config check
  push config check dotfiles/push.toml")]
pub(super) struct CheckArgs {
    /// Check this file
    file: Option<PathBuf>,
}

/// Checks everything and fails at the first error.
pub(super) fn run(args: &CheckArgs, context: &mut Context) -> Result<Exit, CliError> {
    if let Some(path) = &args.file {
        // A file that was named must exist.
        fs::metadata(path).map_err(|source| CliError::File {
            action: "read",
            what: path.display().to_string(),
            source,
        })?;
        read_config(path)?;
        context.console.line(&valid_line(path))?;
        return Ok(Exit::SUCCESS);
    }
    let path = context.paths()?.config;
    let file = read_config(&path)?;
    let text = if path.exists() {
        valid_line(&path)
    } else {
        format!("{}: does not exist; the defaults apply", display_path(&path))
    };
    context.console.line(&text)?;
    for project in projects()? {
        context.console.line(&valid_line(&project.path))?;
    }
    match std::env::var("PUSH_PROVIDER") {
        Ok(provider) if !provider.is_empty() && !is_known(&provider, &file) => {
            Err(CliError::UnknownProvider { variable: "PUSH_PROVIDER", name: provider })
        }
        Ok(_) | Err(_) => Ok(Exit::SUCCESS),
    }
}

fn is_known(provider: &str, file: &ConfigFile) -> bool {
    provider == NO_MODEL
        || ProviderKind::find(&kinds(), provider).is_some()
        || file.settings.providers.contains_key(provider)
}

fn valid_line(path: &std::path::Path) -> String {
    format!("{}: ok", display_path(path))
}

fn display_path(path: &std::path::Path) -> String {
    sanitize_line(&path.display().to_string())
}
