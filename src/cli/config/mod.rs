//! `push config`: sets up, shows and checks the configuration.
//!
//! It needs no daemon and never prints a key.

mod check;
mod dialogue;
mod key;
mod prompter;
mod setup;
mod show;

use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::context::Context;
use super::exit::{CliError, Exit};
use super::models::kinds;
use super::sanitize::sanitize_line;
use crate::config::paths::user_home;
use crate::config::project::{self, ProjectConfig};

/// Choose a model, or show the configuration
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Environment variables override the configuration file, and flags override both; a project's .push/config.toml can make \
approvals and limits stricter. Keys of providers are not stored in these files.

Examples:
  push config                     choose a model, step by step
  push config key anthropic       store a key, typed without echo
  push config show                the effective values and their origin
  push config check               report the line of an error
  \"${EDITOR:-vi}\" \"$(push config path)\"")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    verb: Option<ConfigVerb>,
}

#[derive(Debug, Subcommand)]
enum ConfigVerb {
    Show(show::ShowArgs),
    Path(PathArgs),
    Key(key::KeyArgs),
    Check(check::CheckArgs),
}

/// Print the path of the configuration file, even if it does not exist
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  push config path
  PUSH_CONFIG=/tmp/push.toml push config path")]
struct PathArgs {}

/// Runs a verb of `push config`.
pub(crate) async fn run(args: ConfigArgs, context: &mut Context) -> Result<Exit, CliError> {
    match args.verb {
        None => setup::run(context).await,
        Some(ConfigVerb::Show(args)) => show::run(&args, context).await,
        Some(ConfigVerb::Key(args)) => key::run(&args, context).await,
        Some(ConfigVerb::Path(PathArgs {})) => {
            let path = context.paths()?.config;
            context.console.line(&sanitize_line(&path.display().to_string()))?;
            Ok(Exit::SUCCESS)
        }
        Some(ConfigVerb::Check(args)) => check::run(&args, context),
    }
}

/// Returns the project configurations that apply in the current directory.
pub(super) fn projects() -> Result<Vec<ProjectConfig>, CliError> {
    let here = std::env::current_dir().map_err(|source| CliError::File {
        action: "use",
        what: "the current directory".to_owned(),
        source,
    })?;
    let home: PathBuf = user_home(&|name| std::env::var_os(name))?;
    Ok(project::load_for(&here, Path::new(&home), &kinds())?)
}
