//! `push man`: prints manual pages, which are made from the descriptions of the verbs.

use std::fs;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_mangen::Man;

use super::Args;
use super::context::Context;
use super::exit::{CliError, Exit};

/// Print the manual page of push or of a verb
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  push man | man -l -\n  push man export | man -l -\n  push man --directory ~/.local/share/man/man1"
)]
pub(crate) struct ManArgs {
    /// The verb; without it, push itself
    #[arg(num_args = 0..)]
    verb: Vec<String>,
    /// Write the pages of push and of every verb to this directory
    #[arg(long, value_name = "DIR", conflicts_with = "verb")]
    directory: Option<PathBuf>,
}

/// Prints one page, or writes all of them.
pub(crate) async fn run(args: ManArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut command = Args::command();
    command.build();
    let Some(directory) = args.directory else {
        for name in &args.verb {
            let verb = command.find_subcommand(name).cloned();
            command =
                verb.ok_or_else(|| CliError::Usage(format!("there is no verb {name}; `push help` lists them")))?;
        }
        context.console.text(&page(&command)?)?;
        return Ok(Exit::SUCCESS);
    };
    let unwritable = |source| CliError::File { action: "write", what: directory.display().to_string(), source };
    fs::create_dir_all(&directory).map_err(unwritable)?;
    let mut waiting = vec![command];
    while let Some(command) = waiting.pop() {
        fs::write(directory.join(format!("{}.1", page_name(&command))), page(&command)?).map_err(unwritable)?;
        let verbs = command.get_subcommands().filter(|verb| verb.get_name() != "help" && !verb.is_hide_set());
        waiting.extend(verbs.cloned());
    }
    Ok(Exit::SUCCESS)
}

/// Returns the name of a page, such as `push-daemon-run`.
fn page_name(command: &clap::Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn page(command: &clap::Command) -> Result<String, CliError> {
    let mut text = Vec::new();
    Man::new(command.clone()).title(page_name(command)).render(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_has_a_page_with_its_examples() {
        let mut command = Args::command();
        command.build();
        for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
            let page = page(verb).unwrap();
            assert!(page.contains(&format!("push\\-{}", verb.get_name())), "{page}");
            assert!(page.contains("Examples"), "{page}");
        }
    }
}
